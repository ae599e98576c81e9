//! Sweeps that are killed, processes that meet on one job, inputs that change under way.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::env::{ARM, Env, OTHER, eventually, lives, signal};

/// Ten arms of the matrix.
fn ten(env: &Env) -> Vec<String> {
    let plan = env.json(&["plan", "--profile", "quick"]);
    let ids = plan["arms"].as_array().unwrap().iter().map(|arm| arm["id"].as_str().unwrap().to_owned());
    ids.take(10).collect()
}

fn summary(value: &Value) -> (u64, u64) {
    let count = |word: &str| value["summary"][word].as_u64().unwrap_or(0);
    (count("recorded"), count("served"))
}

#[test]
fn a_sweep_killed_at_arm_five_of_ten_runs_five_more() {
    let env = Env::new();
    let arms = ten(&env);
    let args = [&["run", "--jobs", "1"][..], &arms.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    let mut sweep = env.start(&args);
    for _ in 0..5 {
        sweep.until("recorded");
    }
    // The sixth is under way.
    let sixth = env.until_phase("measuring", 1)[0].clone();
    assert_eq!(sixth["arms"], json!([arms[5]]));
    assert!(!env.processes().is_empty());
    let owner = sweep.pid();
    sweep.kill();
    let left = env.json(&["ps"]);
    assert_eq!((&left[0]["owner"]["pid"], &left[0]["owner"]["state"]), (&json!(owner), &json!("dead")));
    assert_eq!(left[0]["handles"].as_array().unwrap().len(), sixth["handles"].as_array().unwrap().len());

    let again = env.run(&[&args[..], &["--json"]].concat());
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(summary(&again.json()), (5, 5));
    let taken = again.err.lines().find(|line| line.starts_with("taken ")).unwrap_or_else(|| panic!("{}", again.err));
    let name = arms[5].rsplit('/').next().unwrap();
    assert!(taken.contains(name) && taken.contains(&format!("from pid {owner} on ")), "{taken}");
    assert_eq!(env.processes(), Vec::<i32>::new());
    assert_eq!(env.json(&["ps"]), json!([]));
    let jobs: BTreeSet<&str> = again.json()["arms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arm| arm["job"].as_str().unwrap().to_owned().leak() as &str)
        .collect();
    for job in jobs {
        assert_eq!(env.attempts(job), ["valid"], "{job}");
    }
    assert_eq!(env.run(&["store", "verify"]).code, 0);
}

#[test]
fn what_a_killed_owner_and_its_killed_supervisors_left_is_ended_by_the_next_run() {
    let env = Env::new();
    let sweep = env.start(&["run", ARM, "--profile", "endless"]);
    env.until_phase("measuring", 1);
    // At once, so that nobody is there to end the services.
    let all = env.processes();
    let supervisors: Vec<i32> = all.iter().copied().filter(|pid| is_supervisor(*pid)).collect();
    assert!(supervisors.len() >= 2 && supervisors.len() < all.len());
    let owner = sweep.pid();
    signal(owner, "STOP");
    supervisors.iter().for_each(|pid| signal(*pid, "KILL"));
    sweep.kill();
    let orphans: Vec<i32> = all.into_iter().filter(|pid| !supervisors.contains(pid)).collect();
    assert!(orphans.iter().all(|pid| lives(*pid)), "services without a supervisor go on");

    // The next owner is stopped in turn: what matters is what it does first.
    let mut next = env.start(&["run", ARM, "--profile", "endless"]);
    let line = next.until("taken ");
    assert!(orphans.iter().all(|pid| line.contains(&format!("pid {pid}")) && !lives(*pid)), "{line}");
    signal(next.pid(), "TERM");
    assert_eq!(next.end().code, 130);
    assert_eq!(env.processes(), Vec::<i32>::new());
}

fn is_supervisor(pid: i32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).nth(1) == Some(b"supervise")
}

#[test]
fn two_processes_run_one_arm_once() {
    let env = Env::new();
    let mut first = env.start(&["run", ARM, "--json"]);
    first.until("start");
    env.until_phase("measuring", 1);
    let second = env.start(&["run", ARM, "--json"]).end();
    let first = first.end();
    assert_eq!((first.code, second.code), (0, 0), "{}{}", first.err, second.err);
    assert_eq!((summary(&first.json()), summary(&second.json())), ((1, 0), (0, 1)));
    assert!(second.err.contains("waiting"), "{}", second.err);
    assert_eq!(env.attempts(&env.job(ARM, "quick")), ["valid"]);
}

#[test]
fn a_recipe_edited_under_way_changes_nothing_of_that_run() {
    const RECIPE: &str = "configs/recipes/dsv4-fp4-b200-vllm.yaml";
    let env = Env::new();
    let jobs = [env.job(ARM, "quick"), env.job(OTHER, "quick")];
    let mut sweep = env.start(&["run", ARM, OTHER, "--jobs", "1"]);
    sweep.until("start");
    env.edit(RECIPE, "max-num-seqs: ${{ 2 * conc }}", "max-num-seqs: ${{ 3 * conc }}");
    let ended = sweep.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    for (arm, job) in [ARM, OTHER].iter().zip(&jobs) {
        assert_eq!(env.attempts(job), ["valid"], "{arm}");
        let why = env.run(&["why", arm]);
        assert!(why.out.contains("--max-num-seqs: 2 → 3"), "{}", why.out);
        assert_ne!(env.job(arm, "quick"), *job);
    }
    // What the server was given, also in the job that started after the edit.
    let logged = env.run(&["show", &jobs[1], "--format", "sh"]);
    assert!(logged.out.contains("--max-num-seqs 2"), "{}", logged.out);
}

#[test]
fn an_owner_on_another_machine_is_never_presumed_dead() {
    let env = Env::new();
    let mut sweep = env.start(&["run", ARM]);
    sweep.until("start");
    let job = env.until_phase("measuring", 1)[0]["job"].as_str().unwrap().to_owned();
    let path = env.store().join("claims").join(format!("{}.json", &job[4..]));
    let mut claim: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(sweep.end().code, 0);

    // The same claim, of a machine that nobody can see from here.
    let other = env.job(OTHER, "quick");
    claim["job"] = json!(other);
    claim["arms"] = json!([OTHER]);
    for field in ["machine", "boot", "host"] {
        claim["owner"][field] = json!("far");
    }
    let path = env.store().join("claims").join(format!("{}.json", &other[4..]));
    std::fs::write(&path, claim.to_string()).unwrap();
    assert_eq!(env.json(&["plan", OTHER])["arms"][0]["state"], "running");
    assert_eq!(env.json(&["ps"])[0]["owner"]["state"], "elsewhere");
    let mut waiting = env.start(&["run", OTHER]);
    let line = waiting.until("waiting");
    assert!(line.contains("far, which cannot be judged from here"), "{line}");

    let asked = env.run(&["stop", OTHER, "--wait", "1"]);
    assert_eq!(asked.code, 4, "{}", asked.err);
    assert!(asked.err.contains("ixbuild stop --force"), "{}", asked.err);
    assert_eq!(env.attempts(&other), Vec::<String>::new());
    let forced = env.run(&["stop", OTHER, "--force"]);
    assert_eq!((forced.code, forced.out.as_str()), (0, format!("ended the claim on {OTHER}\n").as_str()));
    assert!(forced.err.contains("warning: pid") && forced.err.contains("may run twice"), "{}", forced.err);
    assert!(forced.err.contains("pid:"), "the handles to end there: {}", forced.err);
    // Whoever waited goes on.
    let ended = waiting.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(env.attempts(&other), ["valid"]);
}

#[test]
fn signals_stop_every_process_and_the_attempt_is_kept() {
    let env = Env::new();
    let job = env.job(ARM, "endless");
    for (count, name) in ["INT", "TERM", "HUP"].iter().enumerate() {
        let run = env.start(&["run", ARM, "--profile", "endless"]);
        env.until_phase("measuring", 1);
        signal(run.pid(), name);
        let ended = run.end();
        assert_eq!(ended.code, 130, "{name}: {}", ended.err);
        assert_eq!(env.processes(), Vec::<i32>::new(), "{name}");
        assert_eq!(env.attempts(&job), vec!["cancelled"; count + 1], "{name}");
        assert_eq!(env.json(&["ps"]), json!([]));
    }
}

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let env = Env::new();
    let script = "trap '' HUP; exec \"$0\" run \"$1\" --profile steady";
    let run = crate::env::Background::start(env.program("sh", &["-c", script, env!("CARGO_BIN_EXE_ixbuild"), ARM]));
    env.until_phase("measuring", 1);
    signal(run.pid(), "HUP");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    eventually("no process left", || env.processes().is_empty());
}
