//! What content addressing would have saved over a history.
//!
//! Commit by commit, the new entries select arms; those whose name (see [`super::measure`]) nothing measured before
//! needed a run, the others did not. Measured before means: every arm of the masters where the range starts, taken as
//! measured, and every arm that an entry of an earlier commit selected. So an edit that waited for its entry counts
//! when the entry comes, and going back to an old image costs nothing.
//!
//! Git is read by one thread, masters are parsed and expanded by others, and the account is kept in order at the end.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::added::added;
use super::append_only::Side;
use super::check::{all_arms, part_arms};
use super::measure::{Estimate, Measured, Name, measure, names, recipes};
use super::revision::{changelog, required_changelog};
use super::select::{Options, select};
use crate::config::diagnostic::{Diagnostics, Place, Source};
use crate::config::inputs::{Blobs, Inputs, RevisionError};
use crate::config::load::{Config, FOLDER, MASTER_SUFFIX, RUNNERS};
use crate::config::master::{self, MasterEntry};
use crate::config::runners::Runners;
use crate::git::{GitError, Repository, Revision};

/// How many commits may wait for a thread.
const WAITING: usize = 4;

/// How many parsed masters are kept.
const PARSED: usize = 8;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Audit<'a> {
    /// The changelog's path.
    pub changelog: &'a str,
    /// The profile under which arms have jobs.
    pub profile: &'a str,
    /// What measuring costs.
    pub estimate: Estimate,
    /// How many threads parse.
    pub threads: usize,
}

/// What a history came to.
#[derive(Debug)]
pub struct Audited {
    /// Names taken as measured where the range starts; or why there are none.
    pub start: Result<usize, Diagnostics>,
    /// The commits that change the changelog, oldest first.
    pub commits: Vec<AuditedCommit>,
}

/// One commit.
#[derive(Debug)]
pub struct AuditedCommit {
    /// Which.
    pub revision: Revision,
    /// Its new entries, in file order; or why it selects nothing.
    pub entries: Result<Vec<AuditedEntry>, Diagnostics>,
}

/// One entry.
#[derive(Debug, Clone)]
pub struct AuditedEntry {
    /// Where it stands.
    pub place: Place,
    /// Its keys and globs.
    pub config_keys: Vec<String>,
    /// What it selects.
    pub totals: Totals,
}

/// Counts and costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Arms selected.
    pub selected: usize,
    /// Those of them whose inputs nothing had measured.
    pub changed: usize,
    /// Those that only their rows name.
    pub by_row: usize,
    /// The cost of all, seconds of one GPU.
    pub gpu_s: u64,
    /// The cost of those that did not change.
    pub idle_gpu_s: u64,
}

impl Totals {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.selected += other.selected;
        self.changed += other.changed;
        self.by_row += other.by_row;
        self.gpu_s += other.gpu_s;
        self.idle_gpu_s += other.idle_gpu_s;
    }
}

impl Audited {
    /// All entries together.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let entries = self.commits.iter().filter_map(|commit| commit.entries.as_ref().ok()).flatten();
        entries.for_each(|entry| totals.add(&entry.totals));
        totals
    }
}

/// A commit as it was read.
struct Step {
    index: usize,
    before: Option<Arc<Source>>,
    after: Arc<Source>,
    /// Of the parent; only append-only entries need it.
    base: Option<Inputs>,
    head: Inputs,
}

/// What the entries of a commit select, before the account.
type Selected = Result<Vec<(AuditedEntry, Vec<Measured>)>, Diagnostics>;

/// Walks a history. A commit whose entries cannot be read is reported and passed over.
///
/// # Errors
/// Git failed.
pub fn audit(
    repository: &mut Repository,
    from: &Revision,
    to: &Revision,
    asked: Audit<'_>,
) -> Result<Audited, GitError> {
    let parsed = Parsed::default();
    let mut blobs = Blobs::default();
    let mut start = match read(|| Inputs::from_revision(repository, from, &mut blobs))? {
        Ok(inputs) => at_start(&inputs, &parsed, asked),
        Err(faults) => Err(faults),
    };
    let mut revisions = Vec::new();
    for commit in repository.commits_of(from, to, asked.changelog)? {
        revisions.push(repository.resolve(commit.as_str())?);
    }
    let mut selected: Vec<Option<Selected>> = Vec::new();
    selected.resize_with(revisions.len(), || None);
    let results = Mutex::new(&mut selected);
    let keep = &|index: usize, found: Selected| {
        if let Some(slot) = results.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index) {
            *slot = Some(found);
        }
    };
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<Step>(WAITING);
        let receive = Arc::new(Mutex::new(receive));
        for _ in 0..asked.threads.max(1) {
            let (receive, parsed) = (Arc::clone(&receive), &parsed);
            scope.spawn(move || {
                while let Some(step) = next(&receive) {
                    keep(step.index, step.select(parsed, asked));
                }
            });
        }
        // From here on the threads alone hold it: when they are gone, sending fails instead of waiting.
        drop(receive);
        for (index, revision) in revisions.iter().enumerate() {
            blobs.next();
            match read(|| step(repository, index, revision, asked, &mut blobs))? {
                // Sending fails when every thread has died; the scope then panics as they did.
                Ok(step) => drop(send.send(step)),
                Err(faults) => keep(index, Err(faults)),
            }
        }
        Ok::<(), GitError>(())
    })?;
    let mut measured = start.as_mut().map(std::mem::take).unwrap_or_default();
    let start = start.map(|_| measured.len());
    let commits = revisions.into_iter().zip(selected).map(|(revision, selected)| {
        let entries = selected.unwrap_or_else(|| Ok(Vec::new()));
        AuditedCommit { revision, entries: entries.map(|entries| account(entries, &mut measured)) }
    });
    Ok(Audited { start, commits: commits.collect() })
}

