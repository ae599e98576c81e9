//! Puts the lock file in its place: a temporary file beside it, on the disk before it takes the name. Killed at any
//! instant, the old or the new file is there, whole.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The lock file was not written; what was there still is.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {error}", path = path.display())]
pub struct WriteError {
    /// The file, or its folder.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub error: io::Error,
}

/// Replaces a file's text, where it differs. A symbolic link stays one: the file it leads to is replaced.
///
/// # Errors
/// The folder cannot be written; the disk is full.
pub fn write(path: &Path, text: &str) -> Result<bool, WriteError> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let failed = |at: &Path| {
        let path = at.to_owned();
        move |error| WriteError { path, error }
    };
    let old = match fs::read(&path) {
        Ok(old) if old == text.as_bytes() => return Ok(false),
        Ok(_) => fs::metadata(&path).ok(),
        Err(_) => None,
    };
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // A new file gets what the umask leaves of this.
    let mut builder = tempfile::Builder::new();
    let mut temporary = builder
        .prefix(".ixbuild.lock-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(failed(folder))?;
    temporary.write_all(text.as_bytes()).map_err(failed(&path))?;
    if let Some(old) = old {
        temporary.as_file().set_permissions(old.permissions()).map_err(failed(&path))?;
    }
    temporary.as_file().sync_all().map_err(failed(&path))?;
    temporary.persist(&path).map_err(|error| failed(&path)(error.error))?;
    // The rename itself. A file system that cannot sync a folder has done what it can.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_whole_and_keeps_its_mode_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("real.lock");
        let link = folder.path().join("ixbuild.lock");
        assert!(write(&file, "one").unwrap());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o444, 0o444 & !umask(folder.path()));
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.lock", &link).unwrap();
        assert!(write(&link, "two").unwrap());
        assert!(!write(&link, "two").unwrap(), "an equal text is not written again");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    }

    /// The umask, seen on a file that it shaped.
    fn umask(folder: &Path) -> u32 {
        let probe = folder.join("probe");
        File::create(&probe).unwrap();
        let mode = fs::metadata(&probe).unwrap().permissions().mode();
        fs::remove_file(probe).unwrap();
        0o666 & !mode
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("no/ixbuild.lock"), "x").unwrap_err();
        assert!(error.to_string().contains("/no: "), "{error}");
    }
}
