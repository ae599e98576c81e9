//! Runs planned jobs and records what they come to: claim, execute, derive, store.
//!
//! A job that another process has claimed is waited for and then served. Every try is recorded, whatever its end; only a
//! valid one is a hit. This module knows the store and the executor, no YAML, and prints nothing: it tells its caller
//! through [`Notice`]s.

mod layers;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;

use crate::compose::Job;
use crate::exec::machine::Machine;
use crate::exec::provenance::{Git, Provenance};
use crate::exec::scheduler::{self, Verdict, run_many};
use crate::exec::{self, Cancel, End, Event, Executor, Failure, FailureKind, Host, Limits, Outcome};
use crate::ids::{ArmId, JobHash};
use crate::plan::Reason;
use crate::result::Derived;
use crate::spec::JobSpec;
use crate::store::{
    self, AttemptInput, AttemptRef, Claim, Claimed, Layer, Outcome as Recorded, Source, Store, StoreError,
};

use layers::{RawLayers, mask_logs};

/// Titles of an attempt's layers.
pub mod title {
    /// Metrics, derived.
    pub const RESULT: &str = "result.json";
    /// Gates, derived.
    pub const GATES: &str = "gates.json";
    /// Per-request rows as the client wrote them.
    pub const REQUESTS: &str = "profile_export.jsonl";
    /// The client's aggregate.
    pub const AGGREGATE: &str = "profile_export_aiperf.json";
    /// Counter samples.
    pub const COUNTERS: &str = "counters.jsonl";
    /// An eval harness's report.
    pub const REPORT: &str = "report.json";
    /// Where and how it ran.
    pub const PROVENANCE: &str = "provenance.json";
    /// What every process printed.
    pub const LOGS: &str = "logs.tar.zst";
}

/// How often a job that another process runs is looked at.
const WAIT: Duration = Duration::from_millis(300);

/// A job to run.
#[derive(Debug)]
pub struct Task {
    /// The arms that share it, at least one; the first names it in messages.
    pub arms: Vec<ArmId>,
    /// Its name.
    pub hash: JobHash,
    /// Its spec and limits.
    pub job: Box<Job>,
    /// Why it runs.
    pub reasons: Vec<Reason>,
}

/// What tasks run with.
pub struct Context<'c> {
    /// Where results go.
    pub store: &'c Store,
    /// What starts services.
    pub executor: &'c dyn Executor,
    /// What the host provides.
    pub host: &'c Host,
    /// Where attempts keep their files while they run.
    pub scratch: PathBuf,
    /// The state of the project's repository.
    pub git: Option<Git>,
    /// Valid records that make a hit.
    pub records: usize,
    /// Whether recorded jobs run again.
    pub rerun: bool,
    /// Jobs at a time.
    pub jobs: NonZeroUsize,
    /// Start nothing more after a failure.
    pub fail_fast: bool,
    /// Further tries after failures of the infrastructure.
    pub retries: u32,
}

/// What happens to a task, as it happens.
#[derive(Debug)]
pub enum Notice {
    /// Another process runs it; we wait.
    Waiting {
        /// Index of the task.
        task: usize,
        /// Who.
        owner: String,
    },
    /// An event of its execution.
    Event {
        /// Index of the task.
        task: usize,
        /// What.
        event: Event,
    },
    /// It is over.
    Finished {
        /// Index of the task.
        task: usize,
        /// How.
        finish: Finish,
    },
}

/// What became of a task.
#[derive(Debug, Clone)]
pub enum Finish {
    /// A new record.
    Recorded {
        /// Its name.
        attempt: AttemptRef,
        /// Its metrics and gates.
        derived: Box<Derived>,
    },
    /// Another process recorded it meanwhile.
    Served {
        /// Its newest record.
        attempt: AttemptRef,
    },
    /// It ran and failed a gate.
    Invalid {
        /// Its name.
        attempt: AttemptRef,
        /// Its metrics and gates.
        derived: Box<Derived>,
        /// Its files.
        scratch: PathBuf,
    },
    /// It did not run to its end.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// It was stopped.
    Cancelled,
    /// It was not begun.
    NotStarted,
    /// The store could not take it.
    Store {
        /// Why.
        error: String,
        /// What to do.
        fix: Option<String>,
        /// Where its files are.
        scratch: PathBuf,
    },
}

impl Finish {
    /// Whether there is a valid record now.
    pub fn is_valid(&self) -> bool {
        matches!(self, Finish::Recorded { .. } | Finish::Served { .. })
    }
}

