//! A package index's page → the wheel of a version: its file name and SHA-256. Pure; knows no network.
//!
//! The page is the JSON form of the simple repository API (PEP 691, `application/vnd.pypi.simple.v1+json`). What the index
//! says is taken as it is or refused; nothing is filled in.

use serde::Deserialize;

use super::names::{PLATFORM, PackageKey};
use super::version::{Version, takes_python};
use super::wheel::{WheelName, normalize, same_version};
use crate::ids::Digest;

/// The media type to ask an index for.
pub const ACCEPT: &str = "application/vnd.pypi.simple.v1+json";

/// How many files or versions a message lists.
const LISTED: usize = 6;

/// A project's page. Fields beyond these may stand there.
#[derive(Debug, Clone, Deserialize)]
pub struct Page {
    meta: Meta,
    files: Vec<File>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Meta {
    api_version: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    filename: String,
    #[serde(default)]
    hashes: Hashes,
    #[serde(default)]
    requires_python: Option<String>,
    #[serde(default)]
    yanked: Yanked,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Hashes {
    sha256: Option<String>,
}

/// `false`, `true`, or why.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Yanked {
    Flag(bool),
    Reason(String),
}

impl Default for Yanked {
    fn default() -> Self {
        Yanked::Flag(false)
    }
}

impl Yanked {
    fn reason(&self) -> Option<&str> {
        match self {
            Yanked::Flag(false) => None,
            Yanked::Flag(true) => Some("no reason given"),
            Yanked::Reason(reason) if reason.is_empty() => Some("no reason given"),
            Yanked::Reason(reason) => Some(reason),
        }
    }
}

/// Why a page gives no wheel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The body is not a page.
    #[error("the index answers something else than a page of the simple API in JSON: {0}")]
    NotAPage(String),
    /// A later major version of the API.
    #[error("the index speaks version {0} of the simple API; versions 1 are known")]
    ApiVersion(String),
    /// The version is not there.
    #[error("the index has no version {version}; it has {known}")]
    NoVersion {
        /// As wanted.
        version: String,
        /// The latest ones.
        known: String,
    },
    /// No file of the version fits.
    #[error("no wheel of {version} fits {python} on {platform}; it has {known}", platform = PLATFORM)]
    NoWheel {
        /// As wanted.
        version: String,
        /// As wanted.
        python: String,
        /// Its files.
        known: String,
    },
    /// A file fits and asks for another Python.
    #[error("{file} requires Python {requires}")]
    RequiresPython {
        /// The best file by its tags.
        file: String,
        /// What it requires.
        requires: String,
    },
    /// The publisher took it back.
    #[error("{file} was yanked: {reason}")]
    Yanked {
        /// The file.
        file: String,
        /// The publisher's reason.
        reason: String,
    },
    /// There is nothing to pin it by.
    #[error("the index gives no valid SHA-256 for {file}")]
    NoHash {
        /// The file.
        file: String,
    },
}

/// A wheel, pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wheel {
    /// Its file name.
    pub file: String,
    /// Its content.
    pub digest: Digest,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// Another body; another major version of the API.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let page: Self = serde_json::from_slice(body).map_err(|error| Refusal::NotAPage(error.to_string()))?;
        match page.meta.api_version.split('.').next() {
            Some("1") => Ok(page),
            _ => Err(Refusal::ApiVersion(page.meta.api_version)),
        }
    }

    /// The best wheel of a package. One that was yanked is taken only where it is allowed and no other fits.
    ///
    /// # Errors
    /// There is none: no such version, no fitting file, another Python, yanked, no hash.
    pub fn wheel(&self, key: &PackageKey, allow_yanked: bool) -> Result<Wheel, Refusal> {
        let wheels = self.files.iter().filter_map(|file| Some((file, WheelName::parse(&file.filename)?)));
        let mut fitting: Vec<_> = wheels
            .filter(|(_, wheel)| wheel.is(&key.name, &key.version))
            .filter_map(|(file, wheel)| Some((file, wheel.rank(key.python)?)))
            .collect();
        fitting.sort_by(|(a, rank), (b, other)| {
            (a.yanked.reason().is_some(), rank, &a.filename).cmp(&(b.yanked.reason().is_some(), other, &b.filename))
        });
        let Some((first, _)) = fitting.first() else { return Err(self.missing(key)) };
        let takes = |file: &File| {
            file.requires_python.as_deref().is_none_or(|requires| takes_python(requires, key.python.minor))
        };
        let Some((best, _)) = fitting.iter().find(|(file, _)| takes(file)) else {
            let requires = first.requires_python.clone().unwrap_or_default();
            return Err(Refusal::RequiresPython { file: first.filename.clone(), requires });
        };
        let file = best.filename.clone();
        if let Some(reason) = best.yanked.reason().filter(|_| !allow_yanked) {
            return Err(Refusal::Yanked { file, reason: reason.to_owned() });
        }
        match best.hashes.sha256.as_deref().map(Digest::from_hex) {
            Some(Ok(digest)) => Ok(Wheel { file, digest }),
            _ => Err(Refusal::NoHash { file }),
        }
    }

    /// Why there is no fitting file: what there is instead.
    fn missing(&self, key: &PackageKey) -> Refusal {
        let named = self.files.iter().map(|file| file.filename.as_str());
        let all: Vec<(&str, &str)> = named.filter_map(|file| Some((file, version(file, &key.name)?))).collect();
        let of_version = all.iter().filter(|(_, version)| same_version(version, &key.version));
        let files: Vec<&str> = of_version.map(|(file, _)| *file).collect();
        if !files.is_empty() {
            return Refusal::NoWheel {
                version: key.version.clone(),
                python: key.python.to_string(),
                known: some(files.into_iter()),
            };
        }
        let mut known: Vec<(bool, Version, &str)> = all
            .iter()
            .filter_map(|(_, text)| Version::parse(text).map(|version| (version.is_final(), version, *text)))
            .collect();
        known.sort_unstable();
        known.dedup_by(|a, b| a.1 == b.1);
        let known = match known.is_empty() {
            true => "none".to_owned(),
            false => some(known.iter().rev().map(|(_, _, text)| *text)),
        };
        Refusal::NoVersion { version: key.version.clone(), known }
    }
}

