//! The field's own history (`../shared/oracle/history`): what each commit's changelog entries select, by value.
//!
//! Skipped, loudly, where it is absent.

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
    let (history, dir) = (history.as_path(), repository.path());
    let check = |case: &Value| {
        let name = case["case"].as_str().unwrap();
        let (code, stdout, stderr) = select(dir, case, &[]);
        if case["expect"] == "error" {
            assert_eq!((code, stdout.as_str()), (Some(3), ""), "case {name}: {stderr}");
            assert!(stderr.contains("a removed line"), "case {name}: {stderr}");
            return None;
        }
        if code != Some(0) {
            return Some(format!("case {name}: {stderr}"));
        }
        let expected = std::fs::read_to_string(history.join(format!("expected/{name}.json"))).unwrap();
        let (got, expected) = (serde_json::from_str(&stdout).unwrap(), serde_json::from_str(&expected).unwrap());
        first_difference(name, &comparable(got), &comparable(expected))
    };
    let (one, other) = cases.split_at(cases.len() / 2);
    let mut wrong: Vec<String> = std::thread::scope(|scope| {
        let first = scope.spawn(|| one.iter().filter_map(check).collect::<Vec<_>>());
        let second: Vec<String> = other.iter().filter_map(check).collect();
        first.join().unwrap().into_iter().chain(second).collect()
    });
    wrong.sort();
    assert_eq!(wrong, Vec::<String>::new());
    eprintln!("{} cases", cases.len());
}

/// What flags make of a selection, on a case with fixed rows and evals.
#[test]
fn flags_narrow_a_selection() {
    let Some(history) = history() else { return };
    let repository = repository(&history);
    let cases = cases(&history);
    let run = |name: &str, flags: &[&str]| -> Value {
        let case = cases.iter().find(|case| case["case"] == name).unwrap();
        let (code, stdout, stderr) = select(repository.path(), case, flags);
        assert_eq!(code, Some(0), "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    };
    let rows = |value: &Value| -> Vec<Value> {
        let buckets = value.as_object().unwrap().values();
        buckets.flat_map(|rows| rows.as_array().unwrap().clone()).collect()
    };
    let full = run("003", &[]);
    let trimmed = run("003", &["--trim-conc"]);
    assert_eq!((&trimmed["evals"], &trimmed["changelog_metadata"]), (&full["evals"], &full["changelog_metadata"]));
    // One row for each fingerprint: the one with the lowest concurrency, as it stands in the whole selection.
    let (all, kept) = (rows(&full["single_node"]), rows(&trimmed["single_node"]));
    let prints = |rows: &[Value]| rows.iter().map(|row| row["recipe-fingerprint"].clone()).collect::<Vec<_>>();
    let mut distinct = prints(&all);
    distinct.sort_by_key(ToString::to_string);
    distinct.dedup();
    assert!(kept.len() == distinct.len() && kept.len() < all.len(), "{} of {}", kept.len(), all.len());
    for row in &kept {
        let alike = all.iter().filter(|other| other["recipe-fingerprint"] == row["recipe-fingerprint"]);
        assert_eq!(alike.min_by_key(|other| other["conc"].as_u64()), Some(row));
    }
    let lists = rows(&run("002", &["--trim-conc"])["multi_node"]);
    assert!(!lists.is_empty() && lists.iter().all(|row| row["conc"].as_array().unwrap().len() == 1));
    for flag in ["--evals-only", "--all-evals"] {
        let evals = run("003", &[flag]);
        assert!(rows(&evals["single_node"]).is_empty() && rows(&evals["multi_node"]).is_empty(), "{flag}");
        let count = evals["evals"].as_array().unwrap().len();
        assert!(if flag == "--all-evals" { count == 19 } else { evals["evals"] == full["evals"] }, "{flag}: {count}");
    }
    // Append-only entries have no evals.
    let append = cases.iter().find(|case| case["case"] == "042").unwrap();
    let (code, stdout, _) = select(repository.path(), append, &["--all-evals"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
}

/// The walk over the whole bundle: every commit is judged or said to be passed over, whatever the number of threads.
#[test]
fn the_whole_history_is_audited() {
    let Some(history) = history() else { return };
    let repository = repository(&history);
    let cases = cases(&history);
    let range =
        format!("{}..{}", cases[36]["base"].as_str().unwrap(), cases[cases.len() - 1]["head"].as_str().unwrap());
    let audit = |threads: &str| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_ixbuild"))
            .args(["changelog", "audit", "--json", "--range", &range, "--threads", threads])
            .current_dir(repository.path())
            .env_remove("IXBUILD_PROJECT")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (one, two) = (audit("1"), audit("2"));
    assert_eq!(one, two);
    let sum = |field: &str| {
        let commits = one["commits"].as_array().unwrap().iter();
        let entries = commits.flat_map(|commit| commit["entries"].as_array().cloned().unwrap_or_default());
        entries.map(|entry| entry[field].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(
        (one["total"]["selected"].as_u64(), one["total"]["by_row"].as_u64()),
        (Some(sum("selected")), Some(sum("by_row")))
    );
    assert!(sum("changed") > 0 && sum("changed") < sum("selected") && sum("by_row") == sum("selected"));
    // Each entry of a case's head selects as many arms as its selection has points.
    for case in &cases[37..] {
        let commit = one["commits"].as_array().unwrap().iter().find(|commit| commit["commit"] == case["head"]).unwrap();
        let name = case["case"].as_str().unwrap();
        let expected: Value =
            serde_json::from_str(&std::fs::read_to_string(history.join(format!("expected/{name}.json"))).unwrap())
                .unwrap();
        let measured =
            ["single_node", "multi_node"].iter().flat_map(|side| expected[side].as_object().unwrap().values());
        let points: usize = measured
            .flat_map(|rows| rows.as_array().unwrap())
            .map(|row| row["conc"].as_array().map_or(1, Vec::len))
            .sum::<usize>()
            + ["evals", "agentic_evals", "multinode_evals", "multinode_agentic_evals"]
                .iter()
                .map(|name| expected[name].as_array().unwrap().len())
                .sum::<usize>();
        let selected: u64 =
            commit["entries"].as_array().unwrap().iter().map(|entry| entry["selected"].as_u64().unwrap()).sum();
        assert_eq!(selected, points as u64, "case {name}");
    }
}