/// The next commit; nothing when all were handed out.
fn next(receive: &Mutex<Receiver<Step>>) -> Option<Step> {
    receive.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Sets faults of files, which are reported, apart from those of git, which end the walk.
fn read<T>(reader: impl FnOnce() -> Result<T, RevisionError>) -> Result<Result<T, Diagnostics>, GitError> {
    match reader() {
        Ok(value) => Ok(Ok(value)),
        Err(RevisionError::Files(faults)) => Ok(Err(faults)),
        Err(RevisionError::Git(error)) => Err(error),
    }
}

fn step(
    repository: &mut Repository,
    index: usize,
    revision: &Revision,
    asked: Audit<'_>,
    blobs: &mut Blobs,
) -> Result<Step, RevisionError> {
    let parent = match revision.parents.first() {
        Some(parent) => Some(repository.resolve(parent.as_str())?),
        None => None,
    };
    let after = required_changelog(repository, revision, asked.changelog, blobs)?;
    let (mut before, mut base) = (None, None);
    if let Some(parent) = parent {
        before = changelog(repository, &parent, asked.changelog, blobs)?;
        if added(before.as_ref(), &after).is_ok_and(|added| added.entries.iter().any(|entry| entry.append_only)) {
            base = Some(Inputs::from_revision(repository, &parent, blobs)?);
        }
    }
    Ok(Step { index, before, after, base, head: Inputs::from_revision(repository, revision, blobs)? })
}

/// The names of every arm where the range starts.
fn at_start(inputs: &Inputs, parsed: &Parsed, asked: Audit<'_>) -> Result<HashSet<Name>, Diagnostics> {
    let side = parsed.side(inputs)?;
    names(recipes(inputs, asked.profile)?.as_ref(), &all_arms(&side.config)?, asked.estimate)
}

impl Step {
    fn select(&self, parsed: &Parsed, asked: Audit<'_>) -> Selected {
        let entries = added(self.before.as_ref(), &self.after)?.entries;
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let base = self.base.as_ref().map(|inputs| parsed.side(inputs)).transpose()?;
        let head = parsed.side(&self.head)?;
        let selection = select(entries, &head, base.as_ref(), Options::default()).map_err(|error| match error {
            super::select::SelectError::Faults(faults) => faults,
            other => crate::config::diagnostic::Diagnostic::new(other.to_string()).into(),
        })?;
        let project = recipes(&self.head, asked.profile)?;
        let mut found: Vec<(AuditedEntry, Vec<Measured>)> = selection
            .entries
            .iter()
            .map(|entry| {
                let config_keys = entry.config_keys.iter().map(|key| key.text.clone()).collect();
                (AuditedEntry { place: entry.place.clone(), config_keys, totals: Totals::default() }, Vec::new())
            })
            .collect();
        for part in &selection.parts {
            found[part.entry].1.extend(measure(project.as_ref(), &part_arms(part), asked.estimate)?);
        }
        Ok(found)
    }
}

/// Judges the arms of a commit's entries by what was measured before them, which then includes them.
fn account(entries: Vec<(AuditedEntry, Vec<Measured>)>, measured: &mut HashSet<Name>) -> Vec<AuditedEntry> {
    let judge = |(mut entry, arms): (AuditedEntry, Vec<Measured>)| {
        for arm in arms {
            let changed = measured.insert(arm.name);
            entry.totals.add(&Totals {
                selected: 1,
                changed: usize::from(changed),
                by_row: usize::from(arm.by_row()),
                gpu_s: arm.gpu_s,
                idle_gpu_s: if changed { 0 } else { arm.gpu_s },
            });
        }
        entry
    };
    entries.into_iter().map(judge).collect()
}

type Entries = Result<Vec<MasterEntry>, Diagnostics>;

/// Masters that were parsed before. A text is known by its address: [`Blobs`] shares those of equal objects.
#[derive(Default)]
struct Parsed(Mutex<Vec<Known>>);

/// A text, and its entries once somebody has read them.
type Known = (Arc<Source>, Arc<OnceLock<Entries>>);

impl Parsed {
    fn side(&self, inputs: &Inputs) -> Result<Side, Diagnostics> {
        let masters: Vec<Arc<Source>> =
            inputs.in_folder(FOLDER, MASTER_SUFFIX).map(|(_, source)| Arc::clone(source)).collect();
        let mut faults = Diagnostics::default();
        let files: Vec<_> = masters.iter().filter_map(|source| faults.absorb(self.entries(source))).collect();
        let runners = inputs.get(RUNNERS).and_then(|source| faults.absorb(Runners::parse(source)));
        match (faults.0.is_empty(), runners) {
            (true, Some(runners)) => Ok(Side { config: Config { entries: master::join(files)?, runners }, masters }),
            // One of the files is missing or faulty: the plain reader says which.
            _ => Side::of(inputs),
        }
    }

    fn entries(&self, source: &Arc<Source>) -> Entries {
        let slot = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let at = kept.iter().position(|(known, _)| Arc::ptr_eq(known, source));
            // The latest used stands last.
            let entry = match at {
                Some(at) => kept.remove(at),
                None => (Arc::clone(source), Arc::default()),
            };
            let slot = Arc::clone(&entry.1);
            kept.push(entry);
            if kept.len() > PARSED {
                kept.remove(0);
            }
            slot
        };
        slot.get_or_init(|| master::parse(source)).clone()
    }
}
