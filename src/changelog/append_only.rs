//! Append-only entries: points were added to existing curves, and nothing else in the masters changed.
//!
//! The keys exist at base. Outside the scenarios that the entries name for them, no value of the masters differs, nor
//! does a field of an entry that another scenario shares. Every point at base (a row without its concurrency, at a
//! concurrency) is there at head. What is new is the selection: each point once, multi-node rows with their new
//! concurrencies alone. It is not empty, and each new row lies on a visual curve of the base rows, the rows of one
//! `curve`, whose one image is its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::select::{Group, Part, part, rows};
use super::unchanged::unchanged;
use crate::config::changelog::ChangelogEntry;
use crate::config::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::config::inputs::Inputs;
use crate::config::load::{Config, FOLDER, MASTER_SUFFIX};
use crate::config::topology::{ScenarioType, Topology};
use crate::ids::{ConfigKey, RowHash};
use crate::matrix::arm::{KvOffload, Row, Scenario};
use crate::matrix::expand::MatrixRow;
use crate::matrix::rows::row_hash;

/// The masters and runners of one side of a comparison.
#[derive(Debug, Clone)]
pub struct Side {
    /// As typed entries.
    pub config: Config,
    /// The masters as texts.
    pub masters: Vec<Arc<Source>>,
}

impl Side {
    /// The side that a snapshot holds.
    ///
    /// # Errors
    /// Every fault of the masters and the runners file.
    pub fn of(inputs: &Inputs) -> Result<Self, Diagnostics> {
        let masters = inputs.in_folder(FOLDER, MASTER_SUFFIX).map(|(_, source)| Arc::clone(source)).collect();
        Ok(Self { config: Config::of(inputs)?, masters })
    }
}

/// The scenarios that entries select of each key.
pub(super) type Selected = BTreeMap<ConfigKey, BTreeSet<ScenarioType>>;

