//! Summary statistics of a set of numbers, as the dashboard's formulas want them.
//!
//! Percentiles interpolate linearly between order statistics (numpy's default, type 7 of Hyndman and Fan 1996); the standard
//! deviation is the population's. Values are sorted before anything is summed, so that the order of rows cannot change a
//! last digit. Knows nothing of requests.

use serde::{Deserialize, Serialize};

/// Mean, four percentiles and population standard deviation, in the unit of the field that holds it; null without samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// How many values it is made of.
    pub samples: u64,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 75th percentile.
    pub p75: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// Population standard deviation.
    pub std: Option<f64>,
}

/// `None` for what JSON cannot say (NaN, infinities).
pub fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// `numerator / denominator`, `None` when the denominator is zero or the quotient is not finite.
pub fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    if denominator == 0.0 { None } else { finite(numerator / denominator) }
}

/// The mean of some values; NaN for none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The population standard deviation; NaN for no values.
pub fn population_std(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// The `q`th quantile (0 to 1) of ascending values; NaN for no values.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = (place.floor() as usize).min(last);
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    let share = place - below as f64;
    // From the nearer end, so that share 1 gives exactly `high` (numpy does the same).
    if share >= 0.5 { high - (high - low) * (1.0 - share) } else { low + (high - low) * share }
}

/// The median of values in any order; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    finite(quantile(&sorted, 0.5))
}

impl Statistics {
    /// Of these values, in any order.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        Self::of_sorted(&values)
    }

    fn of_sorted(values: &[f64]) -> Self {
        let at = |q| finite(quantile(values, q));
        Self {
            samples: values.len() as u64,
            mean: finite(mean(values)),
            p50: at(0.50),
            p75: at(0.75),
            p90: at(0.90),
            p95: at(0.95),
            std: finite(population_std(values)),
        }
    }

    /// Of the speeds that belong to these (positive) times per token: each figure is the reciprocal of the time's figure, so
    /// that p90 is the speed which 90% of the requests reach; the standard deviation is that of the reciprocals.
    pub fn of_reciprocals(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let times = Self::of_sorted(&values);
        let mut speeds: Vec<f64> = values.iter().map(|time| 1.0 / time).collect();
        speeds.reverse();
        let invert = |figure: Option<f64>| figure.and_then(|time| ratio(1.0, time));
        Self {
            samples: times.samples,
            mean: invert(times.mean),
            p50: invert(times.p50),
            p75: invert(times.p75),
            p90: invert(times.p90),
            p95: invert(times.p95),
            std: finite(population_std(&speeds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: ranks 0.9·3 = 2.7 and 0.75·3 = 2.25 between 3 and 10; mean 16/4; deviations 3, 2, 1, 6: variance 50/4.
    #[test]
    fn figures_are_those_computed_by_hand() {
        let figures = Statistics::of(vec![10.0, 1.0, 3.0, 2.0]);
        assert_eq!(figures.samples, 4);
        assert_eq!(figures.mean, Some(4.0));
        assert_eq!(figures.p50, Some(2.5));
        assert_eq!(figures.p75, Some(3.0 + 7.0 * 0.25));
        assert!((figures.p90.unwrap() - 7.9).abs() < 1e-12);
        assert!((figures.p95.unwrap() - 8.95).abs() < 1e-12);
        assert_eq!(figures.std, Some(12.5_f64.sqrt()));
    }

    #[test]
    fn one_value_is_every_percentile_and_none_is_null() {
        let one = Statistics::of(vec![0.25]);
        assert_eq!([one.mean, one.p50, one.p75, one.p90, one.p95], [Some(0.25); 5]);
        assert_eq!(one.std, Some(0.0));
        assert_eq!(Statistics::of(Vec::new()), Statistics::default());
    }

    /// Times 0.5 and 0.25 s: median 0.375 → 8/3; p90 0.475 → 1/0.475; speeds 2 and 4: std 1.
    #[test]
    fn speeds_are_reciprocals_of_the_times_figures() {
        let speeds = Statistics::of_reciprocals(vec![0.5, 0.25]);
        assert_eq!(speeds.p50, Some(1.0 / 0.375));
        assert_eq!(speeds.mean, Some(1.0 / 0.375));
        assert!((speeds.p90.unwrap() - 1.0 / 0.475).abs() < 1e-12);
        assert_eq!(speeds.std, Some(1.0));
    }

    #[test]
    fn what_is_not_finite_is_null() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(f64::INFINITY, 1.0), None);
        assert_eq!(serde_json::to_value(Statistics::default()).unwrap()["mean"], serde_json::Value::Null);
    }
}
