//! What a job may rely on, whatever executor runs it.

use std::num::NonZeroUsize;
use std::time::Duration;

use ixbuild::exec::counters::Sample;
use ixbuild::exec::outcome::PhaseName;
use ixbuild::exec::scheduler::{Finish, Policy, Verdict, run_many};
use ixbuild::exec::{End, Exit, FailureKind, What, actor, cancellation};
use ixbuild::spec::{Binding, Engine, Instances, Probe, Segment, Text};

use crate::bench::{Bench, after, in_time, server, words};

const ALL: Instances = Instances::All;

/// One test a name and executor.
macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::in_time(super::$name(super::Bench::memory())).await;
            })*
        }
        mod local {
            $(#[tokio::test]
            async fn $name() {
                super::in_time(super::$name(super::Bench::local())).await;
            })*
        }
    };
}

suite! {
    services_start_in_order_and_stop_in_reverse,
    independent_services_start_together,
    a_service_may_wait_for_any_replica,
    readiness_is_what_the_probe_says,
    a_service_that_ends_before_it_is_ready_fails_the_job,
    a_service_that_is_never_ready_times_out,
    a_service_that_ends_under_the_client_fails_the_job,
    a_client_that_fails_fails_the_job,
    a_client_that_takes_too_long_is_stopped,
    a_taken_port_is_the_hosts_fault,
    a_cancelled_job_stops_everything,
    a_deaf_service_is_killed,
    files_environment_and_directories_are_as_bound,
    what_the_host_lacks_is_named,
    a_spec_that_cannot_run_starts_nothing,
    a_failed_job_may_be_kept_up,
    counters_are_sampled_around_the_client,
    parallel_jobs_have_distinct_ports,
    a_scratch_directory_is_used_once,
}

async fn services_start_in_order_and_stop_in_reverse(bench: Bench) {
    let services = vec![server("kv"), after(server("router"), "server", ALL), after(server("server"), "kv", ALL)];
    let job = bench.job(actor::spec(services, words("client", &["get", "URL", "say", "measured"])));
    let ran = bench.run(&job).await;
    assert_eq!(ran.outcome.end, End::Completed);
    assert_eq!(
        ran.course(),
        [
            "starting kv",
            "ready kv",
            "starting server",
            "ready server",
            "starting router",
            "ready router",
            "starting client",
            "client started",
            "client exited with status 0",
            "stopping",
            "stopped client",
            "stopped router",
            "stopped server",
            "stopped kv",
        ]
    );
    assert!(ran.log("client").contains("measured\n"));
    assert!(ran.log("router").contains("up\n"));
    let names: Vec<PhaseName> = ran.outcome.phases.iter().map(|phase| phase.name).collect();
    assert_eq!(names, [PhaseName::Allocate, PhaseName::Start, PhaseName::Client, PhaseName::Stop]);
    let ends: Vec<_> = ran.outcome.processes.iter().map(|process| (process.service.as_str(), process.exit)).collect();
    let term = Some(Exit::Signal(15));
    assert_eq!(ends, [("kv", term), ("router", term), ("server", term), ("client", Some(Exit::Code(0)))]);
    assert!(ran.outcome.started <= ran.outcome.ended);
}

async fn independent_services_start_together(bench: Bench) {
    // Each waits for the other to run: started one after the other, neither would ever be ready.
    let path = |name: &str| bench.directory.path().join(name).to_string_lossy().into_owned();
    let meet = |name: &str, other: &str| {
        words(name, &["write", &path(name), "x", "await", &path(other), "serve", "PORT", "hang"])
    };
    let services = vec![meet("other", "server"), meet("server", "other")];
    let job = bench.job(actor::spec(services, words("client", &[])));
    let ran = bench.run(&job).await;
    assert_eq!(ran.outcome.end, End::Completed);
    assert!(ran.at("starting server") < ran.at("ready other"));
    assert!(ran.at("starting other") < ran.at("ready server"));
}

