//! Claims: who works on a job. Two processes, on one machine or several, never run one job at once.
//!
//! A claim is `claims/JOB.json`, created exclusively, and a lock on `claims/JOB.lock` that the kernel drops when its
//! owner dies. Whoever gets the lock and finds a record left judges its owner: on this kernel the free lock proves it
//! dead, one of an earlier boot is dead, one elsewhere is never presumed dead. On file systems without locks the exclusive
//! creation alone decides, and a claim left there stands until `ixbuild stop` ends it: safe, if slower.
//!
//! `claims/JOB.TOKEN.stop` asks the owner of one claim to stop its job; the owner looks for it now and then. A file asks
//! across machines, and can neither hit a process that reused a pid nor stop the other jobs of a sweep.
//!
//! Knows nothing of executors: their handles are text.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Store;
use super::error::StoreError;
use super::fs::{LockFile, TryLock};
use super::owner::{Owner, Presence};
use super::view::JobState;
use super::{oci, read};
use crate::ids::{ArmId, Digest, JobHash};

/// What the holder of a claim does: for whoever looks on, and for whoever must clear up after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The arms that it measures.
    #[serde(default)]
    pub arms: Vec<ArmId>,
    /// What its executor started, such as `pid:4711:START`: for whoever must stop or adopt it.
    pub handles: Vec<String>,
    /// How far it is, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The attempt's directory, on the owner's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<PathBuf>,
}

/// What a claim says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// The job.
    pub job: JobHash,
    /// Who holds it.
    pub owner: Owner,
    /// What it does.
    #[serde(flatten)]
    pub work: Work,
    /// Since when, RFC 3339.
    pub since: String,
    /// Whether a lock stands behind it.
    pub locked: bool,
    /// Tells claims of one process apart.
    token: String,
}

impl ClaimRecord {
    /// Whether both are records of one claim, whatever its owner has noted since.
    pub fn is_same_claim(&self, other: &Self) -> bool {
        self.job == other.job && self.token == other.token
    }
}

/// A claim as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldClaim {
    /// The job.
    pub job: JobHash,
    /// What it says; `None` if it cannot be read, or is being written just now.
    pub record: Option<ClaimRecord>,
    /// Whether its owner is still there.
    pub presence: Presence,
}

impl HeldClaim {
    /// Whether it keeps others from claiming. A dead owner's claim is taken over, if a lock stood behind it.
    pub fn blocks(&self) -> bool {
        self.presence != Presence::Dead || self.record.as_ref().is_none_or(|record| !record.locked)
    }
}

/// `pid 4711 on HOST, which is dead`.
impl fmt::Display for HeldClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some(record) => write!(f, "{}", record.owner)?,
            None => f.write_str("an owner that left no readable record")?,
        }
        match self.presence {
            Presence::Alive => Ok(()),
            Presence::Dead => f.write_str(", which is dead"),
            Presence::Elsewhere => f.write_str(", which cannot be judged from here"),
        }
    }
}

/// What came of asking for a claim.
#[derive(Debug)]
pub enum Claim {
    /// It is ours.
    Claimed(Box<Claimed>),
    /// Somebody has it.
    Held(Box<HeldClaim>),
}

/// A claim of ours.
#[derive(Debug)]
pub struct Claimed {
    /// Holds it.
    pub guard: ClaimGuard,
    /// The dead owner's claim that we took over: what it started is to be adopted or stopped. Its handles and its
    /// directory stay on file until [`ClaimGuard::set_work`] replaces them.
    pub left: Option<ClaimRecord>,
    /// The job's attempts, read after the claim was made: another process may have recorded it since the plan.
    pub state: JobState,
}

/// Sees whether somebody asked the owner of a claim to stop.
#[derive(Debug, Clone)]
pub struct StopRequest {
    store: Store,
    path: PathBuf,
}

impl StopRequest {
    /// Whether somebody did: one look for a file. A store that cannot be read asks for nothing.
    pub fn is_made(&self) -> bool {
        self.store.disk().size(&self.path).is_ok_and(|size| size.is_some())
    }
}

