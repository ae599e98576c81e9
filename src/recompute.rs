//! Derives results and gates of recorded attempts again, from their raw layers under the current formulas, and says what
//! changed. Nothing runs, and no attempt is touched: what is new is stored as a derivation beside it.
//!
//! Attempts that came to a result are derived, whether or not it was valid; failed and cancelled ones have none. What a
//! newer version of ixbuild derived is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::exec::event::Who;
use crate::exec::launch::log_path;
use crate::records::{self, RecordError};
use crate::result::{Derived, FORMULAS, Gate, GateVerdict, Raw, RawError, derive};
use crate::spec::JobSpec;
use crate::store::{
    AttemptRef, Derivation, DerivationInput, GATES_TYPE, Layer, OutcomeKind, RESULT_TYPE, Source, Store, StoreError,
    StoreView, each_file,
};
use crate::sweep::title;

/// Why an attempt cannot be derived again.
#[derive(Debug, thiserror::Error)]
pub enum RecomputeError {
    /// The store, or a document in it.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Its raw layers do not make sense under the current formulas.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// Its logs cannot be unpacked.
    #[error("{} cannot be unpacked: {why}", title::LOGS)]
    Logs {
        /// Why not.
        why: String,
    },
}

impl From<StoreError> for RecomputeError {
    fn from(error: StoreError) -> Self {
        Self::Record(error.into())
    }
}

/// What the current formulas make of an attempt.
#[derive(Debug)]
pub enum Finding {
    /// What is on file.
    Same,
    /// Nothing: newer formulas than ours were applied.
    Newer {
        /// Their version.
        formulas: u32,
    },
    /// Something else.
    Changed(Box<Change>),
}

/// What would change for an attempt.
#[derive(Debug)]
pub struct Change {
    /// The attempt.
    pub at: AttemptRef,
    /// The version of the formulas on file; unknown if there is no readable result.
    pub formulas: Option<u32>,
    /// Whether it is valid on file.
    pub was_valid: bool,
    /// Whether it is under the current formulas.
    pub is_valid: bool,
    /// Every figure and gate that changed.
    pub figures: Vec<Figure>,
    /// What the current formulas give.
    pub derived: Derived,
    /// Gates that a valid run must pass and this one does not.
    pub failed: Vec<Gate>,
}

/// A figure or a gate, before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Its path in `result.json`, such as `requests.throughput.total_tok_per_s`; of a gate, its name.
    pub name: String,
    /// On file; null if it was not there.
    pub old: Value,
    /// Now; null if it is gone.
    pub new: Value,
}

/// The attempts of a job that have a result to derive again, oldest first.
pub fn candidates(attempts: Vec<AttemptRef>) -> impl Iterator<Item = AttemptRef> {
    attempts.into_iter().filter(|at| matches!(at.outcome, OutcomeKind::Valid | OutcomeKind::Invalid) && !at.collected)
}

/// Derives an attempt from its raw layers.
///
/// # Errors
/// Raw layers that are missing, damaged or malformed.
pub fn rederive(store: &Store, at: &AttemptRef, spec: &JobSpec) -> Result<Derived, RecomputeError> {
    let layer = |title| store.layer(at, title);
    let (requests, aggregate) = (layer(title::REQUESTS)?, layer(title::AGGREGATE)?);
    let (counters, report) = (layer(title::COUNTERS)?, layer(title::REPORT)?);
    let logs = engine_logs(store, at, spec)?;
    let raw = Raw {
        requests: requests.as_deref(),
        aggregate: aggregate.as_deref(),
        counters: counters.as_deref(),
        eval_report: report.as_deref(),
        engine_logs: &logs.iter().map(Vec::as_slice).collect::<Vec<_>>(),
    };
    Ok(derive(spec, &raw)?)
}

/// The logs of the engine services, in the order of their instances.
fn engine_logs(store: &Store, at: &AttemptRef, spec: &JobSpec) -> Result<Vec<Vec<u8>>, RecomputeError> {
    let engines = spec.deployment.services.iter().filter(|service| service.engine.is_some());
    let whos = engines
        .flat_map(|service| (0..service.replicas).map(|instance| Who { service: service.name.clone(), instance }));
    let names: Vec<_> = whos.filter_map(|who| Some(log_path(Path::new(""), &who).file_name()?.to_owned())).collect();
    let Some(packed) = store.open_layer(at, title::LOGS)? else { return Ok(Vec::new()) };
    let mut found = BTreeMap::new();
    each_file(packed, |path, content| {
        if let Some(place) = names.iter().position(|name| path.as_os_str() == name) {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes)?;
            found.insert(place, bytes);
        }
        Ok(())
    })
    .map_err(|error| RecomputeError::Logs { why: error.to_string() })?;
    Ok(found.into_values().collect())
}

