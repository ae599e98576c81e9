//! The master files and the runners file, from disk or from a snapshot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::document;
use super::inputs::Inputs;
use super::master::{self, MasterEntry};
use super::runners::Runners;
use crate::ids::ConfigKey;

/// What the matrix is made of.
#[derive(Debug, Clone)]
pub struct Config {
    /// The entries of all master files, in file order.
    pub entries: Vec<MasterEntry>,
    /// The runners file.
    pub runners: Runners,
}

impl Config {
    /// Reads master files, in order, and a runners file.
    ///
    /// # Errors
    /// Every fault of every file; a file given twice; a key that stands in two files.
    pub fn load(masters: &[PathBuf], runners: &Path) -> Result<Self, Diagnostics> {
        let mut found = Diagnostics::default();
        let mut sources = Vec::new();
        for (index, path) in masters.iter().enumerate() {
            if masters[..index].contains(path) {
                let fault = Diagnostic::new(format!("{} is given twice", path.display()));
                found.push(fault.help("pass each master file once; a key stands in one file"));
            } else {
                sources.extend(found.absorb(document::read(path)));
            }
        }
        let entries = found.absorb(master::parse_all(&sources));
        let runners = document::read(runners).and_then(|source| Runners::parse(&source));
        let runners = found.absorb(runners);
        found.or(Self { entries: entries.unwrap_or_default(), runners: runners.unwrap_or_default() })
    }

    /// Reads the master files and the runners file of a snapshot.
    ///
    /// # Errors
    /// Every fault of every file; a file that is missing.
    pub fn of(inputs: &Inputs) -> Result<Self, Diagnostics> {
        let mut found = Diagnostics::default();
        let sources: Vec<_> = inputs.in_folder(FOLDER, MASTER_SUFFIX).map(|(_, source)| Arc::clone(source)).collect();
        if sources.is_empty() {
            found.push(Diagnostic::new(format!("there is no {FOLDER}/*{MASTER_SUFFIX}{}", inputs.shown())));
        }
        let entries = found.absorb(master::parse_all(&sources));
        let runners = found.absorb(match inputs.get(RUNNERS) {
            Some(source) => Runners::parse(source),
            None => Err(Diagnostic::new(format!("there is no {RUNNERS}{}", inputs.shown())).into()),
        });
        found.or(Self { entries: entries.unwrap_or_default(), runners: runners.unwrap_or_default() })
    }

    /// The entry of a key.
    pub fn entry(&self, key: &ConfigKey) -> Option<&MasterEntry> {
        self.entries.iter().find(|entry| entry.key == *key)
    }
}

/// Where master files stand in a project.
pub const FOLDER: &str = "configs";

/// How their names end.
pub const MASTER_SUFFIX: &str = "-master.yaml";

/// The runners file of a project.
pub const RUNNERS: &str = "configs/runners.yaml";

/// The files `*-master.yaml` of a directory, by name.
///
/// # Errors
/// A directory that cannot be read or has no such file.
pub fn find_masters(dir: &Path) -> Result<Vec<PathBuf>, Diagnostics> {
    let unreadable = |error: std::io::Error| Diagnostic::new(format!("cannot read {}: {error}", dir.display()));
    let mut paths = Vec::new();
    for item in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = item.map_err(unreadable)?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("-master.yaml")) {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        let fault = Diagnostic::new(format!("no *-master.yaml file in {}", dir.display()));
        return Err(fault.help("name the files with --config-files").into());
    }
    Ok(paths)
}
