//! What was to be done and what was answered → the new lock, and what became of each entry. Pure.
//!
//! An answer that pins nothing leaves an entry as it was.

use std::collections::BTreeMap;

use serde::Serialize;

use super::python::Wheel;
use super::update::{Before, Name, Step, Then};
use super::{Entry, HubEntry, Lock, PackageEntry, Unlocked};
use crate::spec::Key;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A wheel.
    Wheel(Wheel),
    /// A commit.
    Revision(String),
}

/// No answer, or one that pins nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub why: String,
    /// What to do about it.
    pub fix: Option<String>,
    /// True for an answer that says no; false where nobody answered.
    pub refused: bool,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The name.
    pub name: Name,
    /// What became of it.
    pub status: Status,
    /// The file and digest, the revision, or why there is none.
    pub detail: String,
    /// What went wrong on the way.
    pub failure: Option<Failure>,
}

/// What became of an entry, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It is pinned now, or anew.
    Locked,
    /// It was pinned, and still is so.
    Kept,
    /// It is not pinned.
    Unlocked,
    /// It is gone.
    Dropped,
}

impl Status {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Status::Locked => "locked",
            Status::Kept => "kept",
            Status::Unlocked => "unlocked",
            Status::Dropped => "dropped",
        }
    }
}

/// The new lock and what became of each entry. `answers` holds one for each [`Then::Ask`].
pub fn apply(old: &Lock, steps: &[Step], answers: &BTreeMap<Name, Result<Found, Failure>>) -> (Lock, Vec<Line>) {
    let mut new = Lock::default();
    let mut lines = Vec::with_capacity(steps.len());
    for step in steps {
        let answer = match step.then {
            Then::Ask => answers.get(&step.name).cloned(),
            _ => None,
        };
        let (found, failure) = match answer {
            Some(Ok(found)) => (Some(found), None),
            Some(Err(failure)) => (None, Some(failure)),
            None => (None, None),
        };
        let pinned = match &step.name {
            Name::Image(reference) => {
                let entry = old.images.get(reference).cloned().unwrap_or(Entry::Unlocked(Unlocked::Unlocked));
                let manifest = locked(&entry).map(|entry| entry.manifest.to_string());
                new.images.insert(reference.clone(), entry);
                manifest
            }
            Name::Package(key) => {
                let key = key.to_string();
                let entry = package(old.packages.get(&key), found);
                let shown = locked(&entry).map(files);
                new.packages.insert(key, entry);
                shown
            }
            Name::Closure(key, base) => {
                let (key, old) = (key.to_string(), old.packages.get(&key.to_string()).and_then(locked));
                let closure = old.and_then(|old| old.closures.get(base)).cloned();
                let shown = closure.as_ref().map(|closure| format!("{} files", closure.len()));
                // A package that is another file now needs its dependencies anew.
                match (new.packages.get_mut(&key), old, closure) {
                    (Some(Entry::Locked(entry)), Some(old), Some(closure)) if entry.files == old.files => {
                        entry.closures.insert(base.clone(), closure);
                        shown
                    }
                    _ => None,
                }
            }
            Name::Hub(key) => {
                let key = key.to_string();
                let entry = match found {
                    Some(Found::Revision(revision)) => Entry::Locked(HubEntry { revision }),
                    _ => old.hub.get(&key).cloned().unwrap_or(Entry::Unlocked(Unlocked::Unlocked)),
                };
                let shown = locked(&entry).map(|entry| entry.revision.clone());
                new.hub.insert(key, entry);
                shown
            }
            Name::Unnamed(..) => {
                let detail = "nothing names it".to_owned();
                lines.push(Line { name: step.name.clone(), status: Status::Dropped, detail, failure: None });
                continue;
            }
        };
        let was = |lock: &Lock| shown(lock, &step.name);
        let status = match &pinned {
            None => Status::Unlocked,
            Some(_) if step.before == Before::Locked && was(old) == was(&new) => Status::Kept,
            Some(_) => Status::Locked,
        };
        let why = match (&failure, step.then, step.before) {
            (Some(failure), ..) => failure.why.clone(),
            (None, Then::Cannot(why), _) => why.to_owned(),
            (None, Then::Ask, Before::Missing) => "the lock has no such entry".to_owned(),
            (None, Then::Ask, _) => "nobody was asked".to_owned(),
            // A closure that went with its package's old file.
            (None, ..) => "its package changed".to_owned(),
        };
        lines.push(Line { name: step.name.clone(), status, detail: pinned.unwrap_or(why), failure });
    }
    (new, lines)
}

