//! A master file: text → typed entries, every fault of the file at its place.
//!
//! Knows the schema of entries and scenarios and the rules between an entry and its rows. Runners, node sizes and the
//! expansion into points are `matrix`'s.

use std::sync::Arc;

use super::diagnostic::{Diagnostic, Diagnostics, Place, Source};
use super::document::{self, Node};
use super::fields::{self, Faults, Fields};
use super::search_row::{self, KvOffloading, MAX_COUNT, Schema, SearchRow};
use super::topology::Component;
use super::utilization::Utilization;
use crate::ids::ConfigKey;

/// An entry as it is written.
#[derive(Debug, Clone)]
pub struct MasterEntry {
    /// Its key.
    pub key: ConfigKey,
    /// Where the key stands.
    pub place: Place,
    /// Engine image reference with a tag.
    pub image: String,
    /// Where it stands.
    pub image_place: Place,
    /// Model id on the hub.
    pub model: String,
    /// The model's short name.
    pub model_prefix: String,
    /// Weight precision.
    pub precision: String,
    /// Serving engine.
    pub framework: String,
    /// Runner label.
    pub runner: String,
    /// Where it stands.
    pub runner_place: Place,
    /// Whether rows have prefill and decode pools.
    pub multinode: bool,
    /// Whether prefill and decode run on separate workers.
    pub disagg: bool,
    /// The router of every row.
    pub router: Option<Component>,
    /// The KV transfer of every row.
    pub kv_p2p_transfer: Option<String>,
    /// `fixed-seq-len` items.
    pub fixed: Vec<FixedSeqLen>,
    /// `agentic-coding` items.
    pub agentic: Vec<AgenticCoding>,
}

/// One item of `fixed-seq-len`.
#[derive(Debug, Clone)]
pub struct FixedSeqLen {
    /// Input length, tokens.
    pub isl: u32,
    /// Output length, tokens.
    pub osl: u32,
    /// Its rows.
    pub search_space: Vec<SearchRow>,
}

/// One item of `agentic-coding`.
#[derive(Debug, Clone)]
pub struct AgenticCoding {
    /// The share of a node's CPU memory that offloaded KV blocks may take. There whenever a row offloads to dram.
    pub dram_utilization: Option<Utilization>,
    /// Its rows.
    pub search_space: Vec<SearchRow>,
}

const ENTRY: &[&str] = &[
    "image",
    "model",
    "model-prefix",
    "precision",
    "framework",
    "runner",
    "multinode",
    "disagg",
    "router",
    "kv-p2p-transfer",
    "scenarios",
];

/// Reads one master file.
///
/// # Errors
/// Every fault of the file.
pub fn parse(source: &Arc<Source>) -> Result<Vec<MasterEntry>, Diagnostics> {
    let root = document::parse(source)?;
    let faults = Faults::default();
    let entries = Fields::open_any(&root, "a master file", &faults)
        .map(|file| file.entries().iter().filter_map(|(key, value)| entry(key, value, &faults)).collect())
        .unwrap_or_default();
    faults.or(entries)
}

/// Reads several master files, in order; a key may stand in one of them.
///
/// # Errors
/// Every fault of every file, and the keys that stand in two.
pub fn parse_all(sources: &[Arc<Source>]) -> Result<Vec<MasterEntry>, Diagnostics> {
    let mut found = Diagnostics::default();
    let files: Vec<_> = parallel(sources).into_iter().filter_map(|file| found.absorb(file)).collect();
    let entries = found.absorb(join(files));
    found.or(entries.unwrap_or_default())
}

/// The entries of several master files as one list; a key may stand in one of them.
///
/// # Errors
/// The keys that stand in two.
pub fn join(files: Vec<Vec<MasterEntry>>) -> Result<Vec<MasterEntry>, Diagnostics> {
    let mut found = Diagnostics::default();
    let mut entries: Vec<MasterEntry> = Vec::new();
    let mut seen: std::collections::HashMap<ConfigKey, Place> = std::collections::HashMap::new();
    for entry in files.into_iter().flatten() {
        match seen.get(&entry.key) {
            Some(first) => found.push(
                Diagnostic::at(&entry.place, format!("the key `{}` stands in two files", entry.key))
                    .label("again here")
                    .related(first, "first here")
                    .help("rename one of them, or pass each file once"),
            ),
            None => {
                seen.insert(entry.key.clone(), entry.place.clone());
                entries.push(entry);
            }
        }
    }
    found.or(entries)
}

