//! The README holds: every command in it runs and says what it shows, its files are files that ixbuild takes, and its tables
//! name what there is.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::env::Env;

const README: &str = include_str!("../../README.md");

/// A fenced block: its section, its kind, its lines.
struct Block {
    section: String,
    kind: String,
    lines: Vec<String>,
}

fn blocks() -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut section = String::new();
    let mut open = false;
    for line in README.lines() {
        match line.strip_prefix("```") {
            Some(kind) if !open => {
                found.push(Block { section: section.clone(), kind: kind.to_owned(), lines: Vec::new() });
                open = true;
            }
            Some(_) => open = false,
            None if open => found.last_mut().unwrap().lines.push(line.to_owned()),
            None => {
                if let Some(title) = line.strip_prefix("## ") {
                    title.clone_into(&mut section);
                }
            }
        }
    }
    found
}

#[test]
fn there_are_no_blocks_that_nothing_checks() {
    for block in blocks() {
        assert!(
            matches!(block.kind.as_str(), "console" | "yaml"),
            "a block of kind `{}` in {}",
            block.kind,
            block.section
        );
        match block.kind.as_str() {
            "console" => assert!(block.lines[0].starts_with("$ "), "{:?}", block.lines),
            _ => assert!(
                block.lines[0].starts_with("# configs/") || block.lines[0].starts_with("# golden_al_"),
                "{:?}",
                block.lines
            ),
        }
    }
}

/// Commands that take minutes, or that run this test.
fn is_exempt(command: &str) -> bool {
    command == "cargo test" || command.starts_with("cargo bench") || command.starts_with("benches/")
}

/// A section's commands, each with the lines that it shows.
fn commands(section: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for block in blocks().into_iter().filter(|block| block.kind == "console" && block.section == section) {
        for line in block.lines {
            match line.strip_prefix("$ ") {
                Some(command) => found.push((command.to_owned(), Vec::new())),
                None => found.last_mut().unwrap().1.push(line),
            }
        }
    }
    found
}

/// A project in which `ixbuild` and `cargo run --release --` are the program under test, and rehearsals are quick.
fn project() -> Env {
    let env = Env::new();
    let bin = env.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_ixbuild"), bin.join("ixbuild")).unwrap();
    let cargo = "#!/bin/sh\n[ \"$1 $2 $3\" = 'run --release --' ] || exit 99\nshift 3\nexec ixbuild \"$@\"\n";
    fs::write(bin.join("cargo"), cargo).unwrap();
    fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    env
}

/// What a line says, whatever was measured: numbers, hashes and the width of columns aside.
fn gist(line: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches([',', ':', ')']);
        let rest = &word[bare.len()..];
        let number = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit() || b == b'.') && bare.contains('.');
        let hash = bare.trim_start_matches('(').strip_prefix("job:").is_some_and(|hex| hex.len() == 12);
        match (number, hash) {
            (true, _) => format!("N{rest}"),
            (_, true) => format!("job:HASH{rest}"),
            _ => word.replace("rehearsal", "quick"),
        }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Runs a section's commands in one shell and holds what they say against what the README shows: in order, `…` for what
/// it leaves out.
fn check(section: &str, env: &Env) {
    let found = commands(section);
    assert!(!found.is_empty(), "no commands in `{section}`");
    let mut script = String::new();
    for (index, (command, shown)) in found.iter().enumerate() {
        if is_exempt(command) {
            assert!(shown.is_empty(), "what `{command}` says is not checked");
            continue;
        }
        if command.starts_with("skopeo") && env.command("skopeo").arg("--version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "CI has no skopeo");
            eprintln!("SKIPPED: there is no skopeo for `{command}`");
            continue;
        }
        script.push_str(&format!("echo '@@ {index}'\n{}\n", command.replace("rehearsal", "quick")));
    }
    let path = format!("{}:{}", env.path("bin").display(), std::env::var("PATH").unwrap());
    let mut shell = env.command("sh");
    let said =
        env.said(shell.env("PATH", path).env_remove("IXBUILD_PROFILE").args(["-euc", &format!("exec 2>&1\n{script}")]));
    assert_eq!(said.code, 0, "{section}: a command failed\n{}", said.out);
    let mut outputs: Vec<Vec<String>> = vec![Vec::new(); found.len()];
    let mut at = 0;
    for line in said.out.lines() {
        match line.strip_prefix("@@ ") {
            Some(index) => at = index.parse().unwrap(),
            None => outputs[at].push(gist(line)),
        }
    }
    for ((command, shown), output) in found.iter().zip(&outputs) {
        let mut rest = output.iter();
        for line in shown.iter().filter(|line| line.trim() != "…") {
            let wanted = gist(line);
            let there = rest.any(|said| match wanted.strip_suffix('…') {
                Some(start) => said.starts_with(start),
                None => *said == wanted,
            });
            assert!(
                there,
                "{section}: `{command}` does not say\n{wanted}\nin this place; it says\n{}",
                output.join("\n")
            );
        }
    }
}

#[test]
fn the_main_job_runs_and_runs_nothing_twice() {
    let env = project();
    // One concurrency a row: ten arms stand for all.
    let master = env.path("configs/nvidia-master.yaml");
    let cut = |line: &str| match (line.find("conc-list: ["), line.find(']')) {
        (Some(start), Some(end)) => {
            let list = start + "conc-list: [".len();
            let first = line[list..end].split(',').next().unwrap();
            format!("{}{first}{}", &line[..list], &line[end..])
        }
        _ => line.to_owned(),
    };
    let text = fs::read_to_string(&master).unwrap();
    fs::write(&master, text.lines().map(cut).collect::<Vec<_>>().join("\n")).unwrap();
    check("Two commands", &env);
    assert_eq!((env.in_state("recorded").len(), env.in_state("run").len()), (10, 0));
}

