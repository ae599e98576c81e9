//! What a lock pins, by name: the keys of its sections, and everything that some jobs name.
//!
//! Knows specs, and nothing of where names are resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::spec::{Deps, Image, Package, Python, Service};

/// The platform of every wheel: that of the GPU hosts.
pub const PLATFORM: &str = "linux/amd64";

/// A package for one Python. Its key in the lock is `NAME VERSION cp312 linux/amd64`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageKey {
    /// Name in the package index, or `git+URL`.
    pub name: String,
    /// Version in the index, or the commit.
    pub version: String,
    /// What it is installed for.
    pub python: Python,
}

impl PackageKey {
    /// Whether it is built from a repository's commit instead of taken from the index.
    pub fn from_source(&self) -> bool {
        self.name.starts_with("git+")
    }
}

impl fmt::Display for PackageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {PLATFORM}", self.name, self.version, self.python)
    }
}

/// A repository of the hub. Its key in the lock is `models/ID` or `datasets/ID`, as in the hub's own addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubKey {
    kind: &'static str,
    /// Such as `deepseek-ai/DeepSeek-V4-Pro`.
    pub id: String,
}

impl HubKey {
    /// A model.
    pub fn model(id: &str) -> Self {
        Self { kind: "models", id: id.to_owned() }
    }

    /// A data set.
    pub fn dataset(id: &str) -> Self {
        Self { kind: "datasets", id: id.to_owned() }
    }

    /// `models` or `datasets`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }
}

impl fmt::Display for HubKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}

/// What a closure of dependencies goes into, where that is an environment of its own: its packages.
pub fn environment(keys: &[PackageKey]) -> String {
    let mut words: Vec<String> = keys.iter().map(|key| format!("{} {}", key.name, key.version)).collect();
    words.sort_unstable();
    words.join(" + ")
}

/// Everything that some jobs need pinned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Image references.
    pub images: BTreeSet<String>,
    /// Packages, and what the dependencies of each come on top of: an image or an [`environment`]. None where it is
    /// installed without dependencies.
    pub packages: BTreeMap<PackageKey, BTreeSet<String>>,
    /// Models and data sets.
    pub hub: BTreeSet<HubKey>,
}

impl Wanted {
    /// Adds what a service needs. Images must stand there by reference: compose with an empty lock.
    pub fn service(&mut self, service: &Service) {
        let reference = match &service.image {
            Some(Image::Unlocked { reference }) => Some(reference),
            _ => None,
        };
        self.images.extend(reference.cloned());
        let key = |package: &Package| PackageKey {
            name: package.name.clone(),
            version: package.version.clone(),
            python: package.python,
        };
        let keys: Vec<PackageKey> = service.packages.iter().map(key).collect();
        let base = reference.cloned().unwrap_or_else(|| environment(&keys));
        for (package, key) in service.packages.iter().zip(keys) {
            let bases = self.packages.entry(key).or_default();
            if package.deps == Deps::Closure {
                bases.insert(base.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_as_the_lock_writes_them() {
        let python = Python { minor: 12 };
        let key = |name: &str, version: &str| PackageKey { name: name.into(), version: version.into(), python };
        assert_eq!(key("lmcache", "0.5.1").to_string(), "lmcache 0.5.1 cp312 linux/amd64");
        assert_eq!(HubKey::model("a/b").to_string(), "models/a/b");
        assert_eq!(HubKey::dataset("a/b").to_string(), "datasets/a/b");
        assert_eq!(environment(&[key("b", "2"), key("a", "1")]), "a 1 + b 2");
        assert!(key("git+https://example.com/x", "c0ffee").from_source() && !key("git", "1").from_source());
    }
}
