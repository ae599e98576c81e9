//! Per-request rows (aiperf's `profile_export.jsonl`) to samples in SI units.
//!
//! A row is warm-up iff its `benchmark_phase` is present and not `profiling`. Metrics are made of the error-free profiling
//! rows; what was dropped is counted. Knows row formats and units, no statistics.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::{Layer, RawError, lines};

/// One error-free request of the profiling phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Wall clock when it was sent, Unix ns.
    pub start_ns: u64,
    /// Wall clock when its answer was complete, Unix ns.
    pub end_ns: u64,
    /// Time to first token, s; absent when the client reports none or one that is not positive.
    pub ttft_s: Option<f64>,
    /// End-to-end latency, s; absent as above.
    pub e2el_s: Option<f64>,
    /// Prompt tokens.
    pub input_tokens: Option<u64>,
    /// Generated tokens.
    pub output_tokens: Option<u64>,
    /// Generated tokens that were asked for.
    pub expected_output_tokens: Option<u64>,
}

/// The rows of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// Error-free profiling rows.
    pub kept: Vec<Sample>,
    /// All rows.
    pub rows: u64,
    /// Rows dropped as warm-up.
    pub warmup: u64,
    /// Profiling rows dropped for an error.
    pub errors: u64,
    /// Profiling rows that the client cancelled, with or without an error.
    pub cancelled: u64,
    /// Errors of profiling rows by type.
    pub error_categories: BTreeMap<String, u64>,
    /// First start and last end of the profiling rows, failed ones included, Unix ns.
    pub phase: Option<(u64, u64)>,
    /// Last end of the warm-up rows, Unix ns.
    pub last_warmup_end_ns: Option<u64>,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    metrics: Metrics<'a>,
    #[serde(borrow, default)]
    error: Option<Failure<'a>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    benchmark_phase: Option<Cow<'a, str>>,
    request_start_ns: u64,
    request_end_ns: u64,
    #[serde(default)]
    was_cancelled: bool,
}

#[derive(Default, Deserialize)]
struct Metrics<'a> {
    #[serde(borrow, default)]
    request_latency: Option<Metric<'a>>,
    #[serde(borrow, default)]
    time_to_first_token: Option<Metric<'a>>,
    #[serde(borrow, default)]
    input_sequence_length: Option<Metric<'a>>,
    #[serde(borrow, default)]
    output_sequence_length: Option<Metric<'a>>,
    #[serde(borrow, default)]
    requested_osl: Option<Metric<'a>>,
    #[serde(borrow, default)]
    osl_mismatch_diff_pct: Option<Metric<'a>>,
}

#[derive(Deserialize)]
struct Metric<'a> {
    value: Option<f64>,
    #[serde(borrow)]
    unit: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(default)]
    code: Option<i64>,
    #[serde(borrow, rename = "type", default)]
    kind: Option<Cow<'a, str>>,
}

impl Failure<'_> {
    fn category(&self) -> String {
        match (&self.kind, self.code) {
            (Some(kind), Some(code)) => format!("{kind} ({code})"),
            (Some(kind), None) => kind.to_string(),
            (None, Some(code)) => code.to_string(),
            (None, None) => "unspecified".to_owned(),
        }
    }
}

/// Reads all rows.
///
/// # Errors
/// A line that is not a row, with its number: not JSON, a required field missing, an unknown time unit, a token count that is
/// not a whole number.
pub fn read(bytes: &[u8]) -> Result<Samples, RawError> {
    let mut samples = Samples::default();
    for (number, line) in lines(bytes) {
        let row: Row<'_> =
            serde_json::from_slice(line).map_err(|error| RawError::json(Layer::Requests, number, &error))?;
        samples.add(&row).map_err(|reason| RawError::at(Layer::Requests, number, reason))?;
    }
    Ok(samples)
}

