//! Reads a whole store and says what is wrong with it, each with its path and its fix. Changes nothing, and may run while
//! others write.
//!
//! First what refers (attempts, arms, exclusions), then what is referred to (every blob is read and hashed): what is
//! recorded meanwhile is then seen whole or not at all.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::attempts::AttemptRef;
use super::blob::{self, BlobReader};
use super::derived::StoredDerivation;
use super::error::StoreError;
use super::owner::tagged_dead;
use super::paths::{self, JobEntry, TEMP};
use super::{Store, arms, exclude, index, oci};
use crate::ids::{Digest, JobHash};

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Blobs in the store.
    pub blobs: u64,
    /// Blobs checked.
    pub checked: u64,
    /// Bytes hashed.
    pub bytes: u64,
}

/// What is wrong with one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
    pub(crate) repair: Repair,
}

/// What `verify --repair` does about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Nothing: it takes a person.
    None,
    /// Move these files out of the way, in this order.
    Aside(Vec<PathBuf>),
    /// Write the `oci-layout` file.
    Layout,
    /// Write an attempt's file; its manifest has this size.
    Reference(AttemptRef, u64),
}

/// How `index.json` stands to what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    /// They agree.
    Current,
    /// It lacks attempts, or lists ones that are gone: this many.
    Behind(u64),
    /// There is none though there are attempts, or it cannot be read.
    Missing,
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// Attempts.
    pub attempts: u64,
    /// Those that count as records.
    pub records: u64,
    /// Blobs read.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blobs that no attempt refers to, such as those of a writer that was killed. Harmless.
    pub unreferenced: u64,
    /// Temporary files of writers that are gone. Harmless.
    pub leftovers: Vec<PathBuf>,
    /// `index.json`, a cache.
    pub index: IndexState,
    /// Damage.
    pub problems: Vec<Problem>,
}

/// What to do about a file that is not what it should be.
const RESTORE: &str = "copy it back from another copy of the store, or run `ixbuild store verify --repair` to set it and \
                       the attempts that need it aside, then run their arms again";

#[derive(Default)]
pub(crate) struct Found {
    attempts: Vec<AttemptRef>,
    pub(crate) derivations: Vec<StoredDerivation>,
    /// Blobs that attempts refer to, with their sizes.
    pub(crate) needed: HashMap<Digest, u64>,
    pub(crate) problems: Vec<Problem>,
    leftovers: Vec<PathBuf>,
}

