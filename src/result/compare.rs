//! Results of one spec side by side: the headline metrics, their bands, and the verdict over all.
//!
//! One metric is decisive: throughput per GPU (of an eval, the score). Several decisive ones would be wrong more often than
//! the 5% that [`super::verdict`] promises. The others are advisory: shown with their own verdicts, deciding nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use super::document::{Latency, ResultDoc};
use super::verdict::{self, Comparison, DEFAULT_BAND, MoreRuns, Spread, Verdict};

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Higher values.
    Higher,
    /// Lower values.
    Lower,
}

/// A headline metric.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Headline {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which way is better.
    pub direction: Direction,
    /// Whether it decides the verdict.
    pub decisive: bool,
    /// Relative difference that counts as none.
    pub band: f64,
    /// Where the band comes from.
    pub band_source: &'static str,
    /// Reads it.
    #[serde(skip)]
    pub value: fn(&ResultDoc) -> Option<f64>,
}

const MLPERF: &str = "audit rule of the MLPerf inference policies";
const ADVISORY: &str = "default, advisory";

const fn advisory(
    name: &'static str,
    unit: &'static str,
    direction: Direction,
    band: f64,
    value: fn(&ResultDoc) -> Option<f64>,
) -> Headline {
    Headline { name, unit, direction, decisive: false, band, band_source: ADVISORY, value }
}

fn latency(result: &ResultDoc) -> Option<&Latency> {
    result.requests.as_ref().map(|requests| &requests.latency)
}

/// The headline metrics: medians within 5%, tails within 10%.
pub const HEADLINES: [Headline; 11] = [
    Headline {
        name: "total throughput per GPU",
        unit: "tok/s/GPU",
        direction: Direction::Higher,
        decisive: true,
        band: DEFAULT_BAND,
        band_source: MLPERF,
        value: |result| result.requests.as_ref()?.throughput.total_tok_per_s_per_gpu,
    },
    Headline {
        name: "eval score",
        unit: "share resolved",
        direction: Direction::Higher,
        decisive: true,
        band: 0.05,
        band_source: "default",
        value: |result| result.eval.as_ref()?.score,
    },
    Headline {
        name: "output throughput per GPU",
        unit: "tok/s/GPU",
        direction: Direction::Higher,
        decisive: false,
        band: DEFAULT_BAND,
        band_source: MLPERF,
        value: |result| result.requests.as_ref()?.throughput.output_tok_per_s_per_gpu,
    },
    advisory("interactivity p50", "tok/s/user", Direction::Higher, 0.05, |result| latency(result)?.interactivity.p50),
    advisory("e2e interactivity p90", "tok/s/user", Direction::Higher, 0.10, |result| {
        latency(result)?.e2e_interactivity.p90
    }),
    advisory("TTFT p50", "s", Direction::Lower, 0.05, |result| latency(result)?.ttft_s.p50),
    advisory("TTFT p95", "s", Direction::Lower, 0.10, |result| latency(result)?.ttft_s.p95),
    advisory("ITL p50", "s", Direction::Lower, 0.05, |result| latency(result)?.itl_s.p50),
    advisory("ITL p95", "s", Direction::Lower, 0.10, |result| latency(result)?.itl_s.p95),
    advisory("E2EL p50", "s", Direction::Lower, 0.05, |result| latency(result)?.e2el_s.p50),
    advisory("E2EL p95", "s", Direction::Lower, 0.10, |result| latency(result)?.e2el_s.p95),
];

/// A headline metric of two results.
#[derive(Debug, Clone, Serialize)]
pub struct MetricPair {
    /// Which.
    #[serde(flatten)]
    pub headline: Headline,
    /// Recorded; null when unknown.
    pub recorded: Option<f64>,
    /// New; null when unknown.
    pub new: Option<f64>,
    /// New / recorded; null when either is unknown or zero.
    pub ratio: Option<f64>,
}

