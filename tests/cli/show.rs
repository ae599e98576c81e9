//! `ixbuild show`: an arm before any run, a recorded job, an eval twin.

use std::collections::BTreeSet;

use crate::env::{Env, RECORDED};

#[test]
fn text_shows_services_in_start_order() {
    let env = Env::new();
    insta::assert_snapshot!(env.ixbuild(&["show", RECORDED[4]]).ok().transcript());
}

#[test]
fn an_eval_twin_shows_real_verification_and_the_eval_client() {
    let env = Env::new();
    let said = env.without_profile(&["show", "tp8-resident-mtp-c1-eval"]).ok();
    assert!(said.out.contains("real verification") && !said.out.contains("synthetic"), "{}", said.out);
    assert!(said.out.contains("swebench.harness.run_evaluation") && said.out.contains("mini-extra"), "{}", said.out);
}

#[test]
fn json_has_the_spec_that_is_hashed_and_the_attempts() {
    let env = Env::recorded();
    let show = env.ixbuild(&["show", "tp8-resident-mtp-c1", "--json"]).ok().json();
    let keys: BTreeSet<_> = show.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["attempts", "id", "job", "median", "n", "spec"]));
    assert_eq!(show["spec"]["schema"], "ixbuild.spec/v1");
    let job = show["job"].as_str().unwrap();
    let prefix = &job[..16];
    for word in [job, prefix, &prefix.replace("job:", "sha256:")] {
        let by_hash = env.ixbuild(&["show", word, "--format", "json"]).ok().json();
        assert_eq!((&by_hash["spec"], &by_hash["attempts"]), (&show["spec"], &show["attempts"]));
    }
    // By hash there is no need of a project.
    let elsewhere = env.said(env.command(env!("CARGO_BIN_EXE_ixbuild")).current_dir("/").args(["show", prefix])).ok();
    assert!(elsewhere.out.contains("valid"), "{}", elsewhere.out);
}

#[test]
fn slips_are_told() {
    let env = Env::recorded();
    let mut said = String::new();
    for word in ["tp8-resident-mtp-c3", "*mooncake*", "job:", "job:xyz", "job:00000000", "dsv4-fp4-b200-vllm-agentic"] {
        let shown = env.ixbuild(&["show", word]).ended(2);
        assert_eq!(shown.out, "");
        said.push_str(&format!("$ show {word}\n{}", shown.transcript()));
    }
    insta::assert_snapshot!(said);
}
