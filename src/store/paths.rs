//! Where everything stands in a store, and what file names say. No I/O.
//!
//! An attempt's name says what a plan must know (`START.OUTCOME[.rehearsal].MANIFEST`), so that one listing of its job's
//! directory answers for a job, and names sort by time.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::attempts::{AttemptRef, Derivation, OutcomeKind};
use crate::ids::{ArmId, Digest, JobHash};

/// Names below the root of a store.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// The root.
    pub(crate) root: PathBuf,
}

/// How file names write a start: UTC, nanoseconds, of fixed width.
const STAMP: &str = "%Y%m%dT%H%M%S.%9fZ";
/// What temporary files begin with.
pub(crate) const TEMP: &str = ".tmp-";
const EXCLUDED: &str = "excluded.";
const COLLECTED: &str = "collected.";
const DERIVED: &str = "derived.";

impl Paths {
    pub(crate) fn layout(&self) -> PathBuf {
        self.root.join("oci-layout")
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.root.join("index.json")
    }

    pub(crate) fn index_lock(&self) -> PathBuf {
        self.root.join("index.lock")
    }

    /// Names of attempts that `index.json` does not list yet.
    pub(crate) fn pending(&self) -> PathBuf {
        self.root.join("pending")
    }

    /// What `verify --repair` took out.
    pub(crate) fn damaged(&self) -> PathBuf {
        self.root.join("damaged")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs").join("sha256")
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    pub(crate) fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    pub(crate) fn job(&self, job: &JobHash) -> PathBuf {
        let hex = job.hex();
        let mut path = self.jobs();
        path.push(&hex[..2]);
        path.push(hex);
        path
    }

    pub(crate) fn attempt(&self, attempt: &AttemptRef) -> PathBuf {
        self.job(&attempt.job).join(attempt_name(attempt))
    }

    pub(crate) fn arms(&self) -> PathBuf {
        self.root.join("arms")
    }

    pub(crate) fn arm(&self, arm: &ArmId) -> PathBuf {
        self.arms().join(Digest::of(arm.as_str().as_bytes()).hex())
    }

    pub(crate) fn claims(&self) -> PathBuf {
        self.root.join("claims")
    }

    pub(crate) fn claim(&self, job: &JobHash) -> PathBuf {
        self.claims().join(format!("{}.json", job.hex()))
    }

    pub(crate) fn claim_stop(&self, job: &JobHash, token: &str) -> PathBuf {
        self.claims().join(format!("{}.{token}.stop", job.hex()))
    }

    pub(crate) fn claim_lock(&self, job: &JobHash) -> PathBuf {
        self.claims().join(format!("{}.lock", job.hex()))
    }
}

/// What a name in a job's directory stands for.
#[derive(Debug)]
pub(crate) enum JobEntry {
    /// An attempt.
    Attempt(AttemptRef),
    /// The exclusion of an attempt.
    Excluded(Digest),
    /// The tombstone of an attempt.
    Collected(Digest),
    /// A derivation of an attempt.
    Derived(Digest, Derivation),
}

/// Reads a name in a job's directory; `None` for what is not ours.
pub(crate) fn job_entry(job: JobHash, name: &str) -> Option<JobEntry> {
    if let Some(rest) = name.strip_prefix(EXCLUDED) {
        return Digest::from_hex(rest.get(..64)?).ok().map(JobEntry::Excluded);
    }
    if let Some(rest) = name.strip_prefix(COLLECTED) {
        return Digest::from_hex(rest.get(..64)?).ok().map(JobEntry::Collected);
    }
    if let Some(rest) = name.strip_prefix(DERIVED) {
        let (attempt, rest) = rest.split_once('.')?;
        let (formulas, rest) = rest.split_once('.')?;
        let (stamp, rest) = rest.split_once("Z.")?;
        let (word, manifest) = rest.split_once('.')?;
        let derivation = Derivation {
            manifest: Digest::from_hex(manifest).ok()?,
            formulas: formulas.parse().ok()?,
            at: stamp_of(stamp)?,
            outcome: OutcomeKind::from_word(word)?,
        };
        return Some(JobEntry::Derived(Digest::from_hex(attempt).ok()?, derivation));
    }
    let (stamp, rest) = name.split_once('Z')?;
    let started = stamp_of(stamp)?;
    let (head, hex) = rest.strip_prefix('.')?.rsplit_once('.')?;
    let (word, rehearsal) = head.strip_suffix(".rehearsal").map_or((head, false), |word| (word, true));
    Some(JobEntry::Attempt(AttemptRef {
        job,
        manifest: Digest::from_hex(hex).ok()?,
        started,
        outcome: OutcomeKind::from_word(word)?,
        derived: None,
        rehearsal,
        excluded: false,
        collected: false,
    }))
}

/// `YYYYMMDDTHHMMSS.nnnnnnnnn` of fixed width.
fn stamp_of(text: &str) -> Option<Timestamp> {
    let well_formed = text.len() == 25
        && text.bytes().enumerate().all(|(at, c)| match at {
            8 => c == b'T',
            15 => c == b'.',
            _ => c.is_ascii_digit(),
        });
    if well_formed { format!("{text}Z").parse().ok() } else { None }
}

pub(crate) fn attempt_name(attempt: &AttemptRef) -> String {
    let stamp = attempt.started.strftime(STAMP);
    let rehearsal = if attempt.rehearsal { ".rehearsal" } else { "" };
    format!("{stamp}.{}{rehearsal}.{}", attempt.outcome.word(), attempt.manifest.hex())
}

pub(crate) fn derivation_name(attempt: &Digest, derivation: &Derivation) -> String {
    let Derivation { manifest, formulas, at, outcome } = derivation;
    format!("{DERIVED}{}.{formulas}.{}.{}.{}", attempt.hex(), at.strftime(STAMP), outcome.word(), manifest.hex())
}

/// Whether a file of a job is a derivation, by its name.
pub(crate) fn is_derivation(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DERIVED))
}

