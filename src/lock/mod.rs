//! The lock file: names to digests. It alone knows what a tag or a version is; nothing in it is ever invented.
//!
//! `ixbuild.lock` is JSON with one line an entry, sorted, so that a diff shows one line a change. An entry that is not
//! pinned yet stands there as `"unlocked"`.
//!
//! | section | key | value |
//! |---|---|---|
//! | `images` | reference with its tag | `{"config", "manifest", "platform"}` |
//! | `packages` | `NAME VERSION PYTHON PLATFORM` (a repository and commit for tools built from source) | `{"files": {name: digest}}`, with `closures` once those are resolved |
//! | `hub` | `models/ID`, `datasets/ID` | `{"revision"}` |
//!
//! Where an index or a mirror is does not matter to what was measured: no address stands here.
//!
//! | file | does |
//! |---|---|
//! | `names` | the keys, and what jobs name |
//! | `update` | a lock and what is wanted → what to do about each name |
//! | `apply` | what to do and what was answered → the new lock |
//! | `python`, `wheel`, `version` | an index page → the wheel |
//! | `pip` | where the index is |
//! | `hub` | a hub's answer → the revision |
//! | `resolve`, `fetch` | asks: the only files here that use the network |
//! | `write` | puts the file in its place |

pub mod apply;
mod fetch;
pub mod hub;
mod names;
pub mod pip;
pub mod python;
pub mod resolve;
pub mod update;
mod version;
mod wheel;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::config::diagnostic::{Diagnostic, Diagnostics, Place, Source};
use crate::ids::Digest;
use crate::spec::{Deps, Image, Key, Package};
pub use names::{HubKey, PLATFORM, PackageKey, Wanted, environment};
pub use write::{WriteError, write};

/// The format that this program reads and writes.
pub const VERSION: u64 = 1;

/// The file's name in a project.
pub const FILE: &str = "ixbuild.lock";

/// A lock file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Format version.
    pub version: u64,
    /// Image reference → digests.
    #[serde(deserialize_with = "entries")]
    pub images: BTreeMap<String, Entry<ImageEntry>>,
    /// [`PackageKey`] → files.
    #[serde(deserialize_with = "entries")]
    pub packages: BTreeMap<String, Entry<PackageEntry>>,
    /// [`HubKey`] → revision.
    #[serde(deserialize_with = "entries")]
    pub hub: BTreeMap<String, Entry<HubEntry>>,
}

impl Default for Lock {
    fn default() -> Self {
        Self { version: VERSION, images: BTreeMap::new(), packages: BTreeMap::new(), hub: BTreeMap::new() }
    }
}

/// A locked value, or the word that none is known yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Entry<T> {
    /// Pinned.
    Locked(T),
    /// Not pinned yet.
    Unlocked(Unlocked),
}

/// The word `unlocked`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unlocked {
    /// Not pinned yet.
    Unlocked,
}

/// Reads a section. A name that stands twice, as a merge may leave it, says two things: that is an error, where serde's maps
/// would take the later one.
fn entries<'de, D: Deserializer<'de>, T: Deserialize<'de>>(section: D) -> Result<BTreeMap<String, Entry<T>>, D::Error> {
    struct Section<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Section<T> {
        type Value = BTreeMap<String, Entry<T>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of entries")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                if entries.contains_key(&name) {
                    return Err(de::Error::custom(format!("{name} stands twice")));
                }
                let entry = map.next_value()?;
                entries.insert(name, entry);
            }
            Ok(entries)
        }
    }
    section.deserialize_map(Section(PhantomData))
}

/// What an image tag pointed at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageEntry {
    /// Digest of the image config.
    pub config: Digest,
    /// Digest of the platform's manifest.
    pub manifest: Digest,
    /// `linux/amd64` or another.
    pub platform: String,
}

/// The files of a package version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageEntry {
    /// The dependencies (file name → SHA-256) by what they come on top of: an image's reference, or an
    /// [`environment`]. One that is not here is not pinned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub closures: BTreeMap<String, BTreeMap<Key, Digest>>,
    /// The package's own files: file name → SHA-256.
    pub files: BTreeMap<Key, Digest>,
}

