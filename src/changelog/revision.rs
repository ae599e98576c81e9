//! What a git revision holds of a changelog and of the masters.

use std::sync::Arc;

use super::append_only::Side;
use crate::config::diagnostic::{Diagnostic, Source};
use crate::config::inputs::{Blobs, Inputs, RevisionError};
use crate::git::{Repository, Revision};

/// The changelog of a revision; nothing where it has none.
///
/// # Errors
/// Git failed; a file that is not UTF-8.
pub fn changelog(
    repository: &mut Repository,
    revision: &Revision,
    path: &str,
    blobs: &mut Blobs,
) -> Result<Option<Arc<Source>>, RevisionError> {
    match repository.entry(revision, path)? {
        None => Ok(None),
        Some(file) => Ok(Some(blobs.source(repository, revision, &file)??)),
    }
}

/// The changelog of a revision, which must have one.
///
/// # Errors
/// As [`changelog`], and a revision without one.
pub fn required_changelog(
    repository: &mut Repository,
    revision: &Revision,
    path: &str,
    blobs: &mut Blobs,
) -> Result<Arc<Source>, RevisionError> {
    changelog(repository, revision, path, blobs)?.ok_or_else(|| {
        let fault = Diagnostic::new(format!("there is no {path} in {}", revision.commit.short()));
        RevisionError::Files(fault.help("name it with --changelog FILE").into())
    })
}

/// The masters and runners of a revision.
///
/// # Errors
/// Git failed; every fault of the files.
pub fn side(repository: &mut Repository, revision: &Revision, blobs: &mut Blobs) -> Result<Side, RevisionError> {
    Ok(Side::of(&Inputs::from_revision(repository, revision, blobs)?)?)
}
