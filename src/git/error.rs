//! What can go wrong with git, each with its fix.

use std::path::{Path, PathBuf};

use super::Oid;

/// Why git gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no such program.
    #[error("git is not installed, or not on PATH")]
    NoGit,
    /// The program did not start.
    #[error("cannot start git in {}: {source}", dir.display())]
    Start {
        /// Where.
        dir: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The folder belongs to no repository, or to one that git refuses.
    #[error("{} is in no git repository: {said}", dir.display())]
    NotARepository {
        /// Which.
        dir: PathBuf,
        /// Git's words.
        said: String,
    },
    /// A name that stands for no commit.
    #[error("git knows no commit `{name}`")]
    UnknownRef {
        /// As asked for.
        name: String,
        /// Whether the clone is shallow.
        shallow: bool,
    },
    /// Two revisions of which the first does not come before the second.
    #[error("{} is not an ancestor of {}", base.short(), head.short())]
    NotAnAncestor {
        /// The revision that should come first.
        base: Oid,
        /// The other one.
        head: Oid,
    },
    /// History is cut off before it shows whether one revision comes before the other.
    #[error("the clone is shallow: it does not show whether {} comes before {}", base.short(), head.short())]
    Shallow {
        /// The revision that should come first.
        base: Oid,
        /// The other one.
        head: Oid,
    },
    /// An object that the repository should have.
    #[error("the repository lacks the content of {what}")]
    Missing {
        /// A path.
        what: String,
    },
    /// A command failed.
    #[error("git {command} failed: {said}")]
    Failed {
        /// Which.
        command: String,
        /// Its words.
        said: String,
    },
}

impl GitError {
    /// The program did not start.
    pub(super) fn start(dir: &Path, source: std::io::Error) -> Self {
        // A missing folder gives the same error as a missing program.
        if source.kind() == std::io::ErrorKind::NotFound && dir.is_dir() {
            return Self::NoGit;
        }
        Self::Start { dir: dir.to_owned(), source }
    }

    /// The fix.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoGit => "install git 2.20 or newer",
            Self::Start { .. } => "check the folder and the machine's limits",
            Self::NotARepository { .. } => "change into a clone, or pass --project DIR",
            Self::UnknownRef { shallow: true, .. } => {
                "the clone is shallow, older commits are not there: git fetch --unshallow (in CI: fetch-depth: 0)"
            }
            Self::UnknownRef { shallow: false, .. } => {
                "check its spelling; `git fetch` brings new branches, such as origin/main"
            }
            Self::NotAnAncestor { .. } => "compare with the fork point: --base $(git merge-base BASE HEAD)",
            Self::Shallow { .. } => "git fetch --unshallow (in CI: fetch-depth: 0)",
            Self::Missing { .. } => "git fsck says what is damaged; in a partial clone, fetch again",
            Self::Failed { .. } => "run the command by hand to see more",
        }
    }
}
