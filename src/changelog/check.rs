//! Whether what new entries select is what changed: the two mistakes that no other tool sees.
//!
//! An arm changed when nothing at base has its name (its job hash, or its row's where it has no job: see
//! [`super::measure`]); so a renamed key, or a row that moved, is no change. Arms that changed and that no new entry
//! selects will never be swept. Entries that select arms none of which changed would measure them again for nothing.
//! Evals are judged by key and scenario: an entry selects the evals of a key, the policy which of its rows.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::measure::{Estimate, Measured, measure, names};
use super::select::{Part, Selection};
use crate::config::diagnostic::Diagnostics;
use crate::config::load::Config;
use crate::config::topology::ScenarioType;
use crate::ids::{ArmId, ConfigKey};
use crate::matrix::arm::Arm;
use crate::matrix::arms::arms;
use crate::matrix::evals::{self, Evals};
use crate::matrix::expand::{ExpandError, MatrixRow, expand};
use crate::matrix::filter::{Filter, Sweep};
use crate::project::Project;

/// One side of a comparison.
#[derive(Clone, Copy)]
pub struct Measurable<'p> {
    /// Recipes, curves, lock, profile; nothing where there are no recipes.
    pub project: Option<&'p Project>,
    /// Masters and runners.
    pub config: &'p Config,
}

/// What a check found.
#[derive(Debug, Clone)]
pub struct Report {
    /// Throughput arms at head.
    pub arms: usize,
    /// Those of them that changed.
    pub changed: usize,
    /// Those of them that only their rows name.
    pub by_row: usize,
    /// One for each new entry, in file order.
    pub entries: Vec<EntryReport>,
    /// Arms that changed and that no new entry selects, in matrix order.
    pub uncovered: Vec<Uncovered>,
}

/// What an entry selects.
#[derive(Debug, Clone, Default)]
pub struct EntryReport {
    /// The arms.
    pub selected: Vec<ArmId>,
    /// Those of them that changed.
    pub changed: usize,
    /// The cost of all, seconds of one GPU.
    pub gpu_s: u64,
    /// The cost of those that did not change.
    pub idle_gpu_s: u64,
}

impl EntryReport {
    /// Whether it selects arms and none of them changed.
    pub fn is_idle(&self) -> bool {
        !self.selected.is_empty() && self.changed == 0
    }

    fn count(&mut self, arm: &Measured, changed: bool) {
        self.selected.push(arm.id.clone());
        self.gpu_s += arm.gpu_s;
        match changed {
            true => self.changed += 1,
            false => self.idle_gpu_s += arm.gpu_s,
        }
    }
}

/// An arm that changed and that no new entry selects.
#[derive(Debug, Clone)]
pub struct Uncovered {
    /// The arm.
    pub arm: Measured,
    /// Whether base has no arm of this id.
    pub new: bool,
}

/// Compares what a selection holds with what changed.
///
/// # Errors
/// Rows that do not fit their runners; faults in recipes.
pub fn check(
    base: &Measurable<'_>,
    head: &Measurable<'_>,
    selection: &Selection,
    estimate: Estimate,
) -> Result<Report, Diagnostics> {
    let before = all_arms(base.config)?;
    let known = names(base.project, &before, estimate)?;
    let ids: HashSet<&ArmId> = before.iter().map(|arm| &arm.id).collect();
    let after = all_arms(head.config)?;
    let changed = |arm: &Measured| !known.contains(&arm.name);
    let mut report = Report { arms: 0, changed: 0, by_row: 0, entries: Vec::new(), uncovered: Vec::new() };
    report.entries.resize_with(selection.entries.len(), EntryReport::default);
    let mut selected: HashSet<ArmId> = HashSet::new();
    for part in &selection.parts {
        for arm in measure(head.project, &part_arms(part), estimate)? {
            report.entries[part.entry].count(&arm, changed(&arm));
            selected.insert(arm.id);
        }
    }
    let measured = measure(head.project, &after, estimate)?;
    report.arms = measured.len();
    report.by_row = measured.iter().filter(|arm| arm.by_row()).count();
    report.changed = measured.iter().filter(|arm| changed(arm)).count();
    let evaluated = measure(head.project, &unselected_evals(head.config, &after, selection)?, estimate)?;
    let missed = measured.into_iter().filter(|arm| !selected.contains(&arm.id)).chain(evaluated);
    let throughput = |id: &ArmId| id.as_str().strip_suffix("-eval").map(|id| ArmId(id.into()));
    report.uncovered = missed
        .filter(changed)
        .map(|arm| {
            let base_id = if arm.eval { throughput(&arm.id) } else { None };
            Uncovered { new: !ids.contains(base_id.as_ref().unwrap_or(&arm.id)), arm }
        })
        .collect();
    Ok(report)
}

/// Every throughput arm of the masters.
///
/// # Errors
/// Rows that do not fit their runners.
pub fn all_arms(config: &Config) -> Result<Vec<Arm>, Diagnostics> {
    Ok(arms(&whole(config)?).arms)
}

fn whole(config: &Config) -> Result<Vec<MatrixRow>, Diagnostics> {
    expand(&config.entries, &config.runners, &Filter::Sweep(Sweep::default())).map_err(|error| match error {
        ExpandError::Rows(faults) => faults,
        ExpandError::Filter(error) => crate::config::diagnostic::Diagnostic::new(error.to_string()).into(),
    })
}

/// The arms of a part: of its rows' speed, or of their evaluation.
pub fn part_arms(part: &Part) -> Vec<Arm> {
    let mut found = arms(&part.rows).arms;
    found.retain(|arm| arm.eval == part.evals);
    found
}

/// The eval arms of every key and scenario whose evals no entry selects, each key judged alone.
fn unselected_evals(config: &Config, after: &[Arm], selection: &Selection) -> Result<Vec<Arm>, Diagnostics> {
    let mut covered: HashSet<(&ConfigKey, ScenarioType)> = HashSet::new();
    // Append-only entries have no evals, and want none.
    let settles = |part: &&Part| part.evals || selection.entries[part.entry].append_only;
    for part in selection.parts.iter().filter(settles) {
        covered.extend(part.keys.iter().flat_map(|key| part.scenarios.iter().map(move |kind| (key, *kind))));
    }
    // Keys that the selection leaves alone altogether are the common case: only they are expanded again.
    let open: BTreeSet<(&ConfigKey, ScenarioType)> = after
        .iter()
        .map(|arm| (&arm.row.entry.key, arm.row.scenario.kind()))
        .filter(|point| !covered.contains(point))
        .collect();
    let mut rows: HashMap<(ConfigKey, ScenarioType), Vec<MatrixRow>> = HashMap::new();
    for line in whole(config)? {
        let point = (line.row.entry.key.clone(), line.row.scenario.kind());
        if open.contains(&(&point.0, point.1)) {
            rows.entry(point).or_default().push(line);
        }
    }
    let mut found = Vec::new();
    for (key, kind) in open {
        let rows = rows.remove(&(key.clone(), kind)).unwrap_or_default();
        found.extend(arms(&evals::apply(rows, Evals::Only)).arms);
    }
    Ok(found)
}
