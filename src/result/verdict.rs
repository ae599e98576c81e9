//! Whether new runs reproduce recorded ones: an equivalence test on the logarithm of their ratio.
//!
//! Rates and times vary by factors, so values are compared as logarithms. The ratio is that of the geometric means: their
//! logarithms are what a t interval is centred on, and with up to two runs a side they are all but the medians (an interval
//! for a median needs five runs to reach 90%). The two-sided 90% interval of the log ratio is held against
//! the band [−ln(1 + b), ln(1 + b)]:
//!
//! - inside: REPRODUCED. This is Schuirmann's two one-sided tests at 5% each, as used for bioequivalence: a true ratio outside
//!   the band is called reproduced in at most 5% of cases.
//! - wholly outside: DRIFTED. A true ratio inside the band is called drifted in at most 5% of cases (on the band's edge; far
//!   less within).
//! - else INCONCLUSIVE, with the number of runs that would decide if they looked like those so far.
//!
//! | runs and history | standard error of the log ratio | degrees of freedom |
//! |---|---|---|
//! | two or more a side | √(s₁²/n + s₂²/m) (Welch) | Welch–Satterthwaite |
//! | one run on a side | s √(1/n + 1/m), s from the other side: both are taken to vary alike | n + m − 2 |
//! | with a history | the same, s pooled over history and both sides | their sum |
//! | one against one, no history | 5% a run assumed, √2 · 5% | ∞ |
//!
//! The last row is a bound on what runs of one spec differ by, not an estimate, so it may only tell what is far apart: with
//! the default band a ratio beyond about 1.146 (or below 1/1.146) is DRIFTED, and nothing is REPRODUCED by it.
//!
//! The default band for throughput, 2%, is the audit rule of the MLPerf inference policies.
//!
//! Sources: D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987) 657; B. L. Welch, Biometrika 34 (1947) 28;
//! F. E. Satterthwaite, Biometrics Bulletin 2 (1946) 110; FDA, Statistical Approaches to Establishing Bioequivalence (2001), for
//! the log scale. Knows no metric and no record.

use std::fmt;

use serde::Serialize;

use super::stats::median;
use super::student;

/// Confidence of the interval: two one-sided tests at 5%.
pub const CONFIDENCE: f64 = 0.90;
/// Default band for throughput: the audit rule of the MLPerf inference policies.
pub const DEFAULT_BAND: f64 = 0.02;
/// Spread of one run that is assumed where nothing tells it, as a standard deviation of the logarithm.
const ASSUMED_SD: f64 = 0.05;
/// More runs than this are not worth proposing.
const MOST_RUNS: u64 = 1000;
/// Further runs from which a spread can be told.
const RUNS_FOR_A_SPREAD: u64 = 2;

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Verdict {
    /// The interval lies inside the band.
    Reproduced,
    /// The interval lies wholly outside it.
    Drifted,
    /// It straddles an edge.
    Inconclusive,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Reproduced => "REPRODUCED",
            Verdict::Drifted => "DRIFTED",
            Verdict::Inconclusive => "INCONCLUSIVE",
        })
    }
}

/// How much runs of one spec vary.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Standard deviation of the natural logarithm: about the relative one.
    pub sd: f64,
    /// Degrees of freedom behind it.
    pub df: f64,
}

impl Spread {
    /// Pooled over groups of runs; the runs of a group share a spec. `None` when no group has two usable runs.
    pub fn pooled<'a>(groups: impl IntoIterator<Item = &'a [f64]>) -> Option<Self> {
        let (mut squares, mut df) = (0.0, 0.0);
        for group in groups {
            let logs: Vec<f64> = group.iter().filter(|value| usable(**value)).map(|value| value.ln()).collect();
            if logs.len() > 1 {
                squares += Sample::of(&logs).squares;
                df += logs.len() as f64 - 1.0;
            }
        }
        (df > 0.0).then(|| Self { sd: (squares / df).sqrt(), df })
    }
}

/// What the standard error rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Each side's own spread.
    Welch,
    /// One spread for both sides, from all runs and the history.
    Pooled,
    /// An assumed spread: one run against one.
    Assumed,
}

