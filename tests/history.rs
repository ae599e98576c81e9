//! The field's own history (`../shared/oracle/history`): what each commit's changelog entries select, by value.
//!
//! Skipped, loudly, where it is absent.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn history() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/oracle/history");
    if dir.is_dir() {
        return dir.canonicalize().ok();
    }
    eprintln!("SKIPPED: no history at {}; selections are not compared with the field's own", dir.display());
    None
}

/// The bundle as a bare repository.
fn repository(history: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "-q", "--bare", "."]);
    git(&["fetch", "-q", history.join("history.bundle").to_str().unwrap(), "refs/heads/*:refs/heads/*"]);
    dir
}

fn cases(history: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(history.join("cases.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn select(dir: &Path, case: &Value, flags: &[&str]) -> (Option<i32>, String, String) {
    let text = |name: &str| case[name].as_str().unwrap().to_owned();
    let output = Command::new(env!("CARGO_BIN_EXE_ixbuild"))
        .args(["changelog", "select", "--base", &text("base"), "--head", &text("head")])
        .args(flags)
        .current_dir(dir)
        .env_remove("IXBUILD_PROJECT")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Everything but the names of the two commits.
fn comparable(mut selection: Value) -> Value {
    let metadata = selection["changelog_metadata"].as_object_mut().unwrap();
    metadata.remove("base_ref");
    metadata.remove("head_ref");
    selection
}

/// Where two values differ first.
fn first_difference(path: &str, got: &Value, expected: &Value) -> Option<String> {
    match (got, expected) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys());
            keys.into_iter().find_map(|key| {
                let side =
                    |of: &serde_json::Map<String, Value>| of.get(key).cloned().unwrap_or(Value::from("(absent)"));
                first_difference(&format!("{path}.{key}"), &side(a), &side(b))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(index, (a, b))| first_difference(&format!("{path}[{index}]"), a, b))
        }
        (Value::Array(a), Value::Array(b)) => Some(format!("{path}: {} items, not {}", a.len(), b.len())),
        _ => (got != expected).then(|| format!("{path}: {got}, not {expected}")),
    }
}

#[test]
fn every_case_selects_what_the_fields_own_tools_select() {
    let Some(history) = history() else { return };
    let repository = repository(&history);
    let cases = cases(&history);
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case["case"].as_str().unwrap();
        let (code, stdout, stderr) = select(repository.path(), case, &[]);
        if case["expect"] == "error" {
            assert_eq!((code, stdout.as_str()), (Some(3), ""), "case {name}: {stderr}");
            assert!(stderr.contains("a removed line"), "case {name}: {stderr}");
            continue;
        }
        if code != Some(0) {
            wrong.push(format!("case {name}: {stderr}"));
            continue;
        }
        let expected = std::fs::read_to_string(history.join(format!("expected/{name}.json"))).unwrap();
        let (got, expected) = (serde_json::from_str(&stdout).unwrap(), serde_json::from_str(&expected).unwrap());
        wrong.extend(first_difference(name, &comparable(got), &comparable(expected)));
    }
    assert_eq!(wrong, Vec::<String>::new());
    eprintln!("{} cases", cases.len());
}
