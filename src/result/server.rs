//! Counter readings to server metrics: the formulas, pure. See the fields of [`ServerMetrics`] for what each one is.

use std::collections::BTreeMap;

use super::counters::{self, Readings, Span};
use super::document::{CacheMetrics, KvMetrics, ServerMetrics, SpeculativeMetrics, Window, WindowSpan};
use super::engine::{Names, kv_pool_tokens};
use super::error::RawError;
use super::samples::Samples;
use super::stats::{Statistics, mean, ratio};
use crate::spec::{Deployment, Engine};

/// Server metrics from the counter layer; `None` when the job has no engine. `samples` give the profiling phase; without
/// them (an eval) the whole run counts.
///
/// # Errors
/// A malformed layer.
pub fn server_metrics(
    deployment: &Deployment,
    layer: Option<&[u8]>,
    logs: &[&[u8]],
    samples: Option<&Samples>,
) -> Result<Option<ServerMetrics>, RawError> {
    let mut engines = BTreeMap::new();
    let mut kinds: Vec<Engine> = Vec::new();
    for service in &deployment.services {
        if let Some(kind) = service.engine {
            engines.insert(service.name.as_str(), service.replicas);
            kinds.push(kind);
        }
    }
    kinds.dedup();
    let Some(engine) = kinds.first().copied() else { return Ok(None) };
    let pool_tokens = kv_pool_tokens(logs);
    let unavailable = |reason: String| Ok(Some(ServerMetrics::unavailable(engine, reason, pool_tokens)));
    if kinds.len() > 1 {
        return unavailable("the job mixes engines of several kinds".to_owned());
    }
    let Some(layer) = layer else { return unavailable("no counter samples were recorded".to_owned()) };
    let Some(names) = Names::of(engine) else {
        return unavailable(format!("no metric names are known for this engine ({engine:?})"));
    };
    let span = match samples.map(|samples| samples.phase) {
        Some(Some((start, end))) => Span::Phase(start, end),
        Some(None) => return unavailable("no profiling request was made".to_owned()),
        None => Span::WholeRun,
    };
    match counters::read(layer, &engines, names, span)? {
        Ok(readings) => {
            let last_warmup = samples.and_then(|samples| samples.last_warmup_end_ns);
            let clean = span != Span::WholeRun && last_warmup.is_none_or(|end| end <= readings.from_ns);
            Ok(Some(ServerMetrics::of(engine, &readings, names, span, clean, pool_tokens)))
        }
        Err(fault) => unavailable(fault.to_string()),
    }
}

/// A counter's increase as a count.
fn count(value: f64) -> u64 {
    value.round() as u64
}

impl ServerMetrics {
    fn unavailable(engine: Engine, reason: String, pool_tokens: Option<u64>) -> Self {
        Self {
            engine,
            unavailable: Some(reason),
            window: None,
            speculative: None,
            cache: CacheMetrics::default(),
            kv_cache: KvMetrics { usage: Statistics::default(), pool_tokens },
            prompt_tokens: None,
            prompt_tokens_by_source: BTreeMap::new(),
            generation_tokens: None,
            requests_finished: BTreeMap::new(),
            preemptions: None,
            running: Statistics::default(),
            waiting: Statistics::default(),
        }
    }

    fn of(
        engine: Engine,
        readings: &Readings,
        names: &Names,
        span: Span,
        clean: bool,
        pool_tokens: Option<u64>,
    ) -> Self {
        let total = |name: &str| readings.increase(name).map(count);
        let by = |name: &str, label: &str| {
            let sums = readings.increase_by(name, label).into_iter();
            sums.map(|(value, increase)| (value.to_owned(), count(increase))).collect()
        };
        let gauge = |name: &str, over: fn(&[f64]) -> f64| {
            Statistics::of(readings.gauge(name).iter().map(|series| over(series)).collect())
        };
        let sum = |series: &[f64]| series.iter().sum();
        Self {
            engine,
            unavailable: None,
            window: Some(Window {
                span: match span {
                    Span::Phase(..) => WindowSpan::Profiling,
                    Span::WholeRun => WindowSpan::WholeRun,
                },
                from_ns: readings.from_ns,
                to_ns: readings.to_ns,
                scrapes: readings.scrapes,
                processes: readings.processes,
                clean,
            }),
            speculative: speculative(readings, names),
            cache: cache(readings, names),
            kv_cache: KvMetrics { usage: gauge(names.kv_usage, mean), pool_tokens },
            prompt_tokens: total(names.prompt),
            prompt_tokens_by_source: by(names.prompt_by_source, "source"),
            generation_tokens: total(names.generation),
            requests_finished: by(names.finished, "finished_reason"),
            preemptions: total(names.preemptions),
            running: gauge(names.running, sum),
            waiting: gauge(names.waiting, sum),
        }
    }
}

fn speculative(readings: &Readings, names: &Names) -> Option<SpeculativeMetrics> {
    let (drafts, accepted) = (readings.increase(names.drafts)?, readings.increase(names.accepted)?);
    let draft_tokens = readings.increase(names.draft_tokens);
    let mut positions: Vec<(u64, f64)> = readings
        .increase_by(names.accepted_by_position, "position")
        .into_iter()
        .filter_map(|(position, accepted)| Some((position.parse().ok()?, ratio(accepted, drafts)?)))
        .collect();
    positions.sort_unstable_by_key(|(position, _)| *position);
    // Only an unbroken run from 0 can be told by index.
    let unbroken = positions.iter().zip(0..).take_while(|((position, _), index)| position == index).count();
    Some(SpeculativeMetrics {
        drafts: count(drafts),
        draft_tokens: draft_tokens.map(count),
        accepted_tokens: count(accepted),
        acceptance_length: ratio(accepted, drafts).map(|accepted| 1.0 + accepted),
        acceptance_rate: draft_tokens.and_then(|drafted| ratio(accepted, drafted)),
        acceptance_by_position: positions.into_iter().take(unbroken).map(|(_, share)| share).collect(),
    })
}

fn cache(readings: &Readings, names: &Names) -> CacheMetrics {
    let (queries, hits) = (readings.increase(names.cache_queries), readings.increase(names.cache_hits));
    let external = (readings.increase(names.external_queries), readings.increase(names.external_hits));
    let rate = |hits: Option<f64>, queries: Option<f64>| ratio(hits?, queries?);
    CacheMetrics {
        gpu_queries: queries.map(count),
        gpu_hits: hits.map(count),
        external_queries: external.0.map(count),
        external_hits: external.1.map(count),
        gpu_hit_rate: rate(hits, queries),
        external_hit_rate: rate(external.1, external.0),
        overall_hit_rate: rate(hits.map(|hits| hits + external.1.unwrap_or(0.0)), queries),
    }
}