async fn a_service_may_wait_for_any_replica(bench: Bench) {
    // One replica is ready at once, the other only when `late` runs, which waits for any of them.
    let path = |name: &str| bench.directory.path().join(name).to_string_lossy().into_owned();
    let (queue, flag) = (path("queue"), path("flag"));
    let mut pool = words("pool", &["queue", &queue, &flag, "serve", "PORT", "hang"]);
    pool.replicas = 2;
    let late = after(words("late", &["write", &flag, "x", "serve", "PORT", "hang"]), "pool", Instances::Any);
    let last = after(server("last"), "pool", ALL);
    let job = bench.job(actor::spec(vec![pool, last, late], words("client", &["cat", &flag])));
    let ran = bench.run(&job).await;
    assert_eq!(ran.outcome.end, End::Completed);
    let both = ran.at("ready pool").max(ran.at("ready pool[1]"));
    let one = ran.at("ready pool").min(ran.at("ready pool[1]"));
    assert!(one < ran.at("starting late") && ran.at("starting late") < both && both < ran.at("starting last"));
    let port = |name: &str| ran.outcome.bindings[&format!("{name}.http.port")].clone();
    assert_ne!(port("pool"), port("pool[1]"), "replicas listen at their own ports");
    assert!(ran.outcome.logs.join("pool@1.log").exists());
}

async fn readiness_is_what_the_probe_says(bench: Bench) {
    let http = words("http", &["sleep", "120", "serve", "PORT", "hang"]);
    let mut alive = words("alive", &["hang"]);
    alive.probe = Probe::AliveAfter { ms: 150 };
    let mut setup = words("setup", &["sleep", "120"]);
    setup.probe = Probe::Exit {};
    let job = bench.job(actor::spec(vec![alive, http, setup], words("client", &[])));
    let ran = bench.run(&job).await;
    assert_eq!(ran.outcome.end, End::Completed, "a finished setup step is no dead service");
    for (name, least) in [("alive", 0.15), ("http", 0.12), ("setup", 0.12)] {
        let process = ran.outcome.processes.iter().find(|process| process.service == name).unwrap();
        assert!(process.ready_after.unwrap() >= least, "{process:?}");
    }

    let mut setup = words("setup", &["exit", "4"]);
    setup.probe = Probe::Exit {};
    let ran = bench.run(&bench.job(actor::spec(vec![setup], words("client", &[])))).await;
    assert_eq!(ran.failure().message, "setup exited with status 4 before it was ready");

    // Answers other than 2xx are no readiness.
    let mut job = bench.job(actor::spec(vec![words("server", &["refuse", "PORT", "hang"])], words("client", &[])));
    job.limits.ready_timeout.insert("server".to_owned(), Duration::from_millis(300));
    assert_eq!(bench.run(&job).await.failure().kind, FailureKind::Timeout);
}

async fn a_service_that_ends_before_it_is_ready_fails_the_job(bench: Bench) {
    let services = vec![server("kv"), after(words("server", &["say", "no GPU", "exit", "3", "PORT"]), "kv", ALL)];
    let ran = bench.run(&bench.job(actor::spec(services, words("client", &[])))).await;
    let failure = ran.failure();
    assert_eq!((failure.kind, failure.service.as_deref()), (FailureKind::Service, Some("server")));
    assert_eq!(failure.message, "server exited with status 3 before it was ready");
    assert!(failure.tail.contains(&"no GPU".to_owned()), "{failure:?}");
    assert_eq!(failure.log.as_deref(), Some(ran.outcome.logs.join("server.log").as_path()));
    assert!(ran.at("stopped server") < ran.at("stopped kv"));
    assert!(!ran.course().contains(&"starting client".to_owned()));
}