/// Derives an attempt and holds it against what is on file.
///
/// # Errors
/// As [`rederive`].
pub fn examine(store: &Store, at: &AttemptRef, spec: &JobSpec) -> Result<Finding, RecomputeError> {
    let json = |title: &str| match records::document::<Value>(store, at, title) {
        Ok(value) => Ok(value.unwrap_or_default()),
        // To be replaced.
        Err(RecordError::Unreadable { .. }) => Ok(Value::Null),
        Err(error) => Err(error),
    };
    let (old_result, old_gates) = (json(title::RESULT)?, json(title::GATES)?);
    let formulas = old_result["formulas"].as_u64().and_then(|version| u32::try_from(version).ok());
    if let Some(formulas) = formulas.filter(|version| *version > FORMULAS) {
        return Ok(Finding::Newer { formulas });
    }
    let derived = rederive(store, at, spec)?;
    let real = spec.deployment.substitutions.is_none();
    let value = |document: Result<Value, serde_json::Error>| document.unwrap_or_default();
    let (new_result, new_gates) =
        (value(serde_json::to_value(&derived.result)), value(serde_json::to_value(&derived.gates)));
    let was_valid = at.standing() == OutcomeKind::Valid;
    if old_result == new_result && old_gates == new_gates && was_valid == derived.valid(real) {
        return Ok(Finding::Same);
    }
    let mut figures = differences(&old_result, &new_result);
    figures.extend(gate_differences(&old_gates, &derived.gates));
    Ok(Finding::Changed(Box::new(Change {
        at: at.clone(),
        formulas,
        was_valid,
        is_valid: derived.valid(real),
        figures,
        failed: derived.gates.iter().filter(|gate| !gate.lets_through(real)).cloned().collect(),
        derived,
    })))
}

/// Stores what changed, as of `now`.
///
/// # Errors
/// A store that cannot be written.
pub fn apply(store: &Store, change: &Change, now: Timestamp) -> Result<Derivation, StoreError> {
    let layer = |kind: &str, title: &str, json: Result<Vec<u8>, serde_json::Error>| {
        let why = |error: serde_json::Error| StoreError::Oci { what: title.to_owned(), why: error.to_string() };
        Ok::<_, StoreError>(Layer::new(kind, title, Source::Bytes(json.map_err(why)?)))
    };
    store.derive(&DerivationInput {
        attempt: &change.at,
        formulas: FORMULAS,
        at: now,
        failed: change.failed.iter().map(|gate| gate.name.to_string()).collect(),
        layers: vec![
            layer(RESULT_TYPE, title::RESULT, serde_json::to_vec(&change.derived.result))?,
            layer(GATES_TYPE, title::GATES, serde_json::to_vec(&change.derived.gates))?,
        ],
    })
}

/// The leaves of two documents that differ; the version of the formulas is none of them.
fn differences(old: &Value, new: &Value) -> Vec<Figure> {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    flatten(String::new(), old, &mut before);
    flatten(String::new(), new, &mut after);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let side = |of: &BTreeMap<String, Value>, name: &String| of.get(name).cloned().unwrap_or_default();
    names
        .into_iter()
        .filter(|name| *name != "formulas")
        .map(|name| Figure { name: name.clone(), old: side(&before, name), new: side(&after, name) })
        .filter(|figure| figure.old != figure.new)
        .collect()
}

fn flatten(path: String, value: &Value, into: &mut BTreeMap<String, Value>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| flatten(below(key), value, into)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| flatten(below(&index.to_string()), item, into));
        }
        leaf => drop(into.insert(path, leaf.clone())),
    }
}

/// The gates that are decided otherwise, or on other grounds.
fn gate_differences(old: &Value, new: &[Gate]) -> Vec<Figure> {
    let old: Vec<Gate> = serde_json::from_value(old.clone()).unwrap_or_default();
    let words = |gate: &Gate| {
        let verdict = match gate.verdict {
            GateVerdict::Passed => "passed",
            GateVerdict::Failed => "failed",
            GateVerdict::NotJudged => "not judged",
        };
        Value::from(format!("{verdict}: {}", gate.explanation))
    };
    let names: BTreeSet<_> = old.iter().chain(new).map(|gate| gate.name).collect();
    let find = |gates: &[Gate], name| gates.iter().find(|gate| gate.name == name).cloned();
    names
        .into_iter()
        .filter(|name| find(&old, *name) != find(new, *name))
        .map(|name| Figure {
            name: format!("gate {name}"),
            old: find(&old, name).as_ref().map_or(Value::Null, words),
            new: find(new, name).as_ref().map_or(Value::Null, words),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_leaf_that_differs_is_named_once() {
        let old = json!({"formulas": 1, "a": {"b": 1.5, "c": null}, "list": [1, 2], "gone": true});
        let new = json!({"formulas": 2, "a": {"b": 1.5, "c": 3}, "list": [1, 4], "new": "x"});
        let figure = |name: &str, old: Value, new: Value| Figure { name: name.to_owned(), old, new };
        assert_eq!(
            differences(&old, &new),
            [
                figure("a.c", Value::Null, json!(3)),
                figure("gone", json!(true), Value::Null),
                figure("list.1", json!(2), json!(4)),
                figure("new", Value::Null, json!("x")),
            ]
        );
        assert_eq!(differences(&old, &old), []);
    }

    #[test]
    fn gates_change_by_verdict_and_by_ground() {
        let gate = |verdict, why: &str| Gate {
            name: crate::result::GateName::ErrorRatio,
            verdict,
            required: true,
            observed: None,
            bound: None,
            explanation: why.to_owned(),
        };
        let old = [gate(GateVerdict::Passed, "none failed")];
        let on_file = serde_json::to_value(&old).unwrap();
        assert_eq!(gate_differences(&on_file, &old), []);
        let changed = gate_differences(&on_file, &[gate(GateVerdict::Failed, "3 of 4 failed")]);
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].name, "gate error-ratio");
        assert_eq!(
            (changed[0].old.as_str(), changed[0].new.as_str()),
            (Some("passed: none failed"), Some("failed: 3 of 4 failed"))
        );
        assert_eq!(gate_differences(&Value::Null, &old)[0].old, Value::Null);
    }
}
