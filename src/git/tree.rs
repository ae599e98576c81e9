//! The binary form of a tree object: `MODE NAME\0` and the raw digest, entry after entry.

/// One entry of a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) kind: EntryKind,
    /// In hex.
    pub(super) oid: String,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A folder.
    Tree,
    /// A file.
    Blob,
    /// A symbolic link or a submodule: no input of ours.
    Other,
}

/// The entries of a tree whose digests have `digest_len` bytes.
///
/// # Errors
/// Bytes of another form, or a name that is not UTF-8.
pub(super) fn entries(mut bytes: &[u8], digest_len: usize) -> Result<Vec<Entry>, ()> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(())?;
        let header = std::str::from_utf8(&bytes[..end]).map_err(|_| ())?;
        let digest = bytes.get(end + 1..end + 1 + digest_len).ok_or(())?;
        let (mode, name) = header.split_once(' ').ok_or(())?;
        let kind = match mode {
            "40000" => EntryKind::Tree,
            "100644" | "100755" | "100664" => EntryKind::Blob,
            _ => EntryKind::Other,
        };
        let oid = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        entries.push(Entry { name: name.to_owned(), kind, oid });
        bytes = &bytes[end + 1 + digest_len..];
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_lists_files_and_folders() {
        let mut bytes = b"100644 a b.yaml\0".to_vec();
        bytes.extend([0xab; 20]);
        bytes.extend(b"40000 lib\0");
        bytes.extend([1; 20]);
        bytes.extend(b"120000 link\0");
        bytes.extend([2; 20]);
        let read = entries(&bytes, 20).unwrap();
        let short: Vec<_> = read.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
        assert_eq!(short, [("a b.yaml", EntryKind::Blob), ("lib", EntryKind::Tree), ("link", EntryKind::Other)]);
        assert_eq!(read[0].oid, "ab".repeat(20));
    }

    #[test]
    fn a_torn_tree_is_refused() {
        let mut bytes = b"100644 a\0".to_vec();
        bytes.extend([0xab; 19]);
        assert_eq!(entries(&bytes, 20), Err(()));
        assert_eq!(entries(b"100644 a", 20), Err(()));
    }
}
