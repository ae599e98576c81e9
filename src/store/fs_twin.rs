//! The file system's twin for tests: works on real files, records every operation, fails where told, can do without locks,
//! and can tell what a power failure after any operation would leave.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::fs::{Fs, FsFile, RealFs, TryLock};

/// One operation that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Dir(PathBuf),
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncDir(PathBuf),
}

impl Op {
    /// The operation's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Op::Dir(_) => "mkdir",
            Op::Create(_) => "create",
            Op::Write(..) => "write",
            Op::Sync(_) => "fsync",
            Op::Rename(..) => "rename",
            Op::Link(..) => "link",
            Op::Remove(_) => "remove",
            Op::SyncDir(_) => "fsync dir",
        }
    }
}

#[derive(Debug, Default)]
struct State {
    log: Vec<Op>,
    /// Fail this kind of operation with this error number, after so many of its kind.
    fail: Option<(&'static str, usize, i32)>,
}

/// The twin.
#[derive(Debug, Clone)]
pub(crate) struct TwinFs {
    state: Arc<Mutex<State>>,
    locks: bool,
    links: bool,
}

impl TwinFs {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), locks: true, links: true }
    }

    /// Without locks; and without hard links unless `links`.
    pub(crate) fn without_locks(links: bool) -> Self {
        Self { locks: false, links, ..Self::new() }
    }

    /// The operations so far.
    pub(crate) fn log(&self) -> Vec<Op> {
        self.state.lock().unwrap().log.clone()
    }

    /// Makes operations of one kind fail after the next `after` of it; `None` heals.
    pub(crate) fn fail(&self, fault: Option<(&'static str, usize, i32)>) {
        self.state.lock().unwrap().fail = fault;
    }

    fn note(&self, op: Op) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if let Some((kind, after, errno)) = &mut state.fail
            && *kind == op.name()
        {
            if *after == 0 {
                return Err(io::Error::from_raw_os_error(*errno));
            }
            *after -= 1;
        }
        state.log.push(op);
        Ok(())
    }
}

struct TwinFile {
    twin: TwinFs,
    path: PathBuf,
    file: Box<dyn FsFile>,
}

impl Write for TwinFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.twin.note(Op::Write(self.path.clone(), bytes.to_vec()))?;
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FsFile for TwinFile {
    fn sync(&mut self) -> io::Result<()> {
        self.twin.note(Op::Sync(self.path.clone()))
    }
}

impl Fs for TwinFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.note(Op::Dir(dir.to_owned()))?;
        RealFs.create_dir(dir)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.note(Op::Create(path.to_owned()))?;
        let file = RealFs.create_new(path)?;
        Ok(Box::new(TwinFile { twin: self.clone(), path: path.to_owned(), file }))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.note(Op::SyncDir(dir.to_owned()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(Op::Rename(from.to_owned(), to.to_owned()))?;
        RealFs.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !self.links {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        RealFs.link(from, to)?;
        self.note(Op::Link(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)?;
        self.note(Op::Remove(path.to_owned()))
    }

    fn try_lock(&self, path: &Path) -> io::Result<TryLock> {
        if self.locks { RealFs.try_lock(path) } else { Ok(TryLock::Unsupported) }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        RealFs.open(path)
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        RealFs.size(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }
}

/// What a power failure may leave of everything that was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing of it.
    All,
    /// Names, but not contents: new files are empty.
    Contents,
}

/// Writes into `to` what a power failure after `ops` would leave of `root`.
pub(crate) fn after_power_failure(ops: &[Op], loss: Loss, root: &Path, to: &Path) {
    #[derive(Clone, PartialEq)]
    enum Node {
        Dir,
        File(usize),
    }
    // Contents by inode, as written and as synced; names as seen and as synced.
    let (mut written, mut synced): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    let (mut names, mut durable): (BTreeMap<PathBuf, Node>, BTreeMap<PathBuf, Node>) = Default::default();
    let inode = |names: &BTreeMap<PathBuf, Node>, path: &Path| match names.get(path) {
        Some(Node::File(inode)) => *inode,
        _ => panic!("{} is no file", path.display()),
    };
    for op in ops {
        match op {
            Op::Dir(path) => drop(names.insert(path.clone(), Node::Dir)),
            Op::Create(path) => {
                names.insert(path.clone(), Node::File(written.len()));
                written.push(Vec::new());
                synced.push(Vec::new());
            }
            Op::Write(path, bytes) => written[inode(&names, path)].extend_from_slice(bytes),
            Op::Sync(path) => {
                let inode = inode(&names, path);
                synced[inode] = written[inode].clone();
            }
            Op::Rename(from, to) => {
                let node = names.remove(from).unwrap();
                names.insert(to.clone(), node);
            }
            Op::Link(from, to) => drop(names.insert(to.clone(), names[from].clone())),
            Op::Remove(path) => drop(names.remove(path)),
            Op::SyncDir(dir) => {
                durable.retain(|path, _| path.parent() != Some(dir));
                let entries = names.iter().filter(|(path, _)| path.parent() == Some(dir));
                durable.extend(entries.map(|(path, node)| (path.clone(), node.clone())));
            }
        }
    }
    let left = if loss == Loss::All { &durable } else { &names };
    let mut dirs = BTreeSet::from([root.parent().unwrap().to_owned()]);
    for (path, node) in left {
        // A name in a directory that was lost is lost.
        if !dirs.contains(path.parent().unwrap()) {
            continue;
        }
        let target = to.join(path.strip_prefix(root.parent().unwrap()).unwrap());
        match node {
            Node::Dir => {
                fs::create_dir(&target).unwrap();
                dirs.insert(path.clone());
            }
            Node::File(inode) => fs::write(&target, &synced[*inode]).unwrap(),
        }
    }
}