impl Samples {
    fn add(&mut self, row: &Row<'_>) -> Result<(), String> {
        let Metadata { request_start_ns: start, request_end_ns: end, .. } = row.metadata;
        self.rows += 1;
        if row.metadata.benchmark_phase.as_ref().is_some_and(|phase| !phase.eq_ignore_ascii_case("profiling")) {
            self.warmup += 1;
            self.last_warmup_end_ns = self.last_warmup_end_ns.max(Some(end));
            return Ok(());
        }
        self.phase = Some(self.phase.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
        self.cancelled += u64::from(row.metadata.was_cancelled);
        if let Some(failure) = &row.error {
            self.errors += 1;
            *self.error_categories.entry(failure.category()).or_default() += 1;
            return Ok(());
        }
        let metrics = &row.metrics;
        let output_tokens = tokens("output_sequence_length", &metrics.output_sequence_length)?;
        self.kept.push(Sample {
            start_ns: start,
            end_ns: end,
            ttft_s: seconds("time_to_first_token", &metrics.time_to_first_token)?,
            e2el_s: seconds("request_latency", &metrics.request_latency)?,
            input_tokens: tokens("input_sequence_length", &metrics.input_sequence_length)?,
            output_tokens,
            expected_output_tokens: match tokens("requested_osl", &metrics.requested_osl)? {
                Some(asked) => Some(asked),
                None => expected_from_difference(output_tokens, &metrics.osl_mismatch_diff_pct),
            },
        });
        Ok(())
    }
}

/// A positive time in seconds.
fn seconds(name: &str, metric: &Option<Metric<'_>>) -> Result<Option<f64>, String> {
    let Some(Metric { value: Some(value), unit }) = metric else { return Ok(None) };
    let per_second = match unit.as_ref() {
        "ns" => 1e9,
        "us" => 1e6,
        "ms" => 1e3,
        "s" | "sec" => 1.0,
        unit => return Err(format!("{name} is in `{unit}`; a time is in ns, us, ms or sec")),
    };
    Ok((*value > 0.0).then(|| value / per_second))
}

/// A count of tokens.
fn tokens(name: &str, metric: &Option<Metric<'_>>) -> Result<Option<u64>, String> {
    let Some(Metric { value: Some(value), .. }) = metric else { return Ok(None) };
    whole(*value).map(Some).ok_or_else(|| format!("{name} is {value}, which is not a number of tokens"))
}

/// A float that is a count: whole, not negative, exact.
pub fn whole(value: f64) -> Option<u64> {
    (value >= 0.0 && value.fract() == 0.0 && value <= 9_007_199_254_740_992.0).then_some(value as u64)
}

/// Public aiperf exports no `requested_osl` but the difference in per cent, 100 (actual − asked) / asked, whence
/// asked = actual / (1 + difference / 100). Nothing can be told from an answer without tokens.
fn expected_from_difference(output: Option<u64>, difference: &Option<Metric<'_>>) -> Option<u64> {
    let (output, difference) = (output.filter(|tokens| *tokens > 0)?, difference.as_ref()?.value?);
    whole((output as f64 / (1.0 + difference / 100.0)).round())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(phase: &str, metrics: &str, rest: &str) -> String {
        format!(
            r#"{{"metadata":{{"session_num":0,"request_start_ns":1000,"request_end_ns":3000,"worker_id":"w","record_processor_id":"r"{phase}}},"metrics":{{{metrics}}}{rest}}}"#
        )
    }

    #[test]
    fn a_row_is_warm_up_iff_its_phase_is_present_and_not_profiling() {
        let text = [
            row(r#","benchmark_phase":"warmup""#, "", ""),
            row(r#","benchmark_phase":"profiling""#, "", ""),
            row(r#","benchmark_phase":null"#, "", ""),
            row("", "", ""),
        ]
        .join("\n");
        let samples = read(text.as_bytes()).unwrap();
        assert_eq!((samples.rows, samples.warmup, samples.kept.len()), (4, 1, 3));
        assert_eq!((samples.phase, samples.last_warmup_end_ns), (Some((1000, 3000)), Some(3000)));
    }

    #[test]
    fn errors_are_dropped_and_counted_by_category() {
        let text = [
            row("", "", r#","error":{"code":503,"type":"Unavailable","message":"m"}"#),
            row("", "", r#","error":{"message":"m"}"#),
            row("", "", r#","error":null"#),
            row(r#","benchmark_phase":"warmup""#, "", r#","error":{"message":"m"}"#),
        ]
        .join("\n");
        let samples = read(text.as_bytes()).unwrap();
        assert_eq!((samples.errors, samples.warmup, samples.kept.len()), (2, 1, 1));
        let categories: Vec<_> = samples.error_categories.into_iter().collect();
        assert_eq!(categories, [("Unavailable (503)".to_owned(), 1), ("unspecified".to_owned(), 1)]);
    }

    #[test]
    fn units_become_seconds_and_times_that_are_not_positive_are_dropped() {
        for (metric, expected) in [
            (r#"{"value":1500,"unit":"ms"}"#, Some(1.5)),
            (r#"{"value":2000000000,"unit":"ns"}"#, Some(2.0)),
            (r#"{"value":0.5,"unit":"sec"}"#, Some(0.5)),
            (r#"{"value":0,"unit":"ms"}"#, None),
            (r#"{"value":-3,"unit":"ms"}"#, None),
        ] {
            let text = row("", &format!(r#""request_latency":{metric}"#), "");
            assert_eq!(read(text.as_bytes()).unwrap().kept[0].e2el_s, expected, "{metric}");
        }
    }

    #[test]
    fn the_expected_length_is_read_or_recovered_from_the_difference() {
        let output = r#""output_sequence_length":{"value":50,"unit":"tokens"}"#;
        for (extra, expected) in [
            (r#","requested_osl":{"value":64,"unit":"tokens"}"#, Some(64)),
            (r#","osl_mismatch_diff_pct":{"value":-50.0,"unit":"%"}"#, Some(100)),
            (r#","osl_mismatch_diff_pct":{"value":66.66666666666666,"unit":"%"}"#, Some(30)),
            (r#","osl_mismatch_diff_pct":{"value":-100.0,"unit":"%"}"#, None),
            ("", None),
        ] {
            let text = row("", &format!("{output}{extra}"), "");
            assert_eq!(read(text.as_bytes()).unwrap().kept[0].expected_output_tokens, expected, "{extra}");
        }
    }

    #[test]
    fn a_malformed_row_is_named_by_its_line() {
        let good = row("", "", "");
        for (bad, reason) in [
            ("{\"metadata\":".to_owned(), "EOF while parsing a value"),
            ("{}".to_owned(), "missing field `metadata`"),
            (row("", r#""request_latency":{"value":1,"unit":"furlong"}"#, ""), "request_latency is in `furlong`"),
            (row("", r#""output_sequence_length":{"value":1.5,"unit":"tokens"}"#, ""), "output_sequence_length is 1.5"),
            (row("", r#""input_sequence_length":{"value":-1,"unit":"tokens"}"#, ""), "input_sequence_length is -1"),
        ] {
            let error = read(format!("{good}\n\n{bad}\n").as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("per-request rows (profile_export.jsonl), line 3: "), "{error}");
            assert!(error.contains(reason), "{error}");
        }
        let bytes = [good.as_bytes(), b"\n\xff\xfe\n"].concat();
        assert!(read(&bytes).unwrap_err().to_string().contains("line 2"));
    }
}
