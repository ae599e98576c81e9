//! A selection as JSON: the fields, values and order that the field's own tools print and read.
//!
//! Rows are complete: what a row does not say has its default, and throughput rows end with their recipe fingerprint,
//! the hash of the row.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::select::Selection;
use crate::config::changelog::ChangelogEntry;
use crate::config::topology::{Topology, Worker};
use crate::git::Oid;
use crate::matrix::arm::{KvOffload, Row, Scenario};
use crate::matrix::expand::MatrixRow;
use crate::matrix::rows::{AGENTIC_DURATION_S, Named, exp_name, max_model_len, optional, row_hash};

/// A selection and the revisions between which it was made.
#[derive(Debug, Clone, Copy)]
pub struct SelectionJson<'a> {
    /// What was selected.
    pub selection: &'a Selection,
    /// The revision before the entries.
    pub base: &'a Oid,
    /// The revision with them.
    pub head: &'a Oid,
}

impl Serialize for SelectionJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let multi = |line: &&MatrixRow| matches!(line.row.topology, Topology::Multi { .. });
        let agentic = |line: &&MatrixRow| line.row.scenario == Scenario::AgenticCoding;
        let measured: Vec<&MatrixRow> = self.selection.rows(false).collect();
        let evaluated: Vec<&MatrixRow> = self.selection.rows(true).collect();
        let buckets = |many: bool| Buckets(measured.iter().copied().filter(|line| multi(line) == many).collect());
        let evals = |many: bool, sessions: bool| {
            let chosen = evaluated.iter().copied().filter(|line| multi(line) == many && agentic(line) == sessions);
            chosen.map(|line| Completed { line, measured: false }).collect::<Vec<_>>()
        };
        let mut map = serializer.serialize_map(Some(7))?;
        map.serialize_entry("single_node", &buckets(false))?;
        map.serialize_entry("multi_node", &buckets(true))?;
        map.serialize_entry("evals", &evals(false, false))?;
        map.serialize_entry("agentic_evals", &evals(false, true))?;
        map.serialize_entry("multinode_evals", &evals(true, false))?;
        map.serialize_entry("multinode_agentic_evals", &evals(true, true))?;
        map.serialize_entry("changelog_metadata", &Metadata(*self))?;
        map.end()
    }
}

/// Rows by the name of their sequence lengths, or `agentic`, in the order of first rows.
struct Buckets<'a>(Vec<&'a MatrixRow>);

impl Serialize for Buckets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut names: Vec<String> = Vec::new();
        for line in &self.0 {
            let name = line.row.scenario.name();
            if !names.iter().any(|known| *known == name) {
                names.push(name.into_owned());
            }
        }
        let mut map = serializer.serialize_map(Some(names.len()))?;
        for name in names {
            let rows = self.0.iter().filter(|line| line.row.scenario.name() == name);
            map.serialize_entry(&name, &rows.map(|line| Completed { line, measured: true }).collect::<Vec<_>>())?;
        }
        map.end()
    }
}

struct Metadata<'a>(SelectionJson<'a>);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("base_ref", self.0.base.as_str())?;
        map.serialize_entry("head_ref", self.0.head.as_str())?;
        map.serialize_entry("entries", &self.0.selection.entries.iter().map(EntryJson).collect::<Vec<_>>())?;
        map.end()
    }
}

/// An entry of a changelog; the three flags are always shown.
#[derive(Debug, Clone, Copy)]
pub struct EntryJson<'a>(pub &'a ChangelogEntry);

impl Serialize for EntryJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = self.0;
        let mut map = serializer.serialize_map(None)?;
        let keys: Vec<&str> = entry.config_keys.iter().map(|key| key.text.as_str()).collect();
        map.serialize_entry("config-keys", &keys)?;
        map.serialize_entry("description", &entry.description)?;
        map.serialize_entry("pr-link", &entry.pr_link)?;
        map.serialize_entry("evals-only", &entry.evals_only)?;
        map.serialize_entry("all-evals", &entry.all_evals)?;
        map.serialize_entry("append-only", &entry.append_only)?;
        optional(&mut map, "eval-min-prefill-ep", entry.eval_min_prefill_ep)?;
        let kinds: Vec<&str> = entry.scenario_type.iter().map(|kind| kind.word()).collect();
        optional(&mut map, "scenario-type", (!kinds.is_empty()).then_some(kinds))?;
        map.end()
    }
}

/// A row with every field that its kind has.
struct Completed<'a> {
    line: &'a MatrixRow,
    /// Whether it is a throughput row, which carries the fingerprint.
    measured: bool,
}

impl Serialize for Completed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let row = &self.line.row;
        for (name, text) in [
            ("image", &row.entry.image),
            ("model", &row.entry.model),
            ("model-prefix", &row.entry.model_prefix),
            ("precision", &row.entry.precision),
            ("framework", &row.entry.framework),
        ] {
            map.serialize_entry(name, text)?;
        }
        match row.scenario {
            Scenario::FixedSeqLen { isl, osl } => self.fixed(&mut map, isl, osl)?,
            Scenario::AgenticCoding => self.agentic(&mut map)?,
        }
        if self.measured {
            map.serialize_entry("recipe-fingerprint", &row_hash(row).0.hex())?;
        }
        map.end()
    }
}