/// Runs tasks; what became of each, in order.
pub async fn sweep(
    tasks: &[Task],
    context: &Context<'_>,
    notices: &UnboundedSender<Notice>,
    cancel: &Cancel,
) -> Vec<Finish> {
    let indexed: Vec<(usize, &Task)> = tasks.iter().enumerate().collect();
    let machine = Machine::this();
    let policy =
        scheduler::Policy { parallelism: context.jobs, fail_fast: context.fail_fast, retries: context.retries };
    let finishes = run_many(&indexed, policy, cancel, async |(index, task), attempt| {
        let one = One { context, task, index: *index, notices, machine: &machine };
        let scratch = context.scratch.join(format!("{}-{}", &task.hash.hex()[..12], unique(attempt)));
        let (verdict, finish) = one.run(attempt, scratch, cancel).await;
        // Nobody may be listening any more.
        let _ = notices.send(Notice::Finished { task: *index, finish: finish.clone() });
        (verdict, finish)
    })
    .await;
    finishes
        .into_iter()
        .map(|finish| match finish {
            scheduler::Finish::Ran { value, .. } => value,
            scheduler::Finish::NotStarted => Finish::NotStarted,
        })
        .collect()
}

/// Tells attempts apart that share a scratch folder: process, time, number.
fn unique(attempt: u32) -> String {
    format!("{}-{}-{attempt}", std::process::id(), Timestamp::now().as_millisecond())
}

struct One<'o> {
    context: &'o Context<'o>,
    task: &'o Task,
    index: usize,
    notices: &'o UnboundedSender<Notice>,
    machine: &'o Machine,
}

