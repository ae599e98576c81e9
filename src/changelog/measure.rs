//! What arms are named by, and what measuring them costs.
//!
//! An arm with a recipe is named by its job hash. One without (or one that has no job for another reason, such as a
//! golden value that is missing) is named by the hash of its row, its concurrency and whether it is evaluated: what a
//! script or a package outside the masters changes is not seen there.
//!
//! GPU-hours = GPUs × (start-up allowance + load) / 3,600, an arm at a time. The load is what the job declares, else 3,600 s
//! of an agentic throughput row, else an assumed number of seconds.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::diagnostic::Diagnostics;
use crate::config::inputs::Inputs;
use crate::config::profile::{self, Profile};
use crate::config::topology::ScenarioType;
use crate::ids::{ArmId, ConfigKey, JobHash, RowHash};
use crate::matrix::arm::{Arm, Row, Scenario};
use crate::matrix::arms::eval_twin;
use crate::matrix::rows::{AGENTIC_DURATION_S, row_hash};
use crate::project::Project;
use crate::recipe;

/// Seconds of load that are assumed where nothing declares them: a fixed-seq-len point, an evaluation.
pub const ASSUMED_LOAD_S: u64 = 900;

/// What names a measurement: equal names, equal measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// A job.
    Job(JobHash),
    /// A point of a row that has no job.
    Row {
        /// The row.
        row: RowHash,
        /// At this concurrency.
        conc: u32,
        /// Whether it is evaluated.
        eval: bool,
    },
}

/// An arm with its name and its cost.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Its id.
    pub id: ArmId,
    /// Its row.
    pub row: Arc<Row>,
    /// Its concurrency.
    pub conc: u32,
    /// Whether it is evaluated.
    pub eval: bool,
    /// What names it.
    pub name: Name,
    /// What it costs, seconds of one GPU.
    pub gpu_s: u64,
}

impl Measured {
    /// Its config key.
    pub fn key(&self) -> &ConfigKey {
        &self.row.entry.key
    }

    /// Its kind of scenario.
    pub fn kind(&self) -> ScenarioType {
        self.row.scenario.kind()
    }

    /// Whether its row alone names it.
    pub fn by_row(&self) -> bool {
        matches!(self.name, Name::Row { .. })
    }
}

/// What a measurement takes beside its declared load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// From allocation to the first measured request, and for the end, seconds.
    pub start_up_s: u64,
    /// Load that nothing declares, seconds.
    pub assumed_load_s: u64,
}

impl Estimate {
    /// The estimate of a profile. A rehearsal takes no GPUs: what counts then is the real thing, under the default profile.
    ///
    /// # Errors
    /// Faults in the default profile.
    pub fn of(profile: &Profile) -> Result<Self, Diagnostics> {
        let start_up_s = match profile.rehearses() {
            false => profile.estimate.start_up_s,
            true => Profile::load(&Inputs::default(), profile::DEFAULT)?.estimate.start_up_s,
        };
        Ok(Self { start_up_s, assumed_load_s: ASSUMED_LOAD_S })
    }
}

/// GPU-seconds as hours.
pub fn hours(gpu_s: u64) -> f64 {
    gpu_s as f64 / 3600.0
}

/// The recipes of a snapshot and what they need; nothing where it has none, and rows name every arm.
///
/// # Errors
/// Every fault of every file; a profile that does not exist.
pub fn recipes(inputs: &Inputs, profile: &str) -> Result<Option<Project>, Diagnostics> {
    match inputs.in_folder(recipe::FOLDER, ".yaml").next() {
        None => Ok(None),
        Some(_) => Project::load(inputs.clone(), profile).map(Some),
    }
}

/// Names some arms; `project` makes jobs of them.
///
/// # Errors
/// Every fault in their recipes.
pub fn measure(project: Option<&Project>, arms: &[Arm], estimate: Estimate) -> Result<Vec<Measured>, Diagnostics> {
    let covers = |arm: &&Arm| project.is_some_and(|project| project.recipes.covers(arm));
    let covered: Vec<&Arm> = arms.iter().filter(covers).collect();
    let outlines = project.map_or_else(|| Ok(Vec::new()), |project| project.outlines(&covered))?;
    let mut jobs = outlines.into_iter();
    let mut waiting = covered.iter().map(|arm| &arm.id).peekable();
    let measured = arms.iter().map(|arm| {
        // Outlines come in the order of the arms that have a recipe.
        let made = match waiting.next_if(|id| **id == arm.id) {
            Some(_) => jobs.next().and_then(|outline| outline.made.ok()),
            None => None,
        };
        let declared = made.as_ref().and_then(|made| made.load_s).or(declared(arm));
        let name = match &made {
            Some(made) => Name::Job(made.job),
            None => Name::Row { row: row_hash(&arm.row), conc: arm.conc, eval: arm.eval },
        };
        let load_s = declared.unwrap_or(estimate.assumed_load_s);
        let gpu_s = arm.row.gpus() * (estimate.start_up_s + load_s);
        Measured { id: arm.id.clone(), row: Arc::clone(&arm.row), conc: arm.conc, eval: arm.eval, name, gpu_s }
    });
    Ok(measured.collect())
}

fn declared(arm: &Arm) -> Option<u64> {
    (arm.row.scenario == Scenario::AgenticCoding && !arm.eval).then_some(u64::from(AGENTIC_DURATION_S))
}

/// The eval twins of arms that the eval policy may pick.
pub fn eval_twins(arms: &[Arm]) -> Vec<Arm> {
    let may = |arm: &&Arm| {
        !arm.eval
            && matches!(arm.row.scenario, Scenario::AgenticCoding | Scenario::FixedSeqLen { isl: 8192, osl: 1024 })
    };
    arms.iter().filter(may).map(eval_twin).collect()
}

/// The names of every arm and of every eval twin.
///
/// # Errors
/// Every fault in their recipes.
pub fn names(project: Option<&Project>, arms: &[Arm], estimate: Estimate) -> Result<HashSet<Name>, Diagnostics> {
    let mut names: HashSet<Name> = measure(project, arms, estimate)?.into_iter().map(|arm| arm.name).collect();
    names.extend(measure(project, &eval_twins(arms), estimate)?.into_iter().map(|arm| arm.name));
    Ok(names)
}