/// The version in the name of a package's wheel or source archive.
fn version<'f>(file: &'f str, name: &str) -> Option<&'f str> {
    let stem = [".whl", ".tar.gz", ".zip"].iter().find_map(|ending| file.strip_suffix(ending))?;
    if file.ends_with(".whl") {
        let (own, rest) = stem.split_once('-')?;
        return rest.split('-').next().filter(|_| normalize(own) == normalize(name));
    }
    // Names of old source archives may hold dashes: the name is known, so what follows it is the version.
    let at = stem.match_indices('-').map(|(at, _)| at).find(|at| normalize(&stem[..*at]) == normalize(name))?;
    Some(&stem[at + 1..])
}

/// A few words and how many more there are.
fn some<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words: Vec<&str> = words.collect();
    let mut text = words[..words.len().min(LISTED)].join(", ");
    if words.len() > LISTED {
        text.push_str(&format!(" and {} more", words.len() - LISTED));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::Python;

    fn page(files: serde_json::Value) -> Page {
        let page = json!({"meta": {"api-version": "1.1", "_last-serial": "1"}, "name": "x", "files": files});
        Page::read(page.to_string().as_bytes()).unwrap()
    }

    fn file(name: &str) -> serde_json::Value {
        let hash = Digest::of(name.as_bytes()).hex();
        json!({"filename": name, "hashes": {"sha256": hash}, "url": "x", "requires-python": ">=3.8", "yanked": false})
    }

    fn want(version: &str) -> PackageKey {
        PackageKey { name: "x-y".into(), version: version.into(), python: Python { minor: 12 } }
    }

    #[test]
    fn the_best_wheel_is_taken_with_the_digest_that_the_index_gives() {
        let names = [
            "x_y-1.0.tar.gz",
            "x_y-1.0-py3-none-any.whl",
            "x_y-1.0-cp38-abi3-manylinux_2_28_aarch64.whl",
            "x_y-1.0-cp38-abi3-manylinux_2_28_x86_64.whl",
            "x_y-1.1-cp312-cp312-manylinux_2_28_x86_64.whl",
        ];
        let page = page(names.iter().map(|name| file(name)).collect());
        let wheel = page.wheel(&want("1.0"), false).unwrap();
        assert_eq!(wheel, Wheel { file: names[3].into(), digest: Digest::of(names[3].as_bytes()) });
    }

    #[test]
    fn what_there_is_instead_is_listed() {
        let page = page(json!([
            file("x_y-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"),
            file("x_y-1.0.tar.gz"),
            file("x-y-0.9.tar.gz"),
            file("x_y-2.0rc1-py3-none-any.whl"),
        ]));
        let message = |version: &str| page.wheel(&want(version), false).unwrap_err().to_string();
        assert_eq!(
            message("1.0"),
            "no wheel of 1.0 fits cp312 on linux/amd64; it has x_y-1.0-cp311-cp311-manylinux_2_28_x86_64.whl, x_y-1.0.tar.gz"
        );
        assert_eq!(message("1.2"), "the index has no version 1.2; it has 1.0, 0.9, 2.0rc1");
    }

    #[test]
    fn another_python_is_refused_even_where_the_tag_fits() {
        let mut wheel = file("x_y-1.0-py3-none-any.whl");
        wheel["requires-python"] = json!("<3.12");
        let refusal = page(json!([wheel])).wheel(&want("1.0"), false).unwrap_err();
        assert_eq!(refusal.to_string(), "x_y-1.0-py3-none-any.whl requires Python <3.12");
    }

    #[test]
    fn yanked_files_are_taken_only_when_asked() {
        let mut yanked = file("x_y-1.0-cp312-cp312-manylinux_2_28_x86_64.whl");
        yanked["yanked"] = json!("corrupt");
        let alone = page(json!([yanked]));
        let refusal = alone.wheel(&want("1.0"), false).unwrap_err();
        assert_eq!(refusal.to_string(), "x_y-1.0-cp312-cp312-manylinux_2_28_x86_64.whl was yanked: corrupt");
        assert!(alone.wheel(&want("1.0"), true).is_ok());
        let other = page(json!([yanked, file("x_y-1.0-py3-none-any.whl")]));
        assert_eq!(other.wheel(&want("1.0"), true).unwrap().file, "x_y-1.0-py3-none-any.whl");
    }

    #[test]
    fn no_digest_is_made_up() {
        for hashes in [json!({}), json!({"sha256": "abc"}), json!({"md5": "d41d8cd98f00b204e9800998ecf8427e"})] {
            let mut wheel = file("x_y-1.0-py3-none-any.whl");
            wheel["hashes"] = hashes;
            let refusal = page(json!([wheel])).wheel(&want("1.0"), false).unwrap_err();
            assert!(matches!(refusal, Refusal::NoHash { .. }), "{refusal}");
        }
    }

    #[test]
    fn bodies_that_are_no_page_are_refused() {
        assert!(matches!(Page::read(b"<html>"), Err(Refusal::NotAPage(_))));
        let later = br#"{"meta": {"api-version": "2.0"}, "files": []}"#;
        assert_eq!(Page::read(later).unwrap_err(), Refusal::ApiVersion("2.0".into()));
    }
}
