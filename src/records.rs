//! What a job's attempts hold, as values: results, gates, provenance; and the value of a job, the median of its records.
//!
//! Reads the newest derivation of each. Knows no plan and no formula.

use serde::de::DeserializeOwned;

use crate::exec::provenance::Provenance;
use crate::ids::JobHash;
use crate::plan::Reason;
use crate::result::{Gate, Median, ResultDoc, median};
use crate::spec::JobSpec;
use crate::store::{AttemptRef, StoreError, StoreView};
use crate::sweep::title;

/// Why something recorded cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A document that this version does not understand.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// Which, such as `result.json of ix1-…`.
        what: String,
        /// Why not.
        why: String,
    },
}

/// A JSON layer of an attempt; `None` if it has none of that title.
///
/// # Errors
/// A store that cannot be read; a document that is something else.
pub fn document<T: DeserializeOwned>(
    store: &dyn StoreView,
    at: &AttemptRef,
    title: &str,
) -> Result<Option<T>, RecordError> {
    let Some(bytes) = store.layer(at, title)? else { return Ok(None) };
    let unreadable = |error: serde_json::Error| RecordError::Unreadable {
        what: format!("{title} of {}", at.tag()),
        why: error.to_string(),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
}

/// What an attempt measured; `None` if it came to no result.
///
/// # Errors
/// As [`document`].
pub fn result(store: &dyn StoreView, at: &AttemptRef) -> Result<Option<ResultDoc>, RecordError> {
    document(store, at, title::RESULT)
}

/// The gates of an attempt, decided; none if it came to no result.
///
/// # Errors
/// As [`document`].
pub fn gates(store: &dyn StoreView, at: &AttemptRef) -> Result<Vec<Gate>, RecordError> {
    Ok(document(store, at, title::GATES)?.unwrap_or_default())
}

/// Where and how an attempt ran.
///
/// # Errors
/// As [`document`].
pub fn provenance(store: &dyn StoreView, at: &AttemptRef) -> Result<Option<Provenance>, RecordError> {
    document(store, at, title::PROVENANCE)
}

/// Whether an attempt was made to see whether the job's records reproduce.
///
/// # Errors
/// As [`document`].
pub fn is_reproduction(store: &dyn StoreView, at: &AttemptRef) -> Result<bool, RecordError> {
    // Reasons of other versions are no reproduction that we know of.
    let reasons = serde_json::from_value::<Vec<Reason>>(store.reasons(at)?).unwrap_or_default();
    Ok(reasons.iter().any(|reason| matches!(reason, Reason::Reproduce { .. })))
}

/// The value of a job: the median of all its records that count. `None` without any.
///
/// # Errors
/// As [`document`].
pub fn value(store: &dyn StoreView, job: &JobHash) -> Result<Option<Median>, RecordError> {
    let mut results = Vec::new();
    for at in store.job(job)?.records() {
        results.extend(result(store, at)?);
    }
    Ok(median(&results))
}

/// A job's spec; `None` if the store has none.
///
/// # Errors
/// As [`document`].
pub fn spec(store: &dyn StoreView, job: &JobHash) -> Result<Option<JobSpec>, RecordError> {
    let Some(bytes) = store.spec(job)? else { return Ok(None) };
    let unreadable = |error: serde_json::Error| RecordError::Unreadable {
        what: format!("the spec of {job}"),
        why: error.to_string(),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
}