/// The revision of a model or data set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubEntry {
    /// The commit.
    pub revision: String,
}

/// The fix of a damaged lock.
const RESTORE: &str = "ixbuild.lock is written by `ixbuild lock` alone; restore it from version control";

/// The first entry that is none, where the rest is a document: serde would only say that no form of an entry fits.
fn damaged_entry(source: &Arc<Source>) -> Option<Diagnostic> {
    fn fault<T: serde::de::DeserializeOwned>(entry: &serde_json::Value) -> Option<String> {
        match entry.as_str() {
            Some("unlocked") => None,
            Some(word) => Some(format!("`{word}` is neither `unlocked` nor digests")),
            None => serde_json::from_value::<T>(entry.clone()).err().map(|error| error.to_string()),
        }
    }
    type Check = fn(&serde_json::Value) -> Option<String>;
    let sections: [(&str, Check); 3] =
        [("images", fault::<ImageEntry>), ("packages", fault::<PackageEntry>), ("hub", fault::<HubEntry>)];
    let document: serde_json::Value = serde_json::from_str(&source.text).ok()?;
    sections.into_iter().find_map(|(section, check)| {
        let entries = document.get(section)?.as_object()?;
        let (name, why) = entries.iter().find_map(|(name, entry)| Some((name, check(entry)?)))?;
        let key = serde_json::Value::from(name.as_str()).to_string();
        let from = source.text.find(&format!("\"{section}\""))?;
        let start = from + source.text[from..].find(&key)?;
        let place = Place { source: Arc::clone(source), span: start..start + key.len() };
        Some(Diagnostic::at(&place, format!("the entry of {name} is damaged: {why}")).help(RESTORE))
    })
}

