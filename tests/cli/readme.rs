//! Every command of the README runs, in its order, in one project.

use std::fs;

use crate::env::Env;

/// The commands of the README's console blocks.
fn commands() -> Vec<String> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let mut found = Vec::new();
    let mut block = None;
    for line in text.lines() {
        match (block, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                assert!(["console", "yaml"].contains(&kind), "a block of another kind: `{kind}`");
                block = Some(kind);
            }
            (Some(_), Some(_)) => block = None,
            (Some("console"), None) => found.extend(line.strip_prefix("$ ").map(str::to_owned)),
            _ => {}
        }
    }
    found
}

#[test]
fn every_command_of_the_readme_runs() {
    let env = Env::new();
    let found = commands();
    assert!(found.len() > 8, "{found:?}");
    for command in found {
        let words = match command.strip_prefix("cargo run --release -- ") {
            // The two commands of the start: this is `cargo test`; the whole matrix takes a minute, so two arms stand for it.
            Some(words) => format!("{words} tp8-resident-c1 tp8-resident-mtp-c2"),
            None if command == "cargo test" => continue,
            None if command.starts_with("benches/") || command.starts_with("cargo ") => continue,
            None => command.strip_prefix("ixbuild ").map_or_else(String::new, str::to_owned),
        };
        let line = match words.as_str() {
            "" => command.clone(),
            words => format!("{} {words}", env!("CARGO_BIN_EXE_ixbuild")),
        };
        let said = env.said(env.command("sh").args(["-c", &line]));
        assert_eq!(said.code, 0, "{command}\n{}\n{}", said.out, said.err);
    }
}
