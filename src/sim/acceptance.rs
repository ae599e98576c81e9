//! How many drafted tokens each draft gets accepted.
//!
//! **Synthetic.** For a target length A (with the bonus token) and N drafted tokens, position i from 0 is accepted with
//! probability clamp(A − 1 − i, 0, 1), the engine's minimum-variance schedule: every draft accepts ⌊A − 1⌋ tokens or one
//! more, the latter with probability frac(A − 1). Here the fraction is realized by error diffusion instead of dice: a
//! carry collects it, and a draft that fills the carry accepts one more. After n drafts the realized mean is within 1/n of A.
//!
//! **Real.** Nothing verifies in a simulation; each token is accepted with one fixed chance if all before it were.

/// Decides for one data-parallel rank.
#[derive(Debug, Clone)]
pub struct Acceptance {
    law: Law,
    drafted: u64,
}

#[derive(Debug, Clone)]
enum Law {
    Synthetic { whole: u64, fraction: f64, carry: f64 },
    Real { chance: f64, dice: fastrand::Rng },
}

impl Acceptance {
    /// The minimum-variance schedule for a length, clamped to [1, `drafted` + 1].
    pub fn synthetic(length: f64, drafted: u64) -> Self {
        let accepted = (length - 1.0).clamp(0.0, drafted as f64);
        let whole = accepted.floor();
        Self { law: Law::Synthetic { whole: whole as u64, fraction: accepted - whole, carry: 0.5 }, drafted }
    }

    /// Independent tries with one chance.
    pub fn real(chance: f64, drafted: u64, seed: u64) -> Self {
        Self { law: Law::Real { chance, dice: fastrand::Rng::with_seed(seed) }, drafted }
    }

    /// Tokens in a draft, N.
    pub fn drafted(&self) -> u64 {
        self.drafted
    }

    /// Accepted tokens of the next draft, 0 to N: the first so many positions.
    pub fn draft(&mut self) -> u64 {
        match &mut self.law {
            Law::Synthetic { whole, fraction, carry } => {
                *carry += *fraction;
                let more = *carry >= 1.0;
                *carry -= f64::from(u8::from(more));
                *whole + u64::from(more)
            }
            Law::Real { chance, dice } => (0..self.drafted).take_while(|_| dice.f64() < *chance).count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Acceptance counts per position after so many drafts.
    fn positions(mut acceptance: Acceptance, drafts: usize) -> Vec<f64> {
        let mut counts = vec![0.0; acceptance.drafted() as usize];
        for _ in 0..drafts {
            let accepted = acceptance.draft() as usize;
            counts[..accepted].iter_mut().for_each(|count| *count += 1.0);
        }
        counts
    }

    proptest! {
        /// The law of the module documentation, position by position, and the mean with it.
        #[test]
        fn positions_follow_the_minimum_variance_schedule(
            tokens in 1_u64..9, share in 0.0..=1.0, drafts in 1_usize..2000,
        ) {
            let length = 1.0 + share * tokens as f64;
            let counts = positions(Acceptance::synthetic(length, tokens), drafts);
            for (position, count) in counts.iter().enumerate() {
                let want = (length - 1.0 - position as f64).clamp(0.0, 1.0) * drafts as f64;
                prop_assert!((count - want).abs() <= 1.0 + 1e-6, "position {position}: {count} of {want}");
            }
            let realized = 1.0 + counts.iter().sum::<f64>() / drafts as f64;
            prop_assert!((realized - length).abs() <= 1.0 / drafts as f64 + 1e-6, "{realized} for {length}");
        }

        /// Lengths beyond what N drafts can give are clamped, not overrun.
        #[test]
        fn a_draft_never_accepts_more_than_it_has(length in -3.0..20.0, tokens in 1_u64..9) {
            let mut acceptance = Acceptance::synthetic(length, tokens);
            prop_assert!((0..50).all(|_| acceptance.draft() <= tokens));
        }
    }

    #[test]
    fn the_golden_length_is_met_within_two_percent_after_a_thousand_drafts() {
        let counts = positions(Acceptance::synthetic(2.49, 3), 1000);
        assert_eq!(counts, [1000.0, 490.0, 0.0]);
    }

    #[test]
    fn real_acceptance_decays_geometrically_and_repeats_under_one_seed() {
        let counts = positions(Acceptance::real(0.7, 3, 42), 20_000);
        for (position, want) in [0.7, 0.49, 0.343].into_iter().enumerate() {
            assert!((counts[position] / 20_000.0 - want).abs() < 0.02, "{counts:?}");
        }
        assert_eq!(counts, positions(Acceptance::real(0.7, 3, 42), 20_000));
    }
}
