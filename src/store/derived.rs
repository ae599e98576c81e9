//! Derivations: an attempt's results and gates under newer formulas, beside the attempt and never in its place.
//!
//! A derivation is an image manifest of its own whose `subject` is the attempt's manifest, so that registries list it as a
//! referrer; its layers stand before the attempt's layers of the same titles, and its outcome before the attempt's. Its file
//! `jobs/HH/JOB/derived.MANIFEST.FORMULAS.TIME.OUTCOME.DERIVATION` says what a plan must know. Of several the one of the
//! highest formulas version counts, the latest of equals; all are kept.
//!
//! Knows nothing of formulas: their version is a number, and the layers are bytes.

use std::collections::HashSet;
use std::path::PathBuf;

use jiff::Timestamp;

use super::attempts::{AttemptRef, Derivation, Layer, Outcome};
use super::error::StoreError;
use super::verify::{Found, Problem, Repair};
use super::view::StoreView as _;
use super::{Store, arms, blob, disk, oci, paths};
use crate::ids::{Digest, JobHash};

/// What newer formulas make of an attempt.
#[derive(Debug)]
pub struct DerivationInput<'a> {
    /// The attempt.
    pub attempt: &'a AttemptRef,
    /// The version of the formulas.
    pub formulas: u32,
    /// When it was derived.
    pub at: Timestamp,
    /// The gates that it fails; none if it is valid.
    pub failed: Vec<String>,
    /// What is derived: results, gates.
    pub layers: Vec<Layer>,
}

impl DerivationInput<'_> {
    pub(crate) fn outcome(&self) -> Outcome {
        match self.failed.as_slice() {
            [] => Outcome::Valid,
            gates => Outcome::Invalid { gates: gates.to_vec() },
        }
    }
}

impl Store {
    /// Keeps a derivation of an attempt; readers prefer it from then on. The attempt itself stays as it is.
    ///
    /// # Errors
    /// An attempt that is not there, or was collected; a store that cannot be written. Then nothing changes.
    pub fn derive(&self, input: &DerivationInput<'_>) -> Result<Derivation, StoreError> {
        let at = input.attempt;
        let attempt = self.attempt(at)?;
        self.prepare()?;
        let (disk, paths) = (self.disk(), self.paths());
        let layers = input.layers.iter().map(|layer| self.put_layer(layer)).collect::<Result<Vec<_>, _>>()?;
        let size = |digest| disk.size(&paths.blob(digest)).map(Option::unwrap_or_default);
        let manifest = oci::derivation(at, (size(&at.job.0)?, size(&at.manifest)?), input, &layers)?;
        let outcome = input.outcome();
        let derivation = Derivation {
            manifest: blob::put(disk, paths, &manifest)?,
            formulas: input.formulas,
            at: input.at,
            outcome: outcome.kind(),
        };
        disk.sync_dir(&paths.blobs())?;
        if outcome == Outcome::Valid {
            for arm in &attempt.arms {
                arms::write(disk, paths, arm, &at.job, attempt.ended)?;
            }
        }
        let reference = oci::derivation_reference(at, &derivation.manifest, manifest.len() as u64)?;
        let name = paths::derivation_name(&at.manifest, &derivation);
        let path = paths.job(&at.job).join(&name);
        disk.make_dir(disk::parent(&path))?;
        disk.write(&path, &oci::to_bytes(&reference)?)?;
        self.index_later(&at.job, &name);
        Ok(derivation)
    }

    /// Checks the derivation of an attempt that is there.
    pub(crate) fn check_derivation(&self, mut one: StoredDerivation, found: &mut Found) -> Result<(), StoreError> {
        let manifest = match blob::get(self.disk(), self.paths(), &one.derivation.manifest) {
            Ok(manifest) => manifest,
            // It will be found again when all blobs are hashed.
            Err(StoreError::Damaged { .. }) => {
                found.derivations.push(one);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        found.needed.insert(one.derivation.manifest, manifest.as_ref().map_or(0, |bytes| bytes.len() as u64));
        let read = manifest.map(|bytes| oci::read_derivation(one.job, &one.attempt, &one.derivation, &bytes));
        match read {
            None => {}
            Some(Ok(read)) => {
                one.needs.extend(read.layers.iter().map(|layer| layer.digest));
                found.needed.extend(read.layers.iter().map(|layer| (layer.digest, layer.size)));
            }
            Some(Err(what)) => {
                let (path, what) = (one.path.clone(), format!("its manifest does not fit it: {what}"));
                let fix = "run `ixbuild store verify --repair` to set it aside, then `ixbuild recompute`".into();
                found.problems.push(Problem { repair: Repair::Aside(vec![path.clone()]), path, what, fix });
            }
        }
        found.derivations.push(one);
        Ok(())
    }
}

/// A derivation as found on disk.
pub(crate) struct StoredDerivation {
    /// The job.
    pub(crate) job: JobHash,
    /// The manifest of the attempt.
    pub(crate) attempt: Digest,
    /// What its name says.
    pub(crate) derivation: Derivation,
    /// Its file.
    pub(crate) path: PathBuf,
    /// The blobs that it refers to.
    pub(crate) needs: HashSet<Digest>,
}