/// Each file on a thread of its own: reading YAML is most of the work.
fn parallel(sources: &[Arc<Source>]) -> Vec<Result<Vec<MasterEntry>, Diagnostics>> {
    let Some((last, others)) = sources.split_last() else { return Vec::new() };
    std::thread::scope(|scope| {
        let threads: Vec<_> = others.iter().map(|source| (source, scope.spawn(|| parse(source)))).collect();
        let last = parse(last);
        // A thread that died is no answer: read its file here, where a fault shows.
        let read = threads.into_iter().map(|(source, thread)| thread.join().unwrap_or_else(|_| parse(source)));
        read.chain([last]).collect()
    })
}

fn entry(key: &Node, value: &Node, faults: &Faults) -> Option<MasterEntry> {
    let name = fields::string(key, "a config key", faults);
    if name.is_some_and(|name| name.contains('*')) {
        faults
            .push(Diagnostic::at(&key.place, "a config key cannot hold `*`").help("`*` is for globs that select keys"));
    }
    let before = faults.len();
    let hint = |name: &str| {
        (name == "seq-len-configs").then(|| "write `scenarios:` with `fixed-seq-len:` under it".to_owned())
    };
    let entry = Fields::open_hinted(value, "a config entry", ENTRY, &hint, faults)?.at(&key.place);
    let [image, model, model_prefix, precision, framework, runner] =
        ["image", "model", "model-prefix", "precision", "framework", "runner"].map(|field| entry.string(field));
    let multinode = entry.boolean("multinode");
    let disagg = entry.optional_boolean("disagg").unwrap_or(false);
    let router = entry.optional("router").and_then(|node| search_row::router(node, faults));
    let kv_p2p_transfer = entry.optional_string("kv-p2p-transfer").map(str::to_owned);
    // Without `multinode` the schema of the rows is unknown: their faults wait for the next try.
    let (fixed, agentic) = match (entry.required("scenarios"), multinode) {
        (Some(node), Some(multinode)) => {
            let at = entry.entry("scenarios").map_or(&node.place, |(key, _)| &key.place);
            scenarios(node, at, multinode, faults).unwrap_or_default()
        }
        _ => Default::default(),
    };
    if let Some(multinode) = multinode {
        multinode_rules(&entry, multinode, disagg, faults);
    }
    if let (Some(runner), false) = (runner, agentic.is_empty()) {
        cluster_rule(&entry, runner, faults);
    }
    let rows = || {
        let fixed = fixed.iter().flat_map(|item| &item.search_space);
        fixed.chain(agentic.iter().flat_map(|item| &item.search_space))
    };
    for row in rows() {
        one_scope(&entry, "router", row.router.is_some(), row, faults);
        one_scope(&entry, "kv-p2p-transfer", row.kv_p2p_transfer.is_some(), row, faults);
        let transferred = kv_p2p_transfer.is_some() || row.kv_p2p_transfer.is_some();
        if let (true, Some(true), false, Some((_, node))) = (disagg, multinode, transferred, entry.entry("disagg")) {
            faults.push(
                Diagnostic::at(&node.place, "disagg: true without a kv-p2p-transfer")
                    .label("how do KV blocks reach decode?")
                    .related(&row.place, "this row has none")
                    .help("add `kv-p2p-transfer:` to the entry, or to every row"),
            );
            break;
        }
    }
    if faults.len() > before {
        return None;
    }
    Some(MasterEntry {
        key: ConfigKey(name?.into()),
        place: key.place.clone(),
        image: image?.to_owned(),
        image_place: entry.entry("image")?.1.place.clone(),
        model: model?.to_owned(),
        model_prefix: model_prefix?.to_owned(),
        precision: precision?.to_owned(),
        framework: framework?.to_owned(),
        runner: runner?.to_owned(),
        runner_place: entry.entry("runner")?.1.place.clone(),
        multinode: multinode?,
        disagg,
        router,
        kv_p2p_transfer,
        fixed,
        agentic,
    })
}

fn multinode_rules(entry: &Fields<'_, '_>, multinode: bool, disagg: bool, faults: &Faults) {
    if multinode {
        return;
    }
    let fix = "set `multinode: true`, or remove it";
    if let (true, Some((_, node))) = (disagg, entry.entry("disagg")) {
        faults.push(Diagnostic::at(&node.place, "disagg: true in a single-node entry").help(fix));
    }
    if let (Some(_), Some((key, _))) = (entry.optional("kv-p2p-transfer"), entry.entry("kv-p2p-transfer")) {
        faults.push(Diagnostic::at(&key.place, "a kv-p2p-transfer in a single-node entry").help(fix));
    }
}

