//! The field's own data: its masters, arguments and rows, where they lie beside the project (`../shared/oracle`).
//!
//! Skipped, loudly, where they are absent.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn oracle() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/oracle");
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("SKIPPED: no oracle at {}; the field's own rows are not compared", dir.display());
    None
}

struct Said {
    ok: bool,
    stdout: String,
    stderr: String,
}

fn matrix(dir: &Path, args: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Said {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ixbuild")).arg("matrix").args(args).current_dir(dir).output().unwrap();
    Said {
        ok: output.status.success(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn args(case: &Value) -> Vec<String> {
    case["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned()).collect()
}

fn unzip(path: &Path) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// Strips spaces outside strings, so that documents compare by bytes: fields, values, and the order of both.
fn compact(json: &str) -> String {
    let (mut out, mut quoted, mut escaped) = (String::with_capacity(json.len()), false, false);
    for c in json.chars() {
        if quoted || !c.is_ascii_whitespace() {
            out.push(c);
        }
        quoted = if c == '"' && !escaped { !quoted } else { quoted };
        escaped = c == '\\' && !escaped;
    }
    out
}

#[test]
fn every_case_prints_the_rows_of_the_fields_generator() {
    let Some(oracle) = oracle() else { return };
    let head = oracle.join("head");
    let cases = lines(&head.join("cases.jsonl"));
    assert!(!cases.is_empty());
    let check = |case: &Value| {
        let said = matrix(&head, args(case));
        assert!(said.ok, "{case}\n{}", said.stderr);
        let expected = compact(&unzip(&head.join("expected").join(case["expected"].as_str().unwrap())));
        let got = compact(&said.stdout);
        if got != expected {
            let at = got.bytes().zip(expected.bytes()).position(|(a, b)| a != b).unwrap_or(0);
            let part = |text: &str| text[at.saturating_sub(300)..text.len().min(at + 100)].to_owned();
            panic!("{case}\n got: {}\nfrom: {}", part(&got), part(&expected));
        }
    };
    let (one, other) = cases.split_at(cases.len() / 2);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| one.iter().for_each(check));
        other.iter().for_each(check);
        first.join().unwrap();
    });
}

#[test]
fn every_refusal_has_a_reason_and_no_output() {
    let Some(oracle) = oracle() else { return };
    let head = oracle.join("head");
    for case in lines(&head.join("errors.jsonl")) {
        let said = matrix(&head, args(&case));
        assert!(!said.ok && said.stdout.is_empty() && said.stderr.starts_with("error: "), "{case}\n{}", said.stderr);
    }
}

#[test]
fn mutations_are_accepted_and_refused_alike() {
    let Some(oracle) = oracle() else { return };
    let dir = oracle.join("mutations");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(dir.join("expected.json")).unwrap()).unwrap();
    for case in cases {
        let file = case["file"].as_str().unwrap();
        let said =
            matrix(&dir, ["--config-files", file, "--runner-config", "../head/configs/runners.yaml", "--no-evals"]);
        assert_eq!(said.ok, case["accept"].as_bool().unwrap(), "{file}\n{}", said.stderr);
        if said.ok {
            assert_eq!(serde_json::from_str::<Value>(&said.stdout).unwrap(), case["rows"], "{file}");
        } else {
            let place = format!("--> {file}:");
            assert!(said.stderr.contains(&place), "{file} without a place\n{}", said.stderr);
        }
    }
}

/// The fingerprints in the selections of the field's history are the hashes of our rows.
#[test]
fn row_hashes_are_the_fields_fingerprints() {
    let Some(oracle) = oracle() else { return };
    let history = oracle.join("history");
    let dir = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(dir.path()).output();
        output.ok().filter(|output| output.status.success())
    };
    if git(&["init", "-q"]).is_none() {
        eprintln!("SKIPPED: no git; row hashes are not compared");
        return;
    }
    let bundle = history.join("history.bundle").canonicalize().unwrap();
    git(&["fetch", "-q", bundle.to_str().unwrap(), "refs/*:refs/oracle/*"]).expect("the bundle reads");
    let (mut compared, mut cases) = (0, 0);
    for (index, case) in lines(&history.join("cases.jsonl")).iter().enumerate() {
        let expected = history.join(format!("expected/{index:03}.json"));
        let (Some(head), true) = (case["head"].as_str(), expected.is_file()) else { continue };
        for name in ["amd-master.yaml", "nvidia-master.yaml", "runners.yaml"] {
            let found = ["configs", ".github/configs"]
                .iter()
                .find_map(|place| git(&["show", &format!("{head}:{place}/{name}")]))
                .expect("the masters of a case");
            std::fs::write(dir.path().join(name), found.stdout).unwrap();
        }
        let selection: Value = serde_json::from_str(&std::fs::read_to_string(&expected).unwrap()).unwrap();
        let entries = selection["changelog_metadata"]["entries"].as_array().unwrap();
        let keys = entries.iter().flat_map(|entry| entry["config-keys"].as_array().unwrap());
        let hashes = hashes(dir.path(), keys.map(|key| key.as_str().unwrap().to_owned()).collect());
        for group in ["single_node", "multi_node"] {
            for rows in selection[group].as_object().unwrap().values() {
                for row in rows.as_array().unwrap() {
                    let fingerprint = row["recipe-fingerprint"].as_str().unwrap();
                    assert!(hashes.contains(fingerprint), "case {index}: {row}");
                    compared += 1;
                }
            }
        }
        cases += 1;
        if cases == 6 {
            break;
        }
    }
    assert!(compared > 0, "no fingerprint in the history");
}

fn hashes(dir: &Path, keys: Vec<String>) -> std::collections::HashSet<String> {
    use ixbuild::config::load::Config;
    use ixbuild::matrix::{expand::expand, filter::Filter, filter::Keys, rows::row_hash};
    let masters = ["amd-master.yaml", "nvidia-master.yaml"].map(|name| dir.join(name));
    let config = Config::load(&masters, &dir.join("runners.yaml")).unwrap();
    let filter = Filter::Keys(Keys { keys, ..Keys::default() });
    let rows = expand(&config.entries, &config.runners, &filter).unwrap();
    rows.iter().map(|line| row_hash(&line.row).0.hex()).collect()
}

/// 1,820 rows, 2,078 points, each with a name of its own.
#[test]
fn arm_ids_are_unique_over_the_whole_matrix() {
    use ixbuild::config::load::Config;
    use ixbuild::matrix::{arms::arms, expand::expand, filter::Filter, filter::Sweep, rows::row_hash};
    let Some(oracle) = oracle() else { return };
    let configs = oracle.join("head/configs");
    let masters = ["amd-master.yaml", "nvidia-master.yaml"].map(|name| configs.join(name));
    let config = Config::load(&masters, &configs.join("runners.yaml")).unwrap();
    let rows = expand(&config.entries, &config.runners, &Filter::Sweep(Sweep::default())).unwrap();
    let points: usize = rows.iter().map(|line| line.concs.len()).sum();
    assert_eq!((rows.len(), points), (1820, 2078));
    let found = arms(&rows);
    assert_eq!(found.arms.len() + found.repeats.len(), points);
    for repeat in &found.repeats {
        eprintln!("listed twice: {} at {}", repeat.id, repeat.place);
    }
    // A repeated id says the same as the arm that it already is.
    let mut said = std::collections::HashMap::new();
    for line in &rows {
        let hash = row_hash(&line.row);
        for conc in &line.concs {
            let first = said.entry((line.row.label.clone(), *conc)).or_insert(hash);
            assert_eq!(*first, hash, "{}", line.row.label);
        }
    }
}
