//! The processes of one job while it runs: brings services up, runs the client, takes everything down. Driven by `run`.
//!
//! Everything happens within one future: nothing goes on when it is dropped, and dropping the instances ends them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

use super::bind::Bindings;
use super::cancel::Cancel;
use super::counters::{ENDPOINT, Scraper};
use super::event::{What, Who};
use super::executor::{Allocation, Instance, StartError};
use super::exit::Exit;
use super::graph::Graph;
use super::host::{Host, Job, Secret, mask};
use super::launch::{LaunchError, log_path, prepare};
use super::outcome::{Failure, FailureKind, ProcessReport, log_tail};
use super::readiness;
use crate::spec::{Probe, Service};

/// Lines of a log that a failure carries.
const TAIL: usize = 20;
/// Lines of a log in which the reason of an early end is looked for.
const REASON: usize = 200;

/// Why a job did not complete.
#[derive(Debug)]
pub enum Stopped {
    /// It failed.
    Failed(Failure),
    /// It was told to stop.
    Cancelled,
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Stopped::Failed(failure)
    }
}

/// A job with its room and its addresses.
pub struct Stage<'a> {
    /// What to run.
    pub job: &'a Job,
    /// With what.
    pub host: &'a Host,
    /// In which order.
    pub graph: &'a Graph,
    /// Under which addresses.
    pub bindings: &'a Bindings<'a>,
    /// Where.
    pub allocation: &'a dyn Allocation,
    /// What processes get besides.
    pub secrets: &'a BTreeMap<String, Secret>,
    /// For probes and counters.
    pub http: &'a reqwest::Client,
    /// Told of everything.
    pub tell: &'a (dyn Fn(What) + Send + Sync),
    /// What was started; empty at first.
    pub running: Mutex<Vec<Running>>,
}

/// A process that was started.
pub struct Running {
    who: Who,
    /// Index in the graph; none for the client.
    node: Option<usize>,
    instance: Arc<dyn Instance>,
    ready_after: Option<Duration>,
    stopped: Option<Exit>,
}

