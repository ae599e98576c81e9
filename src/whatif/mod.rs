//! What-ifs: inputs of a spec, found by the names under which `diff` prints them, set to other values. What `run --set` does.
//!
//! | path | what it is |
//! |---|---|
//! | `SERVICE.args.FLAG`, `SERVICE.FLAG` | a flag's value; `true` for a bare flag |
//! | `SERVICE.args.FLAG.KEY…` | a value within a flag's JSON |
//! | `SERVICE.env.NAME` | a variable |
//! | `SERVICE.file.NAME`, `SERVICE.file.NAME.KEY…` | a file's text, or a value within its JSON |
//! | `SERVICE.resources.…`, `SERVICE.probe.…` | limits, readiness |
//! | `workload.duration-s`, `workload.seed`, `workload.split`, `gates.…` | what the result is held against |
//! | `substitutions.client.…`, `substitutions.engine.…` | settings of a rehearsal |
//!
//! The client is the service `client`. A path is the words of a line of `diff` with dots between them. Values that the host
//! binds, and what the lock, the matrix row or the acceptance policy decides, cannot be set. It knows no arm and no recipe.

mod inputs;

use serde_json::{Map, Value, json};

use crate::config::similar::closest;
use crate::spec::JobSpec;
use crate::speculative::{RESERVED_ENV, is_reserved};
use inputs::{Kind, Leaf, Whole, json_maps, leaves, number, processes};

/// A change as it is written: `PATH=VALUE`, `+PATH=VALUE` to add what is not there, `PATH=null` to remove.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// What; the words of `diff` with dots between them.
    pub path: String,
    /// The new value.
    pub value: String,
    /// Whether it is new.
    pub add: bool,
}

/// Why a setting cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// No `=`.
    #[error("`{0}` is no setting: write PATH=VALUE")]
    NoValue(String),
    /// The spec has no such input.
    #[error("the spec has no input `{path}`")]
    Unknown {
        /// As it was written.
        path: String,
        /// What was meant, or how to find or add it.
        hint: String,
    },
    /// Something else decides it.
    #[error("`{path}` cannot be set: {why}")]
    Fixed {
        /// As it was written.
        path: String,
        /// Who decides it.
        why: String,
    },
    /// The value is of another kind.
    #[error("`{path}` takes {wanted}, not `{value}`")]
    Kind {
        /// What was to be set.
        path: String,
        /// What it takes.
        wanted: &'static str,
        /// What was given.
        value: String,
    },
    /// It has this value.
    #[error("`{path}` is `{value}` already")]
    Unchanged {
        /// What was to be set.
        path: String,
        /// Its value.
        value: String,
    },
    /// It was set twice.
    #[error("`{0}` is set twice")]
    Twice(String),
}

impl SetError {
    /// What to do, where that is not plain.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unknown { hint, .. } => Some(hint),
            _ => None,
        }
    }
}

impl std::str::FromStr for Setting {
    type Err = SetError;

    fn from_str(text: &str) -> Result<Self, SetError> {
        let (path, value) = text.split_once('=').ok_or_else(|| SetError::NoValue(text.to_owned()))?;
        let (add, path) = path.strip_prefix('+').map_or((false, path), |path| (true, path));
        if path.is_empty() {
            return Err(SetError::NoValue(text.to_owned()));
        }
        Ok(Self { path: path.replace(' ', "."), value: value.to_owned(), add })
    }
}

/// As it was written, with the path in full.
impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}={}", if self.add { "+" } else { "" }, self.path, self.value)
    }
}

/// Applies settings to a spec, in any order; their full paths are noted in its `what-if`.
///
/// # Errors
/// A path that names nothing, or nothing that may be set; a value of another kind, or the one that it has.
pub fn set(spec: &JobSpec, settings: &[Setting]) -> Result<JobSpec, SetError> {
    let mut settings = settings.to_vec();
    settings.sort();
    let mut document = serde_json::to_value(spec).unwrap_or_default();
    let mut noted: Vec<Setting> = Vec::new();
    for setting in &settings {
        let path = apply(&mut document, setting)?;
        if noted.iter().any(|other| other.path == path) {
            return Err(SetError::Twice(path));
        }
        // Every single one, so that the fault is told of the setting that made it.
        if serde_json::from_value::<JobSpec>(document.clone()).is_err() {
            return Err(SetError::Kind { path, wanted: "something else", value: setting.value.clone() });
        }
        noted.push(Setting { path, ..setting.clone() });
    }
    let mut changed: JobSpec = serde_json::from_value(document).unwrap_or_else(|_| spec.clone());
    changed.what_if.extend(noted.iter().map(ToString::to_string));
    changed.what_if.sort();
    Ok(changed)
}

