//! What can go wrong with a store: each error names the path, and [`StoreError::fix`] says what to do.
//!
//! Knows nothing of exit codes or of how errors are shown.

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::{Digest, JobHash};

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system said no.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// The verb of the message, such as `write`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A file is not what its name or its reader promises.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The directory holds something else.
    #[error("{} is not a store: {why}", path.display())]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What was found or missed.
        why: String,
    },
    /// There is no place to keep results in.
    #[error("no place for the store: neither IXBUILD_STORE, XDG_DATA_HOME nor HOME is set")]
    NoHome,
    /// No job has that prefix.
    #[error("no job in {} starts with `{prefix}`", store.display())]
    NoSuchJob {
        /// The store.
        store: PathBuf,
        /// What was asked for.
        prefix: String,
    },
    /// Several jobs have that prefix.
    #[error("`{prefix}` is ambiguous: {}", list(candidates))]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// Some of the jobs that match, in order.
        candidates: Vec<JobHash>,
    },
    /// Not `job:` or `sha256:` and hex digits.
    #[error("`{0}` is not a job: `job:` or `sha256:` and at least one lower-case hex digit")]
    NotAPrefix(String),
    /// The spec handed in is not the one that the job is named after.
    #[error("the spec of {job} has the digest {found}")]
    SpecMismatch {
        /// The job to record.
        job: JobHash,
        /// The digest of the bytes handed in.
        found: Digest,
    },
    /// The store has no such attempt.
    #[error("{job} has no attempt {manifest}")]
    NoSuchAttempt {
        /// The job.
        job: JobHash,
        /// The manifest asked for.
        manifest: Digest,
    },
    /// An exclusion takes a reason.
    #[error("excluding an attempt takes a reason")]
    NoReason,
    /// It was excluded before.
    #[error("attempt {manifest} is already excluded: {reason}")]
    AlreadyExcluded {
        /// The attempt.
        manifest: Digest,
        /// The reason on file.
        reason: String,
    },
    /// The attempt's blobs were collected.
    #[error("attempt {manifest} was collected on {at}: {reason}")]
    Collected {
        /// The attempt.
        manifest: Digest,
        /// When.
        at: String,
        /// Why, as its tombstone says.
        reason: String,
    },
    /// Somebody works on the job.
    #[error("{job} is claimed by {owner}")]
    Claimed {
        /// The job.
        job: JobHash,
        /// Who holds it, in words.
        owner: String,
    },
    /// Somebody ended our claim.
    #[error("the claim on {job} was ended by somebody else")]
    ClaimLost {
        /// The job.
        job: JobHash,
    },
    /// A name that the OCI types refuse.
    #[error("cannot describe {what} as an OCI object: {why}")]
    Oci {
        /// The object.
        what: String,
        /// Why not.
        why: String,
    },
}

impl StoreError {
    /// An I/O error with its path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { action, path, error }
    }

    /// A file that is not what it should be.
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    /// What to do about it, one sentence.
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::Io { error, .. } => match error.kind() {
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                    "give this user write access, or name another store with --store or IXBUILD_STORE".into()
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free space there, or name another store with --store or IXBUILD_STORE; \
                     what is recorded is untouched"
                        .into()
                }
                _ => return None,
            },
            Self::Damaged { .. } => "run `ixbuild store verify` to see all damage; copy the file back from another \
                                     copy of the store, or run `ixbuild store verify --repair` to set it aside and \
                                     then run the arm again"
                .into(),
            Self::NotAStore { .. } => "name another directory with --store or IXBUILD_STORE".into(),
            Self::NoHome => "set IXBUILD_STORE, or pass --store DIR".into(),
            Self::Ambiguous { .. } => "give more digits".into(),
            Self::Collected { .. } => "pull it from a registry, or run the arm again".into(),
            Self::Claimed { .. } => "`ixbuild ps` shows the owner, `ixbuild stop` ends it".into(),
            Self::NoReason => "say why, so that whoever reads the numbers later can judge".into(),
            Self::NoSuchJob { .. }
            | Self::NotAPrefix(_)
            | Self::SpecMismatch { .. }
            | Self::NoSuchAttempt { .. }
            | Self::AlreadyExcluded { .. }
            | Self::ClaimLost { .. }
            | Self::Oci { .. } => return None,
        })
    }
}

fn list(jobs: &[JobHash]) -> String {
    jobs.iter().map(JobHash::to_string).collect::<Vec<_>>().join(", ")
}
