//! Samples to request metrics: the formulas, pure. See the fields of [`RequestMetrics`] for what each one is.

use super::aggregate::Aggregate;
use super::document::{Accounting, Latency, Qps, RequestMetrics, Throughput, TokenCounts};
use super::samples::{Sample, Samples};
use super::stats::{Statistics, finite, ratio};

/// Length of a rate window, ns: the client's `--slice-duration 1.0`.
const WINDOW_NS: u64 = 1_000_000_000;

/// All request metrics of a run on so many GPUs.
pub fn request_metrics(samples: &Samples, aggregate: &Aggregate, gpus: u64) -> RequestMetrics {
    let kept = &samples.kept;
    let start_ns = kept.iter().map(|sample| sample.start_ns).min();
    let end_ns = kept.iter().map(|sample| sample.end_ns).max();
    // Ends before starts come of a clock that was set back: no duration then.
    let duration_s = start_ns.zip(end_ns).and_then(|(start, end)| end.checked_sub(start)).map(|ns| ns as f64 / 1e9);
    let tokens = token_counts(kept);
    RequestMetrics {
        client_version: aggregate.client_version.clone(),
        dataset: aggregate.dataset.clone(),
        accounting: Accounting {
            rows_total: samples.rows,
            rows_profiled: kept.len() as u64,
            rows_warmup_dropped: samples.warmup,
            rows_error_dropped: samples.errors,
            error_categories: samples.error_categories.clone(),
            requests_completed: aggregate.completed,
            requests_failed: aggregate.errors,
            error_ratio: ratio(aggregate.errors as f64, aggregate.completed as f64),
        },
        start_ns,
        end_ns,
        duration_s,
        latency: latency(kept),
        throughput: throughput(kept.len() as u64, &tokens, duration_s, gpus),
        tokens,
        qps: qps(kept, start_ns, end_ns),
        theoretical_cache_hit_rate: aggregate.theoretical_cache_hit_rate.and_then(finite),
    }
}

/// (E2EL − TTFT) / (OSL − 1), s; `None` for fewer than two tokens and for what is not positive.
fn itl_s(sample: &Sample) -> Option<f64> {
    let gaps = sample.output_tokens?.checked_sub(1).filter(|gaps| *gaps > 0)?;
    Some((sample.e2el_s? - sample.ttft_s?) / gaps as f64).filter(|itl| *itl > 0.0)
}

/// E2EL / OSL, s; both > 0.
fn e2el_per_token_s(sample: &Sample) -> Option<f64> {
    let tokens = sample.output_tokens.filter(|tokens| *tokens > 0)?;
    Some(sample.e2el_s? / tokens as f64)
}

fn latency(kept: &[Sample]) -> Latency {
    let collect = |of: fn(&Sample) -> Option<f64>| -> Vec<f64> { kept.iter().filter_map(of).collect() };
    let (itl, per_token) = (collect(itl_s), collect(e2el_per_token_s));
    Latency {
        ttft_s: Statistics::of(collect(|sample| sample.ttft_s)),
        e2el_s: Statistics::of(collect(|sample| sample.e2el_s)),
        interactivity: Statistics::of_reciprocals(itl.clone()),
        itl_s: Statistics::of(itl),
        e2e_interactivity: Statistics::of_reciprocals(per_token.clone()),
        e2el_per_token_s: Statistics::of(per_token),
    }
}

fn token_counts(kept: &[Sample]) -> TokenCounts {
    let collect = |of: fn(&Sample) -> Option<u64>| -> Vec<u64> { kept.iter().filter_map(of).collect() };
    let statistics = |counts: &[u64]| Statistics::of(counts.iter().map(|count| *count as f64).collect());
    let total = |counts: &[u64]| (!counts.is_empty()).then(|| counts.iter().copied().fold(0, u64::saturating_add));
    let (input, output) = (collect(|sample| sample.input_tokens), collect(|sample| sample.output_tokens));
    TokenCounts {
        input: statistics(&input),
        output: statistics(&output),
        output_expected: statistics(&collect(|sample| sample.expected_output_tokens)),
        input_total: total(&input),
        output_total: total(&output),
    }
}

fn throughput(requests: u64, tokens: &TokenCounts, duration_s: Option<f64>, gpus: u64) -> Throughput {
    let rate = |count: Option<u64>| ratio(count? as f64, duration_s?);
    let per_gpu = |count: Option<u64>| ratio(rate(count)?, gpus as f64);
    let (input, output) = (tokens.input_total, tokens.output_total);
    let total = input.zip(output).map(|(input, output)| input.saturating_add(output));
    Throughput {
        requests_per_s: rate((requests > 0).then_some(requests)),
        input_tok_per_s: rate(input),
        output_tok_per_s: rate(output),
        total_tok_per_s: rate(total),
        input_tok_per_s_per_gpu: per_gpu(input),
        output_tok_per_s_per_gpu: per_gpu(output),
        total_tok_per_s_per_gpu: per_gpu(total),
    }
}

