//! Faulty masters and runners files: every fault at file:line:column, with its line and its fix; no output, exit 3.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::process::Command;

const ENTRY: &str = "\
m-key:
  image: org/engine:1
  model: org/m
  model-prefix: m
  precision: fp4
  framework: vllm
  runner: cluster:b200-dgxc
  multinode: false
  scenarios:
    agentic-coding:
    - dram-utilization: 0.80
      search-space:
      - { tp: 8, kv-offloading: none, conc-list: [1, 2] }
";
const RUNNERS: &str = "\
labels:
  cluster:b200-dgxc: [b200-dgxc_00]
hardware:
  cluster:b200-dgxc: { available-cpu-dram-mib: 3_095_781, gpus-per-node: 8 }
";

/// What `matrix` says of a master and a runners file.
fn refusal(master: &[u8], runners: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("master.yaml"), master).unwrap();
    std::fs::write(dir.path().join("runners.yaml"), runners).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ixbuild"))
        .args(["matrix", "--config-files", "master.yaml", "--runner-config", "runners.yaml"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{said}");
    said
}

/// The refusals of the entry with one part replaced by another.
fn refusals(changes: &[(&str, &str)]) -> String {
    let said = changes.iter().map(|(from, to)| {
        let master = ENTRY.replacen(from, to, 1);
        assert_ne!(master, ENTRY, "`{from}` is not in the entry");
        refusal(master.as_bytes(), RUNNERS)
    });
    said.collect::<Vec<_>>().join("\n")
}

/// A snapshot without the expression that made it.
macro_rules! shows {
    ($($said:expr),+) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($($said),+) })
    };
}

#[test]
fn the_entry_itself_is_good() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("master.yaml"), ENTRY).unwrap();
    std::fs::write(dir.path().join("runners.yaml"), RUNNERS).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ixbuild"))
        .args(["matrix", "--config-files", "master.yaml", "--runner-config", "runners.yaml"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn fields_and_kinds() {
    shows!(refusals(&[
        ("model-prefix: m", "model_prefix: m"),
        ("kv-offloading: none", "kv-offload: none"),
        ("image: org/engine:1", "image: 1.10"),
        ("tp: 8", "tp: \"8\""),
        ("tp: 8", "tp: 010"),
        ("multinode: false", "multinode: 0"),
        ("precision: fp4", "precision: ~"),
        ("conc-list: [1, 2]", "conc-list: 1"),
    ]));
}

#[test]
fn concurrencies() {
    shows!(refusals(&[
        ("conc-list: [1, 2]", "conc-list: [1, 2], conc-start: 1, conc-end: 2"),
        (", conc-list: [1, 2]", ""),
        ("conc-list: [1, 2]", "conc-start: 4"),
        ("conc-list: [1, 2]", "conc-start: 8, conc-end: 4"),
        ("conc-list: [1, 2]", "conc-list: [0]"),
    ]));
}

#[test]
fn offloading() {
    shows!(refusals(&[
        ("kv-offloading: none", "kv-offloading: none, kv-offload-backend: { name: mooncake }"),
        ("kv-offloading: none", "kv-offloading: dram"),
        ("kv-offloading: none, ", ""),
        ("kv-offloading: none", "kv-offloading: dram, kv-offload-backend: { name: mooncake, version: 1.10 }"),
        ("kv-offloading: none", "kv-offloading: dram, kv-offload-backend: { name: x, version: \"image:x\" }"),
    ]));
}

#[test]
fn sizes_and_runners() {
    let dram = "kv-offloading: dram, kv-offload-backend: { name: mooncake }";
    shows!(refusals(&[
        ("tp: 8", "tp: 8, dcp-size: 3"),
        ("tp: 8, kv-offloading: none", &format!("tp: 8, pp: 2, {dram}")),
        ("runner: cluster:b200-dgxc", "runner: b200-dgxc"),
        ("dram-utilization: 0.80", "dram-utilization: 1.5"),
        ("tp: 8", "tp: 8, prefill: { num-worker: 1 }"),
    ]));
    let unknown = ENTRY.replacen("b200-dgxc", "b200-dgx", 1).replacen("kv-offloading: none", dram, 1);
    shows!("no_hardware_facts", refusal(unknown.as_bytes(), RUNNERS));
}

#[test]
fn all_faults_of_all_files_come_at_once() {
    let master = ENTRY
        .replacen("fp4", "1.5", 1)
        .replacen("model: org/m", "modle: org/m", 1)
        .replacen("none", "cpu", 1)
        .replacen("[1, 2]", "[1, -2, x]", 1);
    shows!(refusal(master.as_bytes(), &RUNNERS.replace("gpus-per-node: 8", "gpus: 8")));
}

#[test]
fn texts_that_are_no_document() {
    let cases: [&[u8]; 7] = [
        b"",
        b"a: 1\nb: \xff\n",
        b"m-key:\n\timage: x\n",
        b"m-key: {}\nm-key: {}\n",
        b"m-key: {}\n---\nother: {}\n",
        b"m-key: { image: x, conc: [1, 2 }\n",
        b"- m-key\n",
    ];
    let said: Vec<String> = cases.iter().map(|text| refusal(text, RUNNERS)).collect();
    shows!(said.join("\n"));
}
