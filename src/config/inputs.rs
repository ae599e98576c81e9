//! The input files of a project, read once: what is planned and run is this snapshot, whatever happens to the files.
//!
//! Paths are relative to the project and use `/`. This file knows which folders hold inputs, and no format.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{Diagnostic, Diagnostics, Source};
use super::document::{MAX_BYTES, place, too_large};
use crate::git::{File, GitError, Oid, Repository, Revision};

/// The folders that are read, with everything below them.
const FOLDERS: [&str; 2] = ["configs", "golden_al_distribution"];

/// The single files that are read where they exist.
const FILES: [&str; 1] = ["ixbuild.lock"];

/// A snapshot of a project's input files.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    files: BTreeMap<String, Arc<Source>>,
    /// The revision that it was read from.
    revision: Option<Oid>,
}

/// Why there is no snapshot of a revision.
#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    /// Git gave no answer.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Files that cannot be read as text.
    #[error(transparent)]
    Files(#[from] Diagnostics),
}

/// Texts of a repository that were read before, by the names of their objects: most files of a revision are those of the
/// one before it.
#[derive(Debug, Default)]
pub struct Blobs {
    sources: HashMap<Oid, (Arc<Source>, u64)>,
    turn: u64,
}

impl Blobs {
    /// The text of a file. The inner error is its own: not UTF-8, too large.
    ///
    /// # Errors
    /// Git failed.
    pub fn source(
        &mut self,
        repository: &mut Repository,
        revision: &Revision,
        file: &File,
    ) -> Result<Result<Arc<Source>, Diagnostics>, GitError> {
        if let Some((source, used)) = self.sources.get_mut(&file.oid) {
            *used = self.turn;
            return Ok(Ok(Arc::clone(source)));
        }
        let read = text(&format!("{}:{}", revision.commit.short(), file.path), repository.content(file)?);
        if let Ok(source) = &read {
            self.sources.insert(file.oid.clone(), (Arc::clone(source), self.turn));
        }
        Ok(read)
    }

    /// Starts the next revision of a walk: what the last two did not use is forgotten.
    pub fn next(&mut self) {
        self.turn += 1;
        let turn = self.turn;
        self.sources.retain(|_, (_, used)| *used + 2 >= turn);
    }
}

impl Inputs {
    /// A snapshot of texts by path: a git revision, or a test.
    pub fn from_texts(texts: impl IntoIterator<Item = (String, String)>) -> Self {
        let files = texts.into_iter().map(|(path, text)| (path.clone(), Source::new(path, text))).collect();
        Self { files, revision: None }
    }

    /// Every input file of a git revision, as [`Inputs::read`] would find it in a checkout. Messages show
    /// `REVISION:PATH`, which `git show` understands.
    ///
    /// # Errors
    /// Git failed; files that are not UTF-8 or too large, all of them.
    pub fn from_revision(
        repository: &mut Repository,
        revision: &Revision,
        blobs: &mut Blobs,
    ) -> Result<Self, RevisionError> {
        let mut listed = Vec::new();
        for folder in FOLDERS {
            listed.extend(repository.files(revision, folder)?.into_iter().filter(|file| is_input(&file.path)));
        }
        for path in FILES {
            listed.extend(repository.entry(revision, path)?);
        }
        let mut files = BTreeMap::new();
        let mut faults = Diagnostics::default();
        for file in listed {
            if let Some(source) = faults.absorb(blobs.source(repository, revision, &file)?) {
                files.insert(file.path, source);
            }
        }
        Ok(faults.or(Self { files, revision: Some(revision.commit.clone()) })?)
    }

    /// ` in REVISION` for a revision's snapshot, nothing for the files on disk: for messages about missing files.
    pub fn shown(&self) -> String {
        self.revision.as_ref().map(|commit| format!(" in {}", commit.short())).unwrap_or_default()
    }

    /// Reads every input file of the project in `root`. Messages show paths below `prefix`.
    ///
    /// # Errors
    /// Files that cannot be read, are not UTF-8, or are larger than [`MAX_BYTES`]; all of them.
    pub fn read(root: &Path, prefix: &str) -> Result<Self, Diagnostics> {
        let mut paths = Vec::new();
        let mut faults = Diagnostics::default();
        for folder in FOLDERS {
            walk(root, folder, &mut paths, &mut faults);
        }
        paths.extend(FILES.iter().filter(|file| root.join(file).exists()).map(|file| (*file).to_owned()));
        let mut files = BTreeMap::new();
        for path in paths {
            let name = if prefix.is_empty() { path.clone() } else { format!("{prefix}/{path}") };
            if let Some(source) = faults.absorb(read_source(&root.join(&path), &name)) {
                files.insert(path, source);
            }
        }
        faults.or(Self { files, revision: None })
    }

