//! The inputs of a spec by name: the same names that `diff` prints, with where each stands in the document and what it takes.

use serde_json::{Value, json};

/// An input of a spec.
#[derive(Debug)]
pub struct Leaf {
    /// Its name in full.
    pub path: String,
    /// Where it stands in the document.
    pub pointer: String,
    /// What it takes.
    pub kind: Kind,
    /// What to take out to be rid of it.
    pub whole: Option<Whole>,
}

/// What an input takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Text behind `--flag=`.
    Joined(String),
    /// A flag without a value.
    Bare,
    /// A whole number of the spec.
    Whole,
    /// Digits with or without a fraction.
    Digits,
    /// A number within JSON.
    Number,
    /// A switch within JSON.
    Switch,
    /// Any JSON.
    Json,
    /// The host decides it.
    Bound,
}

/// A part of the document that can be taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whole {
    /// Items of a list, by its pointer.
    Items(String, std::ops::Range<usize>),
    /// An entry of a map, by its pointer.
    Key(String, String),
}

/// Name and pointer of every process.
pub fn processes(document: &Value) -> Vec<(String, String)> {
    let services = document["deployment"]["services"].as_array().map_or(&[][..], Vec::as_slice);
    let name = |service: &Value| service["name"].as_str().unwrap_or_default().to_owned();
    let services =
        services.iter().enumerate().map(|(at, service)| (name(service), format!("/deployment/services/{at}")));
    services.chain([("client".to_owned(), "/measurement/client".to_owned())]).collect()
}

/// Every input that has a name, in the order of the spec.
pub fn leaves(document: &Value) -> Vec<Leaf> {
    let mut found = Vec::new();
    for (stage, pointer) in processes(document) {
        let Some(process) = document.pointer(&pointer) else { continue };
        argv(&stage, &format!("{pointer}/argv"), &process["argv"], &mut found);
        for (field, word) in [("env", "env"), ("files", "file")] {
            let map = format!("{pointer}/{field}");
            for (name, value) in process[field].as_object().into_iter().flatten() {
                let whole = Whole::Key(map.clone(), name.clone());
                text(&format!("{stage}.{word}.{name}"), &format!("{map}/{}", escaped(name)), value, &whole, &mut found);
            }
        }
        for field in ["resources", "probe"] {
            plain(&format!("{stage}.{field}"), &format!("{pointer}/{field}"), &process[field], &mut found);
        }
    }
    for (path, pointer) in [
        ("workload", "/measurement/workload"),
        ("gates", "/measurement/gates"),
        ("substitutions.client", "/deployment/substitutions/client"),
        ("substitutions.engine", "/deployment/substitutions/engine"),
    ] {
        if let Some(value) = document.pointer(pointer) {
            plain(path, pointer, value, &mut found);
        }
    }
    found
}

/// The flags of a command, named as `diff` names them.
fn argv(stage: &str, pointer: &str, items: &Value, found: &mut Vec<Leaf>) {
    let items = items.as_array().map_or(&[][..], Vec::as_slice);
    let is_flag = |at: usize| items.get(at).and_then(Value::as_str).is_some_and(|item| item.starts_with('-'));
    let mut seen: Vec<&str> = Vec::new();
    let (mut at, mut position) = (0, 0);
    while at < items.len() {
        let Some(word) = items[at].as_str().filter(|_| is_flag(at)) else {
            let whole = Whole::Items(pointer.to_owned(), at..at + 1);
            text(&format!("{stage}.argument.{position}"), &format!("{pointer}/{at}"), &items[at], &whole, found);
            (at, position) = (at + 1, position + 1);
            continue;
        };
        let end = (at + 1..items.len()).find(|&next| is_flag(next)).unwrap_or(items.len());
        let (flag, joined) = word.split_once('=').map_or((word, false), |(flag, _)| (flag, true));
        seen.push(flag);
        let count = seen.iter().filter(|other| **other == flag).count();
        let path = format!("{stage}.args.{flag}{}", if count > 1 { format!(".({count})") } else { String::new() });
        let whole = Whole::Items(pointer.to_owned(), at..end);
        let leaf = |path: &str, at: usize, kind| Leaf {
            path: path.to_owned(),
            pointer: format!("{pointer}/{at}"),
            kind,
            whole: Some(whole.clone()),
        };
        match (joined, end - at - 1) {
            (true, 0) => found.push(leaf(&path, at, Kind::Joined(flag.to_owned()))),
            (false, 0) => found.push(leaf(&path, at, Kind::Bare)),
            (false, 1) => text(&path, &format!("{pointer}/{}", at + 1), &items[at + 1], &whole, found),
            _ => {
                if joined {
                    found.push(leaf(&path, at, Kind::Joined(flag.to_owned())));
                }
                for (index, item) in items[at + 1..end].iter().enumerate() {
                    let at = at + 1 + index;
                    let one = Whole::Items(pointer.to_owned(), at..at + 1);
                    text(&format!("{path}.[{index}]"), &format!("{pointer}/{at}"), item, &one, found);
                }
            }
        }
        at = end;
    }
}

