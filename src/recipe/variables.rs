//! What an arm is called in expressions.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::Value;

use crate::matrix::arm::{Arm, KvOffload, Scenario, Topology};

/// Seconds of measured load of an agentic arm.
pub const AGENTIC_DURATION_S: u64 = 3600;

/// The variables of every expression, beside the recipe's own `let` values. Absent things are `none`.
pub const NAMES: [&str; 25] = [
    "conc",
    "dcp",
    "dp_attn",
    "dram_gb",
    "duration",
    "ep",
    "eval",
    "framework",
    "gpu",
    "gpus",
    "isl",
    "kv_offload_backend",
    "kv_offloading",
    "model",
    "model_prefix",
    "osl",
    "pcp",
    "pp",
    "precision",
    "router",
    "runner",
    "scenario",
    "spec_decoding",
    "tp",
    "max_model_len",
];

/// The names alone.
pub fn names() -> BTreeSet<String> {
    NAMES.iter().map(|name| (*name).to_owned()).collect()
}

/// An arm's values. Multi-node rows have no single parallelism: there `tp` and its kin are those of the decode pool.
pub fn values(arm: &Arm) -> BTreeMap<&'static str, Value> {
    let (row, entry) = (&arm.row, &arm.row.entry);
    let parallelism = match &row.topology {
        Topology::Single(parallelism) => *parallelism,
        Topology::Multi { decode, .. } => decode.parallelism,
    };
    let none = || Value::from(());
    let (offloading, backend, dram_gb) = match &row.kv_offload {
        Some(KvOffload::Dram { backend, dram_gb }) => ("dram", Value::from(backend.name.as_str()), *dram_gb),
        _ => ("none", none(), 0),
    };
    let (scenario, isl, osl, duration, max_model_len) = match row.scenario {
        Scenario::AgenticCoding => ("agentic-coding", none(), none(), Value::from(AGENTIC_DURATION_S), none()),
        Scenario::FixedSeqLen { isl, osl } => {
            ("fixed-seq-len", isl.into(), osl.into(), none(), Value::from(u64::from(isl) + u64::from(osl) + 256))
        }
    };
    BTreeMap::from([
        ("conc", arm.conc.into()),
        ("dcp", parallelism.dcp.into()),
        ("dp_attn", parallelism.dp_attn.unwrap_or(false).into()),
        ("dram_gb", dram_gb.into()),
        ("duration", duration),
        ("ep", parallelism.ep.unwrap_or(1).into()),
        ("eval", arm.eval.into()),
        ("framework", entry.framework.as_str().into()),
        ("gpu", row.gpu().into()),
        ("gpus", parallelism.gpus().into()),
        ("isl", isl),
        ("kv_offload_backend", backend),
        ("kv_offloading", offloading.into()),
        ("max_model_len", max_model_len),
        ("model", entry.model.as_str().into()),
        ("model_prefix", entry.model_prefix.as_str().into()),
        ("osl", osl),
        ("pcp", parallelism.pcp.into()),
        ("pp", parallelism.pp.into()),
        ("precision", entry.precision.as_str().into()),
        ("router", row.router.as_ref().map_or_else(none, |router| router.name.as_str().into())),
        ("runner", row.runner.as_str().into()),
        ("scenario", scenario.into()),
        ("spec_decoding", row.spec_decoding.as_str().into()),
        ("tp", parallelism.tp.into()),
    ])
}
