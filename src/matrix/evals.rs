//! Which rows are evaluated: answers scored besides, or instead of, speed measured.
//!
//! - Only fixed rows of 8192/1024 tokens (`8k1k`) and agentic rows are ever evaluated; agentic rows only on demand.
//! - Single-node 8k1k: over the rows of at least 16 concurrent requests with the same model, runner, framework,
//!   precision, spec-decoding and dp-attn, whatever their key, those at the highest and at the median concurrency (the
//!   element n/2 of the sorted distinct values).
//! - Multi-node 8k1k: of rows alike in everything but concurrency, the first that holds their highest concurrency, if
//!   that is at least 16: at that concurrency.
//! - Agentic, on demand, single-node: of each model, runner, framework and precision, the first row at the highest
//!   concurrency, whatever it is. Multi-node: as multi-node 8k1k.
//! - [`Evals::All`]: every 8k1k and every agentic row. Multi-node rows alike in everything but concurrency merge into
//!   the first of them, with the sorted union of concurrencies: an 8k1k one is evaluated at all of them, an agentic one
//!   at the highest.
//!
//! Publishing a result whose required eval is missing or failed is refused by what publishes; it asks
//! [`EvalMark::run_eval`].

use std::collections::HashMap;

use super::arm::{Row, Scenario, SpecDecoding, Topology};
use super::expand::MatrixRow;
use super::rows::row_hash;
use crate::ids::RowHash;

/// The least concurrency at which a fixed or multi-node row is worth evaluating.
const MIN_CONC: u32 = 16;

/// How far evaluation goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Evals {
    /// Rows that the policy picks are marked; agentic ones are not.
    #[default]
    Marked,
    /// No row is marked.
    None,
    /// Rows that the policy picks, agentic ones too, and no others.
    Only,
    /// Every row that can be evaluated, and no others.
    All,
}

/// What evaluation makes of one matrix row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvalMark {
    /// Whether the row is evaluated; nothing where nobody asked.
    pub run_eval: Option<bool>,
    /// The concurrency at which a multi-node row is evaluated.
    pub eval_conc: Option<u32>,
    /// Whether a multi-node row is evaluated at all its concurrencies.
    pub eval_all_concs: bool,
    /// Whether speed is not measured.
    pub eval_only: bool,
}

/// Applies the policy.
pub fn apply(mut rows: Vec<MatrixRow>, evals: Evals) -> Vec<MatrixRow> {
    if evals == Evals::None {
        return rows;
    }
    for row in &mut rows {
        row.mark.run_eval = Some(false);
    }
    match evals {
        Evals::None => {}
        Evals::Marked => mark_fixed(&mut rows),
        Evals::Only => {
            mark_fixed(&mut rows);
            mark_agentic(&mut rows);
        }
        Evals::All => rows = merge_all(rows),
    }
    if matches!(evals, Evals::Only | Evals::All) {
        rows.retain(|row| row.mark.run_eval == Some(true));
        for row in &mut rows {
            row.mark.eval_only = true;
        }
    }
    rows
}

fn is_8k1k(row: &Row) -> bool {
    row.scenario == Scenario::FixedSeqLen { isl: 8192, osl: 1024 }
}

fn is_single(row: &Row) -> bool {
    matches!(row.topology, Topology::Single(_))
}

fn mark_fixed(rows: &mut [MatrixRow]) {
    let mut groups: HashMap<SpeedGroup, Vec<usize>> = HashMap::new();
    for (index, line) in rows.iter().enumerate().filter(|(_, line)| is_8k1k(&line.row) && line.exp_conc >= MIN_CONC) {
        if let Topology::Single(parallelism) = &line.row.topology {
            let dp_attn = parallelism.dp_attn.unwrap_or(false);
            groups.entry(SpeedGroup::of(&line.row, dp_attn)).or_default().push(index);
        }
    }
    for members in groups.into_values() {
        let mut concs: Vec<u32> = members.iter().map(|index| rows[*index].exp_conc).collect();
        concs.sort_unstable();
        concs.dedup();
        let picked = [concs.last().copied(), concs.get(concs.len() / 2).copied()];
        for index in members {
            if picked.contains(&Some(rows[index].exp_conc)) {
                rows[index].mark.run_eval = Some(true);
            }
        }
    }
    mark_highest_of_alike(rows, is_8k1k);
}

