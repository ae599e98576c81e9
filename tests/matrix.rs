//! `ixbuild matrix` on the committed configuration, as a user calls it.

#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Command, Output};

fn matrix(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ixbuild"))
        .arg("matrix")
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap()
}

/// Stdout of a call that succeeds.
fn prints(args: &[&str]) -> String {
    let output = matrix(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const FILES: [&str; 2] = ["--config-files", "configs/nvidia-master.yaml"];

fn with<'a>(args: &[&'a str]) -> Vec<&'a str> {
    FILES.iter().chain(args).copied().collect()
}

#[test]
fn json_is_a_list_with_a_row_a_line() {
    let text = prints(&with(&[]));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!((rows.len(), text.lines().count()), (68, 70));
    insta::assert_snapshot!(text.lines().nth(60).unwrap());
}

#[test]
fn an_empty_selection_is_an_empty_list() {
    assert_eq!(prints(&with(&["--framework", "sglang"])), "[]\n");
    assert_eq!(prints(&with(&["--max-conc", "-3"])), "[]\n");
}

#[test]
fn the_table_is_for_people() {
    insta::assert_snapshot!(prints(&with(&["--format", "table", "--config-keys", "*-mtp", "--conc", "8", "80"])));
    insta::assert_snapshot!("table_of_evals", prints(&with(&["--format", "table", "--evals-only"])));
}

#[test]
fn github_is_one_line() {
    let text = prints(&with(&["--format", "github", "--config-keys", "*-mtp", "--conc", "1"]));
    let matrix: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((matrix["include"].as_array().unwrap().len(), text.lines().count()), (1, 1));
}

#[test]
fn contradictions_say_what_to_do() {
    let cases: [&[&str]; 7] = [
        &[],
        &with(&["--conc", "8"]),
        &with(&["--config-keys", "*", "--max-tp", "8"]),
        &with(&["--config-keys", "dsv4-fp4-b200-vllm-agentic-mpt"]),
        &with(&["--min-conc", "9", "--max-conc", "8"]),
        &with(&["--step-size", "1"]),
        &with(&["--runner-type", "cluster:b200"]),
    ];
    let mut said = String::new();
    for args in cases {
        let output = matrix(args);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
        said.push_str(&String::from_utf8(output.stderr).unwrap());
        said.push('\n');
    }
    insta::assert_snapshot!(said);
}
