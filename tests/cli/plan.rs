//! `ixbuild plan`: the documented contract, and what an edit makes run.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::env::{Env, KEY, MTP, RECORDED};

const MASTER: &str = "configs/nvidia-master.yaml";

#[test]
fn a_plan_names_every_arm_under_its_key() {
    let env = Env::recorded();
    let said = env.ixbuild(&["plan", "*-c1", "*-c12", "*-c8"]).ok();
    insta::assert_snapshot!(said.transcript());
    let said = env.ixbuild(&["plan"]).ok();
    assert!(said.out.contains("\n68 arms: 5 recorded, 63 to run, 0 running, 0 blocked\n"), "{}", said.out);
}

#[test]
fn the_json_is_the_documented_contract() {
    let env = Env::recorded();
    let plan = env.ixbuild(&["plan", "--json"]).ok().json();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&plan), ["arms", "profile", "store", "summary"]);
    assert_eq!(plan["profile"], "quick");
    let summary = &plan["summary"];
    assert_eq!(keys(summary), ["blocked", "gpu_hours", "jobs", "recorded", "run", "running", "wall_seconds"]);
    assert!(summary.as_object().unwrap().values().all(Value::is_number), "{summary}");
    let arms = plan["arms"].as_array().unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for arm in arms {
        let (id, job, state) =
            (arm["id"].as_str().unwrap(), arm["job"].as_str().unwrap(), arm["state"].as_str().unwrap());
        assert!(id.starts_with(KEY), "{id}");
        assert!(job.strip_prefix("job:").is_some_and(|hex| hex.len() == 64), "{job}");
        *counts.entry(state).or_insert(0) += 1;
        match state {
            "recorded" => assert_eq!(
                (keys(arm).as_slice(), arm["records"].as_u64()),
                (&["id", "job", "reasons", "records", "state"].map(String::from)[..], Some(1))
            ),
            "run" => assert_eq!(arm["reasons"], serde_json::json!([{"kind": "new"}])),
            other => panic!("{other}"),
        }
    }
    assert_eq!(
        (counts["recorded"], counts["run"]),
        (summary["recorded"].as_i64().unwrap(), summary["run"].as_i64().unwrap())
    );
}

#[test]
fn without_a_profile_unlocked_arms_are_blocked_and_say_by_what() {
    let env = Env::new();
    let plan = env.without_profile(&["plan", "--json"]).ok().json();
    assert_eq!((&plan["profile"], &plan["summary"]["blocked"]), (&"docker".into(), &68.into()));
    for arm in plan["arms"].as_array().unwrap() {
        assert_eq!((&arm["state"], arm["job"].is_string()), (&"blocked".into(), true));
        let reasons = arm["reasons"].as_array().unwrap();
        assert!(!reasons.is_empty() && reasons.iter().all(|reason| reason["unblock"].is_string()), "{arm}");
    }
    let said = env.without_profile(&["plan", "tp8-resident-c1"]).ok();
    let image = "unlocked: image vllm/vllm-openai:nightly-dev-x86_64-cu13.0.1-904e4ec (1 arm); unblock: ixbuild lock";
    assert!(said.out.contains(image) && said.err.contains("profile docker, store"), "{}{}", said.out, said.err);
}

#[test]
fn a_dry_run_is_the_plan() {
    let env = Env::recorded();
    for json in [&[][..], &["--json"]] {
        let plan = env.ixbuild(&[&["plan", "*mtp*"], json].concat()).ok();
        let dry = env.ixbuild(&[&["run", "*mtp*", "--dry-run"], json].concat()).ok();
        assert_eq!((plan.out, plan.err), (dry.out, dry.err));
    }
    assert!(env.processes().is_empty() && fs::read_dir(env.scratch()).unwrap().next().is_none());
}

/// The ids whose jobs an edit changes.
fn changed_by(env: &Env, edit: impl FnOnce()) -> Vec<String> {
    let before = env.plan(&[]);
    edit();
    let after = env.plan(&[]);
    assert_eq!(before.len(), after.len());
    before.iter().zip(&after).filter(|(old, new)| old.2 != new.2).map(|(_, new)| new.0.clone()).collect()
}

