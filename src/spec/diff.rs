//! The full difference of two specs, as a person would name it: flags by name, files by key, services by name.
//!
//! Both canonical documents are flattened to `stage, name → leaf` and compared; the same flattening serves `why` and `diff`,
//! so nothing that is hashed can escape them (a test changes every leaf). A leaf is compared by its JSON and shown as it
//! reads; two that read alike and differ are shown by their JSON.

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
        let (before, after) = (old_flat.get(key), new_flat.get(key));
        if before.map(|leaf| &leaf.exact) == after.map(|leaf| &leaf.exact) {
            continue;
        }
        let alike = before.map(|leaf| &leaf.shown) == after.map(|leaf| &leaf.shown);
        let text = |leaf: &Leaf| if alike { leaf.exact.clone() } else { leaf.shown.clone() };
        let (mut before, mut after) = (before.map(text), after.map(text));
        if key.1 == ORDER {
            // Flags that came or went are changes of their own: what remains of the order is that of the others.
            let common = |from: &str, other: &str| {
                let other: Vec<&str> = other.split(' ').collect();
                from.split(' ').filter(|flag| other.contains(flag)).collect::<Vec<_>>().join(" ")
            };
            let (Some(old_order), Some(new_order)) = (&before, &after) else { continue };
            (before, after) = (Some(common(old_order, new_order)), Some(common(new_order, old_order)));
            if before == after {
                continue;
            }
        }
        found.push(Change { stage: key.0.clone(), what: key.1.clone(), old: before, new: after });
    }
    if found.is_empty() && old != new {
        // The parts of both are the same and stand in another order: no composed spec does that, a foreign one may.
        let (old, new) = (Some(old.to_string()), Some(new.to_string()));
        found.push(Change { stage: "spec".to_owned(), what: "order of parts".to_owned(), old, new });
    }
    found
}

/// The pseudo-field that holds the order of a process's flags.
const ORDER: &str = "order of flags";

/// One value of a document.
struct Leaf {
    /// As a person reads it.
    shown: String,
    /// As JSON.
    exact: String,
}

type Flat = BTreeMap<(String, String), Leaf>;

fn flatten(spec: &Value) -> Flat {
    let mut flat = Flat::new();
    let empty = serde_json::Map::new();
    for (name, value) in spec.as_object().unwrap_or(&empty) {
        let Some(half) = value.as_object() else {
            leaves("spec", name, value, &mut flat);
            continue;
        };
        for (part, value) in half {
            match (part.as_str(), value) {
                ("services", Value::Array(services)) => {
                    for service in services {
                        process(service["name"].as_str().unwrap_or_default(), service, &mut flat);
                    }
                }
                ("client", _) => process("client", value, &mut flat),
                (_, Value::Object(_) | Value::Array(_)) => leaves(part, "", value, &mut flat),
                _ => leaves(name, part, value, &mut flat),
            }
        }
    }
    flat
}

fn process(stage: &str, service: &Value, flat: &mut Flat) {
    let empty = serde_json::Map::new();
    for (field, value) in service.as_object().unwrap_or(&empty) {
        match (field.as_str(), value) {
            ("argv", Value::Array(items)) => argv(stage, items, flat),
            ("env" | "files", Value::Object(map)) => {
                for (name, value) in map {
                    text(stage, &format!("{} {name}", field.trim_end_matches('s')), value, flat);
                }
            }
            ("after" | "mounts", Value::Array(items)) if items.is_empty() => {}
            ("packages", Value::Array(packages)) => {
                for package in packages {
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
    while at < items.len() {
        let Some(flag) = flag(&items[at]) else {
            text(stage, &format!("argument {at}"), &items[at], flat);
            at += 1;
            continue;
        };
        let (name, joined) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag.as_str(), None),
        };
        let count = seen.entry(name.to_owned()).and_modify(|count| *count += 1).or_insert(1);
        let what = if *count == 1 { name.to_owned() } else { format!("{name} ({count})") };
        order.push(what.replace(' ', ""));
        let own = at;
        at += 1;
        let start = at;
        while at < items.len() && self::flag(&items[at]).is_none() {
            at += 1;
        }
        match (joined, &items[start..at]) {
            (None, []) => insert(stage, &what, "set".to_owned(), String::new(), flat),
            (None, [only]) => text(stage, &what, only, flat),
            (joined, values) => {
                if let Some(value) = joined {
                    insert(stage, &what, format!("={value}"), items[own].to_string(), flat);
                }
                for (index, item) in values.iter().enumerate() {
                    text(stage, &format!("{what} [{index}]"), item, flat);
                }
            }
        }
    }
    let order = order.join(" ");
    insert(stage, ORDER, order.clone(), order, flat);
}

/// An argument that is a flag, with its joined value; `-1` is a value.
fn flag(item: &Value) -> Option<String> {
    let lead = item.as_str().or_else(|| item["text"][0].as_str())?;
    let mut chars = lead.chars();
    let is_flag = chars.next() == Some('-') && !chars.next().is_none_or(|c| c.is_ascii_digit() || c == '.');
    is_flag.then(|| readable(item))
}

/// A text: JSON documents by their leaves, the rest as it reads.
fn text(stage: &str, what: &str, value: &Value, flat: &mut Flat) {
    match value.get("json") {
        Some(json) => json_leaves(stage, what, json, flat),
        None => insert(stage, what, readable(value), value.to_string(), flat),
    }
}

fn json_leaves(stage: &str, what: &str, tree: &Value, flat: &mut Flat) {
    match tree.get("map").and_then(Value::as_object) {
        Some(map) if !map.is_empty() => {
            for (key, value) in map {
                json_leaves(stage, &format!("{what} {key}"), value, flat);
            }
        }
        // Within JSON "1" and 1 differ; and a document is not the text that it is printed as.
        _ if tree.is_string() => insert(stage, what, tree.to_string(), format!("json {tree}"), flat),
        _ => insert(stage, what, readable(tree), format!("json {tree}"), flat),
    }
}

/// Any other part of the document by its leaves. An empty map has none, but where it is a choice without particulars.
fn leaves(stage: &str, what: &str, value: &Value, flat: &mut Flat) {
    let below = |name: &str| if what.is_empty() { name.to_owned() } else { format!("{what} {name}") };
    match value {
        Value::Object(map) if map.len() == 1 && map.get("decimal").is_some_and(Value::is_string) => {
            insert(stage, what, readable(value), value.to_string(), flat);
        }
        Value::Object(map) => {
            for (name, value) in map {
                match (name.as_str(), value.as_object()) {
                    ("real" | "exit" | "model", Some(unit)) if unit.is_empty() => {
                        insert(stage, &below(name), "yes".to_owned(), value.to_string(), flat);
                    }
                    _ => leaves(stage, &below(name), value, flat),
                }
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                let name = item["name"].as_str().or(item["service"].as_str());
                leaves(stage, &below(name.unwrap_or(&index.to_string())), item, flat);
            }
        }
        Value::String(text) => insert(stage, what, text.clone(), value.to_string(), flat),
        other => insert(stage, what, other.to_string(), other.to_string(), flat),
    }
}

/// Files a leaf. One whose name is taken (a service may be called `model`) is numbered: nothing is lost.
fn insert(stage: &str, what: &str, shown: String, exact: String, flat: &mut Flat) {
    let key = |count: usize| match count {
        1 => (stage.to_owned(), what.to_owned()),
        count => (stage.to_owned(), format!("{what} ({count})")),
    };
    let free = (1..).find(|count| !flat.contains_key(&key(*count))).unwrap_or(1);
    flat.insert(key(free), Leaf { shown, exact });
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
