//! Help: every verb explains itself with an example, and fits a terminal.

use crate::env::Env;

/// The verbs that a help text lists.
fn verbs(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    list.filter(|line| !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_verb_teaches_by_example() {
    let env = Env::new();
    let top = env.ixbuild(&["--help"]).ok();
    let found = verbs(&top.out);
    for verb in ["plan", "run", "show", "why", "diff", "matrix", "store", "sim", "replay"] {
        assert!(found.iter().any(|known| known == verb), "{verb} is not in {found:?}");
    }
    for verb in found {
        let help = env.ixbuild(&[&verb, "--help"]).ok().out;
        let below: Vec<String> =
            verbs(&help).iter().map(|below| env.ixbuild(&[&verb, below, "--help"]).ok().out).collect();
        let all = format!("{help}{}", below.concat());
        assert!(all.contains(&format!("ixbuild {verb}")) && all.contains("Example"), "{all}");
        assert!(all.lines().all(|line| line.chars().count() <= 110), "{all}");
    }
}

#[test]
fn a_command_line_without_a_verb_gets_the_help() {
    let env = Env::new();
    let said = env.ixbuild(&[]).ended(2);
    assert!(
        said.out.is_empty() && said.err.contains("Usage: ixbuild") && !said.err.contains("supervise"),
        "{}",
        said.err
    );
}

#[test]
fn slips_on_the_command_line() {
    let env = Env::new();
    for (args, hint) in [
        (&["plna"][..], "'plan'"),
        (&["plan", "--max-con", "4"], "--max-conc"),
        (&["run", "x", "--jobs", "0"], "--jobs"),
        (&["run", "x", "--conc", "many"], "--conc"),
    ] {
        let said = env.ixbuild(args).ended(2);
        assert!(said.err.contains(hint) && said.out.is_empty(), "{}", said.err);
    }
}
