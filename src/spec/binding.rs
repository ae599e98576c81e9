//! Text that is complete except for what the host decides: ports, paths, device names.
//!
//! A [`Text`] is an argv item, an environment value or a file. In a spec a literal is a JSON string and a binding a JSON
//! object, so no literal can spell a binding. [`Text::render`] is the only way from either to the bytes that a process sees;
//! it asks a [`Binder`] for each binding. JSON in argv and files is kept as a [`Tree`] and printed compactly with sorted
//! keys, because the order of keys is not part of what is measured.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A mapping key. Sorted as RFC 8785 wants it: by UTF-16 code units.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub String);

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        if self.0.is_ascii() || other.0.is_ascii() {
            // One side below U+0080: code points, bytes and UTF-16 units agree at the first difference.
            return self.0.cmp(&other.0);
        }
        self.0.encode_utf16().cmp(other.0.encode_utf16())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// What the executor decides at run time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Binding {
    /// Where a service listens.
    Endpoint {
        /// The endpoint's name within the service.
        name: String,
        /// Which half of the address.
        part: Part,
        /// The service.
        service: String,
    },
    /// The path of one of this service's files.
    File {
        /// Its name.
        name: String,
    },
    /// A directory of this job that outlives the process: the client's output.
    Directory {
        /// Its name.
        name: String,
    },
    /// A directory of the host that may be warm from earlier jobs.
    Cache {
        /// Its name.
        name: String,
    },
    /// A fact of the host that the profile gives, such as its RDMA device names.
    Host {
        /// Its name.
        name: String,
    },
    /// Where the model's weights are.
    Model {},
}

/// Which half of an endpoint's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The host name or IP address, as reached from the other services.
    Host,
    /// The TCP port.
    Port,
}

/// `server.http.port`, `file(mooncake.json)`: how messages and `show` name a binding.
impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Binding::Endpoint { name, part: Part::Host, service } => write!(f, "{service}.{name}.host"),
            Binding::Endpoint { name, part: Part::Port, service } => write!(f, "{service}.{name}.port"),
            Binding::File { name } => write!(f, "file({name})"),
            Binding::Directory { name } => write!(f, "directory({name})"),
            Binding::Cache { name } => write!(f, "cache({name})"),
            Binding::Host { name } => write!(f, "host({name})"),
            Binding::Model {} => write!(f, "model.path"),
        }
    }
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Segment {
    /// As it is.
    Literal(String),
    /// Filled in at run time.
    Bind(Binding),
}

/// An argv item, an environment value, or a file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Text {
    /// Known text.
    Literal(String),
    /// Text with bindings in it; at least one.
    Segments {
        /// In order; literals are not empty and not adjacent.
        text: Vec<Segment>,
    },
    /// A JSON document, printed compactly.
    Json {
        /// The document.
        json: Tree,
    },
}

/// A JSON value with bindings in it. Objects are tagged so that no literal object can look like a binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Tree {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer within ±2^53.
    Integer(i64),
    /// A string.
    String(String),
    /// A list.
    List(Vec<Tree>),
    /// An object.
    Map {
        /// Its entries.
        map: BTreeMap<Key, Tree>,
    },
    /// A number with a fraction, digit for digit.
    Decimal {
        /// Its digits, a JSON number.
        decimal: String,
    },
    /// A string with bindings in it.
    Segments {
        /// In order, as in [`Text::Segments`].
        text: Vec<Segment>,
    },
    /// A number that the host decides: a port.
    Number {
        /// Which.
        number: Binding,
    },
}

/// Gives the value of a binding.
pub trait Binder {
    /// The text to put in the binding's place.
    ///
    /// # Errors
    /// The host has no such thing: no endpoint of that name, no such fact in the profile.
    fn bind(&self, binding: &Binding) -> Result<Cow<'_, str>, Unbound>;
}

/// A binding that the host cannot fill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nothing on this host gives `{binding}`: {why}")]
pub struct Unbound {
    /// The binding.
    pub binding: Binding,
    /// What is missing and where to say it.
    pub why: String,
}

/// Joins adjacent literals and drops empty ones.
pub fn normal_segments(segments: Vec<Segment>) -> Vec<Segment> {
    let mut normal: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments {
        match (normal.last_mut(), segment) {
            (_, Segment::Literal(text)) if text.is_empty() => {}
            (Some(Segment::Literal(before)), Segment::Literal(text)) => before.push_str(&text),
            (_, segment) => normal.push(segment),
        }
    }
    normal
}

impl Text {
    /// The one form of a text made of these segments.
    pub fn from_segments(segments: Vec<Segment>) -> Self {
        let mut segments = normal_segments(segments);
        match segments.as_mut_slice() {
            [] => Text::Literal(String::new()),
            [Segment::Literal(text)] => Text::Literal(std::mem::take(text)),
            _ => Text::Segments { text: segments },
        }
    }

    /// The bytes that the process sees.
    ///
    /// # Errors
    /// A binding that the binder does not know.
    pub fn render(&self, binder: &dyn Binder) -> Result<String, Unbound> {
        let mut out = String::new();
        match self {
            Text::Literal(text) => out.push_str(text),
            Text::Segments { text } => render_segments(text, binder, &mut |part| out.push_str(part))?,
            Text::Json { json } => json.render(binder, &mut out)?,
        }
        Ok(out)
    }

    /// Every binding in it, in order of appearance.
    pub fn bindings(&self) -> Vec<&Binding> {
        let mut found = Vec::new();
        match self {
            Text::Literal(_) => {}
            Text::Segments { text } => segment_bindings(text, &mut found),
            Text::Json { json } => json.bindings(&mut found),
        }
        found
    }
}

fn render_segments(segments: &[Segment], binder: &dyn Binder, out: &mut dyn FnMut(&str)) -> Result<(), Unbound> {
    for segment in segments {
        match segment {
            Segment::Literal(text) => out(text),
            Segment::Bind(binding) => out(&binder.bind(binding)?),
        }
    }
    Ok(())
}

fn segment_bindings<'t>(segments: &'t [Segment], found: &mut Vec<&'t Binding>) {
    found.extend(segments.iter().filter_map(|segment| match segment {
        Segment::Literal(_) => None,
        Segment::Bind(binding) => Some(binding),
    }));
}

impl Tree {
    fn render(&self, binder: &dyn Binder, out: &mut String) -> Result<(), Unbound> {
        match self {
            Tree::Null => out.push_str("null"),
            Tree::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Tree::Integer(value) => out.push_str(&value.to_string()),
            Tree::Decimal { decimal } => out.push_str(decimal),
            Tree::String(text) => push_json_string(text, out),
            Tree::Segments { text } => {
                let mut whole = String::new();
                render_segments(text, binder, &mut |part| whole.push_str(part))?;
                push_json_string(&whole, out);
            }
            Tree::Number { number } => out.push_str(&binder.bind(number)?),
            Tree::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.render(binder, out)?;
                }
                out.push(']');
            }
            Tree::Map { map } => {
                out.push('{');
                for (index, (key, value)) in map.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    push_json_string(&key.0, out);
                    out.push(':');
                    value.render(binder, out)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }

    fn bindings<'t>(&'t self, found: &mut Vec<&'t Binding>) {
        match self {
            Tree::List(items) => items.iter().for_each(|item| item.bindings(found)),
            Tree::Map { map } => map.values().for_each(|value| value.bindings(found)),
            Tree::Segments { text } => segment_bindings(text, found),
            Tree::Number { number } => found.push(number),
            Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::String(_) | Tree::Decimal { .. } => {}
        }
    }
}

fn push_json_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}
