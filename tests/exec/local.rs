//! What only real processes can show: their environment, their descendants, their owner's death.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use ixbuild::exec::event::channel;
use ixbuild::exec::machine::Machine;
use ixbuild::exec::{End, Exit, FailureKind, Provenance, What, actor, cancellation, run};
use ixbuild::ids::Digest;
use ixbuild::spec::{Image, Substitutions, Text};

use crate::bench::{Bench, eventually, in_time, lives, number_in, server, sh, words};

#[tokio::test]
async fn a_process_gets_the_specs_environment_and_nothing_else() {
    let bench = Bench::local();
    let mut client = sh("client", "env; pwd; cat; echo end");
    client.env.insert("GREETING".into(), Text::Literal("a b\nc".to_owned()));
    let job = bench.job(actor::spec(vec![], client));
    let ran = in_time(bench.run(&job)).await;
    assert_eq!(ran.outcome.end, End::Completed);
    let log = ran.log("client");
    let names: BTreeSet<&str> = log.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    // The shell adds PWD (and some shells SHLVL, _, OLDPWD).
    let shells = BTreeSet::from(["PWD", "SHLVL", "_", "OLDPWD"]);
    let names: BTreeSet<&str> = names.difference(&shells).copied().collect();
    assert_eq!(names, BTreeSet::from(["GREETING", "HOME", "PATH", "TMPDIR"]), "{log}");
    let scratch = job.scratch.display();
    for line in [
        format!("HOME={scratch}/home"),
        format!("TMPDIR={scratch}/tmp"),
        format!("PATH={}", bench.host.path),
        format!("{scratch}/work\nend"),
        "GREETING=a b\nc".to_owned(),
    ] {
        assert!(log.contains(&line), "{line} is not in\n{log}");
    }
}

#[tokio::test]
async fn a_secret_reaches_the_process_and_nothing_that_we_write() {
    // Cargo sets it for tests; it stands for a token.
    const NAME: &str = "CARGO_PKG_DESCRIPTION";
    let value = std::env::var(NAME).unwrap();
    let mut bench = Bench::local();
    bench.host.secrets = vec![NAME.to_owned(), "IXBUILD_NO_SUCH_SECRET".to_owned()];
    let script = format!("tr '\\0' ' ' < /proc/$PPID/cmdline; echo; echo \"leak ${NAME}\"; exit 1");
    let job = bench.job(actor::spec(vec![], sh("client", &script)));
    let ran = in_time(bench.run(&job)).await;
    let log = ran.log("client");
    assert!(log.contains(&format!("leak {value}")), "{log}");
    assert!(
        log.contains("supervise") && log.matches(&value).count() == 1,
        "not on the supervisor's command line: {log}"
    );
    let failure = ran.failure();
    assert!(failure.tail.contains(&format!("leak (${NAME})")), "{failure}");
    let provenance = Provenance::of(&job, &ran.outcome, &bench.host, "local", Machine::this(), None);
    assert_eq!(provenance.secrets, [NAME]);
    let written = serde_json::to_string(&(&ran.outcome, &ran.events, &provenance)).unwrap();
    assert!(!written.contains(&value));

    // What the spec says wins: the spec is what is measured.
    let mut client = sh("client", &format!("echo \"got ${NAME}\""));
    client.env.insert(NAME.into(), Text::Literal("of the spec".to_owned()));
    let ran = in_time(bench.run(&bench.job(actor::spec(vec![], client)))).await;
    assert!(ran.log("client").contains("got of the spec"));
}

/// A script that leaves a descendant in a session of its own, deaf to TERM, and writes both process ids to files.
fn scattered(directory: &std::path::Path) -> String {
    let pids = directory.display();
    format!(
        "setsid sh -c 'trap \"\" TERM; echo $$ > {pids}/far; while :; do sleep 1; done' & \
         echo $$ > {pids}/near; while :; do sleep 1; done"
    )
}

#[tokio::test]
async fn a_cancelled_job_leaves_no_descendant() {
    let mut bench = Bench::local();
    bench.host.timing.grace = Duration::from_millis(100);
    let job = bench.job(actor::spec(vec![server("server")], sh("client", &scattered(bench.directory.path()))));
    let (events, _received) = channel();
    let (canceller, cancel) = cancellation();
    let directory = bench.directory.path().to_owned();
    let cancelling = tokio::task::spawn_blocking(move || {
        let pids = (number_in(&directory.join("near")), number_in(&directory.join("far")));
        assert!(lives(pids.0) && lives(pids.1));
        canceller.cancel();
        pids
    });
    let outcome = in_time(run(&job, bench.executor.as_ref(), &bench.host, &events, &cancel)).await;
    let (near, far) = cancelling.await.unwrap();
    assert_eq!(outcome.end, End::Cancelled);
    // At once: the outcome comes after the last process is gone.
    assert!(!lives(near) && !lives(far));
}