#[derive(PartialEq, Eq, Hash)]
struct SpeedGroup {
    model: String,
    runner: String,
    framework: String,
    precision: String,
    spec_decoding: SpecDecoding,
    dp_attn: bool,
}

impl SpeedGroup {
    fn of(row: &Row, dp_attn: bool) -> Self {
        Self {
            model: row.entry.model.clone(),
            runner: row.runner.clone(),
            framework: row.entry.framework.clone(),
            precision: row.entry.precision.clone(),
            spec_decoding: row.spec_decoding,
            dp_attn,
        }
    }
}

/// Of multi-node rows alike but for concurrency, the first that holds the highest of at least 16.
fn mark_highest_of_alike(rows: &mut [MatrixRow], chosen: fn(&Row) -> bool) {
    let mut best: HashMap<RowHash, (u32, usize)> = HashMap::new();
    for (index, line) in rows.iter().enumerate().filter(|(_, line)| !is_single(&line.row) && chosen(&line.row)) {
        let Some(highest) = line.concs.iter().copied().max().filter(|conc| *conc >= MIN_CONC) else { continue };
        let slot = best.entry(row_hash(&line.row)).or_insert((highest, index));
        if highest > slot.0 {
            *slot = (highest, index);
        }
    }
    for (conc, index) in best.into_values() {
        rows[index].mark.run_eval = Some(true);
        rows[index].mark.eval_conc = Some(conc);
    }
}

fn mark_agentic(rows: &mut [MatrixRow]) {
    let agentic = |row: &Row| row.scenario == Scenario::AgenticCoding;
    let mut best: HashMap<[String; 4], (u32, usize)> = HashMap::new();
    for (index, line) in rows.iter().enumerate().filter(|(_, line)| agentic(&line.row) && is_single(&line.row)) {
        let entry = &line.row.entry;
        let group = [&entry.model, &line.row.runner, &entry.framework, &entry.precision].map(String::clone);
        let slot = best.entry(group).or_insert((line.exp_conc, index));
        if line.exp_conc > slot.0 {
            *slot = (line.exp_conc, index);
        }
    }
    for (_, index) in best.into_values() {
        rows[index].mark.run_eval = Some(true);
    }
    mark_highest_of_alike(rows, agentic);
}

