//! The labels of rows, from which arm ids are made: `KEY/SCENARIO/TOPOLOGY-KV[-SPEC][-rHEX]`.
//!
//! - SCENARIO: `agentic`, `8k1k`, `1k1k`, else `ISL_OSL`.
//! - TOPOLOGY of one engine: `tp8`, then where they differ from 1 or are said `-ep8`, `-dpa`, `-pp2`, `-dcp4`, `-pcp2`.
//!   Of two pools: `p1x8ep8dpa-d2x16ep16dpa`, engines × tp, then `epE` where it is not 1, `dpa`, `ppN`, `dcpN`, `pcpN`,
//!   and `.HARDWARE` where the pools name theirs.
//! - KV: the offload backend, or `resident`. SPEC: `mtp` or `draft_model`.
//! - `-rHEX`: the start of the row's hash, on every row of a key whose label another, different row of it would share
//!   (two pools that differ in a launcher setting, say). Rows that say the same share their label.
//!
//! An arm id appends `-cN`, `-eval` for an eval arm, and `@NODE` where a node filter replaced the runner.
//! Filters never change a label, but for `--max-ep`, which changes the row itself.

use std::fmt::Write;

use super::arm::{Scenario, SpecDecoding};
use crate::config::search_row::{KvOffloading, SearchRow};
use crate::config::topology::{Parallelism, Topology, Worker};
use crate::ids::ConfigKey;

/// A row's label without the part that tells it from others.
pub(super) fn stem(key: &ConfigKey, scenario: Scenario, row: &SearchRow) -> String {
    let mut label = format!("{key}/{}/", scenario.name());
    match &row.topology {
        Topology::Single(parallelism) => single(&mut label, *parallelism),
        Topology::Multi { prefill, decode } => {
            pool(&mut label, 'p', prefill);
            label.push('-');
            pool(&mut label, 'd', decode);
        }
    }
    label.push('-');
    match &row.kv_offloading {
        Some(KvOffloading::Dram(backend)) => label.push_str(&backend.name),
        Some(KvOffloading::None) | None => label.push_str("resident"),
    }
    if row.spec_decoding != SpecDecoding::None {
        label.push('-');
        label.push_str(row.spec_decoding.as_str());
    }
    label
}

// Writing to a String cannot fail.
fn single(label: &mut String, p: Parallelism) {
    let _ = write!(label, "tp{}", p.tp);
    if let Some(ep) = p.ep.filter(|ep| *ep != 1) {
        let _ = write!(label, "-ep{ep}");
    }
    if p.dp_attn == Some(true) {
        label.push_str("-dpa");
    }
    degrees(label, p, "-");
}

fn pool(label: &mut String, side: char, worker: &Worker) {
    let p = worker.parallelism;
    let _ = write!(label, "{side}{}x{}", worker.num_worker, p.tp);
    if let Some(ep) = p.ep.filter(|ep| *ep != 1) {
        let _ = write!(label, "ep{ep}");
    }
    if p.dp_attn == Some(true) {
        label.push_str("dpa");
    }
    degrees(label, p, "");
    if let Some(hardware) = &worker.hardware {
        let _ = write!(label, ".{hardware}");
    }
}

fn degrees(label: &mut String, p: Parallelism, separator: &str) {
    for (name, degree) in [("pp", p.pp), ("dcp", p.dcp), ("pcp", p.pcp)] {
        if degree != 1 {
            let _ = write!(label, "{separator}{name}{degree}");
        }
    }
}
