//! Acts on what `verify` found: damaged files move to `damaged/`, together with the attempts that need them, so that no
//! plan is served what cannot be read. Nothing is deleted but temporary files of writers that are gone.

use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::verify::{IndexState, Repair, Report};
use super::{LAYOUT, Store, disk, oci, paths};

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Files that were moved, and where to.
    pub moved: Vec<(PathBuf, PathBuf)>,
    /// Files that were written anew.
    pub rewritten: Vec<PathBuf>,
    /// Temporary files that were removed.
    pub removed: Vec<PathBuf>,
}

impl Store {
    /// Does what a report's problems call for, removes its leftovers, and rebuilds the index unless it is current.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub fn repair(&self, report: &Report) -> Result<Repaired, StoreError> {
        let mut done = Repaired::default();
        for problem in &report.problems {
            match &problem.repair {
                Repair::None => {}
                Repair::Aside(files) => {
                    for file in files {
                        done.moved.extend(self.set_aside(file)?.map(|to| (file.clone(), to)));
                    }
                }
                Repair::Layout => {
                    self.disk().write(&problem.path, LAYOUT)?;
                    done.rewritten.push(problem.path.clone());
                }
                Repair::Reference(attempt, size) => {
                    let reference = oci::reference(&attempt.job, &attempt.manifest, *size)?;
                    if self.disk().size(&problem.path)?.is_some() {
                        self.disk().write(&problem.path, &oci::to_bytes(&reference)?)?;
                        done.rewritten.push(problem.path.clone());
                    }
                }
            }
        }
        for path in &report.leftovers {
            self.disk().remove(path)?;
            done.removed.push(path.clone());
        }
        if report.index != IndexState::Current || !done.moved.is_empty() {
            self.rebuild_index()?;
            done.rewritten.push(self.paths().index());
        }
        Ok(done)
    }

    /// Moves a file to `damaged/`, under the same name with a number behind it if that is taken. `None` if it is gone.
    fn set_aside(&self, file: &Path) -> Result<Option<PathBuf>, StoreError> {
        if self.disk().size(file)?.is_none() {
            return Ok(None);
        }
        let wanted = self.paths().damaged().join(paths::below(self.root(), file));
        self.disk().make_dirs(disk::parent(&wanted))?;
        let mut to = wanted.clone();
        let mut number = 1;
        while self.disk().size(&to)?.is_some() {
            number += 1;
            to = PathBuf::from(format!("{}.{number}", wanted.display()));
        }
        self.disk().rename(file, &to)?;
        Ok(Some(to))
    }
}
