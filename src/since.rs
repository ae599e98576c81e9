//! The arms of a project against those of an earlier snapshot of its files: what would run if everything had been measured
//! there. A value; printing it is `plan --since`.
//!
//! An arm is unchanged when the earlier snapshot has its job, under whatever id. Else it is compared with the earlier arm
//! of its id. Pure: both sides are [`Project`]s, and no store is seen.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::changelog::check::all_arms;
use crate::compose::Blocked;
use crate::config::diagnostic::Diagnostics;
use crate::ids::{ArmId, JobHash};
use crate::matrix::arm::Arm;
use crate::matrix::arms::eval_twin;
use crate::plan::Policy;
use crate::project::Project;
use crate::spec::diff::{Change, changes};

/// The arms of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Since {
    /// In matrix order.
    pub arms: Vec<Compared>,
    /// Arms of the earlier snapshot that are gone, in its order.
    pub removed: Vec<ArmId>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// The arm.
    pub id: ArmId,
    /// Its job; absent when it has none.
    pub job: Option<JobHash>,
    /// What became of it.
    pub fate: Fate,
    /// GPUs that a run would hold.
    pub gpus: u64,
    /// Seconds that a run would take.
    pub wall_s: u64,
}

/// What became of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The earlier snapshot has its job.
    Unchanged,
    /// Its inputs differ from those of the earlier arm.
    Changed {
        /// The earlier job.
        since: JobHash,
        /// Every difference.
        changes: Vec<Change>,
    },
    /// No earlier arm has its id and a job.
    New,
    /// It has no job.
    Blocked(Blocked),
}

impl Fate {
    /// The word in messages and in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Fate::Unchanged => "unchanged",
            Fate::Changed { .. } => "changed",
            Fate::New => "new",
            Fate::Blocked(_) => "blocked",
        }
    }

    /// Whether it would run.
    pub fn runs(&self) -> bool {
        matches!(self, Fate::Changed { .. } | Fate::New)
    }
}

/// Compares arms with all arms of an earlier snapshot. `whole` says that `arms` are all there are: then what is not among
/// them is gone.
///
/// # Errors
/// Faults in recipes of either side; rows of the earlier side that do not fit their runners.
pub fn since(before: &Project, after: &Project, arms: &[Arm], whole: bool) -> Result<Since, Diagnostics> {
    let mut earlier = all_arms(&before.config)?;
    if arms.iter().any(|arm| arm.eval) {
        earlier.extend(earlier.iter().map(eval_twin).collect::<Vec<_>>());
    }
    let of = before.outlines(&earlier.iter().collect::<Vec<_>>())?;
    let jobs: HashSet<JobHash> = of.iter().filter_map(|outline| Some(outline.made.as_ref().ok()?.job)).collect();
    let ids: HashMap<&ArmId, (&Arm, Option<JobHash>)> = earlier
        .iter()
        .zip(&of)
        .map(|(arm, outline)| (&arm.id, (arm, outline.made.as_ref().ok().map(|made| made.job))))
        .collect();
    let policy = Policy::of(&after.profile, false);
    let mut compared = Vec::with_capacity(arms.len());
    for (arm, outline) in arms.iter().zip(after.outlines(&arms.iter().collect::<Vec<_>>())?) {
        let made = match outline.made {
            Ok(made) => made,
            Err(blocked) => {
                let fate = Fate::Blocked(blocked);
                compared.push(Compared { id: outline.id, job: None, fate, gpus: 0, wall_s: 0 });
                continue;
            }
        };
        let fate = match ids.get(&arm.id) {
            _ if jobs.contains(&made.job) => Fate::Unchanged,
            Some((old, Some(since))) => {
                Fate::Changed { since: *since, changes: changes(&spec(before, old)?, &spec(after, arm)?) }
            }
            Some((_, None)) | None => Fate::New,
        };
        let wall_s = wall_s(policy, made.load_s);
        let gpus = if policy.gpus { made.gpus } else { 0 };
        compared.push(Compared { id: outline.id, job: Some(made.job), fate, gpus, wall_s });
    }
    let here: HashSet<&ArmId> = arms.iter().map(|arm| &arm.id).collect();
    let gone = earlier.iter().filter(|arm| whole && !arm.eval && !here.contains(&arm.id));
    Ok(Since { removed: gone.map(|arm| arm.id.clone()).collect(), arms: compared })
}

fn wall_s(policy: Policy, load_s: Option<u64>) -> u64 {
    policy.start_up_s + policy.load_s.or(load_s).unwrap_or_default()
}

fn spec(project: &Project, arm: &Arm) -> Result<Value, Diagnostics> {
    Ok(serde_json::from_slice(&project.job(arm)?.spec.canonical()).unwrap_or_default())
}

/// Counts, and what is to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Arms whose job the earlier snapshot has.
    pub unchanged: usize,
    /// Arms whose inputs differ.
    pub changed: usize,
    /// Arms that it does not have.
    pub new: usize,
    /// Arms that are gone.
    pub removed: usize,
    /// Arms without a job.
    pub blocked: usize,
    /// Jobs to run: arms with equal specs share one.
    pub jobs: usize,
    /// GPU-hours of these jobs.
    pub gpu_hours: f64,
}

impl Since {
    /// Counts, and what is to come.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary { removed: self.removed.len(), ..Summary::default() };
        let mut jobs: BTreeMap<JobHash, &Compared> = BTreeMap::new();
        for arm in &self.arms {
            match arm.fate {
                Fate::Unchanged => summary.unchanged += 1,
                Fate::Changed { .. } => summary.changed += 1,
                Fate::New => summary.new += 1,
                Fate::Blocked(_) => summary.blocked += 1,
            }
            if arm.fate.runs() {
                jobs.extend(arm.job.map(|job| (job, arm)));
            }
        }
        summary.jobs = jobs.len();
        summary.gpu_hours = jobs.values().map(|arm| arm.gpus as f64 * arm.wall_s as f64 / 3600.0).sum();
        summary
    }
}