    /// The size of all files, bytes.
    pub fn bytes(&self) -> usize {
        self.files.values().map(|source| source.text.len()).sum()
    }

    /// One file.
    pub fn get(&self, path: &str) -> Option<&Arc<Source>> {
        self.files.get(path)
    }

    /// The files directly in a folder whose names end in `suffix`, sorted, with their paths.
    pub fn in_folder<'i>(
        &'i self,
        folder: &'i str,
        suffix: &'i str,
    ) -> impl Iterator<Item = (&'i str, &'i Arc<Source>)> {
        self.files.iter().map(|(path, source)| (path.as_str(), source)).filter(move |(path, _)| {
            path.strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|name| !name.contains('/') && name.ends_with(suffix))
        })
    }

    /// Every file.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Arc<Source>)> {
        self.files.iter().map(|(path, source)| (path.as_str(), source))
    }
}

/// Reads one text file, under the name that messages show.
///
/// # Errors
/// A file that cannot be read, is larger than [`MAX_BYTES`], or is not UTF-8 (at the place of the first bad byte).
pub fn read_source(path: &Path, name: &str) -> Result<Arc<Source>, Diagnostics> {
    let unreadable = |error: io::Error| {
        let fault = Diagnostic::new(format!("cannot read {name}: {}", plain_reason(&error)));
        Diagnostics::from(match error.kind() {
            io::ErrorKind::NotFound => fault.help("check the path; relative paths start at the working directory"),
            _ => fault,
        })
    };
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_BYTES as u64 {
        return Err(too_large(name, size).into());
    }
    text(name, fs::read(path).map_err(unreadable)?)
}

/// A source from bytes.
fn text(name: &str, bytes: Vec<u8>) -> Result<Arc<Source>, Diagnostics> {
    if bytes.len() > MAX_BYTES {
        return Err(too_large(name, bytes.len() as u64).into());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(at).copied().unwrap_or_default();
            let source = Source::new(name, String::from_utf8_lossy(error.as_bytes()));
            Err(Diagnostic::at(&place(&source, at..at), "the file is not UTF-8")
                .label(format!("the byte 0x{byte:02x}"))
                .help("save the file as UTF-8")
                .into())
        }
    }
}

/// Whether a file of the folders is read.
fn is_input(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "yaml")
}

/// The operating system's words without its error number.
fn plain_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_lowercase(),
        None => text,
    }
}

fn walk(root: &Path, folder: &str, paths: &mut Vec<String>, faults: &mut Diagnostics) {
    let mut pending = vec![PathBuf::from(folder)];
    while let Some(at) = pending.pop() {
        let entries = match fs::read_dir(root.join(&at)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                faults.push(Diagnostic::new(format!("cannot list {}: {error}", at.display())));
                continue;
            }
        };
        for entry in entries.flatten() {
            let path = at.join(entry.file_name());
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let is_folder = fs::metadata(root.join(&path)).is_ok_and(|meta| meta.is_dir());
            if hidden {
                continue;
            } else if is_folder {
                pending.push(path);
            } else {
                let path = path.to_string_lossy().replace('\\', "/");
                paths.extend(is_input(&path).then_some(path));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_text_are_refused_with_their_path() {
        let dir = tempfile::tempdir().unwrap();
        let said = |name: &str| read_source(&dir.path().join(name), name).unwrap_err().to_string();
        fs::write(dir.path().join("m.yaml"), b"a: 1\nb: \xff\n").unwrap();
        assert_eq!(said("m.yaml"), "m.yaml:2:4: the file is not UTF-8");
        assert_eq!(said("none.yaml"), "cannot read none.yaml: no such file or directory");
        let large = fs::File::create(dir.path().join("large.yaml")).unwrap();
        large.set_len(100 << 20).unwrap();
        assert_eq!(said("large.yaml"), "large.yaml has 100 MiB; at most 64 MiB are read");
    }

    #[test]
    fn a_snapshot_holds_every_input_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["configs/a-master.yaml", "configs/recipes/lib/x.yaml", "golden_al_distribution/c.yaml"] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "a: 1\n").unwrap();
        }
        for other in ["configs/.hidden.yaml", "configs/notes.md", "other.yaml", "ixbuild.lock"] {
            fs::write(dir.path().join(other), "{}").unwrap();
        }
        let inputs = Inputs::read(dir.path(), "p").unwrap();
        let paths: Vec<&str> = inputs.all().map(|(path, _)| path).collect();
        assert_eq!(
            paths,
            ["configs/a-master.yaml", "configs/recipes/lib/x.yaml", "golden_al_distribution/c.yaml", "ixbuild.lock"]
        );
        assert_eq!(inputs.get("ixbuild.lock").unwrap().name, "p/ixbuild.lock");
        assert_eq!(inputs.in_folder("configs", ".yaml").count(), 1);
    }
}
