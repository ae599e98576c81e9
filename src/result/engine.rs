//! Which metrics an engine publishes, by what they mean.
//!
//! Only names that were seen on a real server stand here; an engine without an entry has no server metrics, and says so.

use crate::spec::Engine;

/// Metric names of one engine.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// Counter: drafts made (speculation steps).
    pub drafts: &'static str,
    /// Counter: tokens drafted.
    pub draft_tokens: &'static str,
    /// Counter: drafted tokens accepted.
    pub accepted: &'static str,
    /// Counter by `position`: drafted tokens accepted there.
    pub accepted_by_position: &'static str,
    /// Counter: prompt tokens.
    pub prompt: &'static str,
    /// Counter by `source`: prompt tokens computed or found in a cache.
    pub prompt_by_source: &'static str,
    /// Counter: tokens generated.
    pub generation: &'static str,
    /// Counter by `finished_reason`: requests that ended.
    pub finished: &'static str,
    /// Counter: requests preempted.
    pub preemptions: &'static str,
    /// Counter: prompt tokens looked up in the GPU prefix cache.
    pub cache_queries: &'static str,
    /// Counter: prompt tokens found there.
    pub cache_hits: &'static str,
    /// Counter: prompt tokens looked up in the external cache, after the GPU's.
    pub external_queries: &'static str,
    /// Counter: prompt tokens found there.
    pub external_hits: &'static str,
    /// Gauge: share of KV cache blocks in use, 0 to 1.
    pub kv_usage: &'static str,
    /// Gauge: requests being computed.
    pub running: &'static str,
    /// Gauge: requests waiting.
    pub waiting: &'static str,
}

const VLLM: Names = Names {
    drafts: "vllm:spec_decode_num_drafts_total",
    draft_tokens: "vllm:spec_decode_num_draft_tokens_total",
    accepted: "vllm:spec_decode_num_accepted_tokens_total",
    accepted_by_position: "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    prompt: "vllm:prompt_tokens_total",
    prompt_by_source: "vllm:prompt_tokens_by_source_total",
    generation: "vllm:generation_tokens_total",
    finished: "vllm:request_success_total",
    preemptions: "vllm:num_preemptions_total",
    cache_queries: "vllm:prefix_cache_queries_total",
    cache_hits: "vllm:prefix_cache_hits_total",
    external_queries: "vllm:external_prefix_cache_queries_total",
    external_hits: "vllm:external_prefix_cache_hits_total",
    kv_usage: "vllm:kv_cache_usage_perc",
    running: "vllm:num_requests_running",
    waiting: "vllm:num_requests_waiting",
};

impl Names {
    /// The names of an engine, if they are known.
    pub fn of(engine: Engine) -> Option<&'static Self> {
        match engine {
            Engine::Vllm => Some(&VLLM),
            Engine::Sglang | Engine::Trt | Engine::Atom => None,
        }
    }

    /// All counters.
    pub fn counters(&self) -> [&'static str; 13] {
        [
            self.drafts,
            self.draft_tokens,
            self.accepted,
            self.accepted_by_position,
            self.prompt,
            self.prompt_by_source,
            self.generation,
            self.finished,
            self.preemptions,
            self.cache_queries,
            self.cache_hits,
            self.external_queries,
            self.external_hits,
        ]
    }

    /// All gauges.
    pub fn gauges(&self) -> [&'static str; 3] {
        [self.kv_usage, self.running, self.waiting]
    }
}

/// Tokens that the KV cache of a server holds, from its logs: vLLM prints `GPU KV cache size: 1,234,567 tokens` once for each
/// engine core. A core is known by the prefix of its lines (`(EngineCore_DP3 pid=71)`) and its last word counts; lines
/// without a prefix are of one core each. The sum over cores and logs; `None` when no log says it.
pub fn kv_pool_tokens(logs: &[&[u8]]) -> Option<u64> {
    const MARK: &str = "GPU KV cache size: ";
    let mut total = None::<u64>;
    for log in logs {
        let text = String::from_utf8_lossy(log);
        let mut cores = std::collections::BTreeMap::new();
        for (at, _) in text.match_indices(MARK) {
            let number: String =
                text[at + MARK.len()..].chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
            let Ok(tokens) = number.replace(',', "").parse::<u64>() else { continue };
            let line = &text[text[..at].rfind('\n').map_or(0, |feed| feed + 1)..at];
            let core = line.find(')').filter(|_| line.starts_with('(')).map_or("", |end| &line[..end]);
            let key = if core.is_empty() { (core, at) } else { (core, 0) };
            cores.insert(key, tokens);
        }
        if !cores.is_empty() {
            total = Some(cores.values().fold(total.unwrap_or(0), |sum, tokens| sum.saturating_add(*tokens)));
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_summed_over_cores_and_servers() {
        let first = "(APIServer pid=1) INFO hello\n\
            (EngineCore_DP0 pid=2) INFO 08-29 [kv_cache_utils.py:1] GPU KV cache size: 1,234,567 tokens\n\
            (EngineCore_DP0 pid=2) INFO 08-29 [kv_cache_utils.py:1] GPU KV cache size: 1,000,000 tokens\n\
            (EngineCore_DP1 pid=3) INFO 08-29 [kv_cache_utils.py:1] GPU KV cache size: 500 tokens\n";
        let second = "INFO GPU KV cache size: 7 tokens\nINFO GPU KV cache size: many tokens\n";
        assert_eq!(kv_pool_tokens(&[first.as_bytes()]), Some(1_000_500));
        assert_eq!(kv_pool_tokens(&[first.as_bytes(), second.as_bytes()]), Some(1_000_507));
        assert_eq!(kv_pool_tokens(&[b"nothing"]), None);
        assert_eq!(kv_pool_tokens(&[]), None);
    }
}
