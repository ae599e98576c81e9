//! The policy of speculative decoding, and how each engine is told.
//!
//! Speed must not depend on how predictable the text is, and answers must not depend on forced acceptance:
//!
//! | arm | acceptance |
//! |---|---|
//! | agentic throughput | synthetic, at the golden acceptance length of the recipe's curve |
//! | eval | real: forced acceptance would score 0 |
//! | fixed sequence length | real |
//! | agentic throughput without a golden value | blocked |
//!
//! No recipe can spell an acceptance length: [`inject`] is the only source of these settings; [`is_reserved`] flags and
//! [`RESERVED_ENV`] are refused in recipes.

use std::collections::BTreeMap;
use std::str::FromStr;

use rust_decimal::Decimal;

use crate::config::golden::{Curves, Thinking};
use crate::matrix::arm::{Arm, Scenario};
use crate::spec::{Acceptance, Engine, Key, Service, Speculative, Text, Tree};

/// Flags that carry the acceptance policy; recipes cannot set them.
const RESERVED_FLAGS: [&str; 2] = ["speculative-config", "spec-decode-acceptance-length"];

/// Their short form.
const RESERVED_SHORT: &str = "sc";

/// Environment variables that carry the acceptance policy; recipes cannot set them.
pub const RESERVED_ENV: [&str; 4] = [
    "SGLANG_SIMULATE_ACC_LEN",
    "SGLANG_SIMULATE_ACC_METHOD",
    "SGLANG_SIMULATE_ACC_TOKEN_MODE",
    "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS",
];

/// Whether an argument is a flag that carries the acceptance policy, in any spelling that the engines' parsers take:
/// `--speculative_config`, `--speculative-config=…`, `--speculative-config.method`, `--speculative-conf`, `-sc`.
pub fn is_reserved(argument: &str) -> bool {
    let Some(flag) = argument.strip_prefix('-') else { return false };
    let name = flag.split(['=', '.']).next().unwrap_or_default().trim_start_matches('-').replace('_', "-");
    // An abbreviation that leaves no other flag of the engines in question.
    let abbreviates = |reserved: &&str| reserved.starts_with(&name) && name.len() > "speculative-".len();
    name == RESERVED_SHORT || RESERVED_FLAGS.iter().any(|reserved| name == *reserved || abbreviates(reserved))
}

/// What a recipe says of an arm's speculation: all but how long drafts are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drafting {
    /// The drafting method, such as `mtp`.
    pub method: String,
    /// Drafted tokens a step, N.
    pub tokens: u64,
    /// The golden curve, a file of `golden_al_distribution/`.
    pub curve: String,
    /// The thinking mode of the workload.
    pub thinking: Thinking,
}

/// An arm that the policy does not let run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NoGolden {
    /// Which cell is missing, and which exist.
    pub why: String,
}

/// What an arm's speculation must be.
///
/// # Errors
/// An agentic throughput arm whose curve has no value for its N and thinking mode.
pub fn policy(arm: &Arm, drafting: &Drafting, curves: &Curves) -> Result<Speculative, NoGolden> {
    let synthetic = !arm.eval && arm.row.scenario == Scenario::AgenticCoding;
    let acceptance = if synthetic {
        let tokens = u32::try_from(drafting.tokens).unwrap_or(u32::MAX);
        let cell = curves
            .cell(&drafting.curve, drafting.thinking, tokens)
            .map_err(|missing| NoGolden { why: format!("{missing}; {}", missing.help) })?;
        let coordinates = [
            ("model", cell.model),
            ("draft-head", cell.draft_head),
            ("draft-method", cell.draft_method),
            ("verification", cell.verification),
            ("thinking", cell.thinking.as_str().to_owned()),
        ];
        Acceptance::Synthetic {
            cell: coordinates.into_iter().map(|(name, value)| (Key::from(name), value)).collect(),
            length: cell.acceptance_length,
        }
    } else {
        Acceptance::Real {}
    };
    Ok(Speculative { acceptance, method: drafting.method.clone(), tokens: drafting.tokens })
}

