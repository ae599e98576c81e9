//! The job spec: a complete description of one measurement, its canonical bytes, and the hash that names it.
//!
//! | in the hash | not in the hash |
//! |---|---|
//! | per service and client: image digest and platform or package files, entrypoint, argv, env, file text, mount targets, resources, probe | config key, arm id, image tag once locked, registry, mirror |
//! | every component with its locked files | node, ports, host paths, RDMA device names (bound by the host, recorded) |
//! | speculative decoding as injected, and the curve cell it came from | other rows of the golden curve |
//! | workload, data set and model with their revisions | comments, formatting, key order (only the order of args counts: it is argv) |
//! | GPU model and count, DRAM budget, runner label | executor kind, secrets, driver, timeouts and poll intervals |
//! | concurrency, gates, fresh or shared server | the version of ixbuild |
//! | substitutions, with the versions of the simulator and the replay client | |
//! | that it is a what-if, and which; that it is exploratory | |
//!
//! Struct fields are declared in the order of their JSON names and maps are sorted, so that serde's output *is* the
//! RFC 8785 form (a property test compares it with an independent canonicalizer). There are no floats: a number with a
//! fraction is a string of its digits.

pub mod binding;
pub mod diff;
pub mod python;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, JobHash};
pub use binding::{Binder, Binding, Key, Part, Segment, Text, Tree, Unbound};
pub use python::Python;

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

/// A container image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Image {
    /// Pinned by content.
    Locked {
        /// Digest of the image config: what Docker calls the image id.
        config: Digest,
        /// Digest of the platform's manifest.
        manifest: Digest,
        /// `linux/amd64` or another.
        platform: String,
    },
    /// Known by its tag alone; no real run takes it.
    Unlocked {
        /// The reference as the matrix writes it.
        reference: String,
    },
}

/// An independently versioned package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Package {
    /// The files of its dependencies, beyond those of the image, name → SHA-256; absent while unlocked, and with `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closure: Option<BTreeMap<Key, Digest>>,
    /// `none` when installed alone, else its dependency closure comes along.
    pub deps: Deps,
    /// Its own files, name → SHA-256; absent while unlocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<BTreeMap<Key, Digest>>,
    /// Name in the package index, or the repository's URL.
    pub name: String,
    /// The Python that it is installed for.
    pub python: Python,
    /// Version in the index, or the commit.
    pub version: String,
}

/// Whether a package brings its dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deps {
    /// With its dependency closure beyond the image.
    Closure,
    /// Alone: the image has what it needs.
    None,
}

/// A process (or as many as `replicas` says) of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Service {
    /// The services that must be ready first, sorted by name.
    pub after: Vec<After>,
    /// Arguments after the entrypoint.
    pub argv: Vec<Text>,
    /// What it listens on; the host gives each a port.
    pub endpoints: BTreeSet<String>,
    /// Set for engine processes: which metrics they speak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// The program and its fixed first arguments.
    pub entrypoint: Vec<String>,
    /// Environment beyond the image's own.
    pub env: BTreeMap<Key, Text>,
    /// Files made for it, by name.
    pub files: BTreeMap<Key, Text>,
    /// The node group it runs on.
    pub group: String,
    /// The container image; absent for a client with an environment of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// What is mounted into it.
    pub mounts: Vec<Mount>,
    /// Its name within the job.
    pub name: String,
    /// Packages added to the image (or that make up the environment), sorted by name.
    pub packages: Vec<Package>,
    /// When it counts as ready.
    pub probe: Probe,
    /// How many instances.
    pub replicas: u64,
    /// What it may use of the host.
    pub resources: Resources,
}

/// How an engine's `/metrics` are read and its speculation is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    Trt,
    /// ATOM.
    Atom,
}

/// A start dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// Of a service with several instances: all of them, or the first.
    pub instances: Instances,
    /// The service.
    pub service: String,
}

/// How many instances of a dependency must be ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Instances {
    /// Every one.
    All,
    /// One is enough.
    Any,
}

