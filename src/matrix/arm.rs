//! An arm: one row of a config key at one concurrency. What the recipe, the plan and the reports see of the matrix.
//!
//! Rows hold what their arms share. The types leave no room for an invalid arm: a KV-offload backend stands inside
//! [`KvOffload::Dram`], a multi-node row has two workers and a single-node row one [`Parallelism`].

use std::sync::Arc;

use crate::config::diagnostic::Place;
use crate::ids::{ArmId, ConfigKey};

/// One point of the matrix.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Its label.
    pub id: ArmId,
    /// What it shares with the other concurrencies of its row.
    pub row: Arc<Row>,
    /// Concurrent sessions (agentic) or requests (fixed sequence length) in flight.
    pub conc: u32,
    /// Whether this arm scores answers instead of measuring speed.
    pub eval: bool,
}

/// A row of an entry's search space, at one runner.
#[derive(Debug, Clone)]
pub struct Row {
    /// The row in its master file.
    pub place: Place,
    /// The entry that it belongs to.
    pub entry: Arc<Entry>,
    /// Runner label or node, such as `cluster:b200-dgxc`.
    pub runner: String,
    /// The kind of load.
    pub scenario: Scenario,
    /// How the model is spread over GPUs.
    pub topology: Topology,
    /// Speculative decoding.
    pub spec_decoding: SpecDecoding,
    /// Where KV-cache blocks go that do not fit the GPU; absent where the row does not say (fixed-seq-len).
    pub kv_offload: Option<KvOffload>,
    /// The request router in front of the engine.
    pub router: Option<Component>,
    /// The KV transfer between prefill and decode workers.
    pub kv_p2p_transfer: Option<String>,
    /// The row's concurrencies in file order, ranges expanded.
    pub concs: Vec<u32>,
}

/// An entry of a master file, without its search space.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its key.
    pub key: ConfigKey,
    /// The key in its master file.
    pub place: Place,
    /// Engine image reference with a tag.
    pub image: String,
    /// Model id on the hub.
    pub model: String,
    /// The model's short name in this matrix, such as `dsv4`.
    pub model_prefix: String,
    /// Weight precision, such as `fp4`.
    pub precision: String,
    /// Serving engine, such as `vllm`.
    pub framework: String,
    /// Runner label of the entry.
    pub runner: String,
    /// Whether the schema is the multi-node one.
    pub multinode: bool,
    /// Whether prefill and decode run on separate workers.
    pub disagg: bool,
    /// What the runners file says of the label; absent for labels without hardware facts.
    pub hardware: Option<RunnerHardware>,
}

/// Hardware facts of a runner label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerHardware {
    /// CPU DRAM that jobs may use on a node, MiB.
    pub available_cpu_dram_mib: u64,
    /// GPUs on a node.
    pub gpus_per_node: u32,
}

/// The kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scenario {
    /// Independent requests of given lengths, tokens.
    FixedSeqLen {
        /// Input length.
        isl: u32,
        /// Output length.
        osl: u32,
    },
    /// Recorded multi-turn coding sessions.
    AgenticCoding,
}

/// How the model is spread over GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// One engine on one node.
    Single(Parallelism),
    /// Prefill and decode workers on several nodes.
    Multi {
        /// The prefill pool.
        prefill: Worker,
        /// The decode pool.
        decode: Worker,
    },
}

/// Degrees of parallelism of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    /// Tensor parallel size (the data-parallel size under attention DP).
    pub tp: u32,
    /// Pipeline parallel size.
    pub pp: u32,
    /// Decode context parallel size.
    pub dcp: u32,
    /// Prefill context parallel size.
    pub pcp: u32,
    /// Expert parallel size, where the row says one.
    pub ep: Option<u32>,
    /// Data-parallel attention, where the row says it.
    pub dp_attn: Option<bool>,
}

impl Parallelism {
    /// GPUs of one engine: tp · pp · pcp.
    pub fn gpus(&self) -> u64 {
        u64::from(self.tp) * u64::from(self.pp) * u64::from(self.pcp)
    }
}

/// One pool of a multi-node row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// How many engines.
    pub num_worker: u32,
    /// The parallelism of each.
    pub parallelism: Parallelism,
    /// The hardware of this pool, when the two pools differ.
    pub hardware: Option<String>,
    /// `KEY=VALUE` settings for the launcher; absent where not written.
    pub additional_settings: Option<Vec<String>>,
}

/// Speculative decoding, as the row says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecDecoding {
    /// None.
    None,
    /// The model's own multi-token prediction head.
    Mtp,
    /// A separate draft model.
    DraftModel,
}

impl SpecDecoding {
    /// The word in the master file.
    pub fn as_str(self) -> &'static str {
        match self {
            SpecDecoding::None => "none",
            SpecDecoding::Mtp => "mtp",
            SpecDecoding::DraftModel => "draft_model",
        }
    }
}

/// Where KV-cache blocks go that do not fit the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvOffload {
    /// Nowhere: they are dropped and computed again.
    Resident,
    /// To CPU memory.
    Dram {
        /// What moves and stores them.
        backend: Backend,
        /// The budget of one node, GB (10^9 bytes).
        dram_gb: u64,
    },
}

/// A KV-offload backend; built into the engine when it has no version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Its name, such as `mooncake`.
    pub name: String,
    /// Its version, as written.
    pub version: Option<String>,
    /// Where the version (else the name) is written.
    pub place: Place,
}

/// A router and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Its name, such as `vllm-router`.
    pub name: String,
    /// Its version, as written.
    pub version: String,
    /// Where the version is written.
    pub place: Place,
}
