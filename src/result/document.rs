//! `result.json`: what one run measured, in SI units.
//!
//! Every figure is derived from the raw layers by the formulas that its documentation states; what those do not tell is
//! null, and no number is ever NaN or infinite. [`FORMULAS`] rises with every change of a formula, so that stored results can
//! be told from what the current formulas would give.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::aggregate::Dataset;
use super::eval::EvalResult;
use super::stats::Statistics;
use crate::ids::JobHash;
use crate::spec::Engine;

/// Version of the formulas.
pub const FORMULAS: u32 = 1;

/// The version of this document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schema {
    /// The first.
    #[serde(rename = "ixbuild.result/v1")]
    V1,
}

/// What one run measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultDoc {
    /// The version of this document.
    pub schema: Schema,
    /// The version of the formulas that made it.
    pub formulas: u32,
    /// The job that ran.
    pub job: JobHash,
    /// Whether something stood in for the real thing.
    pub rehearsal: bool,
    /// Sessions in flight.
    pub concurrency: u64,
    /// GPUs that the job held (tp·pp·pcp on one node): the divisor of every figure per GPU.
    pub gpus: u64,
    /// What the client saw; null for an eval.
    pub requests: Option<RequestMetrics>,
    /// What the engines' counters say; null when the job has no engine.
    pub server: Option<ServerMetrics>,
    /// The score of an eval; null for a throughput run.
    pub eval: Option<EvalResult>,
}

/// What the client saw: its error-free profiling rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestMetrics {
    /// The client's version.
    pub client_version: Option<String>,
    /// What was replayed, as the client names it.
    pub dataset: Option<Dataset>,
    /// Which rows and requests counted.
    pub accounting: Accounting,
    /// First request start of the kept rows, Unix ns.
    pub start_ns: Option<u64>,
    /// Last request end of the kept rows, Unix ns.
    pub end_ns: Option<u64>,
    /// Last end − first start, s: the divisor of every throughput.
    pub duration_s: Option<f64>,
    /// Times.
    pub latency: Latency,
    /// Lengths.
    pub tokens: TokenCounts,
    /// Rates.
    pub throughput: Throughput,
    /// Requests ended in each whole second.
    pub qps: Qps,
    /// Prefix hit rate of an infinite cache on the replayed traces, 0 to 1; from the client.
    pub theoretical_cache_hit_rate: Option<f64>,
}

/// Which rows and requests counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accounting {
    /// Rows of the per-request file.
    pub rows_total: u64,
    /// Rows that the metrics are made of.
    pub rows_profiled: u64,
    /// Rows dropped as warm-up: phase present and not `profiling`.
    pub rows_warmup_dropped: u64,
    /// Profiling rows dropped for an error.
    pub rows_error_dropped: u64,
    /// Those, by error type.
    pub error_categories: BTreeMap<String, u64>,
    /// Requests that ended, failed ones included: the client's aggregate.
    pub requests_completed: u64,
    /// Requests that failed: the client's aggregate.
    pub requests_failed: u64,
    /// `requests_failed / requests_completed`; null when none ended.
    pub error_ratio: Option<f64>,
}

/// Times per request, s, and speeds, tokens/s/user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Time to first token, s; values ≤ 0 dropped.
    pub ttft_s: Statistics,
    /// End-to-end latency, s; values ≤ 0 dropped.
    pub e2el_s: Statistics,
    /// Inter-token latency, s: (E2EL − TTFT) / (OSL − 1) per request, never gaps between chunks; values ≤ 0 dropped. TPOT is
    /// the same.
    pub itl_s: Statistics,
    /// E2EL / OSL per request, s: what `e2e_interactivity` inverts.
    pub e2el_per_token_s: Statistics,
    /// 1 / ITL: at q, 1 / percentile_q(ITL); mean 1 / mean(ITL); std of 1 / ITL.
    pub interactivity: Statistics,
    /// End-to-end normalized interactivity: at q, 1 / percentile_q(E2EL / OSL) over requests that have both > 0; mean and std
    /// as above. Its p90 is the canonical x axis.
    pub e2e_interactivity: Statistics,
}

/// Lengths per request, tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Prompt tokens.
    pub input: Statistics,
    /// Generated tokens.
    pub output: Statistics,
    /// Generated tokens that were asked for.
    pub output_expected: Statistics,
    /// Sum of prompt tokens; null when no row has any.
    pub input_total: Option<u64>,
    /// Sum of generated tokens; null when no row has any.
    pub output_total: Option<u64>,
}

