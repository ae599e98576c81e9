//! What master and runners files say of hardware and software parts: parallelism, workers, components, nodes.
//!
//! Plain values; the readers are in [`super::search_row`] and [`super::runners`].

use super::diagnostic::Place;

/// Hardware facts of a runner label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerHardware {
    /// CPU DRAM that jobs may use on a node, MiB.
    pub available_cpu_dram_mib: u64,
    /// GPUs on a node.
    pub gpus_per_node: u32,
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
#[derive(Debug, Clone, Eq)]
pub struct Worker {
    /// How many engines.
    pub num_worker: u32,
    /// The parallelism of each.
    pub parallelism: Parallelism,
    /// The hardware of this pool, when the two pools differ.
    pub hardware: Option<String>,
    /// `KEY=VALUE` settings for the launcher; absent where not written.
    pub additional_settings: Option<Vec<String>>,
    /// The fields in the order of the file: the matrix prints them so. Two pools that differ in this alone are equal.
    pub written: Vec<WorkerField>,
}

impl Worker {
    /// GPUs of the pool: engines times GPUs of one.
    pub fn gpus(&self) -> u64 {
        u64::from(self.num_worker) * self.parallelism.gpus()
    }
}

impl PartialEq for Worker {
    fn eq(&self, other: &Self) -> bool {
        self.num_worker == other.num_worker
            && self.parallelism == other.parallelism
            && self.hardware == other.hardware
            && self.additional_settings == other.additional_settings
    }
}

/// A field of a worker block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerField {
    /// `num-worker`
    NumWorker,
    /// `tp`
    Tp,
    /// `pp`
    Pp,
    /// `dcp-size`
    Dcp,
    /// `pcp-size`
    Pcp,
    /// `ep`
    Ep,
    /// `dp-attn`
    DpAttn,
    /// `hardware`
    Hardware,
    /// `additional-settings`
    AdditionalSettings,
}

impl WorkerField {
    /// Every field.
    pub const ALL: [Self; 9] = [
        Self::NumWorker,
        Self::Tp,
        Self::Pp,
        Self::Dcp,
        Self::Pcp,
        Self::Ep,
        Self::DpAttn,
        Self::Hardware,
        Self::AdditionalSettings,
    ];

    /// The name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NumWorker => "num-worker",
            Self::Tp => "tp",
            Self::Pp => "pp",
            Self::Dcp => "dcp-size",
            Self::Pcp => "pcp-size",
            Self::Ep => "ep",
            Self::DpAttn => "dp-attn",
            Self::Hardware => "hardware",
            Self::AdditionalSettings => "additional-settings",
        }
    }
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
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::None, Self::Mtp, Self::DraftModel];

    /// The word in the master file.
    pub fn as_str(self) -> &'static str {
        match self {
            SpecDecoding::None => "none",
            SpecDecoding::Mtp => "mtp",
            SpecDecoding::DraftModel => "draft_model",
        }
    }
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

/// A kind of scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScenarioType {
    /// `fixed-seq-len`
    FixedSeqLen,
    /// `agentic-coding`
    AgenticCoding,
}

impl ScenarioType {
    /// Every kind, in the order in which an entry's scenarios expand.
    pub const ALL: [Self; 2] = [Self::FixedSeqLen, Self::AgenticCoding];

    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::FixedSeqLen => "fixed-seq-len",
            Self::AgenticCoding => "agentic-coding",
        }
    }
}
