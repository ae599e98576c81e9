//! Runs that fail: what is said, what is kept, the exit code. The simulator injects the faults.

use std::fs;

use crate::env::Env;

const LONGER: (&str, &str) = ("duration-ms: 250", "duration-ms: 1000");

fn engine(setting: &str) -> String {
    format!("engine: {{{setting}}}")
}

#[test]
fn what_fails_a_gate_is_kept_and_shown_and_never_served() {
    let env = Env::new();
    let biased = engine("acceptance-bias: 0.4");
    env.profile("biased", &[LONGER, ("engine: {}", &biased)]);
    let args = ["tp8-resident-mtp-c8", "--profile", "biased"];
    let said = env.ixbuild(&[&["run"], &args[..]].concat()).ended(1);
    assert!(said.err.contains("invalid") && said.err.contains("acceptance"), "{}", said.err);
    assert!(said.out.contains("kept, not served") || said.err.contains("kept, not served"), "{}", said.err);
    assert!(said.out.ends_with("1 arm: 1 invalid\n"), "{}", said.out);
    let show = env.ixbuild(&[&["show", "--json"], &args[..]].concat()).ok().json();
    let attempt = &show["attempts"][0];
    assert_eq!(attempt["outcome"], "invalid");
    assert!(attempt["result"]["requests"].is_object(), "its numbers are kept");
    let failed: Vec<_> =
        attempt["gates"].as_array().unwrap().iter().filter(|gate| gate["verdict"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let plan = env.ixbuild(&[&["plan"], &args[..]].concat()).ok();
    assert!(plan.out.contains("run       tp8-resident-mtp-c8  the last attempt was invalid"), "{}", plan.out);
    let why = env.ixbuild(&[&["why"], &args[..]].concat()).ok();
    assert!(why.out.contains("the last attempt was invalid"), "{}", why.out);
    // It runs again, and fails again.
    env.ixbuild(&[&["run"], &args[..]].concat()).ended(1);
}

#[test]
fn a_client_that_sees_too_many_errors_fails_the_arm() {
    let env = Env::new();
    env.profile("faulty", &[("engine: {}", &engine("error-rate: 0.5"))]);
    let said = env.ixbuild(&["run", "tp8-resident-c4", "--profile", "faulty"]).ended(1);
    assert!(said.err.contains("client exited with status 1"), "{}", said.err);
    assert!(said.err.contains("requests failed: more than --failed-request-threshold 0.1 allows"), "{}", said.err);
    assert_eq!(
        env.ixbuild(&["plan", "tp8-resident-c4", "-P", "faulty", "--json"]).ok().json()["summary"]["recorded"],
        0
    );
}

#[test]
fn a_service_that_dies_is_shown_with_its_last_words() {
    let env = Env::new();
    env.profile("crash", &[("engine: {}", &engine("crash-after-requests: 2"))]);
    let said = env.ixbuild(&["run", "tp8-resident-c2", "--profile", "crash", "--json"]).ended(1);
    env.quiet();
    let arm = said.json()["arms"][0].clone();
    assert_eq!((&arm["outcome"], &arm["failure"]["service"]), (&"failed".into(), &"server".into()));
    let log = arm["failure"]["log"].as_str().unwrap();
    assert!(said.err.contains(&format!("log: {log}")), "{}", said.err);
    let text = fs::read_to_string(log).unwrap();
    let last = text.lines().last().unwrap();
    assert!(last.contains("crashed after 2 requests") && said.err.contains(&format!("| {last}")), "{}", said.err);
    assert!(said.err.contains("server exited with status 1"), "{}", said.err);
    // The attempt is in the store, with its logs.
    let show = env.ixbuild(&["show", "tp8-resident-c2", "-P", "crash"]).ok();
    assert!(show.out.contains("failed (service): server exited with status 1"), "{}", show.out);
}

#[test]
fn a_service_that_is_never_ready_times_out() {
    let env = Env::new();
    let timeout = ("ready-timeout-s: 30", "ready-timeout-s: 1");
    env.profile("never", &[("engine: {}", &engine("never-ready: true")), timeout]);
    let said = env.ixbuild(&["run", "tp8-resident-c1", "--profile", "never", "--json"]).ended(1);
    env.quiet();
    assert_eq!(said.json()["arms"][0]["failure"]["kind"], "timeout", "{}", said.out);
    assert!(said.err.contains("not ready") && said.err.contains("server.log"), "{}", said.err);
}

#[test]
fn a_flag_that_the_program_does_not_know_fails_its_arms_alone() {
    let env = Env::new();
    let recipe = "configs/recipes/dsv4-fp4-b200-vllm.yaml";
    let overlay = "overlays:\n  - when: ${{ conc == 2 }}\n    services: {server: {args: {no-such-flag: true}}}\n";
    env.edit(recipe, "overlays:\n", overlay);
    let args = ["run", "tp8-resident-c1", "tp8-resident-c2", "tp8-resident-c4", "--jobs", "1"];
    let said = env.ixbuild(&args).ended(1);
    assert!(said.out.ends_with("3 arms: 2 recorded, 1 failed\n"), "{}", said.out);
    assert!(said.err.contains("--no-such-flag"), "{}", said.err);
    insta::assert_snapshot!(said.measured());
    // Again, stopping at the first failure.
    let again = env.ixbuild(&["run", "tp8-resident-c2", "tp8-resident-c6", "--jobs", "1", "--fail-fast"]).ended(1);
    assert!(again.out.ends_with("2 arms: 1 failed, 1 not started\n"), "{}", again.out);
    assert_eq!(env.in_state("recorded"), ["tp8-resident-c1", "tp8-resident-c4"]);
}

#[test]
fn an_arm_without_a_golden_value_is_blocked_and_the_others_run() {
    let env = Env::recorded();
    env.edit("golden_al_distribution/dsv4_mtp.yaml", "    3: 2.49\n", "");
    let said = env.ixbuild(&["run", "tp8-resident-c1", "tp8-resident-mtp-c1"]).ended(4);
    insta::assert_snapshot!(said.measured());
}

#[test]
fn a_store_that_cannot_be_written_loses_no_result_silently() {
    let env = Env::new();
    fs::write(env.store(), "not a folder").unwrap();
    let said = env.ixbuild(&["run", "tp8-resident-c1"]).ended(5);
    assert!(said.err.contains(&env.store().display().to_string()), "{}", said.err);
    assert!(env.processes().is_empty());
}
