//! The shape of the source: who may import whom, what every file opens with, how long it may be, who writes and prints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Module → the modules that it may import. Imports point upstream: from what is later in the pipeline to what is earlier.
/// `cli` is not here: it may import all of them, and nothing but the program imports it.
const MAY_IMPORT: [(&str, &[&str]); 25] = [
    ("ids", &[]),
    // Git objects and HTTP clients know nothing of benchmarks.
    ("git", &[]),
    ("net", &[]),
    // A spec is a value: it knows no file, no arm, no host.
    ("spec", &["ids"]),
    // A profile says what stands in for the real thing in the spec's own types.
    ("config", &["git", "ids", "spec"]),
    ("matrix", &["config", "ids"]),
    ("lock", &["config", "ids", "net", "spec"]),
    ("speculative", &["config", "matrix", "spec"]),
    ("recipe", &["config", "lock", "matrix", "spec", "speculative"]),
    // The simulator knows real command lines and nothing of arms, specs or recipes.
    ("sim", &["net"]),
    // Of the simulator, composition knows the versions of its behaviour.
    ("compose", &["config", "lock", "matrix", "recipe", "sim", "spec", "speculative"]),
    ("store", &["ids"]),
    // Planning sees the store through its view.
    ("plan", &["compose", "config", "ids", "spec", "store"]),
    ("whatif", &["config", "spec", "speculative"]),
    ("memo", &["compose", "config", "ids", "plan"]),
    ("changelog", &["config", "git", "ids", "matrix", "project", "recipe", "spec"]),
    ("project", &["compose", "config", "lock", "matrix", "plan", "recipe", "store"]),
    // An executor takes a spec and a host: no YAML, no arm.
    ("exec", &["ids", "net", "spec"]),
    ("result", &["ids", "spec"]),
    ("sweep", &["compose", "exec", "ids", "plan", "result", "spec", "store"]),
    // What records hold is read as it was written: by the sweep, of an execution.
    ("records", &["exec", "ids", "plan", "result", "spec", "store", "sweep"]),
    ("recompute", &["exec", "records", "result", "spec", "store", "sweep"]),
    ("reproduce", &["exec", "ids", "recompute", "records", "result", "sim", "spec", "store"]),
    ("since", &["changelog", "compose", "config", "ids", "matrix", "plan", "project", "spec"]),
    ("main", &["cli"]),
];

/// The files that write, each with what it writes. Results, claims and everything else that lasts go through the first.
const MAY_WRITE: [(&str, &str); 11] = [
    ("store/fs.rs", "the store"),
    ("exec/launch.rs", "files and folders of a job, in its scratch folder"),
    ("exec/ports.rs", "the host's list of ports in use, in its runtime folder"),
    ("exec/local.rs", "logs of services, in the scratch folder"),
    ("exec/counters.rs", "samples of counters, in the scratch folder"),
    ("exec/actor.rs", "what a test's actor is told to write"),
    ("memo.rs", "plans worth remembering, in the user's cache folder"),
    ("lock/write.rs", "ixbuild.lock"),
    ("exec/memory.rs", "what the executor in memory pretends to log, in the scratch folder"),
    ("sim/replay/mod.rs", "the replay client's output, where its command line says"),
    ("sweep/record.rs", "logs of an attempt, with secrets masked; removes the scratch folder of a recorded one"),
];

const WRITES: [&str; 18] = [
    "fs::write(",
    "fs::rename(",
    "fs::remove_file(",
    "fs::remove_dir",
    "fs::create_dir",
    "fs::copy(",
    "fs::hard_link(",
    "fs::set_permissions(",
    "File::create(",
    "File::create_new(",
    "File::options(",
    "OpenOptions::",
    ".set_len(",
    "fs::symlink(",
    "tempfile::",
    "rustix::fs::unlink",
    "rustix::fs::rename",
    "rustix::fs::mkdir",
];

const PRINTS: [&str; 8] =
    ["println!(", "print!(", "eprintln!(", "eprint!(", "io::stdout()", "io::stderr()", "stdout().", "stderr()."];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every source file: path below `src`, text.
fn files() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                found.insert(name, std::fs::read_to_string(path).unwrap());
            }
        }
    }
    assert!(found.len() > 100, "only {} files in src", found.len());
    found
}

/// The part before a file's own tests; nothing for files that are tests.
fn product<'t>(name: &str, text: &'t str, all: &BTreeMap<String, String>) -> &'t str {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    let stem = name.rsplit('/').next().unwrap().trim_end_matches(".rs");
    let parent = all.get(&format!("{folder}/mod.rs")).map_or("", String::as_str);
    let lines: Vec<&str> = parent.lines().collect();
    let is_test = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].ends_with(&format!("mod {stem};"));
    if lines.windows(2).any(is_test) {
        return "";
    }
    text.split("\n#[cfg(test)]\nmod ").next().unwrap()
}

