//! A line of `profile_export.jsonl`: one request, in aiperf 0.13's format.
//!
//! Times of day are Unix nanoseconds, durations milliseconds. A metric that a request does not have is absent, as are
//! empty metadata and the error of a request that had none. Formulas, with t the time since the request was sent:
//!
//! | metric | value |
//! |---|---|
//! | time_to_first_token | t of the first chunk with content |
//! | time_to_second_token | from the first to the second such chunk |
//! | request_latency | t of the last such chunk |
//! | inter_token_latency | (request_latency − time_to_first_token) / (output_sequence_length − 1) |
//! | output_token_throughput_per_user | 1 / inter_token_latency |
//! | decode_duration | request_latency − time_to_first_token |
//! | e2e_output_token_throughput | output_sequence_length / request_latency |
//! | prefill_throughput_per_user | input_sequence_length / time_to_first_token |
//! | inter_chunk_latency | list of the times between such chunks |
//! | sequence lengths, usage_* | as the server counts |

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::exchange::{Exchange, Failure, Usage};

/// Relates the monotonic clock to the time of day, once for a whole run.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    base: Instant,
    base_ns: u64,
}

impl Clock {
    /// A clock read now.
    pub fn start() -> Self {
        let base_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        Self { base: Instant::now(), base_ns }
    }

    /// Unix nanoseconds of an instant.
    pub fn ns(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.base) {
            Some(after) => self.base_ns + after.as_nanos() as u64,
            None => self.base_ns - self.base.duration_since(at).as_nanos() as u64,
        }
    }
}

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Fills the caches; not measured.
    Warmup,
    /// Measured.
    Profiling,
}

/// A line.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// What was sent, when.
    pub metadata: Metadata,
    /// Metrics by name; none for a failed request.
    pub metrics: BTreeMap<&'static str, Metric>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetails>,
}

/// What was sent, when.
#[derive(Debug, Clone, Serialize)]
pub struct Metadata {
    /// Number of the session.
    pub session_num: u64,
    /// Of this request.
    pub x_request_id: String,
    /// Of its session.
    pub x_correlation_id: String,
    /// The conversation that the session plays.
    pub conversation_id: String,
    /// From 0.
    pub turn_index: usize,
    /// Sent.
    pub request_start_ns: u64,
    /// The head of the response came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_ack_ns: Option<u64>,
    /// Over.
    pub request_end_ns: u64,
    /// Which of the concurrent sessions.
    pub worker_id: String,
    /// There is but one.
    pub record_processor_id: &'static str,
    /// Warm-up or profiling.
    pub benchmark_phase: Phase,
    /// The client gave up.
    pub was_cancelled: bool,
    /// When it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation_time_ns: Option<u64>,
    /// No sub-agents here.
    pub agent_depth: u64,
}

/// A value with its unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metric {
    /// The value.
    pub value: Value,
    /// Its unit.
    pub unit: &'static str,
}

/// A number or several.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A measured number.
    Number(f64),
    /// Measured numbers.
    Numbers(Vec<f64>),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ErrorDetails {
    /// The HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// A class of failures.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    pub message: String,
}

/// Which request of which session.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Number of the session.
    pub session: u64,
    /// Of the request.
    pub request_id: String,
    /// Of the session.
    pub correlation_id: String,
    /// The conversation.
    pub conversation: String,
    /// From 0.
    pub turn: usize,
    /// Which of the concurrent sessions.
    pub lane: usize,
    /// The reply's length as asked for, tokens.
    pub requested_tokens: u64,
}

impl Record {
    /// The line of a finished exchange.
    pub fn new(clock: &Clock, phase: Phase, identity: Identity, exchange: &Exchange) -> Self {
        let failure = exchange.outcome.as_ref().err();
        let was_cancelled = failure.is_some_and(|failure| failure.code == Some(499));
        let end = clock.ns(exchange.end);
        let metrics = match &exchange.outcome {
            Ok(usage) => metrics(exchange, *usage, identity.requested_tokens),
            Err(_) => BTreeMap::new(),
        };
        let details = |failure: &Failure| ErrorDetails {
            code: failure.code,
            kind: failure.kind.clone(),
            message: failure.message.clone(),
        };
        Self {
            metadata: Metadata {
                session_num: identity.session,
                x_request_id: identity.request_id,
                x_correlation_id: identity.correlation_id,
                conversation_id: identity.conversation,
                turn_index: identity.turn,
                request_start_ns: clock.ns(exchange.start),
                request_ack_ns: exchange.ack.map(|ack| clock.ns(ack)),
                request_end_ns: end,
                worker_id: format!("worker_{}", identity.lane),
                record_processor_id: "record_processor_0",
                benchmark_phase: phase,
                was_cancelled,
                cancellation_time_ns: was_cancelled.then_some(end),
                agent_depth: 0,
            },
            metrics,
            error: failure.map(details),
        }
    }

    /// The number of a metric, if the request has it.
    pub fn number(&self, metric: &str) -> Option<f64> {
        match &self.metrics.get(metric)?.value {
            Value::Count(count) => Some(*count as f64),
            Value::Number(number) => Some(*number),
            Value::Numbers(_) => None,
        }
    }
}

