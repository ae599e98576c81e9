//! Stores that fail while a sweep runs: clear errors, nothing more started, the files kept.

use std::process::Command;

use serde_json::json;

use crate::env::{ARM, Background, Env, OTHER, Ran};

#[test]
fn a_store_that_breaks_under_way_ends_the_sweep_and_the_files_stay() {
    let env = Env::new();
    let mut run = env.start(&["run", ARM, OTHER, "--jobs", "1", "--json"]);
    run.until("start");
    env.until_phase("measuring", 1);
    let blobs = env.store().join("blobs/sha256");
    std::fs::rename(&blobs, env.store().join("aside")).unwrap();
    std::fs::write(&blobs, "").unwrap();
    let ended = run.end();
    assert_eq!(ended.code, 5, "{}", ended.err);
    assert!(ended.err.contains(blobs.to_str().unwrap()), "the path: {}", ended.err);
    assert!(ended.err.contains("its files stay in"), "{}", ended.err);
    assert_eq!(ended.json()["summary"], json!({"failed": 1, "not started": 1}));
    let kept: Vec<_> =
        std::fs::read_dir(env.scratch()).unwrap().flatten().filter(|one| one.file_name() != "caches").collect();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].path().join("logs/server.log").is_file());
    assert_eq!(env.processes(), Vec::<i32>::new());
    // Nothing was lost: with its blobs back it goes on.
    std::fs::remove_file(&blobs).unwrap();
    std::fs::rename(env.store().join("aside"), &blobs).unwrap();
    assert_eq!(env.run(&["run", ARM, OTHER]).code, 0);
    assert_eq!(env.run(&["store", "verify"]).code, 0);
}

/// Runs with the store on a file system of its own; none if mounting is not permitted here.
fn on_tmpfs(env: &Env, mount: &str) -> Option<Ran> {
    std::fs::create_dir_all(env.store()).unwrap();
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let try_it = ["unshare", namespace, "sh", "-c", mount];
    if !env.program(try_it[0], &try_it[1..]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: mounting a tmpfs is not permitted here");
        return None;
    }
    let script = format!("{mount} && exec \"$0\" run \"$1\" \"$2\" --jobs 1 --json");
    let program = env!("CARGO_BIN_EXE_ixbuild");
    let command: Command = env.program("unshare", &[namespace, "sh", "-c", &script, program, ARM, OTHER]);
    Some(Background::start(command).end())
}

#[test]
fn a_full_store_says_so_and_keeps_the_files() {
    let env = Env::new();
    // Room for claims, none for results.
    let Some(ended) = on_tmpfs(&env, "mount -t tmpfs -o size=32k tmpfs \"$IXBUILD_STORE\"") else { return };
    assert_eq!(ended.code, 5, "{}", ended.err);
    assert!(ended.err.contains("No space left on device") && ended.err.contains("free space there"), "{}", ended.err);
    assert!(ended.err.contains(env.store().to_str().unwrap()), "{}", ended.err);
    assert!(ended.err.contains("its files stay in"), "{}", ended.err);
    assert_eq!(ended.json()["summary"], json!({"failed": 1, "not started": 1}));
}

#[test]
fn a_read_only_store_starts_nothing() {
    let env = Env::new();
    let mount = "mount -t tmpfs tmpfs \"$IXBUILD_STORE\" && mount -o remount,ro \"$IXBUILD_STORE\"";
    let Some(ended) = on_tmpfs(&env, mount) else { return };
    assert_eq!(ended.code, 5, "{}", ended.err);
    assert!(ended.err.contains("Read-only file system") && ended.err.contains("--store"), "{}", ended.err);
    assert!(!ended.err.contains("its files stay in"), "there are none: {}", ended.err);
    assert_eq!(ended.json()["summary"], json!({"failed": 1, "not started": 1}));
}