impl Lock {
    /// Reads a lock file.
    ///
    /// # Errors
    /// Text that is not a lock, with its place; a newer format.
    pub fn read(source: &Arc<Source>) -> Result<Self, Diagnostics> {
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        let newer = serde_json::from_str::<Version>(&source.text).ok().filter(|found| found.version > VERSION);
        if let Some(found) = newer {
            let at = source.text.find("\"version\"").unwrap_or(0);
            let place = Place { source: source.clone(), span: at..at + 9 };
            return Err(Diagnostic::at(
                &place,
                format!("{} has format {}; this ixbuild reads up to {VERSION}", source.name, found.version),
            )
            .help("use the ixbuild that wrote it, or a newer one; the file is left as it is")
            .into());
        }
        serde_json::from_str(&source.text).map_err(|error| {
            if let Some(fault) = damaged_entry(source) {
                return fault.into();
            }
            let start: usize =
                source.text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
            let at = (start + error.column().saturating_sub(1)).min(source.text.len());
            let message = error.to_string();
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(before, _)| before);
            Diagnostic::at(&Place { source: source.clone(), span: at..at }, format!("not a lock file: {message}"))
                .help(RESTORE)
                .into()
        })
    }

    /// The file's text.
    pub fn render(&self) -> String {
        fn section<T: Serialize>(out: &mut String, name: &str, entries: &BTreeMap<String, T>, last: bool) {
            out.push_str(&format!("  {}: {{", serde_json::Value::from(name)));
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "\n" } else { ",\n" });
                let value = serde_json::to_string(value).unwrap_or_default();
                out.push_str(&format!("    {}: {value}", serde_json::Value::from(key.as_str())));
            }
            out.push_str(if entries.is_empty() { "}" } else { "\n  }" });
            out.push_str(if last { "\n" } else { ",\n" });
        }
        let mut out = format!("{{\n  \"version\": {},\n", self.version);
        section(&mut out, "images", &self.images, false);
        section(&mut out, "packages", &self.packages, false);
        section(&mut out, "hub", &self.hub, true);
        out.push_str("}\n");
        out
    }

    /// An image by its reference.
    pub fn image(&self, reference: &str) -> Image {
        match self.images.get(reference) {
            Some(Entry::Locked(entry)) => {
                Image::Locked { config: entry.config, manifest: entry.manifest, platform: entry.platform.clone() }
            }
            _ => Image::Unlocked { reference: reference.to_owned() },
        }
    }

    /// A package. `base` is what its dependencies come on top of.
    pub fn package(&self, key: &PackageKey, deps: Deps, base: &str) -> Package {
        let entry = match self.packages.get(&key.to_string()) {
            Some(Entry::Locked(entry)) => Some(entry),
            _ => None,
        };
        Package {
            closure: entry.filter(|_| deps == Deps::Closure).and_then(|entry| entry.closures.get(base)).cloned(),
            deps,
            files: entry.map(|entry| entry.files.clone()),
            name: key.name.clone(),
            python: key.python,
            version: key.version.clone(),
        }
    }

    /// The revision of a model or data set.
    pub fn revision(&self, key: &HubKey) -> Option<&str> {
        match self.hub.get(&key.to_string()) {
            Some(Entry::Locked(entry)) => Some(&entry.revision),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Python;

    fn x(minor: u8) -> PackageKey {
        PackageKey { name: "x".into(), version: "1.0".into(), python: Python { minor } }
    }

    #[test]
    fn a_lock_reads_back_as_written_one_line_an_entry() {
        let digest = Digest::of(b"x");
        let mut lock = Lock::default();
        lock.images.insert("a/b:1".into(), Entry::Unlocked(Unlocked::Unlocked));
        let files = BTreeMap::from([(Key::from("x.whl"), digest)]);
        let entry = PackageEntry { closures: BTreeMap::new(), files: files.clone() };
        lock.packages.insert("x 1.0 cp312 linux/amd64".into(), Entry::Locked(entry));
        let text = lock.render();
        assert!(text.contains("\n    \"a/b:1\": \"unlocked\"\n"), "{text}");
        assert_eq!(Lock::read(&Source::new("ixbuild.lock", text)), Ok(lock.clone()));
        assert_eq!(lock.package(&x(12), Deps::None, "").files, Some(files));
        assert_eq!(lock.package(&x(13), Deps::None, "").files, None, "another Python takes another wheel");
        assert_eq!(lock.image("a/b:1"), Image::Unlocked { reference: "a/b:1".into() });
    }

    #[test]
    fn a_closure_is_that_of_one_base_and_of_packages_that_want_one() {
        let files = BTreeMap::from([(Key::from("dep.whl"), Digest::of(b"dep"))]);
        let mut lock = Lock::default();
        let entry = PackageEntry {
            closures: BTreeMap::from([("a/b:1".to_owned(), files.clone())]),
            files: BTreeMap::from([(Key::from("x.whl"), Digest::of(b"x"))]),
        };
        lock.packages.insert(x(12).to_string(), Entry::Locked(entry));
        let lock = Lock::read(&Source::new("ixbuild.lock", lock.render())).unwrap();
        assert_eq!(lock.package(&x(12), Deps::Closure, "a/b:1").closure, Some(files));
        assert_eq!(lock.package(&x(12), Deps::Closure, "a/b:2").closure, None);
        assert_eq!(lock.package(&x(12), Deps::None, "a/b:1").closure, None);
    }

    #[test]
    fn a_newer_or_damaged_lock_is_refused_at_its_place() {
        let read = |text: &str| Lock::read(&Source::new("ixbuild.lock", text)).unwrap_err().to_string();
        assert!(read("{\n  \"version\": 2, \"more\": {}}").starts_with("ixbuild.lock:2:3: ixbuild.lock has format 2"));
        assert!(read("{\"version\": 1, \"images\": {}").contains("not a lock file"));
        let twice = "{\"version\": 1, \"images\": {\n\"a\": \"unlocked\",\n\"a\": \"unlocked\"}, \"packages\": {}, \"hub\": {}}";
        assert!(read(twice).starts_with("ixbuild.lock:3:3: not a lock file: a stands twice"), "{}", read(twice));
        assert!(read("{\"version\": 1, \"images\": {\"a\": \"lockd\"}, \"packages\": {}, \"hub\": {}}").contains("1:"));
    }
}