/// What append-only entries select: for each entry, its groups.
pub(super) fn added(
    entries: &[ChangelogEntry],
    groups: &[Vec<Group<'_>>],
    head: &Side,
    base: Option<&Side>,
) -> Result<Vec<Part>, Diagnostics> {
    let Some(base) = base else {
        return Err(Diagnostic::new("append-only entries need the masters of the base revision").into());
    };
    let mut faults = Diagnostics::default();
    let mut selected = Selected::new();
    for group in groups.iter().flatten() {
        for member in &group.members {
            selected.entry(member.key.clone()).or_default().extend(&group.scenarios);
        }
    }
    faults.absorb(unchanged(base, head, &selected));
    let mut parts = Vec::new();
    for (index, (entry, groups)) in entries.iter().zip(groups).enumerate() {
        faults.absorb(entry_parts(index, entry, groups, head, base).map(|found| parts.extend(found)));
    }
    faults.or(parts)
}

/// What one entry selects.
fn entry_parts(
    index: usize,
    entry: &ChangelogEntry,
    groups: &[Group<'_>],
    head: &Side,
    base: &Side,
) -> Result<Vec<Part>, Diagnostics> {
    let mut faults = Diagnostics::default();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for group in groups {
        let mut members = Vec::new();
        for member in &group.members {
            match base.config.entry(&member.key) {
                Some(earlier) => members.push(earlier),
                None => faults.push(
                    Diagnostic::at(&entry.place, format!("append-only, but `{}` is new", member.key))
                        .label("this entry")
                        .related(&member.place, "not in the masters of the base revision")
                        .help("remove `append-only`: a new key is measured as a whole"),
                ),
            }
        }
        let earlier = Group { members, scenarios: group.scenarios.clone() };
        before.extend(faults.absorb(rows(&earlier, &base.config)).unwrap_or_default());
        after.push(faults.absorb(rows(group, &head.config)).unwrap_or_default());
    }
    if !faults.0.is_empty() {
        return Err(faults);
    }
    still_there(entry, &before, &after, &mut faults);
    let curves = curves(&before);
    let mut known: HashSet<(RowHash, u32)> = points(&before).collect();
    let mut parts = Vec::new();
    for (group, rows) in groups.iter().zip(after) {
        let new: Vec<MatrixRow> = rows.into_iter().filter_map(|line| new_points(line, &mut known)).collect();
        for line in &new {
            faults.0.extend(off_curve(entry, &line.row, &curves));
        }
        parts.push(part(index, false, group.clone(), new));
    }
    if faults.0.is_empty() && !groups.is_empty() && parts.iter().all(|part| part.rows.is_empty()) {
        faults.push(
            Diagnostic::at(&entry.place, "append-only, but no point was added")
                .label("this entry")
                .help("add concurrencies or rows to its keys, or remove `append-only` to measure them again"),
        );
    }
    // Rows of one search-space row at several concurrencies have one fault.
    let mut said = Vec::new();
    faults.0.retain(|fault| {
        let new = !said.contains(fault);
        said.push(fault.clone());
        new
    });
    faults.or(parts)
}

fn points(lines: &[MatrixRow]) -> impl Iterator<Item = (RowHash, u32)> + '_ {
    lines.iter().flat_map(|line| {
        let hash = row_hash(&line.row);
        line.concs.iter().map(move |conc| (hash, *conc))
    })
}

/// The row with the concurrencies that are not known yet, which now are; nothing when all were.
fn new_points(line: MatrixRow, known: &mut HashSet<(RowHash, u32)>) -> Option<MatrixRow> {
    let hash = row_hash(&line.row);
    let concs: Vec<u32> = line.concs.iter().copied().filter(|conc| known.insert((hash, *conc))).collect();
    let exp_conc = *concs.first()?;
    Some(MatrixRow { concs, exp_conc, ..line })
}

/// Notes the points at base that head does not have.
fn still_there(entry: &ChangelogEntry, before: &[MatrixRow], after: &[Vec<MatrixRow>], faults: &mut Diagnostics) {
    let after: HashSet<(RowHash, u32)> = after.iter().flat_map(|lines| points(lines)).collect();
    let hashes: HashSet<RowHash> = after.iter().map(|(hash, _)| *hash).collect();
    let mut gone: Vec<(RowHash, &Row, Vec<u32>)> = Vec::new();
    for line in before {
        let hash = row_hash(&line.row);
        let missing: Vec<u32> = line.concs.iter().copied().filter(|conc| !after.contains(&(hash, *conc))).collect();
        match gone.iter_mut().find(|(known, _, _)| *known == hash) {
            _ if missing.is_empty() => {}
            Some((_, _, concs)) => concs.extend(missing),
            None => gone.push((hash, &line.row, missing)),
        }
    }
    for (hash, row, concs) in gone {
        let concs: Vec<String> = concs.iter().map(u32::to_string).collect();
        let (message, label) = if hashes.contains(&hash) {
            ("append-only, but points are gone", format!("concurrency {} is gone", concs.join(", ")))
        } else {
            ("append-only, but a row is gone or changed", "as it was at base".to_owned())
        };
        faults.push(
            Diagnostic::at(&row.place, message)
                .label(label)
                .related(&entry.place, "this entry")
                .help("restore it, or remove `append-only` to measure the keys again"),
        );
    }
}

/// The images of each curve.
fn curves(before: &[MatrixRow]) -> HashMap<String, BTreeSet<String>> {
    let mut curves: HashMap<String, BTreeSet<String>> = HashMap::new();
    for line in before {
        curves.entry(curve(&line.row)).or_default().insert(line.row.entry.image.clone());
    }
    curves
}

/// What the points of one visual curve have in common: model, prefix, precision, framework, runner, disagg, the
/// scenario with its lengths, offloading or not, spec-decoding in fixed rows, the hardware of both pools.
fn curve(row: &Row) -> String {
    let entry = &row.entry;
    let offload = matches!(row.kv_offload, Some(KvOffload::Dram { .. }));
    let scenario = match row.scenario {
        Scenario::AgenticCoding => "agentic".to_owned(),
        Scenario::FixedSeqLen { isl, osl } => format!("{isl} {osl} {}", row.spec_decoding.as_str()),
    };
    let hardware = match &row.topology {
        Topology::Single(_) => None,
        Topology::Multi { prefill, decode } => Some((&prefill.hardware, &decode.hardware)),
    };
    let texts = [&entry.model, &entry.model_prefix, &entry.precision, &entry.framework, &row.runner];
    format!("{texts:?} {} {scenario} {offload} {hardware:?}", entry.disagg)
}

/// The fault of a new row that extends no curve of one image, its own.
fn off_curve(entry: &ChangelogEntry, row: &Row, curves: &HashMap<String, BTreeSet<String>>) -> Option<Diagnostic> {
    let images = curves.get(&curve(row));
    let why = match images {
        None => "append-only, but this row starts a curve",
        Some(images) if images.len() > 1 => "append-only, but the curve of this row has several images",
        Some(images) if !images.contains(&row.entry.image) => {
            "append-only, but the curve of this row has another image"
        }
        Some(_) => return None,
    };
    let mut label = format!("{} {}", row.scenario.name(), row.runner);
    if let Some(images) = images {
        label = format!("its curve: {}", images.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    }
    Some(
        Diagnostic::at(&row.place, why)
            .label(label)
            .related(&entry.place, "this entry")
            .help("only points of existing curves are appended; remove `append-only` to measure the keys again"),
    )
}