/// What would decide an inconclusive comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoreRuns {
    /// So many more new runs.
    New(u64),
    /// So many more on each side: the recorded runs are too few for new ones alone.
    EachSide(u64),
    /// So many new runs to learn the spread, which nothing tells yet.
    ToLearnSpread(u64),
    /// The ratio is too close to the band's edge for any affordable number.
    TooClose,
}

impl fmt::Display for MoreRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = |count: &u64| if *count == 1 { "run" } else { "runs" };
        match self {
            MoreRuns::New(count) => write!(f, "{count} more {} would decide", runs(count)),
            MoreRuns::EachSide(count) => write!(f, "{count} more {} on each side would decide", runs(count)),
            MoreRuns::ToLearnSpread(count) => {
                write!(f, "at least {count} more {} are needed to learn the spread", runs(count))
            }
            MoreRuns::TooClose => {
                write!(f, "the ratio is so close to the band's edge that {MOST_RUNS} more runs would not decide")
            }
        }
    }
}

/// Two sets of runs, compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Recorded runs.
    pub recorded_n: u64,
    /// New runs.
    pub new_n: u64,
    /// Median of the recorded values, in their unit.
    pub recorded_median: f64,
    /// Median of the new values.
    pub new_median: f64,
    /// New / recorded, of geometric means.
    pub ratio: f64,
    /// The 90% interval of the ratio.
    pub interval: [f64; 2],
    /// The ratios that count as equal: [1/(1 + b), 1 + b].
    pub band: [f64; 2],
    /// What the interval rests on.
    pub basis: Basis,
    /// Standard error of the log ratio.
    pub standard_error: f64,
    /// Degrees of freedom; null when infinite.
    pub df: Option<f64>,
    /// The answer.
    pub verdict: Verdict,
    /// What would decide it; null when decided.
    pub more_runs: Option<MoreRuns>,
}

/// Values that cannot be compared as a ratio.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Incomparable {
    /// A side without values.
    #[error("no {0} value")]
    Empty(&'static str),
    /// A value without a logarithm.
    #[error("{side} value {value} is not a positive number")]
    NotPositive {
        /// `recorded` or `new`.
        side: &'static str,
        /// The value.
        value: f64,
    },
    /// A band that is none.
    #[error("a band of {0} is not a positive number")]
    Band(f64),
}

fn usable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// One side's logarithms, summed up.
#[derive(Debug, Clone, Copy)]
struct Sample {
    n: f64,
    mean: f64,
    /// Sum of squared deviations.
    squares: f64,
}

impl Sample {
    fn of(logs: &[f64]) -> Self {
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        Self { n, mean, squares: logs.iter().map(|log| (log - mean).powi(2)).sum() }
    }

    fn read(side: &'static str, values: &[f64]) -> Result<Self, Incomparable> {
        if values.is_empty() {
            return Err(Incomparable::Empty(side));
        }
        if let Some(value) = values.iter().copied().find(|value| !usable(*value)) {
            return Err(Incomparable::NotPositive { side, value });
        }
        Ok(Self::of(&values.iter().map(|value| value.ln()).collect::<Vec<_>>()))
    }
}

/// How the log ratio varies, as a function of the numbers of runs.
#[derive(Debug, Clone, Copy)]
enum Model {
    /// Variance of one run on each side.
    Welch {
        recorded: f64,
        new: f64,
    },
    /// One variance; `df` beyond those of the two numbers of runs.
    Pooled {
        variance: f64,
        extra_df: f64,
    },
    Assumed,
}

impl Model {
    fn of(recorded: Sample, new: Sample, history: Option<Spread>) -> Self {
        let history = history.filter(|spread| spread.df > 0.0 && spread.sd.is_finite());
        let own_df = recorded.n + new.n - 2.0;
        match history {
            None if own_df == 0.0 => Model::Assumed,
            None if recorded.n > 1.0 && new.n > 1.0 => {
                let variance = |side: Sample| side.squares / (side.n - 1.0);
                Model::Welch { recorded: variance(recorded), new: variance(new) }
            }
            history => {
                let (past, extra_df) = history.map_or((0.0, 0.0), |spread| (spread.sd.powi(2) * spread.df, spread.df));
                let variance = (past + recorded.squares + new.squares) / (extra_df + own_df);
                Model::Pooled { variance, extra_df }
            }
        }
    }

