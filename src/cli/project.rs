//! The project that a command works on: found on disk and read once. What is made of it stands in [`crate::project`].

use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::Globals;
use super::error::Error;
use crate::config::inputs::Inputs;
use crate::config::load::RUNNERS;
use crate::project;

/// A project with its folder.
pub struct Project {
    /// Its folder.
    pub root: PathBuf,
    loaded: project::Project,
}

impl Deref for Project {
    type Target = project::Project;

    fn deref(&self) -> &project::Project {
        &self.loaded
    }
}

/// A project's input files, read and not yet understood.
#[derive(Clone)]
pub struct Files {
    root: PathBuf,
    /// The files.
    pub inputs: Inputs,
}

impl Files {
    /// Finds the project and reads its files.
    ///
    /// # Errors
    /// No project here; files that cannot be read.
    pub fn read(globals: &Globals) -> Result<Self, Error> {
        let root = find(globals.project.as_deref())?;
        let inputs = Inputs::read(&root, &shown(&root))?;
        Ok(Self { root, inputs })
    }

    /// Makes values of them.
    ///
    /// # Errors
    /// Every fault in them.
    pub fn open(self, globals: &Globals) -> Result<Project, Error> {
        Ok(Project { loaded: project::Project::load(self.inputs, globals.profile_name())?, root: self.root })
    }
}

impl Project {
    /// Finds the project and reads everything.
    ///
    /// # Errors
    /// No project here; every fault in its files.
    pub fn open(globals: &Globals) -> Result<Self, Error> {
        Files::read(globals)?.open(globals)
    }
}

/// The project's folder: the one asked for, else the nearest above the working directory that holds configs.
///
/// # Errors
/// There is none.
pub fn find(asked: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(root) = asked {
        return if root.join("configs").is_dir() {
            Ok(root.to_owned())
        } else {
            Err(Error::usage(format!("{} is no ixbuild project: it has no folder configs", root.display())))
        };
    }
    let here =
        std::env::current_dir().map_err(|error| Error::environment(format!("the working directory: {error}")))?;
    here.ancestors().find(|folder| folder.join(RUNNERS).is_file()).map(Path::to_owned).ok_or_else(|| {
        Error::usage(format!("no ixbuild project in {} or above: nothing there has {RUNNERS}", here.display()))
            .hint("change into one, or pass --project DIR")
    })
}

/// The prefix under which messages show input files: relative to the working directory where that is shorter.
pub fn shown(root: &Path) -> String {
    match std::env::current_dir() {
        Ok(here) if here == *root => String::new(),
        Ok(here) => root.strip_prefix(&here).unwrap_or(root).display().to_string(),
        Err(_) => root.display().to_string(),
    }
}
