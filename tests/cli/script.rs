//! `ixbuild show ARM --format sh`: a script that a shell really runs.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::env::{Env, RECORDED};

#[test]
fn every_kind_of_arm_makes_a_script_that_parses() {
    let env = Env::new();
    for arm in
        RECORDED.into_iter().chain(["tp8-vllm-simple-c16", "tp8-ep8-dpa-lmcache-c76", "tp8-resident-mtp-c1-eval"])
    {
        let said = env.without_profile(&["show", arm, "--format", "sh"]).ok();
        let script = env.path("script.sh");
        fs::write(&script, &said.out).unwrap();
        let checked = Command::new("sh").arg("-n").arg(&script).output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{arm}: {checked:?}\n{}", said.out);
    }
}

#[test]
fn a_script_runs_the_arm() {
    let env = Env::new();
    let bin = env.path("bin");
    fs::create_dir(&bin).unwrap();
    let ixbuild = env!("CARGO_BIN_EXE_ixbuild");
    let played = "shift\nexec IXBUILD sim serve --as vllm -- \"$@\"";
    let client = r#"exec IXBUILD replay --settings '{"duration-ms": 250, "warmup-ms": 50}' -- "$@""#;
    for (program, body) in [
        ("vllm", played),
        ("vllm-router", "exec IXBUILD sim serve --as vllm-router -- \"$@\""),
        ("mooncake_master", "exec IXBUILD sim serve --as mooncake -- \"$@\""),
        ("aiperf", client),
        ("curl", "exec /usr/bin/env PATH=\"$REAL_PATH\" curl \"$@\""),
    ] {
        let file = bin.join(program);
        fs::write(&file, format!("#!/bin/sh\n{}\n", body.replace("IXBUILD", ixbuild))).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = env.ixbuild(&["show", "tp8-ep8-dpa-mooncake-mtp-c12", "--format", "sh"]).ok().out;
    fs::write(env.path("script.sh"), &script).unwrap();
    let work = env.scratch().join("work");
    let real_path = std::env::var("PATH").unwrap();
    let mut command = env.command("sh");
    command
        .arg("script.sh")
        .env("PATH", format!("{}:{real_path}", bin.display()))
        .env("REAL_PATH", &real_path)
        .env("WORK", &work)
        .env("RDMA_DEVICES", "mlx5_0")
        .env("AIPERF_MMAP", env.scratch().join("mmap"));
    // Held until all are known, so that each is another.
    let ports: Vec<TcpListener> = (0..8).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let names = script
        .lines()
        .filter_map(|line| line.split_once("=${").map(|(name, _)| name))
        .filter(|name| name.ends_with("_PORT"));
    for (name, port) in names.zip(&ports) {
        command.env(name, port.local_addr().unwrap().port().to_string());
    }
    drop(ports);
    let said = env.said(&mut command);
    env.quiet();
    let said = said.ok();
    let records = fs::read_to_string(work.join("artifacts/profile_export.jsonl"))
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", said.out, said.err));
    assert!(records.lines().count() > 10, "{records}");
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(work.join("server/mooncake.json")).unwrap()).unwrap();
    assert_eq!(config["device_name"], "mlx5_0");
}