    /// Standard error and degrees of freedom with n recorded and m new runs.
    fn error(self, n: f64, m: f64) -> (f64, f64) {
        match self {
            Model::Welch { recorded, new } => {
                let (first, second) = (recorded / n, new / m);
                let variance = first + second;
                let df = variance.powi(2) / (first.powi(2) / (n - 1.0) + second.powi(2) / (m - 1.0));
                // Without any spread the quotient is 0/0, and the interval a point.
                (variance.sqrt(), if df.is_finite() { df } else { n + m - 2.0 })
            }
            Model::Pooled { variance, extra_df } => ((variance * (1.0 / n + 1.0 / m)).sqrt(), extra_df + n + m - 2.0),
            Model::Assumed => (ASSUMED_SD * (1.0 / n + 1.0 / m).sqrt(), f64::INFINITY),
        }
    }

    /// Half the width of the interval.
    fn margin(self, n: f64, m: f64) -> f64 {
        let (error, df) = self.error(n, m);
        if error == 0.0 { 0.0 } else { error * student::quantile(0.5 + CONFIDENCE / 2.0, df) }
    }

    fn decide(self, log_ratio: f64, band: f64, margin: f64) -> Verdict {
        if log_ratio.abs() + margin <= band && !matches!(self, Model::Assumed) {
            Verdict::Reproduced
        } else if log_ratio.abs() - margin > band {
            Verdict::Drifted
        } else {
            Verdict::Inconclusive
        }
    }

    fn more_runs(self, log_ratio: f64, band: f64, n: f64, m: f64) -> MoreRuns {
        if matches!(self, Model::Assumed) {
            return MoreRuns::ToLearnSpread(RUNS_FOR_A_SPREAD);
        }
        let decided = |n: f64, m: f64| self.decide(log_ratio, band, self.margin(n, m)) != Verdict::Inconclusive;
        if let Some(count) = fewest(|count| decided(n, m + count)) {
            return MoreRuns::New(count);
        }
        fewest(|count| decided(n + count, m + count)).map_or(MoreRuns::TooClose, MoreRuns::EachSide)
    }
}

/// The least count up to [`MOST_RUNS`] that decides: exactly up to 32, to a sixteenth above. Searched upwards, because Welch's
/// margin need not shrink with every run (the degrees of freedom may move to the smaller side).
fn fewest(decides: impl Fn(f64) -> bool) -> Option<u64> {
    let counts = std::iter::successors(Some(1_u64), |count| Some(count + 1 + count.saturating_sub(16) / 16));
    counts.take_while(|count| *count <= MOST_RUNS).find(|count| decides(*count as f64))
}

/// What the runs say, before it is put for people.
struct Assessment {
    model: Model,
    n: f64,
    m: f64,
    log_ratio: f64,
    log_band: f64,
    margin: f64,
    verdict: Verdict,
}

fn assess(recorded: &[f64], new: &[f64], band: f64, history: Option<Spread>) -> Result<Assessment, Incomparable> {
    if !usable(band) {
        return Err(Incomparable::Band(band));
    }
    let (old_side, new_side) = (Sample::read("recorded", recorded)?, Sample::read("new", new)?);
    let model = Model::of(old_side, new_side, history);
    let (n, m, log_ratio, log_band) = (old_side.n, new_side.n, new_side.mean - old_side.mean, band.ln_1p());
    let margin = model.margin(n, m);
    Ok(Assessment { model, n, m, log_ratio, log_band, margin, verdict: model.decide(log_ratio, log_band, margin) })
}

