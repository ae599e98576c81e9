//! The job spec: a complete description of one measurement, its canonical bytes, and the hash that names it.
//!
//! What is in the hash (a test holds this table against the specs of every arm):
//!
//! | part | fields |
//! |---|---|
//! | `schema` | the version of this document |
//! | `deployment` `model` | `id`, and the `revision` once it is locked |
//! | `deployment` `hardware` | `gpu` model, `runner` label: two fleets of one GPU differ |
//! | `deployment` `groups` | `name`, `nodes`, `gpus-per-node`, `dram-gb` for KV offload |
//! | `deployment` `services`, `measurement` `client` | `name`, `group`, `replicas`, `engine`, `image`, `packages`, `entrypoint`, `argv` in order, `env`, `files` with their full text, `mounts`, `resources`, `endpoints` by name, `after`, `probe` |
//! | … `image` | `locked`: digests of `config` and `manifest`, `platform`; `unlocked`: its `reference` |
//! | … `packages` | `name`, `version`, `python`, `deps` or none, its own `files` and its `closure`, each file with its digest |
//! | … `after`, `mounts` | `service`, `instances`; `source` as a binding, `target`, `read-only` |
//! | … `probe` | `http`: `endpoint`, `path`; `alive-after`: `ms`; `exit` |
//! | … `resources` | `gpus`, `ipc`, `shm-mib`, `capabilities`, `devices`, `ulimits` |
//! | `deployment` `speculative` | `method`, `tokens` a step, `acceptance`: `real`, or `synthetic` with its `length` and the golden `cell` that it came from |
//! | `deployment` `substitutions` | `programs` of this job that are played, settings of `engine` and `client`, `simulator-version`, `replay-version`; absent when everything is real |
//! | `measurement` `workload` | `dataset` with its revision, `split`, `seed`, `duration-s` |
//! | `measurement` | `concurrency`, `output` (how it is read), `server`: `fresh` |
//! | `measurement` `gates` | `max-error-ratio`, `acceptance-tolerance`, `min-drafts`, `min-score` |
//! | `what-if`, `exploratory` | what the command line changed, and that drafts are verified for real for want of a golden value; absent otherwise |
//!
//! What is not:
//!
//! | left out | because |
//! |---|---|
//! | config key, arm id, recipe, profile and curve names | labels: equal specs share a job, whatever they are called |
//! | tag, registry and mirror of a locked image | its digests say what runs |
//! | ports, host names, paths, RDMA device names | the host's: bound when a job runs, and recorded |
//! | executor kind, secrets, driver | two ways to run one job; the driver is recorded, and shown where it differs |
//! | timeouts, poll intervals, jobs at a time, estimates | they decide whether a run ends, not what it measures |
//! | other rows and curves, other cells of this curve | they are other measurements |
//! | the version of a backend that is built into the engine | the image says it |
//! | comments, formatting, order of keys | only the order of an args map counts: it is argv |
//! | the version of ixbuild | what it decides stands in the spec |
//!
//! Struct fields are declared in the order of their JSON names and maps are sorted, so that serde's output *is* the
//! RFC 8785 form (a property test compares it with an independent canonicalizer). There are no floats: a number with a
//! fraction is a string of its digits.

pub mod binding;
mod canonical;
pub mod diff;
pub mod python;
mod service;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use binding::{Binder, Binding, Key, Part, Segment, Text, Tree, Unbound};
pub use python::Python;
pub use service::{After, Deps, Engine, Image, Instances, Mount, Package, Probe, Resources, Service, is_name};

/// One measurement, completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// What is served.
    pub deployment: Deployment,
    /// Whether drafts are verified as in production where the policy wants a golden acceptance length and there is none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exploratory: bool,
    /// What is measured on it.
    pub measurement: Measurement,
    /// The version of this document.
    pub schema: Schema,
    /// What was set by hand beside the recipe, `PATH=VALUE`, sorted: what no arm of the matrix is.
    #[serde(default, rename = "what-if", skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<String>,
}

