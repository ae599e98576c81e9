//! `ixbuild changelog`: what its new entries have measured again, and whether that is what changed.

mod add;
mod audit;
mod check;
mod cost;
mod select;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Globals;
use super::error::Error;
use super::printer::Printer;
use super::project;
use crate::changelog::select::SelectError;
use crate::config::inputs::RevisionError;
use crate::git::{GitError, Repository};

const EXAMPLES: &str = "\
Examples:
  ixbuild changelog check --base origin/main                 what the change forgets to measure, and what it need not
  ixbuild changelog add 'dsv4-*' -m 'New engine image' --pr 12
  ixbuild changelog select --base HEAD~1 --head HEAD         what the new entries select, as JSON";

/// Work with the changelog, the list of what was changed to be measured again
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ChangelogArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Select(select::SelectArgs),
    Check(check::CheckArgs),
    Add(add::AddArgs),
    Audit(audit::AuditArgs),
}

impl ChangelogArgs {
    /// Whether it was asked for one JSON object.
    pub(super) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Select(args) => args.json,
            Verb::Check(args) => args.json,
            Verb::Add(args) => args.json,
            Verb::Audit(args) => args.json,
        }
    }
}

pub(super) fn run(args: &ChangelogArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    match &args.verb {
        Verb::Select(args) => select::run(args, globals, printer),
        Verb::Check(args) => check::run(args, globals, printer),
        Verb::Add(args) => add::run(args, globals, printer),
        Verb::Audit(args) => audit::run(args, globals, printer),
    }
}

/// The repository, seen from the project: the folder asked for, else the project above the working directory, else
/// (a bare repository, or one whose files are not checked out) the repository's top.
pub(super) fn repository(globals: &Globals) -> Result<(Repository, PathBuf), Error> {
    if let Some(dir) = &globals.project {
        return Ok((Repository::open(dir)?, dir.clone()));
    }
    match project::find(None) {
        Ok(root) => Ok((Repository::open(&root)?, root)),
        Err(_) => {
            let here = std::env::current_dir()
                .map_err(|error| Error::environment(format!("the working directory: {error}")))?;
            Ok((Repository::open(&here)?.at_top(), here))
        }
    }
}

impl From<GitError> for Error {
    fn from(error: GitError) -> Self {
        let made = match &error {
            GitError::UnknownRef { shallow: false, .. } | GitError::NotAnAncestor { .. } => {
                Self::usage(error.to_string())
            }
            _ => Self::environment(error.to_string()),
        };
        made.hint(error.hint())
    }
}

impl From<RevisionError> for Error {
    fn from(error: RevisionError) -> Self {
        match error {
            RevisionError::Git(error) => error.into(),
            RevisionError::Files(faults) => faults.into(),
        }
    }
}

impl From<SelectError> for Error {
    fn from(error: SelectError) -> Self {
        match error {
            SelectError::Faults(faults) => faults.into(),
            SelectError::EvalsOfAppended(_) => Self::usage(error.to_string()).hint("remove the flag"),
        }
    }
}
