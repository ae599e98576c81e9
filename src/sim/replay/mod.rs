//! The replay client: `aiperf profile` of a rehearsal, with generated conversations, in seconds instead of an hour.
//!
//! A closed loop: as many sessions at a time as the command line says, each sending its next turn a think time after the
//! response. First the warm-up, then silence, then the profiling phase with the same sessions; requests in flight at the
//! end of a phase are finished and belong to it. Output are aiperf 0.13's files, with the server's token counts.
//! It does not know: text, tokenizers, data sets, other scenarios.

pub mod args;
pub mod exchange;
pub mod lane;
pub mod record;
pub mod script;
pub mod settings;
pub mod summary;

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::header;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Environment, Log, SimError, Stop, stopped};
use args::ReplayArgs;
use exchange::{Exchange, Failure};
use lane::{Lane, Prompt};
use record::{Clock, Phase, Record};
use script::Script;
use settings::ReplaySettings;
use summary::Outcome;

/// The variable that asks for a session header, for the router.
const SESSION_HEADER_VARIABLE: &str = "AIPERF_HTTP_X_SESSION_ID_FROM_CORRELATION_ID";
/// The time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// How a replay ended; the files are written in any case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// As it should.
    Done,
    /// Too many requests failed.
    TooManyErrors {
        /// Failed requests of the profiling phase.
        failed: u64,
        /// All its requests.
        total: u64,
        /// The highest share allowed.
        threshold: f64,
    },
    /// No request of the profiling phase succeeded.
    NothingCompleted,
    /// It was told to stop.
    Stopped,
}

struct Run<'r> {
    args: &'r ReplayArgs,
    script: Script,
    client: reqwest::Client,
    session_header: bool,
    clock: Clock,
    stop: Stop,
    /// Set when too many requests failed.
    abort: watch::Sender<bool>,
    records: RefCell<Vec<Record>>,
    /// Requests of the phase.
    issued: Cell<u64>,
    finished_sessions: Cell<u64>,
    /// Good and failed requests of the profiling phase.
    tally: Cell<(u64, u64)>,
}

/// The bounds of a phase.
struct Bounds {
    phase: Phase,
    end: Instant,
    /// How long requests may outlast the end.
    grace: Option<Duration>,
    requests: Option<u64>,
    sessions: Option<u64>,
}

/// Replays. `argv` is what follows `aiperf`.
///
/// # Errors
/// The command line or the output directory is at fault. Failed requests are no error here, see [`Verdict`].
pub async fn run(
    argv: &[String],
    settings: &ReplaySettings,
    environment: Environment<'_>,
    stop: Stop,
    log: Log,
) -> Result<Verdict, SimError> {
    let args = ReplayArgs::parse(argv)?;
    let write_error = |source| SimError::Write { path: args.output.clone(), source };
    std::fs::create_dir_all(&args.output).map_err(write_error)?;
    let run = Run {
        script: Script::new(args.seed, args.entries, settings),
        client: client()?,
        session_header: environment(SESSION_HEADER_VARIABLE).is_some_and(|value| value == "1" || value == "true"),
        clock: Clock::start(),
        stop,
        abort: watch::Sender::new(false),
        records: RefCell::default(),
        issued: Cell::new(0),
        finished_sessions: Cell::new(0),
        tally: Cell::new((0, 0)),
        args: &args,
    };
    tokio::select! {
        () = run.play(settings, &log) => {}
        () = run.report_progress(&log) => {}
    }
    let cancelled = *run.stop.borrow() || *run.abort.borrow();
    let records = run.records.take();
    write(&args, argv, &records, Outcome { cancelled })?;
    let verdict = run.verdict(summary::counts(&records, Phase::Profiling));
    log.line(&format!("wrote {} records to {}", records.len(), args.output.display()));
    Ok(verdict)
}

