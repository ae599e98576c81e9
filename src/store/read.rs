//! The view of a store on disk. A job costs one listing and one look for a claim, whatever the store's size; nothing here
//! creates or changes anything.

use std::collections::HashSet;

use super::attempts::{ArmJob, Attempt, AttemptRef, Derivation, Exclusion};
use super::blob::{self, BlobReader};
use super::disk::Disk;
use super::error::StoreError;
use super::paths::{self, JobEntry, Paths};
use super::view::{JobState, StoreView, only_one, prefix_digits};
use super::{Store, arms, index, oci};
use crate::ids::{ArmId, Digest, JobHash};

/// Jobs from which on a second thread pays.
const MANY: usize = 2048;

/// A job's attempts, oldest first.
pub(crate) fn attempts(disk: &Disk, paths: &Paths, job: &JobHash) -> Result<Vec<AttemptRef>, StoreError> {
    let (mut attempts, mut excluded, mut collected) = (Vec::new(), Vec::new(), Vec::new());
    let mut derived: Vec<(Digest, Derivation)> = Vec::new();
    for name in disk.list(&paths.job(job))? {
        match paths::job_entry(*job, &name) {
            Some(JobEntry::Attempt(attempt)) => attempts.push(attempt),
            Some(JobEntry::Excluded(manifest)) => excluded.push(manifest),
            Some(JobEntry::Collected(manifest)) => collected.push(manifest),
            Some(JobEntry::Derived(attempt, derivation)) => derived.push((attempt, derivation)),
            None => {}
        }
    }
    for attempt in &mut attempts {
        attempt.excluded = excluded.contains(&attempt.manifest);
        attempt.collected = collected.contains(&attempt.manifest);
        let own = derived.iter().filter(|(of, _)| *of == attempt.manifest).map(|(_, derivation)| derivation);
        attempt.derived =
            own.max_by_key(|derivation| (derivation.formulas, derivation.at, derivation.manifest)).cloned();
    }
    attempts.sort_by_key(|attempt| (attempt.started, attempt.manifest));
    Ok(attempts)
}

impl StoreView for Store {
    fn job(&self, job: &JobHash) -> Result<JobState, StoreError> {
        Ok(JobState { attempts: attempts(self.disk(), self.paths(), job)?, claim: self.read_claim(job)? })
    }