fn qps(kept: &[Sample], start_ns: Option<u64>, end_ns: Option<u64>) -> Qps {
    /// More windows than this (over three years) come of a broken clock.
    const MOST_WINDOWS: u64 = 100_000_000;
    let start = start_ns.unwrap_or(0);
    let windows = end_ns.and_then(|end| end.checked_sub(start)).map_or(0, |span| span / WINDOW_NS);
    let mut ended = vec![0.0; if windows > MOST_WINDOWS { 0 } else { windows as usize }];
    for sample in kept {
        let window = sample.end_ns.saturating_sub(start) / WINDOW_NS;
        if let Some(count) = usize::try_from(window).ok().and_then(|window| ended.get_mut(window)) {
            *count += 1.0;
        }
    }
    let window_s = WINDOW_NS as f64 / 1e9;
    Qps { window_s, rate: Statistics::of(ended.into_iter().map(|count: f64| count / window_s).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn sample(start_s: u64, end_s: u64, ttft_s: f64, e2el_s: f64, input: u64, output: u64) -> Sample {
        Sample {
            start_ns: 1_700_000_000 * S + start_s * S,
            end_ns: 1_700_000_000 * S + end_s * S,
            ttft_s: Some(ttft_s),
            e2el_s: Some(e2el_s),
            input_tokens: Some(input),
            output_tokens: Some(output),
            expected_output_tokens: None,
        }
    }

    fn metrics(kept: Vec<Sample>, gpus: u64) -> RequestMetrics {
        let samples = Samples { rows: kept.len() as u64, kept, ..Samples::default() };
        request_metrics(&samples, &Aggregate::default(), gpus)
    }

    /// Two requests. ITL: (3 − 1)/(5 − 1) = 0.5 and (4 − 2)/(9 − 1) = 0.25. E2EL/OSL: 0.6 and 4/9. 10 s, 14 and 300 tokens.
    #[test]
    fn formulas_by_hand() {
        let all = metrics(vec![sample(0, 3, 1.0, 3.0, 100, 5), sample(6, 10, 2.0, 4.0, 200, 9)], 8);
        let latency = all.latency;
        assert_eq!((latency.ttft_s.mean, latency.ttft_s.std), (Some(1.5), Some(0.5)));
        assert_eq!((latency.e2el_s.p50, latency.e2el_s.p75), (Some(3.5), Some(3.75)));
        assert_eq!(
            (latency.itl_s.mean, latency.itl_s.p75, latency.itl_s.std),
            (Some(0.375), Some(0.4375), Some(0.125))
        );
        assert_eq!(latency.interactivity.p75, Some(1.0 / 0.4375));
        assert_eq!(latency.interactivity.mean, Some(1.0 / 0.375));
        assert_eq!(latency.interactivity.std, Some(1.0));
        let p90 = 4.0 / 9.0 + (0.6 - 4.0 / 9.0) * 0.9;
        assert!((latency.e2e_interactivity.p90.unwrap() - 1.0 / p90).abs() < 1e-12);
        assert!((latency.e2e_interactivity.std.unwrap() - (9.0 / 4.0 - 5.0 / 3.0) / 2.0).abs() < 1e-12);
        assert_eq!(all.duration_s, Some(10.0));
        let throughput = all.throughput;
        assert_eq!(throughput.requests_per_s, Some(0.2));
        assert_eq!(throughput.input_tok_per_s, Some(30.0));
        assert_eq!(throughput.output_tok_per_s, Some(1.4));
        assert_eq!(throughput.total_tok_per_s, Some(31.4));
        assert_eq!(throughput.total_tok_per_s_per_gpu, Some(31.4 / 8.0));
        assert_eq!((all.tokens.input.mean, all.tokens.output.p50), (Some(150.0), Some(7.0)));
        // One request ended in the fourth of ten seconds; the other at the end of the tenth, outside the whole windows.
        assert_eq!((all.qps.rate.samples, all.qps.rate.mean), (10, Some(0.1)));
    }

    #[test]
    fn requests_without_a_positive_figure_are_left_out_of_it_alone() {
        let one_token = sample(0, 1, 1.0, 1.0, 10, 1);
        let all_at_once = sample(0, 1, 1.0, 1.0, 10, 5);
        let no_tokens = sample(0, 1, 1.0, 1.0, 10, 0);
        let no_ttft = Sample { ttft_s: None, ..sample(0, 1, 1.0, 1.0, 10, 5) };
        let all = metrics(vec![one_token, all_at_once, no_tokens, no_ttft], 1);
        let latency = all.latency;
        assert_eq!((latency.itl_s.samples, latency.interactivity.p50), (0, None));
        assert_eq!((latency.ttft_s.samples, latency.e2el_s.samples, latency.e2el_per_token_s.samples), (3, 4, 3));
        assert_eq!(all.tokens.output_total, Some(11));
    }

    #[test]
    fn no_rows_give_nulls_not_numbers() {
        let all = metrics(Vec::new(), 8);
        assert_eq!((all.duration_s, all.accounting.error_ratio, all.tokens.output_total), (None, None, None));
        assert_eq!(all.throughput, Throughput::default());
        assert_eq!(all.qps.rate, Statistics::default());
    }

    fn samples() -> impl Strategy<Value = Vec<Sample>> {
        let one = (0u64..3600, 1u64..600, 1u32..100, 1u64..100_000, 0u64..5000).prop_map(
            |(start, lasts, share, input, output)| {
                let e2el = lasts as f64;
                sample(start, start + lasts, e2el * f64::from(share) / 100.0, e2el, input, output)
            },
        );
        proptest::collection::vec(one, 1..60)
    }

    fn near(left: Option<f64>, right: Option<f64>) -> bool {
        match (left, right) {
            (Some(left), Some(right)) => (left - right).abs() <= 1e-9 * left.abs().max(right.abs()).max(1e-9),
            (left, right) => left == right,
        }
    }

    proptest! {
        #[test]
        fn order_of_rows_does_not_matter((kept, other) in samples().prop_flat_map(|kept| (Just(kept.clone()), Just(kept).prop_shuffle()))) {
            prop_assert_eq!(metrics(kept, 8), metrics(other, 8));
        }

        #[test]
        fn a_run_twice_as_slow_has_twice_the_times_and_half_the_rates(kept in samples()) {
            let origin = kept.iter().map(|sample| sample.start_ns).min().unwrap();
            let stretch = |ns: u64| origin + 2 * (ns - origin);
            let slow = kept.iter().map(|sample| Sample {
                start_ns: stretch(sample.start_ns),
                end_ns: stretch(sample.end_ns),
                ttft_s: sample.ttft_s.map(|s| 2.0 * s),
                e2el_s: sample.e2el_s.map(|s| 2.0 * s),
                ..*sample
            });
            let (slow, fast) = (metrics(slow.collect(), 8), metrics(kept, 8));
            let half = |figure: Option<f64>| figure.map(|value| value / 2.0);
            prop_assert!(near(half(slow.latency.itl_s.p90), fast.latency.itl_s.p90));
            prop_assert!(near(half(slow.latency.ttft_s.std), fast.latency.ttft_s.std));
            prop_assert!(near(slow.latency.interactivity.p90, half(fast.latency.interactivity.p90)));
            prop_assert!(near(slow.latency.e2e_interactivity.std, half(fast.latency.e2e_interactivity.std)));
            prop_assert!(near(slow.throughput.total_tok_per_s, half(fast.throughput.total_tok_per_s)));
            prop_assert!(slow.tokens == fast.tokens);
        }

        #[test]
        fn twice_the_gpus_halve_what_is_per_gpu_and_nothing_else(kept in samples()) {
            let (one, two) = (metrics(kept.clone(), 4), metrics(kept, 8));
            prop_assert!(near(one.throughput.output_tok_per_s_per_gpu.map(|value| value / 2.0), two.throughput.output_tok_per_s_per_gpu));
            prop_assert_eq!(one.throughput.output_tok_per_s, two.throughput.output_tok_per_s);
            prop_assert_eq!(one.latency, two.latency);
        }

        #[test]
        fn percentiles_ascend_and_speeds_descend(kept in samples()) {
            let latency = metrics(kept, 8).latency;
            for times in [latency.ttft_s, latency.e2el_s, latency.itl_s] {
                prop_assert!(times.p50 <= times.p75 && times.p75 <= times.p90 && times.p90 <= times.p95);
            }
            for speeds in [latency.interactivity, latency.e2e_interactivity] {
                prop_assert!(speeds.p50 >= speeds.p75 && speeds.p75 >= speeds.p90 && speeds.p90 >= speeds.p95);
            }
        }
    }
}
