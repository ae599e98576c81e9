//! Runs planned jobs and records what they come to: claim, execute, derive, store.
//!
//! A job that another process has claimed is waited for and then served; what a dead owner left of one is ended first. Every
//! try is recorded, whatever its end; only a valid one is a hit. A store that cannot be written ends the sweep: what it could
//! not take would cost GPU-hours again. This module knows the store and the executor, no YAML, and prints nothing: it tells
//! its caller through [`Notice`]s.

mod hold;
mod raw;
mod record;

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;

use crate::compose::Job;
use crate::exec::machine::Machine;
use crate::exec::provenance::Git;
use crate::exec::scheduler::{self, Verdict, run_many};
use crate::exec::{self, Cancel, Event, Executor, Failure, Host, Left, Limits};
use crate::ids::{ArmId, JobHash};
use crate::plan::Reason;
use crate::result::Derived;
use crate::store::{AttemptRef, Claim, ClaimRecord, Claimed, Store, StoreError, Work};
use hold::Hold;

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
    /// After a failure, leave the job's services up until it is stopped.
    pub keep_on_failure: bool,
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
    /// Its owner was dead; what that had left is ended.
    TookOver {
        /// Index of the task.
        task: usize,
        /// Who.
        owner: String,
        /// What still ran, in words.
        ended: Vec<String>,
        /// The files of its attempt.
        scratch: Option<PathBuf>,
    },
    /// An event of its execution.
    Event {
        /// Index of the task.
        task: usize,
        /// What.
        event: Event,
    },
    /// A try ended for a reason that may pass; another one follows.
    Again {
        /// Index of the task.
        task: usize,
        /// How this one ended.
        finish: Finish,
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
    /// The sweep was stopped.
    Cancelled,
    /// It alone was stopped, by `ixbuild stop`.
    Stopped,
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
    let store_failed = Cell::new(false);
    let policy =
        scheduler::Policy { parallelism: context.jobs, fail_fast: context.fail_fast, retries: context.retries };
    let finishes = run_many(&indexed, policy, cancel, async |(index, task), attempt| {
        let one = One { context, task, index: *index, notices, machine: &machine };
        let scratch = context.scratch.join(format!("{}-{}", &task.hash.hex()[..12], unique(attempt)));
        let scratch = std::path::absolute(&scratch).unwrap_or(scratch);
        let (verdict, finish) = match store_failed.get() {
            true => (Verdict::Failed, Finish::NotStarted),
            false => one.run(attempt, scratch, cancel).await,
        };
        store_failed.set(store_failed.get() || matches!(finish, Finish::Store { .. }));
        let again = policy.tries_again(verdict, attempt, cancel);
        let (task, told) = (*index, finish.clone());
        // Nobody may be listening any more.
        let _ = notices.send(match again {
            true => Notice::Again { task, finish: told },
            false => Notice::Finished { task, finish: told },
        });
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
        let work = Work { arms: self.task.arms.clone(), scratch: Some(scratch.clone()), ..Work::default() };
        let Some(mut claimed) = self.claim(&work, cancel).await? else {
            return Ok((Verdict::Cancelled, Finish::Cancelled));
        };
        if let Some(left) = claimed.left.take() {
            if let Err(failure) = self.clear(left).await {
                // On file for whoever tries next.
                claimed.guard.leave();
                return Ok((Verdict::Failed, Finish::Failed { failure }));
            }
            claimed.guard.set_work(work.clone())?;
        }
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
            keep_on_failure: self.context.keep_on_failure,
        };
        let hold = Hold::begin(claimed.guard, work, cancel);
        let (sender, mut receiver) = exec::event::channel();
        let (notices, progress) = (self.notices.clone(), hold.progress());
        let task = self.index;
        let forward = tokio::spawn(async move {
            while let Some(event) = receiver.recv().await {
                progress.note(&event.what);
                let _ = notices.send(Notice::Event { task, event });
            }
        });
        let outcome = exec::run(&job, self.context.executor, self.context.host, &sender, hold.cancel()).await;
        drop(sender);
        let _ = forward.await;
        let recorded = self.record(&job, spec, &outcome, &scratch).await;
        // A claim that cannot be removed now is a dead owner's once we are done.
        let asked = hold.end().await.unwrap_or_default();
        let (verdict, finish) = recorded?;
        match finish {
            Finish::Cancelled if asked && !cancel.is_cancelled() => Ok((Verdict::Failed, Finish::Stopped)),
            finish => Ok((verdict, finish)),
        }
    }

    /// The claim on the job; none when told to stop while waiting for another process.
    async fn claim(&self, work: &Work, cancel: &Cancel) -> Result<Option<Claimed>, StoreError> {
        let mut told = false;
        loop {
            match self.context.store.claim_for(&self.task.hash, work.clone())? {
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

    /// Ends what a dead owner left of the job.
    async fn clear(&self, dead: ClaimRecord) -> Result<(), Failure> {
        let (context, owner) = (self.context, dead.owner.to_string());
        let scratch = dead.work.scratch.clone().filter(|scratch| scratch.is_dir());
        let ended = clear(context.executor, dead, context.host.timing.grace)
            .await
            .map_err(|error| Failure::new(error.kind, None, format!("{owner} died and left this: {error}")))?;
        let _ = self.notices.send(Notice::TookOver { task: self.index, owner, ended, scratch });
        Ok(())
    }
}

/// Ends what the dead owner of a claim left running on this machine; in words, what still ran.
///
/// # Errors
/// Something of it may still run.
pub async fn clear(
    executor: &dyn Executor,
    dead: ClaimRecord,
    grace: Duration,
) -> Result<Vec<String>, exec::StartError> {
    if !dead.owner.on_this_kernel() {
        // An earlier boot, and nothing outlives that.
        return Ok(Vec::new());
    }
    let handles = if dead.owner.shares_pids() { dead.work.handles } else { Vec::new() };
    executor.clear(&Left { handles, scratch: dead.work.scratch, grace }).await
}
