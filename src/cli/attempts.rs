//! The attempts of a job, listed: how each ended, why it counts or does not, why it was run, and the value of all records.

use serde_json::{Value, json};

use super::error::Error;
use super::plan::reason_text;
use super::results::{HEADER, header, headline};
use super::table::{aligned, count};
use crate::ids::JobHash;
use crate::plan::Reason;
use crate::records::{self, RecordError};
use crate::result::Median;
use crate::store::{AttemptRef, Outcome, Store, StoreView};
use crate::sweep::title;

/// Reasons that the list shows for an attempt.
const REASONS: usize = 2;

/// Characters of a changed value that it shows.
const VALUE: usize = 40;

/// Each attempt of a job as the documented JSON, and the value of the job.
///
/// # Errors
/// A store or a document in it that cannot be read.
pub fn json(job: &JobHash, store: &Store) -> Result<(Vec<Value>, Option<Median>), Error> {
    let mut list = Vec::new();
    for at in store.job(job)?.attempts {
        list.push(one(&at, store)?);
    }
    Ok((list, records::value(store, job)?))
}

fn one(at: &AttemptRef, store: &Store) -> Result<Value, Error> {
    let exclusion = store.exclusion(at)?;
    let mut value = json!({
        "manifest": at.manifest,
        "tag": at.tag(),
        "started": at.started.to_string(),
        "outcome": at.standing().word(),
        "counts": at.counts(),
        "rehearsal": at.rehearsal,
        "excluded": at.excluded,
        "exclusion": exclusion.map(|exclusion| json!({"reason": exclusion.reason, "at": exclusion.at.to_string()})),
        "derived": at.derived.as_ref().map(|derived| json!({
            "formulas": derived.formulas,
            "at": derived.at.to_string(),
            "recorded": at.outcome.word(),
        })),
    });
    if at.collected {
        value["collected"] = store
            .tombstone(at)?
            .map_or(json!(true), |stone| json!({"reason": stone.reason, "at": stone.at.to_string()}));
        return Ok(value);
    }
    let attempt = store.attempt(at)?;
    let document = |title: &str| Ok::<_, Error>(records::document::<Value>(store, at, title)?.unwrap_or_default());
    value["ended"] = attempt.ended.to_string().into();
    value["arms"] = json!(attempt.arms);
    value["reasons"] = store.reasons(at)?;
    value["failed_gates"] = match attempt.standing() {
        Outcome::Invalid { gates } => json!(gates),
        _ => json!([]),
    };
    value["failure"] = match attempt.standing() {
        Outcome::Failed { kind, message } => json!({"kind": kind, "message": message}),
        _ => Value::Null,
    };
    for (key, title) in [("result", title::RESULT), ("gates", title::GATES), ("provenance", title::PROVENANCE)] {
        value[key] = document(title)?;
    }
    Ok(value)
}

/// The attempts as a table, with a line for all that it cannot say, and the value of several records.
///
/// # Errors
/// A store that cannot be read.
pub fn text(job: &JobHash, store: &Store) -> Result<String, Error> {
    let attempts = store.job(job)?.attempts;
    if attempts.is_empty() {
        return Ok("\nno attempts".to_owned());
    }
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for at in &attempts {
        let name = at.manifest.hex()[..12].to_owned();
        let mut note = |text: String| notes.push(format!("{name}  {text}"));
        let result = match records::result(store, at) {
            _ if at.collected => None,
            Ok(result) => result,
            Err(RecordError::Store(error)) => return Err(error.into()),
            Err(error) => {
                note(format!("{error}; `ixbuild recompute {}` derives it again", job.short()));
                None
            }
        };
        explain(at, store, &mut note)?;
        let word = if at.excluded { "excluded" } else { at.standing().word() };
        let mut row = vec![name, at.started.strftime("%Y-%m-%d %H:%M:%S").to_string(), word.to_owned()];
        row.extend(headline(result.as_ref()));
        rows.push(row);
    }
    if let Some(value) = records::value(store, job).ok().flatten().filter(|value| value.n > 1) {
        let mut row = vec![String::new(), String::new(), format!("median of {}", value.n)];
        row.extend(headline(Some(&value.result)));
        rows.push(row);
    }
    let right: Vec<bool> = [false; 3].into_iter().chain(HEADER[0].map(|_| true)).collect();
    let lines = aligned(&header(&["attempt", "started (UTC)", "outcome"], &[]), &right, &rows);
    let counted = attempts.iter().filter(|at| at.counts()).count();
    let summary = format!("{}, {}", count(attempts.len(), "attempt"), count(counted, "record"));
    Ok(format!("\n{}\n{summary}\n{}", lines.join("\n"), notes.join("\n")).trim_end().to_owned())
}

/// Why an attempt counts or does not, and why it was run.
fn explain(at: &AttemptRef, store: &Store, note: &mut dyn FnMut(String)) -> Result<(), Error> {
    if let Some(exclusion) = store.exclusion(at)? {
        note(format!("excluded on {}: {}", exclusion.at.strftime("%Y-%m-%d"), exclusion.reason));
    }
    if at.collected {
        let reason = store.tombstone(at)?.map(|stone| stone.reason).unwrap_or_default();
        note(format!("collected: {reason}"));
        return Ok(());
    }
    if let Some(derived) = &at.derived {
        let was = if at.outcome == derived.outcome { String::new() } else { format!(", recorded as {}", at.outcome) };
        note(format!("derived again on {} under formulas {}{was}", derived.at.strftime("%Y-%m-%d"), derived.formulas));
    }
    match store.attempt(at)?.standing() {
        Outcome::Valid | Outcome::Cancelled => {}
        Outcome::Invalid { gates } => {
            let decided = records::gates(store, at).unwrap_or_default();
            for name in gates {
                let gate = decided.iter().find(|gate| gate.name.to_string() == *name);
                let why = gate.map(|gate| format!(": {}", gate.explanation)).unwrap_or_default();
                note(format!("failed the gate {name}{why}"));
            }
        }
        Outcome::Failed { kind, message } => note(format!("failed ({kind}): {message}")),
    }
    let reasons: Vec<Reason> = serde_json::from_value(store.reasons(at)?).unwrap_or_default();
    if !reasons.is_empty() {
        let mut words: Vec<String> = reasons.iter().take(REASONS).map(|reason| reason_text(reason, VALUE)).collect();
        if reasons.len() > REASONS {
            words.push(format!("and {} more: ixbuild why {}", reasons.len() - REASONS, at.job.short()));
        }
        note(format!("because {}", words.join("; ")));
    }
    Ok(())
}
