//! The command line of `aiperf`, after this word: what the replay client takes from it, and what it refuses.

use std::path::PathBuf;
use std::time::Duration;

use crate::sim::argv::{ArgvError, COUNT, Grammar, Kind, RATIO};

/// Longest duration a flag may name, s: a year.
const LONG: u64 = 366 * 86_400;
const SECONDS: Kind = Kind::Integer(0, LONG);

const GRAMMAR: Grammar = Grammar {
    program: "aiperf",
    positionals: &["profile"],
    flags: &[
        ("--agentic-cache-warmup-duration", SECONDS),
        ("--benchmark-duration", Kind::Integer(1, LONG)),
        ("--concurrency", Kind::Integer(1, 1 << 20)),
        ("--endpoint", Kind::Text),
        ("--endpoint-type", Kind::Choice(&["chat"])),
        ("--failed-request-threshold", RATIO),
        ("--model", Kind::Text),
        ("--no-gpu-telemetry", Kind::Switch),
        ("--num-dataset-entries", COUNT),
        ("--output-artifact-dir", Kind::Text),
        ("--public-dataset", Kind::Text),
        ("--random-seed", Kind::Integer(0, u64::MAX)),
        ("--scenario", Kind::Choice(&["inferencex-agentx-mvp"])),
        ("--slice-duration", Kind::Decimal(0.001, LONG as f64)),
        ("--streaming", Kind::Switch),
        ("--tokenizer-trust-remote-code", Kind::Switch),
        ("--trajectory-start-max-ratio", RATIO),
        ("--trajectory-start-min-ratio", RATIO),
        ("--url", Kind::Url),
        ("--use-server-token-count", Kind::Switch),
        ("--warmup-grace-period", SECONDS),
    ],
};

/// What is replayed against what.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayArgs {
    /// The whole URL of the endpoint.
    pub url: String,
    /// The model that requests name.
    pub model: String,
    /// Sessions at a time.
    pub concurrency: usize,
    /// The profiling phase.
    pub duration: Duration,
    /// The warm-up phase.
    pub warmup: Duration,
    /// How long requests may outlast the warm-up; `None` is as long as they take.
    pub warmup_grace: Option<Duration>,
    /// Seed of everything random.
    pub seed: u64,
    /// The share of failed requests above which the run fails; `None` is never.
    pub failed_threshold: Option<f64>,
    /// Where in their conversation the first sessions start: a share of its turns, lowest and highest.
    pub start: (f64, f64),
    /// Different conversations.
    pub entries: u64,
    /// The data set that a real run would load.
    pub dataset: String,
    /// The scenario.
    pub scenario: String,
    /// Where the output goes.
    pub output: PathBuf,
}

impl ReplayArgs {
    /// Reads the words after `aiperf`.
    ///
    /// # Errors
    /// All faults of the command line.
    pub fn parse(argv: &[String]) -> Result<Self, ArgvError> {
        let mut parsed = GRAMMAR.parse(argv);
        if let Some(verb) = parsed.text("profile").filter(|verb| *verb != "profile").map(str::to_owned) {
            parsed.conflict(format!("`{verb}` is not profile"));
        }
        let base = parsed.need_text("--url");
        let endpoint = parsed.need_text("--endpoint");
        if !endpoint.is_empty() && !endpoint.starts_with('/') {
            parsed.conflict(format!("--endpoint `{endpoint}` does not start with /"));
        }
        let start_min = parsed.decimal("--trajectory-start-min-ratio").unwrap_or(0.0);
        let start_max = parsed.decimal("--trajectory-start-max-ratio").unwrap_or(1.0);
        if start_min > start_max {
            parsed.conflict("--trajectory-start-min-ratio exceeds --trajectory-start-max-ratio");
        }
        let args = Self {
            url: format!("{}{endpoint}", base.trim_end_matches('/')),
            model: parsed.need_text("--model"),
            concurrency: usize::try_from(parsed.need_integer("--concurrency")).unwrap_or(usize::MAX),
            duration: Duration::from_secs(parsed.need_integer("--benchmark-duration")),
            warmup: Duration::from_secs(parsed.integer("--agentic-cache-warmup-duration").unwrap_or(0)),
            warmup_grace: parsed.integer("--warmup-grace-period").map(Duration::from_secs),
            seed: parsed.need_integer("--random-seed"),
            failed_threshold: parsed.decimal("--failed-request-threshold"),
            start: (start_min, start_max),
            entries: parsed.need_integer("--num-dataset-entries"),
            dataset: parsed.need_text("--public-dataset"),
            scenario: parsed.need_text("--scenario"),
            output: PathBuf::from(parsed.need_text("--output-artifact-dir")),
        };
        parsed.need_text("--endpoint-type");
        if !parsed.has("--streaming") {
            parsed.conflict("--streaming is missing: the scenario requires it");
        }
        if !parsed.has("--use-server-token-count") {
            parsed.conflict("--use-server-token-count is missing: the replay client has no tokenizer");
        }
        parsed.finish(args)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The line of the recipes, with some words replaced.
    pub fn line(replace: &[(&str, &str)]) -> Vec<String> {
        let mut line = "profile --scenario inferencex-agentx-mvp --url http://127.0.0.1:8000 --endpoint \
            /v1/chat/completions --endpoint-type chat --streaming --model org/m --concurrency 12 --benchmark-duration 3600 \
            --random-seed 42 --failed-request-threshold 0.10 --trajectory-start-min-ratio 0.25 \
            --trajectory-start-max-ratio 0.75 --agentic-cache-warmup-duration 600 --warmup-grace-period 1800 \
            --use-server-token-count --no-gpu-telemetry --tokenizer-trust-remote-code --num-dataset-entries 393 \
            --slice-duration 1.0 --output-artifact-dir OUT --public-dataset semianalysis_cc_traces_weka_062126"
            .to_owned();
        for (from, to) in replace {
            assert!(line.contains(from), "{from}");
            line = line.replace(from, to);
        }
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_recipes_line_is_taken() {
        let args = ReplayArgs::parse(&line(&[])).unwrap();
        assert_eq!(args.url, "http://127.0.0.1:8000/v1/chat/completions");
        assert_eq!((args.concurrency, args.entries, args.seed), (12, 393, 42));
        let seconds = (args.duration.as_secs(), args.warmup.as_secs(), args.warmup_grace);
        assert_eq!(seconds, (3600, 600, Some(Duration::from_secs(1800))));
        assert_eq!((args.start, args.failed_threshold), ((0.25, 0.75), Some(0.1)));
    }

    #[test]
    fn faulty_lines_are_refused() {
        for (from, to, why) in [
            ("--streaming", "", "--streaming is missing"),
            ("--use-server-token-count", "", "--use-server-token-count is missing"),
            ("--concurrency 12", "", "--concurrency is missing"),
            ("min-ratio 0.25", "min-ratio 0.8", "exceeds"),
            ("profile ", "analyze ", "`analyze` is not profile"),
            ("/v1/chat", "v1/chat", "does not start with /"),
            ("--num-dataset-entries", "--num-dataset-entry", "did you mean --num-dataset-entries?"),
            ("agentx-mvp", "agentx", "--scenario takes one of"),
        ] {
            let error = ReplayArgs::parse(&line(&[(from, to)])).unwrap_err().to_string();
            assert!(error.contains(why), "{to}: {error}");
        }
    }
}