/// Holds a claim; dropping it releases it.
#[derive(Debug)]
pub struct ClaimGuard {
    store: Store,
    record: ClaimRecord,
    lock: Option<LockFile>,
    released: bool,
}

impl Store {
    /// Claims a job, without waiting.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub fn claim(&self, job: &JobHash, handles: Vec<String>) -> Result<Claim, StoreError> {
        self.claim_for(job, Work { handles, ..Work::default() })
    }

    /// Claims a job and says what for, without waiting.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub fn claim_for(&self, job: &JobHash, work: Work) -> Result<Claim, StoreError> {
        self.prepare()?;
        let lock = match self.disk().try_lock(&self.paths().claim_lock(job))? {
            TryLock::Locked(lock) => Some(lock),
            TryLock::Unsupported => None,
            TryLock::Busy => return Ok(Claim::Held(Box::new(self.held_by_lock(job)?))),
        };
        let mut record = ClaimRecord {
            job: *job,
            owner: Owner::current(),
            work,
            since: Timestamp::now().to_string(),
            locked: lock.is_some(),
            token: token(),
        };
        let path = self.paths().claim(job);
        let mut left = None;
        if let Some(found) = self.read_claim(job)? {
            match found.record {
                Some(dead) if lock.is_some() && gone(&dead) => {
                    // Until ours is set, what they left must survive us too.
                    let own = std::mem::replace(&mut record.work, dead.work.clone());
                    record.work.handles.extend(own.handles);
                    self.disk().write(&path, &oci::to_bytes(&record)?)?;
                    self.disk().remove(&self.paths().claim_stop(job, &dead.token))?;
                    left = Some(dead);
                }
                _ => return Ok(Claim::Held(Box::new(found))),
            }
        } else if !self.disk().write_new(&path, &oci::to_bytes(&record)?)? {
            let unseen = HeldClaim { job: *job, record: None, presence: Presence::Elsewhere };
            return Ok(Claim::Held(Box::new(self.read_claim(job)?.unwrap_or(unseen))));
        }
        let guard = ClaimGuard { store: self.clone(), record, lock, released: false };
        let attempts = read::attempts(self.disk(), self.paths(), job)?;
        Ok(Claim::Claimed(Box::new(Claimed { guard, left, state: JobState { attempts, claim: None } })))
    }

    /// All claims, oldest first.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn claims(&self) -> Result<Vec<HeldClaim>, StoreError> {
        let mut claims = Vec::new();
        for name in self.disk().list(&self.paths().claims())? {
            let Some(job) = name.strip_suffix(".json").and_then(|hex| Digest::from_hex(hex).ok()) else { continue };
            claims.extend(self.read_claim(&JobHash(job))?);
        }
        claims.sort_by_key(|claim| (claim.record.as_ref().map(|record| record.since.clone()), claim.job));
        Ok(claims)
    }

    /// Ends a claim whose owner is gone, and says what it held. One whose owner may be there only when `force` says so;
    /// one whose owner holds the lock, never: that process must be stopped.
    ///
    /// # Errors
    /// A claim that stands; a store that cannot be written.
    pub fn end_claim(&self, job: &JobHash, force: bool) -> Result<Option<ClaimRecord>, StoreError> {
        if self.read_claim(job)?.is_none() {
            return Ok(None);
        }
        let stands = |found: &HeldClaim| StoreError::Claimed { job: *job, owner: found.to_string() };
        let lock = match self.disk().try_lock(&self.paths().claim_lock(job))? {
            TryLock::Locked(lock) => Some(lock),
            TryLock::Unsupported => None,
            TryLock::Busy => return Err(stands(&self.held_by_lock(job)?)),
        };
        let Some(found) = self.read_claim(job)? else { return Ok(None) };
        let dead = match &found.record {
            Some(record) if lock.is_some() => gone(record),
            _ => found.presence == Presence::Dead,
        };
        if !dead && !force {
            return Err(stands(&found));
        }
        match &found.record {
            Some(record) if dead => self.disk().remove(&self.paths().claim_stop(job, &record.token))?,
            // Should it live after all, it sees that it must stop.
            Some(record) => self.ask_to_stop(record)?,
            None => {}
        }
        self.disk().remove(&self.paths().claim(job))?;
        if lock.is_some() {
            self.disk().remove(&self.paths().claim_lock(job))?;
        }
        Ok(found.record)
    }

    /// Asks the owner of a claim to stop its job. It is seen within a second or so; whether it was, the claim's end tells.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub fn ask_to_stop(&self, record: &ClaimRecord) -> Result<(), StoreError> {
        let asker = format!("{}\n", Owner::current());
        self.disk().write(&self.paths().claim_stop(&record.job, &record.token), asker.as_bytes())
    }

    /// The claim on a job, if there is one.
    pub(crate) fn read_claim(&self, job: &JobHash) -> Result<Option<HeldClaim>, StoreError> {
        let Some(bytes) = self.disk().read(&self.paths().claim(job))? else { return Ok(None) };
        let record: Option<ClaimRecord> = serde_json::from_slice(&bytes).ok();
        let presence = record.as_ref().map_or(Presence::Elsewhere, |record| record.owner.presence());
        Ok(Some(HeldClaim { job: *job, record, presence }))
    }

    /// The claim of whoever has the lock: alive, though its record may not be there yet, or no more.
    fn held_by_lock(&self, job: &JobHash) -> Result<HeldClaim, StoreError> {
        for _ in 0..10 {
            if let Some(found) = self.read_claim(job)? {
                return Ok(HeldClaim { presence: Presence::Alive, ..found });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(HeldClaim { job: *job, record: None, presence: Presence::Alive })
    }
}

/// Whether the owner of a record is gone for sure, when we have its lock.
fn gone(record: &ClaimRecord) -> bool {
    record.locked && record.owner.on_this_kernel() || record.owner.presence() == Presence::Dead
}

fn token() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{count}-{}", Owner::current().tag(), Timestamp::now().as_nanosecond())
}

