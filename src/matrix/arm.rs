//! An arm: one row of a config key at one concurrency. What the recipe, the plan and the reports see of the matrix.
//!
//! Rows hold what their arms share. The types leave no room for an invalid arm: a KV-offload backend stands inside
//! [`KvOffload::Dram`], a multi-node row has two workers and a single-node row one [`Parallelism`].

use std::borrow::Cow;
use std::sync::Arc;

use crate::config::diagnostic::{Diagnostic, Place};
pub use crate::config::topology::{
    Backend, Component, Parallelism, RunnerHardware, ScenarioType, SpecDecoding, Topology, Worker, WorkerField,
};
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
    /// What the ids of its arms have in common, `KEY/SCENARIO/TOPOLOGY-KV[-SPEC][-rHEX]`.
    pub label: Arc<str>,
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
    /// All the row's concurrencies in file order, ranges expanded, whatever a filter keeps of them.
    pub concs: Vec<u32>,
}

impl Row {
    /// The GPU model, from the runner: `cluster:b200-dgxc` and `b200-dgxc_03` are `b200`.
    pub fn gpu(&self) -> &str {
        let name = self.runner.strip_prefix("cluster:").unwrap_or(&self.runner);
        name.split('-').next().unwrap_or(name)
    }

    /// The GPUs that the row occupies, all pools together.
    pub fn gpus(&self) -> u64 {
        match &self.topology {
            Topology::Single(parallelism) => parallelism.gpus(),
            Topology::Multi { prefill, decode } => prefill.gpus() + decode.gpus(),
        }
    }

    /// The fault of a single-node row that needs more GPUs than its node has, where the node is known. The matrix
    /// prints such rows (it checks the ones that offload to dram alone); nothing can run them.
    pub fn oversized(&self) -> Option<Diagnostic> {
        let (Topology::Single(parallelism), Some(hardware)) = (&self.topology, self.entry.hardware) else {
            return None;
        };
        super::dram::fits(*parallelism, hardware, &self.entry.runner, &self.place).err()
    }
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
    /// Where it stands.
    pub image_place: Place,
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

impl Scenario {
    /// Which kind it is.
    pub fn kind(self) -> ScenarioType {
        match self {
            Scenario::FixedSeqLen { .. } => ScenarioType::FixedSeqLen,
            Scenario::AgenticCoding => ScenarioType::AgenticCoding,
        }
    }

    /// The word in the master file.
    pub fn word(self) -> &'static str {
        self.kind().word()
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

impl Scenario {
    /// The name in arm ids and experiment names: `agentic`, `1k1k`, `8k1k`, else `ISL_OSL`.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Scenario::AgenticCoding => "agentic".into(),
            Scenario::FixedSeqLen { isl: 1024, osl: 1024 } => "1k1k".into(),
            Scenario::FixedSeqLen { isl: 8192, osl: 1024 } => "8k1k".into(),
            Scenario::FixedSeqLen { isl, osl } => format!("{isl}_{osl}").into(),
        }
    }
}
