//! Attempts as OCI objects: media types, annotations, manifests, descriptors. Bytes in, bytes out; no I/O.

use std::collections::HashMap;

use jiff::Timestamp;
use oci_spec::image::{Descriptor, ImageManifest, ImageManifestBuilder, MediaType};
use serde::Serialize;

use super::attempts::{Attempt, AttemptRef, Derivation, Derived, LayerRef, Outcome};
use super::derived::DerivationInput;
use super::error::StoreError;
use crate::ids::{ArmId, Digest, JobHash};

/// `artifactType` of an attempt's manifest.
pub const RECORD_TYPE: &str = "application/vnd.ixbuild.record.v1+json";
/// `artifactType` of a derivation's manifest.
pub const DERIVED_TYPE: &str = "application/vnd.ixbuild.derived.v1+json";
/// The config blob: the job spec.
pub const SPEC_TYPE: &str = "application/vnd.ixbuild.spec.v1+json";
/// The layer of results.
pub const RESULT_TYPE: &str = "application/vnd.ixbuild.result.v1+json";
/// The layer of raw per-request rows.
pub const REQUESTS_TYPE: &str = "application/vnd.ixbuild.requests.v1+jsonl";
/// The layer of counter samples and GPU telemetry.
pub const COUNTERS_TYPE: &str = "application/vnd.ixbuild.counters.v1+jsonl";
/// The layer of provenance.
pub const PROVENANCE_TYPE: &str = "application/vnd.ixbuild.provenance.v1+json";
/// The layer of gates.
pub const GATES_TYPE: &str = "application/vnd.ixbuild.gates.v1+json";
/// The layer of the plan's reasons.
pub const REASONS_TYPE: &str = "application/vnd.ixbuild.reasons.v1+json";
/// The layer of logs.
pub const LOGS_TYPE: &str = "application/vnd.ixbuild.logs.v1.tar+zstd";

/// The title of the layer of the plan's reasons.
pub const REASONS_TITLE: &str = "reasons.json";

const TITLE: &str = "org.opencontainers.image.title";
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const CREATED: &str = "org.opencontainers.image.created";
const ARMS: &str = "dev.ixbuild.arms";
const OUTCOME: &str = "dev.ixbuild.outcome";
const GATES: &str = "dev.ixbuild.gates";
const FAILURE_KIND: &str = "dev.ixbuild.failure.kind";
const FAILURE: &str = "dev.ixbuild.failure.message";
const STARTED: &str = "dev.ixbuild.started";
const REHEARSAL: &str = "dev.ixbuild.rehearsal";
const FORMULAS: &str = "dev.ixbuild.formulas";

/// The longest failure message that an annotation takes, bytes: registries bound manifests, and logs hold the rest.
const MESSAGE_LIMIT: usize = 4096;

/// The tag under which OCI tools find an attempt: `ix1-JOB.MANIFEST`, the manifest's first 12 digits.
pub fn tag(job: &JobHash, manifest: &Digest) -> String {
    format!("ix1-{}.{}", job.hex(), &manifest.hex()[..12])
}

/// The tag of a derivation: its attempt's, and its own manifest's first 12 digits.
pub fn derived_tag(job: &JobHash, attempt: &Digest, derivation: &Digest) -> String {
    format!("{}.{}", tag(job, attempt), &derivation.hex()[..12])
}

pub(crate) fn descriptor(media_type: &str, digest: &Digest, size: u64) -> Result<Descriptor, StoreError> {
    let text = digest.to_string();
    let digest = text
        .parse::<oci_spec::image::Digest>()
        .map_err(|error| StoreError::Oci { what: text, why: error.to_string() })?;
    Ok(Descriptor::new(MediaType::from(media_type), size, digest))
}

/// What `index.json` lists for an attempt, and what its file under `jobs/` holds.
pub(crate) fn reference(job: &JobHash, manifest: &Digest, size: u64) -> Result<Descriptor, StoreError> {
    listed(RECORD_TYPE, manifest, size, tag(job, manifest))
}

/// The same for a derivation.
pub(crate) fn derivation_reference(at: &AttemptRef, manifest: &Digest, size: u64) -> Result<Descriptor, StoreError> {
    listed(DERIVED_TYPE, manifest, size, derived_tag(&at.job, &at.manifest, manifest))
}