fn metrics(exchange: &Exchange, usage: Usage, requested: u64) -> BTreeMap<&'static str, Metric> {
    let mut metrics = BTreeMap::new();
    let mut put = |name, value, unit| drop(metrics.insert(name, Metric { value, unit }));
    let (input, output) = (usage.prompt_tokens, usage.completion_tokens);
    for (name, count) in [
        ("input_sequence_length", input),
        ("output_sequence_length", output),
        ("output_token_count", output),
        ("requested_osl", requested),
        ("usage_prompt_tokens", input),
        ("usage_completion_tokens", output),
        ("usage_total_tokens", input + output),
    ] {
        put(name, Value::Count(count), "tokens");
    }
    let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
    let (Some(first), Some(last)) = (exchange.chunks.first(), exchange.chunks.last()) else {
        return metrics;
    };
    let (ttft, latency) = (ms(exchange.start, *first), ms(exchange.start, *last));
    put("time_to_first_token", Value::Number(ttft), "ms");
    put("request_latency", Value::Number(latency), "ms");
    put("decode_duration", Value::Number(latency - ttft), "ms");
    let mut rate = |name, count: f64, ms: f64| {
        if ms > 0.0 {
            metrics.insert(name, Metric { value: Value::Number(count / ms * 1e3), unit: "tokens/sec/user" });
        }
    };
    rate("e2e_output_token_throughput", output as f64, latency);
    rate("prefill_throughput_per_user", input as f64, ttft);
    if output > 1 {
        let itl = (latency - ttft) / (output - 1) as f64;
        rate("output_token_throughput_per_user", 1.0, itl);
        metrics.insert("inter_token_latency", Metric { value: Value::Number(itl), unit: "ms" });
    }
    let gaps: Vec<f64> = exchange.chunks.windows(2).map(|pair| ms(pair[0], pair[1])).collect();
    if let Some(second) = gaps.first() {
        metrics.insert("time_to_second_token", Metric { value: Value::Number(*second), unit: "ms" });
        metrics.insert("inter_chunk_latency", Metric { value: Value::Numbers(gaps), unit: "ms" });
    }
    metrics
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    pub fn identity() -> Identity {
        Identity {
            session: 7,
            request_id: "r".to_owned(),
            correlation_id: "c".to_owned(),
            conversation: "conversation_000007".to_owned(),
            turn: 2,
            lane: 1,
            requested_tokens: 11,
        }
    }

    /// A request with chunks at 10, 20 and 60 ms.
    pub fn exchange(start: Instant, outcome: Result<Usage, Failure>) -> Exchange {
        let at = |ms| start + Duration::from_millis(ms);
        Exchange { start, ack: Some(at(1)), chunks: [10, 20, 60].map(at).to_vec(), end: at(61), outcome }
    }

    #[test]
    fn a_line_has_aiperfs_fields_and_the_stated_formulas() {
        let clock = Clock::start();
        let usage = Usage { prompt_tokens: 100, completion_tokens: 11 };
        let record = Record::new(&clock, Phase::Profiling, identity(), &exchange(clock.base, Ok(usage)));
        let json = serde_json::to_value(&record).unwrap();
        let metadata = &json["metadata"];
        assert_eq!(metadata["benchmark_phase"], "profiling");
        assert_eq!(
            metadata["request_end_ns"].as_u64().unwrap() - metadata["request_start_ns"].as_u64().unwrap(),
            61_000_000
        );
        assert_eq!(metadata["was_cancelled"], false);
        assert!(metadata.get("cancellation_time_ns").is_none() && json.get("error").is_none());
        let metric = |name: &str| (json["metrics"][name]["value"].as_f64(), json["metrics"][name]["unit"].as_str());
        for (name, value, unit) in [
            ("time_to_first_token", 10.0, "ms"),
            ("time_to_second_token", 10.0, "ms"),
            ("request_latency", 60.0, "ms"),
            ("inter_token_latency", 5.0, "ms"),
            ("output_token_throughput_per_user", 200.0, "tokens/sec/user"),
            ("output_sequence_length", 11.0, "tokens"),
            ("input_sequence_length", 100.0, "tokens"),
            ("usage_total_tokens", 111.0, "tokens"),
        ] {
            let (found, found_unit) = metric(name);
            assert!((found.unwrap() - value).abs() < 1e-9 && found_unit == Some(unit), "{name}: {found:?}");
        }
        assert_eq!(json["metrics"]["inter_chunk_latency"]["value"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_failed_request_has_an_error_and_no_metrics() {
        let clock = Clock::start();
        let failure = Failure { code: Some(500), kind: "Internal Server Error".to_owned(), message: "x".to_owned() };
        let record = Record::new(&clock, Phase::Warmup, identity(), &exchange(clock.base, Err(failure)));
        let json = serde_json::to_value(&record).unwrap();
        assert_eq!(json["error"], serde_json::json!({"code": 500, "type": "Internal Server Error", "message": "x"}));
        assert_eq!(
            (json["metrics"].clone(), json["metadata"]["benchmark_phase"].clone()),
            (serde_json::json!({}), "warmup".into())
        );
        let given_up = exchange(clock.base, Err(Failure::cancelled("late")));
        let record = Record::new(&clock, Phase::Warmup, identity(), &given_up);
        assert!(record.metadata.was_cancelled);
        assert_eq!(record.metadata.cancellation_time_ns, Some(record.metadata.request_end_ns));
    }
}