impl Completed<'_> {
    fn fixed<M: SerializeMap>(&self, map: &mut M, isl: u32, osl: u32) -> Result<(), M::Error> {
        let MatrixRow { row, mark, .. } = self.line;
        map.serialize_entry("spec-decoding", row.spec_decoding.as_str())?;
        map.serialize_entry("runner", &row.runner)?;
        map.serialize_entry("isl", &isl)?;
        map.serialize_entry("osl", &osl)?;
        let multi = matches!(row.topology, Topology::Multi { .. });
        topology(map, row)?;
        self.conc(map)?;
        map.serialize_entry("max-model-len", &max_model_len(isl, osl))?;
        map.serialize_entry("exp-name", &exp_name(row, self.line.exp_conc))?;
        map.serialize_entry("disagg", &row.entry.disagg)?;
        map.serialize_entry("run-eval", &mark.run_eval.unwrap_or(false))?;
        map.serialize_entry("eval-only", &mark.eval_only)?;
        if multi {
            optional(map, "eval-conc", mark.eval_conc)?;
            map.serialize_entry("eval-all-concs", &mark.eval_all_concs)?;
        }
        router(map, row)?;
        optional(map, "kv-p2p-transfer", row.kv_p2p_transfer.as_ref())
    }

    fn agentic<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let MatrixRow { row, mark, .. } = self.line;
        let multi = matches!(row.topology, Topology::Multi { .. });
        if multi {
            map.serialize_entry("spec-decoding", row.spec_decoding.as_str())?;
        }
        map.serialize_entry("runner", &row.runner)?;
        topology(map, row)?;
        if !multi {
            map.serialize_entry("spec-decoding", row.spec_decoding.as_str())?;
        }
        self.conc(map)?;
        let (kind, dram_gb, backend) = match &row.kv_offload {
            Some(KvOffload::Dram { backend, dram_gb }) => ("dram", *dram_gb, Some(backend)),
            Some(KvOffload::Resident) | None => ("none", 0, None),
        };
        map.serialize_entry("kv-offloading", kind)?;
        let backend = backend.map(|backend| Named(&backend.name, backend.version.as_deref()));
        optional(map, "kv-offload-backend", backend)?;
        router(map, row)?;
        optional(map, "kv-p2p-transfer", row.kv_p2p_transfer.as_ref())?;
        map.serialize_entry("total-cpu-dram-gb", &dram_gb)?;
        map.serialize_entry("duration", &AGENTIC_DURATION_S)?;
        map.serialize_entry("exp-name", &exp_name(row, self.line.exp_conc))?;
        if multi {
            map.serialize_entry("disagg", &row.entry.disagg)?;
        }
        map.serialize_entry("scenario-type", row.scenario.word())?;
        if !self.measured {
            map.serialize_entry("run-eval", &mark.run_eval.unwrap_or(false))?;
            map.serialize_entry("eval-only", &mark.eval_only)?;
            optional(map, "eval-conc", mark.eval_conc)?;
        }
        Ok(())
    }

    /// A number in a single-node row, a list in a multi-node one.
    fn conc<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match &self.line.row.topology {
            Topology::Single(_) => map.serialize_entry("conc", &self.line.exp_conc),
            Topology::Multi { .. } => map.serialize_entry("conc", &self.line.concs),
        }
    }
}

fn topology<M: SerializeMap>(map: &mut M, row: &Row) -> Result<(), M::Error> {
    match &row.topology {
        Topology::Single(p) => {
            for (name, degree) in [("tp", p.tp), ("pp", p.pp), ("dcp-size", p.dcp), ("pcp-size", p.pcp)] {
                map.serialize_entry(name, &degree)?;
            }
            map.serialize_entry("ep", &p.ep.unwrap_or(1))?;
            map.serialize_entry("dp-attn", &p.dp_attn.unwrap_or(false))
        }
        Topology::Multi { prefill, decode } => {
            map.serialize_entry("prefill", &Pool(prefill))?;
            map.serialize_entry("decode", &Pool(decode))
        }
    }
}

fn router<M: SerializeMap>(map: &mut M, row: &Row) -> Result<(), M::Error> {
    optional(map, "router", row.router.as_ref().map(|router| Named(&router.name, Some(&router.version))))
}

/// A worker block with every field.
struct Pool<'a>(&'a Worker);

impl Serialize for Pool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (worker, p) = (self.0, self.0.parallelism);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("num-worker", &worker.num_worker)?;
        for (name, degree) in [("tp", p.tp), ("pp", p.pp), ("dcp-size", p.dcp), ("pcp-size", p.pcp)] {
            map.serialize_entry(name, &degree)?;
        }
        optional(&mut map, "ep", p.ep)?;
        optional(&mut map, "dp-attn", p.dp_attn)?;
        optional(&mut map, "hardware", worker.hardware.as_ref())?;
        map.serialize_entry("additional-settings", worker.additional_settings.as_deref().unwrap_or_default())?;
        map.end()
    }
}
