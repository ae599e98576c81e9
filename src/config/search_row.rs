//! One row of a search space: text → [`SearchRow`], single-node or multi-node, fixed or agentic.
//!
//! Knows a row's own rules; what a row owes to its entry (scopes, runner, node sizes) is in [`super::master`] and in the
//! expansion.

use super::diagnostic::{Diagnostic, Place};
use super::document::Node;
use super::fields::{self, Faults, Fields};
use super::topology::{Backend, Component, Parallelism, SpecDecoding, Topology, Worker, WorkerField};

/// A row as it is written, before runners and concurrencies multiply it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRow {
    /// Where.
    pub place: Place,
    /// How the model is spread over GPUs.
    pub topology: Topology,
    /// Speculative decoding.
    pub spec_decoding: SpecDecoding,
    /// What an agentic row says of KV blocks that do not fit the GPU; nothing in fixed rows.
    pub kv_offloading: Option<KvOffloading>,
    /// A router of its own.
    pub router: Option<Component>,
    /// A KV transfer of its own.
    pub kv_p2p_transfer: Option<String>,
    /// How many sessions or requests at once.
    pub concurrency: Concurrency,
}

/// What an agentic row says of KV blocks that do not fit the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvOffloading {
    /// They are dropped.
    None,
    /// They go to CPU memory by this backend.
    Dram(Backend),
}

/// A row's concurrencies as written. All are greater than 0, and there is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Concurrency {
    /// `conc-list`
    List(Vec<u32>),
    /// `conc-start` and `conc-end`, start ≤ end; the steps between are multiplied.
    Range {
        /// The first.
        start: u32,
        /// The last.
        end: u32,
    },
}

/// What decides a row's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// `multinode` of the entry.
    pub multinode: bool,
    /// Whether the row stands under `agentic-coding`.
    pub agentic: bool,
}

/// More GPUs than any machine has, small enough that products of three stay exact.
const MAX_DEGREE: u64 = 1 << 16;

/// The largest length or concurrency.
pub(super) const MAX_COUNT: u64 = u32::MAX as u64;

const SINGLE: &[&str] = &[
    "tp",
    "pp",
    "dcp-size",
    "pcp-size",
    "ep",
    "dp-attn",
    "spec-decoding",
    "router",
    "conc-list",
    "conc-start",
    "conc-end",
    "kv-offloading",
    "kv-offload-backend",
];
const MULTI: &[&str] = &[
    "prefill",
    "decode",
    "spec-decoding",
    "router",
    "kv-p2p-transfer",
    "conc-list",
    "conc-start",
    "conc-end",
    "kv-offloading",
    "kv-offload-backend",
];
/// The last two fields of both lists are for agentic rows.
const AGENTIC_ONLY: usize = 2;

/// Reads a row.
pub(super) fn read(node: &Node, schema: Schema, faults: &Faults) -> Option<SearchRow> {
    let (what, known) = match (schema.multinode, schema.agentic) {
        (false, false) => ("a single-node row", &SINGLE[..SINGLE.len() - AGENTIC_ONLY]),
        (false, true) => ("a single-node agentic row", SINGLE),
        (true, false) => ("a multi-node row", &MULTI[..MULTI.len() - AGENTIC_ONLY]),
        (true, true) => ("a multi-node agentic row", MULTI),
    };
    let hint = |name: &str| foreign(name, schema).map(str::to_owned);
    let row = Fields::open_hinted(node, what, known, &hint, faults)?;
    let topology = if schema.multinode {
        workers(&row, faults).map(|(prefill, decode)| Topology::Multi { prefill, decode })
    } else {
        parallelism(&row, false, faults).map(Topology::Single)
    };
    let spec_decoding = match row.optional("spec-decoding") {
        None => Some(SpecDecoding::None),
        Some(_) => row.choice("spec-decoding", &SpecDecoding::ALL.map(|spec| (spec.as_str(), spec))),
    };
    let kv_offloading = if schema.agentic { kv_offloading(&row, schema, faults) } else { Some(None) };
    let before = faults.len();
    let router = row.optional("router").and_then(|node| router(node, faults));
    let kv_p2p_transfer = if schema.multinode { row.optional_string("kv-p2p-transfer") } else { None };
    let concurrency = concurrency(&row, faults);
    if faults.len() > before {
        return None;
    }
    Some(SearchRow {
        place: node.place.clone(),
        topology: topology?,
        spec_decoding: spec_decoding?,
        kv_offloading: kv_offloading?,
        router,
        kv_p2p_transfer: kv_p2p_transfer.map(str::to_owned),
        concurrency: concurrency?,
    })
}

