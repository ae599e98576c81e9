//! `profile_export_aiperf.json`: a run's aggregate in aiperf 0.13's format, schema 1.4.
//!
//! Statistics are over the error-free requests of a phase: linear interpolation between ranks, population standard
//! deviation. Counts and rates are `{unit, avg}`. `error_request_count` is absent from a run without errors, as in aiperf.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value as Json, json};

use super::args::ReplayArgs;
use super::record::{ErrorDetails, Phase, Record, Value};

/// Metrics of single requests that are aggregated.
const DISTRIBUTIONS: [&str; 13] = [
    "decode_duration",
    "e2e_output_token_throughput",
    "input_sequence_length",
    "inter_token_latency",
    "output_sequence_length",
    "output_token_count",
    "output_token_throughput_per_user",
    "prefill_throughput_per_user",
    "request_latency",
    "requested_osl",
    "time_to_first_token",
    "time_to_second_token",
    "usage_total_tokens",
];

/// How a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The client was stopped, or gave up over errors.
    pub cancelled: bool,
}

/// Requests of a phase by their end.
pub fn counts(records: &[Record], phase: Phase) -> (u64, u64) {
    records
        .iter()
        .filter(|record| record.metadata.benchmark_phase == phase)
        .fold((0, 0), |(good, bad), record| if record.error.is_none() { (good + 1, bad) } else { (good, bad + 1) })
}

/// The document.
pub fn summary(args: &ReplayArgs, argv: &[String], records: &[Record], outcome: Outcome) -> Json {
    let mut document = metrics(records, Phase::Profiling);
    let warmup = metrics(records, Phase::Warmup);
    if !warmup.is_empty() {
        document.insert("warmup_metrics".to_owned(), warmup.into());
    }
    let profiled = || records.iter().filter(|record| record.metadata.benchmark_phase == Phase::Profiling);
    let mut errors: BTreeMap<&ErrorDetails, u64> = BTreeMap::new();
    profiled().filter_map(|record| record.error.as_ref()).for_each(|error| *errors.entry(error).or_default() += 1);
    let mut errors: Vec<(&ErrorDetails, u64)> = errors.into_iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let errors: Vec<Json> =
        errors.into_iter().map(|(details, count)| json!({"error_details": details, "count": count})).collect();
    let id = format!("{}-c{}-seed{}", args.scenario, args.concurrency, args.seed);
    let fields = [
        ("schema_version", json!("1.4")),
        ("aiperf_version", json!(format!("ixbuild-replay {}", crate::sim::REPLAY_VERSION))),
        ("benchmark_id", json!(id)),
        (
            "run_info",
            json!({
                "benchmark_id": id, "random_seed": args.seed, "trial": 0,
                "run_label": format!("concurrency_{}", args.concurrency), "variation_label": "base",
                "cli_command": format!("aiperf {}", argv.join(" ")),
            }),
        ),
        ("was_cancelled", json!(outcome.cancelled)),
        ("is_complete", json!(!outcome.cancelled)),
        ("error_summary", json!(errors)),
        (
            "metadata",
            json!({
                // The conversations are generated; the declared data set is not read.
                "dataset": {"source_type": "generated", "loader": args.dataset, "num_dataset_entries": args.entries},
                "scenario": args.scenario, "submission_valid": false, "submission_invalid_reasons": ["rehearsal"],
            }),
        ),
    ];
    document.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    let start = profiled().map(|record| record.metadata.request_start_ns).min();
    let end = profiled().map(|record| record.metadata.request_end_ns).max();
    for (name, at) in [("start_time", start), ("end_time", end)] {
        if let Some(time) = at.and_then(|ns| Timestamp::from_nanosecond(i128::from(ns)).ok()) {
            document.insert(name.to_owned(), json!(time.to_string()));
        }
    }
    document.into()
}

fn metrics(records: &[Record], phase: Phase) -> Map<String, Json> {
    let mut out = Map::new();
    let (good, bad) = counts(records, phase);
    if good + bad == 0 {
        return out;
    }
    let good_ones: Vec<&Record> =
        records.iter().filter(|record| record.metadata.benchmark_phase == phase && record.error.is_none()).collect();
    let mut put =
        |name: &str, unit: &str, value: Json| drop(out.insert(name.to_owned(), json!({"unit": unit, "avg": value})));
    put("completed_request_count", "requests", json!(good + bad));
    put("request_error_rate", "%", json!(100.0 * bad as f64 / (good + bad) as f64));
    if bad > 0 {
        put("error_request_count", "requests", json!(bad));
    }
    if good == 0 {
        return out;
    }
    put("request_count", "requests", json!(good));
    let sum = |name: &str| good_ones.iter().filter_map(|record| record.number(name)).sum::<f64>();
    let (input, output) = (sum("input_sequence_length"), sum("output_sequence_length"));
    for (name, tokens) in [("total_isl", input), ("total_osl", output), ("total_output_tokens", output)] {
        put(name, "tokens", json!(tokens as u64));
    }
    let seconds = duration_seconds(&good_ones);
    put("benchmark_duration", "sec", json!(seconds));
    if seconds > 0.0 {
        put("request_throughput", "requests/sec", json!(good as f64 / seconds));
        put("output_token_throughput", "tokens/sec", json!(output / seconds));
        put("total_token_throughput", "tokens/sec", json!((input + output) / seconds));
    }
    for name in DISTRIBUTIONS {
        let values = good_ones.iter().filter_map(|record| record.number(name)).collect();
        let unit = good_ones.iter().find_map(|record| record.metrics.get(name)).map_or("", |metric| metric.unit);
        if let Some(statistics) = statistics(values, unit) {
            out.insert(name.to_owned(), statistics);
        }
    }
    let gaps = good_ones.iter().filter_map(|record| match &record.metrics.get("inter_chunk_latency")?.value {
        Value::Numbers(gaps) => Some(gaps),
        Value::Count(_) | Value::Number(_) => None,
    });
    if let Some(statistics) = statistics(gaps.flatten().copied().collect(), "ms") {
        out.insert("inter_chunk_latency".to_owned(), statistics);
    }
    out
}