/// Tells an engine process, in the way that its engine understands.
///
/// # Errors
/// An acceptance length that is not a decimal number.
pub fn inject(speculative: &Speculative, engine: Engine, service: &mut Service) -> Result<(), rust_decimal::Error> {
    let length = match &speculative.acceptance {
        Acceptance::Real {} => None,
        Acceptance::Synthetic { length, .. } => Some(length),
    };
    let mut env = |name: &str, value: String| service.env.insert(Key::from(name), Text::Literal(value));
    match engine {
        Engine::Vllm => {
            let mut map = BTreeMap::from([
                (Key::from("method"), Tree::String(speculative.method.clone())),
                (
                    Key::from("num_speculative_tokens"),
                    Tree::Integer(i64::try_from(speculative.tokens).unwrap_or(i64::MAX)),
                ),
            ]);
            if let Some(length) = length {
                map.insert(Key::from("rejection_sample_method"), Tree::String("synthetic".to_owned()));
                map.insert(Key::from("synthetic_acceptance_length"), Tree::Decimal { decimal: length.clone() });
            }
            service.argv.push(Text::Literal("--speculative-config".to_owned()));
            service.argv.push(Text::Json { json: Tree::Map { map } });
        }
        Engine::Sglang => {
            if let Some(length) = length {
                env("SGLANG_SIMULATE_ACC_LEN", length.clone());
                env("SGLANG_SIMULATE_ACC_METHOD", "match-expected".to_owned());
                env("SGLANG_SIMULATE_ACC_TOKEN_MODE", "real-draft-token".to_owned());
            }
        }
        Engine::Trt => {
            if let Some(length) = length {
                // The engine counts drafts alone; the length counts the bonus token as well.
                let drafts = Decimal::from_str(length)? - Decimal::ONE;
                env("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", drafts.to_string());
            }
        }
        Engine::Atom => {
            if let Some(length) = length {
                service.argv.push(Text::Literal("--spec-decode-acceptance-length".to_owned()));
                service.argv.push(Text::Literal(length.clone()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Probe, Resources};

    fn service() -> Service {
        Service {
            after: vec![],
            argv: vec![],
            endpoints: Default::default(),
            engine: None,
            entrypoint: vec!["serve".into()],
            env: Default::default(),
            files: Default::default(),
            group: "node".into(),
            image: None,
            mounts: vec![],
            name: "server".into(),
            packages: vec![],
            probe: Probe::Exit {},
            replicas: 1,
            resources: Resources::default(),
        }
    }

    fn synthetic(length: &str) -> Speculative {
        let acceptance = Acceptance::Synthetic { cell: Default::default(), length: length.into() };
        Speculative { acceptance, method: "mtp".into(), tokens: 3 }
    }

    #[test]
    fn each_engine_is_told_in_its_own_words() {
        let mut vllm = service();
        inject(&synthetic("2.49"), Engine::Vllm, &mut vllm).unwrap();
        let argv = serde_json::to_string(&vllm.argv).unwrap();
        assert!(argv.contains(r#""synthetic_acceptance_length":{"decimal":"2.49"}"#), "{argv}");

        let mut sglang = service();
        inject(&synthetic("3.00"), Engine::Sglang, &mut sglang).unwrap();
        let env: Vec<_> = sglang.env.iter().map(|(k, v)| (k.0.as_str(), v.clone())).collect();
        assert_eq!(env[0], ("SGLANG_SIMULATE_ACC_LEN", Text::Literal("3.00".into())));
        assert_eq!(env[1], ("SGLANG_SIMULATE_ACC_METHOD", Text::Literal("match-expected".into())));
        assert_eq!(env[2], ("SGLANG_SIMULATE_ACC_TOKEN_MODE", Text::Literal("real-draft-token".into())));

        let mut trt = service();
        inject(&synthetic("2.49"), Engine::Trt, &mut trt).unwrap();
        assert_eq!(trt.env[&Key::from("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS")], Text::Literal("1.49".into()));

        let mut atom = service();
        inject(&synthetic("2.49"), Engine::Atom, &mut atom).unwrap();
        assert_eq!(atom.argv[1], Text::Literal("2.49".into()));
    }

    #[test]
    fn reserved_flags_are_known_in_every_spelling() {
        for flag in [
            "--speculative-config",
            "--speculative_config",
            "--speculative-config={}",
            "--speculative-config.method",
            "--speculative-conf",
            "-sc",
            "--spec-decode-acceptance-length=2",
        ] {
            assert!(is_reserved(flag), "{flag}");
        }
        for word in ["--speculative-", "--spec", "speculative-config", "--kv-transfer-config", "-s", "--scheduler", ""]
        {
            assert!(!is_reserved(word), "{word}");
        }
    }

    #[test]
    fn real_verification_names_no_acceptance_length() {
        let real = Speculative { acceptance: Acceptance::Real {}, method: "mtp".into(), tokens: 3 };
        let mut vllm = service();
        inject(&real, Engine::Vllm, &mut vllm).unwrap();
        let argv = serde_json::to_string(&vllm.argv).unwrap();
        assert!(argv.contains("num_speculative_tokens") && !argv.contains("synthetic"), "{argv}");
        for engine in [Engine::Sglang, Engine::Trt, Engine::Atom] {
            let mut untouched = service();
            inject(&real, engine, &mut untouched).unwrap();
            assert_eq!(untouched, service());
        }
    }
}
