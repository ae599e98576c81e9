//! Recording an attempt: blobs, then the arms it stands for, then the attempt's own file, each on the disk before the
//! next. The last one makes it count.

use std::path::Path;

use super::attempts::{AttemptInput, AttemptRef, Layer, LayerRef, Outcome, Source};
use super::blob::{self, BlobWriter};
use super::error::StoreError;
use super::{Store, arms, oci, paths, tree};
use crate::ids::Digest;

impl Store {
    /// Keeps one attempt, whatever its end. Recording the same one twice is the same as once.
    ///
    /// # Errors
    /// A spec that is not the job's, a layer that cannot be read, a store that cannot be written. Then nothing is
    /// recorded, and what was recorded before is untouched.
    pub fn record(&self, input: AttemptInput<'_>) -> Result<AttemptRef, StoreError> {
        let found = Digest::of(input.spec);
        if found != input.job.0 {
            return Err(StoreError::SpecMismatch { job: input.job, found });
        }
        self.prepare()?;
        let (disk, paths) = (self.disk(), self.paths());
        blob::put(disk, paths, input.spec)?;
        let reasons = Layer::new(oci::REASONS_TYPE, oci::REASONS_TITLE, Source::Bytes(oci::to_bytes(&input.reasons)?));
        let layers = input.layers.iter().chain([&reasons]).map(|layer| self.put_layer(layer));
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let manifest = oci::manifest(
            &input.job,
            input.spec.len() as u64,
            input.arms,
            &input.outcome,
            (input.started, input.ended),
            input.rehearsal,
            &layers,
        )?;
        let attempt = AttemptRef {
            job: input.job,
            manifest: blob::put(disk, paths, &manifest)?,
            started: input.started,
            outcome: input.outcome.kind(),
            derived: None,
            rehearsal: input.rehearsal,
            excluded: false,
            collected: false,
        };
        disk.sync_dir(&paths.blobs())?;

        if input.outcome == Outcome::Valid {
            for arm in input.arms {
                arms::write(disk, paths, arm, &input.job, input.ended)?;
            }
        }

        let dir = paths.job(&input.job);
        disk.make_dir(super::disk::parent(&dir))?;
        disk.make_dir(&dir)?;
        let reference = oci::reference(&input.job, &attempt.manifest, manifest.len() as u64)?;
        let name = paths::attempt_name(&attempt);
        disk.write(&dir.join(&name), &oci::to_bytes(&reference)?)?;
        self.index_later(&input.job, &name);
        Ok(attempt)
    }

    /// Stores a file's content as a blob; its digest and size in bytes.
    ///
    /// # Errors
    /// A file that cannot be read, a store that cannot be written.
    pub fn put_file(&self, path: &Path) -> Result<(Digest, u64), StoreError> {
        self.prepare()?;
        let stored = self.put_from(path)?;
        self.disk().sync_dir(&self.paths().blobs())?;
        Ok(stored)
    }

    fn put_from(&self, path: &Path) -> Result<(Digest, u64), StoreError> {
        let mut writer = BlobWriter::new(self.disk(), self.paths())?;
        let mut file = std::fs::File::open(path).map_err(StoreError::io("read", path))?;
        writer.append_from(&mut file, path)?;
        writer.finish()
    }

    pub(crate) fn put_layer(&self, layer: &Layer) -> Result<LayerRef, StoreError> {
        let (digest, size) = match &layer.source {
            Source::Bytes(bytes) => (blob::put(self.disk(), self.paths(), bytes)?, bytes.len() as u64),
            Source::File(path) => self.put_from(path)?,
            Source::Directory(dir) => {
                let mut writer = BlobWriter::new(self.disk(), self.paths())?;
                tree::pack(dir, &mut writer).map_err(|error| writer.take_failure().unwrap_or(error))?;
                writer.finish()?
            }
        };
        Ok(LayerRef { media_type: layer.media_type.clone(), title: layer.title.clone(), digest, size })
    }
}