fn client() -> Result<reqwest::Client, SimError> {
    crate::net::local()
        // Simulated services listen on the loopback address of IPv4 alone.
        .resolve("localhost", SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .retry(reqwest::retry::never())
        .build()
        .map_err(SimError::Client)
}

impl Run<'_> {
    async fn play(&self, settings: &ReplaySettings, log: &Log) {
        let mut lanes: Vec<Lane> =
            (0..self.args.concurrency).map(|index| Lane::new(index, self.args, &self.script)).collect();
        let (warmup, profiling) = settings.phases(self.args);
        if !warmup.is_zero() {
            let bounds = Bounds {
                phase: Phase::Warmup,
                end: Instant::now() + warmup,
                grace: self.args.warmup_grace,
                requests: None,
                sessions: settings.warmup_sessions,
            };
            self.play_phase(&mut lanes, &bounds, log).await;
            self.pause(settings.quiet_gap_ms).await;
        }
        let bounds = Bounds {
            phase: Phase::Profiling,
            end: Instant::now() + profiling,
            grace: None,
            requests: settings.max_requests,
            sessions: None,
        };
        self.play_phase(&mut lanes, &bounds, log).await;
        self.pause(settings.trailing_gap_ms).await;
    }

    /// A silence, unless the run is to stop.
    async fn pause(&self, ms: u64) {
        tokio::select! {
            () = sleep(Duration::from_millis(ms)) => {}
            () = self.called_off() => {}
        }
    }

    async fn called_off(&self) {
        tokio::select! {
            () = stopped(self.stop.clone()) => {}
            () = stopped(self.abort.subscribe()) => {}
        }
    }

    async fn play_phase(&self, lanes: &mut [Lane], bounds: &Bounds, log: &Log) {
        self.issued.set(0);
        let name = match bounds.phase {
            Phase::Warmup => "warm-up",
            Phase::Profiling => "profiling",
        };
        log.line(&format!("{name}: {} sessions at a time", lanes.len()));
        let start = Instant::now();
        join_all(lanes.iter_mut().map(|lane| self.play_lane(lane, bounds))).await;
        let (good, bad) = summary::counts(&self.records.borrow(), bounds.phase);
        let seconds = start.elapsed().as_secs_f64();
        log.line(&format!("{name}: {good} requests, {bad} failed, {seconds:.2} s"));
    }

    /// Plays one lane's turns until the phase is over.
    async fn play_lane(&self, lane: &mut Lane, bounds: &Bounds) {
        while let Some(prompt) = lane.prompt(&self.args.model, &self.script) {
            let over = tokio::time::Instant::from_std(bounds.end);
            tokio::select! {
                biased;
                () = self.called_off() => return,
                () = tokio::time::sleep_until(over) => return,
                () = sleep(prompt.think) => {}
            }
            let spent = |limit: Option<u64>, used: &Cell<u64>| limit.is_some_and(|limit| used.get() >= limit);
            if spent(bounds.requests, &self.issued) || spent(bounds.sessions, &self.finished_sessions) {
                return;
            }
            self.issued.set(self.issued.get() + 1);
            self.exchange(prompt, bounds).await;
            if lane.advance(&self.script) {
                self.finished_sessions.set(self.finished_sessions.get() + 1);
            }
        }
    }

    /// Sends a request, waits for its end, and records it.
    async fn exchange(&self, prompt: Prompt, bounds: &Bounds) {
        let mut request = self
            .client
            .post(&self.args.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream")
            .header("X-Request-ID", &prompt.identity.request_id)
            .header("X-Correlation-ID", &prompt.identity.correlation_id);
        if self.session_header {
            request = request.header("X-Session-ID", &prompt.identity.correlation_id);
        }
        let mut exchange = Exchange::begin();
        let limit = bounds.grace.map_or(Duration::MAX, |grace| bounds.end + grace - exchange.start);
        let given_up = tokio::select! {
            ended = timeout(limit, exchange.follow(request.body(prompt.body))) => {
                ended.is_err().then_some("the request outlasted the warm-up's grace period")
            }
            () = self.called_off() => Some("the run was stopped"),
        };
        if let Some(why) = given_up {
            exchange.end = Instant::now();
            exchange.outcome = Err(Failure::cancelled(why));
        }
        let record = Record::new(&self.clock, bounds.phase, prompt.identity, &exchange);
        if bounds.phase == Phase::Profiling {
            self.count(record.error.is_none());
        }
        self.records.borrow_mut().push(record);
    }

    /// Counts a request of the profiling phase; calls the run off when too many failed. The first
    /// max(concurrency, 10) are spared, as in aiperf.
    fn count(&self, good: bool) {
        let (mut succeeded, mut failed) = self.tally.get();
        succeeded += u64::from(good);
        failed += u64::from(!good);
        self.tally.set((succeeded, failed));
        let total = succeeded + failed;
        let armed = total >= self.args.concurrency.max(10) as u64;
        if armed && self.args.failed_threshold.is_some_and(|most| failed as f64 / total as f64 > most) {
            self.abort.send_replace(true);
        }
    }

    fn verdict(&self, (good, failed): (u64, u64)) -> Verdict {
        let total = good + failed;
        match self.args.failed_threshold {
            _ if *self.stop.borrow() => Verdict::Stopped,
            Some(threshold) if total > 0 && failed as f64 / total as f64 > threshold => {
                Verdict::TooManyErrors { failed, total, threshold }
            }
            _ if good == 0 => Verdict::NothingCompleted,
            _ => Verdict::Done,
        }
    }

    /// A line now and then. Does not return.
    async fn report_progress(&self, log: &Log) {
        loop {
            sleep(PROGRESS).await;
            log.line(&format!("{} requests so far", self.records.borrow().len()));
        }
    }
}

/// Writes both files.
fn write(args: &ReplayArgs, argv: &[String], records: &[Record], outcome: Outcome) -> Result<(), SimError> {
    let mut lines = Vec::new();
    for record in records {
        // Strings and finite numbers only: there is nothing that JSON could not hold.
        lines.extend(serde_json::to_vec(record).unwrap_or_default());
        lines.push(b'\n');
    }
    put(&args.output.join("profile_export.jsonl"), &lines)?;
    let document = summary::summary(args, argv, records, outcome);
    put(&args.output.join("profile_export_aiperf.json"), format!("{document:#}\n").as_bytes())
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), SimError> {
    std::fs::write(path, bytes).map_err(|source| SimError::Write { path: path.to_owned(), source })
}
