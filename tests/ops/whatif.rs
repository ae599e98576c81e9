//! What-ifs and exploratory runs: never taken for the arm; and the question before a run that costs much.

use std::path::Path;

use ixbuild::config::inputs::Inputs;
use ixbuild::matrix::filter::{Filter, Sweep};
use ixbuild::project::Project;
use ixbuild::spec::diff::changes;
use ixbuild::whatif::{SetError, Setting, paths, set};
use serde_json::{Value, json};

use crate::env::{ARM, Env};

#[test]
fn a_what_if_is_a_job_of_its_own() {
    let env = Env::new();
    let args = ["run", ARM, "--set", "server.args.--max-num-seqs=32", "--set", "+server.env.EXTRA=1"];
    let ran = env.run(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let arm = &ran.json()["arms"][0];
    assert_eq!((&arm["id"], &arm["outcome"]), (&json!(format!("{ARM}+what-if")), &json!("recorded")));
    let job = arm["job"].as_str().unwrap();
    assert!(ran.err.contains("recorded apart from its arm, never published"), "{}", ran.err);

    // It is served for itself, in whatever order it is written, and never for the arm.
    let swapped = ["run", ARM, "--set", "+server.env.EXTRA=1", "--set", "server.--max-num-seqs=32", "--json"];
    let again = env.run(&swapped).json();
    assert_eq!((&again["arms"][0]["job"], &again["arms"][0]["outcome"]), (&json!(job), &json!("served")));
    let plan = env.json(&["plan", ARM]);
    assert_eq!((&plan["arms"][0]["state"], &plan["arms"][0]["reasons"]), (&json!("run"), &json!([{"kind": "new"}])));

    let shown = env.run(&["show", job]).out;
    for line in ["what-if     +server.env.EXTRA=1", "what-if     server.args.--max-num-seqs=32", "what-if: no arm"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let diff = env.json(&["diff", ARM, job]);
    let whats: Vec<&str> =
        diff["changes"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert_eq!(whats, ["--max-num-seqs", "env EXTRA", "what-if"], "{diff}");

    // Its reasons compare it with the arm.
    assert_eq!(env.run(&["run", ARM]).code, 0);
    let planned = env.run(&["run", ARM, "--set", "server.args.--max-num-seqs=64", "--dry-run"]).out;
    assert!(planned.contains("--max-num-seqs: 2 → 64") && planned.contains("tp8-resident-mtp-c1+what-if"), "{planned}");
    assert_eq!(env.json(&["plan", ARM])["arms"][0]["state"], "recorded");
}

#[test]
fn another_concurrency_takes_along_all_that_the_recipe_derives() {
    let env = Env::new();
    let ran = env.run(&["run", ARM, "--set", "concurrency=3", "--json"]).json();
    let job = ran["arms"][0]["job"].as_str().unwrap();
    let spec = &env.json(&["show", job])["spec"];
    assert_eq!((&spec["measurement"]["concurrency"], &spec["what-if"]), (&json!(3), &json!(["concurrency=3"])));
    let sh = env.run(&["show", job, "--format", "sh"]).out;
    assert!(sh.contains("--max-num-seqs 6") && sh.contains("--concurrency 3"), "{sh}");
    for (set, said) in [("concurrency=1", "is `1` already"), ("concurrency=0", "takes a whole number above 0")] {
        let refused = env.run(&["run", ARM, "--set", set]);
        assert!(refused.code == 2 && refused.err.contains(said), "{}", refused.err);
    }
}

#[test]
fn settings_that_cannot_be_applied_say_why_and_start_nothing() {
    let env = Env::new();
    for (set, said) in [
        ("server.args.--max-num-seq=32", "did you mean `server.args.--max-num-seqs`?"),
        ("server.--max-num-seqs=2", "is `2` already"),
        ("server.env.NO_SUCH=1", "to add it, write +PATH=VALUE"),
        ("+server.--max-num-seqs=32", "it is there already"),
        ("server.--port=80", "the host decides it"),
        ("server.--compilation-config.mode=fast", "takes a number, not `fast`"),
        ("server.--speculative-config.num_speculative_tokens=2", "the policy of speculative decoding decides it"),
        ("model.id=other/model", "the matrix row decides it"),
        ("server.image.unlocked.reference=x", "run `ixbuild lock`"),
        ("servr.replicas=2", "paths begin with server, client, workload"),
        ("nonsense", "write PATH=VALUE"),
    ] {
        let refused = env.run(&["run", ARM, "--set", set]);
        assert!(refused.code == 2 && refused.err.contains(said), "{set}: {}", refused.err);
    }
    let several = env.run(&["run", "--all", "--set", "concurrency=2"]);
    assert!(several.code == 2 && several.err.contains("cannot be used with"), "{}", several.err);
    assert!(!env.store().exists());
}

#[test]
fn an_arm_without_a_golden_value_runs_when_exploring_and_stays_blocked() {
    let env = Env::new();
    let curve = env.json(&["show", ARM])["spec"]["deployment"]["speculative"].clone();
    let length = curve["acceptance"]["synthetic"]["length"].as_str().unwrap();
    let folder = env.project().join("golden_al_distribution");
    let mut edited = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = format!("golden_al_distribution/{}", entry.file_name().to_str().unwrap());
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let tokens = curve["tokens"].as_u64().unwrap();
        let kept: Vec<&str> = text.lines().filter(|line| line.trim() != format!("{tokens}: {length}")).collect();
        edited += text.lines().count() - kept.len();
        env.write(&path, &(kept.join("\n") + "\n"));
    }
    assert!(edited > 0, "no curve holds {length}");
    let blocked = env.json(&["plan", ARM]);
    assert_eq!(blocked["arms"][0]["state"], "blocked");
    assert!(blocked["arms"][0]["reasons"][0]["unblock"].as_str().unwrap().contains("--exploratory"));

    let ran = env.run(&["run", ARM, "--exploratory", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let arm = &ran.json()["arms"][0];
    assert_eq!((&arm["id"], &arm["outcome"]), (&json!(format!("{ARM}+exploratory")), &json!("recorded")));
    let spec = &env.json(&["show", arm["job"].as_str().unwrap()])["spec"];
    assert_eq!(
        (&spec["exploratory"], &spec["deployment"]["speculative"]["acceptance"]),
        (&json!(true), &json!({"real": {}}))
    );
    assert!(env.run(&["show", arm["job"].as_str().unwrap()]).out.contains("exploratory: without a golden"));
    assert_eq!(env.json(&["plan", ARM])["arms"][0]["state"], "blocked");
}

#[test]
fn exploring_leaves_an_arm_with_a_golden_value_as_it_is() {
    let env = Env::new();
    let dry = env.run(&["run", ARM, "--exploratory", "--dry-run"]);
    assert!(dry.out.contains("tp8-resident-mtp-c1  new") && !dry.out.contains("+exploratory"), "{}", dry.out);
}

/// The project of this repository.
fn project() -> Project {
    Project::load(Inputs::read(Path::new(env!("CARGO_MANIFEST_DIR")), "").unwrap(), "rehearsal").unwrap()
}

/// Every path is a line of `diff`, and setting it changes that line alone.
#[test]
fn paths_are_the_lines_of_a_diff() {
    let project = project();
    let arms = project.arms(&Filter::Sweep(Sweep::default())).unwrap();
    // One with every kind of service, and one of the plainest.
    for end in ["tp8-ep8-dpa-mooncake-mtp-c12", "agentic/tp8-resident-c1"] {
        let arm = arms.iter().find(|arm| arm.id.as_str().ends_with(end)).unwrap();
        let spec = project.job(arm).unwrap().spec;
        let old = serde_json::to_value(&spec).unwrap();
        let all = paths(&spec);
        assert!(all.len() > 60, "{all:?}");
        let mut tried = 0;
        for path in &all {
            // A flag's whole JSON changes many lines.
            if all.iter().any(|other| other.starts_with(&format!("{path}."))) {
                continue;
            }
            let of = |value: &str| Setting { path: path.clone(), value: value.to_owned(), add: false };
            let values = ["8642", "some text", "true", "false", "null"];
            let changed = values.iter().find_map(|value| set(&spec, &[of(value)]).ok());
            let new = changed.unwrap_or_else(|| panic!("{path} takes no value"));
            assert_ne!(new.hash(), spec.hash());
            assert_eq!(new.what_if.len(), 1);
            let mut found = changes(&old, &serde_json::to_value(&new).unwrap());
            found.retain(|change| change.what != "what-if");
            let lines: Vec<String> =
                found.iter().map(|change| format!("{}.{}", change.stage, change.what).replace(' ', ".")).collect();
            assert_eq!(lines, [path.replacen(".args.", ".", 1)]);
            tried += 1;
        }
        assert!(tried > 55, "{tried}");
    }
}

#[test]
fn settings_add_and_remove() {
    let project = project();
    let arms = project.arms(&Filter::Sweep(Sweep::default())).unwrap();
    let arm = arms.iter().find(|arm| arm.id.as_str().ends_with("tp8-ep8-dpa-mooncake-mtp-c12")).unwrap();
    let spec = project.job(arm).unwrap().spec;
    let old = serde_json::to_value(&spec).unwrap();
    let apply = |settings: &[&str]| {
        let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
        set(&spec, &settings)
    };
    let lines = |settings: &[&str]| -> Vec<String> {
        let new: Value = serde_json::to_value(apply(settings).unwrap()).unwrap();
        let found = changes(&old, &new);
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".to_owned());
        let line = |one: &ixbuild::spec::diff::Change| {
            format!("{} {}: {} > {}", one.stage, one.what, side(&one.old), side(&one.new))
        };
        found.iter().filter(|change| change.what != "what-if").map(line).collect()
    };
    assert_eq!(lines(&["+server.args.--seed=7"]), ["server --seed: - > 7"]);
    assert_eq!(lines(&["+server.--enforce-eager=true"]), ["server --enforce-eager: - > set"]);
    assert_eq!(lines(&["server.--trust-remote-code=null"]), ["server --trust-remote-code: set > -"]);
    assert_eq!(lines(&["server.env.PYTHONHASHSEED=null"]), ["server env PYTHONHASHSEED: 0 > -"]);
    assert_eq!(
        lines(&["mooncake.--eviction_ratio=0.20", "+server.--compilation-config.level=3"]),
        ["mooncake --eviction_ratio: =0.10 > =0.20", "server --compilation-config level: - > 3"]
    );
    assert_eq!(
        lines(&["server.--compilation-config={\"mode\":3}"]),
        [
            "server --compilation-config cudagraph_mode: \"FULL_DECODE_ONLY\" > -",
            "server --compilation-config mode: 0 > 3"
        ]
    );
    assert_eq!(
        apply(&["server.--block-size=128", "server.args.--block-size=64"]),
        Err(SetError::Twice("server.args.--block-size".to_owned()))
    );
    let noted = apply(&["server.--block-size=128", "+client.env.A=b=c"]).unwrap().what_if;
    assert_eq!(noted, ["+client.env.A=b=c", "server.args.--block-size=128"]);
}

#[test]
fn a_run_that_costs_many_gpu_hours_is_asked_about() {
    let env = Env::new();
    let profile = std::fs::read_to_string(env.project().join("configs/profiles/quick.yaml")).unwrap();
    let start = profile.find("substitute:").unwrap();
    let end = profile.find("estimate:").unwrap();
    let mut real = profile[..start].to_owned() + &profile[end..].replace("load-s: 1", "load-s: 3600");
    env.write("configs/profiles/real.yaml", &real);
    lock_everything(&env);
    // Eight GPUs for an hour and a second.
    let args = ["run", ARM, "--profile", "real"];
    let refused = env.run(&args);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("about 9 GPU-hours, 1 arm") && refused.err.contains("--yes"), "{}", refused.err);
    assert!(!env.scratch().exists() && env.attempts(&env.job(ARM, "real")).is_empty());
    // It goes on, and to where this machine cannot follow: it has no images.
    let yes = env.run(&[&args[..], &["--yes"]].concat());
    assert!(yes.code == 1 && yes.err.contains("use the docker profile"), "{}", yes.err);
    real.push_str("ask-above-gpu-hours: 100\n");
    env.write("configs/profiles/real.yaml", &real);
    assert_eq!(env.run(&args).code, 1);
}

/// Makes up a digest for whatever the lock does not know.
fn lock_everything(env: &Env) {
    let path = env.project().join("ixbuild.lock");
    let mut lock: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let digest = |c: &str| format!("sha256:{}", c.repeat(64));
    for (kind, made_up) in [
        ("images", json!({"platform": "linux/amd64", "manifest": digest("a"), "config": digest("b")})),
        ("packages", json!({"files": {"made-up-1-py3-none-any.whl": digest("c")}})),
        ("hub", json!({"revision": "d".repeat(40)})),
    ] {
        for entry in lock[kind].as_object_mut().unwrap().values_mut().filter(|entry| **entry == "unlocked") {
            *entry = made_up.clone();
        }
    }
    // Beyond the image, and as an environment of its own: NAME VERSION.
    let image = lock["images"].as_object().unwrap().keys().next().unwrap().clone();
    for (key, entry) in lock["packages"].as_object_mut().unwrap() {
        let closure = json!({"another-1-py3-none-any.whl": digest("e")});
        let alone = key.split(' ').take(2).collect::<Vec<_>>().join(" ");
        entry["closures"] = json!({&image: closure, alone: closure});
    }
    std::fs::write(&path, lock.to_string()).unwrap();
}
