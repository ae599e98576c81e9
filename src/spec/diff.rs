//! The full difference of two specs, as a person would name it: flags by name, files by key, services by name.
//!
//! Both canonical documents are flattened to `path → text` and compared; the same flattening serves `why` and `diff`, so
//! nothing that is hashed can escape them (a test changes every leaf).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One changed input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The stage that it belongs to: `model`, `server`, `client`, `workload`, …
    pub stage: String,
    /// What changed within it, such as `--max-num-seqs` or `env PYTHONHASHSEED`.
    pub what: String,
    /// The old value; absent when it is new.
    pub old: Option<String>,
    /// The new value; absent when it is gone.
    pub new: Option<String>,
}

/// Every difference between two canonical spec documents, sorted by stage.
///
/// Equal documents alone give an empty list. Flags that moved without any other change are one change, of their order.
pub fn changes(old: &Value, new: &Value) -> Vec<Change> {
    let (old_flat, new_flat) = (flatten(old), flatten(new));
    let mut keys: Vec<&(String, String)> = old_flat.keys().chain(new_flat.keys()).collect();
    keys.sort();
    keys.dedup();
    let mut found = Vec::new();
    for key in keys {
        let (mut before, mut after) = (old_flat.get(key).cloned(), new_flat.get(key).cloned());
        if let (ORDER, Some(old_order), Some(new_order)) = (key.1.as_str(), &before, &after) {
            let common = |from: &str, other: &str| {
                let other: Vec<&str> = other.split(' ').collect();
                from.split(' ').filter(|flag| other.contains(flag)).collect::<Vec<_>>().join(" ")
            };
            (before, after) = (Some(common(old_order, new_order)), Some(common(new_order, old_order)));
        } else if key.1 == ORDER {
            continue;
        }
        if before != after {
            found.push(Change { stage: key.0.clone(), what: key.1.clone(), old: before, new: after });
        }
    }
    if found.is_empty() && old != new {
        // Two notations of one text: a literal that reads like a binding.
        let (old, new) = (Some(old.to_string()), Some(new.to_string()));
        found.push(Change { stage: "spec".to_owned(), what: "notation".to_owned(), old, new });
    }
    found
}

/// The pseudo-field that holds the order of a process's flags.
const ORDER: &str = "order of flags";

type Flat = BTreeMap<(String, String), String>;

fn flatten(spec: &Value) -> Flat {
    let mut flat = Flat::new();
    let empty = serde_json::Map::new();
    let root = spec.as_object().unwrap_or(&empty);
    for (name, value) in root {
        match name.as_str() {
            "deployment" | "measurement" => {
                for (part, value) in value.as_object().unwrap_or(&empty) {
                    match part.as_str() {
                        "services" => {
                            for service in value.as_array().into_iter().flatten() {
                                let name = service["name"].as_str().unwrap_or_default();
                                process(name, service, &mut flat);
                            }
                        }
                        "client" => process("client", value, &mut flat),
                        _ => leaves(part, "", value, &mut flat),
                    }
                }
            }
            _ => leaves(name, "", value, &mut flat),
        }
    }
    flat
}

fn process(stage: &str, service: &Value, flat: &mut Flat) {
    let empty = serde_json::Map::new();
    for (field, value) in service.as_object().unwrap_or(&empty) {
        match field.as_str() {
            "argv" => argv(stage, value.as_array().map_or(&[][..], Vec::as_slice), flat),
            "env" => {
                for (name, value) in value.as_object().unwrap_or(&empty) {
                    text(stage, &format!("env {name}"), value, flat);
                }
            }
            "files" => {
                for (name, value) in value.as_object().unwrap_or(&empty) {
                    text(stage, &format!("file {name}"), value, flat);
                }
            }
            "packages" => {
                for package in value.as_array().into_iter().flatten() {
                    let name = package["name"].as_str().unwrap_or_default();
                    leaves(stage, &format!("package {name}"), package, flat);
                }
            }
            _ => leaves(stage, field, value, flat),
        }
    }
}