    fn jobs(&self, jobs: &[JobHash]) -> Result<Vec<JobState>, StoreError> {
        let claimed: HashSet<JobHash> = self.claimed_jobs()?.collect();
        let look = |job: &JobHash| {
            let claim = if claimed.contains(job) { self.read_claim(job)? } else { None };
            Ok(JobState { attempts: attempts(self.disk(), self.paths(), job)?, claim })
        };
        if self.disk().size(&self.paths().jobs())?.is_none() && claimed.is_empty() {
            return Ok(vec![JobState::default(); jobs.len()]);
        }
        if jobs.len() < MANY {
            return jobs.iter().map(look).collect();
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        let look = &look;
        let parts: Vec<Result<Vec<JobState>, StoreError>> = std::thread::scope(|scope| {
            let parts: Vec<_> = jobs
                .chunks(jobs.len().div_ceil(threads))
                .map(|part| scope.spawn(move || part.iter().map(look).collect()))
                .collect();
            parts.into_iter().map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn arm_jobs(&self, arm: &ArmId) -> Result<Vec<ArmJob>, StoreError> {
        let mut jobs = Vec::new();
        for noted in arms::read(self.disk(), self.paths(), arm)? {
            let attempts = attempts(self.disk(), self.paths(), &noted.job)?;
            if attempts.iter().any(AttemptRef::was_valid) {
                jobs.push(noted);
            }
        }
        Ok(jobs)
    }

    fn spec(&self, job: &JobHash) -> Result<Option<Vec<u8>>, StoreError> {
        blob::get(self.disk(), self.paths(), &job.0)
    }

    fn resolve(&self, prefix: &str) -> Result<JobHash, StoreError> {
        let digits = prefix_digits(prefix)?;
        let shards = match digits.get(..2) {
            Some(shard) => vec![shard.to_owned()],
            None => self.disk().list(&self.paths().jobs())?,
        };
        let mut jobs: Vec<JobHash> = self.claimed_jobs()?.filter(|job| job.hex().starts_with(digits)).collect();
        for shard in shards.iter().filter(|shard| shard.starts_with(&digits[..digits.len().min(2)])) {
            let names = self.disk().list(&self.paths().jobs().join(shard))?;
            let matching = names.iter().filter(|name| name.starts_with(digits));
            jobs.extend(matching.filter_map(|name| Digest::from_hex(name).ok()).map(JobHash));
        }
        only_one(jobs, prefix, self.root())
    }

    fn attempt(&self, at: &AttemptRef) -> Result<Attempt, StoreError> {
        let Some(bytes) = blob::get(self.disk(), self.paths(), &at.manifest)? else {
            return Err(self.why_missing(at, &at.manifest));
        };
        let damaged = |digest, what| StoreError::damaged(&self.paths().blob(digest), what);
        let (mut attempt, _) = oci::read_manifest(at, &bytes).map_err(|what| damaged(&at.manifest, what))?;
        if let Some(derivation) = &at.derived {
            let Some(bytes) = blob::get(self.disk(), self.paths(), &derivation.manifest)? else {
                return Err(self.why_missing(at, &derivation.manifest));
            };
            let read = oci::read_derivation(at.job, &at.manifest, derivation, &bytes);
            attempt.derived = Some(read.map_err(|what| damaged(&derivation.manifest, what))?);
        }
        Ok(attempt)
    }

    fn exclusion(&self, at: &AttemptRef) -> Result<Option<Exclusion>, StoreError> {
        self.exclusion_note(at)
    }

    fn layer(&self, at: &AttemptRef, title: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let attempt = self.attempt(at)?;
        let Some(layer) = attempt.layer(title) else { return Ok(None) };
        match blob::get(self.disk(), self.paths(), &layer.digest)? {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(self.why_missing(at, &layer.digest)),
        }
    }
}

impl Store {
    /// Every job that was tried, in order.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn tried(&self) -> Result<Vec<JobHash>, StoreError> {
        let mut jobs = Vec::new();
        index::each_job(self.disk(), self.paths(), |job| {
            jobs.push(job);
            Ok(())
        })?;
        jobs.sort_unstable();
        Ok(jobs)
    }

    /// Opens an attempt's layer for reading piece by piece: for logs and raw rows. The read that reaches the end checks the
    /// digest.
    ///
    /// # Errors
    /// As [`StoreView::layer`].
    pub fn open_layer(&self, at: &AttemptRef, title: &str) -> Result<Option<BlobReader>, StoreError> {
        let attempt = self.attempt(at)?;
        let Some(layer) = attempt.layer(title) else { return Ok(None) };
        if self.disk().size(&self.paths().blob(&layer.digest))?.is_none() {
            return Err(self.why_missing(at, &layer.digest));
        }
        BlobReader::open(self.disk(), self.paths(), &layer.digest).map(Some)
    }

    fn claimed_jobs(&self) -> Result<impl Iterator<Item = JobHash>, StoreError> {
        let names = self.disk().list(&self.paths().claims())?;
        Ok(names.into_iter().filter_map(|name| Some(JobHash(Digest::from_hex(name.strip_suffix(".json")?).ok()?))))
    }

    /// The error for a blob that is not there.
    fn why_missing(&self, at: &AttemptRef, blob: &Digest) -> StoreError {
        match self.tombstone(at) {
            Ok(Some(stone)) => {
                StoreError::Collected { manifest: at.manifest, at: stone.at.to_string(), reason: stone.reason }
            }
            Ok(None) => {
                StoreError::damaged(&self.paths().blob(blob), format!("it is missing, and {} needs it", at.tag()))
            }
            Err(error) => error,
        }
    }
}
