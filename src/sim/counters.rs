//! What the engine counts, and its `/metrics` page under vLLM's names and labels.
//!
//! Counters are kept per data-parallel rank, which is the label `engine`; every series also carries `model_name`.
//! Token counts: `prefix_cache_queries` and `_hits` are tokens of looked-up prompts; `external_…` the same for the KV
//! store beyond the GPU, of the tokens that the GPU did not have.

use std::fmt::Write as _;

use super::latency::Nanos;

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// The token limit ended it.
    Length,
    /// The client went away.
    Abort,
    /// The engine failed it.
    Error,
}

impl Finish {
    const ALL: [Finish; 4] = [Finish::Stop, Finish::Length, Finish::Abort, Finish::Error];

    /// As in `finished_reason` and `finish_reason`.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Abort => "abort",
            Finish::Error => "error",
        }
    }
}

/// Bucket bounds of the latency histograms, s.
const BOUNDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// A Prometheus histogram of seconds.
#[derive(Debug, Clone, Default)]
struct Histogram {
    within: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn observe(&mut self, nanos: Nanos) {
        let seconds = nanos as f64 / 1e9;
        self.count += 1;
        self.sum += seconds;
        for (within, bound) in self.within.iter_mut().zip(BOUNDS) {
            *within += u64::from(seconds <= bound);
        }
    }
}

/// The counters of one rank.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Drafts.
    pub drafts: u64,
    /// Drafted tokens.
    pub draft_tokens: u64,
    /// Accepted drafted tokens.
    pub accepted: u64,
    /// Accepted drafted tokens by position.
    pub accepted_at: Vec<u64>,
    /// Prompt tokens of requests that reached their first token.
    pub prompt_tokens: u64,
    /// Reply tokens.
    pub generation_tokens: u64,
    /// Prompt tokens looked up in the GPU's blocks.
    pub prefix_queries: u64,
    /// Prompt tokens found there.
    pub prefix_hits: u64,
    /// Prompt tokens looked up in the store.
    pub store_queries: u64,
    /// Prompt tokens found there.
    pub store_hits: u64,
    finished: [u64; Finish::ALL.len()],
    time_to_first_token: Histogram,
    queue_time: Histogram,
    latency: Histogram,
}

impl Counters {
    /// Zeros for drafts of so many tokens.
    pub fn new(drafted: u64) -> Self {
        Self { accepted_at: vec![0; drafted as usize], ..Self::default() }
    }

    pub(super) fn looked_up(&mut self, tokens: u64, hits: u64) {
        self.prefix_queries += tokens;
        self.prefix_hits += hits;
    }

    pub(super) fn store_looked_up(&mut self, tokens: u64, hits: u64) {
        self.store_queries += tokens;
        self.store_hits += hits;
    }

    pub(super) fn queued(&mut self, time: Nanos) {
        self.queue_time.observe(time);
    }

    pub(super) fn first_token(&mut self, prompt_tokens: u64, time: Nanos) {
        self.prompt_tokens += prompt_tokens;
        self.time_to_first_token.observe(time);
    }

    pub(super) fn drafted(&mut self, tokens: u64, accepted: u64) {
        self.drafts += 1;
        self.draft_tokens += tokens;
        self.accepted += accepted;
        self.accepted_at.iter_mut().take(accepted as usize).for_each(|count| *count += 1);
    }

    pub(super) fn generated(&mut self, tokens: u64) {
        self.generation_tokens += tokens;
    }

    pub(super) fn ended(&mut self, finish: Finish, time: Nanos) {
        self.latency.observe(time);
        self.finished(finish);
    }

    pub(super) fn finished(&mut self, finish: Finish) {
        self.finished[finish as usize] += 1;
    }

    /// Requests that ended so.
    pub fn finish_count(&self, finish: Finish) -> u64 {
        self.finished[finish as usize]
    }
}

