//! `git cat-file --batch`, kept running: a name goes in, an object comes out.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::{GitError, Oid};

/// The kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Blob,
    Tree,
    Commit,
    Tag,
}

/// One object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) oid: Oid,
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
}

/// The running process. It ends when its input does, at the latest with us.
#[derive(Debug)]
pub(super) struct Batch {
    child: Child,
    /// Absent only while it is being dropped.
    names: Option<ChildStdin>,
    objects: BufReader<ChildStdout>,
}

impl Batch {
    pub(super) fn start(dir: &Path) -> Result<Self, GitError> {
        let mut child = super::command(dir, ["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| GitError::start(dir, error))?;
        let (names, objects) = (child.stdin.take(), child.stdout.take());
        match (names, objects) {
            (Some(names), Some(objects)) => Ok(Self { child, names: Some(names), objects: BufReader::new(objects) }),
            _ => Err(broken("it has no pipes")),
        }
    }

    /// The object of a name; nothing where no object has it, or several do.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Object>, GitError> {
        let failed = |error: std::io::Error| broken(error);
        let Some(names) = &mut self.names else { return Err(broken("it has ended")) };
        names.write_all(format!("{name}\n").as_bytes()).and_then(|()| names.flush()).map_err(failed)?;
        let mut header = Vec::new();
        self.objects.read_until(b'\n', &mut header).map_err(failed)?;
        let header = String::from_utf8_lossy(&header);
        let header = header.strip_suffix('\n').ok_or_else(|| broken("it ended early"))?;
        // `OID KIND SIZE`, or the name as asked for and why there is no object.
        let mut words = header.split(' ');
        let (oid, kind, size) = (words.next(), words.next(), words.next());
        let kind = match kind {
            Some("blob") => Kind::Blob,
            Some("tree") => Kind::Tree,
            Some("commit") => Kind::Commit,
            Some("tag") => Kind::Tag,
            _ => return Ok(None),
        };
        let (Some(oid), Some(size), None) = (oid.filter(|oid| is_oid(oid)), size, words.next()) else {
            return Ok(None);
        };
        let Ok(size) = size.parse::<usize>() else { return Ok(None) };
        let mut bytes = vec![0; size + 1];
        self.objects.read_exact(&mut bytes).map_err(failed)?;
        bytes.truncate(size);
        Ok(Some(Object { oid: Oid(oid.to_owned()), kind, bytes }))
    }
}

fn is_oid(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn broken(why: impl ToString) -> GitError {
    GitError::Failed { command: "cat-file --batch".to_owned(), said: why.to_string() }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // End of input ends it; without the wait it would stay behind as a zombie.
        self.names = None;
        let _ = self.child.wait();
    }
}