fn locked<T>(entry: &Entry<T>) -> Option<&T> {
    match entry {
        Entry::Locked(entry) => Some(entry),
        Entry::Unlocked(_) => None,
    }
}

/// A package's entry with a new wheel, or as it was; its closures are added after it.
fn package(old: Option<&Entry<PackageEntry>>, found: Option<Found>) -> Entry<PackageEntry> {
    let files = match found {
        Some(Found::Wheel(wheel)) => BTreeMap::from([(Key::from(wheel.file.as_str()), wheel.digest)]),
        _ => match old.and_then(locked) {
            Some(old) => old.files.clone(),
            None => return Entry::Unlocked(Unlocked::Unlocked),
        },
    };
    Entry::Locked(PackageEntry { closures: BTreeMap::new(), files })
}

fn files(entry: &PackageEntry) -> String {
    let files: Vec<String> = entry.files.iter().map(|(name, digest)| format!("{} {digest}", name.0)).collect();
    files.join(", ")
}

/// What a lock pins a name to, for comparison.
fn shown(lock: &Lock, name: &Name) -> Option<String> {
    match name {
        Name::Package(key) => lock.packages.get(&key.to_string()).and_then(locked).map(files),
        Name::Hub(key) => lock.hub.get(&key.to_string()).and_then(locked).map(|entry| entry.revision.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::{HubKey, PackageKey, Wanted};
    use super::super::update::{Update, plan};
    use super::*;
    use crate::ids::Digest;
    use crate::spec::Python;

    fn key(name: &str) -> PackageKey {
        PackageKey { name: name.into(), version: "1".into(), python: Python { minor: 12 } }
    }

    fn wheel(text: &str) -> Found {
        Found::Wheel(Wheel { file: format!("{text}.whl"), digest: Digest::of(text.as_bytes()) })
    }

    fn wanted() -> Wanted {
        Wanted {
            images: ["i:1".to_owned()].into(),
            packages: [(key("a"), ["i:1".to_owned()].into()), (key("b"), [].into())].into(),
            hub: [HubKey::model("m/m")].into(),
        }
    }

    fn answers(text: &str, revision: &str) -> BTreeMap<Name, Result<Found, Failure>> {
        BTreeMap::from([
            (Name::Package(key("a")), Ok(wheel(&format!("a{text}")))),
            (Name::Package(key("b")), Ok(wheel(&format!("b{text}")))),
            (Name::Hub(HubKey::model("m/m")), Ok(Found::Revision(revision.into()))),
        ])
    }

    /// What becomes of each entry, `name: status`.
    fn statuses(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| format!("{}: {}", line.name, line.status.word())).collect()
    }

    fn locked() -> Lock {
        let empty = Lock::default();
        apply(&empty, &plan(&empty, &wanted(), &Update::Nothing).unwrap(), &answers("", "r")).0
    }

    #[test]
    fn a_first_lock_pins_what_was_answered() {
        let empty = Lock::default();
        let steps = plan(&empty, &wanted(), &Update::Nothing).unwrap();
        let (lock, lines) = apply(&empty, &steps, &answers("", "r"));
        let want = [
            "i:1: unlocked",
            "a 1 cp312 linux/amd64: locked",
            "closure of a 1 in i:1: unlocked",
            "b 1 cp312 linux/amd64: locked",
            "models/m/m: locked",
        ];
        assert_eq!(statuses(&lines), want);
        assert!(lock.render().contains("\"i:1\": \"unlocked\"") && lock.render().contains("\"revision\":\"r\""));
    }

    #[test]
    fn a_second_lock_asks_nothing_and_changes_nothing() {
        let lock = locked();
        let steps = plan(&lock, &wanted(), &Update::Nothing).unwrap();
        assert!(steps.iter().all(|step| step.then != Then::Ask), "{steps:?}");
        let (again, lines) = apply(&lock, &steps, &BTreeMap::new());
        assert_eq!(again, lock);
        assert!(lines.iter().all(|line| matches!(line.status, Status::Kept | Status::Unlocked)), "{lines:?}");
    }

    #[test]
    fn an_update_asks_for_what_it_names_and_keeps_what_nobody_answers() {
        let lock = locked();
        for name in ["A", "a 1", "a 1 cp312 linux/amd64"] {
            let steps = plan(&lock, &wanted(), &Update::Named(vec![name.into()])).unwrap();
            let asked: Vec<_> = steps.iter().filter(|s| s.then == Then::Ask).map(|s| s.name.to_string()).collect();
            assert_eq!(asked, ["a 1 cp312 linux/amd64"], "{name}");
        }
        let steps = plan(&lock, &wanted(), &Update::All).unwrap();
        let mut found = answers("", "r2");
        let failure = Failure { why: "down".into(), fix: None, refused: false };
        found.insert(Name::Package(key("b")), Err(failure.clone()));
        let (new, lines) = apply(&lock, &steps, &found);
        assert_eq!(new.packages, lock.packages);
        assert_eq!(new.revision(&HubKey::model("m/m")), Some("r2"));
        assert_eq!((lines[1].status, lines[3].status, lines[4].status), (Status::Kept, Status::Kept, Status::Locked));
        assert_eq!(lines[3].failure, Some(failure));
        let unknown = plan(&lock, &wanted(), &Update::Named(vec!["m/n".into()])).unwrap_err();
        assert_eq!(unknown.near.as_deref(), Some("m/m"));
    }

    #[test]
    fn what_nothing_names_is_dropped() {
        let lock = locked();
        let fewer = Wanted { packages: [(key("b"), [].into())].into(), ..Wanted::default() };
        let steps = plan(&lock, &fewer, &Update::Nothing).unwrap();
        let (new, lines) = apply(&lock, &steps, &BTreeMap::new());
        let want =
            ["b 1 cp312 linux/amd64: kept", "i:1: dropped", "a 1 cp312 linux/amd64: dropped", "models/m/m: dropped"];
        assert_eq!(statuses(&lines), want);
        assert_eq!((new.images.len(), new.packages.len(), new.hub.len()), (0, 1, 0));
    }

    #[test]
    fn a_closure_stays_with_the_file_that_it_is_of() {
        let mut lock = locked();
        let name = key("a").to_string();
        let closure = BTreeMap::from([(Key::from("dep.whl"), Digest::of(b"dep"))]);
        if let Some(Entry::Locked(entry)) = lock.packages.get_mut(&name) {
            entry.closures.insert("i:1".into(), closure);
        }
        let closures = |lock: &Lock| match lock.packages.get(&name) {
            Some(Entry::Locked(entry)) => entry.closures.len(),
            _ => 0,
        };
        let steps = plan(&lock, &wanted(), &Update::All).unwrap();
        let (same, lines) = apply(&lock, &steps, &answers("", "r"));
        assert_eq!((closures(&same), lines[2].status), (1, Status::Kept));
        let (other, lines) = apply(&lock, &steps, &answers("2", "r"));
        assert_eq!((closures(&other), lines[2].status), (0, Status::Unlocked));
    }
}