/// One rank at the moment of a scrape.
#[derive(Debug)]
pub struct Snapshot<'c> {
    /// Its counters.
    pub counters: &'c Counters,
    /// Requests in the batch.
    pub running: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// The share of KV blocks in use.
    pub usage: f64,
}

/// The `/metrics` page.
#[derive(Debug)]
pub struct Page<'c> {
    /// The label `model_name`.
    pub model: &'c str,
    /// Tokens in a KV block.
    pub block_size: u64,
    /// KV blocks of a rank.
    pub blocks: usize,
    /// All ranks, in order.
    pub ranks: Vec<Snapshot<'c>>,
}

/// Label values may hold anything but these three as they are.
fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Page<'_> {
    /// The page in the text exposition format.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(16 * 1024);
        self.gauges(&mut out);
        let mut plain = |name: &str, help: &str, value: fn(&Counters) -> u64| {
            self.counter(&mut out, name, help, |counters| vec![(String::new(), value(counters))]);
        };
        plain("prompt_tokens", "Number of prefill tokens processed.", |c| c.prompt_tokens);
        plain("generation_tokens", "Number of generation tokens processed.", |c| c.generation_tokens);
        plain("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", |c| c.prefix_queries);
        plain("prefix_cache_hits", "Prompt tokens found in the prefix cache.", |c| c.prefix_hits);
        plain("external_prefix_cache_queries", "Prompt tokens looked up beyond the GPU.", |c| c.store_queries);
        plain("external_prefix_cache_hits", "Prompt tokens found beyond the GPU.", |c| c.store_hits);
        self.counter(&mut out, "prompt_tokens_by_source", "Prompt tokens by where they came from.", |c| {
            let computed = c.prefix_queries - c.prefix_hits - c.store_hits;
            [("local_compute", computed), ("local_cache_hit", c.prefix_hits), ("external_kv_transfer", c.store_hits)]
                .map(|(source, value)| (format!(",source=\"{source}\""), value))
                .to_vec()
        });
        self.counter(&mut out, "request_success", "Count of processed requests.", |counters| {
            Finish::ALL
                .map(|finish| (format!(",finished_reason=\"{}\"", finish.name()), counters.finish_count(finish)))
                .to_vec()
        });
        if self.ranks.iter().any(|rank| !rank.counters.accepted_at.is_empty()) {
            self.speculation(&mut out);
        }
        self.histogram(&mut out, "time_to_first_token_seconds", "Time to first token.", |c| &c.time_to_first_token);
        self.histogram(&mut out, "request_queue_time_seconds", "Time in the queue.", |c| &c.queue_time);
        self.histogram(&mut out, "e2e_request_latency_seconds", "Request latency.", |c| &c.latency);
        out
    }

    fn gauges(&self, out: &mut String) {
        let mut gauge = |name: &str, help: &str, value: fn(&Snapshot<'_>) -> f64| {
            head(out, name, help, "gauge");
            self.series(out, name, |rank| vec![(String::new(), value(rank))]);
        };
        gauge("num_requests_running", "Requests in execution batches.", |rank| rank.running as f64);
        gauge("num_requests_waiting", "Requests waiting to be processed.", |rank| rank.waiting as f64);
        gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", |rank| rank.usage);
        head(out, "cache_config_info", "Information of the cache config.", "gauge");
        let labels = format!(",block_size=\"{}\",num_gpu_blocks=\"{}\"", self.block_size, self.blocks);
        self.series(out, "cache_config_info", |_| vec![(labels.clone(), 1)]);
    }

    fn speculation(&self, out: &mut String) {
        let one = |value| vec![(String::new(), value)];
        self.counter(out, "spec_decode_num_drafts", "Number of spec decoding drafts.", |c| one(c.drafts));
        self.counter(out, "spec_decode_num_draft_tokens", "Number of draft tokens.", |c| one(c.draft_tokens));
        self.counter(out, "spec_decode_num_accepted_tokens", "Number of accepted tokens.", |c| one(c.accepted));
        self.counter(out, "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", |c| {
            let at = c.accepted_at.iter().enumerate();
            at.map(|(position, count)| (format!(",position=\"{position}\""), *count)).collect()
        });
    }

    fn counter(&self, out: &mut String, name: &str, help: &str, values: impl Fn(&Counters) -> Vec<(String, u64)>) {
        let name = format!("{name}_total");
        head(out, &name, help, "counter");
        self.series(out, &name, |rank| values(rank.counters));
    }

    fn series<V: std::fmt::Display>(
        &self,
        out: &mut String,
        name: &str,
        values: impl Fn(&Snapshot<'_>) -> Vec<(String, V)>,
    ) {
        let model = escape(self.model);
        for (engine, rank) in self.ranks.iter().enumerate() {
            for (labels, value) in values(rank) {
                let _ = writeln!(out, "vllm:{name}{{engine=\"{engine}\",model_name=\"{model}\"{labels}}} {value}");
            }
        }
    }

    fn histogram(&self, out: &mut String, name: &str, help: &str, value: impl Fn(&Counters) -> &Histogram) {
        head(out, name, help, "histogram");
        self.series(out, &format!("{name}_bucket"), |rank| {
            let histogram = value(rank.counters);
            let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
            let counts = histogram.within.iter().copied().chain([histogram.count]);
            bounds.zip(counts).map(|(bound, count)| (format!(",le=\"{bound}\""), count)).collect()
        });
        self.series(out, &format!("{name}_sum"), |rank| vec![(String::new(), value(rank.counters).sum)]);
        self.series(out, &format!("{name}_count"), |rank| vec![(String::new(), value(rank.counters).count)]);
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(counters: &[Counters]) -> String {
        let rank = |counters| Snapshot { counters, running: 2, waiting: 1, usage: 0.25 };
        Page { model: "org/\"m\"", block_size: 256, blocks: 512, ranks: counters.iter().map(rank).collect() }.render()
    }

    #[test]
    fn every_rank_has_its_own_series() {
        let mut second = Counters::new(3);
        second.drafted(3, 2);
        second.finished(Finish::Length);
        second.generated(7);
        let text = page(&[Counters::new(3), second]);
        for line in [
            r#"vllm:generation_tokens_total{engine="0",model_name="org/\"m\""} 0"#,
            r#"vllm:generation_tokens_total{engine="1",model_name="org/\"m\""} 7"#,
            r#"vllm:spec_decode_num_drafts_total{engine="1",model_name="org/\"m\""} 1"#,
            r#"vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="org/\"m\""} 3"#,
            r#"vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="org/\"m\""} 2"#,
            r#"vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="org/\"m\"",position="1"} 1"#,
            r#"vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="org/\"m\"",position="2"} 0"#,
            r#"vllm:request_success_total{engine="1",model_name="org/\"m\"",finished_reason="length"} 1"#,
            r#"vllm:kv_cache_usage_perc{engine="0",model_name="org/\"m\""} 0.25"#,
            r#"vllm:num_requests_running{engine="0",model_name="org/\"m\""} 2"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn without_speculation_its_counters_do_not_exist() {
        assert!(!page(&[Counters::new(0)]).contains("spec_decode"));
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let mut counters = Counters::new(0);
        for nanos in [500_000, 30_000_000, 90_000_000_000] {
            counters.first_token(1, nanos);
        }
        let text = page(&[counters]);
        for (le, count) in [("0.001", 1), ("0.025", 1), ("0.05", 2), ("60", 2), ("+Inf", 3)] {
            let line = format!(
                "vllm:time_to_first_token_seconds_bucket{{engine=\"0\",model_name=\"org/\\\"m\\\"\",le=\"{le}\"}} {count}"
            );
            assert!(text.contains(&line), "{line}");
        }
        assert!(text.contains("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"org/\\\"m\\\"\"} 3"));
    }
}
