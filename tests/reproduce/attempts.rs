//! `ixbuild exclude` and `ixbuild recompute`, and what `show`, `plan` and `run` make of them.

use ixbuild::ids::JobHash;
use ixbuild::store::{OutcomeKind, StoreView};
use ixbuild::sweep::title;
use serde_json::{Value, json};

use crate::env::{ARM, Draft, Env};

/// The only arm of a plan.
fn planned(env: &Env) -> Value {
    env.ixbuild(&["plan", ARM, "--json"]).expect(0).json()["arms"][0].clone()
}

fn throughput(result: &Value) -> f64 {
    result["requests"]["throughput"]["total_tok_per_s_per_gpu"].as_f64().unwrap()
}

fn shown(env: &Env, job: &JobHash) -> Value {
    env.outside(&["show", &job.to_string(), "--json"]).expect(0).json()
}

#[test]
fn an_excluded_record_counts_no_more_and_says_why() {
    let env = Env::new();
    let job = env.record();
    let hash = job.to_string();
    assert_eq!(planned(&env)["state"], "recorded");

    // It takes a reason, and one record.
    env.outside(&["exclude", &hash]).expect(2);
    let said = env.outside(&["exclude", &hash, "--reason", " "]).expect(2);
    assert!(said.err.contains("takes a reason"), "{}", said.err);
    env.outside(&["exclude", "job:0123", "--reason", "x"]).expect(2);
    env.outside(&["exclude", "no attempt", "--reason", "x"]).expect(2);
    assert_eq!(planned(&env)["state"], "recorded", "nothing happened yet");

    let said = env.outside(&["exclude", &hash, "--reason", "GPU 3 throttled"]).expect(0);
    assert!(said.out.starts_with("excluded the valid attempt "), "{}", said.out);
    assert!(said.err.contains(&format!("{ARM} --profile rehearsal` runs it again")), "{}", said.err);
    let arm = planned(&env);
    assert_eq!(arm["state"], "run");
    assert_eq!(arm["reasons"], json!([{"kind": "excluded", "why": "GPU 3 throttled"}]));
    let text = env.outside(&["show", &hash]).expect(0).out;
    assert!(text.contains("excluded on ") && text.contains(": GPU 3 throttled"), "{text}");
    assert!(text.contains("1 attempt, 0 records"), "{text}");
    let one = &shown(&env, &job)["attempts"][0];
    assert_eq!((&one["counts"], &one["exclusion"]["reason"]), (&json!(false), &json!("GPU 3 throttled")));

    // Excluded for good; a run makes another record, which keeps the reason.
    let said = env.outside(&["exclude", one["tag"].as_str().unwrap(), "--reason", "again"]).expect(4);
    assert!(said.err.contains("already excluded: GPU 3 throttled"), "{}", said.err);
    assert_eq!(env.record(), job);
    assert_eq!(planned(&env)["state"], "recorded");
    let why = env.ixbuild(&["why", ARM]).expect(0).out;
    assert!(why.contains("its record was excluded: GPU 3 throttled"), "{why}");

    // By the digits of its manifest.
    let manifest = shown(&env, &job)["attempts"][1]["manifest"].as_str().unwrap().to_owned();
    let digits = manifest.strip_prefix("sha256:").unwrap();
    env.outside(&["exclude", &digits[..12], "--reason", "a second one"]).expect(0);
    assert_eq!(planned(&env)["reasons"].as_array().unwrap().len(), 2);
    env.sound(2);
}

#[test]
fn several_records_are_valued_at_their_median() {
    let env = Env::new();
    let job = env.record();
    env.ixbuild(&["run", ARM, "--rerun"]).expect(0);
    let found = shown(&env, &job);
    let each: Vec<f64> = found["attempts"].as_array().unwrap().iter().map(|one| throughput(&one["result"])).collect();
    let middle = (each[0] + each[1]) / 2.0;
    let close = |value: f64| (value - middle).abs() < 1e-9 * middle;
    assert!(found["n"] == 2 && close(throughput(&found["median"])), "{each:?} {}", found["median"]);
    let run = env.ixbuild(&["run", "--all", ARM, "--json"]).expect(0).json();
    assert!(run["arms"][0]["n"] == 2 && close(throughput(&run["arms"][0]["result"])), "{run}");
    let table = env.ixbuild(&["run", "--all", ARM]).expect(0).out;
    assert!(table.contains("  served, median of 2\n"), "{table}");
    let text = env.outside(&["show", &job.to_string()]).expect(0).out;
    assert!(text.contains("median of 2") && text.contains("asked for with --rerun"), "{text}");

    // Which of the two is meant must be said.
    let said = env.outside(&["exclude", &job.to_string(), "--reason", "x"]).expect(2);
    assert!(said.err.contains("stands for 2 attempts"), "{}", said.err);
}

