//! A place to run jobs of actors in: an executor, a host that is quick about everything, a scratch directory.

use std::collections::BTreeMap;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ixbuild::exec::event::channel;
use ixbuild::exec::memory::Memory;
use ixbuild::exec::{
    Cancel, Event, Executor, Failure, Host, Job, Limits, Local, Outcome, Timing, What, actor, cancellation, run,
};
use ixbuild::spec::{After, Binding, Instances, JobSpec, Part, Probe, Segment, Service, Text};

pub const IXBUILD: &str = env!("CARGO_BIN_EXE_ixbuild");

/// Longer than any test may take on a busy machine; nothing waits so long when all is well.
pub const LONG: Duration = Duration::from_secs(60);

pub struct Bench {
    pub directory: tempfile::TempDir,
    pub executor: Box<dyn Executor>,
    pub host: Host,
    jobs: AtomicU32,
}

impl Bench {
    pub fn memory() -> Self {
        Self::new(Box::new(Memory::new().unwrap()))
    }

    pub fn local() -> Self {
        Self::new(Box::new(Local::new().unwrap()))
    }

    fn new(executor: Box<dyn Executor>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let programs = directory.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        write_actor(&programs.join(actor::PROGRAM));
        let host = Host {
            facts: BTreeMap::new(),
            models: BTreeMap::from([("org/model".to_owned(), PathBuf::from("/models/m"))]),
            caches: directory.path().join("caches"),
            secrets: Vec::new(),
            path: format!("{}:/usr/bin:/bin", programs.display()),
            timing: Timing {
                poll: Duration::from_millis(10),
                ready_timeout: LONG,
                grace: LONG,
                scrape_interval: LONG,
                client_timeout: LONG,
            },
            ixbuild: PathBuf::from(IXBUILD),
        };
        Self { directory, executor, host, jobs: AtomicU32::new(0) }
    }

    pub fn job(&self, spec: JobSpec) -> Job {
        let number = self.jobs.fetch_add(1, Ordering::SeqCst);
        Job {
            label: format!("job-{number}"),
            hash: spec.hash(),
            spec: Arc::new(spec),
            scratch: self.directory.path().join("jobs").join(number.to_string()),
            attempt: 1,
            limits: Limits::default(),
            keep_on_failure: false,
        }
    }

    /// Runs a job that nobody cancels.
    pub async fn run(&self, job: &Job) -> Ran {
        let (_canceller, cancel) = cancellation();
        self.run_with(job, &cancel).await
    }

    pub async fn run_with(&self, job: &Job, cancel: &Cancel) -> Ran {
        let (events, mut received) = channel();
        let outcome = run(job, self.executor.as_ref(), &self.host, &events, cancel).await;
        drop(events);
        let mut seen = Vec::new();
        while let Some(event) = received.recv().await {
            seen.push(event);
        }
        Ran { outcome, events: seen }
    }

    /// Runs a job and cancels it at an event.
    pub async fn run_until(&self, job: &Job, at: impl Fn(&What) -> bool) -> Ran {
        let (events, mut received) = channel();
        let (canceller, cancel) = cancellation();
        let running = async {
            let outcome = run(job, self.executor.as_ref(), &self.host, &events, &cancel).await;
            drop(events);
            outcome
        };
        let watching = async {
            let mut seen = Vec::new();
            while let Some(event) = received.recv().await {
                if at(&event.what) {
                    canceller.cancel();
                }
                seen.push(event);
            }
            seen
        };
        let (outcome, events) = tokio::join!(running, watching);
        Ran { outcome, events }
    }
}

/// What came of a run.
pub struct Ran {
    pub outcome: Outcome,
    pub events: Vec<Event>,
}