/// The headline metrics of two results that at least one of them has.
pub fn compare_metrics(recorded: &ResultDoc, new: &ResultDoc) -> Vec<MetricPair> {
    HEADLINES
        .into_iter()
        .map(|headline| {
            let (recorded, new) = ((headline.value)(recorded), (headline.value)(new));
            let ratio = recorded.zip(new).and_then(|(recorded, new)| super::stats::ratio(new, recorded));
            MetricPair { headline, recorded, new, ratio }
        })
        .filter(|pair| pair.recorded.is_some() || pair.new.is_some())
        .collect()
}

/// A headline metric over all runs.
#[derive(Debug, Clone, Serialize)]
pub struct MetricVerdict {
    /// Which.
    #[serde(flatten)]
    pub headline: Headline,
    /// How it compares; null when it does not.
    pub comparison: Option<Comparison>,
    /// Why it does not compare; null when it does.
    pub incomparable: Option<String>,
}

/// Runs of one spec, compared in every headline metric.
#[derive(Debug, Clone, Serialize)]
pub struct Reproduction {
    /// Every metric that any of the runs has.
    pub metrics: Vec<MetricVerdict>,
    /// Drifted if a decisive metric drifted; reproduced if all are; else inconclusive.
    pub verdict: Verdict,
    /// What would decide it; null when decided, and when there is no decisive metric to compare.
    pub more_runs: Option<MoreRuns>,
}

/// The spread of each headline metric over groups of earlier runs; the runs of a group share a spec.
pub fn history(groups: &[Vec<&ResultDoc>]) -> BTreeMap<&'static str, Spread> {
    let spread = |headline: &Headline| {
        let values: Vec<Vec<f64>> = groups.iter().map(|group| values(headline, group)).collect();
        Spread::pooled(values.iter().map(Vec::as_slice)).map(|spread| (headline.name, spread))
    };
    HEADLINES.iter().filter_map(spread).collect()
}

fn values(headline: &Headline, results: &[&ResultDoc]) -> Vec<f64> {
    results.iter().filter_map(|result| (headline.value)(result)).collect()
}

