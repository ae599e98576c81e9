//! What the planner sees of a store: jobs, arms, specs, attempts. A trait, so that a plan is pure and tests need no disk.
//!
//! One test suite holds for every view (`memory`'s tests run it on both).

use super::attempts::{ArmJob, Attempt, AttemptRef, Exclusion, OutcomeKind};
use super::claim::HeldClaim;
use super::error::StoreError;
use super::oci::REASONS_TITLE;
use crate::ids::{ArmId, JobHash};

/// What is known of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobState {
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptRef>,
    /// Who works on it.
    pub claim: Option<HeldClaim>,
}

impl JobState {
    /// The attempts that count: valid, not excluded, not collected; oldest first.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &AttemptRef> {
        self.attempts.iter().filter(|attempt| attempt.counts())
    }

    /// Whether it has at least `k` records: nothing is to be run. `k` is at least 1.
    pub fn is_hit(&self, k: usize) -> bool {
        self.records().count() >= k.max(1)
    }

    /// The newest attempt, whatever its end.
    pub fn last(&self) -> Option<&AttemptRef> {
        self.attempts.last()
    }

    /// The newest attempt if it did not become a record that counts.
    pub fn last_failed(&self) -> Option<&AttemptRef> {
        self.last().filter(|attempt| attempt.standing() != OutcomeKind::Valid)
    }

    /// The claim that keeps us from running the job.
    pub fn running(&self) -> Option<&HeldClaim> {
        self.claim.as_ref().filter(|claim| claim.blocks())
    }
}

/// A store, for readers.
pub trait StoreView {
    /// The state of a job; empty if it was never tried.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn job(&self, job: &JobHash) -> Result<JobState, StoreError>;

    /// The states of many jobs, in order.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn jobs(&self, jobs: &[JobHash]) -> Result<Vec<JobState>, StoreError> {
        jobs.iter().map(|job| self.job(job)).collect()
    }

    /// The jobs with a valid attempt that were recorded for an arm, or served for it; oldest first.
    ///
    /// # Errors
    /// A store that cannot be read, or is damaged.
    fn arm_jobs(&self, arm: &ArmId) -> Result<Vec<ArmJob>, StoreError>;

    /// The canonical bytes of a job's spec, checked; `None` if the store has none.
    ///
    /// # Errors
    /// A store that cannot be read, or is damaged.
    fn spec(&self, job: &JobHash) -> Result<Option<Vec<u8>>, StoreError>;

    /// The only job, tried or claimed, whose hash starts with `job:` or `sha256:` and these digits.
    ///
    /// # Errors
    /// None such, several such, not a prefix; a store that cannot be read.
    fn resolve(&self, prefix: &str) -> Result<JobHash, StoreError>;

    /// All that an attempt's manifest says.
    ///
    /// # Errors
    /// An attempt that was collected or is damaged; a store that cannot be read.
    fn attempt(&self, at: &AttemptRef) -> Result<Attempt, StoreError>;

    /// The content of an attempt's layer, checked: the derived one of that title, else its own; `None` if it has neither.
    ///
    /// # Errors
    /// As [`StoreView::attempt`].
    fn layer(&self, at: &AttemptRef, title: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Why an attempt is excluded, if it is: the oldest reason on file.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn exclusion(&self, at: &AttemptRef) -> Result<Option<Exclusion>, StoreError>;

    /// Why the plan ran an attempt.
    ///
    /// # Errors
    /// As [`StoreView::attempt`].
    fn reasons(&self, at: &AttemptRef) -> Result<serde_json::Value, StoreError> {
        let bytes = self.layer(at, REASONS_TITLE)?.unwrap_or_else(|| b"null".to_vec());
        serde_json::from_slice(&bytes).map_err(|error| StoreError::Oci {
            what: format!("{REASONS_TITLE} of {}", at.tag()),
            why: error.to_string(),
        })
    }
}

/// The digits of a prefix, without `job:` or `sha256:`.
pub(crate) fn prefix_digits(prefix: &str) -> Result<&str, StoreError> {
    let digits = prefix.strip_prefix("job:").or_else(|| prefix.strip_prefix("sha256:"));
    match digits {
        Some(digits)
            if (1..=64).contains(&digits.len())
                && digits.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c)) =>
        {
            Ok(digits)
        }
        _ => Err(StoreError::NotAPrefix(prefix.to_owned())),
    }
}

/// The one of `jobs`, or the error that says why not.
pub(crate) fn only_one(mut jobs: Vec<JobHash>, prefix: &str, store: &std::path::Path) -> Result<JobHash, StoreError> {
    const SHOWN: usize = 5;
    jobs.sort_unstable();
    jobs.dedup();
    match jobs.as_slice() {
        [] => Err(StoreError::NoSuchJob { store: store.to_owned(), prefix: prefix.to_owned() }),
        [job] => Ok(*job),
        _ => {
            jobs.truncate(SHOWN);
            Err(StoreError::Ambiguous { prefix: prefix.to_owned(), candidates: jobs })
        }
    }
}