impl Ran {
    pub fn failure(&self) -> &Failure {
        self.outcome.failure().unwrap_or_else(|| panic!("{:?}", self.outcome.end))
    }

    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.outcome.logs.join(format!("{name}.log"))).unwrap()
    }

    /// The events in short: `starting kv`, `ready kv`, `client-started`, …
    pub fn course(&self) -> Vec<String> {
        let short = |event: &Event| {
            Some(match &event.what {
                What::Starting(who) => format!("starting {who}"),
                What::Ready { who, .. } => format!("ready {who}"),
                What::ClientStarted => "client started".to_owned(),
                What::ClientEnded { exit, .. } => format!("client {exit}"),
                What::ScrapeFailed { who, .. } => format!("scrape failed {who}"),
                What::Holding { .. } => "holding".to_owned(),
                What::Stopping => "stopping".to_owned(),
                What::Stopped { who, .. } => format!("stopped {who}"),
                What::Stuck { who, .. } => format!("stuck {who}"),
                What::Began { .. } | What::Allocated | What::Started { .. } | What::Ended { .. } => return None,
            })
        };
        self.events.iter().filter_map(short).collect()
    }

    /// Where in the course something happens.
    pub fn at(&self, what: &str) -> usize {
        let course = self.course();
        course.iter().position(|step| step == what).unwrap_or_else(|| panic!("no `{what}` in {course:?}"))
    }
}

/// An actor that listens: `PORT` and `URL` among its words become its own port and the URL of `server`.
pub fn words(name: &str, words: &[&str]) -> Service {
    let mut service = actor::service(name, &[]);
    let port = |service: &str| {
        let (name, service) = ("http".to_owned(), service.to_owned());
        Segment::Bind(Binding::Endpoint { name, part: Part::Port, service })
    };
    let text = |word: &&str| match *word {
        "PORT" => Text::from_segments(vec![port(name)]),
        "URL" => Text::from_segments(vec![Segment::Literal("http://127.0.0.1:".to_owned()), port("server")]),
        word => Text::Literal(word.to_owned()),
    };
    service.argv = words.iter().map(text).collect();
    if words.contains(&"PORT") {
        service.endpoints.insert("http".to_owned());
        service.probe = Probe::Http { endpoint: "http".to_owned(), path: "/health".to_owned() };
    }
    service
}

/// An actor that is ready once it serves, and stays.
pub fn server(name: &str) -> Service {
    words(name, &["say", "up", "serve", "PORT", "hang"])
}

pub fn after(mut service: Service, name: &str, instances: Instances) -> Service {
    service.after.push(After { instances, service: name.to_owned() });
    service
}

/// A process that ends by itself, played by `sh`.
pub fn sh(name: &str, script: &str) -> Service {
    let mut service = actor::service(name, &[]);
    service.entrypoint = vec!["sh".to_owned(), "-c".to_owned()];
    service.argv = vec![Text::Literal(script.to_owned())];
    service
}

/// Fails a test whose future does not end: better than a hang.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("not done within {LONG:?}"))
}

/// Whether a process is there and not a zombie.
pub fn lives(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number that a process writes to a file.
pub fn number_in(path: &Path) -> i32 {
    let mut number = None;
    eventually(&format!("a number in {}", path.display()), || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.trim().parse().ok());
        number.is_some()
    });
    number.unwrap()
}

/// The program that plays an actor in a process of its own: this test binary again, with the words in its environment.
/// `deaf` must be the first word: what a shell ignores stays ignored.
fn write_actor(path: &Path) {
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in deaf) trap '' TERM ;; esac\nACTOR_WORDS=$(printf '%s\\n' \"$@\") \
         exec '{}' --exact bench::actor_process --ignored --nocapture\n",
        this.display()
    );
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[ignore = "the program that the other tests run as a service"]
fn actor_process() {
    let words: Vec<String> = std::env::var("ACTOR_WORDS").unwrap().lines().map(str::to_owned).collect();
    let env = std::env::vars().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut out = std::io::stdout();
    let status = runtime.block_on(actor::play(&words, &env, &mut out, &AtomicBool::new(false)));
    std::process::exit(status);
}
