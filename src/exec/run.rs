//! One attempt at one job, from its spec to its outcome: the story of which `stage` plays the middle part.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use jiff::Timestamp;

use super::bind::Bindings;
use super::cancel::Cancel;
use super::check::check;
use super::counters::Scraper;
use super::event::{EndKind, Event, EventSender, What};
use super::executor::{Allocation, Executor, StartError};
use super::graph::Graph;
use super::host::{Host, Job};
use super::launch::{LaunchError, make_directories, make_scratch};
use super::outcome::{End, Failure, FailureKind, Outcome, Phase, PhaseName, ProcessReport};
use super::readiness::http_client;
use super::stage::{Stage, Stopped, launch_failure};

/// Runs a job: services in order, the client, counter samples, teardown. Always comes to an outcome, and leaves no process
/// behind whatever that is.
///
/// Dropping the future ends the processes too, but does not wait for their end.
pub async fn run(job: &Job, executor: &dyn Executor, host: &Host, events: &EventSender, cancel: &Cancel) -> Outcome {
    let job = &absolute(job);
    let tell = |what: What| {
        // A run goes on when nobody listens.
        let _ = events.send(Event { at: Timestamp::now(), job: job.label.clone(), what });
    };
    let started = Timestamp::now();
    tell(What::Began { hash: job.hash, attempt: job.attempt });
    let mut course = Course::default();
    let end = match play(job, executor, host, &tell, cancel, &mut course).await {
        Ok(()) => End::Completed,
        Err(Stopped::Failed(failure)) => End::Failed(failure),
        Err(Stopped::Cancelled) => End::Cancelled,
    };
    tell(What::Ended {
        end: match &end {
            End::Completed => EndKind::Completed,
            End::Failed(failure) => EndKind::Failed(failure.kind),
            End::Cancelled => EndKind::Cancelled,
        },
    });
    Outcome {
        end,
        started,
        ended: Timestamp::now(),
        phases: course.phases,
        bindings: course.bindings,
        client_output: Bindings::client_output(&job.spec, &job.scratch),
        counters: counters_path(job),
        logs: job.scratch.join("logs"),
        processes: course.processes,
    }
}

/// What is known of an attempt so far.
#[derive(Default)]
struct Course {
    phases: Vec<Phase>,
    bindings: BTreeMap<String, String>,
    processes: Vec<ProcessReport>,
}

impl Course {
    /// Awaits a stretch of the attempt and notes when it was.
    async fn phase<T>(&mut self, name: PhaseName, stretch: impl Future<Output = T>) -> T {
        let (started, since) = (Timestamp::now(), Instant::now());
        let value = stretch.await;
        self.phases.push(Phase { name, started, seconds: since.elapsed().as_secs_f64() });
        value
    }
}

async fn play(
    job: &Job,
    executor: &dyn Executor,
    host: &Host,
    tell: &(dyn Fn(What) + Send + Sync),
    cancel: &Cancel,
    course: &mut Course,
) -> Result<(), Stopped> {
    check(&job.spec).map_err(|fault| of_spec(&fault))?;
    let graph = Graph::of(&job.spec.deployment.services).map_err(|fault| of_spec(&fault))?;
    make_scratch(&job.scratch).map_err(|error| launch_failure(&error, None))?;
    let allocate = async {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            allocation = executor.allocate(job, host) => allocation.map_err(|error| of_executor(error).into()),
        }
    };
    let allocation = course.phase(PhaseName::Allocate, allocate).await?;
    let end = perform(job, host, &graph, allocation.as_ref(), tell, cancel, course).await;
    allocation.release().await;
    end
}

/// Everything between allocation and release.
async fn perform(
    job: &Job,
    host: &Host,
    graph: &Graph,
    allocation: &dyn Allocation,
    tell: &(dyn Fn(What) + Send + Sync),
    cancel: &Cancel,
    course: &mut Course,
) -> Result<(), Stopped> {
    let bindings = Bindings::assign(&job.spec, host, &job.scratch, graph, allocation).map_err(of_executor)?;
    course.bindings = bindings.record().map_err(|error| launch_failure(&LaunchError::Unbound(error), None))?;
    make_directories(&bindings).map_err(|error| launch_failure(&error, None))?;
    let http = http_client().map_err(|error| Failure::new(FailureKind::Host, None, error.to_string()))?;
    let secrets = host.secret_values();
    let stage = Stage {
        job,
        host,
        graph,
        bindings: &bindings,
        allocation,
        secrets: &secrets,
        http: &http,
        tell,
        running: Mutex::default(),
    };
    tell(What::Allocated);

    let end = async {
        course.phase(PhaseName::Start, stage.bring_up(cancel)).await?;
        let path = counters_path(job);
        let scraper = Scraper::create(stage.engines(), http.clone(), &path)
            .map_err(|source| launch_failure(&LaunchError::Io { path, source }, None))?;
        course.phase(PhaseName::Client, stage.run_client(&scraper, cancel)).await
    };
    let end = end.await;
    if let (true, Err(Stopped::Failed(failure))) = (job.keep_on_failure, &end) {
        tell(What::Holding { failure: failure.clone(), endpoints: bindings.endpoints() });
        cancel.cancelled().await;
    }
    course.processes = course.phase(PhaseName::Stop, stage.take_down()).await;
    end
}

fn counters_path(job: &Job) -> PathBuf {
    job.scratch.join("counters.jsonl")
}

/// The job with a scratch path that does not depend on a working directory.
fn absolute(job: &Job) -> Job {
    let scratch = std::path::absolute(&job.scratch).unwrap_or_else(|_| job.scratch.clone());
    Job { scratch, ..job.clone() }
}

fn of_spec(fault: &super::check::Fault) -> Failure {
    Failure::new(FailureKind::Spec, None, fault.to_string())
}

fn of_executor(error: StartError) -> Failure {
    Failure::new(error.kind, None, error.message)
}
