//! What is recorded, what would run and why, what is running, what is blocked: a value. Printing it is the dry run.
//!
//! Pure: it sees specs and, through [`StoreView`], what the store knows. Reasons compare an arm's spec with the nearest
//! spec that was recorded for it: the one with the fewest differences, the latest of equals.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compose::{Blocked, Composed, Job};
use crate::ids::{ArmId, JobHash};
use crate::spec::diff::{Change, changes};
use crate::store::{JobState, StoreError, StoreView};

/// The plan of a selection.
#[derive(Debug)]
pub struct Plan {
    /// One for each selected arm, in matrix order.
    pub arms: Vec<Planned>,
}

/// One arm of a plan.
#[derive(Debug)]
pub struct Planned {
    /// The arm.
    pub id: ArmId,
    /// Its job; absent when no spec could be composed.
    pub job: Option<JobHash>,
    /// What the store and the policy make of it.
    pub state: State,
    /// The spec and its limits, for those that have one.
    pub spec: Option<Arc<Job>>,
    /// Seconds that a run would take.
    pub wall_s: u64,
    /// GPUs that a run would hold.
    pub gpus: u64,
}

/// Where an arm stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Enough valid records exist.
    Recorded {
        /// How many.
        n: usize,
    },
    /// It would run.
    Run(Vec<Reason>),
    /// Somebody runs it.
    Running {
        /// Who.
        owner: String,
    },
    /// It cannot run.
    Blocked(Vec<Blocked>),
}

impl State {
    /// The word in messages and in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            State::Recorded { .. } => "recorded",
            State::Run(_) => "run",
            State::Running { .. } => "running",
            State::Blocked(_) => "blocked",
        }
    }
}

/// Why an arm would run. Records keep these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reason {
    /// Nothing was ever recorded for it.
    New,
    /// An input differs from the nearest recorded spec.
    Changed {
        /// What.
        #[serde(flatten)]
        change: Change,
        /// The recorded job that it is compared with.
        since: JobHash,
    },
    /// The last attempt did not end in a valid record.
    LastAttempt {
        /// How it ended.
        outcome: String,
    },
    /// Fewer valid records than the policy wants.
    Few {
        /// How many there are.
        have: usize,
        /// How many it takes.
        want: usize,
    },
    /// Asked for on the command line.
    Rerun,
}

/// Counts by state, and what is to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Arms with enough valid records.
    pub recorded: usize,
    /// Arms that would run.
    pub run: usize,
    /// Arms that somebody runs.
    pub running: usize,
    /// Arms that cannot run.
    pub blocked: usize,
    /// Jobs to run: arms with equal specs share one.
    pub jobs: usize,
    /// GPU-hours of these jobs.
    pub gpu_hours: f64,
    /// Wall time of these jobs one after another, divided by the jobs at a time, seconds.
    pub wall_seconds: u64,
}

/// What a plan depends on beside specs and store.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Valid records that make a hit.
    pub records: usize,
    /// Whether recorded arms run again.
    pub rerun: bool,
    /// Whether unlocked entries block.
    pub real: bool,
    /// Seconds from start to the first measured request.
    pub start_up_s: u64,
    /// Seconds of load, where the profile overrides the workload's.
    pub load_s: Option<u64>,
    /// Whether jobs hold the GPUs that their specs name.
    pub gpus: bool,
}

