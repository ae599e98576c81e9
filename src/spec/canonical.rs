//! The canonical bytes of a spec, and the names made from them: the job's hash and the digests of its halves. Also what a
//! spec says of itself as a whole: its processes, its GPUs, what is not pinned in it.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Deps, Image, JobSpec, Package, Service};
use crate::ids::{Digest, JobHash};

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

/// serde's compact output, which is canonical for the types of this module.
fn canonical(value: &impl Serialize) -> Vec<u8> {
    // These types hold string keys and no floats: serialization has no failing case.
    serde_json::to_vec(value).unwrap_or_default()
}
