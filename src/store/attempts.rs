//! Attempts: what is recorded of one try, and what is kept of it later. Types only; `record` writes them, `read` finds
//! them.

use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;

use crate::ids::{ArmId, Digest, JobHash};

/// How an attempt ended, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// It passed its gates: a record.
    Valid,
    /// It ran and failed a gate.
    Invalid,
    /// It did not run to its end.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl OutcomeKind {
    /// All of them.
    pub const ALL: [OutcomeKind; 4] = [Self::Valid, Self::Invalid, Self::Failed, Self::Cancelled];

    /// The word in file names and annotations.
    pub fn word(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for OutcomeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It passed its gates: a record.
    Valid,
    /// It ran and failed gates.
    Invalid {
        /// Their names.
        gates: Vec<String>,
    },
    /// It did not run to its end.
    Failed {
        /// The kind of failure, such as `not-ready`.
        kind: String,
        /// What happened. Beyond 4 KiB it is cut: logs hold the rest.
        message: String,
    },
    /// Somebody stopped it.
    Cancelled,
}

impl Outcome {
    /// In one word.
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Valid => OutcomeKind::Valid,
            Self::Invalid { .. } => OutcomeKind::Invalid,
            Self::Failed { .. } => OutcomeKind::Failed,
            Self::Cancelled => OutcomeKind::Cancelled,
        }
    }
}

/// Where a layer's bytes come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Memory.
    Bytes(Vec<u8>),
    /// A file, as it is.
    File(PathBuf),
    /// A directory, packed as tar+zstd: the same files give the same bytes.
    Directory(PathBuf),
}

/// A layer to store.
#[derive(Debug, Clone)]
pub struct Layer {
    /// One of the media types of this module, or another.
    pub media_type: String,
    /// Its file name, by which it is found again.
    pub title: String,
    /// Its content.
    pub source: Source,
}

impl Layer {
    /// A layer.
    pub fn new(media_type: impl Into<String>, title: impl Into<String>, source: Source) -> Self {
        Self { media_type: media_type.into(), title: title.into(), source }
    }
}

/// One try, to be recorded.
#[derive(Debug)]
pub struct AttemptInput<'a> {
    /// The job.
    pub job: JobHash,
    /// The canonical bytes of its spec; their digest is the job.
    pub spec: &'a [u8],
    /// The arms that it measures.
    pub arms: &'a [ArmId],
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// Whether something stood in for the real thing.
    pub rehearsal: bool,
    /// Why the plan ran it.
    pub reasons: serde_json::Value,
    /// Whatever there is: results, raw rows, counters, provenance, gates, logs.
    pub layers: Vec<Layer>,
}

/// The name of an attempt, and what a plan must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRef {
    /// The job.
    pub job: JobHash,
    /// The digest of its manifest.
    pub manifest: Digest,
    /// When it began.
    pub started: Timestamp,
    /// How it ended, as it was recorded.
    pub outcome: OutcomeKind,
    /// What newer formulas make of it, if they were applied.
    pub derived: Option<Derivation>,
    /// Whether something stood in for the real thing.
    pub rehearsal: bool,
    /// Whether somebody excluded it; [`Exclusion`] says why.
    pub excluded: bool,
    /// Whether its blobs were collected; a tombstone says why.
    pub collected: bool,
}

impl AttemptRef {
    /// What it is under the newest formulas that were applied to it.
    pub fn standing(&self) -> OutcomeKind {
        self.derived.as_ref().map_or(self.outcome, |derived| derived.outcome)
    }

    /// Whether it counts for a hit: valid, not excluded, still there.
    pub fn counts(&self) -> bool {
        self.standing() == OutcomeKind::Valid && !self.excluded && !self.collected
    }

    /// Whether it was valid when it was recorded, or is now.
    pub fn was_valid(&self) -> bool {
        self.outcome == OutcomeKind::Valid || self.standing() == OutcomeKind::Valid
    }

    /// The tag under which OCI tools find it.
    pub fn tag(&self) -> String {
        super::oci::tag(&self.job, &self.manifest)
    }
}

/// The name of a derivation, and what a plan must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derivation {
    /// The digest of its manifest.
    pub manifest: Digest,
    /// The version of the formulas.
    pub formulas: u32,
    /// When it was made.
    pub at: Timestamp,
    /// Valid or invalid.
    pub outcome: OutcomeKind,
}

/// All that the manifest of a derivation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// Its name.
    pub at: Derivation,
    /// Valid, or invalid by these gates.
    pub outcome: Outcome,
    /// What was derived.
    pub layers: Vec<LayerRef>,
}

/// All that the manifest of an attempt says, and of its newest derivation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its name.
    pub at: AttemptRef,
    /// The arms that it measured.
    pub arms: Vec<ArmId>,
    /// How it ended, as it was recorded.
    pub outcome: Outcome,
    /// When it ended.
    pub ended: Timestamp,
    /// Its layers, as they were recorded.
    pub layers: Vec<LayerRef>,
    /// What newer formulas make of it.
    pub derived: Option<Derived>,
}

impl Attempt {
    /// What it is under the newest formulas that were applied to it.
    pub fn standing(&self) -> &Outcome {
        self.derived.as_ref().map_or(&self.outcome, |derived| &derived.outcome)
    }

    /// The layer of a title: the derived one, else its own.
    pub fn layer(&self, title: &str) -> Option<&LayerRef> {
        let derived = self.derived.iter().flat_map(|derived| &derived.layers);
        derived.chain(&self.layers).find(|layer| layer.title == title)
    }
}

/// A stored layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerRef {
    /// What it is.
    pub media_type: String,
    /// Its file name.
    pub title: String,
    /// The digest of its blob.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

/// Why an attempt no longer counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusion {
    /// The reason on file.
    pub reason: String,
    /// Since when.
    pub at: Timestamp,
}

/// A job that was recorded for an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmJob {
    /// The job.
    pub job: JobHash,
    /// When it was first recorded for this arm.
    pub at: Timestamp,
}
