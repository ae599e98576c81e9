//! What-ifs of `ixbuild run`: arms with inputs set by hand, or without the golden value that the policy wants. Each is a job
//! of its own, labelled apart from its arm.

use std::collections::BTreeMap;

use clap::Args;

use super::error::Error;
use super::printer::Printer;
use super::project::Project;
use crate::compose::{Composed, Job};
use crate::ids::{ArmId, JobHash};
use crate::matrix::arm::Arm;
use crate::plan::{Outline, Plan, Policy, State, plan};
use crate::spec::JobSpec;
use crate::store::Store;
use crate::sweep::Task;
use crate::whatif::{SetError, Setting, set};

/// The path that is no input of a spec: everything that a recipe derives from it follows.
const CONCURRENCY: &str = "concurrency";

/// Ends the label of an exploratory job.
const EXPLORATORY: &str = "+exploratory";

/// Ends the label of a what-if.
const WHAT_IF: &str = "+what-if";

/// How jobs differ from their arms.
#[derive(Debug, Args)]
pub struct Variation {
    /// A what-if: one input set by hand (repeatable, see below); never served for the arm, never published
    #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with_all = ["only_changed", "all"])]
    set: Vec<Setting>,
    /// Run arms without a golden acceptance length with real verification; never served for them, never published
    #[arg(long)]
    exploratory: bool,
}

impl Variation {
    /// Whether arms run as they are.
    pub fn is_none(&self) -> bool {
        self.set.is_empty() && !self.exploratory
    }

    /// Plans the variants of arms, and what runs them. Reasons compare a variant with what was recorded for its arm.
    ///
    /// # Errors
    /// A setting that cannot be applied; faults in recipes; a store that cannot be read.
    pub fn plan(
        &self,
        project: &Project,
        arms: &[&Arm],
        store: &Store,
        rerun: bool,
    ) -> Result<(Plan, Vec<Task>), Error> {
        let composed = arms.iter().map(|arm| self.compose(project, arm)).collect::<Result<Vec<_>, _>>()?;
        let mut known = Vec::new();
        let outlines = arms.iter().zip(&composed).map(|(arm, made)| Outline::of(arm.id.clone(), made, &mut known));
        let spec = |index: usize| match &composed[index] {
            Composed::Job(job) => Ok(job.spec.canonical()),
            Composed::Blocked(_) => Ok(Vec::new()),
        };
        let mut plan = plan(outlines.collect(), &spec, store, &Policy::of(&project.profile, rerun))?;
        let mut jobs = Vec::with_capacity(composed.len());
        for (planned, composed) in plan.arms.iter_mut().zip(composed) {
            let job = match composed {
                Composed::Job(job) => Some(job),
                Composed::Blocked(_) => None,
            };
            if let Some(job) = &job {
                planned.id = label(&planned.id, &job.spec);
            }
            jobs.push(job);
        }
        let tasks = tasks(&plan, |index| Ok(jobs[index].take()))?;
        Ok((plan, tasks))
    }

    fn compose(&self, project: &Project, arm: &Arm) -> Result<Composed, Error> {
        let mut arm = arm.clone();
        let mut settings = Vec::new();
        let mut moved = None;
        for setting in &self.set {
            if setting.path != CONCURRENCY || setting.add {
                settings.push(setting.clone());
                continue;
            }
            let kind = || SetError::Kind {
                path: setting.path.clone(),
                wanted: "a whole number above 0",
                value: setting.value.clone(),
            };
            let conc = setting.value.parse().ok().filter(|conc| *conc > 0).ok_or_else(kind);
            let conc: u32 = conc.map_err(|error| refused(&arm, &error))?;
            let fault = match (conc == arm.conc, &moved) {
                (_, Some(_)) => Some(SetError::Twice(CONCURRENCY.to_owned())),
                (true, None) => Some(SetError::Unchanged { path: CONCURRENCY.to_owned(), value: conc.to_string() }),
                (false, None) => None,
            };
            if let Some(fault) = fault {
                return Err(refused(&arm, &fault));
            }
            moved = Some(setting.to_string());
            arm.conc = conc;
        }
        let composer = project.composer();
        let composed = match self.exploratory {
            true => composer.compose_exploratory(&arm)?,
            false => composer.compose(&arm)?,
        };
        let Composed::Job(job) = composed else { return Ok(composed) };
        let mut spec = job.spec;
        spec.what_if.extend(moved);
        let spec = set(&spec, &settings).map_err(|error| refused(&arm, &error))?;
        Ok(Composed::Job(Box::new(Job { spec, ready_timeout_s: job.ready_timeout_s })))
    }
}

fn refused(arm: &Arm, error: &SetError) -> Error {
    let refused = Error::usage(format!("{}: {error}", arm.id));
    match error.hint() {
        Some(hint) => refused.hint(hint),
        None => refused,
    }
}

/// Says of every variant that it is none of its arm's records.
pub fn announce(plan: &Plan, printer: Printer) {
    for planned in &plan.arms {
        let marked = [EXPLORATORY, WHAT_IF].iter().any(|mark| planned.id.as_str().ends_with(mark));
        if let (true, Some(job)) = (marked, planned.job) {
            printer.note(&format!("{} is {}: recorded apart from its arm, never published", planned.id, job.short()));
        }
    }
}

/// The label of what a spec measures: the arm's, with a suffix where it is no arm of the matrix. Shells, globs and file names
/// take it as it is.
fn label(arm: &ArmId, spec: &JobSpec) -> ArmId {
    let mut label = arm.to_string();
    if spec.exploratory {
        label.push_str(EXPLORATORY);
    }
    if !spec.what_if.is_empty() {
        label.push_str(WHAT_IF);
    }
    ArmId(label.into())
}

/// One task a job: arms with equal specs share it. `job` gives the job of the arm at an index.
///
/// # Errors
/// What `job` fails with.
pub fn tasks(plan: &Plan, mut job: impl FnMut(usize) -> Result<Option<Box<Job>>, Error>) -> Result<Vec<Task>, Error> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut index: BTreeMap<JobHash, usize> = BTreeMap::new();
    for (at, planned) in plan.arms.iter().enumerate() {
        let reasons = match &planned.state {
            State::Run(reasons) => reasons.clone(),
            State::Running { .. } => Vec::new(),
            _ => continue,
        };
        let Some(hash) = planned.job else { continue };
        match index.get(&hash) {
            Some(at) => tasks[*at].arms.push(planned.id.clone()),
            None => {
                let Some(job) = job(at)? else { continue };
                index.insert(hash, tasks.len());
                tasks.push(Task { arms: vec![planned.id.clone()], hash, job, reasons });
            }
        }
    }
    Ok(tasks)
}
