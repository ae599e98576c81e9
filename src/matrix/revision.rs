//! Versions of backends that are built into the engine, against what the image's tag shows.
//!
//! Such a backend has no package: a version given for it says which engine is meant. It is checked, not hashed.

use super::arm::{KvOffload, Row};
use crate::config::diagnostic::Diagnostic;

/// Backends that are part of their engine.
pub const BUILT_IN: &[&str] = &["vllm-simple", "native", "hicache"];

/// The version of the row's engine-built backend, where the image's tag shows another one.
pub fn disagreement(row: &Row) -> Option<Diagnostic> {
    let Some(KvOffload::Dram { backend, .. }) = &row.kv_offload else { return None };
    let version = backend.version.as_deref().filter(|_| BUILT_IN.contains(&backend.name.as_str()))?;
    let tag = tag(&row.entry.image)?;
    let shown = if is_revision(version) { revision(tag)? } else { release(tag)? };
    let agree = match is_revision(version) {
        true => shown.starts_with(version) || version.starts_with(shown),
        false => shown == version.trim_start_matches('v'),
    };
    (!agree).then(|| {
        Diagnostic::at(
            &backend.place,
            format!("{} is built into the engine, and the image shows {shown}", backend.name),
        )
        .label(format!("says {version}"))
        .related(&row.entry.image_place, format!("shows {shown}"))
        .help(format!("write `version: \"{shown}\"`, or remove the version"))
    })
}

/// The tag of an image reference. A digest after `@` is no tag; a colon before the last `/` is a port.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?;
    let last = name.rsplit('/').next()?;
    last.split_once(':').map(|(_, tag)| tag)
}

/// A git revision: 7 to 40 hex digits, not all decimal (that would be a date).
fn is_revision(text: &str) -> bool {
    (7..=40).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// The revision at a tag's end.
fn revision(tag: &str) -> Option<&str> {
    tag.rsplit(['-', '_', '.']).next().filter(|last| is_revision(last))
}

/// The release that a tag is: `1.3.0rc24`, `v0.5.12`.
fn release(tag: &str) -> Option<&str> {
    let text = tag.strip_prefix('v').unwrap_or(tag);
    let whole = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.') && !text.contains(['-', '_']);
    whole.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_show_revisions_and_releases() {
        let of = |image| tag(image).and_then(revision);
        assert_eq!(of("vllm/vllm-openai:nightly-dev-x86_64-cu13.0.1-904e4ec"), Some("904e4ec"));
        assert_eq!(of("host:5000/a/b:v1-904e4ec@sha256:00"), Some("904e4ec"));
        assert_eq!(of("lmsysorg/sglang:v0.5.12-rocm720-mi35x-20260519"), None);
        assert_eq!(of("vllm/vllm-openai:kimi-k3"), None);
        assert_eq!(of("host:5000/a/b"), None);
        assert_eq!(tag("a/b:1.3.0rc24").and_then(release), Some("1.3.0rc24"));
        assert_eq!(tag("a/b:v0.5.17").and_then(release), Some("0.5.17"));
        assert_eq!(tag("a/b:v0.5.17-rocm720").and_then(release), None);
    }

    #[test]
    fn a_disagreement_is_reported_at_the_version() {
        let rows = |version: &str| {
            let text = include_str!("../../configs/nvidia-master.yaml").replace("version: 904e4ec }", version);
            super::super::tests::rows(&text)
        };
        let said = |version: &str| -> Vec<String> {
            rows(version).iter().filter_map(|line| disagreement(&line.row)).map(|fault| fault.message).collect()
        };
        assert_eq!(said("version: 904e4ec }"), Vec::<String>::new());
        assert_eq!(said("version: 904e4ec12 }"), Vec::<String>::new());
        let other = said("version: 13c59a3 }");
        assert_eq!(other.len(), 14);
        assert_eq!(other[0], "vllm-simple is built into the engine, and the image shows 904e4ec");
    }
}
