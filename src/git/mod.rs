//! A git repository as far as inputs need it: files and folders of a revision, ancestry, the commits of a path.
//!
//! Objects come from one long-lived `git cat-file --batch` (`batch`): a revision's name, its trees and its files cost
//! a round trip over a pipe, not a process. Nothing is checked out and nothing is written. What the files mean is not
//! known here. Paths are relative to the project's folder, which may lie below the repository's top.

mod batch;
mod error;
mod tree;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use batch::{Batch, Kind};
pub use error::GitError;

/// The name of a git object: 40 or 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(String);

impl Oid {
    /// All hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12: for people.
    pub fn short(&self) -> &str {
        &self.0[..self.0.len().min(12)]
    }
}

impl std::fmt::Display for Oid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// The commit.
    pub commit: Oid,
    /// Its parents, first one first. Those beyond the edge of a shallow clone are named as well.
    pub parents: Vec<Oid>,
    /// The first line of its message.
    pub subject: String,
}

/// A file of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The object that holds its content: equal content has an equal name.
    pub oid: Oid,
    /// The path, relative to the project.
    pub path: String,
}

/// A repository, seen from a project's folder.
#[derive(Debug)]
pub struct Repository {
    dir: PathBuf,
    /// The folder below the top, with a `/` at its end; empty at the top.
    prefix: String,
    shallow: bool,
    batch: Batch,
}

