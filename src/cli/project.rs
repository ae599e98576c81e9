//! The project that a command works on: found, read, expanded.

use std::path::{Path, PathBuf};

use super::Globals;
use super::error::Error;
use crate::compose::{Composed, Composer, Job};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::golden::Curves;
use crate::config::inputs::Inputs;
use crate::config::master;
use crate::config::profile::Profile;
use crate::config::runners::Runners;
use crate::lock::{self, Lock};
use crate::matrix::arm::Arm;
use crate::matrix::filter::Filter;
use crate::matrix::{arms::arms, expand::expand};
use crate::plan::{self, Outline, Plan, Policy};
use crate::recipe::Recipes;
use crate::store::Store;

/// Arms that are not worth a thread of their own.
const PART: usize = 500;

/// What marks the top of a project.
const MARK: &str = "configs/runners.yaml";

/// A project's inputs as values.
pub struct Project {
    /// Its folder.
    pub root: PathBuf,
    /// Everything that was read.
    pub inputs: Inputs,
    /// The profile in force.
    pub profile: Profile,
    /// Recipes and tools.
    pub recipes: Recipes,
    curves: Curves,
    /// Digests; empty where there is no lock file.
    pub lock: Lock,
}

impl Project {
    /// Finds the project and reads everything but the matrix.
    ///
    /// # Errors
    /// No project here; every fault in its files.
    pub fn open(globals: &Globals) -> Result<Self, Error> {
        let root = find(globals.project.as_deref())?;
        let inputs = Inputs::read(&root, &shown(&root))?;
        let mut faults = Diagnostics::default();
        let recipes = faults.absorb(Recipes::load(&inputs));
        let curves = faults.absorb(curves(&inputs));
        let lock = faults.absorb(inputs.get(lock::FILE).map_or_else(|| Ok(Lock::default()), Lock::read));
        let profile = faults.absorb(Profile::load(&inputs, globals.profile_name()));
        let (Some(recipes), Some(curves), Some(lock), Some(profile)) = (recipes, curves, lock, profile) else {
            return Err(faults.into());
        };
        Ok(Self { root, inputs, profile, recipes, curves, lock })
    }

    /// The arms that a filter lets through, in matrix order; repeated ones once.
    ///
    /// # Errors
    /// Faults in the master files or the runners file; a filter that cannot be applied.
    pub fn arms(&self, filter: &Filter) -> Result<Vec<Arm>, Error> {
        let sources: Vec<_> =
            self.inputs.in_folder("configs", "-master.yaml").map(|(_, source)| source.clone()).collect();
        if sources.is_empty() {
            return Err(Error::from(Diagnostic::new(format!("{} has no configs/*-master.yaml", self.root.display()))));
        }
        let mut faults = Diagnostics::default();
        let entries = faults.absorb(master::parse_all(&sources));
        let runners = faults.absorb(match self.inputs.get(MARK) {
            Some(source) => Runners::parse(source),
            None => Err(Diagnostic::new(format!("{MARK} is missing")).into()),
        });
        let (Some(entries), Some(runners)) = (entries, runners) else { return Err(faults.into()) };
        Ok(arms(&expand(&entries, &runners, filter)?).arms)
    }

    /// What specs are composed from.
    pub fn composer(&self) -> Composer<'_> {
        Composer { recipes: &self.recipes, curves: &self.curves, lock: &self.lock, profile: &self.profile }
    }

    /// Composes arms and keeps what planning needs of them: a matrix of 100,000 arms is never whole in memory.
    ///
    /// # Errors
    /// Every fault in their recipes, once.
    pub fn outlines(&self, arms: &[&Arm]) -> Result<Vec<Outline>, Error> {
        let composer = self.composer();
        let part = |arms: &[&Arm]| {
            let mut faults = Diagnostics::default();
            let mut known = Vec::new();
            let mut outlines = Vec::with_capacity(arms.len());
            for arm in arms {
                match composer.compose(arm) {
                    Ok(composed) => outlines.push(Outline::of(arm.id.clone(), &composed, &mut known)),
                    Err(found) => faults
                        .0
                        .extend(found.0.into_iter().filter(|fault| !faults.0.contains(fault)).collect::<Vec<_>>()),
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
            outlines.extend(faults.absorb(part).into_iter().flatten());
        }
        let mut seen = Vec::new();
        faults.0.retain(|fault| {
            let new = !seen.contains(fault);
            seen.push(fault.clone());
            new
        });
        Ok(faults.or(outlines)?)
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

    /// What planning depends on beside specs and store.
    pub fn policy(&self, rerun: bool) -> Policy {
        let profile = &self.profile;
        Policy {
            records: profile.records,
            rerun,
            real: !profile.rehearses(),
            start_up_s: profile.estimate.start_up_s,
            load_s: profile.estimate.load_s,
            gpus: !profile.rehearses(),
        }
    }

    /// Plans arms.
    ///
    /// # Errors
    /// Faults in recipes; an arm with two specs; a store that cannot be read.
    pub fn plan(&self, arms: &[&Arm], store: &Store, rerun: bool) -> Result<Plan, Error> {
        let spec = |index: usize| Ok(self.job(arms[index])?.spec.canonical());
        Ok(plan::plan(self.outlines(arms)?, &spec, store, &self.policy(rerun))?)
    }
}

/// The project's folder: the one asked for, else the nearest above the working directory that holds configs.
///
/// # Errors
/// There is none.
pub fn find(asked: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(root) = asked {
        return if root.join("configs").is_dir() {
            Ok(root.to_owned())
        } else {
            Err(Error::usage(format!("{} is no ixbuild project: it has no folder configs", root.display())))
        };
    }
    let here =
        std::env::current_dir().map_err(|error| Error::environment(format!("the working directory: {error}")))?;
    here.ancestors().find(|folder| folder.join(MARK).is_file()).map(Path::to_owned).ok_or_else(|| {
        Error::usage(format!("no ixbuild project in {} or above: nothing there has {MARK}", here.display()))
            .hint("change into one, or pass --project DIR")
    })
}

/// The prefix under which messages show input files: relative to the working directory where that is shorter.
fn shown(root: &Path) -> String {
    match std::env::current_dir() {
        Ok(here) if here == *root => String::new(),
        Ok(here) => root.strip_prefix(&here).unwrap_or(root).display().to_string(),
        Err(_) => root.display().to_string(),
    }
}

fn curves(inputs: &Inputs) -> Result<Curves, Diagnostics> {
    let folder = "golden_al_distribution";
    let sources: Vec<_> = inputs
        .in_folder(folder, ".yaml")
        .filter_map(|(path, source)| {
            let name = path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".yaml")?;
            Some((name.to_owned(), source.clone()))
        })
        .collect();
    Curves::parse(&sources)
}
