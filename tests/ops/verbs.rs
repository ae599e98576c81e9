//! `ps`, `stop` and `logs`.

use serde_json::json;

use crate::env::{ARM, Env, OTHER, eventually, signal};

#[test]
fn stop_ends_one_job_of_a_sweep_and_the_others_go_on() {
    let env = Env::new();
    let nothing = env.run(&["ps"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (0, ""));
    let run = env.start(&["run", ARM, OTHER, "--jobs", "2", "--profile", "endless", "--json"]);
    let shown = env.until_phase("measuring", 2);
    for one in shown.as_array().unwrap() {
        assert_eq!((&one["owner"]["pid"], &one["owner"]["state"]), (&json!(run.pid()), &json!("alive")));
        let scratch = one["scratch"].as_str().unwrap();
        assert!(scratch.starts_with(env.scratch().to_str().unwrap()));
        for handle in one["handles"].as_array().unwrap() {
            let pid: i32 = handle.as_str().unwrap().split(':').nth(1).unwrap().parse().unwrap();
            assert!(env.processes().contains(&pid), "{handle} is no process of the job");
        }
    }
    let table = env.run(&["ps"]);
    assert!(
        table.out.contains(ARM) && table.out.contains("measuring") && table.out.contains(", alive"),
        "{}",
        table.out
    );
    assert_eq!(env.json(&["plan", ARM, "--profile", "endless"])["arms"][0]["state"], "running");

    let unknown = env.run(&["stop", "nothing-like-it"]);
    assert_eq!(unknown.code, 2);
    let ambiguous = env.run(&["stop", "c1"]);
    assert!(ambiguous.code == 2 && ambiguous.err.contains(ARM) && ambiguous.err.contains(OTHER), "{}", ambiguous.err);

    let stopped = env.run(&["stop", "tp8-resident-mtp-c1"]);
    assert_eq!((stopped.code, stopped.out), (0, format!("stopped {ARM}\n")), "{}", stopped.err);
    assert_eq!(env.attempts(&env.job(ARM, "endless")), ["cancelled"]);
    let rest = env.json(&["ps"]);
    assert_eq!((rest.as_array().unwrap().len(), &rest[0]["arms"]), (1, &json!([OTHER])));
    assert_eq!(rest[0]["phase"], "measuring");

    let other = rest[0]["job"].as_str().unwrap();
    assert_eq!(env.run(&["stop", &other[..16]]).code, 0);
    let ended = run.end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert_eq!(ended.json()["summary"], json!({"stopped": 2}));
    assert_eq!(env.processes(), Vec::<i32>::new());
    let all = env.run(&["stop", "--all"]);
    assert_eq!((all.code, all.out.as_str()), (0, ""));
}

#[test]
fn stop_clears_what_a_dead_owner_left() {
    let env = Env::new();
    let run = env.start(&["run", ARM, "--profile", "endless"]);
    env.until_phase("measuring", 1);
    let owner = run.pid();
    run.kill();
    let listed = env.run(&["ps"]);
    assert!(listed.out.contains(", dead") && listed.err.contains("ixbuild stop"), "{}{}", listed.out, listed.err);
    // The logs of what nobody recorded.
    let logs = env.run(&["logs", ARM, "server", "--profile", "endless"]);
    assert!(logs.code == 0 && !logs.out.is_empty() && logs.err.contains("which is dead"), "{}", logs.err);
    let cleared = env.run(&["stop", "--all"]);
    assert_eq!(cleared.code, 0, "{}", cleared.err);
    assert!(cleared.out.starts_with(&format!("cleared {ARM} of pid {owner} on ")), "{}", cleared.out);
    assert_eq!(env.processes(), Vec::<i32>::new());
    assert_eq!(env.json(&["ps"]), json!([]));
    assert_eq!(std::fs::read_dir(env.store().join("claims")).unwrap().count(), 0);
}

#[test]
fn logs_are_read_while_the_attempt_runs_and_afterwards() {
    let env = Env::new();
    let never = env.run(&["logs", ARM]);
    assert!(never.code == 2 && never.err.contains("never tried"), "{}", never.err);

    let mut run = env.start(&["run", ARM, "--profile", "steady"]);
    run.until("start");
    env.until_phase("measuring", 1);
    let follow = env.start(&["logs", ARM, "--follow", "--profile", "steady"]);
    let now = env.run(&["logs", "tp8-resident-mtp-c1", "server", "--profile", "steady"]);
    assert_eq!(now.code, 0, "{}", now.err);
    let unknown = env.run(&["logs", ARM, "sever", "--profile", "steady"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("`client`") && unknown.err.contains("`server`"), "{}", unknown.err);
    assert_eq!(run.end().code, 0);
    let followed = follow.end();
    assert_eq!(followed.code, 0, "{}", followed.err);
    assert!(followed.err.contains("the attempt ended: valid"), "{}", followed.err);

    // What was followed is what is stored, whatever the order in which it came.
    let stored = env.run(&["logs", ARM, "--profile", "steady"]);
    assert_eq!(stored.code, 0, "{}", stored.err);
    let of = |text: &str, service: &str| -> Vec<String> {
        let prefix = format!("{service} | ");
        text.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
    };
    for service in ["client", "server"] {
        assert!(!of(&stored.out, service).is_empty(), "{}", stored.out);
        assert_eq!(of(&stored.out, service), of(&followed.out, service), "{service}");
    }
    let server = env.run(&["logs", ARM, "server", "--profile", "steady"]);
    assert_eq!(server.out.lines().collect::<Vec<_>>(), of(&stored.out, "server"));
    assert!(server.out.starts_with(&now.out), "the log went on: {}", now.out);

    let job = env.job(ARM, "steady");
    let shown = env.json(&["show", &job]);
    let manifest = shown["attempts"][0]["manifest"].as_str().unwrap();
    for attempt in ["1", manifest, &manifest["sha256:".len()..][..12]] {
        let one = env.run(&["logs", &job, "server", "--attempt", attempt]);
        assert_eq!((one.code, &one.out), (0, &server.out), "{attempt}: {}", one.err);
    }
    for attempt in ["2", "0", "ffffffff"] {
        assert_eq!(env.run(&["logs", &job, "--attempt", attempt]).code, 2, "{attempt}");
    }
    let unknown = env.run(&["logs", &job, "router"]);
    assert!(unknown.code == 2 && unknown.err.contains("`server`"), "{}", unknown.err);
}

#[test]
fn a_claim_that_was_ended_by_force_stops_its_owner() {
    let env = Env::new();
    let run = env.start(&["run", ARM, "--profile", "endless", "--json"]);
    let shown = env.until_phase("measuring", 1);
    let job = shown[0]["job"].as_str().unwrap();
    // As `stop --force` on another machine does it, where locks do not reach.
    std::fs::remove_file(env.store().join("claims").join(format!("{}.json", &job[4..]))).unwrap();
    let claims = std::fs::read_dir(env.store().join("claims")).unwrap().flatten();
    assert!(claims.into_iter().all(|entry| entry.path().extension().is_some_and(|end| end == "lock")));
    // It notices when it next writes: when its client is gone.
    eventually("the client ended", || {
        env.processes().into_iter().for_each(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if words.split(|byte| *byte == 0).nth(1) == Some(b"replay") {
                signal(pid, "TERM");
            }
        });
        env.processes().is_empty()
    });
    assert_eq!(run.end().code, 1);
    assert_eq!(env.json(&["ps"]), json!([]));
}