impl Store {
    /// Checks everything.
    ///
    /// # Errors
    /// A directory that cannot be read. Damage is no error: it is in the report.
    pub fn verify(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report, StoreError> {
        let mut found = Found::default();
        self.check_root(&mut found)?;
        self.check_jobs(&mut found)?;
        self.check_arms(&mut found)?;
        let blobs = self.check_blobs(&mut found, progress)?;
        if !blobs.bad.is_empty() {
            self.name_victims(&mut found, &blobs.bad)?;
        }
        let index = self.check_index(&found)?;
        found.problems.sort_by(|a, b| a.path.cmp(&b.path));
        found.leftovers.sort();
        Ok(Report {
            attempts: found.attempts.len() as u64,
            records: found.attempts.iter().filter(|attempt| attempt.counts()).count() as u64,
            blobs: blobs.count,
            bytes: blobs.bytes,
            unreferenced: blobs.unreferenced,
            leftovers: found.leftovers,
            index,
            problems: found.problems,
        })
    }

    /// The names in a directory that are not temporary or hidden; temporary ones of the dead are noted.
    fn names(&self, dir: &Path, found: &mut Found) -> Result<Vec<String>, StoreError> {
        let mut names = self.disk().list(dir)?;
        names.retain(|name| {
            if let Some(tag) = name.strip_prefix(TEMP)
                && tagged_dead(tag)
            {
                found.leftovers.push(dir.join(name));
            }
            !name.starts_with('.')
        });
        Ok(names)
    }

    fn check_root(&self, found: &mut Found) -> Result<(), StoreError> {
        let paths = self.paths();
        for dir in [&paths.root, &paths.claims(), &paths.pending()] {
            self.names(dir, found)?;
        }
        let path = paths.layout();
        let what = match self.disk().read(&path)? {
            Some(bytes) => match serde_json::from_slice::<oci_spec::image::OciLayout>(&bytes) {
                Ok(_) => return Ok(()),
                Err(error) => error.to_string(),
            },
            None if self.disk().list(&paths.jobs())?.is_empty() => return Ok(()),
            None => "it is missing".into(),
        };
        let text = String::from_utf8_lossy(super::LAYOUT);
        let fix = format!("run `ixbuild store verify --repair`, or write this into it: {text}");
        found.problems.push(Problem { path, what, fix, repair: Repair::Layout });
        Ok(())
    }

    fn check_jobs(&self, found: &mut Found) -> Result<(), StoreError> {
        let jobs = self.paths().jobs();
        for shard in self.names(&jobs, found)? {
            let dir = jobs.join(&shard);
            for name in self.names(&dir, found)? {
                match Digest::from_hex(&name) {
                    Ok(job) if name.starts_with(&shard) => self.check_job(JobHash(job), found)?,
                    _ => found.problems.push(foreign(dir.join(name), "it is not a job's directory", false)),
                }
            }
        }
        Ok(())
    }

    fn check_job(&self, job: JobHash, found: &mut Found) -> Result<(), StoreError> {
        let dir = self.paths().job(&job);
        let mut derivations = Vec::new();
        for name in self.names(&dir, found)? {
            let path = dir.join(&name);
            match paths::job_entry(job, &name) {
                Some(JobEntry::Excluded(_) | JobEntry::Collected(_)) => {
                    let Some(bytes) = self.disk().read(&path)? else { continue };
                    if let Err(what) = exclude::parse(&bytes) {
                        let fix = "the attempt stays out of the count; write when and why into it: \
                                   {\"at\":\"2026-01-31T00:00:00Z\",\"reason\":\"…\"}";
                        found.problems.push(Problem { path, what, fix: fix.into(), repair: Repair::None });
                    }
                }
                Some(JobEntry::Derived(attempt, derivation)) => {
                    let needs = HashSet::from([derivation.manifest]);
                    derivations.push(StoredDerivation { job, attempt, derivation, path, needs });
                }
                Some(JobEntry::Attempt(_)) => {}
                None => found.problems.push(foreign(path, "it is not an attempt", true)),
            }
        }
        for attempt in super::read::attempts(self.disk(), self.paths(), &job)? {
            if !attempt.collected {
                self.check_attempt(&attempt, found)?;
                let own = derivations.extract_if(.., |derivation| derivation.attempt == attempt.manifest);
                for derivation in own.collect::<Vec<_>>() {
                    self.check_derivation(derivation, found)?;
                }
            }
            found.attempts.push(attempt);
        }
        Ok(())
    }

    fn check_attempt(&self, attempt: &AttemptRef, found: &mut Found) -> Result<(), StoreError> {
        let path = self.paths().attempt(attempt);
        let manifest = match blob::get(self.disk(), self.paths(), &attempt.manifest) {
            Ok(manifest) => manifest,
            // It will be found again when all blobs are hashed.
            Err(StoreError::Damaged { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(manifest) = manifest else {
            // Named with the missing blobs; its size is not known.
            found.needed.insert(attempt.manifest, 0);
            return Ok(());
        };
        let size = manifest.len() as u64;
        found.needed.insert(attempt.manifest, size);
        match oci::read_manifest(attempt, &manifest) {
            Ok((read, spec_size)) => {
                found.needed.insert(attempt.job.0, spec_size);
                found.needed.extend(read.layers.iter().map(|layer| (layer.digest, layer.size)));
            }
            Err(what) => {
                let (what, fix) = (format!("its manifest does not fit it: {what}"), RESTORE.to_owned());
                let repair = Repair::Aside(vec![path.clone()]);
                found.problems.push(Problem { path: path.clone(), what, fix, repair });
            }
        }
        let expected = oci::reference(&attempt.job, &attempt.manifest, size)?;
        if let Some(bytes) = self.disk().read(&path)?
            && serde_json::from_slice(&bytes).ok().as_ref() != Some(&expected)
        {
            let what = "it does not describe the manifest that it is named after".into();
            let fix = "run `ixbuild store verify --repair` to write it anew".into();
            found.problems.push(Problem { path, what, fix, repair: Repair::Reference(attempt.clone(), size) });
        }
        Ok(())
    }

    fn check_arms(&self, found: &mut Found) -> Result<(), StoreError> {
        let arms_dir = self.paths().arms();
        for arm in self.names(&arms_dir, found)? {
            let dir = arms_dir.join(&arm);
            for name in self.names(&dir, found)? {
                let path = dir.join(&name);
                if Digest::from_hex(&name).is_err() {
                    found.problems.push(foreign(path, "it is not a job", true));
                    continue;
                }
                let Some(bytes) = self.disk().read(&path)? else { continue };
                let what = match arms::parse(&bytes) {
                    Ok((id, _)) if Digest::of(id.as_str().as_bytes()).hex() == arm => continue,
                    Ok((id, _)) => format!("it names the arm {id}, which belongs elsewhere"),
                    Err(what) => what,
                };
                let fix = "run `ixbuild store verify --repair` to set it aside: no result depends on it".into();
                let repair = Repair::Aside(vec![path.clone()]);
                found.problems.push(Problem { path, what, fix, repair });
            }
        }
        Ok(())
    }

    fn check_blobs(&self, found: &mut Found, progress: &(dyn Fn(Progress) + Sync)) -> Result<Blobs, StoreError> {
        let dir = self.paths().blobs();
        let mut digests = Vec::new();
        for name in self.names(&dir, found)? {
            match Digest::from_hex(&name) {
                Ok(digest) => digests.push(digest),
                Err(_) => found.problems.push(foreign(dir.join(name), "it is not a blob", true)),
            }
        }
        let damaged = Mutex::new(Vec::new());
        let (next, checked, bytes) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let count = digests.len() as u64;
        let (digests, needed) = (&digests, &found.needed);
        let work = || -> Result<(), StoreError> {
            while let Some(digest) = digests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut size = 0;
                let what = match BlobReader::open(self.disk(), self.paths(), digest)?.digest(|step| {
                    size += step;
                    bytes.fetch_add(step, Ordering::Relaxed);
                })? {
                    content if content != *digest => Some(blob::wrong_digest(&content)),
                    _ => match needed.get(digest) {
                        Some(said) if *said != size => Some(format!("it has {size} bytes, its manifest says {said}")),
                        _ => None,
                    },
                };
                if let Some(what) = what {
                    damaged.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((*digest, what));
                }
                let checked = checked.fetch_add(1, Ordering::Relaxed) + 1;
                progress(Progress { blobs: count, checked, bytes: bytes.load(Ordering::Relaxed) });
            }
            Ok(())
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8).min(digests.len() / 64 + 1);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = others.into_iter().map(|other| other.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
            others.fold(own, Result::and)
        })?;

        let present: HashSet<&Digest> = digests.iter().collect();
        let unreferenced = present.iter().filter(|digest| !needed.contains_key(digest)).count() as u64;
        let mut bad = damaged.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let missing = needed.keys().filter(|digest| !present.contains(digest));
        bad.extend(missing.map(|digest| (*digest, "it is missing".to_owned())));
        let bytes = bytes.into_inner();
        Ok(Blobs { count, bytes, unreferenced, bad: bad.into_iter().collect() })
    }

    /// Turns bad blobs into problems that know the attempts which need them.
    fn name_victims(&self, found: &mut Found, bad: &HashMap<Digest, String>) -> Result<(), StoreError> {
        let mut victims: HashMap<Digest, Vec<PathBuf>> = HashMap::new();
        for attempt in found.attempts.iter().filter(|attempt| !attempt.collected) {
            let mut needs = HashSet::from([attempt.job.0, attempt.manifest]);
            if let Ok(Some(bytes)) = blob::get(self.disk(), self.paths(), &attempt.manifest)
                && let Ok((read, _)) = oci::read_manifest(attempt, &bytes)
            {
                needs.extend(read.layers.iter().map(|layer| layer.digest));
            }
            for digest in needs.iter().filter(|digest| bad.contains_key(digest)) {
                victims.entry(*digest).or_default().push(self.paths().attempt(attempt));
            }
        }
        for derivation in &found.derivations {
            for digest in derivation.needs.iter().filter(|digest| bad.contains_key(digest)) {
                victims.entry(*digest).or_default().push(derivation.path.clone());
            }
        }
        for (digest, what) in bad {
            let path = self.paths().blob(digest);
            let mut aside = victims.remove(digest).unwrap_or_default();
            let (derived, own): (Vec<_>, Vec<_>) = aside.iter().partition(|file| paths::is_derivation(file));
            let attempts = match (own.len(), derived.len()) {
                (0, 0) => "no attempt needs it".to_owned(),
                (1, _) => "1 attempt needs it".to_owned(),
                (0, _) => "a derivation needs it".to_owned(),
                (count, _) => format!("{count} attempts need it"),
            };
            aside.push(path.clone());
            let what = format!("{what}; {attempts}");
            found.problems.push(Problem { path, what, fix: RESTORE.into(), repair: Repair::Aside(aside) });
        }
        Ok(())
    }

    fn check_index(&self, found: &Found) -> Result<IndexState, StoreError> {
        let attempts = found.attempts.iter().filter(|attempt| !attempt.collected).map(AttemptRef::tag);
        let derived = found.derivations.iter();
        let derived = derived.map(|one| oci::derived_tag(&one.job, &one.attempt, &one.derivation.manifest));
        let recorded: HashSet<String> = attempts.chain(derived).collect();
        let listed: HashSet<String> = match self.disk().read(&self.paths().index())?.map(|bytes| index::parse(&bytes)) {
            Some(Ok(entries)) => entries.iter().filter_map(oci::tag_of).map(str::to_owned).collect(),
            None if recorded.is_empty() => return Ok(IndexState::Current),
            Some(Err(_)) | None => return Ok(IndexState::Missing),
        };
        let differ = recorded.symmetric_difference(&listed).count() as u64;
        Ok(if differ == 0 { IndexState::Current } else { IndexState::Behind(differ) })
    }
}

struct Blobs {
    count: u64,
    bytes: u64,
    unreferenced: u64,
    bad: HashMap<Digest, String>,
}

/// A file that we did not write. Directories are left to people.
fn foreign(path: PathBuf, what: &str, movable: bool) -> Problem {
    let repair = if movable { Repair::Aside(vec![path.clone()]) } else { Repair::None };
    Problem { path, what: what.into(), fix: "move it out of the store".into(), repair }
}