async fn a_service_that_is_never_ready_times_out(bench: Bench) {
    let mut job =
        bench.job(actor::spec(vec![words("server", &["say", "loading", "hang", "PORT"])], words("client", &[])));
    job.limits.ready_timeout.insert("server".to_owned(), Duration::from_millis(1500));
    let ran = bench.run(&job).await;
    assert_eq!(ran.failure().kind, FailureKind::Timeout);
    assert_eq!(ran.failure().message, "server was not ready within 1.5 s");
    assert!(ran.failure().tail.contains(&"loading".to_owned()), "{:?}", ran.failure());
    ran.at("stopped server");
}

async fn a_service_that_ends_under_the_client_fails_the_job(bench: Bench) {
    for status in ["0", "139"] {
        let flag = bench.directory.path().join(status).to_string_lossy().into_owned();
        let dying = words("server", &["serve", "PORT", "await", &flag, "say", "out of memory", "exit", status]);
        let client = words("client", &["write", &flag, "x", "hang"]);
        let job = bench.job(actor::spec(vec![dying, server("steady")], client));
        let ran = bench.run(&job).await;
        let failure = ran.failure();
        assert_eq!(failure.kind, FailureKind::Service);
        assert_eq!(failure.message, format!("server exited with status {status}"));
        assert!(failure.tail.contains(&"out of memory".to_owned()), "{failure:?}");
        ran.at("stopped steady");
    }
}

async fn a_client_that_fails_fails_the_job(bench: Bench) {
    let client = words("client", &["say", "connection refused", "exit", "3"]);
    let ran = bench.run(&bench.job(actor::spec(vec![server("server")], client))).await;
    let failure = ran.failure();
    assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Client, "client exited with status 3"));
    assert!(failure.to_string().contains("\n  | connection refused"), "{failure}");
    assert!(failure.to_string().contains("client.log"), "{failure}");
}

async fn a_client_that_takes_too_long_is_stopped(bench: Bench) {
    let mut job = bench.job(actor::spec(vec![server("server")], words("client", &["hang"])));
    job.limits.client_timeout = Some(Duration::from_millis(100));
    let ran = bench.run(&job).await;
    assert_eq!(ran.failure().kind, FailureKind::Timeout);
    assert_eq!(ran.failure().message, "client was not done within 0.1 s");
    assert!(ran.at("stopped client") < ran.at("stopped server"));
}

async fn a_taken_port_is_the_hosts_fault(bench: Bench) {
    // The second binds the port of the first, as a foreign server would have.
    let mut second = words("second", &["serve", "PORT", "hang"]);
    second.argv[1] = words("first", &["PORT"]).argv[0].clone();
    let services = vec![server("first"), after(second, "first", ALL)];
    let ran = bench.run(&bench.job(actor::spec(services, words("client", &[])))).await;
    assert_eq!(ran.failure().kind, FailureKind::Infrastructure, "{:?}", ran.failure());
    assert_eq!(ran.outcome.verdict(), Verdict::MayPass);
}

async fn a_cancelled_job_stops_everything(bench: Bench) {
    let services = || vec![server("kv"), after(server("server"), "kv", ALL)];
    let job = bench.job(actor::spec(services(), words("client", &["say", "begun", "hang"])));
    let ran = bench.run_until(&job, |what| matches!(what, What::ClientStarted)).await;
    assert_eq!(ran.outcome.end, End::Cancelled);
    for name in ["client", "server", "kv"] {
        ran.at(&format!("stopped {name}"));
    }
    assert!(ran.log("kv").contains("up\n"), "logs are kept");

    let job = bench.job(actor::spec(services(), words("client", &[])));
    let ran = bench.run_until(&job, |what| matches!(what, What::Ready { who, .. } if who.service == "kv")).await;
    assert_eq!(ran.outcome.end, End::Cancelled);
    assert!(!ran.course().contains(&"starting client".to_owned()));
    ran.at("stopped kv");

    let (canceller, cancel) = cancellation();
    canceller.cancel();
    let ran = bench.run_with(&bench.job(actor::spec(services(), words("client", &[]))), &cancel).await;
    assert_eq!((ran.outcome.end, ran.outcome.processes.len()), (End::Cancelled, 0));
}