/// Two arms of one id with different specs.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// An id must name one spec.
    #[error("{id} stands twice in the matrix with different specs")]
    Ambiguous {
        /// The id.
        id: ArmId,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Plans composed arms.
///
/// # Errors
/// An id with two specs; a store that cannot be read.
pub fn plan(arms: Vec<(ArmId, Composed)>, store: &dyn StoreView, policy: &Policy) -> Result<Plan, PlanError> {
    let mut seen: HashMap<ArmId, JobHash> = HashMap::new();
    let mut planned = Vec::with_capacity(arms.len());
    for (id, composed) in arms {
        let job = match composed {
            Composed::Blocked(blocked) => {
                planned.push(Planned {
                    id,
                    job: None,
                    state: State::Blocked(vec![blocked]),
                    spec: None,
                    wall_s: 0,
                    gpus: 0,
                });
                continue;
            }
            Composed::Job(job) => job,
        };
        let canonical = job.spec.canonical();
        let hash = JobHash(crate::ids::Digest::of(&canonical));
        if seen.insert(id.clone(), hash).is_some_and(|other| other != hash) {
            return Err(PlanError::Ambiguous { id });
        }
        let state = state(&id, &hash, &job, &canonical, store, policy)?;
        let load_s = policy.load_s.or(job.spec.measurement.workload.duration_s).unwrap_or_default();
        let gpus = if policy.gpus { job.spec.gpus() } else { 0 };
        planned.push(Planned {
            id,
            job: Some(hash),
            state,
            wall_s: policy.start_up_s + load_s,
            gpus,
            spec: Some(Arc::from(job)),
        });
    }
    Ok(Plan { arms: planned })
}

fn state(
    id: &ArmId,
    hash: &JobHash,
    job: &Job,
    canonical: &[u8],
    store: &dyn StoreView,
    policy: &Policy,
) -> Result<State, StoreError> {
    let known = store.job(hash)?;
    let n = known.records().count();
    if known.is_hit(policy.records) && !policy.rerun {
        return Ok(State::Recorded { n });
    }
    if let Some(claim) = known.running() {
        return Ok(State::Running { owner: claim.to_string() });
    }
    if policy.real {
        let blocked = |name: &String| Blocked { why: format!("unlocked: {name}"), unblock: "ixbuild lock".to_owned() };
        let unlocked: Vec<Blocked> = job.spec.unlocked().iter().map(blocked).collect();
        if !unlocked.is_empty() {
            return Ok(State::Blocked(unlocked));
        }
    }
    reasons(id, hash, canonical, &known, store, policy).map(State::Run)
}

fn reasons(
    id: &ArmId,
    hash: &JobHash,
    canonical: &[u8],
    known: &JobState,
    store: &dyn StoreView,
    policy: &Policy,
) -> Result<Vec<Reason>, StoreError> {
    let mut reasons = Vec::new();
    let n = known.records().count();
    if n >= policy.records {
        return Ok(vec![Reason::Rerun]);
    }
    if n > 0 {
        reasons.push(Reason::Few { have: n, want: policy.records });
    } else {
        let new: Value = serde_json::from_slice(canonical).unwrap_or_default();
        reasons.extend(match nearest(id, hash, &new, store)? {
            None => vec![Reason::New],
            Some((since, changes)) => changes.into_iter().map(|change| Reason::Changed { change, since }).collect(),
        });
    }
    if let Some(last) = known.last_failed() {
        reasons.retain(|reason| *reason != Reason::New);
        reasons.push(Reason::LastAttempt { outcome: last.outcome.word().to_owned() });
    }
    Ok(reasons)
}

/// The recorded spec of an arm that differs least from the new one, and how.
fn nearest(
    id: &ArmId,
    hash: &JobHash,
    new: &Value,
    store: &dyn StoreView,
) -> Result<Option<(JobHash, Vec<Change>)>, StoreError> {
    let mut best: Option<(JobHash, Vec<Change>)> = None;
    for earlier in store.arm_jobs(id)? {
        if earlier.job == *hash {
            continue;
        }
        let Some(old) = store.spec(&earlier.job)? else { continue };
        let old: Value = serde_json::from_slice(&old).unwrap_or_default();
        let changes = changes(&old, new);
        if best.as_ref().is_none_or(|(_, known)| changes.len() <= known.len()) {
            best = Some((earlier.job, changes));
        }
    }
    Ok(best)
}

impl Plan {
    /// Counts by state, and what is to come with `jobs` at a time.
    pub fn summary(&self, at_a_time: usize) -> Summary {
        let mut summary = Summary::default();
        let mut jobs: BTreeMap<JobHash, &Planned> = BTreeMap::new();
        for arm in &self.arms {
            match &arm.state {
                State::Recorded { .. } => summary.recorded += 1,
                State::Running { .. } => summary.running += 1,
                State::Blocked(_) => summary.blocked += 1,
                State::Run(_) => {
                    summary.run += 1;
                    jobs.extend(arm.job.map(|job| (job, arm)));
                }
            }
        }
        summary.jobs = jobs.len();
        summary.gpu_hours = jobs.values().map(|arm| arm.gpus as f64 * arm.wall_s as f64 / 3600.0).sum();
        let seconds: u64 = jobs.values().map(|arm| arm.wall_s).sum();
        summary.wall_seconds = seconds.div_ceil(at_a_time.max(1) as u64);
        summary
    }
}