fn merge_all(rows: Vec<MatrixRow>) -> Vec<MatrixRow> {
    let mut merged: Vec<MatrixRow> = Vec::with_capacity(rows.len());
    let mut first: HashMap<RowHash, usize> = HashMap::new();
    for mut line in rows {
        let agentic = line.row.scenario == Scenario::AgenticCoding;
        if !agentic && !is_8k1k(&line.row) {
            merged.push(line);
            continue;
        }
        line.mark.run_eval = Some(true);
        if is_single(&line.row) {
            merged.push(line);
            continue;
        }
        let index = *first.entry(row_hash(&line.row)).or_insert(merged.len());
        match merged.get_mut(index) {
            Some(earlier) => earlier.concs.append(&mut line.concs),
            None => merged.push(line),
        }
        let line = &mut merged[index];
        line.concs.sort_unstable();
        line.concs.dedup();
        line.mark.eval_all_concs = !agentic;
        line.mark.eval_conc = if agentic { line.concs.last().copied() } else { None };
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::super::arms::arms;
    use super::super::tests::{MULTI, rows};
    use super::*;

    const SINGLE: &str = "
m-a: &a
  image: org/engine:1
  model: org/m
  model-prefix: m
  precision: fp4
  framework: vllm
  runner: cluster:b200-dgxc
  multinode: false
  scenarios:
    fixed-seq-len:
    - { isl: 8192, osl: 1024, search-space: [{ tp: 8, conc-list: [4, 16, 32, 64] }, { tp: 4, conc-list: [64] }] }
    - { isl: 1024, osl: 1024, search-space: [{ tp: 8, conc-list: [64] }] }
    agentic-coding:
    - search-space: [{ tp: 8, kv-offloading: none, conc-list: [1, 8] }, { tp: 4, kv-offloading: none, conc-list: [8] }]
m-b:
  <<: *a
  scenarios: { fixed-seq-len: [{ isl: 8192, osl: 1024, search-space: [{ tp: 2, conc-list: [128, 8] }] }] }
";

    /// `LABEL cCONCS[ at CONC][ all]` of the rows that are evaluated.
    fn evaluated(text: &str, evals: Evals) -> Vec<String> {
        let rows = apply(rows(text), evals);
        let marked = rows.iter().filter(|line| line.mark.run_eval == Some(true));
        let text = marked.map(|line| {
            let at = line.mark.eval_conc.map(|conc| format!(" at {conc}")).unwrap_or_default();
            let all = if line.mark.eval_all_concs { " all" } else { "" };
            let label = match line.row.label.rsplit_once("-r") {
                Some((label, hash)) if hash.len() == 4 => label,
                _ => &line.row.label,
            };
            format!("{label} {:?}{at}{all}", line.concs)
        });
        text.collect()
    }

    #[test]
    fn the_highest_and_the_median_of_a_group_that_reaches_across_keys() {
        // At least 16: 16, 32, 64, 64, 128. Distinct 16, 32, 64, 128: the highest 128, the median 64.
        assert_eq!(
            evaluated(SINGLE, Evals::Marked),
            ["m-a/8k1k/tp8-resident [64]", "m-a/8k1k/tp4-resident [64]", "m-b/8k1k/tp2-resident [128]"]
        );
    }

    #[test]
    fn agentic_rows_on_demand_the_first_of_the_highest() {
        let only = evaluated(SINGLE, Evals::Only);
        assert_eq!(only.len(), 4);
        assert_eq!(only[2], "m-a/agentic/tp8-resident [8]");
    }

    #[test]
    fn multi_node_rows_at_their_highest() {
        assert_eq!(
            evaluated(MULTI, Evals::Only),
            [
                "m-multi/8k1k/p1x4ep4dpa-d2x8pp2-resident [16, 64] at 64",
                "m-multi/8k1k/p1x4ep4dpa-d2x8pp2-resident [32, 128] at 128",
                "m-multi/agentic/p1x4ep4dpa-d0x4ep4dpa-resident [32] at 32",
            ]
        );
    }

    #[test]
    fn all_merges_rows_alike() {
        assert_eq!(
            evaluated(MULTI, Evals::All),
            [
                "m-multi/8k1k/p1x4ep4dpa-d2x8pp2-resident [16, 32, 128] all",
                "m-multi/8k1k/p1x4ep4dpa-d2x8pp2-resident [16, 64] all",
                "m-multi/agentic/p1x4ep4dpa-d0x4ep4dpa-resident [4, 32] at 32",
            ]
        );
        let arms = arms(&apply(rows(MULTI), Evals::All)).arms;
        assert_eq!(arms.len(), 3 + 2 + 1);
        assert!(arms.iter().all(|arm| arm.eval && arm.id.as_str().ends_with("-eval")));
    }

    #[test]
    fn a_marked_row_is_a_throughput_arm_and_an_eval_arm() {
        let arms = arms(&apply(rows(SINGLE), Evals::Marked)).arms;
        assert_eq!(arms.iter().filter(|arm| arm.eval).count(), 3);
        assert_eq!(arms.iter().filter(|arm| !arm.eval).count(), 11);
        assert_eq!(super::super::arms::arms(&apply(rows(SINGLE), Evals::None)).arms.len(), 11);
    }
}
