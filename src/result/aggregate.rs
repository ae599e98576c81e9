//! The client's aggregate (aiperf's `profile_export_aiperf.json`): request accounting and what was replayed.
//!
//! The error ratio comes from here, not from the per-request rows. aiperf omits counts that are zero. Reads only what is used.

use serde::{Deserialize, Serialize};

use super::error::{Layer, RawError};
use super::samples::whole;

/// What the client says of its run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aggregate {
    /// Requests that ended, failed ones included.
    pub completed: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Infinite-cache prefix hit rate of the replayed traces, 0 to 1.
    pub theoretical_cache_hit_rate: Option<f64>,
    /// What was replayed.
    pub dataset: Option<Dataset>,
    /// The seed in force.
    pub seed: Option<u64>,
    /// The client's version.
    pub client_version: Option<String>,
    /// Why the client itself calls the run cut short.
    pub cut_short: Option<String>,
    /// Why the client calls the run not what its scenario demands.
    pub violation: Option<String>,
}

/// The data set as the client names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// Kind of source, such as `public_dataset`.
    #[serde(default)]
    pub source_type: Option<String>,
    /// The client's loader.
    #[serde(default)]
    pub loader: Option<String>,
    /// Name on the hub.
    #[serde(default)]
    pub hf_dataset_name: Option<String>,
    /// Split on the hub.
    #[serde(default)]
    pub hf_split: Option<String>,
    /// How many entries were asked for.
    #[serde(default)]
    pub num_dataset_entries: Option<u64>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    request_count: Option<Figure>,
    #[serde(default)]
    error_request_count: Option<Figure>,
    #[serde(default)]
    completed_request_count: Option<Figure>,
    #[serde(default)]
    theoretical_prefix_cache_hit: Option<Figure>,
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(default)]
    run_info: Option<RunInfo>,
    #[serde(default)]
    aiperf_version: Option<String>,
    #[serde(default)]
    was_cancelled: Option<bool>,
    #[serde(default)]
    is_complete: Option<bool>,
    #[serde(default)]
    incomplete_reason: Option<String>,
}

#[derive(Deserialize)]
struct Figure {
    #[serde(default)]
    avg: Option<f64>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    dataset: Option<Dataset>,
    #[serde(default)]
    submission_valid: Option<bool>,
    #[serde(default)]
    submission_invalid_reasons: Vec<String>,
}

#[derive(Deserialize)]
struct RunInfo {
    #[serde(default)]
    random_seed: Option<u64>,
}

/// Reads the aggregate.
///
/// # Errors
/// A text that is not such a document, or a count that is not a whole number.
pub fn read(bytes: &[u8]) -> Result<Aggregate, RawError> {
    let document: Document =
        serde_json::from_slice(bytes).map_err(|error| RawError::json(Layer::Aggregate, 1, &error))?;
    let successes = count("request_count", &document.request_count)?;
    let errors = count("error_request_count", &document.error_request_count)?;
    let completed = count("completed_request_count", &document.completed_request_count)?;
    // Each of the three is omitted when zero; older clients have no completed_request_count.
    let errors = errors.or_else(|| completed?.checked_sub(successes?)).unwrap_or(0);
    let completed = completed.unwrap_or_else(|| successes.unwrap_or(0) + errors);
    let (cut_short, violation) = (cut_short(&document), violation(&document));
    let (dataset, run) = (document.metadata.and_then(|metadata| metadata.dataset), document.run_info);
    Ok(Aggregate {
        completed,
        errors,
        theoretical_cache_hit_rate: document
            .theoretical_prefix_cache_hit
            .and_then(|figure| figure.avg)
            .map(|per_cent| per_cent / 100.0),
        dataset,
        seed: run.and_then(|run| run.random_seed),
        client_version: document.aiperf_version,
        cut_short,
        violation,
    })
}

fn count(name: &str, figure: &Option<Figure>) -> Result<Option<u64>, RawError> {
    let Some(value) = figure.as_ref().and_then(|figure| figure.avg) else { return Ok(None) };
    let reason = || format!("{name} is {value}, which is not a number of requests");
    whole(value).map(Some).ok_or_else(|| RawError::Senseless { layer: Layer::Aggregate, reason: reason() })
}

fn cut_short(document: &Document) -> Option<String> {
    if document.was_cancelled == Some(true) {
        return Some("the client was cancelled".to_owned());
    }
    let reason = document.incomplete_reason.as_deref().unwrap_or("no reason given");
    (document.is_complete == Some(false)).then(|| format!("the client calls its run incomplete: {reason}"))
}

fn violation(document: &Document) -> Option<String> {
    let metadata = document.metadata.as_ref().filter(|metadata| metadata.submission_valid == Some(false))?;
    let reasons = match metadata.submission_invalid_reasons.join(", ") {
        reasons if reasons.is_empty() => "no reason given".to_owned(),
        reasons => reasons,
    };
    Some(format!("the client calls its scenario violated: {reasons}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_are_zero_are_omitted_and_read_as_zero() {
        for (text, counts) in [
            (
                r#"{"request_count":{"unit":"requests","avg":18.0},"error_request_count":{"unit":"requests","avg":2.0},"completed_request_count":{"unit":"requests","avg":20.0}}"#,
                (20, 2),
            ),
            (
                r#"{"request_count":{"unit":"requests","avg":18.0},"completed_request_count":{"unit":"requests","avg":18.0}}"#,
                (18, 0),
            ),
            (
                r#"{"request_count":{"unit":"requests","avg":18.0},"error_request_count":{"unit":"requests","avg":2.0}}"#,
                (20, 2),
            ),
            (
                r#"{"error_request_count":{"unit":"requests","avg":2.0},"completed_request_count":{"unit":"requests","avg":2.0}}"#,
                (2, 2),
            ),
            (r#"{"request_count":{"avg":18.0},"completed_request_count":{"avg":20.0}}"#, (20, 2)),
            ("{}", (0, 0)),
        ] {
            let aggregate = read(text.as_bytes()).unwrap();
            assert_eq!((aggregate.completed, aggregate.errors), counts, "{text}");
        }
    }

    #[test]
    fn what_was_replayed_and_the_clients_objections_are_read() {
        let aggregate = read(
            br#"{"aiperf_version":"0.13.0","run_info":{"random_seed":42},"is_complete":false,"incomplete_reason":"stalled",
            "theoretical_prefix_cache_hit":{"unit":"%","avg":97.5},
            "metadata":{"dataset":{"source_type":"public_dataset","loader":"l","hf_dataset_name":"a/b","hf_split":"train","num_dataset_entries":393},
            "scenario":"s","submission_valid":false,"submission_invalid_reasons":["unsafe_override"]}}"#,
        )
        .unwrap();
        assert_eq!(aggregate.seed, Some(42));
        assert_eq!(aggregate.theoretical_cache_hit_rate, Some(0.975));
        assert_eq!(aggregate.dataset.unwrap().hf_dataset_name.as_deref(), Some("a/b"));
        assert_eq!(aggregate.cut_short.as_deref(), Some("the client calls its run incomplete: stalled"));
        assert_eq!(aggregate.violation.as_deref(), Some("the client calls its scenario violated: unsafe_override"));
    }

    #[test]
    fn a_malformed_aggregate_is_named_by_line_and_column() {
        let error = read(b"{\n \"request_count\": [}").unwrap_err().to_string();
        assert!(error.contains("client aggregate (profile_export_aiperf.json), line 2: column"), "{error}");
        let error = read(br#"{"request_count":{"avg":1.5}}"#).unwrap_err().to_string();
        assert!(error.contains("request_count is 1.5"), "{error}");
    }
}
