//! Which arms a command is about.

use std::sync::Arc;

use clap::Args;

use super::error::Error;
use super::project::Project;
use crate::ids::ArmId;
use crate::matrix::arm::Arm;
use crate::matrix::filter::{Filter, Sweep};
use crate::matrix::select::{select, select_one};

/// Arms by name.
#[derive(Debug, Args)]
pub struct Selection {
    /// An arm id, its unique end, a config key, or a glob in which `*` crosses `/`
    #[arg(value_name = "ARM|KEY|GLOB")]
    pub arms: Vec<String>,
    /// Only these concurrencies
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1..)]
    pub conc: Vec<u32>,
}

impl Selection {
    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.arms.is_empty() && self.conc.is_empty()
    }

    /// The arms that it names; all of them when it names none.
    ///
    /// # Errors
    /// A pattern that names no arm; a concurrency that no arm has.
    pub fn choose<'a>(&self, arms: &'a [Arm]) -> Result<Vec<&'a Arm>, Error> {
        let named = if self.arms.is_empty() { arms.iter().collect() } else { select(arms, &self.arms)? };
        let chosen: Vec<&Arm> =
            named.into_iter().filter(|arm| self.conc.is_empty() || self.conc.contains(&arm.conc)).collect();
        if chosen.is_empty() && !self.conc.is_empty() {
            let mut known: Vec<u32> = arms.iter().map(|arm| arm.conc).collect();
            known.sort_unstable();
            known.dedup();
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            return Err(Error::usage("no selected arm has such a concurrency")
                .hint(format!("the matrix has {}", known.join(", "))));
        }
        Ok(chosen)
    }
}

/// The one arm that a pattern names. An id that ends in `-eval` names the eval twin of an arm.
///
/// # Errors
/// None or several.
pub fn one_arm(project: &Project, pattern: &str) -> Result<Arm, Error> {
    let mut arms = project.arms(&Filter::Sweep(Sweep::default()))?;
    if pattern.ends_with("-eval") {
        for arm in &mut arms {
            arm.eval = true;
            arm.id = ArmId(Arc::from(format!("{}-eval", arm.id)));
        }
    }
    Ok(select_one(&arms, pattern)?.clone())
}

/// Whether a word names a job by its hash.
pub fn is_hash(word: &str) -> bool {
    word.starts_with("job:") || word.starts_with("sha256:")
}
