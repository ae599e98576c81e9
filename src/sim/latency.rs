//! The latency law: how long one step of one data-parallel rank takes.
//!
//! ```text
//! step = step-us + sequence-us · B                 B sequences decode, each by 1 token, or by 1 + accepted with drafts
//!      + C / (prefill-tokens-per-s · tp)           C uncached prompt tokens are computed, at most prefill-chunk-tokens
//!      + L / load-tokens-per-s                     L prompt tokens are loaded from a KV store beyond the GPU
//! ```
//!
//! A prompt's cached blocks cost nothing. Prompts are prefilled in order of arrival, several in a step if they fit; their
//! first token comes with the step that computes their last one. While others decode, only every
//! `--prefill-schedule-interval`-th step prefills. Requests beyond `--max-num-seqs` on a rank wait.
//! tp GPUs share the prefill work; step-us and sequence-us stand for the whole rank, whatever its size.

use super::settings::Settings;

/// Nanoseconds of the simulation.
pub type Nanos = u64;

/// The coefficients for one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    step: Nanos,
    sequence: Nanos,
    prefill_tokens_per_s: f64,
    load_tokens_per_s: f64,
}

impl Law {
    /// The law of a rank of `tensor_parallel` GPUs.
    pub fn new(settings: &Settings, tensor_parallel: u64) -> Self {
        Self {
            step: settings.step_us * 1000,
            sequence: settings.sequence_us * 1000,
            prefill_tokens_per_s: settings.prefill_tokens_per_s as f64 * tensor_parallel.max(1) as f64,
            load_tokens_per_s: settings.load_tokens_per_s as f64,
        }
    }

    /// The duration of a step.
    pub fn step(&self, decoding: usize, computed_tokens: u64, loaded_tokens: u64) -> Nanos {
        let prefill =
            computed_tokens as f64 / self.prefill_tokens_per_s + loaded_tokens as f64 / self.load_tokens_per_s;
        self.step + self.sequence * decoding as u64 + (prefill * 1e9) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_sum_of_its_terms() {
        let settings = Settings {
            step_us: 400,
            sequence_us: 60,
            prefill_tokens_per_s: 1000,
            load_tokens_per_s: 10_000,
            ..Settings::default()
        };
        let one = Law::new(&settings, 1);
        assert_eq!(one.step(0, 0, 0), 400_000);
        assert_eq!(one.step(10, 0, 0), 1_000_000);
        assert_eq!(one.step(10, 100, 0), 101_000_000);
        assert_eq!(one.step(10, 100, 1000), 201_000_000);
        // Eight GPUs compute a prompt eight times as fast; they don't load it faster.
        assert_eq!(Law::new(&settings, 8).step(10, 800, 1000), 201_000_000);
    }
}
