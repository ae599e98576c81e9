//! A store in memory, for plans under test: the view without the disk.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;

use super::attempts::{
    ArmJob, Attempt, AttemptInput, AttemptRef, Derivation, Derived, Exclusion, Layer, LayerRef, Outcome, Source,
};
use super::claim::HeldClaim;
use super::derived::DerivationInput;
use super::error::StoreError;
use super::oci::{REASONS_TITLE, REASONS_TYPE};
use super::view::{JobState, StoreView, only_one, prefix_digits};
use crate::ids::{ArmId, Digest, JobHash};

/// The view's twin in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    jobs: BTreeMap<JobHash, JobState>,
    arms: BTreeMap<ArmId, Vec<ArmJob>>,
    attempts: BTreeMap<Digest, Attempt>,
    derived: BTreeMap<Digest, Derived>,
    exclusions: BTreeMap<Digest, Exclusion>,
    blobs: BTreeMap<Digest, Vec<u8>>,
}

impl MemoryStore {
    /// Keeps an attempt. Layers must be bytes.
    ///
    /// # Errors
    /// A spec that is not the job's; a layer that stands in a file.
    pub fn record(&mut self, input: AttemptInput<'_>) -> Result<AttemptRef, StoreError> {
        let found = self.put(input.spec.to_vec());
        if found != input.job.0 {
            return Err(StoreError::SpecMismatch { job: input.job, found });
        }
        let reasons = Layer::new(REASONS_TYPE, REASONS_TITLE, Source::Bytes(input.reasons.to_string().into_bytes()));
        let layers = self.put_layers(input.layers.into_iter().chain([reasons]))?;
        let manifest = Digest::of(format!("{} {layers:?} {:?}", input.started, input.outcome).as_bytes());
        let at = AttemptRef {
            job: input.job,
            manifest,
            started: input.started,
            outcome: input.outcome.kind(),
            derived: None,
            rehearsal: input.rehearsal,
            excluded: false,
            collected: false,
        };
        if input.outcome == Outcome::Valid {
            input.arms.iter().for_each(|arm| self.serve_for(arm, &input.job, input.ended));
        }
        let arms = input.arms.to_vec();
        let attempt =
            Attempt { at: at.clone(), arms, outcome: input.outcome, ended: input.ended, layers, derived: None };
        self.attempts.insert(manifest, attempt);
        let state = self.jobs.entry(input.job).or_default();
        state.attempts.push(at.clone());
        state.attempts.sort_by_key(|attempt| (attempt.started, attempt.manifest));
        Ok(at)
    }

    /// Notes that a job was served for an arm.
    pub fn serve_for(&mut self, arm: &ArmId, job: &JobHash, at: Timestamp) {
        let jobs = self.arms.entry(arm.clone()).or_default();
        if jobs.iter().all(|noted| noted.job != *job) {
            jobs.push(ArmJob { job: *job, at });
            jobs.sort_by_key(|noted| (noted.at, noted.job));
        }
    }

    /// Keeps a derivation of an attempt; it counts from then on if none of higher formulas does.
    ///
    /// # Errors
    /// No such attempt; a layer that stands in a file.
    pub fn derive(&mut self, input: &DerivationInput<'_>) -> Result<Derivation, StoreError> {
        let DerivationInput { attempt: at, formulas, .. } = *input;
        let layers = self.put_layers(input.layers.iter().cloned())?;
        let outcome = input.outcome();
        let manifest = Digest::of(format!("{} {formulas} {} {layers:?}", at.manifest, input.at).as_bytes());
        let derivation = Derivation { manifest, formulas, at: input.at, outcome: outcome.kind() };
        let missing = || StoreError::NoSuchAttempt { job: at.job, manifest: at.manifest };
        let attempt = self.attempts.get(&at.manifest).ok_or_else(missing)?;
        let order = |derivation: &Derivation| (derivation.formulas, derivation.at, derivation.manifest);
        let attempts = self.jobs.entry(at.job).or_default().attempts.iter_mut();
        for known in attempts.filter(|known| known.manifest == at.manifest) {
            if known.derived.as_ref().is_none_or(|known| order(known) < order(&derivation)) {
                known.derived = Some(derivation.clone());
            }
        }
        self.derived.insert(manifest, Derived { at: derivation.clone(), outcome: outcome.clone(), layers });
        if outcome == Outcome::Valid {
            let (arms, ended) = (attempt.arms.clone(), attempt.ended);
            arms.iter().for_each(|arm| self.serve_for(arm, &at.job, ended));
        }
        Ok(derivation)
    }

