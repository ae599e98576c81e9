//! A process of a job as the spec holds it: image and packages, argv, environment, files, what it waits for, what it may
//! use. Values alone: nothing here starts anything.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Binding, Key, Python, Text};
use crate::ids::Digest;

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

/// Whether a service, an endpoint, a file or a directory may be called so: names become parts of paths.
pub fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= 128 && name.chars().all(fine)
}