impl ClaimGuard {
    /// What the claim says.
    pub fn record(&self) -> &ClaimRecord {
        &self.record
    }

    /// Replaces the handles on file.
    ///
    /// # Errors
    /// A claim that was ended by somebody else; a store that cannot be written.
    pub fn set_handles(&mut self, handles: Vec<String>) -> Result<(), StoreError> {
        self.set_work(Work { handles, ..self.record.work.clone() })
    }

    /// Replaces all that is on file of what we do.
    ///
    /// # Errors
    /// A claim that was ended by somebody else; a store that cannot be written.
    pub fn set_work(&mut self, work: Work) -> Result<(), StoreError> {
        if !self.is_ours()? {
            return Err(StoreError::ClaimLost { job: self.record.job });
        }
        self.record.work = work;
        self.store.disk().write(&self.store.paths().claim(&self.record.job), &oci::to_bytes(&self.record)?)
    }

    /// Where requests to stop show up.
    pub fn stop_request(&self) -> StopRequest {
        let path = self.store.paths().claim_stop(&self.record.job, &self.record.token);
        StopRequest { store: self.store.clone(), path }
    }

    /// Whether the claim still stands: without locks, `ixbuild stop` on another machine can end it.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn is_ours(&self) -> Result<bool, StoreError> {
        let found = self.store.read_claim(&self.record.job)?;
        Ok(found.and_then(|found| found.record).is_some_and(|record| record.token == self.record.token))
    }

    /// Lets go of the job.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub fn release(mut self) -> Result<(), StoreError> {
        self.let_go()
    }

    /// Ends our part and leaves the record with its handles to the next claimant: for services that stay up.
    pub fn leave(mut self) {
        self.released = true;
    }

    fn let_go(&mut self) -> Result<(), StoreError> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        let (disk, paths) = (self.store.disk(), self.store.paths());
        if self.is_ours()? {
            disk.remove(&paths.claim(&self.record.job))?;
        }
        disk.remove(&paths.claim_stop(&self.record.job, &self.record.token))?;
        if let Some(lock) = self.lock.take() {
            // Under the lock: who opened the file meanwhile finds it gone and asks again.
            disk.remove(&paths.claim_lock(&self.record.job))?;
            drop(lock);
        }
        Ok(())
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        // What cannot be removed is a dead owner's claim to the next one.
        let _ = self.let_go();
    }
}
