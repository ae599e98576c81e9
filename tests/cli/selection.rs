//! Arms by name and by the filters of the matrix, in `plan`; `run` takes the same.

use crate::env::{Env, MTP};

fn chosen(env: &Env, args: &[&str]) -> Vec<String> {
    env.plan(args).into_iter().map(|(id, ..)| id.rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn names_and_filters_combine() {
    let env = Env::new();
    let of = |args: &[&str]| chosen(&env, args);
    assert_eq!(of(&[MTP]).len(), 28);
    assert_eq!(of(&["*mooncake*"]).len(), 18);
    assert_eq!(
        of(&["*mooncake*", "--conc", "12,20", "--config-keys", "*-mtp"]),
        ["tp8-ep8-dpa-mooncake-mtp-c12", "tp8-ep8-dpa-mooncake-mtp-c20"]
    );
    assert_eq!(
        of(&["--conc", "1", "2", "--framework", "vllm", "--max-conc", "1"]),
        ["tp8-resident-c1", "tp8-resident-mtp-c1"]
    );
    assert_eq!(
        of(&["tp8-resident-mtp-c1", "*-lmcache-c16", "tp8-resident-c8"]),
        ["tp8-resident-c8", "tp8-lmcache-c16", "tp8-resident-mtp-c1"]
    );
    assert_eq!(
        of(&["*/tp8-resident-c1*", "--conc", "1", "--runner-node-filter", "_03"]),
        ["tp8-resident-c1@b200-dgxc_03"]
    );
}

#[test]
fn eval_arms_are_selected_by_flag_and_by_name() {
    let env = Env::new();
    let of = |args: &[&str]| chosen(&env, args);
    assert_eq!(of(&["--evals-only"]), ["tp8-ep8-dpa-vllm-simple-c80-eval"]);
    let all = of(&["--all-evals"]);
    assert!(all.len() == 68 && all.iter().all(|id| id.ends_with("-eval")), "{all:?}");
    assert_eq!(of(&["tp8-resident-mtp-c1-eval", "tp8-resident-c1"]), ["tp8-resident-c1", "tp8-resident-mtp-c1-eval"]);
    assert_eq!(of(&["*-mtp-c8-eval"]).len(), 3);
    assert!(of(&["*"]).iter().all(|id| !id.ends_with("-eval")));
}

#[test]
fn a_selection_of_nothing_says_why() {
    let env = Env::new();
    let cases: [&[&str]; 11] = [
        &["tp8-resident-mtp-c3"],
        &["c1"],
        &["zzz*"],
        &["tp8-resident-c3-eval"],
        &["--conc", "3"],
        &["*mooncake*", "--conc", "8"],
        &["--framework", "sglang"],
        &["*mooncake*", "--max-conc", "4"],
        &["--config-keys", "dsv4-fp4-b200-vllm-agentic-mpt"],
        &["--config-keys", "*", "--max-tp", "8"],
        &["--runner-type", "cluster:b200"],
    ];
    let mut said = String::new();
    for args in cases {
        let plan = env.ixbuild(&[&["plan"], args].concat()).ended(2);
        let run = env.ixbuild(&[&["run"], args].concat()).ended(2);
        assert_eq!((plan.out.as_str(), &plan.err), ("", &run.err));
        said.push_str(&format!("$ {}\n{}", args.join(" "), plan.err));
    }
    insta::assert_snapshot!(said);
}
