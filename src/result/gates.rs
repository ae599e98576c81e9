//! The gates: what a run must satisfy to be a record.
//!
//! | gate | passes when | not judged when | leaving it unjudged fails a real run |
//! |---|---|---|---|
//! | `requests-completed` | the client's completed requests > 0 and a profiling row is free of errors; of an eval: instances evaluated > 0 | – | |
//! | `tokens-generated` | generated tokens of the kept rows > 0 | – | |
//! | `error-ratio` | failed ≤ bound × completed, both from the client's aggregate | – | |
//! | `acceptance-length` (synthetic acceptance only) | \|1 + accepted/drafts − target\| ≤ tolerance × target | no counters, or fewer drafts than the spec's minimum | yes |
//! | `dataset-replayed` | the client names the declared data set (and split, and seed, where it tells them), ran to its end, and measured at least 90% of the declared duration | the workload is substituted, or the client does not name its data set | yes |
//! | `counters-agree` | engines generated as many tokens as the client received, within 1% or one decode step of every session | the phase is not cleanly sampled, requests failed or were cut off, several engine services | no: an advisory cross-check |
//! | `eval-score` | resolved ≥ bound × instances | – | |
//!
//! `counters-agree` fails on too few tokens (an engine was not scraped) and on more than cut-off requests can explain (other
//! traffic): at most twice the concurrency can be running when a phase ends, each short of the longest answer. Ratios are
//! compared as products of exact decimals, never as floats.

use std::fmt;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::aggregate::Aggregate;
use super::document::{ResultDoc, WindowSpan};
use super::error::RawError;
use super::samples::Samples;
use crate::spec::{Acceptance, JobSpec, Speculative};

/// Drafts below which the acceptance length is not judged, where the spec states no minimum.
const DEFAULT_MIN_DRAFTS: u64 = 1000;
/// Share of the declared duration that must have been measured, per cent.
const LEAST_DURATION_PERCENT: f64 = 90.0;

/// Which gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateName {
    /// Something was measured.
    RequestsCompleted,
    /// The engine answered.
    TokensGenerated,
    /// Few requests failed.
    ErrorRatio,
    /// Synthetic acceptance took hold.
    AcceptanceLength,
    /// What was declared was replayed.
    DatasetReplayed,
    /// The engines' counters and the client tell one story.
    CountersAgree,
    /// The eval's score is high enough.
    EvalScore,
}

impl fmt::Display for GateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GateName::RequestsCompleted => "requests-completed",
            GateName::TokensGenerated => "tokens-generated",
            GateName::ErrorRatio => "error-ratio",
            GateName::AcceptanceLength => "acceptance-length",
            GateName::DatasetReplayed => "dataset-replayed",
            GateName::CountersAgree => "counters-agree",
            GateName::EvalScore => "eval-score",
        })
    }
}

/// How a gate was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateVerdict {
    /// The run satisfies it.
    Passed,
    /// The run does not.
    Failed,
    /// The raw layers do not tell.
    NotJudged,
}

/// One gate, decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Which.
    pub name: GateName,
    /// How it was decided.
    pub verdict: GateVerdict,
    /// Whether a real run needs it judged.
    pub required: bool,
    /// What was observed; null when nothing was.
    pub observed: Option<String>,
    /// What it was held against.
    pub bound: Option<String>,
    /// One sentence for people.
    pub explanation: String,
}

impl Gate {
    /// Whether it lets a run through: passed, or not judged where that may be.
    pub fn lets_through(&self, real: bool) -> bool {
        match self.verdict {
            GateVerdict::Passed => true,
            GateVerdict::Failed => false,
            GateVerdict::NotJudged => !(real && self.required),
        }
    }

    fn judged(name: GateName, passed: bool, observed: String, bound: String, explanation: String) -> Self {
        let verdict = if passed { GateVerdict::Passed } else { GateVerdict::Failed };
        Self { name, verdict, required: true, observed: Some(observed), bound: Some(bound), explanation }
    }

    fn not_judged(name: GateName, bound: Option<String>, explanation: impl Into<String>) -> Self {
        let explanation = explanation.into();
        Self { name, verdict: GateVerdict::NotJudged, required: true, observed: None, bound, explanation }
    }
}

