//! A directory of logs as one tar+zstd stream and back. The same files give the same bytes: sorted names, no times, no
//! owners.
//!
//! Knows nothing of blobs: it writes to any writer.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::error::StoreError;

/// zstd's own default: about 300 MB/s a core, a tenth of typical logs.
const LEVEL: i32 = 3;

/// Packs a directory. Sockets, pipes and devices are left out. A file that grows meanwhile is packed as long as it was
/// found, one that shrinks is filled up with zeros.
///
/// # Errors
/// A file that cannot be read, or a writer that fails.
pub(crate) fn pack(dir: &Path, writer: &mut dyn Write) -> Result<(), StoreError> {
    let failed = || StoreError::io("pack", dir);
    let mut encoder = zstd::Encoder::new(writer, LEVEL).map_err(failed())?;
    encoder.include_checksum(true).map_err(failed())?;
    let mut tar = tar::Builder::new(encoder);
    append_dir(&mut tar, dir, Path::new(""))?;
    tar.into_inner().and_then(zstd::Encoder::finish).map_err(failed())?;
    Ok(())
}

fn append_dir<W: Write>(tar: &mut tar::Builder<W>, dir: &Path, name: &Path) -> Result<(), StoreError> {
    let entries = fs::read_dir(dir).map_err(StoreError::io("read", dir))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(StoreError::io("read", dir))?.file_name());
    }
    names.sort();
    for file_name in names {
        let path = dir.join(&file_name);
        let name = name.join(&file_name);
        let packed = StoreError::io("pack", &path);
        let metadata = path.symlink_metadata().map_err(StoreError::io("read", &path))?;
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        header.set_size(0);
        if metadata.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o755);
            tar.append_data(&mut header, &name, io::empty()).map_err(packed)?;
            append_dir(tar, &path, &name)?;
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(StoreError::io("read", &path))?;
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            tar.append_link(&mut header, &name, &target).map_err(packed)?;
        } else if metadata.is_file() {
            let file = fs::File::open(&path).map_err(StoreError::io("read", &path))?;
            let len = file.metadata().map_err(StoreError::io("read", &path))?.len();
            header.set_entry_type(tar::EntryType::Regular);
            header.set_mode(if metadata.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 });
            header.set_size(len);
            let content = file.take(len).chain(io::repeat(0)).take(len);
            tar.append_data(&mut header, &name, content).map_err(packed)?;
        }
    }
    Ok(())
}

/// Calls `each` with the path and content of every regular file of a packed directory, in order.
///
/// # Errors
/// What is not tar+zstd, and what `each` returns.
pub fn each_file(packed: impl Read, mut each: impl FnMut(PathBuf, &mut dyn Read) -> io::Result<()>) -> io::Result<()> {
    let mut decoder = zstd::Decoder::new(packed)?;
    let mut archive = tar::Archive::new(&mut decoder);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.header().entry_type() == tar::EntryType::Regular {
            each(entry.path()?.into_owned(), &mut entry)?;
        }
    }
    // To the end, so that checksum and digest are checked.
    io::copy(&mut decoder, &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(dir: &Path) -> Vec<u8> {
        let mut bytes = Vec::new();
        pack(dir, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_same_files_pack_to_the_same_bytes_and_back() {
        let one = tempfile::tempdir().unwrap();
        let two = tempfile::tempdir().unwrap();
        let long = format!("{}/log", "d".repeat(150));
        let files = [("b.log", "bee"), ("a/x.log", "ex"), (long.as_str(), "long"), ("empty", "")];
        for (dir, order) in [(&one, [0, 1, 2, 3]), (&two, [3, 2, 1, 0])] {
            for index in order {
                let path = dir.path().join(files[index].0);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, files[index].1).unwrap();
            }
            std::os::unix::fs::symlink("b.log", dir.path().join("latest")).unwrap();
        }
        let file = fs::File::open(two.path().join("b.log")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(packed(one.path()), packed(two.path()));

        let mut found = Vec::new();
        each_file(packed(one.path()).as_slice(), |path, content| {
            let mut text = String::new();
            content.read_to_string(&mut text)?;
            found.push((path.to_str().unwrap().to_owned(), text));
            Ok(())
        })
        .unwrap();
        let mut expected = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log"), "text".repeat(1000)).unwrap();
        let mut bytes = packed(dir.path());
        let middle = bytes.len() - 3;
        bytes[middle] ^= 1;
        assert!(each_file(bytes.as_slice(), |_, content| io::copy(content, &mut io::sink()).map(drop)).is_err());
    }
}