/// The fix for a field that belongs to another kind of row.
fn foreign(name: &str, schema: Schema) -> Option<&'static str> {
    match name {
        "prefill" | "decode" | "kv-p2p-transfer" if !schema.multinode => {
            Some("only rows of an entry with `multinode: true` have it")
        }
        "tp" | "pp" | "dcp-size" | "pcp-size" | "ep" | "dp-attn" if schema.multinode => {
            Some("in a multi-node row it stands in `prefill` and in `decode`")
        }
        "num-worker" | "hardware" | "additional-settings" if schema.multinode => {
            Some("it stands in `prefill` and in `decode`")
        }
        "kv-offloading" | "kv-offload-backend" if !schema.agentic => Some("only agentic-coding rows have it"),
        "dram-utilization" => Some("it stands beside `search-space`, once for all its rows"),
        _ => None,
    }
}

/// A router block: exactly a name and a version.
pub(super) fn router(node: &Node, faults: &Faults) -> Option<Component> {
    let block = Fields::open(node, "a router", &["name", "version"], faults)?;
    let (name, version) = (block.string("name"), block.string("version"));
    let (name, version) = (name?, version?);
    let place = block.entry("version").map(|(_, value)| &value.place)?;
    no_image(version, place, faults)?;
    Some(Component { name: name.to_owned(), version: version.to_owned(), place: place.clone() })
}

fn backend(node: &Node, faults: &Faults) -> Option<Backend> {
    let block = Fields::open(node, "a kv-offload-backend", &["name", "version"], faults)?;
    let before = faults.len();
    let (name, version) = (block.string("name"), block.optional_string("version"));
    let name_place = &block.entry("name")?.1.place;
    let place = match (version, block.entry("version")) {
        (Some(version), Some((_, value))) => {
            no_image(version, &value.place, faults)?;
            &value.place
        }
        _ => name_place,
    };
    if faults.len() > before {
        return None;
    }
    Some(Backend { name: name?.to_owned(), version: version.map(str::to_owned), place: place.clone() })
}

/// Versions are versions; an image belongs to the entry.
fn no_image(version: &str, place: &Place, faults: &Faults) -> Option<()> {
    if version.starts_with("image:") {
        faults.push(
            Diagnostic::at(place, "a version cannot be an image reference")
                .help("write the version of the package alone, such as \"0.1.14\""),
        );
        return None;
    }
    Some(())
}

/// The degrees of one engine; the fields of a worker block are all required.
fn parallelism(block: &Fields<'_, '_>, worker: bool, faults: &Faults) -> Option<Parallelism> {
    let before = faults.len();
    let degree = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
    let tp = degree(block.integer("tp", 1..=MAX_DEGREE));
    let [pp, dcp, pcp] =
        ["pp", "dcp-size", "pcp-size"].map(|name| degree(block.optional_integer(name, 1..=MAX_DEGREE)).unwrap_or(1));
    let (ep, dp_attn) = if worker {
        (block.integer("ep", 1..=MAX_DEGREE), block.boolean("dp-attn"))
    } else {
        (block.optional_integer("ep", 1..=MAX_DEGREE), block.optional_boolean("dp-attn"))
    };
    if faults.len() > before {
        return None;
    }
    let tp = tp?;
    if !worker && !tp.is_multiple_of(dcp) {
        let (tp_node, dcp_node) = (block.entry("tp")?.1, block.entry("dcp-size")?.1);
        faults.push(
            Diagnostic::at(&dcp_node.place, format!("tp {tp} is not divisible by dcp-size {dcp}"))
                .label("does not divide tp")
                .related(&tp_node.place, "tp")
                .help(format!("choose a dcp-size that divides {tp}")),
        );
        return None;
    }
    Some(Parallelism { tp, pp, dcp, pcp, ep: degree(ep), dp_attn })
}

fn workers(row: &Fields<'_, '_>, faults: &Faults) -> Option<(Worker, Worker)> {
    let pool = |name: &str| worker(row.required(name)?, row.entry(name).map(|(key, _)| &key.place)?, name, faults);
    let (prefill, decode) = (pool("prefill"), pool("decode"));
    let (prefill, decode) = (prefill?, decode?);
    if prefill.hardware.is_some() != decode.hardware.is_some() {
        let (with, without) = if prefill.hardware.is_some() { ("prefill", "decode") } else { ("decode", "prefill") };
        let place = &row.entry(without)?.0.place;
        let given = &row.entry(with)?.1.get("hardware")?.place;
        faults.push(
            Diagnostic::at(place, format!("`{with}` names its hardware and `{without}` does not"))
                .label("has no `hardware`")
                .related(given, "given here")
                .help("name the hardware of both pools, or of neither"),
        );
        return None;
    }
    Some((prefill, decode))
}