#[tokio::test]
async fn a_daemon_that_a_client_leaves_is_gone_with_it() {
    let mut bench = Bench::local();
    bench.host.timing.grace = Duration::from_millis(100);
    let file = bench.directory.path().join("daemon");
    let script = format!("setsid sleep 600 & echo $! > {}", file.display());
    let ran = in_time(bench.run(&bench.job(actor::spec(vec![], sh("client", &script))))).await;
    assert_eq!(ran.outcome.end, End::Completed);
    assert!(!lives(number_in(&file)));
}

#[tokio::test]
async fn dropping_a_run_ends_its_processes() {
    let mut bench = Bench::local();
    bench.host.timing.grace = Duration::from_millis(100);
    let job = bench.job(actor::spec(vec![], sh("client", &scattered(bench.directory.path()))));
    let supervised = job.scratch.to_string_lossy().into_owned();
    let (events, mut received) = channel();
    let (_canceller, cancel) = cancellation();
    let directory = bench.directory.path().to_owned();
    let running = tokio::spawn(async move { run(&job, bench.executor.as_ref(), &bench.host, &events, &cancel).await });
    while !matches!(received.recv().await.unwrap().what, What::ClientStarted) {}
    let (near, far) = (directory.join("near"), directory.join("far"));
    tokio::task::spawn_blocking(move || (number_in(&near), number_in(&far))).await.unwrap();
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    tokio::task::spawn_blocking(move || eventually("no process of the job", || in_scratch(&supervised).is_empty()))
        .await
        .unwrap();
}

/// Processes whose working directory lies in a scratch directory.
fn in_scratch(scratch: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|path| path.starts_with(scratch)) && lives(*pid)
    })
    .collect()
}

#[test]
fn nothing_survives_a_kill_of_the_owner() {
    let directory = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "local::owner_process", "--ignored"])
        .env("OWNER_DIRECTORY", directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (near, far) = (number_in(&directory.path().join("near")), number_in(&directory.path().join("far")));
    let scratch = std::fs::read_link(format!("/proc/{near}/cwd")).unwrap().to_string_lossy().into_owned();
    assert!(lives(near) && lives(far) && in_scratch(&scratch).len() >= 4);
    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("no process of the killed owner's job", || in_scratch(&scratch).is_empty());
    assert!(!lives(near) && !lives(far));
    // The killed owner could not remove its files.
    std::fs::remove_dir_all(std::path::Path::new(&scratch).ancestors().nth(3).unwrap()).unwrap();
}

#[test]
#[ignore = "the owner that another test kills"]
fn owner_process() {
    let directory = std::path::PathBuf::from(std::env::var_os("OWNER_DIRECTORY").unwrap());
    let mut bench = Bench::local();
    bench.host.timing.grace = Duration::from_millis(100);
    let job = bench.job(actor::spec(vec![server("server")], sh("client", &scattered(&directory))));
    tokio::runtime::Runtime::new().unwrap().block_on(bench.run(&job));
}

#[tokio::test]
async fn what_a_dead_owner_left_is_found_by_handle_and_by_directory_and_ended() {
    let bench = Bench::local();
    let scratch = bench.directory.path().join("left");
    std::fs::create_dir(&scratch).unwrap();
    // Deaf to TERM, and known by one thing alone each.
    let start = |name: &str, variable: &str| {
        let file = bench.directory.path().join(name);
        let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 0.1; done", file.display());
        let child = Command::new("sh").args(["-c", &script]).env("HOME", variable).spawn().unwrap();
        (child, number_in(&file))
    };
    let ((mut one, by_handle), (mut two, by_directory)) =
        (start("one", "/"), start("two", scratch.join("home").to_str().unwrap()));
    let (mut three, other) = start("three", "/");
    let started = |pid| ixbuild::exec::descendants::started(pid).unwrap();
    let left = ixbuild::exec::Left {
        // The last pid was used again.
        handles: vec![format!("pid:{by_handle}:{}", started(by_handle)), format!("pid:{other}:{}", started(other) + 1)],
        scratch: Some(scratch),
        grace: Duration::from_millis(100),
    };
    // These are ours, and nobody else reaps them.
    let reaping = tokio::task::spawn_blocking(move || (one.wait().unwrap(), two.wait().unwrap()));
    let mut ended = in_time(bench.executor.clear(&left)).await.unwrap();
    ended.retain(|word| [by_handle, by_directory].iter().any(|pid| *word == format!("pid {pid}")));
    assert_eq!(ended.len(), 2, "{ended:?}");
    reaping.await.unwrap();
    assert!(!lives(by_handle) && !lives(by_directory) && lives(other));
    assert_eq!(in_time(bench.executor.clear(&left)).await, Ok(vec![]));
    three.kill().unwrap();
    three.wait().unwrap();

    let foreign = ixbuild::exec::Left { handles: vec!["container:abc".to_owned()], ..left };
    let error = in_time(bench.executor.clear(&foreign)).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot end `container:abc`: it is no local process");
}