fn cluster_rule(entry: &Fields<'_, '_>, runner: &str, faults: &Faults) {
    if let (false, Some((_, node))) = (runner.starts_with("cluster:"), entry.entry("runner")) {
        faults.push(
            Diagnostic::at(&node.place, format!("`{runner}` is no runner for agentic-coding"))
                .label("does not start with `cluster:`")
                .help(format!("agentic runs take a whole cluster: a label such as `cluster:{runner}…`")),
        );
    }
}

fn one_scope(entry: &Fields<'_, '_>, field: &str, in_row: bool, row: &SearchRow, faults: &Faults) {
    if let (true, Some(_), Some((key, _))) = (in_row, entry.optional(field), entry.entry(field)) {
        faults.push(
            Diagnostic::at(&row.place, format!("`{field}` both in the entry and in a row"))
                .label("this row has its own")
                .related(&key.place, "the entry's")
                .help("keep it in the entry alone, or in its rows alone"),
        );
    }
}

type Scenarios = (Vec<FixedSeqLen>, Vec<AgenticCoding>);

fn scenarios(node: &Node, at: &Place, multinode: bool, faults: &Faults) -> Option<Scenarios> {
    let block = Fields::open(node, "scenarios", &["fixed-seq-len", "agentic-coding"], faults)?.at(at);
    let before = faults.len();
    let fixed = block.optional_list("fixed-seq-len").unwrap_or_default();
    let agentic = block.optional_list("agentic-coding").unwrap_or_default();
    if fixed.is_empty() && agentic.is_empty() && faults.len() == before {
        block.fault("no scenario", "add a `fixed-seq-len:` or an `agentic-coding:` list with an item");
    }
    let fixed = fixed.iter().filter_map(|item| fixed_seq_len(item, multinode, faults)).collect();
    let agentic = agentic.iter().filter_map(|item| agentic_coding(item, multinode, faults)).collect();
    Some((fixed, agentic))
}

fn rows(item: &Fields<'_, '_>, schema: Schema, faults: &Faults) -> Option<Vec<SearchRow>> {
    Some(item.list("search-space")?.iter().filter_map(|row| search_row::read(row, schema, faults)).collect())
}

fn fixed_seq_len(node: &Node, multinode: bool, faults: &Faults) -> Option<FixedSeqLen> {
    let item = Fields::open(node, "a fixed-seq-len item", &["isl", "osl", "search-space"], faults)?;
    let length = |name| item.integer(name, 1..=MAX_COUNT).and_then(|tokens| u32::try_from(tokens).ok());
    let (isl, osl) = (length("isl"), length("osl"));
    let search_space = rows(&item, Schema { multinode, agentic: false }, faults);
    Some(FixedSeqLen { isl: isl?, osl: osl?, search_space: search_space? })
}

fn agentic_coding(node: &Node, multinode: bool, faults: &Faults) -> Option<AgenticCoding> {
    let item = Fields::open(node, "an agentic-coding item", &["dram-utilization", "search-space"], faults)?;
    let dram_utilization = match item.optional("dram-utilization") {
        None => None,
        Some(node) => Some(utilization(node, faults)?),
    };
    let search_space = rows(&item, Schema { multinode, agentic: true }, faults)?;
    let dram = search_space.iter().find(|row| matches!(row.kv_offloading, Some(KvOffloading::Dram(_))));
    if let (Some(row), None) = (dram, &dram_utilization) {
        faults.push(
            Diagnostic::at(&row.place, "kv-offloading dram without a dram-utilization")
                .label("offloads to dram")
                .related(&node.place, "the item that lacks it")
                .help("add `dram-utilization: 0.80` beside `search-space`"),
        );
    }
    Some(AgenticCoding { dram_utilization, search_space })
}

fn utilization(node: &Node, faults: &Faults) -> Option<Utilization> {
    let lexeme = fields::decimal(node, "`dram-utilization`", faults)?;
    let read = Utilization::parse(lexeme);
    if read.is_none() {
        faults.push(
            Diagnostic::at(&node.place, format!("a dram-utilization of {lexeme}"))
                .label("not within 0 < x ≤ 1")
                .help("it is a share of the node's CPU memory, such as 0.80"),
        );
    }
    read
}