/// Named after its content too, so that two exclusions at once both stand.
pub(crate) fn exclusion_name(manifest: &Digest, content: &[u8]) -> String {
    format!("{EXCLUDED}{}.{}", manifest.hex(), &Digest::of(content).hex()[..12])
}

pub(crate) fn exclusion_prefix(manifest: &Digest) -> String {
    format!("{EXCLUDED}{}", manifest.hex())
}

pub(crate) fn tombstone_prefix(manifest: &Digest) -> String {
    format!("{COLLECTED}{}", manifest.hex())
}

/// The path below the root, for moving a file aside under the same name.
pub(crate) fn below<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempts_name_reads_back_and_sorts_by_time() {
        let job = JobHash(Digest::of(b"spec"));
        let at = |nanos, outcome, rehearsal| AttemptRef {
            job,
            manifest: Digest::of(b"manifest"),
            started: Timestamp::from_nanosecond(nanos).unwrap(),
            outcome,
            derived: None,
            rehearsal,
            excluded: false,
            collected: false,
        };
        let times = [0, 1, 999_999_999, 1_000_000_000, 1_735_787_045_000_000_001, 4_102_444_800_000_000_000];
        let mut names = Vec::new();
        for (index, nanos) in times.into_iter().enumerate() {
            let outcome = OutcomeKind::ALL[index % OutcomeKind::ALL.len()];
            let attempt = at(nanos, outcome, index % 2 == 0);
            let name = attempt_name(&attempt);
            let Some(JobEntry::Attempt(read)) = job_entry(job, &name) else { panic!("{name} does not read back") };
            assert_eq!(read, attempt, "{name}");
            names.push(name);
        }
        assert!(names.is_sorted(), "{names:?}");
        assert_eq!(
            names[4],
            format!(
                "20250102T030405.000000001Z.{}.rehearsal.{}",
                OutcomeKind::ALL[0].word(),
                at(0, OutcomeKind::Valid, true).manifest.hex()
            )
        );
    }

    #[test]
    fn a_derivations_name_reads_back() {
        let (job, attempt) = (JobHash(Digest::of(b"spec")), Digest::of(b"attempt"));
        let derivation = Derivation {
            manifest: Digest::of(b"derivation"),
            formulas: 12,
            at: Timestamp::from_nanosecond(1_735_787_045_000_000_001).unwrap(),
            outcome: OutcomeKind::Invalid,
        };
        let name = derivation_name(&attempt, &derivation);
        let expected = format!("derived.{}.12.20250102T030405.000000001Z.invalid.", attempt.hex());
        assert!(name.starts_with(&expected), "{name}");
        let Some(JobEntry::Derived(of, read)) = job_entry(job, &name) else { panic!("{name} does not read back") };
        assert_eq!((of, read), (attempt, derivation));
        assert!(job_entry(job, &name.replace(".12.", ".x.")).is_none());
    }

    #[test]
    fn foreign_names_are_not_attempts() {
        let job = JobHash(Digest::of(b"spec"));
        for name in [".tmp-x", "README", "20250102T030405.000000001Z.valid.abc", "excluded.zz", "Z", "excluded.é", ""]
        {
            assert!(job_entry(job, name).is_none(), "{name}");
        }
    }
}
