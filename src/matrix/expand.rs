//! Entries → matrix rows: each search-space row at each concurrency and runner, in the order of the files.
//!
//! Per entry fixed-seq-len comes first, then agentic-coding. Single-node rows go by concurrency, then by runner;
//! multi-node rows by runner, and agentic ones then by concurrency (each is an allocation of its own).
//! What a row's arms share is one [`Row`] behind an `Arc`. Knows nothing of evals, ids beyond labels, or output.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use super::arm::{Entry, KvOffload, Row, Scenario};
use super::dram::budget_gb;
use super::evals::EvalMark;
use super::filter::{self, Common, Filter, FilterError, RowKind, ScenarioType};
use super::label;
use super::rows::row_hash;
use crate::config::diagnostic::Diagnostic;
use crate::config::fields::Faults;
use crate::config::master::MasterEntry;
use crate::config::runners::Runners;
use crate::config::search_row::{KvOffloading, SearchRow};
use crate::config::similar::{closest, listed};
use crate::config::topology::Topology;
use crate::config::utilization::Utilization;

/// One row of the matrix: what the field's tools schedule as one job.
#[derive(Debug, Clone)]
pub struct MatrixRow {
    /// What it is.
    pub row: Arc<Row>,
    /// Its concurrencies: several in a multi-node row, which measures them on one server.
    pub concs: Vec<u32>,
    /// The concurrency that names it: the first it had.
    pub exp_conc: u32,
    /// What evaluation makes of it.
    pub mark: EvalMark,
}

/// Why there is no matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The selection cannot be made.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Rows that do not fit their runners.
    #[error(transparent)]
    Rows(#[from] crate::config::diagnostic::Diagnostics),
}

/// Expands what a filter asks for.
///
/// # Errors
/// A selection that cannot be made; every row that offloads to dram on a runner without hardware facts, or that does
/// not fit its node.
pub fn expand(entries: &[MasterEntry], runners: &Runners, filter: &Filter) -> Result<Vec<MatrixRow>, ExpandError> {
    let chosen = filter.entries(entries, runners)?;
    let faults = Faults::default();
    let mut out = Vec::new();
    for entry in chosen {
        let values = filter.runners(&entry.runner, runners);
        if values.is_empty() {
            continue;
        }
        let shared = shared(entry, runners);
        let no_facts = Cell::new(false);
        Expansion { entry, shared, runners, values, filter, faults: &faults, no_facts }.run(&mut out);
    }
    Ok(faults.or(out)?)
}

fn shared(entry: &MasterEntry, runners: &Runners) -> Arc<Entry> {
    Arc::new(Entry {
        key: entry.key.clone(),
        place: entry.place.clone(),
        image: entry.image.clone(),
        image_place: entry.image_place.clone(),
        model: entry.model.clone(),
        model_prefix: entry.model_prefix.clone(),
        precision: entry.precision.clone(),
        framework: entry.framework.clone(),
        runner: entry.runner.clone(),
        multinode: entry.multinode,
        disagg: entry.disagg,
        hardware: runners.hardware(&entry.runner),
    })
}

/// One entry on its way.
struct Expansion<'a> {
    entry: &'a MasterEntry,
    shared: Arc<Entry>,
    runners: &'a Runners,
    values: Vec<String>,
    filter: &'a Filter,
    faults: &'a Faults,
    /// Whether the lack of hardware facts is noted: it is one fault, however many rows need them.
    no_facts: Cell<bool>,
}

/// A search-space row in its scenario.
struct Template {
    scenario: Scenario,
    utilization: Option<Utilization>,
    row: SearchRow,
    label: String,
}