impl Repository {
    /// The repository that a folder belongs to.
    ///
    /// # Errors
    /// No git; no repository there.
    pub fn open(dir: &Path) -> Result<Self, GitError> {
        let output = git(dir, ["rev-parse", "--is-shallow-repository", "--show-prefix"])?;
        if !output.status.success() {
            return Err(GitError::NotARepository { dir: dir.to_owned(), said: said(&output) });
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines();
        let shallow = lines.next() == Some("true");
        let prefix = lines.next().unwrap_or_default().to_owned();
        Ok(Self { dir: dir.to_owned(), prefix, shallow, batch: Batch::start(dir)? })
    }

    /// The same repository seen from its top folder.
    #[must_use]
    pub fn at_top(mut self) -> Self {
        self.prefix.clear();
        self
    }

    /// The commit that a name stands for: a branch, a tag, a hash or its start, `HEAD~2`, ….
    ///
    /// # Errors
    /// A name that stands for no commit, or for several.
    pub fn resolve(&mut self, name: &str) -> Result<Revision, GitError> {
        let unknown = |shallow| GitError::UnknownRef { name: name.to_owned(), shallow };
        if name.is_empty() || name.contains(['\n', '\0']) {
            return Err(unknown(false));
        }
        let Some(object) = self.batch.object(&format!("{name}^{{commit}}"))? else {
            return Err(unknown(self.shallow));
        };
        let text = String::from_utf8_lossy(&object.bytes);
        let (header, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        let parents = header.lines().filter_map(|line| line.strip_prefix("parent ")).map(|oid| Oid(oid.to_owned()));
        Ok(Revision {
            commit: object.oid,
            parents: parents.collect(),
            subject: message.lines().next().unwrap_or_default().to_owned(),
        })
    }

    /// A file of a revision; nothing where the revision has no such file.
    ///
    /// # Errors
    /// Git failed, or the object is not in the repository.
    pub fn entry(&mut self, revision: &Revision, path: &str) -> Result<Option<File>, GitError> {
        let whole = format!("{}{path}", self.prefix);
        let (folder, name) = whole.rsplit_once('/').unwrap_or(("", &whole));
        let Some(tree) = self.batch.object(&format!("{}:{folder}", revision.commit))? else { return Ok(None) };
        let missing = || GitError::Missing { what: path.to_owned() };
        let entries = match tree.kind {
            Kind::Tree => tree::entries(&tree.bytes, digest_len(revision)).map_err(|()| missing())?,
            _ => Vec::new(),
        };
        let found = entries.into_iter().find(|entry| entry.name == name && entry.kind == tree::EntryKind::Blob);
        Ok(found.map(|entry| File { oid: Oid(entry.oid), path: path.to_owned() }))
    }

    /// The content of a file.
    ///
    /// # Errors
    /// Git failed, or the object is not in the repository.
    pub fn content(&mut self, file: &File) -> Result<Vec<u8>, GitError> {
        let object = self.batch.object(file.oid.as_str())?;
        object.map(|object| object.bytes).ok_or_else(|| GitError::Missing { what: file.path.clone() })
    }

    /// The files of a revision in a folder and everything below it, sorted by path. Empty where there is no such folder.
    /// Hidden files and folders are left out, as they are when the folder is read from disk.
    ///
    /// # Errors
    /// Git failed, an object is missing, or a name is not UTF-8.
    pub fn files(&mut self, revision: &Revision, folder: &str) -> Result<Vec<File>, GitError> {
        let name = format!("{}:{}{folder}", revision.commit, self.prefix);
        let mut found = Vec::new();
        let mut pending = match self.batch.object(&name)? {
            Some(tree) if tree.kind == Kind::Tree => vec![(folder.to_owned(), tree.bytes)],
            _ => Vec::new(),
        };
        while let Some((folder, bytes)) = pending.pop() {
            for entry in
                tree::entries(&bytes, digest_len(revision)).map_err(|()| GitError::Missing { what: folder.clone() })?
            {
                let path = format!("{folder}/{}", entry.name);
                match entry.kind {
                    _ if entry.name.starts_with('.') => {}
                    tree::EntryKind::Tree => match self.batch.object(&entry.oid)? {
                        Some(tree) => pending.push((path, tree.bytes)),
                        None => return Err(GitError::Missing { what: path }),
                    },
                    tree::EntryKind::Blob => found.push(File { oid: Oid(entry.oid), path }),
                    tree::EntryKind::Other => {}
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Makes sure that one revision is another or comes after it.
    ///
    /// # Errors
    /// It does not; or nobody can tell, in a shallow clone.
    pub fn require_ancestor(&self, base: &Revision, head: &Revision) -> Result<(), GitError> {
        if base.commit == head.commit || head.parents.contains(&base.commit) {
            return Ok(());
        }
        let (base, head) = (base.commit.clone(), head.commit.clone());
        let output = git(&self.dir, ["merge-base", "--is-ancestor", base.as_str(), head.as_str()])?;
        match output.status.code() {
            Some(0) => Ok(()),
            Some(1) if self.shallow => Err(GitError::Shallow { base, head }),
            Some(1) => Err(GitError::NotAnAncestor { base, head }),
            _ => Err(GitError::Failed { command: "merge-base".to_owned(), said: said(&output) }),
        }
    }

    /// The commits after `from`, up to and with `to`, along first parents, that change a file; oldest first.
    ///
    /// # Errors
    /// Git failed.
    pub fn commits_of(&self, from: &Revision, to: &Revision, path: &str) -> Result<Vec<Oid>, GitError> {
        let range = format!("{}..{}", from.commit, to.commit);
        let path = format!(":(top,literal){}{path}", self.prefix);
        let output = git(&self.dir, ["rev-list", "--first-parent", "--reverse", &range, "--", &path])?;
        if !output.status.success() {
            return Err(GitError::Failed { command: "rev-list".to_owned(), said: said(&output) });
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(|line| Oid(line.to_owned())).collect())
    }

    /// Whether history ends at an edge that `git fetch --unshallow` would move.
    pub fn is_shallow(&self) -> bool {
        self.shallow
    }
}

/// The bytes of a digest in the repository's trees.
fn digest_len(revision: &Revision) -> usize {
    revision.commit.as_str().len() / 2
}

/// Runs git in a folder, without a pager, prompts or locks.
fn git<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Result<Output, GitError> {
    command(dir, args).stdin(Stdio::null()).output().map_err(|error| GitError::start(dir, error))
}

/// A git command, not yet started.
fn command<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("git");
    command.args(args).current_dir(dir);
    command.envs([("LC_ALL", "C"), ("GIT_OPTIONAL_LOCKS", "0"), ("GIT_TERMINAL_PROMPT", "0")]);
    command
}

/// What a failed command said, without git's `fatal: `.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    text.strip_prefix("fatal: ").unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests;