/// Every path that can be set, in the order of the spec.
pub fn paths(spec: &JobSpec) -> Vec<String> {
    let document = serde_json::to_value(spec).unwrap_or_default();
    let settable =
        |leaf: Leaf| (!matches!(leaf.kind, Kind::Bound) && fixed(&document, &leaf.path).is_none()).then_some(leaf.path);
    leaves(&document).into_iter().filter_map(settable).collect()
}

fn apply(document: &mut Value, setting: &Setting) -> Result<String, SetError> {
    let asked = setting.path.as_str();
    if let Some(why) = fixed(document, asked) {
        return Err(SetError::Fixed { path: asked.to_owned(), why });
    }
    let known = leaves(document);
    let found = known.into_iter().find(|leaf| leaf.path == asked || short(&leaf.path) == asked);
    let Some(leaf) = found else {
        return if setting.add { add(document, setting) } else { Err(unknown(document, asked)) };
    };
    let (path, value) = (leaf.path, setting.value.as_str());
    if setting.add {
        let why = format!("it is there already: write {path}={value}");
        return Err(SetError::Fixed { path, why });
    }
    if matches!(leaf.kind, Kind::Bound) {
        return Err(SetError::Fixed { path, why: "the host decides it when the job runs".to_owned() });
    }
    if value == "null"
        && let Some(whole) = leaf.whole
    {
        remove(document, &whole);
        return Ok(path);
    }
    let kind = |wanted| SetError::Kind { path: path.clone(), wanted, value: value.to_owned() };
    let new = match &leaf.kind {
        Kind::Text => Value::from(value),
        Kind::Joined(flag) => Value::from(format!("{flag}={value}")),
        Kind::Bare if value == "true" => return Err(SetError::Unchanged { path, value: value.to_owned() }),
        Kind::Bare => return Err(kind("null, which removes it: it is a flag without a value")),
        Kind::Whole => value.parse::<i64>().map(Value::from).map_err(|_| kind("a whole number"))?,
        Kind::Digits => number(value).map(|_| Value::from(value)).ok_or_else(|| kind("a number"))?,
        Kind::Number => number(value).ok_or_else(|| kind("a number"))?,
        Kind::Switch => value.parse::<bool>().map(Value::from).map_err(|_| kind("true or false"))?,
        Kind::Json => serde_json::from_str(value).map(|json| tree(&json)).map_err(|_| kind("a JSON value"))?,
        Kind::Bound => return Err(kind("nothing")),
    };
    let Some(place) = document.pointer_mut(&leaf.pointer) else { return Err(kind("nothing")) };
    if *place == new {
        return Err(SetError::Unchanged { path, value: value.to_owned() });
    }
    *place = new;
    Ok(path)
}