/// The gates of a throughput run, in the order of the table above.
///
/// # Errors
/// A bound of the spec that is not a decimal.
pub fn throughput(
    spec: &JobSpec,
    result: &ResultDoc,
    samples: &Samples,
    aggregate: &Aggregate,
) -> Result<Vec<Gate>, RawError> {
    let tokens: u64 = samples.kept.iter().filter_map(|sample| sample.output_tokens).fold(0, u64::saturating_add);
    let completed = format!("{} completed, {} rows without error", aggregate.completed, samples.kept.len());
    let mut gates = vec![
        Gate::judged(
            GateName::RequestsCompleted,
            aggregate.completed > 0 && !samples.kept.is_empty(),
            completed,
            "> 0".to_owned(),
            "a run must complete requests in its profiling phase".to_owned(),
        ),
        Gate::judged(
            GateName::TokensGenerated,
            tokens > 0,
            tokens.to_string(),
            "> 0".to_owned(),
            "a run must generate tokens".to_owned(),
        ),
    ];
    if let Some((text, most)) = bound("max-error-ratio", &spec.measurement.gates.max_error_ratio)? {
        let (errors, completed) = (Decimal::from(aggregate.errors), Decimal::from(aggregate.completed));
        let within = aggregate.completed > 0 && most.checked_mul(completed).is_none_or(|most| errors <= most);
        gates.push(Gate::judged(
            GateName::ErrorRatio,
            within,
            quotient(aggregate.errors, aggregate.completed),
            format!("≤ {text}"),
            format!("{} of {} requests failed, by the client's aggregate", aggregate.errors, aggregate.completed),
        ));
    }
    if let Some(speculative) = &spec.deployment.speculative {
        gates.extend(acceptance_length(spec, speculative, result)?);
    }
    gates.push(dataset_replayed(spec, result, aggregate));
    gates.push(counters_agree(spec, result, samples, aggregate, tokens));
    Ok(gates)
}

/// The gates of an eval.
///
/// # Errors
/// A bound of the spec that is not a decimal.
pub fn eval(spec: &JobSpec, result: &ResultDoc) -> Result<Vec<Gate>, RawError> {
    let Some(eval) = &result.eval else { return Ok(Vec::new()) };
    let evaluated = eval.completed.unwrap_or(eval.instances);
    let mut gates = vec![Gate::judged(
        GateName::RequestsCompleted,
        evaluated > 0 && eval.instances > 0,
        format!("{evaluated} of {} instances evaluated", eval.instances),
        "> 0".to_owned(),
        "an eval must evaluate instances".to_owned(),
    )];
    if let Some((text, least)) = bound("min-score", &spec.measurement.gates.min_score)? {
        let needed = least.checked_mul(Decimal::from(eval.instances));
        let enough = eval.instances > 0 && needed.is_some_and(|needed| Decimal::from(eval.resolved) >= needed);
        gates.push(Gate::judged(
            GateName::EvalScore,
            enough,
            quotient(eval.resolved, eval.instances),
            format!("≥ {text}"),
            format!("{} of {} instances resolved", eval.resolved, eval.instances),
        ));
    }
    if let Some(speculative) = &spec.deployment.speculative {
        gates.extend(acceptance_length(spec, speculative, result)?);
    }
    Ok(gates)
}

/// A bound's digits and value.
fn bound<'s>(field: &'static str, text: &'s Option<String>) -> Result<Option<(&'s str, Decimal)>, RawError> {
    text.as_deref().map(|text| decimal(field, text).map(|value| (text, value))).transpose()
}

fn decimal(field: &'static str, text: &str) -> Result<Decimal, RawError> {
    text.parse().map_err(|_| RawError::Bound { field, text: text.to_owned() })
}

/// A quotient to show, to four places.
fn quotient(numerator: u64, denominator: u64) -> String {
    match Decimal::from(numerator).checked_div(Decimal::from(denominator)) {
        Some(quotient) => quotient.round_dp(4).normalize().to_string(),
        None => format!("{numerator}/{denominator}"),
    }
}

fn acceptance_length(spec: &JobSpec, speculative: &Speculative, result: &ResultDoc) -> Result<Option<Gate>, RawError> {
    const NAME: GateName = GateName::AcceptanceLength;
    let Acceptance::Synthetic { length, .. } = &speculative.acceptance else { return Ok(None) };
    let target = decimal("speculative acceptance length", length)?;
    let Some((text, tolerance)) = bound("acceptance-tolerance", &spec.measurement.gates.acceptance_tolerance)? else {
        return Ok(Some(Gate::not_judged(NAME, Some(length.clone()), "the spec states no tolerance")));
    };
    let wanted = format!("{length} ± {text} × {length}");
    let Some(server) = &result.server else {
        return Ok(Some(Gate::not_judged(NAME, Some(wanted), "the job has no engine to ask")));
    };
    let Some(counters) = &server.speculative else {
        let reason = server.unavailable.as_deref().unwrap_or("the engine publishes no draft counters");
        return Ok(Some(Gate::not_judged(NAME, Some(wanted), reason)));
    };
    let least = spec.measurement.gates.min_drafts.unwrap_or(DEFAULT_MIN_DRAFTS).max(1);
    let (drafts, accepted) = (counters.drafts, counters.accepted_tokens);
    let observed = quotient(accepted.saturating_add(drafts), drafts);
    if drafts < least {
        let reason = format!("{drafts} drafts are too few to judge: {least} are needed");
        let gate = Gate::not_judged(NAME, Some(wanted), reason);
        return Ok(Some(Gate { observed: (drafts > 0).then_some(observed), ..gate }));
    }
    // |1 + accepted/drafts − target| ≤ tolerance · target, times drafts.
    let drafts_exactly = Decimal::from(drafts);
    let within = (|| {
        let meant = target.checked_mul(drafts_exactly)?;
        let difference = (Decimal::from(accepted).checked_add(drafts_exactly)?).checked_sub(meant)?.abs();
        Some(difference <= meant.checked_mul(tolerance)?)
    })();
    Ok(Some(Gate::judged(
        NAME,
        within.unwrap_or(false),
        observed,
        wanted,
        format!("1 + {accepted} accepted / {drafts} drafts, from the engine's counters"),
    )))
}