/// The version of the spec document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schema {
    /// The first.
    #[serde(rename = "ixbuild.spec/v1")]
    V1,
}

/// What is served: hardware, services, model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Deployment {
    /// Sets of equal nodes.
    pub groups: Vec<Group>,
    /// GPU model and fleet.
    pub hardware: Hardware,
    /// The weights.
    pub model: Pinned,
    /// Sorted by name; start order is in their `after`.
    pub services: Vec<Service>,
    /// Speculative decoding as injected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculative: Option<Speculative>,
    /// What stands in for the real thing; absent when everything is real.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substitutions: Option<Substitutions>,
}

/// A set of equal nodes. One node is one group of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Group {
    /// CPU DRAM granted to KV offload on a node, GB (10^9 bytes).
    pub dram_gb: u64,
    /// GPUs used on a node.
    pub gpus_per_node: u64,
    /// What services call it.
    pub name: String,
    /// How many nodes.
    pub nodes: u64,
}

/// GPU model and fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// GPU model, such as `b200`.
    pub gpu: String,
    /// Runner label: two fleets of one GPU differ.
    pub runner: String,
}

/// Something of the hub at a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    /// Its id, such as `deepseek-ai/DeepSeek-V4-Pro`.
    pub id: String,
    /// The commit; absent while unlocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Speculative decoding as it was injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Speculative {
    /// How drafts are accepted.
    pub acceptance: Acceptance,
    /// The drafting method, such as `mtp`.
    pub method: String,
    /// Drafted tokens a step, N.
    pub tokens: u64,
}

/// How drafts are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Acceptance {
    /// By the target model, as in production.
    Real {},
    /// At a fixed mean length from a golden curve, so that speed does not depend on the text.
    Synthetic {
        /// The cell: model, draft head, method, thinking mode (N stands beside).
        cell: BTreeMap<Key, String>,
        /// Accepted tokens a step with the bonus token, in [1, N+1]; digits.
        length: String,
    },
}

/// What stands in for the real thing. Its presence makes a result unpublishable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Substitutions {
    /// Settings of the replay client, by name.
    pub client: BTreeMap<Key, Tree>,
    /// Settings of the simulator, by name.
    pub engine: BTreeMap<Key, Tree>,
    /// Program (first word of an entrypoint) → the part that plays it.
    pub programs: BTreeMap<Key, String>,
    /// Version of the replay client's behaviour.
    pub replay_version: u64,
    /// Version of the simulator's behaviour.
    pub simulator_version: u64,
}

/// What is measured on the deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Measurement {
    /// The load generator (or the eval harness): a service that ends by itself.
    pub client: Service,
    /// Sessions or requests in flight.
    pub concurrency: u64,
    /// What a run must satisfy to be a record.
    pub gates: Gates,
    /// How the client's output is read.
    pub output: ClientOutput,
    /// Fresh for every measurement.
    pub server: Server,
    /// What is sent.
    pub workload: Workload,
}

/// How the client's output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientOutput {
    /// `profile_export.jsonl` and `profile_export_aiperf.json`.
    Aiperf,
    /// A SWE-bench report.
    Swebench,
}

/// Whether the server was started for this measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// Yes.
    Fresh,
}

/// Bounds that a run must satisfy. Decimals are digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Gates {
    /// Realized acceptance length may differ from its target by this share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance_tolerance: Option<String>,
    /// Highest errors / completed, inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_error_ratio: Option<String>,
    /// Fewer drafts than this leave the acceptance length unjudged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_drafts: Option<u64>,
    /// Lowest score of an eval, inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_score: Option<String>,
}

/// What the client sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Workload {
    /// The data set.
    pub dataset: Pinned,
    /// Seconds of measured load; absent for evals, which end by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<u64>,
    /// Seed of every random choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Part of the data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
}