impl Stage<'_> {
    /// Starts every service as early as its dependencies allow, until all are ready.
    ///
    /// # Errors
    /// One does not start, ends, or is not ready in time; or the job is cancelled.
    pub async fn bring_up(&self, cancel: &Cancel) -> Result<(), Stopped> {
        let count = self.graph.nodes.len();
        let (mut begun, mut ready) = (vec![false; count], vec![false; count]);
        let mut starting = FuturesUnordered::new();
        while !ready.iter().all(|ready| *ready) {
            for node in self.graph.startable(&begun, &ready) {
                begun[node] = true;
                starting.push(self.start_service(node));
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(Stopped::Cancelled),
                failure = self.first_death() => return Err(failure.into()),
                Some(started) = starting.next() => ready[started?] = true,
            }
        }
        Ok(())
    }

    /// Runs the client to its end, with counter samples around it, while every service stays up.
    ///
    /// # Errors
    /// The client fails or takes too long; a service ends; or the job is cancelled.
    pub async fn run_client(&self, scraper: &Scraper, cancel: &Cancel) -> Result<(), Stopped> {
        let client = &self.job.spec.measurement.client;
        let who = Who { service: client.name.clone(), instance: 0 };
        let limit = self.job.limits.client_timeout.unwrap_or(self.host.timing.client_timeout);
        let failed = |who: &Who, message: String| (self.tell)(What::ScrapeFailed { who: who.clone(), message });
        let play = async {
            scraper.sample(&failed).await;
            let instance = self.start(client, &who, None).await?;
            (self.tell)(What::ClientStarted);
            let since = Instant::now();
            let exit = tokio::select! {
                biased;
                exit = instance.exited() => exit,
                never = scraper.keep_sampling(self.host.timing.scrape_interval, &failed) => match never {},
                () = sleep(limit) => {
                    let message = format!("{who} was not done within {}", in_words(limit));
                    return Err(self.failure(FailureKind::Timeout, &who, message));
                }
            };
            (self.tell)(What::ClientEnded { exit, after: since.elapsed() });
            scraper.sample(&failed).await;
            if exit.success() {
                return Ok(());
            }
            let kind = if exit == Exit::Lost { FailureKind::Infrastructure } else { FailureKind::Client };
            Err(self.failure(kind, &who, format!("{who} {exit}")))
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            failure = self.first_death() => Err(failure.into()),
            end = play => end.map_err(Stopped::from),
        }
    }

    /// Stops everything that was started: the client, then services, each after all that depend on it. A report on every
    /// process, the client last.
    pub async fn take_down(&self) -> Vec<ProcessReport> {
        (self.tell)(What::Stopping);
        let mut ranks: Vec<Option<usize>> = self.lock().iter().map(|running| self.rank(running)).collect();
        ranks.sort_unstable_by_key(|rank| std::cmp::Reverse(rank.unwrap_or(usize::MAX)));
        ranks.dedup();
        for rank in ranks {
            let group: Vec<(Who, Arc<dyn Instance>)> = self
                .lock()
                .iter()
                .filter(|running| self.rank(running) == rank)
                .map(|running| (running.who.clone(), Arc::clone(&running.instance)))
                .collect();
            join_all(group.into_iter().map(|(who, instance)| async move {
                match instance.stop().await {
                    Ok(exit) => {
                        if let Some(running) = self.lock().iter_mut().find(|running| running.who == who) {
                            running.stopped = Some(exit);
                        }
                        (self.tell)(What::Stopped { who, exit });
                    }
                    Err(error) => (self.tell)(What::Stuck { who, message: error.message }),
                }
            }))
            .await;
        }
        let mut running = self.lock();
        running.sort_by_key(|running| running.node.unwrap_or(usize::MAX));
        let report = |running: &Running| ProcessReport {
            service: running.who.service.clone(),
            instance: running.who.instance,
            handle: running.instance.handle(),
            ready_after: running.ready_after.map(|after| after.as_secs_f64()),
            exit: running.stopped,
            log: log_path(&self.job.scratch, &running.who),
        };
        running.iter().map(report).collect()
    }

    /// The engines whose counters are read, with the base URL of each.
    pub fn engines(&self) -> Vec<(Who, String)> {
        let engine = |node: &super::graph::Node| {
            self.service(node.service).engine?;
            Some((node.who.clone(), self.bindings.url(&node.who, ENDPOINT)?))
        };
        self.graph.nodes.iter().filter_map(engine).collect()
    }

    /// Starts one service instance and waits until it is ready; its index.
    async fn start_service(&self, node: usize) -> Result<usize, Failure> {
        let who = &self.graph.nodes[node].who;
        let service = self.service(self.graph.nodes[node].service);
        let since = Instant::now();
        let instance = self.start(service, who, Some(node)).await?;
        let base = match &service.probe {
            Probe::Http { endpoint, .. } => self.bindings.url(who, endpoint),
            Probe::AliveAfter { .. } | Probe::Exit {} => None,
        };
        let limit = self.job.limits.ready_timeout.get(&service.name).copied();
        let limit = limit.unwrap_or(self.host.timing.ready_timeout);
        tokio::select! {
            biased;
            exit = instance.exited() => match service.probe {
                Probe::Exit {} if exit.success() => {}
                _ => return Err(self.death(who, exit, " before it was ready")),
            },
            () = readiness::ready(&service.probe, base.as_deref(), self.http, self.host.timing.poll) => {}
            () = sleep(limit) => {
                let message = format!("{who} was not ready within {}", in_words(limit));
                return Err(self.failure(FailureKind::Timeout, who, message));
            }
        }
        let after = since.elapsed();
        if let Some(running) = self.lock().iter_mut().find(|running| running.who == *who) {
            running.ready_after = Some(after);
        }
        (self.tell)(What::Ready { who: who.clone(), after });
        Ok(node)
    }

    /// Renders and starts an instance, and remembers it.
    async fn start(&self, service: &Service, who: &Who, node: Option<usize>) -> Result<Arc<dyn Instance>, Failure> {
        (self.tell)(What::Starting(who.clone()));
        let launch = prepare(self.job, self.host, self.bindings, self.secrets, service, who)
            .map_err(|error| launch_failure(&error, Some(&who.service)))?;
        let started = self.allocation.start(launch).await;
        let instance = started.map_err(|StartError { kind, message }| self.failure(kind, who, message))?;
        let running =
            Running { who: who.clone(), node, instance: Arc::clone(&instance), ready_after: None, stopped: None };
        self.lock().push(running);
        (self.tell)(What::Started { who: who.clone(), handle: instance.handle() });
        Ok(instance)
    }

    /// Resolves when a ready service ends that should not; never if none does.
    async fn first_death(&self) -> Failure {
        let mut ends: FuturesUnordered<_> = self
            .lock()
            .iter()
            .filter(|running| running.ready_after.is_some())
            .filter_map(|running| Some((running, self.service(self.graph.nodes[running.node?].service))))
            .filter(|(_, service)| !matches!(service.probe, Probe::Exit {}))
            .map(|(running, _)| (running.who.clone(), Arc::clone(&running.instance)))
            .map(|(who, instance)| async move { (who, instance.exited().await) })
            .collect();
        match ends.next().await {
            Some((who, exit)) => self.death(&who, exit, ""),
            None => std::future::pending().await,
        }
    }

    /// The failure of a service that ended.
    fn death(&self, who: &Who, exit: Exit, when: &str) -> Failure {
        let reason = log_tail(&log_path(&self.job.scratch, who), REASON);
        if !when.is_empty() && reason.iter().any(|line| tells_of_a_taken_port(line)) {
            return self.failure(FailureKind::Infrastructure, who, format!("{who} {exit}: its port was taken"));
        }
        let kind = if exit == Exit::Lost { FailureKind::Infrastructure } else { FailureKind::Service };
        self.failure(kind, who, format!("{who} {exit}{when}"))
    }

    fn failure(&self, kind: FailureKind, who: &Who, message: String) -> Failure {
        let log = log_path(&self.job.scratch, who);
        let tail = log_tail(&log, TAIL).iter().map(|line| mask(line, self.secrets)).collect();
        let log = log.exists().then_some(log);
        Failure { kind, service: Some(who.service.clone()), message: mask(&message, self.secrets), log, tail }
    }

    fn service(&self, index: usize) -> &Service {
        &self.job.spec.deployment.services[index]
    }

    fn rank(&self, running: &Running) -> Option<usize> {
        running.node.map(|node| self.graph.rank(node))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The failure of a job that cannot be prepared.
pub fn launch_failure(error: &LaunchError, service: Option<&str>) -> Failure {
    let kind = match error {
        LaunchError::Unbound(_) => FailureKind::Host,
        LaunchError::Nul { .. } => FailureKind::Spec,
        LaunchError::Io { .. } => FailureKind::Infrastructure,
    };
    Failure::new(kind, service, error.to_string())
}

/// Whether a line says that an address is in use, in the words of libc, Rust, asyncio, Go or zmq.
fn tells_of_a_taken_port(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["address already in use", "address in use", "addrinuse", "errno 98"].iter().any(|words| line.contains(words))
}

/// `90 s`, `0.25 s`.
fn in_words(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
