//! Where the package index is: asked for, else the environment, else pip's configuration files, else the public one.
//!
//! The files and their order are pip's own (`pip config debug` lists them): of all machine, user, virtual environment and
//! `PIP_CONFIG_FILE`, a later file overrides an earlier one, and `[install]` overrides `[global]`. A `PIP_CONFIG_FILE` that
//! exists replaces the user's files, `/dev/null` all of them. Other settings of pip are not read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// pip's own default, where nothing names an index.
const PUBLIC: &str = "https://pypi.org/simple";

/// The index in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Its URL; may hold credentials.
    pub url: String,
    /// What named it, for messages.
    pub source: String,
}

/// A configuration file of pip that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub error: io::Error,
}

/// The environment and files that name an index.
pub struct Surroundings<'s> {
    /// The value of an environment variable.
    pub variable: &'s dyn Fn(&str) -> Option<String>,
    /// The text of a file.
    pub read: &'s dyn Fn(&Path) -> io::Result<String>,
}

impl Surroundings<'_> {
    /// The index in force; `asked` is the command line's.
    ///
    /// # Errors
    /// A configuration file is there and cannot be read.
    pub fn index(&self, asked: Option<&str>) -> Result<Index, Unreadable> {
        if let Some(url) = asked {
            return Ok(Index { url: url.to_owned(), source: "--index-url".to_owned() });
        }
        for name in ["PIP_INDEX_URL", "UV_INDEX_URL"] {
            if let Some(url) = self.set(name) {
                return Ok(Index { url, source: name.to_owned() });
            }
        }
        let mut found: BTreeMap<&str, Index> = BTreeMap::new();
        for path in self.files() {
            let text = match (self.read)(&path) {
                Ok(text) => text,
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    continue;
                }
                Err(error) => return Err(Unreadable { path, error }),
            };
            for (section, url) in index_urls(&text) {
                found.insert(section, Index { url, source: path.display().to_string() });
            }
        }
        let public = || Index { url: PUBLIC.to_owned(), source: "pip's default".to_owned() };
        Ok(found.remove("install").or_else(|| found.remove("global")).unwrap_or_else(public))
    }

    fn set(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.trim().is_empty())
    }

    /// The configuration files, the least important first.
    fn files(&self) -> Vec<PathBuf> {
        let own = self.set("PIP_CONFIG_FILE").map(PathBuf::from);
        if own.as_deref() == Some(Path::new("/dev/null")) {
            return Vec::new();
        }
        let shared = self.set("XDG_CONFIG_DIRS").unwrap_or_else(|| "/etc/xdg".to_owned());
        let mut files: Vec<PathBuf> = shared.split(':').map(|dir| Path::new(dir).join("pip/pip.conf")).collect();
        files.push(PathBuf::from("/etc/pip.conf"));
        let replaced = own.as_deref().is_some_and(|path| (self.read)(path).is_ok());
        if let Some(home) = self.set("HOME").map(PathBuf::from).filter(|_| !replaced) {
            let config = self.set("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
            files.extend([home.join(".pip/pip.conf"), config.join("pip/pip.conf")]);
        }
        files.extend(self.set("VIRTUAL_ENV").map(|dir| Path::new(&dir).join("pip.conf")));
        files.extend(own);
        files
    }
}