/// Adds a flag, a variable, or a key to JSON that is there.
fn add(document: &mut Value, setting: &Setting) -> Result<String, SetError> {
    let (asked, value) = (setting.path.as_str(), setting.value.as_str());
    for (stage, pointer) in processes(document) {
        let Some(rest) = asked.strip_prefix(&format!("{stage}.")) else { continue };
        if let Some(name) = rest.strip_prefix("env.") {
            if let Some(env) = document.pointer_mut(&format!("{pointer}/env")).and_then(Value::as_object_mut) {
                env.insert(name.to_owned(), value.into());
            }
            return Ok(asked.to_owned());
        }
        let flag = rest.strip_prefix("args.").unwrap_or(rest);
        let mut inner = json_maps(document).into_iter().filter_map(|(path, pointer)| {
            let key = asked.strip_prefix(&path).or_else(|| asked.strip_prefix(&short(&path)))?.strip_prefix('.')?;
            (!key.contains('.')).then(|| (format!("{path}.{key}"), pointer, key.to_owned()))
        });
        if let Some((path, pointer, key)) = inner.next_back() {
            if let Some(map) = document.pointer_mut(&pointer).and_then(Value::as_object_mut) {
                let new = serde_json::from_str(value).map_or_else(|_| value.into(), |json| tree(&json));
                map.insert(key, new);
            }
            return Ok(path);
        }
        if flag.starts_with('-') && !flag.contains('.') {
            if let Some(argv) = document.pointer_mut(&format!("{pointer}/argv")).and_then(Value::as_array_mut) {
                argv.push(flag.into());
                argv.extend((value != "true").then(|| value.into()));
            }
            return Ok(format!("{stage}.args.{flag}"));
        }
    }
    Err(unknown(document, asked))
}

fn remove(document: &mut Value, whole: &Whole) {
    match whole {
        Whole::Items(pointer, range) => {
            if let Some(items) = document.pointer_mut(pointer).and_then(Value::as_array_mut) {
                items.drain(range.clone());
            }
        }
        Whole::Key(pointer, key) => {
            if let Some(map) = document.pointer_mut(pointer).and_then(Value::as_object_mut) {
                map.remove(key);
            }
        }
    }
}

fn unknown(document: &Value, asked: &str) -> SetError {
    let known: Vec<String> = leaves(document).into_iter().map(|leaf| leaf.path).collect();
    let shorts: Vec<String> = known.iter().map(|path| short(path)).collect();
    let near = closest(asked, known.iter().map(String::as_str)).or(closest(asked, shorts.iter().map(String::as_str)));
    let new = if asked.contains(".env.") || asked.contains(".-") { "; to add it, write +PATH=VALUE" } else { "" };
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?{new}"),
        None => {
            let mut tops: Vec<&str> = known.iter().filter_map(|path| path.split('.').next()).collect();
            tops.dedup();
            format!("paths begin with {}, and go on as `ixbuild diff` prints them{new}", tops.join(", "))
        }
    };
    SetError::Unknown { path: asked.to_owned(), hint }
}

/// Why what the lock pins cannot be set.
const PINNED: &str = "its digest would not hold: edit the matrix or configs/clients.yaml, then run `ixbuild lock`";

/// Who decides what no setting may change.
fn fixed(document: &Value, path: &str) -> Option<String> {
    let words: Vec<&str> = path.split('.').collect();
    let reserved = words.iter().any(|word| is_reserved(word))
        || matches!(words[..], [_, "env", name] if RESERVED_ENV.contains(&name));
    let of_a_process = processes(document).iter().any(|(stage, _)| *stage == words[0]);
    Some(match words[..] {
        _ if reserved => "the policy of speculative decoding decides it".to_owned(),
        ["speculative", ..] => "the policy of speculative decoding decides it".to_owned(),
        ["model" | "hardware" | "groups", ..] => "the matrix row decides it".to_owned(),
        ["schema" | "exploratory" | "what-if" | "output" | "server", ..] if words.len() == 1 => {
            "it says what kind of job this is".to_owned()
        }
        ["workload", "dataset", ..] => PINNED.to_owned(),
        [_, "image" | "package", ..] if of_a_process => PINNED.to_owned(),
        [_, "replicas" | "group"] | [_, "resources", "gpus"] if of_a_process => "the matrix row decides it".to_owned(),
        _ => return None,
    })
}

/// A path without the `args.` that may be left out.
fn short(path: &str) -> String {
    path.replacen(".args.", ".", 1)
}

/// JSON as a spec writes it.
fn tree(json: &Value) -> Value {
    match json {
        Value::Number(digits) => number(&digits.to_string()).unwrap_or_else(|| json.clone()),
        Value::Array(items) => items.iter().map(tree).collect(),
        Value::Object(map) => {
            json!({"map": map.iter().map(|(key, value)| (key.clone(), tree(value))).collect::<Map<_, _>>()})
        }
        other => other.clone(),
    }
}
