//! The project that a command works on: found, read, expanded.

use std::path::{Path, PathBuf};

use super::Globals;
use super::error::Error;
use crate::compose::{Composed, Composer};
use crate::config::golden::Curves;
use crate::config::inputs::Inputs;
use crate::config::profile::Profile;
use crate::config::runners::Runners;
use crate::config::{diagnostic::Diagnostics, master};
use crate::ids::ArmId;
use crate::lock::{self, Lock};
use crate::matrix::arm::Arm;
use crate::matrix::filter::Filter;
use crate::matrix::{arms::arms, expand::expand};
use crate::plan::{self, Plan, Policy};
use crate::recipe::Recipes;
use crate::store::Store;

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
    recipes: Recipes,
    curves: Curves,
    lock: Lock,
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
            return Err(Error::from(crate::config::diagnostic::Diagnostic::new(format!(
                "{} has no configs/*-master.yaml",
                self.root.display()
            ))));
        }
        let mut faults = Diagnostics::default();
        let entries = faults.absorb(master::parse_all(&sources));
        let runners = faults.absorb(match self.inputs.get(MARK) {
            Some(source) => Runners::parse(source),
            None => Err(crate::config::diagnostic::Diagnostic::new(format!("{MARK} is missing")).into()),
        });
        let (Some(entries), Some(runners)) = (entries, runners) else { return Err(faults.into()) };
        Ok(arms(&expand(&entries, &runners, filter)?).arms)
    }

    /// What specs are composed from.
    pub fn composer(&self) -> Composer<'_> {
        Composer { recipes: &self.recipes, curves: &self.curves, lock: &self.lock, profile: &self.profile }
    }

    /// Composes arms.
    ///
    /// # Errors
    /// Every fault in their recipes.
    pub fn compose<'a>(&self, arms: impl IntoIterator<Item = &'a Arm>) -> Result<Vec<(ArmId, Composed)>, Error> {
        let composer = self.composer();
        let mut faults = Diagnostics::default();
        let mut composed = Vec::new();
        for arm in arms {
            match composer.compose(arm) {
                Ok(job) => composed.push((arm.id.clone(), job)),
                // One fault of a recipe would show for every arm that it makes.
                Err(found) => found.0.into_iter().for_each(|fault| {
                    if !faults.0.contains(&fault) {
                        faults.push(fault);
                    }
                }),
            }
        }
        Ok(faults.or(composed)?)
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
    pub fn plan<'a>(&self, arms: impl IntoIterator<Item = &'a Arm>, store: &Store, rerun: bool) -> Result<Plan, Error> {
        Ok(plan::plan(self.compose(arms)?, store, &self.policy(rerun))?)
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