#[test]
fn an_edit_of_the_mooncake_overlay_runs_exactly_the_mooncake_arms() {
    let env = Env::recorded();
    let lib = "configs/recipes/lib/kv-offload.yaml";
    let changed = changed_by(&env, || env.edit(lib, "local_buffer_size: 4GB", "local_buffer_size: 8GB"));
    assert_eq!(changed.len(), 18);
    assert!(changed.iter().all(|id| id.contains("-mooncake-")), "{changed:?}");
    assert_eq!(env.in_state("recorded"), RECORDED[..4]);
    let said = env.ixbuild(&["plan", RECORDED[4]]).ok();
    assert!(said.out.contains("file mooncake.json local_buffer_size: \"4GB\" → \"8GB\""), "{}", said.out);
}

#[test]
fn only_what_an_edit_touches_runs() {
    let env = Env::recorded();
    // A comment and another notation: nothing.
    let changed = changed_by(&env, || {
        let row = "- { tp: 8, kv-offloading: none, conc-list: [1, 2, 4, 6, 8] }";
        env.edit(
            MASTER,
            row,
            "- conc-list: [1, 2, # few\n          4, 6, 8]\n        tp: 8\n        kv-offloading: none",
        );
    });
    assert_eq!(changed, Vec::<String>::new());
    // One cell of a golden curve: the arms that inject it.
    let changed = changed_by(&env, || env.edit("golden_al_distribution/dsv4_mtp.yaml", "3: 2.49", "3: 2.50"));
    assert!(changed.len() == 28 && changed.iter().all(|id| id.starts_with(MTP)), "{changed:?}");
    // Another cell: nothing.
    let changed = changed_by(&env, || env.edit("golden_al_distribution/dsv4_mtp.yaml", "2: 2.27", "2: 2.28"));
    assert_eq!(changed, Vec::<String>::new());
    // The version of one backend: its arms.
    let changed = changed_by(&env, || {
        for _ in 0..2 {
            env.edit(MASTER, "version: \"0.5.1\"", "version: \"0.5.2\"");
        }
    });
    assert!(changed.len() == 12 && changed.iter().all(|id| id.contains("-lmcache-")), "{changed:?}");
}

#[test]
fn a_renamed_key_runs_nothing() {
    let env = Env::recorded();
    env.edit(MASTER, &format!("\n{MTP}:"), "\nrenamed-mtp:");
    let plan = env.plan(&[]);
    let recorded: BTreeSet<&str> =
        plan.iter().filter(|(_, state, _)| state == "recorded").map(|(id, ..)| id.as_str()).collect();
    assert_eq!(recorded.len(), RECORDED.len());
    assert!(recorded.contains("renamed-mtp/agentic/tp8-ep8-dpa-mooncake-mtp-c12"), "{recorded:?}");
}

#[test]
fn a_row_that_moves_to_another_key_runs_nothing_and_a_new_one_runs_its_new_arms() {
    let env = Env::recorded();
    let before = env.plan(&[]);
    // The row leaves the first key for the second.
    let row = "      - { tp: 8, kv-offloading: none, conc-list: [1, 2, 4, 6, 8] }\n";
    env.edit(MASTER, row, "");
    let other = "      - { tp: 8, spec-decoding: mtp, kv-offloading: none, conc-list: [1, 2, 4, 6, 8] }\n";
    env.edit(MASTER, other, &format!("{}{other}", row.replace("[1, 2,", "[1, 2, 3,")));
    let after = env.plan(&[]);
    let jobs: BTreeSet<&str> = before.iter().map(|(.., job)| job.as_str()).collect();
    let new: Vec<&str> =
        after.iter().filter(|(.., job)| !jobs.contains(job.as_str())).map(|(id, ..)| id.as_str()).collect();
    assert_eq!(new, [format!("{MTP}/agentic/tp8-resident-c3")]);
    let of = |name: &str| after.iter().find(|(id, ..)| id.ends_with(name)).unwrap().1.clone();
    assert_eq!((of("/tp8-resident-c1"), of("/tp8-resident-c3")), ("recorded".to_owned(), "run".to_owned()));
}

#[test]
fn arms_with_one_spec_share_a_job() {
    let env = Env::recorded();
    let text = fs::read_to_string(env.path(MASTER)).unwrap();
    let (_, rows) = text.split_once(&format!("\n{MTP}:")).unwrap();
    fs::write(env.path(MASTER), format!("{text}\ncopy:{rows}")).unwrap();
    let said = env.ixbuild(&["plan", "*mooncake-mtp*"]).ok();
    assert!(said.out.contains("18 arms: 2 recorded, 16 to run, 0 running, 0 blocked in 8 jobs\n"), "{}", said.out);
}