#[test]
fn recomputing_what_is_current_changes_nothing() {
    let env = Env::new();
    let job = env.record();
    let files = || {
        let mut names: Vec<_> = std::fs::read_dir(env.store().job_path(&job)).unwrap().flatten().collect();
        names.sort_by_key(std::fs::DirEntry::file_name);
        names.into_iter().map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    let before = files();
    let said = env.outside(&["recompute"]).expect(0);
    assert_eq!(said.out, "formulas 1: 0 attempts changed, 1 as on file\n");
    let found = env.outside(&["recompute", &job.to_string(), "--json"]).expect(0).json();
    assert_eq!(found["summary"], json!({"same": 1, "changed": 0, "newer": 0, "underivable": 0}));
    assert_eq!(files(), before);
    env.outside(&["recompute", "job:0123"]).expect(2);
}

/// A project whose only attempt is almost the one that was run.
fn doctored(edit: impl FnOnce(&mut Draft)) -> (Env, JobHash) {
    let env = Env::new();
    let job = env.record();
    let (at, mut draft) = Draft::of(&env.store(), &job);
    std::fs::remove_dir_all(env.path("store")).unwrap();
    edit(&mut draft);
    draft.record(&env.store(), &at, 0);
    (env, job)
}

#[test]
fn old_results_are_derived_again_beside_their_attempt() {
    let (env, job) = doctored(|draft| {
        draft.edit(title::RESULT, |result| {
            result["formulas"] = json!(0);
            result["requests"]["throughput"]["total_tok_per_s_per_gpu"] = json!(1.5);
        });
    });
    let hash = job.to_string();
    let at = env.store().job(&job).unwrap().attempts[0].clone();

    let said = env.outside(&["recompute", "--dry-run"]).expect(0);
    assert!(said.out.contains("formulas 0 → 1"), "{}", said.out);
    assert!(said.out.contains("  requests.throughput.total_tok_per_s_per_gpu: 1.5 → "), "{}", said.out);
    assert!(said.out.contains("1 attempt would change"), "{}", said.out);
    assert_eq!(throughput(&shown(&env, &job)["median"]), 1.5, "a dry run stores nothing");

    // Reproductions compare under the current formulas even so.
    let found = env.outside(&["reproduce", &hash, "--json"]).json();
    let comparison = &found["metrics"][0]["comparison"];
    assert!(comparison["recorded_median"].as_f64().unwrap() > 100.0, "{comparison}");

    let found = env.outside(&["recompute", &hash, "--json"]).expect(0).json();
    assert_eq!(found["summary"]["changed"], 1, "the reproduction is current");
    let change = &found["changed"][0];
    assert_eq!(change["outcome"], json!({"old": "valid", "new": "valid"}));
    assert_eq!(change["figures"].as_array().unwrap().len(), 1, "{change}");
    let one = &shown(&env, &job)["attempts"][0];
    assert!(throughput(&one["result"]) > 100.0);
    assert_eq!((&one["derived"]["formulas"], &one["derived"]["recorded"]), (&json!(1), &json!("valid")));

    // The attempt is what it was, and there is nothing left to do.
    let own: Value = serde_json::from_slice(&env.store().layer(&at, title::RESULT).unwrap().unwrap()).unwrap();
    assert_eq!(throughput(&own), 1.5);
    let said = env.outside(&["recompute"]).expect(0);
    assert_eq!(said.out, "formulas 1: 0 attempts changed, 2 as on file\n");
    env.sound(2);
}

#[test]
fn a_record_that_fails_a_gate_now_stops_counting_and_says_why() {
    let (env, job) = doctored(|draft| {
        draft.edit(title::AGGREGATE, |aggregate| {
            aggregate["error_request_count"] = aggregate["completed_request_count"].clone();
        });
    });
    assert_eq!(planned(&env)["state"], "recorded");
    let said = env.outside(&["recompute"]).expect(0);
    assert!(said.out.contains(" valid → invalid") && said.out.contains("  gate error-ratio: passed: "), "{}", said.out);
    let arm = planned(&env);
    assert_eq!(arm["state"], "run");
    assert_eq!(arm["reasons"], json!([{"kind": "outdated", "formulas": 1, "gates": ["error-ratio"]}]));
    let plan = env.ixbuild(&["plan", ARM]).expect(0).out;
    assert!(plan.contains("its record is invalid under formulas 1: error-ratio"), "{plan}");
    let text = env.outside(&["show", &job.to_string()]).expect(0).out;
    assert!(text.contains("failed the gate error-ratio: ") && text.contains("recorded as valid"), "{text}");
    let one = env.store().job(&job).unwrap().attempts[0].clone();
    assert_eq!((one.outcome, one.standing()), (OutcomeKind::Valid, OutcomeKind::Invalid));
    env.sound(1);
    assert_eq!(env.record(), job, "it runs again");
    assert_eq!(planned(&env)["state"], "recorded");
}

#[test]
fn what_cannot_be_derived_is_told_and_left_as_it_is() {
    let (env, job) = doctored(|draft| {
        draft.layers.remove(title::REQUESTS);
        draft.edit(title::RESULT, |result| result["formulas"] = json!(0));
    });
    let said = env.outside(&["recompute"]).expect(1);
    assert!(said.out.contains("cannot be derived: per-request rows (profile_export.jsonl): missing"), "{}", said.out);
    assert_eq!(planned(&env)["state"], "recorded");

    // A newer ixbuild knows better.
    let store = env.store();
    let (at, mut newer) = Draft::of(&store, &job);
    newer.edit(title::RESULT, |result| result["formulas"] = json!(1000));
    newer.record(&store, &at, 5);
    let found = env.outside(&["recompute", "--json"]).expect(1).json();
    assert_eq!(found["summary"], json!({"same": 0, "changed": 0, "newer": 1, "underivable": 1}));
}