impl One<'_> {
    async fn run(&self, attempt: u32, scratch: PathBuf, cancel: &Cancel) -> (Verdict, Finish) {
        let kept = scratch.clone();
        match self.try_run(attempt, scratch, cancel).await {
            Ok(done) => done,
            Err(error) => {
                let finish = Finish::Store { error: error.to_string(), fix: error.fix(), scratch: kept };
                (Verdict::Failed, finish)
            }
        }
    }

    async fn try_run(&self, number: u32, scratch: PathBuf, cancel: &Cancel) -> Result<(Verdict, Finish), StoreError> {
        let Some(claimed) = self.claim(cancel).await? else { return Ok((Verdict::Cancelled, Finish::Cancelled)) };
        let served = claimed.state.records().next_back().cloned();
        if let (Some(attempt), false) = (served, self.context.rerun)
            && claimed.state.is_hit(self.context.records)
        {
            for arm in &self.task.arms {
                self.context.store.serve_for(arm, &self.task.hash, Timestamp::now())?;
            }
            claimed.guard.release()?;
            return Ok((Verdict::Done, Finish::Served { attempt }));
        }
        let spec = Arc::new(self.task.job.spec.clone());
        let timeouts = self.task.job.ready_timeout_s.iter();
        let job = exec::Job {
            label: self.task.arms.first().map(ToString::to_string).unwrap_or_default(),
            hash: self.task.hash,
            spec: Arc::clone(&spec),
            scratch: scratch.clone(),
            attempt: number,
            limits: Limits {
                ready_timeout: timeouts.map(|(name, s)| (name.clone(), Duration::from_secs(*s))).collect(),
                client_timeout: None,
            },
            keep_on_failure: false,
        };
        let (sender, mut receiver) = exec::event::channel();
        let notices = self.notices.clone();
        let task = self.index;
        let forward = tokio::spawn(async move {
            while let Some(event) = receiver.recv().await {
                let _ = notices.send(Notice::Event { task, event });
            }
        });
        let outcome = exec::run(&job, self.context.executor, self.context.host, &sender, cancel).await;
        drop(sender);
        let _ = forward.await;
        let (verdict, finish) = self.record(&job, spec, &outcome, &scratch).await?;
        claimed.guard.release()?;
        Ok((verdict, finish))
    }

    /// The claim on the job; none when told to stop while waiting for another process.
    async fn claim(&self, cancel: &Cancel) -> Result<Option<Claimed>, StoreError> {
        let mut told = false;
        loop {
            match self.context.store.claim(&self.task.hash, Vec::new())? {
                Claim::Claimed(claimed) => return Ok(Some(*claimed)),
                Claim::Held(held) => {
                    if !told {
                        let _ = self.notices.send(Notice::Waiting { task: self.index, owner: held.to_string() });
                        told = true;
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(WAIT) => {}
                () = cancel.cancelled() => return Ok(None),
            }
        }
    }

    /// Derives and stores what an attempt came to. Files of successes are removed, the others are kept.
    async fn record(
        &self,
        job: &exec::Job,
        spec: Arc<JobSpec>,
        outcome: &Outcome,
        scratch: &std::path::Path,
    ) -> Result<(Verdict, Finish), StoreError> {
        let context = self.context;
        let provenance = Provenance::of(
            job,
            outcome,
            context.host,
            context.executor.name(),
            self.machine.clone(),
            context.git.clone(),
        );
        let store = context.store.clone();
        let (arms, hash) = (self.task.arms.clone(), self.task.hash);
        let reasons = serde_json::to_value(&self.task.reasons).unwrap_or_default();
        let outcome = outcome.clone();
        let folder = scratch.to_owned();
        let verdict = outcome.verdict();
        let secrets = context.host.secret_values();
        let stored = tokio::task::spawn_blocking(move || {
            let real = spec.deployment.substitutions.is_none();
            let raw = RawLayers::read(&spec, &outcome);
            let (end, derived) = match &outcome.end {
                End::Cancelled => (Recorded::Cancelled, None),
                End::Failed(failure) => (failed(failure), None),
                End::Completed => match raw.derive(&spec) {
                    Err(error) => {
                        let failure = Failure::new(
                            FailureKind::Client,
                            Some("client"),
                            format!("its output cannot be used: {error}"),
                        );
                        (failed(&failure), Some(Err(failure)))
                    }
                    Ok(derived) if derived.valid(real) => (Recorded::Valid, Some(Ok(derived))),
                    Ok(derived) => {
                        let gates = derived.gates.iter().filter(|gate| !gate.lets_through(real));
                        (
                            Recorded::Invalid { gates: gates.map(|gate| gate.name.to_string()).collect() },
                            Some(Ok(derived)),
                        )
                    }
                },
            };
            mask_logs(&outcome.logs, &secrets);
            let mut layers = raw.layers();
            if let Some(Ok(derived)) = &derived {
                let json = |value: Result<Vec<u8>, serde_json::Error>| Source::Bytes(value.unwrap_or_default());
                layers.push(Layer::new(store::RESULT_TYPE, title::RESULT, json(serde_json::to_vec(&derived.result))));
                layers.push(Layer::new(store::GATES_TYPE, title::GATES, json(serde_json::to_vec(&derived.gates))));
            }
            let provenance = serde_json::to_vec(&provenance).unwrap_or_default();
            layers.push(Layer::new(store::PROVENANCE_TYPE, title::PROVENANCE, Source::Bytes(provenance)));
            if outcome.logs.is_dir() {
                layers.push(Layer::new(store::LOGS_TYPE, title::LOGS, Source::Directory(outcome.logs.clone())));
            }
            let attempt = store.record(AttemptInput {
                job: hash,
                spec: &spec.canonical(),
                arms: &arms,
                started: outcome.started,
                ended: outcome.ended,
                outcome: end.clone(),
                rehearsal: !real,
                reasons,
                layers,
            })?;
            let finish = match (end, derived) {
                (Recorded::Valid, Some(Ok(derived))) => Finish::Recorded { attempt, derived: Box::new(derived) },
                (_, Some(Ok(derived))) => Finish::Invalid { attempt, derived: Box::new(derived), scratch: folder },
                (_, Some(Err(failure))) => Finish::Failed { failure },
                (Recorded::Cancelled, None) => Finish::Cancelled,
                (_, None) => Finish::Failed {
                    failure: outcome
                        .failure()
                        .cloned()
                        .unwrap_or_else(|| Failure::new(FailureKind::Client, None, "it ended without a result")),
                },
            };
            Ok::<Finish, StoreError>(finish)
        })
        .await;
        let finish = match stored {
            Ok(finish) => finish?,
            Err(panic) => Finish::Failed { failure: Failure::new(FailureKind::Client, None, panic.to_string()) },
        };
        if finish.is_valid() {
            // What it leaves is stored; a folder that cannot be removed costs disk, not a result.
            let _ = std::fs::remove_dir_all(scratch);
            return Ok((verdict, finish));
        }
        Ok((if verdict == Verdict::Done { Verdict::Failed } else { verdict }, finish))
    }
}

fn failed(failure: &Failure) -> Recorded {
    let kind = serde_json::to_value(failure.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    Recorded::Failed { kind: kind.unwrap_or_default(), message: failure.message.clone() }
}
