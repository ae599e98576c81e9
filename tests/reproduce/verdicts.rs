//! `ixbuild reproduce`.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ixbuild::ids::JobHash;
use ixbuild::store::StoreView;
use serde_json::{Value, json};

use crate::env::{ARM, Draft, Env};

const THROUGHPUT: &str = "total_tok_per_s_per_gpu";

/// A place in `result.json`.
fn throughput(result: &mut Value) -> &mut Value {
    &mut result["requests"]["throughput"][THROUGHPUT]
}

/// The exit code of each verdict, as documented.
fn code(verdict: &str) -> i32 {
    match verdict {
        "REPRODUCED" => 0,
        "DRIFTED" => 10,
        "INCONCLUSIVE" => 11,
        "NOT-COMPARABLE" => 12,
        "INVALID" => 13,
        other => panic!("{other} is no verdict"),
    }
}

#[test]
fn the_stored_spec_runs_without_a_project_whatever_the_configs_say() {
    let env = Env::new();
    let job = env.record();
    let hash = job.to_string();
    // Today's configs are of no use to anybody.
    fs::write(env.project().join("configs/nvidia-master.yaml"), "x: [").unwrap();
    env.ixbuild(&["plan"]).expect(3);

    let said = env.outside(&["reproduce", &hash[..16], "--json"]);
    let found = said.json();
    let verdict = found["verdict"].as_str().unwrap();
    assert_eq!(said.code, code(verdict), "{found}");
    assert!(said.err.contains("1 run of job:") && said.err.contains("no GPU-hours (a rehearsal)"), "{}", said.err);
    assert!(said.err.contains("profile rehearsal"), "{}", said.err);
    assert_eq!((&found["job"], &found["gpu_hours"]), (&json!(hash), &json!(0.0)));
    assert_eq!(found["runs"][0]["outcome"], "valid");
    assert_eq!((found["recorded"].as_array().unwrap().len(), found["earlier"].as_array().unwrap().len()), (1, 0));
    let facts = found["comparability"].as_array().unwrap();
    assert_eq!((&facts[0]["what"], &facts[0]["agreement"]), (&json!("spec"), &json!("same")));
    let decisive: Vec<&Value> =
        found["metrics"].as_array().unwrap().iter().filter(|metric| metric["decisive"] == true).collect();
    assert_eq!(decisive.len(), 1);
    let comparison = &decisive[0]["comparison"];
    assert_eq!((&comparison["recorded_n"], &comparison["new_n"]), (&json!(1), &json!(1)));
    assert_eq!(decisive[0]["band_source"], "audit rule of the MLPerf inference policies");
    assert_eq!(comparison["verdict"], json!(verdict));

    // In the broken project too. Two more runs count beside the one before: three new ones.
    let said = env.ixbuild(&["reproduce", &hash, "--replicates", "2"]);
    assert!([0, 10, 11].contains(&said.code), "{}\n{}", said.out, said.err);
    let sections: Vec<usize> =
        ["gates\n", "\ncomparability\n", "\nmetrics\n"].map(|section| said.out.find(section).unwrap()).into();
    assert!(sections.is_sorted(), "{}", said.out);
    assert!(said.out.contains("run 2 of 2  valid") && said.out.contains("±2%"), "{}", said.out);
    assert!(said.out.contains("new: 2 of this call, 1 of earlier calls on this machine"), "{}", said.out);
    let word = said.out.trim_end().lines().last().unwrap().split(':').next().unwrap();
    assert_eq!(said.code, code(word), "{}", said.out);

    // They are attempts of the same job, which say why they were made.
    let shown = env.outside(&["show", &hash, "--json"]).expect(0).json();
    let reasons: Vec<&Value> = shown["attempts"].as_array().unwrap().iter().map(|one| &one["reasons"]).collect();
    let reproduction = |run, of| json!([{"kind": "reproduce", "run": run, "of": of}]);
    assert_eq!(reasons[1..], [&reproduction(1, 1), &reproduction(1, 2), &reproduction(2, 2)]);
    assert_eq!(shown["n"], 4);
    let why = env.outside(&["why", &hash]).expect(0).out;
    assert!(why.contains("reproduction, run 2 of 2"), "{why}");
    env.sound(4);
}

