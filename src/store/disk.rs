//! The safe write over single file operations: unique temporary file in the destination directory, fsync, rename,
//! fsync of the directory. Knows nothing of what the files hold.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::StoreError;
use super::fs::{Fs, FsFile, TryLock};
use super::owner::Owner;
use super::paths::TEMP;

/// A file system, with errors that carry paths.
#[derive(Debug, Clone)]
pub(crate) struct Disk(pub(crate) Arc<dyn Fs>);

/// A file being written under a temporary name; removed unless published.
pub(crate) struct Temp {
    disk: Disk,
    pub(crate) path: PathBuf,
    file: Box<dyn FsFile>,
    published: bool,
}

/// A name that no other file of this directory has, which says whose it is.
fn temp_name() -> String {
    static TAG: OnceLock<String> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let tag = TAG.get_or_init(|| Owner::current().tag());
    format!("{TEMP}{tag}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Temp {
    /// Appends.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(StoreError::io("write", &self.path))
    }

    /// Puts what was written on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.file.sync().map_err(StoreError::io("fsync", &self.path))
    }

    /// Fsync and rename. The caller syncs the directory.
    pub(crate) fn publish(mut self, to: &Path) -> Result<(), StoreError> {
        self.sync()?;
        self.disk.0.rename(&self.path, to).map_err(StoreError::io("write", to))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.published {
            // Nothing else to do about it: `store verify` names what stays behind.
            let _ = self.disk.0.remove(&self.path);
        }
    }
}

impl Disk {
    /// A temporary file in `dir`.
    pub(crate) fn temp(&self, dir: &Path) -> Result<Temp, StoreError> {
        let path = dir.join(temp_name());
        let file = self.0.create_new(&path).map_err(StoreError::io("create", &path))?;
        Ok(Temp { disk: self.clone(), path, file, published: false })
    }

    /// Writes a whole file, durably and in one step for readers.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        let dir = parent(path);
        let mut temp = self.temp(dir)?;
        temp.write(bytes)?;
        temp.publish(path)?;
        self.sync_dir(dir)
    }

    /// Writes a file unless the name is taken; whether it was free. Readers see all of it or nothing, except on file
    /// systems without hard links.
    pub(crate) fn write_new(&self, path: &Path, bytes: &[u8]) -> Result<bool, StoreError> {
        let taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        let mut temp = self.temp(parent(path))?;
        temp.write(bytes)?;
        temp.sync()?;
        match self.0.link(&temp.path, path) {
            Ok(()) => return Ok(true),
            Err(error) if taken(&error) => return Ok(false),
            Err(_) => {}
        }
        let mut file = match self.0.create_new(path) {
            Ok(file) => file,
            Err(error) if taken(&error) => return Ok(false),
            Err(error) => return Err(StoreError::io("create", path)(error)),
        };
        file.write_all(bytes).and_then(|()| file.sync()).map_err(StoreError::io("write", path))?;
        Ok(true)
    }

    /// Creates an empty file whose name is the message; nothing is synced.
    pub(crate) fn touch(&self, path: &Path) -> Result<(), StoreError> {
        match self.0.create_new(path) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(StoreError::io("create", path)(error)),
        }
    }

    /// Creates a directory whose parent exists, durably.
    pub(crate) fn make_dir(&self, dir: &Path) -> Result<(), StoreError> {
        self.0.create_dir(dir).map_err(StoreError::io("create", dir))?;
        // Also if it was there: whoever created it may not have synced yet.
        self.sync_dir(parent(dir))
    }

    /// Creates a directory and its parents.
    pub(crate) fn make_dirs(&self, dir: &Path) -> Result<(), StoreError> {
        let mut missing = Vec::new();
        let mut at = dir;
        while self.size(at)?.is_none() {
            missing.push(at);
            match at.parent() {
                Some(up) if !up.as_os_str().is_empty() => at = up,
                _ => break,
            }
        }
        missing.into_iter().rev().try_for_each(|dir| self.make_dir(dir))
    }

    /// Puts a directory's entries on the disk.
    pub(crate) fn sync_dir(&self, dir: &Path) -> Result<(), StoreError> {
        self.0.sync_dir(dir).map_err(StoreError::io("fsync", dir))
    }

    /// Moves a file, durably.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        self.0.rename(from, to).map_err(StoreError::io("move", from))?;
        self.sync_dir(parent(to))?;
        self.sync_dir(parent(from))
    }

    /// Removes a file; `Ok` if there is none.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.0.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path)(error)),
            _ => Ok(()),
        }
    }

    pub(crate) fn try_lock(&self, path: &Path) -> Result<TryLock, StoreError> {
        self.0.try_lock(path).map_err(StoreError::io("lock", path))
    }

    /// A whole file; `None` if there is none.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        let mut file = match self.0.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("read", path)(error)),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(StoreError::io("read", path))?;
        Ok(Some(bytes))
    }

    pub(crate) fn size(&self, path: &Path) -> Result<Option<u64>, StoreError> {
        self.0.size(path).map_err(StoreError::io("read", path))
    }

    pub(crate) fn list(&self, dir: &Path) -> Result<Vec<String>, StoreError> {
        self.0.list(dir).map_err(StoreError::io("read", dir))
    }
}

/// The directory of a file; `.` for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        Some(_) => Path::new("."),
        None => path,
    }
}