fn listed(kind: &str, manifest: &Digest, size: u64, tag: String) -> Result<Descriptor, StoreError> {
    let mut descriptor = descriptor(MediaType::ImageManifest.as_ref(), manifest, size)?;
    descriptor.set_artifact_type(Some(MediaType::from(kind)));
    descriptor.set_annotations(Some(HashMap::from([(REF_NAME.to_owned(), tag)])));
    Ok(descriptor)
}

/// The tag of an entry of `index.json`.
pub(crate) fn tag_of(descriptor: &Descriptor) -> Option<&str> {
    descriptor.annotations().as_ref()?.get(REF_NAME).map(String::as_str)
}

/// The manifest's text.
pub(crate) fn manifest(
    job: &JobHash,
    spec_size: u64,
    arms: &[ArmId],
    outcome: &Outcome,
    (started, ended): (Timestamp, Timestamp),
    rehearsal: bool,
    layers: &[LayerRef],
) -> Result<Vec<u8>, StoreError> {
    let mut notes = HashMap::from([
        (CREATED.to_owned(), ended.to_string()),
        (STARTED.to_owned(), started.to_string()),
        (OUTCOME.to_owned(), outcome.kind().word().to_owned()),
        (REHEARSAL.to_owned(), rehearsal.to_string()),
        (ARMS.to_owned(), json_list(arms.iter().map(ArmId::as_str))),
    ]);
    match outcome {
        Outcome::Valid | Outcome::Cancelled => {}
        Outcome::Invalid { gates } => drop(notes.insert(GATES.to_owned(), json_list(gates.iter().map(String::as_str)))),
        Outcome::Failed { kind, message } => {
            notes.insert(FAILURE_KIND.to_owned(), kind.clone());
            notes.insert(FAILURE.to_owned(), shortened(message));
        }
    }
    let manifest = ImageManifestBuilder::default()
        .artifact_type(MediaType::from(RECORD_TYPE))
        .config(descriptor(SPEC_TYPE, &job.0, spec_size)?);
    built(manifest, layers, notes)
}

/// The text of a derivation's manifest. The sizes are those of the spec and of the attempt's manifest.
pub(crate) fn derivation(
    at: &AttemptRef,
    (spec_size, attempt_size): (u64, u64),
    input: &DerivationInput<'_>,
    layers: &[LayerRef],
) -> Result<Vec<u8>, StoreError> {
    let outcome = input.outcome();
    let mut notes = HashMap::from([
        (CREATED.to_owned(), input.at.to_string()),
        (FORMULAS.to_owned(), input.formulas.to_string()),
        (OUTCOME.to_owned(), outcome.kind().word().to_owned()),
    ]);
    if let Outcome::Invalid { gates } = &outcome {
        notes.insert(GATES.to_owned(), json_list(gates.iter().map(String::as_str)));
    }
    let manifest = ImageManifestBuilder::default()
        .artifact_type(MediaType::from(DERIVED_TYPE))
        .config(descriptor(SPEC_TYPE, &at.job.0, spec_size)?)
        .subject(descriptor(MediaType::ImageManifest.as_ref(), &at.manifest, attempt_size)?);
    built(manifest, layers, notes)
}

