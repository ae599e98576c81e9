//! A project's input files as values, and what each stage makes of them: arms, specs, a plan.
//!
//! Pure: it sees the files as [`Inputs`] and the store through [`StoreView`]. It knows no folder and no command line.

use crate::compose::{Composed, Composer, Job};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::golden::Curves;
use crate::config::inputs::Inputs;
use crate::config::load::Config;
use crate::config::profile::Profile;
use crate::lock::{self, Lock};
use crate::matrix::arm::Arm;
use crate::matrix::expand::{ExpandError, expand};
use crate::matrix::{arms::arms, filter::Filter};
use crate::plan::{self, Outline, Plan, PlanError, Policy};
use crate::recipe::Recipes;
use crate::store::StoreView;

/// Arms that are not worth a thread of their own.
const PART: usize = 500;

/// A project's inputs as values.
pub struct Project {
    /// Everything that was read.
    pub inputs: Inputs,
    /// The profile in force.
    pub profile: Profile,
    /// What the matrix is made of.
    pub config: Config,
    /// Recipes and tools.
    pub recipes: Recipes,
    /// Golden acceptance lengths.
    pub curves: Curves,
    /// Digests; empty where there is no lock file.
    pub lock: Lock,
}

impl Project {
    /// Makes values of everything.
    ///
    /// # Errors
    /// Every fault of every file; a profile that does not exist.
    pub fn load(inputs: Inputs, profile: &str) -> Result<Self, Diagnostics> {
        let mut faults = Diagnostics::default();
        let recipes = faults.absorb(Recipes::load(&inputs));
        let config = faults.absorb(Config::of(&inputs));
        let curves = faults.absorb(Curves::load(&inputs));
        let lock = faults.absorb(inputs.get(lock::FILE).map_or_else(|| Ok(Lock::default()), Lock::read));
        let profile = faults.absorb(Profile::load(&inputs, profile));
        match (config, recipes, curves, lock, profile) {
            (Some(config), Some(recipes), Some(curves), Some(lock), Some(profile)) => {
                Ok(Self { inputs, profile, config, recipes, curves, lock })
            }
            _ => Err(faults),
        }
    }

    /// The throughput arms that a filter lets through, in matrix order; repeated ones once.
    ///
    /// # Errors
    /// A filter that cannot be applied; rows that do not fit their runners.
    pub fn arms(&self, filter: &Filter) -> Result<Vec<Arm>, ExpandError> {
        Ok(arms(&expand(&self.config.entries, &self.config.runners, filter)?).arms)
    }

    /// What specs are composed from.
    pub fn composer(&self) -> Composer<'_> {
        Composer { recipes: &self.recipes, curves: &self.curves, lock: &self.lock, profile: &self.profile }
    }

    /// Composes arms and keeps what planning needs of them: a matrix of 100,000 arms is never whole in memory.
    ///
    /// # Errors
    /// Every fault in their recipes, once.
    pub fn outlines(&self, arms: &[&Arm]) -> Result<Vec<Outline>, Diagnostics> {
        let composer = self.composer();
        let part = |arms: &[&Arm]| {
            let mut faults = Diagnostics::default();
            let mut known = Vec::new();
            let mut outlines = Vec::with_capacity(arms.len());
            for arm in arms {
                if let Some(fault) = arm.row.oversized() {
                    faults.absorb_new(fault.into());
                    continue;
                }
                match composer.compose(arm) {
                    Ok(composed) => outlines.push(Outline::of(arm.id.clone(), &composed, &mut known)),
                    Err(found) => faults.absorb_new(found),
                }
            }
            faults.or(outlines)
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let size = arms.len().div_ceil(threads).max(PART);
        let parts: Vec<_> = std::thread::scope(|scope| {
            let parts: Vec<_> = arms.chunks(size).map(|arms| scope.spawn(|| part(arms))).collect();
            parts.into_iter().map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut faults = Diagnostics::default();
        let mut outlines = Vec::with_capacity(arms.len());
        for part in parts {
            match part {
                Ok(part) => outlines.extend(part),
                Err(found) => faults.absorb_new(found),
            }
        }
        faults.or(outlines)
    }

    /// Composes one arm that is known to have a job.
    ///
    /// # Errors
    /// Faults in its recipe; an arm without a job.
    pub fn job(&self, arm: &Arm) -> Result<Box<Job>, Diagnostics> {
        match self.composer().compose(arm)? {
            Composed::Job(job) => Ok(job),
            Composed::Blocked(blocked) => Err(Diagnostic::at(&arm.row.place, blocked.why).help(blocked.unblock).into()),
        }
    }

    /// Plans arms.
    ///
    /// # Errors
    /// Faults in recipes; an arm with two specs; a store that cannot be read.
    pub fn plan(&self, arms: &[&Arm], store: &dyn StoreView, rerun: bool) -> Result<Plan, PlanError> {
        let spec = |index: usize| Ok(self.job(arms[index])?.spec.canonical());
        plan::plan(self.outlines(arms)?, &spec, store, &Policy::of(&self.profile, rerun))
    }
}
