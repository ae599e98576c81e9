//! The master files and the runners file: what a matrix is made of.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{Diagnostic, Diagnostics, Source};
use super::inputs::{Inputs, read_source};
use super::master::{self, MasterEntry};
use super::runners::Runners;
use crate::ids::ConfigKey;

/// Where master files stand in a project.
pub const FOLDER: &str = "configs";

/// How their names end.
pub const MASTER_SUFFIX: &str = "-master.yaml";

/// Where a project's runners file stands; also what marks its top.
pub const RUNNERS: &str = "configs/runners.yaml";

/// What the matrix is made of.
#[derive(Debug, Clone, Default)]
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
        let read = |path: &Path| read_source(path, &path.display().to_string());
        let mut found = Diagnostics::default();
        let mut sources = Vec::new();
        for (index, path) in masters.iter().enumerate() {
            if masters[..index].contains(path) {
                let fault = Diagnostic::new(format!("{} is given twice", path.display()));
                found.push(fault.help("pass each master file once; a key stands in one file"));
            } else {
                sources.extend(found.absorb(read(path)));
            }
        }
        let runners = found.absorb(read(runners));
        let config = found.absorb(Self::parse(&sources, runners.as_ref()));
        found.or(config.unwrap_or_default())
    }

    /// Reads the texts of master files, in order, and of a runners file, where there is one.
    ///
    /// # Errors
    /// Every fault of every text; a key that stands in two files.
    pub fn parse(masters: &[Arc<Source>], runners: Option<&Arc<Source>>) -> Result<Self, Diagnostics> {
        let mut found = Diagnostics::default();
        let entries = found.absorb(master::parse_all(masters));
        let runners = found.absorb(runners.map_or_else(|| Ok(Runners::default()), Runners::parse));
        found.or(Self { entries: entries.unwrap_or_default(), runners: runners.unwrap_or_default() })
    }

    /// The master files and the runners file of a project.
    ///
    /// # Errors
    /// Every fault of every file; none of either kind.
    pub fn of(inputs: &Inputs) -> Result<Self, Diagnostics> {
        let masters: Vec<_> = inputs.in_folder(FOLDER, MASTER_SUFFIX).map(|(_, source)| source.clone()).collect();
        let runners = inputs.get(RUNNERS);
        let mut found = Diagnostics::default();
        if masters.is_empty() {
            let fault = Diagnostic::new(format!("there is no {FOLDER}/*{MASTER_SUFFIX}{}", inputs.shown()));
            found.push(fault.help("a master file says what is measured"));
        }
        if runners.is_none() {
            let fault = Diagnostic::new(format!("there is no {RUNNERS}{}", inputs.shown()));
            found.push(fault.help("it says what nodes there are, under `labels` and `hardware`"));
        }
        let config = found.absorb(Self::parse(&masters, runners));
        found.or(config.unwrap_or_default())
    }

    /// The entry of a key.
    pub fn entry(&self, key: &ConfigKey) -> Option<&MasterEntry> {
        self.entries.iter().find(|entry| entry.key == *key)
    }
}