/// The top-level module of a file.
fn module(name: &str) -> &str {
    name.split(['/', '.']).next().unwrap()
}

/// The modules that a text names after `crate::`, in imports and in paths, doc comments aside.
fn imported(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    let word = |text: &str| -> String { text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect() };
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("ixbuild::")) {
        let rest = &code[at..];
        let rest = &rest[rest.find("::").unwrap() + 2..];
        match rest.strip_prefix('{') {
            None => {
                found.insert(word(rest));
            }
            Some(group) => {
                let mut depth = 1;
                let mut start = true;
                for (index, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => start = true,
                        c if c.is_whitespace() => {}
                        _ if start && depth == 1 => {
                            found.insert(word(&group[index..]));
                            start = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    found
}

#[test]
fn imports_point_upstream() {
    let files = files();
    let allowed: BTreeMap<&str, &[&str]> = MAY_IMPORT.into_iter().collect();
    let modules: BTreeSet<&str> = files.keys().map(|name| module(name)).filter(|name| *name != "lib").collect();
    let known: BTreeSet<&str> = allowed.keys().copied().chain(["cli"]).collect();
    assert_eq!(modules, known, "say in MAY_IMPORT where each module stands");
    let mut faults = Vec::new();
    for (name, text) in &files {
        let from = module(name);
        let targets = imported(product(name, text, &files));
        let wrong = targets.iter().filter(|to| modules.contains(to.as_str()) && *to != from);
        let wrong = wrong.filter(|to| from != "cli" || *to == "main");
        let wrong = wrong.filter(|to| !allowed.get(from).is_some_and(|list| list.contains(&to.as_str())));
        faults.extend(wrong.map(|to| format!("src/{name} imports {to}")));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_table_of_imports_has_no_circle_and_no_edge_that_nobody_uses() {
    let files = files();
    let mut used: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in &files {
        used.entry(module(name)).or_default().extend(imported(product(name, text, &files)));
    }
    for (from, list) in MAY_IMPORT {
        let unused: Vec<_> = list.iter().filter(|to| !used[from].contains(**to)).collect();
        assert!(unused.is_empty(), "{from} imports none of {unused:?}: take them off the table");
    }
    let mut standing: BTreeSet<&str> = BTreeSet::from(["cli"]);
    while standing.len() <= MAY_IMPORT.len() {
        let next = MAY_IMPORT
            .iter()
            .find(|(name, list)| !standing.contains(name) && list.iter().all(|to| standing.contains(to)));
        let Some((name, _)) = next else { panic!("a circle among the modules beyond {standing:?}") };
        standing.insert(name);
    }
}

#[test]
fn every_file_says_what_it_does() {
    for (name, text) in files() {
        assert!(text.starts_with("//! "), "src/{name} does not open with `//!`");
    }
}

/// The crate's documentation is a map of all its modules.
#[test]
fn the_map_names_every_module() {
    let text = files()["lib.rs"].clone();
    let modules: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert!(modules.len() > 15, "{modules:?}");
    let lost: Vec<_> = modules.iter().filter(|name| !text.contains(&format!("//! | [`{name}`] | "))).collect();
    assert!(lost.is_empty(), "src/lib.rs does not say what these do: {lost:?}");
}

#[test]
fn files_stay_short() {
    let files = files();
    let mut lengths: Vec<usize> = Vec::new();
    for (name, text) in &files {
        let lines = product(name, text, &files).lines().count();
        assert!(lines <= 400, "src/{name} has {lines} lines without its tests");
        lengths.push(lines);
    }
    lengths.retain(|lines| *lines > 0);
    lengths.sort_unstable();
    assert!(lengths[lengths.len() / 2] <= 180, "the median file has {} lines", lengths[lengths.len() / 2]);
}

#[test]
fn one_owner_of_writes_and_one_of_the_streams() {
    let files = files();
    let mut writers: BTreeSet<&str> = BTreeSet::new();
    let mut faults = Vec::new();
    for (name, text) in &files {
        let code = product(name, text, &files).lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            if WRITES.iter().any(|call| line.contains(call)) {
                writers.insert(name);
                if !MAY_WRITE.iter().any(|(file, _)| file == name) {
                    faults.push(format!("src/{name} writes: {}", line.trim()));
                }
            }
            if name != "cli/printer.rs" && PRINTS.iter().any(|call| line.contains(call)) {
                faults.push(format!("src/{name} prints: {}", line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    let idle: Vec<_> = MAY_WRITE.iter().filter(|(file, _)| !writers.contains(file)).collect();
    assert!(idle.is_empty(), "these write nothing any more: {idle:?}");
}

#[test]
fn the_readers_of_this_file_read_rust() {
    let text = "use crate::{config::{diagnostic, fields}, ids::Digest};\nuse crate::spec::Key;\n// crate::cli\nfn f() { crate::lock::x() }";
    assert_eq!(imported(text).into_iter().collect::<Vec<_>>(), ["config", "ids", "lock", "spec"]);
}