/// Rates over `duration_s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Kept requests/s.
    pub requests_per_s: Option<f64>,
    /// Prompt tokens/s.
    pub input_tok_per_s: Option<f64>,
    /// Generated tokens/s.
    pub output_tok_per_s: Option<f64>,
    /// Prompt and generated tokens/s.
    pub total_tok_per_s: Option<f64>,
    /// Prompt tokens/s/GPU.
    pub input_tok_per_s_per_gpu: Option<f64>,
    /// Generated tokens/s/GPU.
    pub output_tok_per_s_per_gpu: Option<f64>,
    /// Prompt and generated tokens/s/GPU.
    pub total_tok_per_s_per_gpu: Option<f64>,
}

/// Kept requests that ended in each window, from the first start on; the last, partial window is left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Qps {
    /// Length of a window, s.
    pub window_s: f64,
    /// Over the windows, requests/s.
    pub rate: Statistics,
}

/// What the engines' counters say, summed over `engine` labels and processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerMetrics {
    /// Whose names were read.
    pub engine: Engine,
    /// Why there are no figures; null when there are.
    pub unavailable: Option<String>,
    /// What the figures are differences over.
    pub window: Option<Window>,
    /// Speculative decoding; null without it.
    pub speculative: Option<SpeculativeMetrics>,
    /// Prefix caches.
    pub cache: CacheMetrics,
    /// The KV cache.
    pub kv_cache: KvMetrics,
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens by where they came from.
    pub prompt_tokens_by_source: BTreeMap<String, u64>,
    /// Generated tokens.
    pub generation_tokens: Option<u64>,
    /// Requests that ended, by reason.
    pub requests_finished: BTreeMap<String, u64>,
    /// Preemptions.
    pub preemptions: Option<u64>,
    /// Requests being computed, per engine process and scrape.
    pub running: Statistics,
    /// Requests waiting, per engine process and scrape.
    pub waiting: Statistics,
}

/// Which scrapes enclose what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// What is enclosed.
    pub span: WindowSpan,
    /// The earliest opening scrape, Unix ns.
    pub from_ns: u64,
    /// The latest closing scrape, Unix ns.
    pub to_ns: u64,
    /// Scrapes read.
    pub scrapes: u64,
    /// Engine processes.
    pub processes: u64,
    /// Whether the opening scrapes follow the end of the last warm-up request: no other traffic is in the differences.
    pub clean: bool,
}

/// What a window encloses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowSpan {
    /// First start to last end of the profiling requests.
    Profiling,
    /// Everything between the first and the last scrape: evals have no phases.
    WholeRun,
}

/// Speculative decoding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeculativeMetrics {
    /// Drafts.
    pub drafts: u64,
    /// Tokens drafted.
    pub draft_tokens: Option<u64>,
    /// Drafted tokens accepted.
    pub accepted_tokens: u64,
    /// 1 + accepted / drafts: tokens per step with the bonus token; null without drafts.
    pub acceptance_length: Option<f64>,
    /// Accepted / drafted tokens; null when none were drafted.
    pub acceptance_rate: Option<f64>,
    /// Accepted at position i / drafts, i from 0.
    pub acceptance_by_position: Vec<f64>,
}

/// Prefix caches. Hits and queries count prompt tokens; rates are null without queries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheMetrics {
    /// Tokens looked up on the GPU.
    pub gpu_queries: Option<u64>,
    /// Tokens found there.
    pub gpu_hits: Option<u64>,
    /// Tokens looked up in the external cache: what the GPU had not.
    pub external_queries: Option<u64>,
    /// Tokens found there.
    pub external_hits: Option<u64>,
    /// GPU hits / GPU queries.
    pub gpu_hit_rate: Option<f64>,
    /// External hits / external queries.
    pub external_hit_rate: Option<f64>,
    /// (GPU hits + external hits) / GPU queries: every lookup begins at the GPU.
    pub overall_hit_rate: Option<f64>,
}

/// The KV cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KvMetrics {
    /// Share in use, 0 to 1: mean over engine cores at each scrape of a process within the window.
    pub usage: Statistics,
    /// Tokens it holds, all engine cores together; from the servers' logs.
    pub pool_tokens: Option<u64>,
}