async fn a_deaf_service_is_killed(mut bench: Bench) {
    bench.host.timing.grace = Duration::from_millis(50);
    let deaf = words("server", &["deaf", "serve", "PORT", "hang"]);
    let ran = bench.run(&bench.job(actor::spec(vec![deaf], words("client", &[])))).await;
    assert_eq!(ran.outcome.end, End::Completed);
    assert_eq!(ran.outcome.processes[0].exit, Some(Exit::Signal(9)));
}

async fn files_environment_and_directories_are_as_bound(mut bench: Bench) {
    bench.host.facts.insert("rdma-devices".to_owned(), "mlx5_0,mlx5_1".to_owned());
    let bind = |binding| Text::from_segments(vec![Segment::Bind(binding)]);
    let mut client = words("client", &["cat", "FILE", "env", "DEVICES", "env", "MODEL", "env", "CACHE", "env", "OUT"]);
    client.argv[1] = bind(Binding::File { name: "conf.json".to_owned() });
    client.files.insert("conf.json".into(), words("server", &["URL"]).argv[0].clone());
    for (name, binding) in [
        ("DEVICES", Binding::Host { name: "rdma-devices".to_owned() }),
        ("MODEL", Binding::Model {}),
        ("CACHE", Binding::Cache { name: "aiperf".to_owned() }),
        ("OUT", Binding::Directory { name: "artifacts".to_owned() }),
    ] {
        client.env.insert(name.into(), bind(binding));
    }
    let job = bench.job(actor::spec(vec![server("server")], client));
    let ran = bench.run(&job).await;
    assert_eq!(ran.outcome.end, End::Completed);
    let (log, bindings) = (ran.log("client"), &ran.outcome.bindings);
    assert!(log.contains(&format!("http://127.0.0.1:{}\n", bindings["server.http.port"])), "{log}");
    assert!(log.contains("DEVICES=mlx5_0,mlx5_1\n") && log.contains("MODEL=/models/m\n"), "{log}");
    let cache = bench.host.caches.join("aiperf");
    assert!(cache.is_dir() && log.contains(&format!("CACHE={}\n", cache.display())), "{log}");
    assert_eq!(ran.outcome.client_output, job.scratch.join("out/artifacts"));
    assert!(ran.outcome.client_output.is_dir());
    assert!(log.contains(&format!("OUT={}\n", ran.outcome.client_output.display())), "{log}");
    let names: Vec<&str> = bindings.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "cache(aiperf)",
            "client:file(conf.json)",
            "directory(artifacts)",
            "host(rdma-devices)",
            "model.path",
            "server.http.host",
            "server.http.port"
        ]
    );
}

async fn what_the_host_lacks_is_named(bench: Bench) {
    let mut client = words("client", &["say", "x"]);
    client.argv[1] = Text::from_segments(vec![Segment::Bind(Binding::Host { name: "rdma-devices".to_owned() })]);
    let ran = bench.run(&bench.job(actor::spec(vec![server("server")], client))).await;
    assert_eq!(ran.failure().kind, FailureKind::Host);
    assert!(ran.failure().message.contains("add the fact `rdma-devices` to the profile"), "{:?}", ran.failure());
    assert!(ran.outcome.processes.is_empty());

    let mut missing = words("server", &[]);
    missing.entrypoint = vec!["no-such-program".to_owned()];
    let ran = bench.run(&bench.job(actor::spec(vec![missing], words("client", &[])))).await;
    assert_eq!(ran.failure().kind, FailureKind::Host);
    assert!(ran.failure().message.starts_with("cannot start server: `no-such-program`: "), "{:?}", ran.failure());
}