/// Compares new values with recorded ones. `band` is a relative difference (0.02); `history` the spread of earlier runs of such
/// specs, if known.
///
/// # Errors
/// A side without values, a value that is not positive, or a band that is not.
pub fn compare(recorded: &[f64], new: &[f64], band: f64, history: Option<Spread>) -> Result<Comparison, Incomparable> {
    let Assessment { model, n, m, log_ratio, log_band, margin, verdict } = assess(recorded, new, band, history)?;
    let (standard_error, df) = model.error(n, m);
    Ok(Comparison {
        recorded_n: recorded.len() as u64,
        new_n: new.len() as u64,
        recorded_median: median(recorded).unwrap_or(f64::NAN),
        new_median: median(new).unwrap_or(f64::NAN),
        ratio: log_ratio.exp(),
        interval: [(log_ratio - margin).exp(), (log_ratio + margin).exp()],
        band: [1.0 / (1.0 + band), 1.0 + band],
        basis: match model {
            Model::Welch { .. } => Basis::Welch,
            Model::Pooled { .. } => Basis::Pooled,
            Model::Assumed => Basis::Assumed,
        },
        standard_error,
        df: df.is_finite().then_some(df),
        verdict,
        more_runs: (verdict == Verdict::Inconclusive).then(|| model.more_runs(log_ratio, log_band, n, m)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seeded source of runs: log-normal around `centre` with the given spread.
    struct Runs(fastrand::Rng);

    impl Runs {
        fn draw(&mut self, count: usize, centre: f64, sd: f64) -> Vec<f64> {
            let normal = |rng: &mut fastrand::Rng| {
                let (u, v) = (1.0 - rng.f64(), rng.f64());
                (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
            };
            (0..count).map(|_| centre * (sd * normal(&mut self.0)).exp()).collect()
        }
    }

    /// Shares of `trials` in which the interval covers the true ratio, and of each verdict.
    struct Shares {
        covered: f64,
        reproduced: f64,
        drifted: f64,
    }

    struct Case {
        sizes: (usize, usize),
        sds: (f64, f64),
        history: Option<f64>,
    }

    const TRIALS: usize = 2500;

    fn simulate(case: &Case, ratio: f64) -> Shares {
        let mut runs = Runs(fastrand::Rng::with_seed(20_260_901));
        let mut counts = [0_usize; 3];
        for _ in 0..TRIALS {
            let recorded = runs.draw(case.sizes.0, 5000.0, case.sds.0);
            let new = runs.draw(case.sizes.1, 5000.0 * ratio, case.sds.1);
            // Ten earlier specs with two runs each.
            let past: Option<Vec<Vec<f64>>> = case.history.map(|sd| (0..10).map(|_| runs.draw(2, 77.0, sd)).collect());
            let history = past.and_then(|past| Spread::pooled(past.iter().map(Vec::as_slice)));
            let found = assess(&recorded, &new, DEFAULT_BAND, history).unwrap();
            counts[0] += usize::from((found.log_ratio - ratio.ln()).abs() <= found.margin);
            counts[1] += usize::from(found.verdict == Verdict::Reproduced);
            counts[2] += usize::from(found.verdict == Verdict::Drifted);
        }
        let share = |index: usize| counts[index] as f64 / TRIALS as f64;
        Shares { covered: share(0), reproduced: share(1), drifted: share(2) }
    }

    /// Three standard deviations of a share near `p` over the trials.
    fn noise(p: f64) -> f64 {
        3.0 * (p * (1.0 - p) / TRIALS as f64).sqrt()
    }

    /// For each way to come by a standard error: the interval covers the true ratio as often as it says (pooled ones exactly;
    /// Welch's may only err on the wide side); a ratio on or beyond the band's edge is called reproduced in at most 5%; one
    /// on the edge or inside is called drifted in at most 5%, and equal ones hardly ever.
    #[test]
    fn rates_of_wrong_verdicts_stay_within_their_bounds() {
        let case = |sizes, sds, history| Case { sizes, sds, history };
        let edge = 1.0 + DEFAULT_BAND;
        for (name, case) in [
            ("welch 5:5", case((5, 5), (0.01, 0.01), None)),
            ("welch 3:3", case((3, 3), (0.01, 0.01), None)),
            ("welch 2:2", case((2, 2), (0.004, 0.004), None)),
            ("welch 3:8, unequal spreads", case((3, 8), (0.02, 0.005), None)),
            ("pooled 1:4", case((1, 4), (0.01, 0.01), None)),
            ("pooled 3:1", case((3, 1), (0.006, 0.006), None)),
            ("history 1:1", case((1, 1), (0.006, 0.006), Some(0.006))),
            ("history 2:3", case((2, 3), (0.01, 0.01), Some(0.01))),
        ] {
            let equal = simulate(&case, 1.0);
            assert!(equal.covered >= CONFIDENCE - noise(CONFIDENCE), "{name} covers {}", equal.covered);
            let exact = !name.starts_with("welch");
            assert!(!exact || equal.covered <= CONFIDENCE + noise(CONFIDENCE), "{name} covers {}", equal.covered);
            assert!(equal.drifted <= 0.02, "{name}: {} equal ones drifted", equal.drifted);
            for ratio in [edge, 1.0 / edge] {
                let at = simulate(&case, ratio);
                assert!(at.reproduced <= 0.05 + noise(0.05), "{name}: {} at {ratio} reproduced", at.reproduced);
                assert!(at.drifted <= 0.05 + noise(0.05), "{name}: {} at {ratio} drifted", at.drifted);
            }
            let beyond = simulate(&case, 1.03);
            assert!(beyond.reproduced <= 0.05 + noise(0.05), "{name}: {} beyond reproduced", beyond.reproduced);
        }
    }

    #[test]
    fn enough_runs_tell_equal_from_different() {
        let case = Case { sizes: (5, 5), sds: (0.005, 0.005), history: None };
        let (equal, different) = (simulate(&case, 1.0).reproduced, simulate(&case, 0.95).drifted);
        assert!(equal > 0.95 && different > 0.95, "{equal}, {different}");
        let one = Case { sizes: (1, 1), sds: (0.004, 0.004), history: Some(0.004) };
        assert!(simulate(&one, 1.0).reproduced > 0.8);
    }

    /// ln 100, ln 110 against ln 121, ln 133.1: means differ by 2 ln 1.1; each variance is (ln 1.1)²/2, so that the error is
    /// ln 1.1 /√2 with exactly 2 degrees of freedom, and t = 2.919986.
    #[test]
    fn welch_by_hand() {
        let comparison = compare(&[100.0, 110.0], &[121.0, 133.1], 0.02, None).unwrap();
        let step = 1.1_f64.ln();
        assert_eq!(
            (comparison.basis, comparison.recorded_median, comparison.new_median),
            (Basis::Welch, 105.0, 127.05)
        );
        assert!((comparison.ratio - 1.21).abs() < 1e-9);
        assert!((comparison.standard_error - step / 2.0_f64.sqrt()).abs() < 1e-12);
        assert!((comparison.df.unwrap() - 2.0).abs() < 1e-9);
        let margin = 2.919_985_58 * step / 2.0_f64.sqrt();
        assert!((comparison.interval[0] - (2.0 * step - margin).exp()).abs() < 1e-6);
        assert!((comparison.interval[1] - (2.0 * step + margin).exp()).abs() < 1e-6);
        assert_eq!(comparison.verdict, Verdict::Inconclusive);
    }

    /// One against two: variance 2 · 0.01² on one degree of freedom, error s √1.5, t = 6.313752.
    #[test]
    fn one_run_borrows_the_spread_of_the_other_side() {
        let new = [(-0.01_f64).exp(), 0.01_f64.exp()];
        let comparison = compare(&[1.0], &new, 0.02, None).unwrap();
        assert_eq!((comparison.basis, comparison.df), (Basis::Pooled, Some(1.0)));
        let error = (2.0 * 0.01_f64.powi(2) * 1.5).sqrt();
        assert!((comparison.standard_error - error).abs() < 1e-12);
        assert!((comparison.interval[1].ln() - 6.313_751_5 * error).abs() < 1e-6);
    }

    #[test]
    fn one_against_one_without_history_is_inconclusive_unless_far_apart() {
        for (new, verdict) in [
            (100.0, Verdict::Inconclusive),
            (113.0, Verdict::Inconclusive),
            (114.5, Verdict::Inconclusive),
            (115.0, Verdict::Drifted),
            (87.5, Verdict::Inconclusive),
            (87.0, Verdict::Drifted),
        ] {
            let comparison = compare(&[100.0], &[new], DEFAULT_BAND, None).unwrap();
            assert_eq!((comparison.verdict, comparison.basis), (verdict, Basis::Assumed), "{new}");
            let inconclusive = verdict == Verdict::Inconclusive;
            assert_eq!(comparison.more_runs, inconclusive.then_some(MoreRuns::ToLearnSpread(2)));
        }
        // Not even with a band so wide that the assumed interval fits into it.
        assert_eq!(compare(&[100.0], &[100.0], 0.5, None).unwrap().verdict, Verdict::Inconclusive);
    }

    #[test]
    fn a_history_decides_one_against_one() {
        let history = Some(Spread { sd: 0.003, df: 20.0 });
        let verdict = |new: f64| compare(&[100.0], &[new], DEFAULT_BAND, history).unwrap().verdict;
        assert_eq!(verdict(100.5), Verdict::Reproduced);
        assert_eq!(verdict(102.0), Verdict::Inconclusive);
        assert_eq!(verdict(103.5), Verdict::Drifted);
    }

    #[test]
    fn the_proposed_number_of_runs_is_the_least_that_would_decide() {
        const RECORDED: [f64; 4] = [100.0, 100.5, 99.7, 100.1];
        const NEW: [f64; 2] = [100.2, 101.9];
        let comparison = compare(&RECORDED, &NEW, DEFAULT_BAND, None).unwrap();
        let Some(MoreRuns::New(count)) = comparison.more_runs else { panic!("{comparison:?}") };
        let (old, new) = (Sample::read("", &RECORDED).unwrap(), Sample::read("", &NEW).unwrap());
        let model = Model::of(old, new, None);
        let after = |more: u64| {
            model.decide(new.mean - old.mean, DEFAULT_BAND.ln_1p(), model.margin(old.n, new.n + more as f64))
        };
        assert_ne!(after(count), Verdict::Inconclusive);
        assert_eq!(after(count - 1), Verdict::Inconclusive);
        assert!(comparison.more_runs.unwrap().to_string().ends_with("would decide"));

        // One noisy recorded run: no number of new ones makes up for it.
        let history = Some(Spread { sd: 0.02, df: 30.0 });
        let alone = compare(&[100.0], &[100.1, 99.9], DEFAULT_BAND, history).unwrap();
        assert!(matches!(alone.more_runs, Some(MoreRuns::EachSide(_))), "{alone:?}");
        let edge = compare(&[100.0, 101.0], &[102.0, 103.02], DEFAULT_BAND, None).unwrap();
        assert_eq!(edge.more_runs, Some(MoreRuns::TooClose));
    }

    #[test]
    fn swapping_the_sides_inverts_the_ratio_and_keeps_the_verdict() {
        let mut runs = Runs(fastrand::Rng::with_seed(7));
        for _ in 0..200 {
            let (old, new) = (runs.draw(3, 10.0, 0.01), runs.draw(2, 10.15, 0.004));
            let there = compare(&old, &new, DEFAULT_BAND, None).unwrap();
            let back = compare(&new, &old, DEFAULT_BAND, None).unwrap();
            assert_eq!(there.verdict, back.verdict);
            assert!((there.ratio * back.ratio - 1.0).abs() < 1e-12);
            assert!((there.interval[0] * back.interval[1] - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn equal_values_are_a_point_and_senseless_ones_are_refused() {
        let same = compare(&[5.0, 5.0], &[5.0, 5.0], DEFAULT_BAND, None).unwrap();
        assert_eq!((same.verdict, same.interval), (Verdict::Reproduced, [1.0, 1.0]));
        assert_eq!(compare(&[], &[1.0], 0.02, None), Err(Incomparable::Empty("recorded")));
        let zero = compare(&[1.0], &[0.0], 0.02, None).unwrap_err();
        assert_eq!(zero.to_string(), "new value 0 is not a positive number");
        assert!(compare(&[1.0], &[f64::NAN], 0.02, None).is_err());
        assert!(compare(&[1.0], &[1.0], 0.0, None).is_err());
        assert_eq!(Spread::pooled([[1.0].as_slice(), &[]]), None);
    }
}