fn built(
    manifest: ImageManifestBuilder,
    layers: &[LayerRef],
    notes: HashMap<String, String>,
) -> Result<Vec<u8>, StoreError> {
    let layers = layers
        .iter()
        .map(|layer| {
            let mut descriptor = descriptor(&layer.media_type, &layer.digest, layer.size)?;
            descriptor.set_annotations(Some(HashMap::from([(TITLE.to_owned(), layer.title.clone())])));
            Ok(descriptor)
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let manifest = manifest
        .schema_version(2_u32)
        .media_type(MediaType::ImageManifest)
        .layers(layers)
        .annotations(notes)
        .build()
        .map_err(|error| StoreError::Oci { what: "a manifest".into(), why: error.to_string() })?;
    to_bytes(&manifest)
}

/// Sorted maps, so that the same attempt gives the same bytes.
pub(crate) fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_value(value)
        .and_then(|value| serde_json::to_vec(&value))
        .map_err(|error| StoreError::Oci { what: "a document".into(), why: error.to_string() })
}

/// A manifest of ours: of the right type, about the right job.
struct Manifest(ImageManifest);

impl Manifest {
    fn read(bytes: &[u8], kind: &str, job: JobHash) -> Result<Self, String> {
        let manifest: ImageManifest = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if manifest.artifact_type().as_ref().map(MediaType::as_ref) != Some(kind) {
            return Err(format!("its artifactType is not {kind}"));
        }
        let config = digest_of(manifest.config())?;
        if config != job.0 {
            return Err(format!("its config is {config}, not the spec of {job}"));
        }
        Ok(Self(manifest))
    }

    fn note(&self, key: &str) -> Result<&String, String> {
        let notes = self.0.annotations().as_ref();
        notes.and_then(|notes| notes.get(key)).ok_or_else(|| format!("it lacks the annotation {key}"))
    }

    fn list(&self, key: &str) -> Result<Vec<String>, String> {
        serde_json::from_str(self.note(key)?).map_err(|error| format!("annotation {key}: {error}"))
    }

    fn created(&self) -> Result<Timestamp, String> {
        self.note(CREATED)?.parse().map_err(|error| format!("annotation {CREATED}: {error}"))
    }

    fn layers(&self) -> Result<Vec<LayerRef>, String> {
        let title = |layer: &Descriptor| layer.annotations().as_ref().and_then(|notes| notes.get(TITLE)).cloned();
        let read = |layer: &Descriptor| {
            Ok(LayerRef {
                media_type: layer.media_type().to_string(),
                title: title(layer).unwrap_or_default(),
                digest: digest_of(layer)?,
                size: layer.size(),
            })
        };
        self.0.layers().iter().map(read).collect()
    }
}

/// Reads a manifest that an attempt refers to, and the size of its spec; what is wrong with it otherwise.
pub(crate) fn read_manifest(at: &AttemptRef, bytes: &[u8]) -> Result<(Attempt, u64), String> {
    let manifest = Manifest::read(bytes, RECORD_TYPE, at.job)?;
    let note = |key: &str| manifest.note(key);
    let list = |key: &str| manifest.list(key);
    let outcome = match note(OUTCOME)?.as_str() {
        "valid" => Outcome::Valid,
        "invalid" => Outcome::Invalid { gates: list(GATES)? },
        "failed" => Outcome::Failed { kind: note(FAILURE_KIND)?.clone(), message: note(FAILURE)?.clone() },
        "cancelled" => Outcome::Cancelled,
        other => return Err(format!("its outcome is `{other}`")),
    };
    if outcome.kind() != at.outcome {
        return Err(format!("its outcome is {}, its name under jobs/ says {}", outcome.kind(), at.outcome));
    }
    let (layers, ended) = (manifest.layers()?, manifest.created()?);
    let arms = list(ARMS)?.into_iter().map(|arm| ArmId(arm.into())).collect();
    let attempt = Attempt { at: at.clone(), arms, outcome, ended, layers, derived: None };
    Ok((attempt, manifest.0.config().size()))
}

/// Reads the manifest of a derivation of an attempt; what is wrong with it otherwise.
pub(crate) fn read_derivation(
    job: JobHash,
    attempt: &Digest,
    at: &Derivation,
    bytes: &[u8],
) -> Result<Derived, String> {
    let manifest = Manifest::read(bytes, DERIVED_TYPE, job)?;
    let subject = manifest.0.subject().as_ref().map(digest_of).transpose()?;
    if subject != Some(*attempt) {
        return Err(format!("its subject is not the attempt {attempt}"));
    }
    let outcome = match manifest.note(OUTCOME)?.as_str() {
        "valid" => Outcome::Valid,
        "invalid" => Outcome::Invalid { gates: manifest.list(GATES)? },
        other => return Err(format!("its outcome is `{other}`")),
    };
    let formulas = manifest.note(FORMULAS)?;
    if (outcome.kind(), formulas.parse().ok()) != (at.outcome, Some(at.formulas)) {
        let found = format!("{} under formulas {formulas}", outcome.kind());
        return Err(format!("it says {found}, its name under jobs/ {} under {}", at.outcome, at.formulas));
    }
    Ok(Derived { at: at.clone(), outcome, layers: manifest.layers()? })
}

/// The digest that a descriptor names.
pub(crate) fn digest_of(descriptor: &Descriptor) -> Result<Digest, String> {
    descriptor.digest().as_ref().parse().map_err(|error: crate::ids::NotADigest| error.to_string())
}

fn json_list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    serde_json::Value::from_iter(items).to_string()
}

fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_LIMIT {
        return message.to_owned();
    }
    let end = (0..=MESSAGE_LIMIT).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &message[..end])
}