impl Expansion<'_> {
    fn run(&self, out: &mut Vec<MatrixRow>) {
        let templates = self.templates();
        for template in &templates {
            let kind =
                RowKind { agentic: template.scenario == Scenario::AgenticCoding, multinode: self.entry.multinode };
            if !passes(self.filter.common(), template.scenario) {
                continue;
            }
            let Some(concs) = filter::concurrencies(self.filter, kind, &template.row.concurrency) else { continue };
            let Some(row) = self.row(template) else { continue };
            let rows: Vec<Arc<Row>> =
                self.values.iter().map(|runner| Arc::new(Row { runner: runner.clone(), ..row.clone() })).collect();
            let point = |row: &Arc<Row>, concs: Vec<u32>| MatrixRow {
                row: Arc::clone(row),
                exp_conc: concs.first().copied().unwrap_or_default(),
                concs,
                mark: EvalMark { run_eval: (!kind.agentic).then_some(false), ..EvalMark::default() },
            };
            match (kind.multinode, kind.agentic) {
                (false, _) => {
                    out.extend(
                        concs
                            .iter()
                            .flat_map(|conc| rows.iter().map(move |row| (row, *conc)))
                            .map(|(row, conc)| point(row, vec![conc])),
                    );
                }
                (true, true) => {
                    out.extend(
                        rows.iter()
                            .flat_map(|row| concs.iter().map(move |conc| (row, *conc)))
                            .map(|(row, conc)| point(row, vec![conc])),
                    );
                }
                (true, false) => out.extend(rows.iter().map(|row| point(row, concs.clone()))),
            }
        }
    }

    /// Every row of the entry that the degrees' bounds let through, labelled: labels do not depend on other filters.
    fn templates(&self) -> Vec<Template> {
        let fixed = self.entry.fixed.iter().flat_map(|item| {
            let scenario = Scenario::FixedSeqLen { isl: item.isl, osl: item.osl };
            item.search_space.iter().map(move |row| (scenario, None, row))
        });
        let agentic = self.entry.agentic.iter().flat_map(|item| {
            let utilization = item.dram_utilization.as_ref();
            item.search_space.iter().map(move |row| (Scenario::AgenticCoding, utilization, row))
        });
        let bounded = fixed.chain(agentic).filter_map(|(scenario, utilization, row)| {
            let kind = RowKind { agentic: scenario == Scenario::AgenticCoding, multinode: self.entry.multinode };
            let mut row = row.clone();
            if let Topology::Single(parallelism) = &mut row.topology {
                parallelism.ep = filter::degrees(self.filter, kind, parallelism.tp, parallelism.ep)?;
            }
            let label = label::stem(&self.entry.key, scenario, &row);
            Some(Template { scenario, utilization: utilization.cloned(), row, label })
        });
        let mut templates: Vec<Template> = bounded.collect();
        self.tell_apart(&mut templates);
        templates
    }

    /// Different rows with one label get the start of their hashes as well, long enough to differ.
    fn tell_apart(&self, templates: &mut [Template]) {
        let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, template) in templates.iter().enumerate() {
            groups.entry(template.label.clone()).or_default().push(index);
        }
        for members in groups.into_values().filter(|members| members.len() > 1) {
            let (quiet, noted) = (Faults::default(), self.no_facts.get());
            let hashes: Vec<String> =
                members.iter().map(|member| row_hash(&self.build(&templates[*member], &quiet)).0.hex()).collect();
            self.no_facts.set(noted);
            // Rows that say the same may share their arms.
            if hashes.iter().all(|hash| *hash == hashes[0]) {
                continue;
            }
            let differ = |length: usize| {
                hashes.iter().enumerate().all(|(index, hash)| {
                    hashes[..index].iter().all(|other| hash == other || hash[..length] != other[..length])
                })
            };
            let length = (4..64).find(|length| differ(*length)).unwrap_or(64);
            for (member, hash) in members.iter().zip(&hashes) {
                templates[*member].label.push_str(&format!("-r{}", &hash[..length]));
            }
        }
    }

    /// The row at the entry's label; nothing, and a fault, when it does not fit.
    fn row(&self, template: &Template) -> Option<Row> {
        let before = self.faults.len();
        let row = self.build(template, self.faults);
        (self.faults.len() == before).then_some(row)
    }

    fn build(&self, template: &Template, faults: &Faults) -> Row {
        let Template { scenario, utilization, row, label } = template;
        let kv_offload = match (&row.kv_offloading, scenario) {
            (Some(KvOffloading::Dram(backend)), _) => {
                let dram_gb = self.budget(row, utilization.as_ref(), faults).unwrap_or(0);
                Some(KvOffload::Dram { backend: backend.clone(), dram_gb })
            }
            (_, Scenario::AgenticCoding) => Some(KvOffload::Resident),
            (_, Scenario::FixedSeqLen { .. }) => None,
        };
        Row {
            label: label.as_str().into(),
            place: row.place.clone(),
            entry: Arc::clone(&self.shared),
            runner: self.entry.runner.clone(),
            scenario: *scenario,
            topology: row.topology.clone(),
            spec_decoding: row.spec_decoding,
            kv_offload,
            router: row.router.clone().or_else(|| self.entry.router.clone()),
            kv_p2p_transfer: row.kv_p2p_transfer.clone().or_else(|| self.entry.kv_p2p_transfer.clone()),
            concs: filter::steps(&row.concurrency, self.filter.step_size()),
        }
    }

    /// Nothing, and a fault, for a row that does not fit or whose runner is unknown.
    fn budget(&self, row: &SearchRow, utilization: Option<&Utilization>, faults: &Faults) -> Option<u64> {
        let runner = &self.entry.runner;
        let Some(hardware) = self.shared.hardware else {
            if !self.no_facts.replace(true) {
                faults.push(self.lacks_facts(row));
            }
            return None;
        };
        // The master's reader has made sure of the utilization.
        budget_gb(&row.topology, hardware, utilization?, runner, &row.place).map_err(|fault| faults.push(fault)).ok()
    }

    fn lacks_facts(&self, row: &SearchRow) -> Diagnostic {
        let runner = &self.entry.runner;
        let known = || self.runners.with_hardware();
        let near = closest(runner, known()).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        Diagnostic::at(
            &self.entry.runner_place,
            format!("no hardware facts of `{runner}`: how much memory has a node?"),
        )
        .label("no such label under `hardware:`")
        .related(&row.place, "this row offloads to dram")
        .help(format!("{near}the runners file has facts of {}", listed(known(), 24)))
    }
}

fn passes(common: &Common, scenario: Scenario) -> bool {
    let kind = match scenario {
        Scenario::FixedSeqLen { .. } => ScenarioType::FixedSeqLen,
        Scenario::AgenticCoding => ScenarioType::AgenticCoding,
    };
    let lengths = kind == ScenarioType::AgenticCoding
        || common.seq_lens.is_empty()
        || common.seq_lens.iter().any(|name| *name == scenario.name());
    lengths && (common.scenarios.is_empty() || common.scenarios.contains(&kind))
}