/// `index-url` in the sections `global` and `install` of a configuration file, in Python's ini dialect: `key = value` or
/// `key: value`, `#` and `;` begin comments, an indented line continues a value.
fn index_urls(text: &str) -> Vec<(&'static str, String)> {
    let mut section = None;
    let mut found = Vec::new();
    // Set while an `index-url` without a value on its own line waits for the next one.
    let mut open = false;
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let (true, Some(section), true) = (line.starts_with(char::is_whitespace), section, open) {
            found.push((section, bare.to_owned()));
            open = false;
            continue;
        }
        open = false;
        if let Some(name) = bare.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name) {
            section = ["global", "install"].into_iter().find(|known| *known == name);
            continue;
        }
        let Some((section, (key, value))) = section.zip(bare.split_once(['=', ':'])) else { continue };
        if key.trim().to_ascii_lowercase().replace('_', "-") == "index-url" {
            match value.trim() {
                "" => open = true,
                value => found.push((section, value.to_owned())),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index that variables and files name.
    fn index(asked: Option<&str>, variables: &[(&str, &str)], files: &[(&str, &str)]) -> (String, String) {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
        let read = |path: &Path| {
            let found = files.iter().find(|(known, _)| Path::new(known) == path).map(|(_, text)| (*text).to_owned());
            found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        let index = Surroundings { variable: &variable, read: &read }.index(asked).unwrap();
        (index.url, index.source)
    }

    fn pair(url: &str, source: &str) -> (String, String) {
        (url.to_owned(), source.to_owned())
    }

    #[test]
    fn the_order_is_flag_variables_files_default() {
        let files = [("/etc/pip.conf", "[global]\nindex-url = http://etc\n")];
        let both = [("PIP_INDEX_URL", "http://pip"), ("UV_INDEX_URL", "http://uv")];
        assert_eq!(index(Some("http://asked"), &both, &files), pair("http://asked", "--index-url"));
        assert_eq!(index(None, &both, &files), pair("http://pip", "PIP_INDEX_URL"));
        assert_eq!(index(None, &both[1..], &files), pair("http://uv", "UV_INDEX_URL"));
        assert_eq!(index(None, &[("PIP_INDEX_URL", "")], &files), pair("http://etc", "/etc/pip.conf"));
        assert_eq!(index(None, &[], &[]), pair(PUBLIC, "pip's default"));
    }

    #[test]
    fn later_files_override_earlier_ones_and_install_overrides_global() {
        let home = [("HOME", "/h")];
        let etc = ("/etc/pip.conf", "[global]\nindex-url: http://etc");
        let old = ("/h/.pip/pip.conf", "[global]\nINDEX_URL = http://old");
        let user = ("/h/.config/pip/pip.conf", "[global]\nindex-url =\n    http://user\n");
        assert_eq!(index(None, &home, &[etc, old]).0, "http://old");
        assert_eq!(index(None, &home, &[etc, old, user]), pair("http://user", "/h/.config/pip/pip.conf"));
        let install = ("/etc/pip.conf", "[install]\nindex-url = http://install");
        assert_eq!(index(None, &home, &[install, user]).0, "http://install");
        let venv = [("HOME", "/h"), ("VIRTUAL_ENV", "/v")];
        assert_eq!(index(None, &venv, &[user, ("/v/pip.conf", "[global]\nindex-url=http://venv")]).0, "http://venv");
        let moved = [("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")];
        assert_eq!(index(None, &moved, &[user, ("/c/pip/pip.conf", "[global]\nindex-url=http://xdg")]).0, "http://xdg");
    }

    #[test]
    fn a_config_file_of_ones_own_replaces_the_users_and_dev_null_all() {
        let own = [("HOME", "/h"), ("PIP_CONFIG_FILE", "/own")];
        let files = [
            ("/etc/pip.conf", "[global]\nindex-url = http://etc"),
            ("/h/.config/pip/pip.conf", "[install]\nindex-url = http://user"),
            ("/own", "[global]\nindex-url = http://own"),
        ];
        assert_eq!(index(None, &own, &files).0, "http://own");
        assert_eq!(index(None, &own, &files[..2]).0, "http://user", "a file that is not there replaces nothing");
        assert_eq!(index(None, &[("PIP_CONFIG_FILE", "/dev/null")], &files).0, PUBLIC);
    }

    #[test]
    fn only_the_index_of_two_sections_counts() {
        let text = "index-url = http://none\n[download]\nindex-url = http://download\n[global]\n# index-url = http://comment\n\
                    ; index-url = http://comment\nextra-index-url = http://extra\nfind-links = http://links\n";
        assert_eq!(index(None, &[], &[("/etc/pip.conf", text)]).0, PUBLIC);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let variable = |_: &str| None;
        let read = |_: &Path| Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let error = Surroundings { variable: &variable, read: &read }.index(None).unwrap_err();
        assert_eq!(error.to_string(), "/etc/xdg/pip/pip.conf: permission denied");
    }
}
