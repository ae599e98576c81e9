//! Which jobs were recorded for an arm: `arms/ARM-DIGEST/JOB`, write-once. There is no "last" pointer: whoever compares
//! looks for the nearest spec.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attempts::ArmJob;
use super::disk::Disk;
use super::error::StoreError;
use super::paths::Paths;
use super::{Store, oci};
use crate::ids::{ArmId, Digest, JobHash};

/// The content of such a file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    arm: ArmId,
    at: String,
}

/// Notes a job for an arm, durably; an older note stands.
pub(crate) fn write(disk: &Disk, paths: &Paths, arm: &ArmId, job: &JobHash, at: Timestamp) -> Result<(), StoreError> {
    let dir = paths.arm(arm);
    let path = dir.join(job.hex());
    if disk.size(&path)?.is_some() {
        return Ok(());
    }
    disk.make_dir(&dir)?;
    disk.write(&path, &oci::to_bytes(&Entry { arm: arm.clone(), at: at.to_string() })?)
}

/// The jobs noted for an arm, oldest first.
pub(crate) fn read(disk: &Disk, paths: &Paths, arm: &ArmId) -> Result<Vec<ArmJob>, StoreError> {
    let dir = paths.arm(arm);
    let mut jobs = Vec::new();
    for name in disk.list(&dir)? {
        let Ok(job) = Digest::from_hex(&name) else { continue };
        let path = dir.join(&name);
        let Some(bytes) = disk.read(&path)? else { continue };
        let (_, at) = parse(&bytes).map_err(|what| StoreError::damaged(&path, what))?;
        jobs.push(ArmJob { job: JobHash(job), at });
    }
    jobs.sort_by_key(|noted| (noted.at, noted.job));
    Ok(jobs)
}

/// The arm and time of a note.
pub(crate) fn parse(bytes: &[u8]) -> Result<(ArmId, Timestamp), String> {
    let entry: Entry = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let at = entry.at.parse().map_err(|error| format!("its time: {error}"))?;
    Ok((entry.arm, at))
}

impl Store {
    /// Notes that a recorded job was served for an arm, so that later changes of the arm compare with it. Records do
    /// this by themselves for the arms that they measured.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub fn serve_for(&self, arm: &ArmId, job: &JobHash, at: Timestamp) -> Result<(), StoreError> {
        if self.disk().size(&self.paths().arm(arm).join(job.hex()))?.is_some() {
            return Ok(());
        }
        self.prepare()?;
        write(self.disk(), self.paths(), arm, job, at)
    }
}