#[test]
fn far_apart_is_drifted_and_close_with_enough_runs_is_reproduced() {
    let env = Env::new();
    let job = env.record();
    let store = env.store();
    let (at, draft) = Draft::of(&store, &job);

    // A record of ten times the speed, in a job of its own.
    let mut fast = Draft { spec: draft.spec.clone(), layers: draft.layers.clone(), ..Draft::of(&store, &job).1 };
    fast.spec["measurement"]["workload"]["seed"] = json!(7);
    fast.edit("result.json", |result| *throughput(result) = json!(throughput(result).as_f64().unwrap() * 10.0));
    let fast = fast.record(&store, &at, 0).job.to_string();
    let said = env.outside(&["reproduce", &fast]).expect(10);
    assert!(said.out.trim_end().ends_with("DRIFTED"), "{}", said.out);

    // 100 records and as many reproductions of one speed: another run cannot move them far.
    let mut again = Draft::of(&store, &job).1;
    for (reason, from) in [(json!([{"kind": "new"}]), 10), (json!([{"kind": "reproduce", "run": 1, "of": 1}]), 1000)] {
        again.reasons = reason;
        for run in 0..100 {
            again.record(&store, &at, from + run);
        }
    }
    drop(store);
    let said = env.outside(&["reproduce", &job.to_string(), "--json"]);
    let found = said.json();
    assert_eq!((said.code, &found["verdict"]), (0, &json!("REPRODUCED")), "{found}");
    assert_eq!((found["recorded"].as_array().unwrap().len(), found["earlier"].as_array().unwrap().len()), (101, 100));
}

#[test]
fn one_against_one_is_inconclusive_and_says_how_many_more() {
    let env = Env::new();
    let job = env.record();
    let store = env.store();
    let (at, mut again) = Draft::of(&store, &job);
    // A second record twice as fast: with such a spread nothing is told.
    again.edit("result.json", |result| *throughput(result) = json!(throughput(result).as_f64().unwrap() * 2.0));
    again.record(&store, &at, 10);
    drop(store);
    let said = env.outside(&["reproduce", &job.to_string()]).expect(11);
    let last = said.out.trim_end().lines().last().unwrap().to_owned();
    assert!(last.starts_with("INCONCLUSIVE: ") && last.contains("more run"), "{last}");
}

#[test]
fn reproductions_elsewhere_are_no_new_runs_but_tell_the_spread() {
    let env = Env::new();
    let job = env.record();
    let store = env.store();
    let (at, mut elsewhere) = Draft::of(&store, &job);
    elsewhere.reasons = json!([{"kind": "reproduce", "run": 1, "of": 1}]);
    elsewhere.edit("provenance.json", |provenance| provenance["machine"]["host"] = json!("elsewhere"));
    for later in [10, 20] {
        elsewhere.record(&store, &at, later);
    }
    drop(store);
    let found = env.outside(&["reproduce", &job.to_string(), "--json"]).json();
    assert_eq!(found["history"], json!({"groups": 1, "runs": 2}));
    assert_eq!((found["recorded"].as_array().unwrap().len(), &found["earlier"]), (1, &json!([])));
    let comparison = &found["metrics"][0]["comparison"];
    assert_eq!((&comparison["basis"], &comparison["new_n"]), (&json!("pooled"), &json!(1)), "{comparison}");
    let host = found["comparability"].as_array().unwrap().iter().find(|fact| fact["what"] == "host").unwrap();
    assert_eq!(host["agreement"], "same", "of the record, not of the reproductions");
}

#[test]
fn what_fails_its_gates_is_invalid_and_counts_for_nothing() {
    let env = Env::new();
    let job = env.record();
    let store = env.store();
    let (at, mut strict) = Draft::of(&store, &job);
    // No run has fewer than no errors.
    strict.spec["measurement"]["gates"]["max-error-ratio"] = json!("-1");
    let strict = strict.record(&store, &at, 0).job;
    drop(store);
    let said = env.outside(&["reproduce", &strict.to_string(), "--json"]).expect(13);
    let found = said.json();
    assert_eq!((&found["verdict"], &found["runs"][0]["outcome"]), (&json!("INVALID"), &json!("invalid")));
    assert_eq!(found["metrics"], Value::Null, "an invalid run is not compared");
    let gates = found["runs"][0]["gates"].as_array().unwrap();
    assert!(gates.iter().any(|gate| gate["name"] == "error-ratio" && gate["verdict"] == "failed"), "{found}");
    let state = env.store().job(&strict).unwrap();
    assert_eq!((state.attempts.len(), state.records().count()), (2, 1));
}

