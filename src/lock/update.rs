//! A lock and what is wanted → what is to be done about each name: a value. Pure; `resolve` asks, `apply` makes the new lock.
//!
//! A locked entry is kept unless an update names it. Entries that nothing names any more are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::names::{HubKey, PackageKey, Wanted, environment};
use super::wheel::normalize;
use super::{Entry, Lock};
use crate::config::similar::closest;

/// Which locked entries to ask for again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// None.
    Nothing,
    /// All.
    All,
    /// Those of these names: a package, `PACKAGE VERSION`, an image, a model, a data set.
    Named(Vec<String>),
}

/// A name that is not wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nothing named `{name}` is to be locked")]
pub struct UnknownName {
    /// As asked for.
    pub name: String,
    /// The nearest one.
    pub near: Option<String>,
}

/// Something that is to be pinned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// An image.
    Image(String),
    /// A package's own files.
    Package(PackageKey),
    /// A package's dependencies on top of an image or within an environment.
    Closure(PackageKey, String),
    /// A model or data set.
    Hub(HubKey),
    /// A key of the old lock that nothing names, with its section.
    Unnamed(&'static str, String),
}

impl Name {
    /// The section of the file that it stands in.
    pub fn section(&self) -> &'static str {
        match self {
            Name::Image(_) => "images",
            Name::Package(_) | Name::Closure(..) => "packages",
            Name::Hub(_) => "hub",
            Name::Unnamed(section, _) => section,
        }
    }

    fn answers_to(&self, name: &str) -> bool {
        match self {
            Name::Image(reference) => {
                reference == name || reference.rsplit_once([':', '@']).is_some_and(|(image, _)| image == name)
            }
            Name::Package(key) => match name.split_once(' ') {
                None => normalize(name) == normalize(&key.name),
                Some(_) => name == key.to_string() || name == format!("{} {}", key.name, key.version),
            },
            Name::Hub(key) => key.id == name || key.to_string() == name,
            Name::Closure(..) | Name::Unnamed(..) => false,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Image(reference) => f.write_str(reference),
            Name::Package(key) => write!(f, "{key}"),
            Name::Closure(key, base) => {
                write!(f, "closure of {} {}", key.name, key.version)?;
                // An environment of the package alone goes without saying.
                if *base == environment(std::slice::from_ref(key)) { Ok(()) } else { write!(f, " in {base}") }
            }
            Name::Hub(key) => write!(f, "{key}"),
            Name::Unnamed(_, key) => f.write_str(key),
        }
    }
}

/// What is to be done about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The name.
    pub name: Name,
    /// Whether the old lock pins it, says `unlocked`, or has no entry.
    pub before: Before,
    /// What now.
    pub then: Then,
}

/// What the old lock says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It is pinned.
    Locked,
    /// It says `unlocked`.
    Unlocked,
    /// Nothing.
    Missing,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It stays as it is.
    Keep,
    /// The index or the hub is asked.
    Ask,
    /// Nobody can be asked, and why.
    Cannot(&'static str),
    /// The entry goes.
    Drop,
}

fn before<T>(entries: &BTreeMap<String, Entry<T>>, key: &str) -> Before {
    match entries.get(key) {
        Some(Entry::Locked(_)) => Before::Locked,
        Some(Entry::Unlocked(_)) => Before::Unlocked,
        None => Before::Missing,
    }
}

/// What is to be done, in the order of the file.
///
/// # Errors
/// An update of a name that nothing wants.
pub fn plan(old: &Lock, wanted: &Wanted, update: &Update) -> Result<Vec<Step>, UnknownName> {
    let mut steps = Vec::new();
    for reference in &wanted.images {
        let name = Name::Image(reference.clone());
        steps.push(step(name, before(&old.images, reference), Then::Cannot("this version does not ask registries")));
    }
    for (key, bases) in &wanted.packages {
        let ask = match key.from_source() {
            true => Then::Cannot("a commit has no wheel in the index, and this version builds none"),
            false => Then::Ask,
        };
        steps.push(step(Name::Package(key.clone()), before(&old.packages, &key.to_string()), ask));
        for base in bases {
            let known = match old.packages.get(&key.to_string()) {
                Some(Entry::Locked(entry)) if entry.closures.contains_key(base) => Before::Locked,
                _ => Before::Unlocked,
            };
            let name = Name::Closure(key.clone(), base.clone());
            steps.push(step(name, known, Then::Cannot("this version does not resolve dependencies")));
        }
    }
    for key in &wanted.hub {
        steps.push(step(Name::Hub(key.clone()), before(&old.hub, &key.to_string()), Then::Ask));
    }
    let chosen = |step: &Step| match update {
        Update::Nothing => false,
        Update::All => true,
        Update::Named(names) => names.iter().any(|name| step.name.answers_to(name)),
    };
    let named = if let Update::Named(names) = update { names.as_slice() } else { &[] };
    if let Some(name) = named.iter().find(|name| !steps.iter().any(|step| step.name.answers_to(name))) {
        return Err(unknown(name, &steps));
    }
    for step in &mut steps {
        if step.before == Before::Locked && !(step.then == Then::Ask && chosen(step)) {
            step.then = Then::Keep;
        }
    }
    steps.extend(unnamed("images", old.images.keys(), wanted.images.iter().cloned().collect()));
    steps.extend(unnamed("packages", old.packages.keys(), wanted.packages.keys().map(ToString::to_string).collect()));
    steps.extend(unnamed("hub", old.hub.keys(), wanted.hub.iter().map(ToString::to_string).collect()));
    Ok(steps)
}

fn step(name: Name, before: Before, then: Then) -> Step {
    Step { name, before, then }
}

fn unnamed<'k>(
    section: &'static str,
    old: impl Iterator<Item = &'k String>,
    wanted: BTreeSet<String>,
) -> impl Iterator<Item = Step> {
    let gone = old.filter(move |key| !wanted.contains(*key));
    gone.map(move |key| step(Name::Unnamed(section, key.clone()), Before::Locked, Then::Drop))
}

fn unknown(name: &str, steps: &[Step]) -> UnknownName {
    let known: BTreeSet<&str> = steps
        .iter()
        .filter_map(|step| match &step.name {
            Name::Image(reference) => Some(reference.as_str()),
            Name::Package(key) => Some(key.name.as_str()),
            Name::Hub(key) => Some(key.id.as_str()),
            _ => None,
        })
        .collect();
    UnknownName { name: name.to_owned(), near: closest(name, known).map(str::to_owned) }
}
