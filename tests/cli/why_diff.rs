//! `ixbuild why` and `ixbuild diff`: every difference, grouped by stage, before and after a run.

use crate::env::{Env, RECORDED};

#[test]
fn why_says_all_before_and_after() {
    let env = Env::recorded();
    insta::assert_snapshot!("why_new", env.ixbuild(&["why", "tp8-resident-c2"]).ok().transcript());
    insta::assert_snapshot!("why_recorded", env.ixbuild(&["why", "tp8-resident-c1"]).ok().transcript());
    env.edit("configs/recipes/dsv4-fp4-b200-vllm.yaml", "draft_tokens: 3", "draft_tokens: 2");
    insta::assert_snapshot!("why_changed", env.ixbuild(&["why", "tp8-resident-mtp-c1"]).ok().transcript());
    // The plan shortens the same list.
    let plan = env.ixbuild(&["plan", "tp8-resident-mtp-c1"]).ok();
    assert!(plan.out.contains("and ") && plan.out.contains(" more\n"), "{}", plan.out);
    let json = env.ixbuild(&["why", "tp8-resident-mtp-c1", "--json"]).ok().json();
    assert_eq!((&json["state"], json["reasons"].as_array().unwrap().len() > 3), (&"run".into(), true));
}

#[test]
fn why_of_a_hash_names_the_arms_it_ran_for() {
    let env = Env::recorded();
    let job = env.plan(&["tp8-resident-c1"])[0].2.clone();
    let said = env.ixbuild(&["why", &job[..12]]).ok();
    assert!(said.out.contains("for dsv4-fp4-b200-vllm-agentic/agentic/tp8-resident-c1: valid"), "{}", said.out);
    let json = env.ixbuild(&["why", &job, "--json"]).ok().json();
    assert_eq!((&json["job"], &json["state"]), (&job.into(), &"recorded".into()));
    assert_eq!(json["attempts"][0]["reasons"], serde_json::json!([{"kind": "new"}]));
}

#[test]
fn diff_groups_by_stage() {
    let env = Env::recorded();
    insta::assert_snapshot!(
        "diff_arms",
        env.ixbuild(&["diff", "tp8-resident-c8", "tp8-vllm-simple-c8"]).ok().transcript()
    );
    let same = env.ixbuild(&["diff", "tp8-resident-c8", "tp8-resident-c8"]).ok();
    assert_eq!(same.out, "no difference: one job\n");
    // A record against what the configs say now.
    let job = env.plan(&[RECORDED[3]])[0].2.clone();
    env.edit("configs/recipes/lib/kv-offload.yaml", "lazy_offload: false", "lazy_offload: true");
    let said = env.ixbuild(&["diff", &job, RECORDED[3]]).ok();
    assert_eq!(said.out, "server\n  --kv-transfer-config kv_connector_extra_config lazy_offload: false → true\n");
    let json = env.ixbuild(&["diff", &job, RECORDED[3], "--json"]).ok().json();
    assert_eq!(json["changes"].as_array().unwrap().len(), 1);
    assert_eq!((&json["old"], &json["changes"][0]["stage"]), (&job.into(), &"server".into()));
}