/// Neither a verdict of likeness nor a run.
#[track_caller]
fn not_comparable(env: &Env, job: &JobHash, args: &[&str], why: &str) {
    let before = env.store().job(job).unwrap();
    let hash = job.to_string();
    let said = env.ixbuild_as(&[&["reproduce", &hash, "--json"], args].concat()).expect(12);
    let found = said.json();
    assert_eq!((&found["verdict"], &found["runs"]), (&json!("NOT-COMPARABLE"), &json!([])), "{found}");
    assert!(found["why"].as_str().unwrap().contains(why), "{found}");
    assert_eq!(env.store().job(job).unwrap(), before, "nothing was run");
}

#[test]
fn what_is_not_the_same_thing_is_not_run() {
    let env = Env::new();
    let job = env.record();
    let store = env.store();
    let (at, mut other) = Draft::of(&store, &job);

    // A simulator that this build does not have.
    other.spec["deployment"]["substitutions"]["simulator-version"] = json!(99);
    let elsewhen = other.record(&store, &at, 0).job;
    not_comparable(&env, &elsewhen, &[], "simulator: 99 → ");

    // A real job: the profile states other GPUs; without that, there is no executor yet.
    other.spec["deployment"].as_object_mut().unwrap().remove("substitutions");
    let real = other.record(&store, &at, 0).job;
    drop(store);
    let lab = "executor: docker\nhost: {gpu: NVIDIA H200}\n\
               timing: {poll-ms: 1, ready-timeout-s: 1, grace-s: 1, scrape-ms: 1, client-timeout-s: 1}\n";
    env.profile("lab", lab);
    not_comparable(&env, &real, &["--profile", "lab"], "GPU: b200 → NVIDIA H200");
    let hash = real.to_string();
    let said = env.outside(&["reproduce", &hash]).expect(4);
    assert!(said.err.contains("the profile docker has no executor yet"), "{}", said.err);
    assert!(said.err.contains("1 run of job:") && said.err.contains("GPU-hours, about"), "{}", said.err);
    let said = env.outside(&["reproduce", &hash, "--profile", "rehearsal"]).expect(4);
    assert!(said.err.contains("the job is not a rehearsal"), "{}", said.err);
    let said = env.outside(&["reproduce", &job.to_string(), "--profile", "docker"]).expect(4);
    assert!(said.err.contains("pass --profile rehearsal"), "{}", said.err);

    // Nothing to compare with.
    env.outside(&["exclude", &job.to_string(), "--reason", "GPU 3 throttled"]).expect(0);
    not_comparable(&env, &job, &[], "no valid record");
}

#[test]
fn unknown_jobs_and_senseless_numbers_are_refused() {
    let env = Env::new();
    let said = env.outside(&["reproduce", "job:0123"]).expect(2);
    assert!(said.err.contains("no job in"), "{}", said.err);
    let said = env.outside(&["reproduce", ARM]).expect(2);
    assert!(said.err.contains("is not a job"), "{}", said.err);
    env.outside(&["reproduce", "job:0123", "--replicates", "0"]).expect(2);
}

#[test]
fn a_killed_reproduction_leaves_a_sound_store_and_can_be_made_again() {
    let env = Env::new();
    let hash = env.record().to_string();
    let claims = env.path("store/claims");
    for delay in [0, 150, 400] {
        let mut command = env.command("empty", &["reproduce", &hash]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let claimed = || {
            fs::read_dir(&claims).unwrap().flatten().any(|file| file.path().extension().is_some_and(|e| e == "json"))
        };
        while !claimed() && child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it never began");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();
        env.outside(&["store", "verify"]).expect(0);
    }
    let kept = env.store().job(&hash.parse().unwrap()).unwrap().attempts.len() as u64;
    let said = env.outside(&["reproduce", &hash]);
    assert!([0, 10, 11].contains(&said.code), "{}\n{}", said.out, said.err);
    env.sound(kept + 1);
}
