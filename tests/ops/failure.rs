//! Working with a failure: services that stay up, tries that are repeated.

use std::net::TcpStream;

use serde_json::json;

use crate::env::{ARM, Env, OTHER, eventually, signal};

/// Makes the client fail: it knows no such flag.
const BROKEN: [&str; 2] = ["--set", "+client.args.--no-such-flag=true"];

fn address(line: &str) -> String {
    line.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn services_stay_up_after_a_failure_until_ctrl_c() {
    let env = Env::new();
    let mut run = env.start(&[&["run", ARM, "--keep-on-failure"], &BROKEN[..]].concat());
    let kept = run.until("kept ");
    assert!(kept.contains("client exited with status 2"), "{kept}");
    let server = address(&run.until("server.http"));
    run.until("ixbuild logs");
    assert!(run.until("stop them").contains("ixbuild stop"));
    TcpStream::connect(&server).unwrap_or_else(|error| panic!("the server at {server}: {error}"));
    let shown = env.until_phase("failed, services are kept", 1);
    let label = shown[0]["arms"][0].as_str().unwrap();
    let logs = env.run(&["logs", label, "client"]);
    assert!(logs.out.contains("unknown flag --no-such-flag"), "{}{}", logs.out, logs.err);
    signal(run.pid(), "INT");
    let ended = run.end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(TcpStream::connect(&server).is_err());
    assert_eq!(env.processes(), Vec::<i32>::new());
    assert_eq!(env.attempts(shown[0]["job"].as_str().unwrap()), ["failed"]);
}

#[test]
fn stop_ends_kept_services_and_the_run_goes_on() {
    let env = Env::new();
    let mut run = env.start(&[&["run", ARM, OTHER, "--keep-on-failure"], &BROKEN[..]].concat());
    for _ in 0..2 {
        run.until("kept ");
        let shown = env.until_phase("failed, services are kept", 1);
        assert_eq!(shown.as_array().unwrap().len(), 1, "one at a time");
        let stopped = env.run(&["stop", shown[0]["arms"][0].as_str().unwrap()]);
        assert_eq!(stopped.code, 0, "{}", stopped.err);
    }
    assert_eq!(run.end().code, 1);
    assert_eq!(env.processes(), Vec::<i32>::new());
    let conflict = env.run(&["run", ARM, "--keep-on-failure", "--retries", "2"]);
    assert_eq!(conflict.code, 2);
}

#[test]
fn only_failures_of_the_infrastructure_are_tried_again() {
    let env = Env::new();
    let broken = env.run(&[&["run", ARM, "--retries", "2", "--json"], &BROKEN[..]].concat());
    assert_eq!(broken.code, 1);
    let failure = &broken.json()["arms"][0]["failure"];
    assert_eq!(failure["kind"], "client");
    assert_eq!(env.attempts(broken.json()["arms"][0]["job"].as_str().unwrap()), ["failed"]);

    // A supervisor that is killed is nobody's fault who is measured.
    let run = env.start(&["run", ARM, "--retries", "1", "--profile", "steady", "--json"]);
    env.until_phase("measuring", 1);
    let supervisor = env.processes().into_iter().find(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.contains("\0supervise\0") && words.contains("\0replay\0")
    });
    signal(supervisor.unwrap(), "KILL");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(ended.json()["summary"], json!({"recorded": 1}));
    assert_eq!(env.attempts(&env.job(ARM, "steady")), ["failed", "valid"]);
    eventually("no process left", || env.processes().is_empty());
}