async fn a_spec_that_cannot_run_starts_nothing(bench: Bench) {
    let services = vec![after(server("a"), "b", ALL), after(server("b"), "a", ALL)];
    let ran = bench.run(&bench.job(actor::spec(services, words("client", &[])))).await;
    assert_eq!(ran.failure().kind, FailureKind::Spec);
    assert_eq!(ran.failure().message, "services wait for each other: a after b after a");
    let job = bench.job(actor::spec(vec![server("../../escape")], words("client", &[])));
    let ran = bench.run(&job).await;
    assert_eq!(ran.failure().kind, FailureKind::Spec);
    assert!(!job.scratch.exists());
}

async fn a_failed_job_may_be_kept_up(bench: Bench) {
    let mut job = bench.job(actor::spec(vec![server("server")], words("client", &["exit", "1"])));
    job.keep_on_failure = true;
    let ran = bench.run_until(&job, |what| matches!(what, What::Holding { .. })).await;
    assert_eq!(ran.failure().kind, FailureKind::Client, "the failure stays the outcome");
    assert!(ran.at("holding") < ran.at("stopping"));
}

async fn counters_are_sampled_around_the_client(mut bench: Bench) {
    bench.host.timing.scrape_interval = Duration::from_millis(40);
    let mut engine = server("server");
    engine.engine = Some(Engine::Vllm);
    let mut broken = words("broken", &["refuse", "PORT", "hang"]);
    broken.engine = Some(Engine::Vllm);
    broken.probe = Probe::AliveAfter { ms: 0 };
    let services = vec![broken, server("router"), engine];
    let job = bench.job(actor::spec(services, words("client", &["sleep", "400"])));
    let ran = bench.run(&job).await;
    assert_eq!(ran.outcome.end, End::Completed, "a failed scrape fails no job");
    let text = std::fs::read_to_string(&ran.outcome.counters).unwrap();
    let samples: Vec<Sample> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(samples.len() >= 3, "{text}");
    assert!(samples.iter().all(|sample| sample.service == "server" && sample.text.starts_with("requests ")));
    assert!(samples.is_sorted_by_key(|sample| sample.t_ns));
    let client = ran.outcome.phase(PhaseName::Client).unwrap();
    let start = u64::try_from(client.started.as_nanosecond()).unwrap();
    let first_and_last = samples[samples.len() - 1].t_ns - samples[0].t_ns;
    assert!(samples[0].t_ns >= start && first_and_last >= 400_000_000, "one before the client, one after it");
    assert!(ran.at("scrape failed broken") < ran.at("starting client"));
}

async fn parallel_jobs_have_distinct_ports(bench: Bench) {
    let jobs: Vec<_> = (0..4)
        .map(|_| {
            let services = vec![server("kv"), server("router"), server("server")];
            bench.job(actor::spec(services, words("client", &["get", "URL", "sleep", "100"])))
        })
        .collect();
    let policy = Policy { parallelism: NonZeroUsize::new(4).unwrap(), fail_fast: false, retries: 0 };
    let (_canceller, cancel) = cancellation();
    let finished = run_many(&jobs, policy, &cancel, async |job, _| {
        let ran = bench.run_with(job, &cancel).await;
        (ran.outcome.verdict(), ran.outcome)
    })
    .await;
    let mut ports = std::collections::BTreeSet::new();
    for finish in finished {
        let Finish::Ran { verdict, value, .. } = finish else { panic!("{finish:?}") };
        assert_eq!(verdict, Verdict::Done, "{value:?}");
        ports.extend(value.bindings.into_iter().filter(|(name, _)| name.ends_with(".port")).map(|(_, port)| port));
    }
    // All jobs were allocated before the first one ended: its client sleeps.
    assert_eq!(ports.len(), 12);
}

async fn a_scratch_directory_is_used_once(bench: Bench) {
    let job = bench.job(actor::spec(vec![], words("client", &[])));
    assert_eq!(bench.run(&job).await.outcome.end, End::Completed);
    let again = bench.run(&job).await;
    assert_eq!(again.failure().kind, FailureKind::Infrastructure);
    assert!(again.failure().message.contains("it holds another attempt"), "{:?}", again.failure());
}
