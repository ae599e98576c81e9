//! What can be wrong with the raw layers of a run. Knows layers by name, not by path.

use std::fmt;

/// A raw layer of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// One JSON object per request.
    Requests,
    /// The client's aggregate.
    Aggregate,
    /// Scrapes of `/metrics`.
    Counters,
    /// The report of an eval harness.
    EvalReport,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Requests => "per-request rows (profile_export.jsonl)",
            Layer::Aggregate => "client aggregate (profile_export_aiperf.json)",
            Layer::Counters => "counter samples",
            Layer::EvalReport => "eval report",
        })
    }
}

/// Raw layers from which no result can be derived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RawError {
    /// The client did not leave what the spec says it writes.
    #[error("{0}: missing")]
    Missing(Layer),
    /// A line (from 1) that is not what the layer's format says.
    #[error("{layer}, line {line}: {reason}")]
    Malformed {
        /// Where.
        layer: Layer,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A document that is well-formed and makes no sense.
    #[error("{layer}: {reason}")]
    Senseless {
        /// Where.
        layer: Layer,
        /// Which figure, and why.
        reason: String,
    },
    /// A bound of the spec that is not a decimal.
    #[error("{field} of the spec is `{text}`, which is not a decimal number")]
    Bound {
        /// Its name in the spec.
        field: &'static str,
        /// As it stands there.
        text: String,
    },
}

impl RawError {
    /// A malformed line.
    pub fn at(layer: Layer, line: usize, reason: impl Into<String>) -> Self {
        Self::Malformed { layer, line, reason: reason.into() }
    }

    /// A JSON error of a text that begins at `line`.
    pub fn json(layer: Layer, line: usize, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
        Self::at(layer, line + error.line().saturating_sub(1), format!("column {}: {reason}", error.column()))
    }
}

/// The lines of a layer that are not blank, with their numbers from 1.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
}
