//! Which arms a command is about: by name, by the filters of the matrix, or both.

use std::collections::HashSet;

use clap::Args;

use super::error::Error;
use super::filters::FilterArgs;
use super::project::Project;
use crate::config::similar::listed;
use crate::ids::ArmId;
use crate::matrix::arm::Arm;
use crate::matrix::arms::{arms, eval_twin};
use crate::matrix::filter::{Filter, Sweep};
use crate::matrix::select::{SelectError, select, select_one};

/// The end of an eval arm's id.
const EVAL: &str = "-eval";

/// Arms by name and by filter.
#[derive(Debug, Args)]
pub struct Selection {
    /// An arm id, its unique end, a config key, or a glob in which `*` crosses `/`; `…-eval` is an arm's eval twin
    #[arg(value_name = "ARM|KEY|GLOB")]
    pub arms: Vec<String>,
    /// Filters of the matrix.
    #[command(flatten)]
    pub filter: FilterArgs,
}

impl Selection {
    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.arms.is_empty() && self.filter.is_empty()
    }

    /// The arms that pass the filters and that the names select; all that pass where there are no names.
    ///
    /// # Errors
    /// A name of no arm; filters that leave nothing; flags that contradict each other.
    pub fn choose(&self, project: &Project) -> Result<Vec<Arm>, Error> {
        // A sweep clips concurrencies by bounds alone; here a list of them goes with every filter.
        let listed_apart = self.filter.config_keys.is_empty();
        let conc = if listed_apart { Vec::new() } else { self.filter.conc.clone() };
        let pool = arms(&FilterArgs { conc, ..self.filter.clone() }.rows(&project.config)?).arms;
        let named = if self.arms.is_empty() {
            pool
        } else {
            by_name(&pool, &self.arms).map_err(|error| self.left_out(project, error))?
        };
        let keeps = |arm: &Arm| self.filter.conc.is_empty() || self.filter.conc.contains(&i64::from(arm.conc));
        let chosen: Vec<Arm> = named.iter().filter(|arm| keeps(arm)).cloned().collect();
        if chosen.is_empty() && !named.is_empty() {
            let concs: std::collections::BTreeSet<u32> = named.iter().map(|arm| arm.conc).collect();
            let concs: Vec<String> = concs.iter().map(u32::to_string).collect();
            return Err(
                Error::usage("no selected arm has such a concurrency").hint(format!("there are {}", concs.join(", ")))
            );
        }
        if chosen.is_empty() && !self.is_empty() {
            return Err(Error::usage("no arm passes these filters").hint(
                "a filter takes every word up to the next flag: name arms before the filters; without filters `ixbuild \
                 plan` lists every arm",
            ));
        }
        Ok(chosen)
    }

    /// What to say of a name that selects nothing: the filters may be what leaves its arms out.
    fn left_out(&self, project: &Project, error: SelectError) -> Error {
        let all = project.arms(&Filter::Sweep(Sweep::default())).unwrap_or_default();
        if self.filter.is_empty() || by_name(&all, &self.arms).is_err() {
            return error.into();
        }
        Error::usage(format!("the filters leave nothing of {}", listed(self.arms.iter().map(String::as_str), 4)))
            .hint("remove a filter, or the name")
    }
}

/// The arms that names select, in matrix order. Names that end in `-eval` select eval twins.
fn by_name(pool: &[Arm], names: &[String]) -> Result<Vec<Arm>, SelectError> {
    let (evals, others): (Vec<_>, Vec<_>) = names.iter().cloned().partition(|name| name.ends_with(EVAL));
    let mut chosen: Vec<Arm> = select(pool, &others)?.into_iter().cloned().collect();
    if !evals.is_empty() {
        let mut seen: HashSet<ArmId> = chosen.iter().map(|arm| arm.id.clone()).collect();
        let twins = twins(pool);
        let found = select(&twins, &evals)?;
        chosen.extend(found.into_iter().filter(|arm| seen.insert(arm.id.clone())).cloned());
    }
    Ok(chosen)
}

/// The eval arms of a pool, and the twins of its others.
fn twins(pool: &[Arm]) -> Vec<Arm> {
    let mut seen = HashSet::new();
    pool.iter().map(eval_twin).filter(|arm| seen.insert(arm.id.clone())).collect()
}

/// The one arm that a name selects.
///
/// # Errors
/// None or several.
pub fn one_arm(project: &Project, name: &str) -> Result<Arm, Error> {
    let arms = project.arms(&Filter::Sweep(Sweep::default()))?;
    if name.ends_with(EVAL) {
        return Ok(select_one(&twins(&arms), name)?.clone());
    }
    Ok(select_one(&arms, name)?.clone())
}

/// Whether a word names a job by its hash.
pub fn is_hash(word: &str) -> bool {
    word.starts_with("job:") || word.starts_with("sha256:")
}
