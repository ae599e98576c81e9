//! Ctrl-C and SIGTERM stop a run, leave no process, keep logs and records.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::env::Env;

fn interrupt(signal: Signal) {
    let env = Env::new();
    let args = ["run", "tp8-resident-c1", "tp8-ep8-dpa-mooncake-mtp-c12", "--jobs", "1"];
    let mut command = env.command(env!("CARGO_BIN_EXE_ixbuild"));
    let mut child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("start     tp8-resident-c1\n") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // Its engine is there as well: only then is there something to stop.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !env.processes().iter().any(|process| process.contains("sim serve")) {
        assert!(std::time::Instant::now() < until, "no engine");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    env.quiet();
    assert!(said.contains("stopping every process; logs stay in"), "{said}");
    assert!(out.ends_with("2 arms: 1 stopped, 1 not started\n"), "{out}");
    let kept =
        fs::read_dir(env.scratch()).unwrap().flatten().find(|entry| entry.path().join("logs/server.log").exists());
    assert!(kept.is_some(), "the log of the stopped arm is kept");
    // The store is whole, and the next run completes what is left.
    env.ixbuild(&["store", "verify"]).ok();
    let again = env.ixbuild(&args).ok();
    assert!(again.out.ends_with("2 arms: 2 recorded\n"), "{}", again.out);
}

#[test]
fn ctrl_c() {
    interrupt(Signal::INT);
}

#[test]
fn sigterm() {
    interrupt(Signal::TERM);
}
