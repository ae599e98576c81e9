//! The entries that would have uncovered arms swept, as drafts: as narrow as entries can be.
//!
//! Keys with the same uncovered scenarios share an entry. Where only evals are uncovered it is an evals-only entry; where
//! uncovered arms are exactly the points that were added to curves, an append-only one, which leaves the others alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::append_only::Side;
use super::check::{Measurable, Uncovered, all_arms, part_arms};
use super::draft::Draft;
use super::select::{Options, Selection, select};
use crate::config::changelog::{ChangelogEntry, Pattern};
use crate::config::diagnostic::{Diagnostics, Place, Source};
use crate::config::topology::ScenarioType;
use crate::ids::{ArmId, ConfigKey};
use crate::matrix::arm::{Arm, Row};
use crate::matrix::evals::EvalMark;
use crate::matrix::expand::MatrixRow;
use crate::matrix::rows::JsonRow;
use crate::spec::diff::changes;

/// How many differences a description lists for a key.
const LISTED: usize = 3;

/// What is compared.
pub struct Context<'c> {
    /// The base revision.
    pub base: (&'c Measurable<'c>, &'c Side),
    /// What comes after it.
    pub head: (&'c Measurable<'c>, &'c Side),
    /// What its new entries select.
    pub selection: &'c Selection,
    /// The link of the pull request, or a pattern of it.
    pub pr_link: String,
}

/// Drafts of entries that select uncovered arms.
///
/// # Errors
/// Faults in recipes.
pub fn suggest(context: &Context<'_>, uncovered: &[Uncovered]) -> Result<Vec<Draft>, Diagnostics> {
    // Key → the scenarios whose throughput, and whose evals, are uncovered.
    let mut keys: BTreeMap<&ConfigKey, (BTreeSet<ScenarioType>, BTreeSet<ScenarioType>)> = BTreeMap::new();
    for Uncovered { arm, .. } in uncovered {
        let of = keys.entry(arm.key()).or_default();
        if arm.eval { &mut of.1 } else { &mut of.0 }.insert(arm.kind());
    }
    let before: Vec<Arm> = all_arms(context.base.0.config)?;
    let mut drafts: Vec<Draft> = Vec::new();
    for (key, (throughput, evals)) in keys {
        let evals_only = throughput.is_empty();
        let kinds = if evals_only { evals } else { throughput };
        let has = |kind: &ScenarioType| kinds_of(context, key).contains(kind);
        let every = ScenarioType::ALL.iter().filter(|kind| has(kind)).all(|kind| kinds.contains(kind));
        let scenario_type: Vec<ScenarioType> = if every { Vec::new() } else { kinds.into_iter().collect() };
        let description = description(context, key, uncovered, &before);
        let same = |draft: &&mut Draft| draft.evals_only == evals_only && draft.scenario_type == scenario_type;
        match drafts.iter_mut().find(same) {
            Some(draft) => {
                draft.config_keys.push(key.to_string());
                for line in description {
                    if !draft.description.contains(&line) {
                        draft.description.push(line);
                    }
                }
            }
            None => drafts.push(Draft {
                config_keys: vec![key.to_string()],
                scenario_type,
                description,
                pr_link: context.pr_link.clone(),
                evals_only,
                ..Draft::default()
            }),
        }
    }
    if appends(context, &drafts, uncovered) {
        drafts.retain(|draft| !draft.evals_only);
        drafts.iter_mut().for_each(|draft| draft.append_only = true);
    }
    Ok(drafts)
}

fn kinds_of(context: &Context<'_>, key: &ConfigKey) -> Vec<ScenarioType> {
    let entry = context.head.0.config.entry(key);
    let fixed = entry.is_some_and(|entry| !entry.fixed.is_empty()).then_some(ScenarioType::FixedSeqLen);
    let agentic = entry.is_some_and(|entry| !entry.agentic.is_empty()).then_some(ScenarioType::AgenticCoding);
    fixed.into_iter().chain(agentic).collect()
}

/// Whether the drafts would select exactly the uncovered throughput arms as append-only entries.
fn appends(context: &Context<'_>, drafts: &[Draft], uncovered: &[Uncovered]) -> bool {
    if context.selection.entries.iter().any(|entry| !entry.append_only) {
        return false;
    }
    let place = Place { source: Source::new("", ""), span: 0..0 };
    let entries = drafts.iter().filter(|draft| !draft.evals_only).map(|draft| ChangelogEntry {
        place: place.clone(),
        config_keys: draft.config_keys.iter().map(|key| Pattern { text: key.clone(), place: place.clone() }).collect(),
        description: Vec::new(),
        pr_link: String::new(),
        evals_only: false,
        all_evals: false,
        append_only: true,
        eval_min_prefill_ep: None,
        scenario_type: draft.scenario_type.clone(),
    });
    let entries: Vec<ChangelogEntry> = entries.chain(context.selection.entries.iter().cloned()).collect();
    let Ok(selection) = select(entries, context.head.1, Some(context.base.1), Options::default()) else { return false };
    let known: HashSet<ArmId> = context.selection.parts.iter().flat_map(part_arms).map(|arm| arm.id).collect();
    let selected: HashSet<ArmId> = selection.parts.iter().flat_map(part_arms).map(|arm| arm.id).collect();
    let wanted: HashSet<ArmId> =
        uncovered.iter().filter(|missed| !missed.arm.eval).map(|missed| missed.arm.id.clone()).collect();
    !wanted.is_empty() && selected.difference(&known).cloned().collect::<HashSet<_>>() == wanted
}

/// What changed of a key, in a few lines: the differences of its first changed arm, and how many arms are new.
fn description(context: &Context<'_>, key: &ConfigKey, uncovered: &[Uncovered], before: &[Arm]) -> Vec<String> {
    let mut lines = Vec::new();
    let of_key = || uncovered.iter().filter(|missed| missed.arm.key() == key);
    if let Some(Uncovered { arm, .. }) = of_key().find(|missed| !missed.new)
        && let Some(earlier) = before.iter().find(|earlier| {
            let id = arm.id.as_str();
            earlier.id.as_str() == if arm.eval { id.strip_suffix("-eval").unwrap_or(id) } else { id }
        })
    {
        let earlier = Arm { eval: arm.eval, ..earlier.clone() };
        let now = Arm { id: arm.id.clone(), row: Arc::clone(&arm.row), conc: arm.conc, eval: arm.eval };
        let job = |side: &Measurable<'_>, arm: &Arm| side.project.and_then(|project| project.job(arm).ok());
        let mut found = match (job(context.base.0, &earlier), job(context.head.0, &now)) {
            (Some(old), Some(new)) => {
                let value = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
                let found = changes(&value(old.spec.canonical()), &value(new.spec.canonical()));
                let line = |change: &crate::spec::diff::Change| {
                    let what = format!("{} {}", change.stage, change.what);
                    difference(what.trim(), change.old.as_deref(), change.new.as_deref())
                };
                found.iter().map(line).collect::<Vec<String>>()
            }
            _ => fields(&earlier.row, &arm.row),
        };
        if found.len() > LISTED {
            let more = found.len() - LISTED;
            found.truncate(LISTED);
            found.push(format!("{more} more inputs"));
        }
        lines.extend(found);
    }
    let new = of_key().filter(|missed| missed.new && !missed.arm.eval).count();
    if new > 0 {
        lines.push(format!("Add {new} {} of {key}", if new == 1 { "point" } else { "points" }));
    }
    if lines.is_empty() {
        lines.push(format!("Measure {key} again"));
    }
    lines
}

/// The fields of two rows that differ.
fn fields(old: &Arc<Row>, new: &Arc<Row>) -> Vec<String> {
    let value = |row: &Arc<Row>| {
        let line = MatrixRow { row: Arc::clone(row), concs: Vec::new(), exp_conc: 0, mark: EvalMark::default() };
        serde_json::to_value(JsonRow(&line)).unwrap_or_default()
    };
    let (old, new) = (value(old), value(new));
    let text = |side: &Value, name: &str| {
        side.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let empty = serde_json::Map::new();
    let names: BTreeSet<&String> =
        old.as_object().unwrap_or(&empty).keys().chain(new.as_object().unwrap_or(&empty).keys()).collect();
    let differ = names.into_iter().filter(|name| !matches!(name.as_str(), "conc" | "exp-name"));
    differ
        .map(|name| (name, text(&old, name), text(&new, name)))
        .filter(|(_, old, new)| old != new)
        .map(|(name, old, new)| difference(name, old.as_deref(), new.as_deref()))
        .collect()
}

fn difference(what: &str, old: Option<&str>, new: Option<&str>) -> String {
    match (old, new) {
        (Some(old), Some(new)) => format!("{what}: {} to {}", cut(old), cut(new)),
        (None, Some(new)) => format!("{what}: {}", cut(new)),
        (_, None) => format!("{what}: removed"),
    }
}

/// Long values and values of several lines show their start.
fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(80).collect();
    if short.len() == text.len() { short } else { format!("{short}…") }
}