/// A text: as a whole, and where it is JSON also by its leaves.
fn text(path: &str, pointer: &str, value: &Value, whole: &Whole, found: &mut Vec<Leaf>) {
    let leaf = |pointer: String, kind| Leaf { path: path.to_owned(), pointer, kind, whole: Some(whole.clone()) };
    match value.get("json") {
        Some(json) => {
            found.push(leaf(format!("{pointer}/json"), Kind::Json));
            json_leaves(path, &format!("{pointer}/json"), json, found);
        }
        None if value.is_string() => found.push(leaf(pointer.to_owned(), Kind::Text)),
        None => found.push(leaf(pointer.to_owned(), Kind::Bound)),
    }
}

fn json_leaves(path: &str, pointer: &str, json: &Value, found: &mut Vec<Leaf>) {
    for (key, value) in json.get("map").and_then(Value::as_object).into_iter().flatten() {
        let (path, map) = (format!("{path}.{key}"), format!("{pointer}/map"));
        let pointer = format!("{map}/{}", escaped(key));
        let kind = match value {
            Value::String(_) => Kind::Text,
            Value::Bool(_) => Kind::Switch,
            Value::Number(_) => Kind::Number,
            Value::Object(tagged) if tagged.contains_key("decimal") => Kind::Number,
            Value::Object(tagged) if tagged.contains_key("text") || tagged.contains_key("number") => Kind::Bound,
            _ => Kind::Json,
        };
        let whole = Some(Whole::Key(map, key.clone()));
        found.push(Leaf { path: path.clone(), pointer: pointer.clone(), kind, whole });
        json_leaves(&path, &pointer, value, found);
    }
}

/// Paths and pointers of the JSON maps that keys can be added to, outer ones first.
pub fn json_maps(document: &Value) -> Vec<(String, String)> {
    let maps = leaves(document).into_iter().filter_map(|leaf| {
        let pointer = format!("{}/map", leaf.pointer);
        document.pointer(&pointer)?.is_object().then_some((leaf.path, pointer))
    });
    maps.collect()
}

/// Other parts of the spec: text, whole numbers, digits.
fn plain(path: &str, pointer: &str, value: &Value, found: &mut Vec<Leaf>) {
    let kind = match value {
        Value::Object(map) => {
            for (name, value) in map {
                plain(&format!("{path}.{name}"), &format!("{pointer}/{}", escaped(name)), value, found);
            }
            return;
        }
        Value::Number(_) => Kind::Whole,
        Value::Bool(_) => Kind::Switch,
        Value::String(digits) if number(digits).is_some() => Kind::Digits,
        Value::String(_) => Kind::Text,
        Value::Array(_) | Value::Null => return,
    };
    found.push(Leaf { path: path.to_owned(), pointer: pointer.to_owned(), kind, whole: None });
}

/// A number as a spec writes it: an integer, or the digits of a fraction.
pub fn number(text: &str) -> Option<Value> {
    if let Ok(integer) = text.parse::<i64>() {
        return Some(integer.into());
    }
    let well_formed = serde_json::from_str::<serde_json::Number>(text).is_ok();
    well_formed.then(|| json!({"decimal": text}))
}

/// A key within a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