    fn put_layers(&mut self, layers: impl Iterator<Item = Layer>) -> Result<Vec<LayerRef>, StoreError> {
        let mut stored = Vec::new();
        for Layer { media_type, title, source } in layers {
            let Source::Bytes(bytes) = source else {
                return Err(StoreError::Oci { what: title, why: "a store in memory takes bytes only".into() });
            };
            let size = bytes.len() as u64;
            stored.push(LayerRef { media_type, title, digest: self.put(bytes), size });
        }
        Ok(stored)
    }

    /// Takes an attempt out of the count.
    pub fn exclude(&mut self, job: &JobHash, manifest: &Digest, reason: &str, at: Timestamp) {
        self.exclusions.insert(*manifest, Exclusion { reason: reason.to_owned(), at });
        if let Some(state) = self.jobs.get_mut(job) {
            state.attempts.iter_mut().filter(|at| at.manifest == *manifest).for_each(|at| at.excluded = true);
        }
    }

    /// Sets or clears the claim on a job.
    pub fn set_claim(&mut self, job: &JobHash, claim: Option<HeldClaim>) {
        self.jobs.entry(*job).or_default().claim = claim;
    }

    fn put(&mut self, bytes: Vec<u8>) -> Digest {
        let digest = Digest::of(&bytes);
        self.blobs.insert(digest, bytes);
        digest
    }
}

impl StoreView for MemoryStore {
    fn job(&self, job: &JobHash) -> Result<JobState, StoreError> {
        Ok(self.jobs.get(job).cloned().unwrap_or_default())
    }

    fn arm_jobs(&self, arm: &ArmId) -> Result<Vec<ArmJob>, StoreError> {
        let noted = self.arms.get(arm).map(Vec::as_slice).unwrap_or_default();
        let recorded = |noted: &&ArmJob| {
            let state = self.jobs.get(&noted.job);
            state.is_some_and(|state| state.attempts.iter().any(AttemptRef::was_valid))
        };
        Ok(noted.iter().filter(recorded).cloned().collect())
    }

    fn spec(&self, job: &JobHash) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.blobs.get(&job.0).cloned())
    }

    fn resolve(&self, prefix: &str) -> Result<JobHash, StoreError> {
        let digits = prefix_digits(prefix)?;
        let jobs = self.jobs.keys().filter(|job| job.hex().starts_with(digits)).copied().collect();
        only_one(jobs, prefix, Path::new("memory"))
    }

    fn attempt(&self, at: &AttemptRef) -> Result<Attempt, StoreError> {
        let missing = || StoreError::NoSuchAttempt { job: at.job, manifest: at.manifest };
        let attempt = self.attempts.get(&at.manifest).ok_or_else(missing)?;
        let derived = at.derived.as_ref().and_then(|derivation| self.derived.get(&derivation.manifest)).cloned();
        Ok(Attempt { at: at.clone(), derived, ..attempt.clone() })
    }

    fn exclusion(&self, at: &AttemptRef) -> Result<Option<Exclusion>, StoreError> {
        Ok(self.exclusions.get(&at.manifest).cloned())
    }

    fn layer(&self, at: &AttemptRef, title: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let attempt = self.attempt(at)?;
        Ok(attempt.layer(title).and_then(|layer| self.blobs.get(&layer.digest)).cloned())
    }
}
