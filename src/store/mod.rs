//! The store: an OCI image layout, so that skopeo, oras, crane and any registry can read it.
//!
//! ```text
//! oci-layout, index.json           the layout; index.json is a rebuildable cache of what jobs/ holds
//! blobs/sha256/DIGEST              specs (a spec's digest is its job), layers, manifests
//! jobs/HH/JOB/START.OUTCOME[.rehearsal].MANIFEST   a write-once attempt: the manifest's descriptor
//! jobs/HH/JOB/derived.MANIFEST.FORMULAS.TIME.OUTCOME.DERIVATION   results and gates of an attempt under newer formulas
//! jobs/HH/JOB/excluded.MANIFEST.*  why it no longer counts; collected.MANIFEST is the tombstone of a collected one
//! arms/ARM-DIGEST/JOB              a job that was recorded for the arm
//! claims/JOB.json, JOB.lock        who works on a job; JOB.TOKEN.stop asks that one to stop
//! pending/                         attempts that index.json does not list yet
//! damaged/                         what `verify --repair` took out
//! ```
//!
//! A job's attempts are one listing of its directory; what a name says is in `paths`. An attempt is there once its file
//! under `jobs/` is: everything that it needs is on the disk by then. Killed at any instant, the store verifies.
//!
//! Reading a store that is not there finds nothing and creates nothing. Knows nothing of plans, profiles or executors.

mod arms;
mod attempts;
mod blob;
mod claim;
mod derived;
mod disk;
mod error;
mod exclude;
pub mod fs;
#[cfg(test)]
mod fs_twin;
mod index;
pub mod memory;
mod oci;
mod owner;
mod paths;
mod read;
mod record;
mod repair;
#[cfg(test)]
mod tests;
mod tree;
mod verify;
pub mod view;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub use attempts::{
    ArmJob, Attempt, AttemptInput, AttemptRef, Derivation, Derived, Exclusion, Layer, LayerRef, Outcome, OutcomeKind,
    Source,
};
pub use blob::BlobReader;
pub use claim::{Claim, ClaimGuard, ClaimRecord, Claimed, HeldClaim, StopRequest, Work};
pub use derived::DerivationInput;
pub use error::StoreError;
pub use oci::{
    COUNTERS_TYPE, DERIVED_TYPE, GATES_TYPE, LOGS_TYPE, PROVENANCE_TYPE, REASONS_TITLE, REASONS_TYPE, RECORD_TYPE,
    REQUESTS_TYPE, RESULT_TYPE, SPEC_TYPE,
};
pub use owner::{Owner, Presence, start_time};
pub use repair::Repaired;
pub use tree::each_file;
pub use verify::{IndexState, Problem, Progress, Report};
pub use view::{JobState, StoreView};

use crate::ids::JobHash;
use disk::Disk;
use fs::{Fs, RealFs};
use paths::Paths;

/// What the `oci-layout` file says.
const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

/// A store. Clones share it.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: Disk,
    paths: Paths,
    /// Whether this process has made sure that the layout stands.
    ready: AtomicBool,
    pace: Mutex<index::Pace>,
}

/// Where the store is when nobody says: `$XDG_DATA_HOME/ixbuild`, else `~/.local/share/ixbuild`. Not a cache
/// directory: results cost GPU hours.
///
/// # Errors
/// Neither variable is set to an absolute path.
pub fn default_root() -> Result<PathBuf, StoreError> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local").join("share")))
        .map(|data| data.join("ixbuild"))
        .ok_or(StoreError::NoHome)
}

impl Store {
    /// Opens the store at `root`; it need not exist. Nothing is created before the first write.
    ///
    /// # Errors
    /// A directory that holds something else, or a layout version that we do not know.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_on(Arc::new(RealFs), root)
    }

    /// Opens it on another file system.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(fs: Arc<dyn Fs>, root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let (disk, paths) = (Disk(fs), Paths { root: root.into() });
        check_layout(&disk, &paths)?;
        Ok(Self(Arc::new(Inner { disk, paths, ready: AtomicBool::new(false), pace: Mutex::default() })))
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.0.paths.root
    }

    /// The directory of a job's attempts, whether or not it exists.
    pub fn job_path(&self, job: &JobHash) -> PathBuf {
        self.0.paths.job(job)
    }

    fn disk(&self) -> &Disk {
        &self.0.disk
    }

    fn paths(&self) -> &Paths {
        &self.0.paths
    }

    /// Creates what is missing of the layout. The `oci-layout` file comes first: it marks the directory as ours.
    fn prepare(&self) -> Result<(), StoreError> {
        if self.0.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        let (disk, paths) = (self.disk(), self.paths());
        disk.make_dirs(&paths.root)?;
        if disk.size(&paths.layout())?.is_none() {
            disk.write(&paths.layout(), LAYOUT)?;
        }
        disk.make_dir(&paths.root.join("blobs"))?;
        for dir in [paths.blobs(), paths.jobs(), paths.arms(), paths.claims(), paths.pending()] {
            disk.make_dir(&dir)?;
        }
        self.0.ready.store(true, Ordering::Release);
        Ok(())
    }
}

/// Refuses directories that hold something else, so that a mistyped `--store` does no harm. A store whose `oci-layout`
/// is damaged is still ours to read: `verify` reports it.
fn check_layout(disk: &Disk, paths: &Paths) -> Result<(), StoreError> {
    let not_a_store = |why: String| StoreError::NotAStore { path: paths.root.clone(), why };
    // Names before the layout file, which is created first: a store that another process creates just now is one.
    let names = match disk.list(&paths.root) {
        Err(StoreError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(not_a_store("it is not a directory".into()));
        }
        names => names?,
    };
    if let Some(bytes) = disk.read(&paths.layout())?
        && let Ok(layout) = serde_json::from_slice::<oci_spec::image::OciLayout>(&bytes)
    {
        let version = layout.image_layout_version();
        let known = version.starts_with("1.");
        return if known { Ok(()) } else { Err(not_a_store(format!("its layout version is {version}"))) };
    }
    let foreign = names.iter().filter(|name| !name.starts_with(paths::TEMP) && *name != "lost+found").min();
    match foreign {
        Some(name) if !names.iter().any(|name| name == "jobs") => {
            Err(not_a_store(format!("it has no readable oci-layout file but holds `{name}`")))
        }
        _ => Ok(()),
    }
}