fn dataset_replayed(spec: &JobSpec, result: &ResultDoc, aggregate: &Aggregate) -> Gate {
    const NAME: GateName = GateName::DatasetReplayed;
    let workload = &spec.measurement.workload;
    let mut declared = workload.dataset.id.clone();
    if let Some(split) = &workload.split {
        declared = format!("{declared} ({split})");
    }
    // A rehearsal's workload may violate the scenario; no run may be cut short.
    let objection = aggregate.cut_short.as_ref().or(aggregate.violation.as_ref().filter(|_| !result.rehearsal));
    if let Some(objection) = objection {
        return Gate::judged(NAME, false, "not the whole of it".to_owned(), declared, objection.clone());
    }
    if result.rehearsal {
        return Gate::not_judged(NAME, Some(declared), "a rehearsal substitutes the workload");
    }
    let Some(dataset) = &aggregate.dataset else {
        return Gate::not_judged(NAME, Some(declared), "the client does not say what it replayed");
    };
    let Some(name) = &dataset.hf_dataset_name else {
        return Gate::not_judged(NAME, Some(declared), "the client does not name the hub data set it replayed");
    };
    let mut observed = name.clone();
    let mut wrong = Vec::new();
    if *name != workload.dataset.id {
        wrong.push(format!("the client replayed {name}"));
    }
    if let Some(split) = &dataset.hf_split {
        observed = format!("{observed} ({split})");
        if workload.split.as_ref().is_some_and(|declared| declared != split) {
            wrong.push(format!("the client replayed split {split}"));
        }
    }
    if let Some((declared, seed)) = workload.seed.zip(aggregate.seed).filter(|(declared, seed)| declared != seed) {
        wrong.push(format!("the client used seed {seed}, not {declared}"));
    }
    let measured = result.requests.as_ref().and_then(|requests| requests.duration_s);
    if let Some((declared, measured)) = workload.duration_s.zip(measured)
        && measured * 100.0 < declared as f64 * LEAST_DURATION_PERCENT
    {
        wrong.push(format!("{measured:.0} s of {declared} s were measured"));
    }
    let explanation = match wrong.join("; ") {
        nothing if nothing.is_empty() => "as the client's aggregate names it; a revision is not told".to_owned(),
        wrong => wrong,
    };
    Gate::judged(NAME, wrong.is_empty(), observed, declared, explanation)
}

fn counters_agree(spec: &JobSpec, result: &ResultDoc, samples: &Samples, aggregate: &Aggregate, received: u64) -> Gate {
    let bound = "within 1%, or one decode step of every session".to_owned();
    let advisory = |gate: Gate| Gate { required: false, ..gate };
    let unjudged = |why: &str| advisory(Gate::not_judged(GateName::CountersAgree, Some(bound.clone()), why));
    let Some(server) = &result.server else { return unjudged("the job has no engine to ask") };
    let Some(generated) = server.generation_tokens else {
        return unjudged(server.unavailable.as_deref().unwrap_or("the engine publishes no token counter"));
    };
    if spec.deployment.services.iter().filter(|service| service.engine.is_some()).count() > 1 {
        return unjudged("tokens of prefill and decode engines do not compare with the client's");
    }
    if server.window.as_ref().is_none_or(|window| window.span != WindowSpan::Profiling || !window.clean) {
        return unjudged("warm-up traffic lies between the scrapes that enclose the profiling phase");
    }
    if samples.errors + samples.cancelled + aggregate.errors > 0 {
        return unjudged("failed or cancelled requests have tokens that the client does not report");
    }
    if samples.kept.iter().any(|sample| sample.output_tokens.is_none()) {
        return unjudged("the client does not report the tokens of every request");
    }
    let step = spec.deployment.speculative.as_ref().map_or(1, |speculative| speculative.tokens.saturating_add(1));
    let slack = (received / 100).max(step.saturating_mul(spec.measurement.concurrency));
    let longest = samples.kept.iter().filter_map(|sample| sample.output_tokens).max().unwrap_or(0);
    let cut_off = longest.saturating_mul(2).saturating_mul(spec.measurement.concurrency);
    let excess = generated.saturating_sub(received);
    let story =
        format!("the engines generated {generated} tokens in the profiling phase, the client received {received}");
    if excess > slack && excess <= slack.saturating_add(cut_off) {
        let why = format!("{story}: requests cut off at the end of the phase can explain the rest");
        return Gate { observed: Some(quotient(generated, received)), ..unjudged(&why) };
    }
    let agree = generated.abs_diff(received) <= slack;
    advisory(Gate::judged(GateName::CountersAgree, agree, quotient(generated, received), bound.clone(), story))
}
