//! The matrix as JSON rows: the fields, values and order that the field's own tools print and read.
//!
//! Also the hash of a row, for rows without a recipe. Knows no filters and no eval policy; it prints what they marked.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::arm::{KvOffload, Row, Scenario};
use super::evals::EvalMark;
use super::expand::MatrixRow;
use crate::config::topology::{Topology, Worker, WorkerField};
use crate::ids::{Digest, RowHash};

/// The length of an agentic run, seconds.
pub const AGENTIC_DURATION_S: u32 = 3600;

/// Tokens of context beyond input and output that a fixed-seq-len server allows.
const CONTEXT_MARGIN: u64 = 256;

/// The context that a fixed-seq-len server allows, tokens.
pub fn max_model_len(isl: u32, osl: u32) -> u64 {
    u64::from(isl) + u64::from(osl) + CONTEXT_MARGIN
}

/// The experiment name of a row; an agentic one names a concurrency.
pub fn exp_name(row: &Row, conc: u32) -> String {
    match row.scenario {
        Scenario::AgenticCoding => agentic_name(row, conc),
        Scenario::FixedSeqLen { .. } => format!("{}_{}", row.entry.model_prefix, row.scenario.name()),
    }
}

/// One row of the matrix, serialized in the order of the field's generator.
#[derive(Debug, Clone, Copy)]
pub struct JsonRow<'a>(pub &'a MatrixRow);

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let MatrixRow { row, concs, exp_conc, mark } = self.0;
        fields(&mut map, row, Some((concs, *exp_conc)), *mark)?;
        map.end()
    }
}

/// A row without its concurrency and its name: what its hash is made of.
struct Anonymous<'a>(&'a Row);

impl Serialize for Anonymous<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let fixed = matches!(self.0.scenario, Scenario::FixedSeqLen { .. });
        let mark = EvalMark { run_eval: fixed.then_some(false), ..EvalMark::default() };
        fields(&mut map, self.0, None, mark)?;
        map.end()
    }
}