/// From the first request sent to the last chunk received, s.
fn duration_seconds(records: &[&Record]) -> f64 {
    let start = records.iter().map(|record| record.metadata.request_start_ns).min().unwrap_or(0);
    let last = |record: &&Record| {
        let latency_ms = record.number("request_latency").unwrap_or(0.0);
        record.metadata.request_start_ns + (latency_ms * 1e6) as u64
    };
    let end = records.iter().map(last).max().unwrap_or(start);
    (end - start) as f64 / 1e9
}

fn statistics(mut values: Vec<f64>, unit: &str) -> Option<Json> {
    values.sort_unstable_by(f64::total_cmp);
    let (first, last) = (*values.first()?, *values.last()?);
    let count = values.len() as f64;
    let sum: f64 = values.iter().sum();
    let mean = sum / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    let mut out = json!({
        "unit": unit, "avg": mean, "min": first, "max": last, "std": variance.sqrt(), "count": values.len(), "sum": sum,
    });
    for percent in [1_u8, 5, 10, 25, 50, 75, 90, 95, 99] {
        out[format!("p{percent}")] = json!(percentile(&values, f64::from(percent) / 100.0));
    }
    Some(out)
}

/// Linear interpolation between the two nearest ranks of sorted values.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - place.floor())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::args::tests::line;
    use super::super::exchange::{Failure, Usage};
    use super::super::record::Clock;
    use super::super::record::tests::{exchange, identity};
    use super::*;

    fn document(good: u64, bad: u64) -> Json {
        let clock = Clock::start();
        let start = Instant::now();
        let record = |index: u64, outcome| {
            let start = start + Duration::from_millis(index * 10);
            Record::new(&clock, Phase::Profiling, identity(), &exchange(start, outcome))
        };
        let usage = Usage { prompt_tokens: 100, completion_tokens: 11 };
        let failure = Failure { code: Some(500), kind: "k".to_owned(), message: "m".to_owned() };
        let records: Vec<Record> = (0..good)
            .map(|index| record(index, Ok(usage)))
            .chain((0..bad).map(|index| record(good + index, Err(failure.clone()))))
            .collect();
        let argv = line(&[]);
        summary(&ReplayArgs::parse(&argv).unwrap(), &argv, &records, Outcome { cancelled: false })
    }

    #[test]
    fn a_clean_run_has_no_error_count() {
        let document = document(10, 0);
        assert_eq!(document["request_count"], json!({"unit": "requests", "avg": 10}));
        assert_eq!(document["completed_request_count"]["avg"], 10);
        assert!(document.get("error_request_count").is_none());
        // Starts at 0, 10, … 90 ms, last chunk 60 ms later: 150 ms.
        assert!((document["benchmark_duration"]["avg"].as_f64().unwrap() - 0.15).abs() < 1e-6);
        assert!((document["output_token_throughput"]["avg"].as_f64().unwrap() - 110.0 / 0.15).abs() < 0.1);
        assert_eq!(document["inter_token_latency"]["unit"], "ms");
        assert!((document["inter_token_latency"]["p90"].as_f64().unwrap() - 5.0).abs() < 1e-9);
        assert_eq!(document["schema_version"], "1.4");
        assert_eq!(document["metadata"]["submission_valid"], false);
    }

    #[test]
    fn errors_are_counted_and_summed_up_by_kind() {
        let document = document(6, 4);
        assert_eq!(document["error_request_count"]["avg"], 4);
        assert_eq!(document["completed_request_count"]["avg"], 10);
        assert_eq!(document["request_error_rate"]["avg"], 40.0);
        let want = json!([{"error_details": {"code": 500, "type": "k", "message": "m"}, "count": 4}]);
        assert_eq!(document["error_summary"], want);
        assert_eq!(document["request_latency"]["count"], 6);
    }

    #[test]
    fn percentiles_interpolate_linearly() {
        let values = [1.0, 2.0, 3.0, 10.0];
        for (share, want) in [(0.0, 1.0), (0.5, 2.5), (0.75, 4.75), (1.0, 10.0)] {
            assert!((percentile(&values, share) - want).abs() < 1e-12);
        }
        let statistics = statistics(vec![2.0, 4.0], "ms").unwrap();
        assert_eq!((statistics["std"].as_f64(), statistics["sum"].as_f64()), (Some(1.0), Some(6.0)));
    }
}