/// Compares new runs with recorded ones of the same spec. Runs that lack a metric are left out of it alone.
pub fn reproduction(
    recorded: &[&ResultDoc],
    new: &[&ResultDoc],
    history: &BTreeMap<&'static str, Spread>,
) -> Reproduction {
    let mut metrics = Vec::new();
    for headline in HEADLINES {
        let (old, fresh) = (values(&headline, recorded), values(&headline, new));
        if old.is_empty() && fresh.is_empty() {
            continue;
        }
        let result = verdict::compare(&old, &fresh, headline.band, history.get(headline.name).copied());
        let incomparable = result.as_ref().err().map(ToString::to_string);
        metrics.push(MetricVerdict { headline, comparison: result.ok(), incomparable });
    }
    let decisive: Vec<&MetricVerdict> = metrics.iter().filter(|metric| metric.headline.decisive).collect();
    let verdict_of =
        |metric: &&MetricVerdict| metric.comparison.as_ref().map_or(Verdict::Inconclusive, |found| found.verdict);
    let verdict = if decisive.iter().any(|metric| verdict_of(metric) == Verdict::Drifted) {
        Verdict::Drifted
    } else if !decisive.is_empty() && decisive.iter().all(|metric| verdict_of(metric) == Verdict::Reproduced) {
        Verdict::Reproduced
    } else {
        Verdict::Inconclusive
    };
    let undecided = decisive.iter().filter_map(|metric| metric.comparison.as_ref()?.more_runs).next();
    Reproduction { verdict, more_runs: undecided.filter(|_| verdict == Verdict::Inconclusive), metrics }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::a_result;

    /// A result whose throughput is `factor` times the usual one.
    fn result(factor: f64) -> ResultDoc {
        let mut result = a_result();
        let throughput = &mut result.requests.as_mut().unwrap().throughput;
        throughput.total_tok_per_s_per_gpu = Some(400.0 * factor);
        result
    }

    fn verdict(recorded: &[f64], new: &[f64], history: &BTreeMap<&'static str, Spread>) -> Reproduction {
        let [recorded, new] = [recorded, new].map(|factors| factors.iter().copied().map(result).collect::<Vec<_>>());
        reproduction(&recorded.iter().collect::<Vec<_>>(), &new.iter().collect::<Vec<_>>(), history)
    }

    #[test]
    fn pairs_hold_both_values_and_their_ratio() {
        let pairs = compare_metrics(&result(1.0), &result(1.5));
        let first = &pairs[0];
        assert_eq!((first.headline.name, first.headline.decisive), ("total throughput per GPU", true));
        assert_eq!((first.recorded, first.new, first.ratio), (Some(400.0), Some(600.0), Some(1.5)));
        assert!(pairs.iter().all(|pair| pair.headline.name != "eval score"), "nobody has one");
        assert_eq!(pairs.iter().filter(|pair| pair.headline.decisive).count(), 1);
        let json = serde_json::to_value(first).unwrap();
        assert_eq!((json["unit"].as_str(), json["band"].as_f64()), (Some("tok/s/GPU"), Some(0.02)));
    }

    #[test]
    fn throughput_decides() {
        let none = BTreeMap::new();
        let three = verdict(&[1.0, 1.001, 0.999], &[1.002, 1.001, 1.0], &none);
        assert_eq!((three.verdict, three.more_runs), (Verdict::Reproduced, None));
        assert_eq!(verdict(&[1.0, 1.001], &[0.95, 0.951], &none).verdict, Verdict::Drifted);
        let one = verdict(&[1.0], &[1.0], &none);
        assert_eq!((one.verdict, one.more_runs), (Verdict::Inconclusive, Some(MoreRuns::ToLearnSpread(2))));
    }

    #[test]
    fn tails_are_advisory() {
        let mut slow = result(1.0);
        slow.requests.as_mut().unwrap().latency.ttft_s.p95 = Some(1e6);
        let (old, history) = (result(1.0), spreads(0.002));
        let found = reproduction(&[&old], &[&slow], &history);
        let drifted = found.metrics.iter().find(|metric| metric.headline.name == "TTFT p95").unwrap();
        assert_eq!(drifted.comparison.as_ref().unwrap().verdict, Verdict::Drifted);
        assert_eq!(found.verdict, Verdict::Reproduced);
    }

    fn spreads(sd: f64) -> BTreeMap<&'static str, Spread> {
        let runs: Vec<ResultDoc> =
            (0..20).map(|index| result(if index % 2 == 0 { 1.0 + sd } else { 1.0 - sd })).collect();
        history(&runs.chunks(4).map(|group| group.iter().collect()).collect::<Vec<_>>())
    }

    /// Five groups of four: 15 degrees of freedom, squares 20 · (0.01)², hence √(0.002/15).
    #[test]
    fn the_history_is_pooled_over_groups() {
        let spread = spreads(0.01)["total throughput per GPU"];
        assert_eq!(spread.df, 15.0);
        assert!((spread.sd - (20.0 * 0.0001_f64 / 15.0).sqrt()).abs() < 1e-6, "{spread:?}");
        assert!(history(&[vec![&result(1.0)]]).is_empty());
    }

    #[test]
    fn a_run_without_the_decisive_metric_is_inconclusive() {
        let mut bare = result(1.0);
        bare.requests.as_mut().unwrap().throughput.total_tok_per_s_per_gpu = None;
        let found = reproduction(&[&result(1.0)], &[&bare], &BTreeMap::new());
        assert_eq!((found.verdict, found.more_runs), (Verdict::Inconclusive, None));
        assert_eq!(found.metrics[0].incomparable.as_deref(), Some("no new value"));
        let nothing = ResultDoc { requests: None, server: None, ..result(1.0) };
        assert_eq!(reproduction(&[&nothing], &[&nothing], &BTreeMap::new()).verdict, Verdict::Inconclusive);
    }
}
