//! What a profile may set about the simulated services, with the defaults, and the faults that tests inject.
//!
//! One JSON object for all roles; unknown names are refused. Nothing here repeats what the real command line says.

use serde::Deserialize;

/// Settings of the simulator. Every field has a default; names are in kebab case.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Settings {
    /// A decode step with an empty batch, µs (300).
    pub step_us: u64,
    /// What each decoding sequence adds to a step, µs (60).
    pub sequence_us: u64,
    /// Prompt tokens computed a second on one GPU (200000).
    pub prefill_tokens_per_s: u64,
    /// Prompt tokens loaded a second from a KV store into one rank (2000000).
    pub load_tokens_per_s: u64,
    /// Prompt tokens that one step may prefill (8192).
    pub prefill_chunk_tokens: u64,
    /// How often the engine catches up with the clock, ms (2).
    pub tick_ms: u64,
    /// The least time between two chunks of one stream, ms (20). The first and the last chunk go out at once.
    pub chunk_ms: u64,
    /// Seed of reply lengths and of unsynthetic acceptance (0).
    pub seed: u64,
    /// KV blocks of one rank (512).
    pub cache_blocks: usize,
    /// KV blocks of a store beyond the GPU (65536).
    pub store_blocks: usize,
    /// From the start to the first healthy answer, ms (50).
    pub startup_ms: u64,
    /// Mean length of a reply that ends by itself, tokens (256).
    pub reply_tokens: u64,
    /// Without synthetic acceptance: the chance that a drafted token is accepted after all before it were (0.7).
    pub real_acceptance: f64,
    /// How long requests in flight may take after the signal to stop, ms (1000).
    pub drain_ms: u64,
    /// Fault: added to the acceptance length that the command line asks for (0).
    pub acceptance_bias: f64,
    /// Fault: the share of requests answered with status 500 (0).
    pub error_rate: f64,
    /// Fault: the engine dies when it receives the request after so many; `null` is never (null).
    pub crash_after_requests: Option<u64>,
    /// Fault: `/health` never turns healthy (false).
    pub never_ready: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            step_us: 300,
            sequence_us: 60,
            prefill_tokens_per_s: 200_000,
            load_tokens_per_s: 2_000_000,
            prefill_chunk_tokens: 8192,
            tick_ms: 2,
            chunk_ms: 20,
            seed: 0,
            cache_blocks: 512,
            store_blocks: 65_536,
            startup_ms: 50,
            reply_tokens: 256,
            real_acceptance: 0.7,
            drain_ms: 1000,
            acceptance_bias: 0.0,
            error_rate: 0.0,
            crash_after_requests: None,
            never_ready: false,
        }
    }
}

/// Settings that make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("settings: {0}")]
pub struct SettingsError(pub String);

/// A type from a JSON object, and from nothing else that serde would take for it.
pub(super) fn object<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, SettingsError> {
    let fault = |error: serde_json::Error| SettingsError(error.to_string());
    let map: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).map_err(fault)?;
    serde_json::from_value(map.into()).map_err(fault)
}

impl Settings {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// Not JSON, an unknown name, a value of another type or out of range.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let settings: Self = object(text)?;
        settings.check().map(|()| settings)
    }

    fn check(&self) -> Result<(), SettingsError> {
        let positive = [
            ("step-us", self.step_us),
            ("prefill-tokens-per-s", self.prefill_tokens_per_s),
            ("load-tokens-per-s", self.load_tokens_per_s),
            ("prefill-chunk-tokens", self.prefill_chunk_tokens),
            ("tick-ms", self.tick_ms),
            ("cache-blocks", self.cache_blocks as u64),
            ("store-blocks", self.store_blocks as u64),
            ("reply-tokens", self.reply_tokens),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(SettingsError(format!("{name} must be at least 1")));
        }
        for (name, share) in [("real-acceptance", self.real_acceptance), ("error-rate", self.error_rate)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(SettingsError(format!("{name} {share} is not from 0 to 1")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_gives_the_documented_defaults() {
        assert_eq!(Settings::parse("{}"), Ok(Settings::default()));
        // Each documented default, "(N)" at the end of a field's comment, is the real one.
        let source = include_str!("settings.rs");
        let json = |name: &str, value: &str| format!("{{\"{}\": {value}}}", name.replace('_', "-"));
        let lines: Vec<&str> = source.lines().take_while(|line| !line.starts_with("impl Default")).collect();
        let mut seen = 0;
        for pair in lines.windows(2) {
            if let (Some(comment), Some(field)) = (pair[0].strip_prefix("    /// "), pair[1].strip_prefix("    pub ")) {
                let default = comment.rsplit_once('(').and_then(|(_, rest)| rest.split(')').next()).unwrap();
                let name = field.split(':').next().unwrap();
                assert_eq!(Settings::parse(&json(name, default)), Ok(Settings::default()), "{name} ({default})");
                seen += 1;
            }
        }
        assert_eq!(seen, 18);
    }

    #[test]
    fn unknown_names_and_senseless_values_are_refused() {
        for (text, why) in [
            (r#"{"step-uss": 4}"#, "unknown field `step-uss`"),
            (r#"{"tick-ms": 0}"#, "tick-ms must be at least 1"),
            (r#"{"error-rate": 1.5}"#, "error-rate 1.5 is not from 0 to 1"),
            (r#"{"step-us": -4}"#, "invalid value"),
            ("[]", "invalid type"),
        ] {
            let error = Settings::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