#[tokio::test]
async fn a_killed_supervisor_is_seen_and_its_processes_ended() {
    let bench = Bench::local();
    let pids = bench.directory.path().display().to_string();
    let script = format!("echo $PPID > {pids}/supervisor; {}", scattered(bench.directory.path()));
    let job = bench.job(actor::spec(vec![], sh("client", &script)));
    let directory = bench.directory.path().to_owned();
    let killing = tokio::task::spawn_blocking(move || {
        let pids = (number_in(&directory.join("near")), number_in(&directory.join("far")));
        let supervisor = number_in(&directory.join("supervisor")).to_string();
        assert!(Command::new("kill").args(["-9", &supervisor]).status().unwrap().success());
        pids
    });
    let ran = in_time(bench.run(&job)).await;
    assert_eq!(ran.failure().kind, FailureKind::Infrastructure);
    let (near, far) = killing.await.unwrap();
    assert!(!lives(near) && !lives(far));
}

#[tokio::test]
async fn a_supervisor_killed_at_its_start_leaves_nothing() {
    let bench = Bench::local();
    let file = bench.directory.path().join("pid");
    let script = format!("echo $$ > {}; kill -9 $PPID; while :; do sleep 1; done", file.display());
    let ran = in_time(bench.run(&bench.job(actor::spec(vec![], sh("client", &script))))).await;
    assert_eq!(ran.failure().kind, FailureKind::Infrastructure);
    assert!(!lives(number_in(&file)));
}

#[tokio::test]
async fn a_death_by_signal_is_told_as_such() {
    let bench = Bench::local();
    for (signal, number, name) in [("KILL", 9, "KILL"), ("PIPE", 13, "PIPE"), ("SEGV", 11, "SEGV")] {
        let client = sh("client", &format!("kill -{signal} $$; sleep 60"));
        let ran = in_time(bench.run(&bench.job(actor::spec(vec![], client)))).await;
        assert_eq!(ran.failure().message, format!("client killed by signal {number} ({name})"));
        assert_eq!(ran.outcome.processes[0].exit, Some(Exit::Signal(number)));
    }
}

#[tokio::test]
async fn an_image_is_never_replaced_in_silence() {
    let bench = Bench::local();
    let mut service = server("server");
    let digest = Digest::of(b"");
    service.image = Some(Image::Locked { config: digest, manifest: digest, platform: "linux/amd64".to_owned() });
    let spec = actor::spec(vec![service], words("client", &["get", "URL"]));
    let ran = in_time(bench.run(&bench.job(spec.clone()))).await;
    assert_eq!(ran.failure().kind, FailureKind::Host);
    assert!(ran.failure().message.contains("runs in an image"), "{}", ran.failure());

    // A spec that says so itself is another job: its substitutions are hashed.
    let mut substituted = spec;
    substituted.deployment.substitutions = Some(Substitutions {
        client: [].into(),
        engine: [].into(),
        programs: [].into(),
        replay_version: 1,
        simulator_version: 1,
    });
    let ran = in_time(bench.run(&bench.job(substituted))).await;
    assert_eq!(ran.outcome.end, End::Completed);
}

#[tokio::test]
async fn ctrl_c_at_the_terminal_does_not_reach_a_service() {
    let bench = Bench::local();
    let client = sh("client", "cat /proc/$$/stat /proc/$PPID/stat");
    let ran = in_time(bench.run(&bench.job(actor::spec(vec![], client)))).await;
    let group = |stat: &str| stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().to_owned();
    let own = group(&std::fs::read_to_string("/proc/self/stat").unwrap());
    let log = ran.log("client");
    let groups: BTreeSet<String> = log.lines().map(group).collect();
    assert!(groups.len() == 2 && !groups.contains(&own), "{own}: {log}");
}