/// A path of the host inside the service's file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Mount {
    /// Whether the service may write there.
    pub read_only: bool,
    /// What is mounted.
    pub source: Binding,
    /// Where.
    pub target: String,
}

/// When a service counts as ready. How often and how long to ask is the host's affair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Probe {
    /// When this answers 2xx.
    Http {
        /// The endpoint.
        endpoint: String,
        /// The path, with its slash.
        path: String,
    },
    /// When it has run for so long.
    AliveAfter {
        /// Milliseconds.
        ms: u64,
    },
    /// When it has ended with status 0.
    Exit {},
}

/// What a service may use of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Resources {
    /// Linux capabilities beyond the default set.
    pub capabilities: BTreeSet<String>,
    /// Device paths.
    pub devices: BTreeSet<String>,
    /// GPUs of its node.
    pub gpus: u64,
    /// IPC namespace, such as `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipc: Option<String>,
    /// `/dev/shm`, MiB; absent with the host's IPC namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm_mib: Option<u64>,
    /// Limits by name (`memlock`); -1 is unlimited.
    pub ulimits: BTreeMap<Key, i64>,
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

impl JobSpec {
    /// The canonical bytes (RFC 8785), whose digest is the job's name.
    pub fn canonical(&self) -> Vec<u8> {
        canonical(self)
    }

    /// The job's name.
    pub fn hash(&self) -> JobHash {
        JobHash(Digest::of(&self.canonical()))
    }

    /// Why its records may not be published; empty when they may.
    pub fn unpublishable(&self) -> Vec<&'static str> {
        let reasons = [
            (self.deployment.substitutions.is_some(), "a rehearsal: something stood in for the real thing"),
            (!self.what_if.is_empty(), "a what-if: no arm of the matrix"),
            (self.exploratory, "exploratory: without a golden acceptance length"),
        ];
        reasons.into_iter().filter(|(holds, _)| *holds).map(|(_, why)| why).collect()
    }

    /// The digest of the deployment half: equal for measurements of one server.
    pub fn deployment_digest(&self) -> Digest {
        Digest::of(&canonical(&self.deployment))
    }

    /// The digest of the measurement half.
    pub fn measurement_digest(&self) -> Digest {
        Digest::of(&canonical(&self.measurement))
    }

    /// All processes: the services, then the client.
    pub fn processes(&self) -> impl Iterator<Item = &Service> {
        self.deployment.services.iter().chain(std::iter::once(&self.measurement.client))
    }

    /// GPUs that the job holds.
    pub fn gpus(&self) -> u64 {
        self.deployment.groups.iter().map(|group| group.nodes * group.gpus_per_node).sum()
    }

    /// Names of what is not pinned yet: images, packages, their closures, model, data set. A real run leaves none of
    /// these open.
    pub fn unlocked(&self) -> BTreeSet<String> {
        let mut open = BTreeSet::new();
        for service in self.processes() {
            if let Some(Image::Unlocked { reference }) = &service.image {
                open.insert(format!("image {reference}"));
            }
            for Package { closure, deps, files, name, version, .. } in &service.packages {
                if files.is_none() {
                    open.insert(format!("package {name} {version}"));
                } else if *deps == Deps::Closure && closure.is_none() {
                    open.insert(format!("closure of {name} {version}"));
                }
            }
        }
        for (kind, pinned) in [("model", &self.deployment.model), ("data set", &self.measurement.workload.dataset)] {
            if pinned.revision.is_none() {
                open.insert(format!("{kind} {}", pinned.id));
            }
        }
        open
    }
}

/// Whether a service, an endpoint, a file or a directory may be called so: names become parts of paths.
pub fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= 128 && name.chars().all(fine)
}

/// serde's compact output, which is canonical for the types of this module.
fn canonical(value: &impl Serialize) -> Vec<u8> {
    // These types hold string keys and no floats: serialization has no failing case.
    serde_json::to_vec(value).unwrap_or_default()
}
