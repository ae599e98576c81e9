//! `index.json`, which OCI tools read and we do not: a cache of what `jobs/` holds, brought up to date behind the records.
//!
//! Rewriting it costs time in proportion to the store (0.2 to 0.5 s for 100,000 attempts), so a record leaves only an
//! empty file under `pending/`, and merges happen as often as a twentieth of the time allows, and at the end. A killed
//! process leaves its names there for the next one.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use oci_spec::image::{Descriptor, ImageIndex, MediaType};

use super::disk::Disk;
use super::error::StoreError;
use super::fs::{LockFile, TryLock};
use super::paths::{self, JobEntry, Paths, TEMP};
use super::{Inner, Store, oci};
use crate::ids::{Digest, JobHash};

/// How many times its own duration a merge is apart from the next.
const REST: u32 = 20;
/// How long the end of a run waits for another process's merge.
const PATIENCE: Duration = Duration::from_secs(10);

/// When to merge next.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    behind: bool,
    last: Option<(Instant, Duration)>,
}

impl Store {
    /// Notes a file of a job for the index and merges if it is time. Errors are left to the next merge: the record stands.
    pub(crate) fn index_later(&self, job: &JobHash, name: &str) {
        let name = format!("{}.{name}", job.hex());
        let noted = self.disk().touch(&self.paths().pending().join(name));
        let mut pace = self.0.pace.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        pace.behind = true;
        if noted.is_ok() && pace.last.is_none_or(|(ended, cost)| ended.elapsed() >= cost * REST) {
            let start = Instant::now();
            if let Ok(Some(lock)) = lock(self.disk(), self.paths(), Duration::ZERO) {
                pace.behind = merge(self.disk(), self.paths()).is_err();
                drop(lock);
            }
            pace.last = Some((Instant::now(), start.elapsed()));
        }
    }

    /// Brings `index.json` up to date with the records made so far. Dropping the store does it too, without a word.
    ///
    /// # Errors
    /// A store that cannot be written, or an attempt's file that cannot be read.
    pub fn flush_index(&self) -> Result<(), StoreError> {
        self.0.flush()
    }

    /// Writes `index.json` anew from `jobs/`; how many attempts it lists.
    ///
    /// # Errors
    /// A store that cannot be written, or an attempt's file that cannot be read.
    pub fn rebuild_index(&self) -> Result<usize, StoreError> {
        self.prepare()?;
        let _lock = lock(self.disk(), self.paths(), PATIENCE)?;
        rebuild(self.disk(), self.paths())
    }
}

impl Inner {
    fn flush(&self) -> Result<(), StoreError> {
        let mut pace = self.pace.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if pace.behind
            && let Some(_lock) = lock(&self.disk, &self.paths, PATIENCE)?
        {
            merge(&self.disk, &self.paths)?;
            pace.behind = false;
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The names stay under pending/ for whoever comes next.
        let _ = self.flush();
    }
}

/// The right to rewrite the index, while it is held.
struct Turn(#[allow(dead_code, reason = "held for its lock")] Option<LockFile>);

/// Waits for the right to rewrite the index. `None` if another process has it for longer than `patience`. Without locks, the worst
/// is an entry that is missing until the next rebuild.
fn lock(disk: &Disk, paths: &Paths, patience: Duration) -> Result<Option<Turn>, StoreError> {
    let start = Instant::now();
    loop {
        match disk.try_lock(&paths.index_lock())? {
            TryLock::Locked(lock) => return Ok(Some(Turn(Some(lock)))),
            TryLock::Unsupported => return Ok(Some(Turn(None))),
            TryLock::Busy if start.elapsed() >= patience => return Ok(None),
            TryLock::Busy => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn merge(disk: &Disk, paths: &Paths) -> Result<(), StoreError> {
    let Some(mut entries) = disk.read(&paths.index())?.and_then(|bytes| parse(&bytes).ok()) else {
        return rebuild(disk, paths).map(drop);
    };
    let mut tags: HashSet<String> = entries.iter().filter_map(oci::tag_of).map(str::to_owned).collect();
    let pending = disk.list(&paths.pending())?;
    for name in &pending {
        let Some((job, name)) = name.split_once('.') else { continue };
        let Ok(job) = Digest::from_hex(job).map(JobHash) else { continue };
        let Some((_, tag)) = listed(job, name) else { continue };
        if let Some(entry) = read_reference(disk, paths, &job, name)?
            && tags.insert(tag)
        {
            entries.push(entry);
        }
    }
    write(disk, paths, entries, &pending)
}

fn rebuild(disk: &Disk, paths: &Paths) -> Result<usize, StoreError> {
    let pending = disk.list(&paths.pending())?;
    let mut entries = Vec::new();
    each_job(disk, paths, |job| {
        let names = disk.list(&paths.job(&job))?;
        let collected: HashSet<Digest> = names
            .iter()
            .filter_map(|name| match paths::job_entry(job, name)? {
                JobEntry::Collected(manifest) => Some(manifest),
                _ => None,
            })
            .collect();
        for name in &names {
            if listed(job, name).is_some_and(|(attempt, _)| !collected.contains(&attempt)) {
                entries.extend(read_reference(disk, paths, &job, name)?);
            }
        }
        Ok(())
    })?;
    let count = entries.len();
    write(disk, paths, entries, &pending)?;
    Ok(count)
}

fn write(disk: &Disk, paths: &Paths, entries: Vec<Descriptor>, pending: &[String]) -> Result<(), StoreError> {
    let mut index = ImageIndex::default();
    index.set_schema_version(2);
    index.set_media_type(Some(MediaType::ImageIndex));
    index.set_manifests(entries);
    disk.write(&paths.index(), &oci::to_bytes(&index)?)?;
    for name in pending.iter().filter(|name| !name.starts_with(TEMP)) {
        disk.remove(&paths.pending().join(name))?;
    }
    Ok(())
}

/// The entries of an index.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Descriptor>, String> {
    let index: ImageIndex = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    Ok(index.manifests().clone())
}

/// The attempt that a file of a job is or derives from, and the tag under which the index lists the file; `None` for what it
/// does not list.
fn listed(job: JobHash, name: &str) -> Option<(Digest, String)> {
    match paths::job_entry(job, name)? {
        JobEntry::Attempt(attempt) => Some((attempt.manifest, attempt.tag())),
        JobEntry::Derived(attempt, derivation) => {
            Some((attempt, oci::derived_tag(&job, &attempt, &derivation.manifest)))
        }
        JobEntry::Excluded(_) | JobEntry::Collected(_) => None,
    }
}

/// What a listed file holds; `None` if it went away, or is damaged, which is for `verify` to say.
fn read_reference(disk: &Disk, paths: &Paths, job: &JobHash, name: &str) -> Result<Option<Descriptor>, StoreError> {
    let Some(bytes) = disk.read(&paths.job(job).join(name))? else { return Ok(None) };
    Ok(serde_json::from_slice(&bytes).ok())
}

/// Calls `each` with every job that was tried, in no order.
pub(crate) fn each_job(
    disk: &Disk,
    paths: &Paths,
    mut each: impl FnMut(JobHash) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for shard in disk.list(&paths.jobs())?.into_iter().filter(|name| name.len() == 2) {
        for name in disk.list(&paths.jobs().join(shard))? {
            if let Ok(job) = Digest::from_hex(&name).map(JobHash) {
                each(job)?;
            }
        }
    }
    Ok(())
}