fn worker(node: &Node, key: &Place, name: &str, faults: &Faults) -> Option<Worker> {
    let what = format!("a {name} block");
    let known = WorkerField::ALL.map(WorkerField::as_str);
    let block = Fields::open(node, &what, &known, faults)?.at(key);
    let before = faults.len();
    let num_worker = block.integer("num-worker", 0..=MAX_DEGREE);
    let parallelism = parallelism(&block, true, faults);
    let hardware = block.optional_string("hardware");
    let settings = block.optional_strings("additional-settings");
    if faults.len() > before {
        return None;
    }
    let written = block
        .entries()
        .iter()
        .filter(|(_, value)| !value.is_null())
        .filter_map(|(key, _)| WorkerField::ALL.into_iter().find(|field| key.scalar_text() == Some(field.as_str())))
        .collect();
    Some(Worker {
        num_worker: u32::try_from(num_worker?).ok()?,
        parallelism: parallelism?,
        hardware: hardware.map(str::to_owned),
        additional_settings: settings.map(|items| items.into_iter().map(str::to_owned).collect()),
        written,
    })
}

/// Outer nothing: a fault. Inner nothing: a multi-node row that does not say.
#[allow(clippy::option_option)]
fn kv_offloading(row: &Fields<'_, '_>, schema: Schema, faults: &Faults) -> Option<Option<KvOffloading>> {
    let kind = match row.optional("kv-offloading") {
        None if schema.multinode => None,
        None => {
            row.required("kv-offloading");
            return None;
        }
        Some(_) => Some(row.choice("kv-offloading", &[("none", false), ("dram", true)])?),
    };
    let backend_node = row.optional("kv-offload-backend");
    match (kind, backend_node) {
        (Some(true), Some(node)) => Some(Some(KvOffloading::Dram(backend(node, faults)?))),
        (Some(true), None) => {
            let place = &row.entry("kv-offloading")?.1.place;
            faults.push(
                Diagnostic::at(place, "kv-offloading dram without a backend")
                    .label("moved by what?")
                    .help("add `kv-offload-backend: { name: …, version: … }`"),
            );
            None
        }
        (_, Some(node)) => {
            let key = row.entry("kv-offload-backend").map_or(&node.place, |(key, _)| &key.place);
            let mut fault = Diagnostic::at(key, "a kv-offload-backend without dram offloading")
                .label("nothing to move")
                .help("write `kv-offloading: dram`, or remove the backend");
            if let Some((_, value)) = row.entry("kv-offloading") {
                fault = fault.related(&value.place, "not dram");
            }
            faults.push(fault);
            None
        }
        (Some(false), None) => Some(Some(KvOffloading::None)),
        (None, None) => Some(None),
    }
}

fn concurrency(row: &Fields<'_, '_>, faults: &Faults) -> Option<Concurrency> {
    let [list, start, end] =
        ["conc-list", "conc-start", "conc-end"].map(|name| row.optional(name).and_then(|_| row.entry(name)));
    match (list, start.or(end)) {
        (Some((list, _)), Some((range, _))) => {
            faults.push(
                Diagnostic::at(&range.place, "both a conc-list and a range")
                    .label("a range")
                    .related(&list.place, "and a list")
                    .help("keep `conc-list`, or `conc-start` with `conc-end`"),
            );
            None
        }
        (None, None) => {
            row.fault(
                "the row has no concurrency",
                "add `conc-list: [1, 2, 4]`, or `conc-start: 4` with `conc-end: 64`",
            );
            None
        }
        (Some((_, node)), None) => {
            let items = fields::list(node, "`conc-list`", faults)?;
            if items.is_empty() {
                faults.push(Diagnostic::at(&node.place, "`conc-list` is empty").help("list at least one concurrency"));
                return None;
            }
            let read = |item| fields::integer(item, "a concurrency", 1..=MAX_COUNT, faults);
            let concs: Vec<u32> = items.iter().filter_map(read).filter_map(|conc| u32::try_from(conc).ok()).collect();
            (concs.len() == items.len()).then_some(Concurrency::List(concs))
        }
        (None, Some(_)) => {
            let read = |name| row.integer(name, 1..=MAX_COUNT).and_then(|conc| u32::try_from(conc).ok());
            let (first, last) = (read("conc-start"), read("conc-end"));
            let (first, last) = (first?, last?);
            if first > last {
                faults.push(
                    Diagnostic::at(&start?.1.place, format!("conc-start {first} is greater than conc-end {last}"))
                        .label("starts here")
                        .related(&end?.1.place, "and ends here")
                        .help("swap them"),
                );
                return None;
            }
            Some(Concurrency::Range { start: first, end: last })
        }
    }
}
