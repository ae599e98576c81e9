//! The file system under the store: the only place that writes. Single operations, no protocol.
//!
//! [`RealFs`] is the system's; the tests put a recording and failing twin in its place. Which operations make a safe
//! write, and in which order, is `disk`'s business.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::io::Errno;

/// A file open for writing.
pub trait FsFile: Write + Send {
    /// Blocks until what was written is on the disk.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&mut self) -> io::Result<()>;
}

/// What came of asking for a lock.
#[derive(Debug)]
pub enum TryLock {
    /// It is ours while the file stays open.
    Locked(LockFile),
    /// Somebody has it.
    Busy,
    /// This file system has no locks.
    Unsupported,
}

/// An exclusive lock, released when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct LockFile(#[allow(dead_code, reason = "held for its lock")] File);

/// The operations that the store needs. Errors carry no path: the caller adds it.
pub trait Fs: fmt::Debug + Send + Sync {
    /// Creates one directory; `Ok` if it is there already.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Creates a file for writing; fails if the name is taken.
    ///
    /// # Errors
    /// What the system says.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;
    /// Puts a directory's entries on the disk.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Renames, replacing `to`.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name; fails if the name is taken.
    ///
    /// # Errors
    /// What the system says.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Takes the lock of a file, which it creates, without waiting.
    ///
    /// # Errors
    /// What the system says.
    fn try_lock(&self, path: &Path) -> io::Result<TryLock>;
    /// Opens a file for reading.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;
    /// A file's size in bytes; `None` if there is none.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self, path: &Path) -> io::Result<Option<u64>>;
    /// The names in a directory, in no order; none if there is no directory. Names that are not UTF-8 are not ours and
    /// are left out.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
}

/// The system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

impl FsFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Fs for RealFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            other => other,
        }
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(File::create_new(path)?))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match File::open(dir)?.sync_all() {
            // Some network and FUSE file systems cannot sync a directory: there is nothing more to do there.
            Err(error) if is_any(&error, &[Errno::INVAL, Errno::OPNOTSUPP]) => Ok(()),
            other => other,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn try_lock(&self, path: &Path) -> io::Result<TryLock> {
        // The owner may unlink the file between our open and our lock: then the lock is on nothing, and we ask again.
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(TryLock::Busy),
                Err(TryLockError::Error(error)) if no_locks(&error) => return Ok(TryLock::Unsupported),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if same_file(&file, path)? {
                return Ok(TryLock::Locked(LockFile(file)));
            }
        }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(path)?))
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

fn same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok(ours.ino() == named.ino() && ours.dev() == named.dev()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a file system without locks answers; INVAL comes from some FUSE file systems.
fn no_locks(error: &io::Error) -> bool {
    is_any(error, &[Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL])
}

fn is_any(error: &io::Error, errnos: &[Errno]) -> bool {
    errnos.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
