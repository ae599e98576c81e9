//! What a profile may set about the replay client: mostly how far it shrinks an hour of load.

use std::time::Duration;

use serde::Deserialize;

use super::args::ReplayArgs;
use crate::sim::settings::{SettingsError, object};

/// Settings of the replay client. Every field has a default; names are in kebab case.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct ReplaySettings {
    /// The profiling phase, ms; without it `--benchmark-duration` holds.
    pub duration_ms: Option<u64>,
    /// The warm-up phase, ms; without it `--agentic-cache-warmup-duration` holds.
    pub warmup_ms: Option<u64>,
    /// The warm-up also ends when so many sessions have been played to their end.
    pub warmup_sessions: Option<u64>,
    /// No new request in the profiling phase after so many.
    pub max_requests: Option<u64>,
    /// Nothing is in flight for so long between warm-up and profiling, ms (150).
    pub quiet_gap_ms: u64,
    /// The client stays for so long after the last response, ms (150).
    pub trailing_gap_ms: u64,
    /// Multiplies the time between a response and the session's next request (1).
    pub think_time_scale: f64,
    /// Multiplies the length of prompts (1).
    pub prompt_token_scale: f64,
    /// Multiplies the length of replies (1).
    pub output_token_scale: f64,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self {
            duration_ms: None,
            warmup_ms: None,
            warmup_sessions: None,
            max_requests: None,
            quiet_gap_ms: 150,
            trailing_gap_ms: 150,
            think_time_scale: 1.0,
            prompt_token_scale: 1.0,
            output_token_scale: 1.0,
        }
    }
}

impl ReplaySettings {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// Not JSON, an unknown name, a value of another type or out of range.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let settings: Self = object(text)?;
        for (name, scale) in [
            ("think-time-scale", settings.think_time_scale),
            ("prompt-token-scale", settings.prompt_token_scale),
            ("output-token-scale", settings.output_token_scale),
        ] {
            if !(0.0..=1e6).contains(&scale) {
                return Err(SettingsError(format!("{name} {scale} is not from 0 to 1000000")));
            }
        }
        if settings.duration_ms == Some(0) || settings.max_requests == Some(0) {
            return Err(SettingsError("duration-ms and max-requests must be at least 1".to_owned()));
        }
        Ok(settings)
    }

    /// The lengths of the warm-up and the profiling phase.
    pub fn phases(&self, args: &ReplayArgs) -> (Duration, Duration) {
        let or = |ms: Option<u64>, given| ms.map_or(given, Duration::from_millis);
        (or(self.warmup_ms, args.warmup), or(self.duration_ms, args.duration))
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::tests::line;
    use super::*;

    #[test]
    fn the_command_line_holds_where_no_setting_shrinks_it() {
        let args = ReplayArgs::parse(&line(&[])).unwrap();
        let phases = |text| ReplaySettings::parse(text).unwrap().phases(&args);
        assert_eq!(phases("{}"), (Duration::from_secs(600), Duration::from_secs(3600)));
        assert_eq!(phases(r#"{"duration-ms": 1000, "warmup-ms": 0}"#), (Duration::ZERO, Duration::from_secs(1)));
    }

    #[test]
    fn unknown_names_and_senseless_values_are_refused() {
        for (text, why) in [
            (r#"{"duration": 1}"#, "unknown field `duration`"),
            (r#"{"think-time-scale": -1}"#, "think-time-scale -1 is not from 0"),
            (r#"{"max-requests": 0}"#, "at least 1"),
            ("[]", "invalid type"),
        ] {
            let error = ReplaySettings::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
