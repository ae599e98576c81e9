//! Ports on this host for the services of a job, distinct among all jobs of this user, in this process and in others.
//!
//! A port is held by a locked file in a per-user directory for as long as its [`PortLease`] lives; a killed process loses
//! its locks with its life. Ports are taken from below the range that the kernel gives to outgoing connections, and only
//! when nothing listens there: what is left is a foreign server that takes the port between this check and the service's
//! start, and that service then fails with "address in use", which is worth another try.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Gives out ports.
#[derive(Debug, Clone)]
pub struct PortRegistry {
    directory: PathBuf,
    range: Range<u16>,
}

/// A port that no other job gets while this lives.
#[derive(Debug)]
pub struct PortLease {
    port: u16,
    path: PathBuf,
    _lock: File,
}

/// No port can be had.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The directory of locks does not work.
    #[error("cannot keep port locks in {}: {source}", path.display())]
    Directory {
        /// The file or directory.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Every port is taken.
    #[error("no free port from {} to {}", range.start, range.end - 1)]
    Exhausted {
        /// Where it looked.
        range: Range<u16>,
    },
}

impl PortLease {
    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for PortLease {
    fn drop(&mut self) {
        // Still locked here; a taker that opened the old file notices that it is no longer the one in the directory.
        let _ = fs::remove_file(&self.path);
    }
}

impl PortRegistry {
    /// The registry of this user: `$XDG_RUNTIME_DIR/ixbuild/ports`, else `ixbuild-ports-UID` in the temporary directory.
    ///
    /// # Errors
    /// The directory cannot be made, or is another user's.
    pub fn of_user() -> Result<Self, PortError> {
        let directory = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir()) {
            Some(runtime) => runtime.join("ixbuild").join("ports"),
            None => std::env::temp_dir().join(format!("ixbuild-ports-{}", rustix::process::getuid().as_raw())),
        };
        Self::at(&directory)
    }

    /// A registry in a directory, made if it is missing.
    ///
    /// # Errors
    /// The directory cannot be made, or is another user's.
    pub fn at(directory: &Path) -> Result<Self, PortError> {
        let failed = |source| PortError::Directory { path: directory.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        // Not through a link: in a directory that all may write, it could lead anywhere.
        let found = fs::symlink_metadata(directory).map_err(failed)?;
        if !found.is_dir() || found.uid() != rustix::process::getuid().as_raw() {
            return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, "it is no directory of this user")));
        }
        Ok(Self { directory: directory.to_owned(), range: usable_range() })
    }

    /// A port on which nothing listens and which no other lease holds.
    ///
    /// # Errors
    /// No port is left, or the directory does not work.
    pub fn take(&self) -> Result<PortLease, PortError> {
        let count = self.range.end - self.range.start;
        // From a random one on, so that processes that start together do not queue up at the same files.
        let middle = self.range.start + fastrand::u16(0..count);
        for port in (middle..self.range.end).chain(self.range.start..middle) {
            if let Some(lease) = self.try_port(port)? {
                return Ok(lease);
            }
        }
        Err(PortError::Exhausted { range: self.range.clone() })
    }

    fn try_port(&self, port: u16) -> Result<Option<PortLease>, PortError> {
        let path = self.directory.join(port.to_string());
        let failed = |source| PortError::Directory { path: path.clone(), source };
        let lock = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Removed by its holder between our opening and our locking: the lock is on a file that nobody else sees.
        let current = match fs::metadata(&path) {
            Ok(current) => current.ino() == lock.metadata().map_err(failed)?.ino(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        if !current {
            return Ok(None);
        }
        let lease = PortLease { port, path, _lock: lock };
        // Services bind to every interface.
        Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok().then_some(lease))
    }
}

/// Ports above the well-known ones and below those of outgoing connections, or above these when there is no room below.
fn usable_range() -> Range<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_ascii_whitespace().filter_map(|word| word.parse::<u16>().ok());
    let (low, high) = (numbers.next().unwrap_or(32768), numbers.next().unwrap_or(60999));
    const ENOUGH: u16 = 4096;
    match (low, high) {
        (low, _) if low >= 20_000 + ENOUGH => 20_000..low,
        (_, high) if high <= u16::MAX - ENOUGH => high + 1..u16::MAX,
        _ => 20_000..32_768,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn small(directory: &Path, range: Range<u16>) -> PortRegistry {
        PortRegistry { range, ..PortRegistry::at(directory).unwrap() }
    }

    #[test]
    fn leases_are_distinct_and_end_with_their_lease() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (small(directory.path(), 24_100..24_120), small(directory.path(), 24_100..24_120));
        let mut leases = Vec::new();
        let full = loop {
            match if leases.len() % 2 == 0 { one.take() } else { other.take() } {
                Ok(lease) => leases.push(lease),
                Err(error) => break error,
            }
        };
        let ports: BTreeSet<u16> = leases.iter().map(PortLease::port).collect();
        assert_eq!(ports.len(), leases.len());
        assert!(ports.len() > 10, "{ports:?}");
        assert_eq!(full.to_string(), "no free port from 24100 to 24119");
        drop(leases);
        assert!(fs::read_dir(directory.path()).unwrap().next().is_none());
        one.take().unwrap();
    }

    #[test]
    fn a_port_that_is_listened_on_is_not_given() {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(small(directory.path(), port..port + 1).take().is_err());
    }
}