/// Flags with their values, each repetition numbered; words before the first flag by position.
fn argv(stage: &str, items: &[Value], flat: &mut Flat) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut order = Vec::new();
    let mut at = 0;
    let mut position = 0;
    while at < items.len() {
        let Some(flag) = items[at].as_str().filter(|item| item.starts_with('-')) else {
            text(stage, &format!("argument {position}"), &items[at], flat);
            position += 1;
            at += 1;
            continue;
        };
        let (name, joined) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        let count = seen.entry(name.to_owned()).and_modify(|count| *count += 1).or_insert(1);
        let what = if *count == 1 { name.to_owned() } else { format!("{name} ({count})") };
        order.push(what.clone());
        at += 1;
        let start = at;
        while at < items.len() && !items[at].as_str().is_some_and(|item| item.starts_with('-')) {
            at += 1;
        }
        match (joined, &items[start..at]) {
            (Some(value), rest) => {
                insert(stage, &what, format!("={value}"), flat);
                for (index, item) in rest.iter().enumerate() {
                    text(stage, &format!("{what} [{index}]"), item, flat);
                }
            }
            (None, []) => insert(stage, &what, "set".to_owned(), flat),
            (None, [only]) => text(stage, &what, only, flat),
            (None, many) => {
                for (index, item) in many.iter().enumerate() {
                    text(stage, &format!("{what} [{index}]"), item, flat);
                }
            }
        }
    }
    if !order.is_empty() {
        insert(stage, ORDER, order.join(" "), flat);
    }
}

/// A text: JSON documents by their leaves, the rest as it reads.
fn text(stage: &str, what: &str, value: &Value, flat: &mut Flat) {
    match value.get("json") {
        Some(json) => json_leaves(stage, what, json, flat),
        None => insert(stage, what, readable(value), flat),
    }
}

fn json_leaves(stage: &str, what: &str, tree: &Value, flat: &mut Flat) {
    match tree.get("map").and_then(Value::as_object) {
        Some(map) if !map.is_empty() => {
            for (key, value) in map {
                json_leaves(stage, &format!("{what} {key}"), value, flat);
            }
        }
        // Within JSON "1" and 1 differ.
        _ if tree.is_string() => insert(stage, what, tree.to_string(), flat),
        _ => insert(stage, what, readable(tree), flat),
    }
}

/// Any other part of the document by its leaves.
fn leaves(stage: &str, what: &str, value: &Value, flat: &mut Flat) {
    let below = |name: &str| if what.is_empty() { name.to_owned() } else { format!("{what} {name}") };
    match value {
        Value::Object(map) if map.len() == 1 && map.get("decimal").is_some_and(Value::is_string) => {
            insert(stage, what, readable(value), flat);
        }
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                leaves(stage, &below(name), value, flat);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                let name = item["name"].as_str().or(item["service"].as_str());
                leaves(stage, &below(name.unwrap_or(&index.to_string())), item, flat);
            }
        }
        Value::String(text) => insert(stage, what, text.clone(), flat),
        other => insert(stage, what, other.to_string(), flat),
    }
}

fn insert(stage: &str, what: &str, value: String, flat: &mut Flat) {
    flat.insert((stage.to_owned(), what.to_owned()), value);
}

/// Text segments with `<bindings>` in place, decimals as their digits, anything else as JSON.
fn readable(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return text.to_owned();
    }
    if let Some(decimal) = value.get("decimal").and_then(Value::as_str) {
        return decimal.to_owned();
    }
    if let Some(segments) = value.get("text").and_then(Value::as_array) {
        return segments
            .iter()
            .map(|segment| match serde_json::from_value::<super::Segment>(segment.clone()) {
                Ok(super::Segment::Literal(text)) => text,
                Ok(super::Segment::Bind(binding)) => format!("<{binding}>"),
                Err(_) => segment.to_string(),
            })
            .collect();
    }
    if let Some(binding) = value.get("number")
        && let Ok(binding) = serde_json::from_value::<super::Binding>(binding.clone())
    {
        return format!("<{binding}>");
    }
    value.to_string()
}