/// The hash of a row: SHA-256 of its JSON with sorted keys, no spaces and ASCII escapes, without concurrency and name.
/// In hex it is the field's recipe fingerprint.
pub fn row_hash(row: &Row) -> RowHash {
    // Serializing a tree of strings, integers and booleans cannot fail; an impossible failure hashes as null.
    let value = serde_json::to_value(Anonymous(row)).unwrap_or_default();
    let mut ascii = String::new();
    for c in value.to_string().chars() {
        if c <= '~' {
            ascii.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    RowHash(Digest::of(ascii.as_bytes()))
}

/// Concurrencies, and the one in the row's experiment name.
type Points<'a> = (&'a [u32], u32);

fn fields<M: SerializeMap>(map: &mut M, row: &Row, points: Option<Points<'_>>, mark: EvalMark) -> Result<(), M::Error> {
    let entry = &row.entry;
    map.serialize_entry("image", &entry.image)?;
    map.serialize_entry("model", &entry.model)?;
    map.serialize_entry("model-prefix", &entry.model_prefix)?;
    map.serialize_entry("precision", &entry.precision)?;
    map.serialize_entry("framework", &entry.framework)?;
    map.serialize_entry("runner", &row.runner)?;
    match row.scenario {
        Scenario::FixedSeqLen { isl, osl } => {
            map.serialize_entry("isl", &isl)?;
            map.serialize_entry("osl", &osl)?;
            fixed(map, row, max_model_len(isl, osl), points, mark)?;
        }
        Scenario::AgenticCoding => agentic(map, row, points)?,
    }
    optional(map, "router", row.router.as_ref().map(|router| Named(&router.name, Some(&router.version))))?;
    optional(map, "kv-p2p-transfer", row.kv_p2p_transfer.as_ref())?;
    if row.scenario == Scenario::AgenticCoding {
        optional(map, "run-eval", mark.run_eval)?;
    }
    optional(map, "eval-conc", mark.eval_conc)?;
    optional(map, "eval-all-concs", mark.eval_all_concs.then_some(true))?;
    optional(map, "eval-only", mark.eval_only.then_some(true))
}

fn fixed<M: SerializeMap>(
    map: &mut M,
    row: &Row,
    max_model_len: u64,
    points: Option<Points<'_>>,
    mark: EvalMark,
) -> Result<(), M::Error> {
    match &row.topology {
        Topology::Single(p) => {
            degrees(map, row)?;
            conc(map, row, points)?;
            map.serialize_entry("max-model-len", &max_model_len)?;
            map.serialize_entry("ep", &p.ep.unwrap_or(1))?;
            map.serialize_entry("dp-attn", &p.dp_attn.unwrap_or(false))?;
            map.serialize_entry("spec-decoding", row.spec_decoding.as_str())?;
        }
        Topology::Multi { .. } => {
            map.serialize_entry("spec-decoding", row.spec_decoding.as_str())?;
            pools(map, row)?;
            conc(map, row, points)?;
            map.serialize_entry("max-model-len", &max_model_len)?;
        }
    }
    if let Some((_, conc)) = points {
        map.serialize_entry("exp-name", &exp_name(row, conc))?;
    }
    map.serialize_entry("disagg", &row.entry.disagg)?;
    optional(map, "run-eval", mark.run_eval)
}

fn agentic<M: SerializeMap>(map: &mut M, row: &Row, points: Option<Points<'_>>) -> Result<(), M::Error> {
    let multinode = match &row.topology {
        Topology::Single(p) => {
            degrees(map, row)?;
            map.serialize_entry("ep", &p.ep.unwrap_or(1))?;
            map.serialize_entry("dp-attn", &p.dp_attn.unwrap_or(false))?;
            map.serialize_entry("spec-decoding", row.spec_decoding.as_str())?;
            false
        }
        Topology::Multi { .. } => {
            map.serialize_entry("spec-decoding", row.spec_decoding.as_str())?;
            pools(map, row)?;
            true
        }
    };
    conc(map, row, points)?;
    let (kind, dram_gb, backend) = match &row.kv_offload {
        Some(KvOffload::Dram { backend, dram_gb }) => ("dram", *dram_gb, Some(backend)),
        Some(KvOffload::Resident) | None => ("none", 0, None),
    };
    map.serialize_entry("kv-offloading", kind)?;
    map.serialize_entry("total-cpu-dram-gb", &dram_gb)?;
    map.serialize_entry("duration", &AGENTIC_DURATION_S)?;
    if let Some((_, conc)) = points {
        map.serialize_entry("exp-name", &exp_name(row, conc))?;
    }
    if multinode {
        map.serialize_entry("disagg", &row.entry.disagg)?;
    }
    map.serialize_entry("scenario-type", "agentic-coding")?;
    optional(map, "kv-offload-backend", backend.map(|backend| Named(&backend.name, backend.version.as_deref())))
}

/// `PREFIX_tpT_concC_kvnone`, `PREFIX_pNxT_dNxT_concC_kvdram-BACKEND`, ….
fn agentic_name(row: &Row, conc: u32) -> String {
    let prefix = &row.entry.model_prefix;
    let backend = match &row.kv_offload {
        Some(KvOffload::Dram { backend, .. }) => Some(&backend.name),
        _ => None,
    };
    match &row.topology {
        Topology::Single(p) => {
            let kv = backend.map_or("kvnone".to_owned(), |name| format!("kvdram-{name}"));
            let spec = match row.spec_decoding {
                super::arm::SpecDecoding::None => String::new(),
                spec => format!("_spec-{}", spec.as_str()),
            };
            format!("{prefix}_tp{}_conc{conc}_{kv}{spec}", p.tp)
        }
        Topology::Multi { prefill, decode } => {
            let kv = backend.map_or(String::new(), |name| format!("_kvdram-{name}"));
            format!("{prefix}_p{}_d{}_conc{conc}{kv}", pool_name(prefill), pool_name(decode))
        }
    }
}

fn pool_name(worker: &Worker) -> String {
    let p = worker.parallelism;
    let ep = p.ep.filter(|ep| *ep != 1).map(|ep| format!("ep{ep}")).unwrap_or_default();
    let dpa = if p.dp_attn == Some(true) { "dpa" } else { "" };
    format!("{}x{}{ep}{dpa}", worker.num_worker, p.tp)
}

fn degrees<M: SerializeMap>(map: &mut M, row: &Row) -> Result<(), M::Error> {
    if let Topology::Single(p) = &row.topology {
        for (name, degree) in [("tp", p.tp), ("pp", p.pp), ("dcp-size", p.dcp), ("pcp-size", p.pcp)] {
            map.serialize_entry(name, &degree)?;
        }
    }
    Ok(())
}

fn pools<M: SerializeMap>(map: &mut M, row: &Row) -> Result<(), M::Error> {
    if let Topology::Multi { prefill, decode } = &row.topology {
        map.serialize_entry("prefill", &Pool(prefill))?;
        map.serialize_entry("decode", &Pool(decode))?;
    }
    Ok(())
}

/// A number in a single-node row, a list in a multi-node one.
fn conc<M: SerializeMap>(map: &mut M, row: &Row, points: Option<Points<'_>>) -> Result<(), M::Error> {
    match (points, &row.topology) {
        (None, _) => Ok(()),
        (Some((_, conc)), Topology::Single(_)) => map.serialize_entry("conc", &conc),
        (Some((concs, _)), Topology::Multi { .. }) => map.serialize_entry("conc", concs),
    }
}

/// An entry where there is a value.
pub(crate) fn optional<M: SerializeMap, T: Serialize>(
    map: &mut M,
    name: &str,
    value: Option<T>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(name, &value),
        None => Ok(()),
    }
}

/// `{"name": …, "version": …}`, the version where there is one.
pub(crate) struct Named<'a>(pub(crate) &'a str, pub(crate) Option<&'a str>);

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.0)?;
        optional(&mut map, "version", self.1)?;
        map.end()
    }
}

/// A worker block as it is written, then the degrees that are not.
struct Pool<'a>(&'a Worker);

impl Serialize for Pool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let worker = self.0;
        let p = worker.parallelism;
        let mut map = serializer.serialize_map(None)?;
        let defaults = [WorkerField::Pp, WorkerField::Dcp, WorkerField::Pcp];
        let absent = defaults.into_iter().filter(|field| !worker.written.contains(field));
        for field in worker.written.iter().copied().chain(absent) {
            let name = field.as_str();
            match field {
                WorkerField::NumWorker => map.serialize_entry(name, &worker.num_worker)?,
                WorkerField::Tp => map.serialize_entry(name, &p.tp)?,
                WorkerField::Pp => map.serialize_entry(name, &p.pp)?,
                WorkerField::Dcp => map.serialize_entry(name, &p.dcp)?,
                WorkerField::Pcp => map.serialize_entry(name, &p.pcp)?,
                WorkerField::Ep => map.serialize_entry(name, &p.ep)?,
                WorkerField::DpAttn => map.serialize_entry(name, &p.dp_attn)?,
                WorkerField::Hardware => map.serialize_entry(name, &worker.hardware)?,
                WorkerField::AdditionalSettings => map.serialize_entry(name, &worker.additional_settings)?,
            }
        }
        map.end()
    }
}