#[test]
fn every_other_section_does_as_it_shows() {
    let sections: BTreeSet<String> =
        blocks().into_iter().filter(|block| block.kind == "console").map(|block| block.section).collect();
    assert!(sections.len() > 2, "{sections:?}");
    for section in sections.iter().filter(|section| *section != "Two commands") {
        check(section, &project());
    }
}

#[test]
fn commands_that_no_test_runs_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let words = README.split(|c: char| c.is_whitespace() || "`,;()".contains(c));
    for script in words.filter(|word| word.starts_with("benches/")) {
        assert!(root.join(script).is_file(), "{script} is not there");
    }
    for bench in README.split("cargo bench --bench ").skip(1) {
        let name: String = bench.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        assert!(manifest.contains(&format!("[[bench]]\nname = \"{name}\"")), "no bench {name}");
    }
}

#[test]
fn its_files_are_files_that_ixbuild_takes() {
    let env = Env::new();
    let before = env.plan(&[]);
    let mut profiles = Vec::new();
    for block in blocks().into_iter().filter(|block| block.kind == "yaml") {
        let path = block.lines[0].trim_start_matches("# ").split(' ').next().unwrap().to_owned();
        fs::create_dir_all(env.path(&path).parent().unwrap()).unwrap();
        fs::write(env.path(&path), block.lines.join("\n") + "\n").unwrap();
        profiles.extend(
            path.strip_prefix("configs/profiles/").and_then(|name| name.strip_suffix(".yaml")).map(str::to_owned),
        );
    }
    let after = env.plan(&[]);
    let new: Vec<_> = after.iter().filter(|(id, ..)| before.iter().all(|(known, ..)| known != id)).collect();
    assert!(!new.is_empty() && new.iter().all(|(_, state, _)| state == "run"), "{new:?}");
    assert!(before.iter().all(|arm| after.contains(arm)), "the arms that there were stay as they are");
    assert!(!profiles.is_empty());
    for profile in profiles {
        env.ixbuild(&["plan", "--profile", &profile]).ok();
    }
    // What it adds really runs.
    let said = env.ixbuild(&["run", &new[0].0]).ok();
    assert!(said.out.ends_with("1 arm: 1 recorded\n"), "{}", said.out);
}

/// The words in backquotes outside of blocks.
fn quoted() -> BTreeSet<&'static str> {
    let prose = README.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn its_tables_name_what_there_is() {
    let codes: BTreeSet<&str> = include_str!("../../src/cli/exit.rs")
        .split("u8 = ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next())
        .collect();
    for code in codes.iter().filter(|code| code.bytes().all(|b| b.is_ascii_digit())) {
        assert!(README.contains(&format!("| {code} |")), "exit code {code} is not in the table");
    }
    // A profile's fields, as its reader lists them.
    let env = Env::new();
    fs::write(env.path("configs/profiles/quick.yaml"), "nonsense: 1\n").unwrap();
    let said = env.ixbuild(&["plan"]).ended(3).err;
    let list = said.split("help: one of ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let mut fields: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    assert!(fields.contains(&"executor") && fields.len() > 8, "{fields:?}");
    fields.extend([
        "programs",
        "engine",
        "client",
        "poll-ms",
        "ready-timeout-s",
        "grace-s",
        "scrape-ms",
        "client-timeout-s",
    ]);
    for field in fields.into_iter().chain(["start-up-s", "load-s"]) {
        assert!(README.contains(&format!("{field}:")) || quoted().contains(field), "the field {field} is not there");
    }
    // Environment variables, both ways.
    let mut known = BTreeSet::new();
    variables(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut known);
    let mut named = BTreeSet::new();
    variables_in(README, &mut named);
    assert_eq!(named, known);
}

/// The names `IXBUILD_…` in the files below a folder.
fn variables(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => variables(&entry, found),
            false => variables_in(&fs::read_to_string(entry).unwrap(), found),
        }
    }
}

fn variables_in(text: &str, found: &mut BTreeSet<String>) {
    for rest in text.split("IXBUILD_").skip(1) {
        let name: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
        if !name.is_empty() {
            found.insert(format!("IXBUILD_{name}"));
        }
    }
}

#[test]
fn its_flags_and_verbs_exist() {
    let env = Env::new();
    let top = env.ixbuild(&["--help"]).ok().out;
    let mut helps = top.clone();
    for verb in crate::help::verbs(&top) {
        let help = env.ixbuild(&[&verb, "--help"]).ok().out;
        for below in crate::help::verbs(&help) {
            helps.push_str(&env.ixbuild(&[&verb, &below, "--help"]).ok().out);
        }
        helps.push_str(&help);
    }
    let foreign = ["--release", "--bench", "--raw", "--name"];
    for word in quoted().iter().flat_map(|words| words.split_whitespace()).filter(|word| word.starts_with("--")) {
        let flag = word.trim_end_matches([',', ';']).split('=').next().unwrap();
        assert!(
            foreign.contains(&flag) || helps.contains(&format!("{flag} ")) || helps.contains(&format!("{flag}\n")),
            "{flag}"
        );
    }
    for words in quoted().iter().filter_map(|words| words.strip_prefix("ixbuild ")) {
        let verb = words.split_whitespace().next().unwrap();
        assert!(verb.starts_with('-') || crate::help::verbs(&top).iter().any(|known| known == verb), "ixbuild {verb}");
    }
}
