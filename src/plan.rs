//! What is recorded, what would run and why, what is running, what is blocked: a value. Printing it is the dry run.
//!
//! Pure: it sees specs and, through [`StoreView`], what the store knows. Reasons compare an arm's spec with the nearest
//! spec that was recorded for it: the one with the fewest differences, the latest of equals.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compose::{Blocked, Composed};
use crate::config::diagnostic::Diagnostics;
use crate::config::profile::Profile;
use crate::ids::{ArmId, JobHash};
use crate::spec::diff::{Change, changes};
use crate::store::{JobState, Outcome, OutcomeKind, StoreError, StoreView};

/// What composition made of an arm: all that planning needs of a spec, and all that a memo holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The arm.
    pub id: ArmId,
    /// Its job, or why it has none.
    pub made: Result<Made, Blocked>,
}

/// A composed job in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its name.
    pub job: JobHash,
    /// GPUs that a run holds.
    pub gpus: u64,
    /// Seconds of measured load that the workload declares.
    pub load_s: Option<u64>,
    /// What is not pinned yet; shared by the arms that lack the same.
    pub unlocked: Arc<[String]>,
}

impl Outline {
    /// The outline of a composed arm. `known` shares the lists of unlocked names between arms.
    pub fn of(id: ArmId, composed: &Composed, known: &mut Vec<Arc<[String]>>) -> Self {
        let made = match composed {
            Composed::Blocked(blocked) => Err(blocked.clone()),
            Composed::Job(job) => {
                let unlocked: Vec<String> = job.spec.unlocked().into_iter().collect();
                let shared = known.iter().find(|names| names[..] == unlocked[..]).cloned();
                let unlocked = shared.unwrap_or_else(|| {
                    let names: Arc<[String]> = unlocked.into();
                    known.push(Arc::clone(&names));
                    names
                });
                let load_s = job.spec.measurement.workload.duration_s;
                Ok(Made { job: job.spec.hash(), gpus: job.spec.gpus(), load_s, unlocked })
            }
        };
        Self { id, made }
    }
}

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
    /// A record of it was excluded.
    Excluded {
        /// The reason on file.
        why: String,
    },
    /// What was a record fails gates under newer formulas.
    Outdated {
        /// Their version.
        formulas: u32,
        /// The gates.
        gates: Vec<String>,
    },
    /// Asked for on the command line.
    Rerun,
    /// To see whether what is recorded reproduces.
    Reproduce {
        /// Which run, from 1.
        run: usize,
        /// Of how many.
        of: usize,
    },
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

impl Policy {
    /// The policy of a profile.
    pub fn of(profile: &Profile, rerun: bool) -> Self {
        Self {
            records: profile.records,
            rerun,
            real: !profile.rehearses(),
            start_up_s: profile.estimate.start_up_s,
            load_s: profile.estimate.load_s,
            gpus: !profile.rehearses(),
        }
    }
}

/// Why there is no plan.
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
    /// An arm cannot be composed.
    #[error(transparent)]
    Input(#[from] Diagnostics),
}

/// Plans outlined arms. `spec` gives the canonical bytes of the arm at an index: reasons compare them with what was
/// recorded, so it is asked only for arms that would run and that were recorded before.
///
/// # Errors
/// An id with two specs; a store that cannot be read; what `spec` fails with.
pub fn plan(
    outlines: Vec<Outline>,
    spec: &dyn Fn(usize) -> Result<Vec<u8>, Diagnostics>,
    store: &dyn StoreView,
    policy: &Policy,
) -> Result<Plan, PlanError> {
    let jobs: Vec<JobHash> = outlines.iter().filter_map(|outline| Some(outline.made.as_ref().ok()?.job)).collect();
    let mut states = store.jobs(&jobs)?.into_iter();
    let mut seen: HashMap<ArmId, JobHash> = HashMap::with_capacity(outlines.len());
    let mut arms = Vec::with_capacity(outlines.len());
    for (index, Outline { id, made }) in outlines.into_iter().enumerate() {
        let made = match made {
            Ok(made) => made,
            Err(blocked) => {
                arms.push(Planned { id, job: None, state: State::Blocked(vec![blocked]), wall_s: 0, gpus: 0 });
                continue;
            }
        };
        if seen.insert(id.clone(), made.job).is_some_and(|other| other != made.job) {
            return Err(PlanError::Ambiguous { id });
        }
        let known = states.next().unwrap_or_default();
        let state = state(&id, &made, &known, &|| spec(index), store, policy)?;
        let wall_s = policy.start_up_s + policy.load_s.or(made.load_s).unwrap_or_default();
        let gpus = if policy.gpus { made.gpus } else { 0 };
        arms.push(Planned { id, job: Some(made.job), state, wall_s, gpus });
    }
    Ok(Plan { arms })
}

