//! `ixbuild run`: what runs, what is served, what is printed.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use crate::env::{Env, RECORDED};

#[test]
fn a_second_run_runs_nothing() {
    let env = Env::new();
    let args = ["run", "tp8-resident-c1", "tp8-resident-mtp-c1", "--jobs", "1"];
    let first = env.ixbuild(&args).ok();
    insta::assert_snapshot!("first", first.measured());
    env.quiet();
    // What a success leaves in the scratch folder is in the store.
    let left: Vec<_> = fs::read_dir(env.scratch()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "caches"), "{left:?}");
    let begun = std::time::Instant::now();
    let second = env.ixbuild(&args).ok();
    assert!(begun.elapsed().as_secs() < 1, "{:?}", begun.elapsed());
    insta::assert_snapshot!("second", second.measured());
    let again = env.ixbuild(&["run", "*/tp8-resident*c1", "--all"]).ok();
    insta::assert_snapshot!("second_with_all", again.measured());
}

#[test]
fn nothing_starts_by_accident() {
    let env = Env::recorded();
    let said = env.ixbuild(&["run"]).ended(2);
    assert!(said.err.contains("nothing is selected") && said.err.contains("--only-changed"), "{}", said.err);
    let flags_that_select_nothing = env.ixbuild(&["run", "--no-evals", "--step-size", "4", "--rerun"]).ended(2);
    assert_eq!(flags_that_select_nothing.err, said.err);
    for args in [&["run", "--only-changed"][..], &["run", "tp8-resident-c1"], &["run", "--all"]] {
        let said = env.without_profile(args).ended(4);
        assert!(said.err.contains("docker") && said.err.contains("--profile rehearsal"), "{}", said.err);
        assert_eq!(said.out, "");
    }
    assert!(env.processes().is_empty() && fs::read_dir(env.scratch()).unwrap().next().is_none());
}

#[test]
fn only_changed_runs_what_changed_and_serves_the_rest() {
    let env = Env::recorded();
    env.edit("configs/recipes/lib/kv-offload.yaml", "local_buffer_size: 4GB", "local_buffer_size: 8GB");
    let args: Vec<&str> = ["run", "--only-changed"].into_iter().chain(RECORDED).collect();
    let said = env.ixbuild(&args).ok();
    assert!(said.out.ends_with("5 arms: 1 recorded, 4 served\n"), "{}", said.out);
    assert!(said.err.contains("recorded  1/1  tp8-ep8-dpa-mooncake-mtp-c12"), "{}", said.err);
    assert_eq!(env.in_state("recorded"), RECORDED);
    let why = env.ixbuild(&["why", RECORDED[4]]).ok();
    insta::assert_snapshot!("why_it_ran", why.transcript());
    // The old record is still there for the old recipe.
    env.edit("configs/recipes/lib/kv-offload.yaml", "local_buffer_size: 8GB", "local_buffer_size: 4GB");
    assert_eq!(env.in_state("recorded"), RECORDED);
}

#[test]
fn json_is_one_object_of_every_arm() {
    let env = Env::recorded();
    let run = env.ixbuild(&["run", "tp8-resident-c1", "tp8-resident-c2", "--json"]).ok().json();
    assert_eq!(run["profile"], "quick");
    assert_eq!(run["summary"], serde_json::json!({"recorded": 1, "served": 1}));
    let arms = run["arms"].as_array().unwrap();
    let outcomes: Vec<_> = arms.iter().map(|arm| arm["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["served", "recorded"]);
    for arm in arms {
        let keys: BTreeSet<_> = arm.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, BTreeSet::from(["failure", "id", "job", "n", "outcome", "result"]));
        assert_eq!((&arm["failure"], &arm["result"]["job"]), (&serde_json::Value::Null, &arm["job"]));
        assert_eq!(arm["result"]["rehearsal"], true);
        assert!(arm["result"]["requests"]["throughput"]["total_tok_per_s_per_gpu"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_rerun_adds_a_record() {
    let env = Env::recorded();
    let said = env.ixbuild(&["run", "tp8-resident-c1", "--rerun"]).ok();
    assert!(said.out.ends_with("1 arm: 1 recorded\n"), "{}", said.out);
    let plan = env.ixbuild(&["plan", "tp8-resident-c1"]).ok();
    assert!(plan.out.contains("recorded  tp8-resident-c1  2 records"), "{}", plan.out);
    let show = env.ixbuild(&["show", "tp8-resident-c1", "--json"]).ok().json();
    let reasons: Vec<_> =
        show["attempts"].as_array().unwrap().iter().map(|at| at["reasons"][0]["kind"].clone()).collect();
    assert_eq!(reasons, ["new", "rerun"]);
}

#[test]
fn a_record_says_where_it_comes_from() {
    let env = Env::recorded();
    let show = env.ixbuild(&["show", RECORDED[4], "--json"]).ok().json();
    let attempt = &show["attempts"][0];
    assert_eq!((&attempt["outcome"], &attempt["rehearsal"]), (&"valid".into(), &true.into()));
    let provenance = &attempt["provenance"];
    assert_eq!(
        (&provenance["executor"], &provenance["tool"]),
        (&"local".into(), &concat!("ixbuild ", env!("CARGO_PKG_VERSION")).into())
    );
    let bindings = provenance["bindings"].as_object().unwrap();
    for bound in ["server.http.port", "router.http.port", "mooncake.rpc.port"] {
        assert!(bindings.keys().any(|key| key.contains(bound)), "{bound} is not in {bindings:?}");
    }
    let gates = attempt["gates"].as_array().unwrap();
    assert!(gates.len() > 2 && gates.iter().all(|gate| gate["verdict"] != "failed"), "{gates:?}");
    assert_eq!(show["spec"]["deployment"]["substitutions"]["engine"], serde_json::json!({}));
}

#[test]
fn two_processes_run_an_arm_once() {
    let env = Env::new();
    let start = || {
        let mut command = env.command(env!("CARGO_BIN_EXE_ixbuild"));
        command.args(["run", "tp8-resident-c1", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let outputs = [start(), start()].map(|child| child.wait_with_output().unwrap());
    let mut outcomes: Vec<String> = outputs
        .iter()
        .map(|output| {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            run["arms"][0]["outcome"].as_str().unwrap().to_owned()
        })
        .collect();
    outcomes.sort();
    assert_eq!(outcomes, ["recorded", "served"]);
    let show = env.ixbuild(&["show", "tp8-resident-c1", "--json"]).ok().json();
    assert_eq!(show["attempts"].as_array().unwrap().len(), 1);
}
