//! `configs/clients.yaml`: load generators and eval harnesses, each from a repository at a commit or from the package index.

use std::collections::BTreeMap;

use crate::config::diagnostic::{Diagnostics, Place};
use crate::config::document;
use crate::config::fields::{Faults, Fields};
use crate::config::inputs::Inputs;
use crate::lock::PackageKey;
use crate::spec::Python;

/// Where tools are defined in a project.
pub const FILE: &str = "configs/clients.yaml";

/// The tools by name.
#[derive(Debug, Default)]
pub struct Tools(BTreeMap<String, Tool>);

/// Where a tool comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Name in the package index, or `git+URL`.
    pub name: String,
    /// Version in the index, or the commit.
    pub version: String,
    /// The Python of the environment that it goes into.
    pub python: Python,
    /// Where it is defined.
    pub place: Place,
}

impl Tool {
    /// As the lock names it.
    pub fn key(&self) -> PackageKey {
        PackageKey { name: self.name.clone(), version: self.version.clone(), python: self.python }
    }
}

impl Tools {
    /// Reads the file; a project without one has no tools.
    ///
    /// # Errors
    /// Every fault in it.
    pub fn load(inputs: &Inputs) -> Result<Self, Diagnostics> {
        let Some(source) = inputs.get(FILE) else { return Ok(Self::default()) };
        let document = document::parse(source)?;
        let faults = Faults::default();
        let mut tools = BTreeMap::new();
        if let Some(fields) = Fields::open_any(&document, "the tools", &faults) {
            for (key, node) in fields.entries() {
                let known = ["package", "version", "repository", "commit", "python"];
                let Some(tool) = Fields::open(node, "a tool", &known, &faults) else { continue };
                let found = match (tool.optional_string("package"), tool.optional_string("repository")) {
                    (Some(package), None) => tool.string("version").map(|version| (package.to_owned(), version)),
                    (None, Some(url)) => tool.string("commit").map(|commit| (format!("git+{url}"), commit)),
                    _ => {
                        tool.fault(
                            "a tool comes from exactly one of package and repository",
                            "write `package` and `version`, or `repository` and `commit`",
                        );
                        None
                    }
                };
                let python = tool.required("python").and_then(|node| super::compile::python(node, &faults));
                if let (Some((name, version)), Some(python), Some(key_text)) = (found, python, key.scalar_text()) {
                    let tool = Tool { name, version: version.to_owned(), python, place: key.place.clone() };
                    tools.insert(key_text.to_owned(), tool);
                }
            }
        }
        faults.or(Self(tools))
    }

    /// One tool.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.0.get(name)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Tool> {
        self.0.values()
    }
}
