//! Content-addressed files: written once under their digest, checked when read.
//!
//! Large blobs are hashed on a second thread while this one writes, and are synced piece by piece, so that hashing and
//! the disk overlap. Knows nothing of manifests.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use sha2::{Digest as _, Sha256};

use super::disk::{Disk, Temp};
use super::error::StoreError;
use super::paths::Paths;
use crate::ids::Digest;

/// Bytes handed to the hasher and the disk at a time.
const CHUNK: usize = 256 << 10;
/// Chunks that the hasher may lag behind the writer, or the other way round while the disk syncs.
const QUEUE: usize = 128;
/// Bytes after which what was written is pushed to the disk, so that the last sync has little left.
const SYNC_EVERY: u64 = 32 << 20;

/// A blob being written.
pub(crate) struct BlobWriter<'a> {
    disk: &'a Disk,
    paths: &'a Paths,
    temp: Temp,
    buffer: Vec<u8>,
    hasher: Hasher,
    size: u64,
    unsynced: u64,
    /// The error that the `Write` trait cannot carry.
    failed: Option<StoreError>,
}

enum Hasher {
    Here(Sha256),
    Beside { chunks: SyncSender<Arc<Vec<u8>>>, thread: JoinHandle<Sha256> },
}

impl Hasher {
    fn update(&mut self, chunk: &Arc<Vec<u8>>) {
        if let Hasher::Here(hash) = self {
            let mut hash = std::mem::take(hash);
            let (chunks, queue) = sync_channel::<Arc<Vec<u8>>>(QUEUE);
            let spawned = std::thread::Builder::new().name("sha256".into()).spawn({
                let mut hash = hash.clone();
                move || {
                    queue.iter().for_each(|chunk| hash.update(chunk.as_slice()));
                    hash
                }
            });
            *self = match spawned {
                Ok(thread) => Hasher::Beside { chunks, thread },
                // No thread to be had: slower, not wrong.
                Err(_) => {
                    hash.update(chunk.as_slice());
                    Hasher::Here(hash)
                }
            };
            if matches!(self, Hasher::Here(_)) {
                return;
            }
        }
        if let Hasher::Beside { chunks, .. } = self {
            // A send fails only if the thread is gone; joining it says so.
            let _ = chunks.send(Arc::clone(chunk));
        }
    }

    fn finish(self, rest: &[u8]) -> io::Result<Digest> {
        let mut hash = match self {
            Hasher::Here(hash) => hash,
            Hasher::Beside { chunks, thread } => {
                drop(chunks);
                thread.join().map_err(|_| io::Error::other("the hashing thread ended early"))?
            }
        };
        hash.update(rest);
        Ok(Digest::from_bytes(hash.finalize().into()))
    }
}

impl<'a> BlobWriter<'a> {
    pub(crate) fn new(disk: &'a Disk, paths: &'a Paths) -> Result<Self, StoreError> {
        Ok(Self {
            disk,
            paths,
            temp: disk.temp(&paths.blobs())?,
            buffer: Vec::new(),
            hasher: Hasher::Here(Sha256::new()),
            size: 0,
            unsynced: 0,
            failed: None,
        })
    }

    /// Appends.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let room = CHUNK - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == CHUNK {
                self.flush_chunk()?;
            }
        }
        Ok(())
    }

    /// Appends all that a reader has; `from` is its path, for errors.
    pub(crate) fn append_from(&mut self, reader: &mut dyn Read, from: &Path) -> Result<(), StoreError> {
        loop {
            let have = self.buffer.len();
            let room = (CHUNK - have) as u64;
            let got = reader.take(room).read_to_end(&mut self.buffer).map_err(StoreError::io("read", from))?;
            if self.buffer.len() == CHUNK {
                self.flush_chunk()?;
            } else if got == 0 {
                return Ok(());
            }
        }
    }

    fn flush_chunk(&mut self) -> Result<(), StoreError> {
        let chunk = Arc::new(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK)));
        self.hasher.update(&chunk);
        self.temp.write(&chunk)?;
        self.size += chunk.len() as u64;
        self.unsynced += chunk.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            self.temp.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Publishes the blob under its digest, unless it is there already. The caller syncs the directory.
    pub(crate) fn finish(mut self) -> Result<(Digest, u64), StoreError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.temp.write(&self.buffer)?;
        let size = self.size + self.buffer.len() as u64;
        let digest = self.hasher.finish(&self.buffer).map_err(StoreError::io("hash", &self.temp.path))?;
        let path = self.paths.blob(&digest);
        if self.disk.size(&path)? != Some(size) {
            self.temp.publish(&path)?;
        }
        Ok((digest, size))
    }

    /// What went wrong beneath an encoder, whose own error says less.
    pub(crate) fn take_failure(&mut self) -> Option<StoreError> {
        self.failed.take()
    }
}

/// For encoders that write into a blob.
impl Write for BlobWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.append(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let text = io::Error::other(error.to_string());
                self.failed.get_or_insert(error);
                Err(text)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stores bytes as a blob. The caller syncs the directory.
pub(crate) fn put(disk: &Disk, paths: &Paths, bytes: &[u8]) -> Result<Digest, StoreError> {
    let digest = Digest::of(bytes);
    let path = paths.blob(&digest);
    if disk.size(&path)? != Some(bytes.len() as u64) {
        let mut temp = disk.temp(&paths.blobs())?;
        temp.write(bytes)?;
        temp.publish(&path)?;
    }
    Ok(digest)
}

/// Reads a blob and checks its digest; `None` if it is not there.
pub(crate) fn get(disk: &Disk, paths: &Paths, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
    let path = paths.blob(digest);
    let Some(bytes) = disk.read(&path)? else { return Ok(None) };
    let found = Digest::of(&bytes);
    if found == *digest { Ok(Some(bytes)) } else { Err(StoreError::damaged(&path, wrong_digest(&found))) }
}

pub(crate) fn wrong_digest(found: &Digest) -> String {
    format!("its content has the digest {found}")
}

/// A blob read piece by piece; the read that reaches its end fails if the digest is wrong.
pub struct BlobReader {
    reader: Box<dyn Read + Send>,
    hash: Sha256,
    digest: Digest,
    path: PathBuf,
    done: bool,
}

impl BlobReader {
    pub(crate) fn open(disk: &Disk, paths: &Paths, digest: &Digest) -> Result<Self, StoreError> {
        let path = paths.blob(digest);
        let reader = disk.0.open(&path).map_err(StoreError::io("read", &path))?;
        Ok(Self { reader, hash: Sha256::new(), digest: *digest, path, done: false })
    }

    /// The digest of the content that is left, once all is read.
    pub(crate) fn digest(mut self, mut step: impl FnMut(u64)) -> Result<Digest, StoreError> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let got = self.reader.read(&mut buffer).map_err(StoreError::io("read", &self.path))?;
            if got == 0 {
                return Ok(Digest::from_bytes(self.hash.finalize().into()));
            }
            self.hash.update(&buffer[..got]);
            step(got as u64);
        }
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.reader.read(buffer)?;
        self.hash.update(&buffer[..got]);
        if got == 0 && !buffer.is_empty() && !self.done {
            self.done = true;
            let found = Digest::from_bytes(std::mem::take(&mut self.hash).finalize().into());
            if found != self.digest {
                let error = StoreError::damaged(&self.path, wrong_digest(&found));
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        Ok(got)
    }
}