/// Gives an arm's canonical spec.
type SpecOf<'s> = &'s dyn Fn() -> Result<Vec<u8>, Diagnostics>;

fn state(
    id: &ArmId,
    made: &Made,
    known: &JobState,
    spec: SpecOf<'_>,
    store: &dyn StoreView,
    policy: &Policy,
) -> Result<State, PlanError> {
    if known.is_hit(policy.records) && !policy.rerun {
        return Ok(State::Recorded { n: known.records().count() });
    }
    if let Some(claim) = known.running() {
        return Ok(State::Running { owner: claim.to_string() });
    }
    if policy.real && !made.unlocked.is_empty() {
        let blocked = |name: &String| Blocked { why: format!("unlocked: {name}"), unblock: "ixbuild lock".to_owned() };
        return Ok(State::Blocked(made.unlocked.iter().map(blocked).collect()));
    }
    reasons(id, &made.job, known, spec, store, policy).map(State::Run)
}

fn reasons(
    id: &ArmId,
    hash: &JobHash,
    known: &JobState,
    spec: SpecOf<'_>,
    store: &dyn StoreView,
    policy: &Policy,
) -> Result<Vec<Reason>, PlanError> {
    let have = known.records().count();
    if have >= policy.records {
        return Ok(vec![Reason::Rerun]);
    }
    let mut reasons = Vec::new();
    let lost = lost(known, store)?;
    let last_failed = known.last_failed().filter(|last| last.outcome != OutcomeKind::Valid);
    if have > 0 {
        reasons.push(Reason::Few { have, want: policy.records });
    } else if !lost.is_empty() {
        // It was recorded under this very spec: no input changed.
    } else if let Some((since, changes)) = nearest(id, hash, spec, store)? {
        reasons.extend(changes.into_iter().map(|change| Reason::Changed { change, since }));
    } else if last_failed.is_none() {
        reasons.push(Reason::New);
    }
    reasons.extend(lost);
    if let Some(last) = last_failed {
        reasons.push(Reason::LastAttempt { outcome: last.outcome.word().to_owned() });
    }
    Ok(reasons)
}

/// Why what was once recorded of a job counts no more, oldest first.
fn lost(known: &JobState, store: &dyn StoreView) -> Result<Vec<Reason>, StoreError> {
    let mut lost = Vec::new();
    for at in known.attempts.iter().filter(|at| at.was_valid() && !at.collected) {
        if at.excluded {
            let why = store.exclusion(at)?.map(|exclusion| exclusion.reason).unwrap_or_default();
            lost.push(Reason::Excluded { why });
        } else if let Some(derived) = &at.derived
            && let Outcome::Invalid { gates } = store.attempt(at)?.standing()
        {
            lost.push(Reason::Outdated { formulas: derived.formulas, gates: gates.clone() });
        }
    }
    Ok(lost)
}

/// The recorded spec of an arm that differs least from the new one, and how.
fn nearest(
    id: &ArmId,
    hash: &JobHash,
    spec: SpecOf<'_>,
    store: &dyn StoreView,
) -> Result<Option<(JobHash, Vec<Change>)>, PlanError> {
    let earlier: Vec<_> = store.arm_jobs(id)?.into_iter().filter(|earlier| earlier.job != *hash).collect();
    if earlier.is_empty() {
        return Ok(None);
    }
    let new: Value = serde_json::from_slice(&spec()?).unwrap_or_default();
    let mut best: Option<(JobHash, Vec<Change>)> = None;
    for earlier in earlier {
        let Some(old) = store.spec(&earlier.job)? else { continue };
        let old: Value = serde_json::from_slice(&old).unwrap_or_default();
        let changes = changes(&old, &new);
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
