//! What takes an attempt out of the count: exclusions, which are written here, and tombstones, which are only read.
//! Both are write-once files beside the attempt.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attempts::{AttemptRef, Exclusion};
use super::error::StoreError;
use super::view::StoreView as _;
use super::{Store, oci, paths};
use crate::ids::{Digest, JobHash};

/// The content of an exclusion and of a tombstone.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    at: String,
    reason: String,
}

/// Reads a note.
pub(crate) fn parse(bytes: &[u8]) -> Result<Exclusion, String> {
    let note: Note = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let at = note.at.parse().map_err(|error| format!("its time: {error}"))?;
    Ok(Exclusion { reason: note.reason, at })
}

impl Store {
    /// Takes an attempt out of the count, for good. It stays readable.
    ///
    /// # Errors
    /// No such attempt, an empty reason, an exclusion that stands already.
    pub fn exclude(&self, job: &JobHash, manifest: &Digest, reason: &str, at: Timestamp) -> Result<(), StoreError> {
        let reason = reason.trim();
        if reason.is_empty() {
            return Err(StoreError::NoReason);
        }
        let state = self.job(job)?;
        let Some(attempt) = state.attempts.iter().find(|attempt| attempt.manifest == *manifest) else {
            return Err(StoreError::NoSuchAttempt { job: *job, manifest: *manifest });
        };
        if let Some(Exclusion { reason, .. }) = self.exclusion(attempt)? {
            return Err(StoreError::AlreadyExcluded { manifest: *manifest, reason });
        }
        let content = oci::to_bytes(&Note { at: at.to_string(), reason: reason.to_owned() })?;
        self.disk().write(&self.paths().job(job).join(paths::exclusion_name(manifest, &content)), &content)
    }

    /// Why an attempt was collected, if it was.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn tombstone(&self, attempt: &AttemptRef) -> Result<Option<Exclusion>, StoreError> {
        self.note(&attempt.job, &paths::tombstone_prefix(&attempt.manifest))
    }

    pub(crate) fn exclusion_note(&self, attempt: &AttemptRef) -> Result<Option<Exclusion>, StoreError> {
        self.note(&attempt.job, &paths::exclusion_prefix(&attempt.manifest))
    }

    fn note(&self, job: &JobHash, prefix: &str) -> Result<Option<Exclusion>, StoreError> {
        let dir = self.paths().job(job);
        let mut oldest: Option<Exclusion> = None;
        for name in self.disk().list(&dir)?.iter().filter(|name| name.starts_with(prefix)) {
            let path = dir.join(name);
            let Some(bytes) = self.disk().read(&path)? else { continue };
            let note = parse(&bytes).map_err(|what| StoreError::damaged(&path, what))?;
            if oldest.as_ref().is_none_or(|known| note.at < known.at) {
                oldest = Some(note);
            }
        }
        Ok(oldest)
    }
}
