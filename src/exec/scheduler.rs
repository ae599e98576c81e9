//! Many jobs, some at a time: order, parallelism, retries, stopping early. What an attempt does (claim, run, store) is the
//! caller's closure; this module knows no job, store or claim.

use std::num::NonZeroUsize;

use futures_util::StreamExt;
use futures_util::stream;

use super::cancel::Cancel;
use super::outcome::{End, FailureKind, Outcome};

/// How to go about many jobs.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// At most so many at a time.
    pub parallelism: NonZeroUsize,
    /// After the first failure start no further job. Those that run are finished: they have cost time already.
    pub fail_fast: bool,
    /// Further attempts at a job whose failure may pass.
    pub retries: u32,
}

impl Policy {
    /// Whether an attempt, counted from 1, is followed by another one.
    pub fn tries_again(&self, verdict: Verdict, attempt: u32, cancel: &Cancel) -> bool {
        verdict == Verdict::MayPass && attempt <= self.retries && !cancel.is_cancelled()
    }
}

/// What an attempt means for what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it should.
    Done,
    /// It did not, and would not another time.
    Failed,
    /// It did not, for a reason that may pass.
    MayPass,
    /// It was told to stop.
    Cancelled,
}

impl Outcome {
    /// What this outcome means for what comes next.
    pub fn verdict(&self) -> Verdict {
        match &self.end {
            End::Completed => Verdict::Done,
            End::Cancelled => Verdict::Cancelled,
            End::Failed(failure) if failure.kind == FailureKind::Infrastructure => Verdict::MayPass,
            End::Failed(_) => Verdict::Failed,
        }
    }
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish<R> {
    /// It was tried.
    Ran {
        /// How often.
        attempts: u32,
        /// The last attempt's verdict.
        verdict: Verdict,
        /// The last attempt's value.
        value: R,
    },
    /// It was not begun: an earlier one failed under `fail_fast`, or the run was cancelled.
    NotStarted,
}

/// Tries every job, in order, `parallelism` at a time; what became of each, in order.
///
/// `attempt` gets the job and the number of the attempt, from 1. Everything happens within the returned future; an attempt
/// that computes for long should do so elsewhere (`spawn_blocking`), or the others wait.
pub async fn run_many<J, R, F>(jobs: &[J], policy: Policy, cancel: &Cancel, attempt: F) -> Vec<Finish<R>>
where
    F: AsyncFn(&J, u32) -> (Verdict, R),
{
    let failed = std::cell::Cell::new(false);
    let one = async |job: &J| {
        if cancel.is_cancelled() || (policy.fail_fast && failed.get()) {
            return Finish::NotStarted;
        }
        let mut attempts = 1;
        loop {
            let (verdict, value) = attempt(job, attempts).await;
            if policy.tries_again(verdict, attempts, cancel) {
                attempts += 1;
                continue;
            }
            if verdict != Verdict::Done {
                failed.set(true);
            }
            return Finish::Ran { attempts, verdict, value };
        }
    };
    stream::iter(jobs).map(one).buffered(policy.parallelism.get()).collect().await
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    use super::*;
    use crate::exec::cancel::cancellation;

    fn policy(parallelism: usize, fail_fast: bool, retries: u32) -> Policy {
        Policy { parallelism: NonZeroUsize::new(parallelism).unwrap(), fail_fast, retries }
    }

    fn ran<R>(attempts: u32, verdict: Verdict, value: R) -> Finish<R> {
        Finish::Ran { attempts, verdict, value }
    }

    #[tokio::test]
    async fn as_many_as_allowed_run_at_once_and_results_keep_their_order() {
        let (_canceller, cancel) = cancellation();
        let (now, most) = (Cell::new(0), Cell::new(0));
        let jobs: Vec<u64> = (0..9).collect();
        let results = run_many(&jobs, policy(3, false, 0), &cancel, async |job, _| {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            tokio::time::sleep(Duration::from_millis(if job % 2 == 0 { 4 } else { 1 })).await;
            now.set(now.get() - 1);
            (Verdict::Done, *job)
        })
        .await;
        assert_eq!(most.get(), 3);
        assert_eq!(results, jobs.iter().map(|job| ran(1, Verdict::Done, *job)).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn only_what_may_pass_is_tried_again() {
        let (_canceller, cancel) = cancellation();
        let tries = RefCell::new(Vec::new());
        let results = run_many(&["passes", "never", "broken"], policy(1, false, 2), &cancel, async |job, attempt| {
            tries.borrow_mut().push(*job);
            match (*job, attempt) {
                ("passes", 2) => (Verdict::Done, attempt),
                ("broken", _) => (Verdict::Failed, attempt),
                _ => (Verdict::MayPass, attempt),
            }
        })
        .await;
        assert_eq!(*tries.borrow(), ["passes", "passes", "never", "never", "never", "broken"]);
        assert_eq!(results, [ran(2, Verdict::Done, 2), ran(3, Verdict::MayPass, 3), ran(1, Verdict::Failed, 1)]);
    }

    #[tokio::test]
    async fn fail_fast_starts_nothing_more_and_without_it_all_run() {
        let (_canceller, cancel) = cancellation();
        let attempt = async |job: &u32, _| (if *job == 1 { Verdict::Failed } else { Verdict::Done }, *job);
        let results = run_many(&[0, 1, 2], policy(1, true, 0), &cancel, attempt).await;
        assert_eq!(results, [ran(1, Verdict::Done, 0), ran(1, Verdict::Failed, 1), Finish::NotStarted]);
        let results = run_many(&[0, 1, 2], policy(1, false, 0), &cancel, attempt).await;
        assert_eq!(results[2], ran(1, Verdict::Done, 2));
    }

    #[tokio::test]
    async fn a_cancelled_run_begins_and_repeats_nothing() {
        let (canceller, cancel) = cancellation();
        let results = run_many(&[0, 1], policy(1, false, 9), &cancel, async |job, _| {
            canceller.cancel();
            (Verdict::MayPass, *job)
        })
        .await;
        assert_eq!(results, [ran(1, Verdict::MayPass, 0), Finish::NotStarted]);
    }
}
