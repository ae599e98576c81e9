//! One YAML document as a tree of text scalars, every node with its place.
//!
//! serde would stop at the first fault and forget where values stood; loaders instead walk this tree, collect all the
//! faults of a file, and keep the places. Scalars stay text: [`Node::resolve`] says how YAML 1.1 reads a plain one,
//! so `1.10` is known to be a float (and can be refused where a version belongs) and `904e4` stays text.
//! Anchors and aliases are expanded, within a bound. This file knows no schema.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::diagnostic::{Diagnostic, Diagnostics, Place, Source};

/// The largest input that is read, in bytes. Real master files are 400 KB.
pub const MAX_BYTES: usize = 64 << 20;

/// How many nodes aliases may add to a document before it is taken for a bomb.
const MAX_ALIASED_NODES: usize = 100_000;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where.
    pub place: Place,
    /// What.
    pub value: Value,
}

/// The three kinds of YAML node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A scalar's text after escapes are read, and whether it was written without quotes (or as a block).
    Scalar {
        /// The text.
        text: String,
        /// Plain scalars alone can be null, booleans or numbers.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in file order; keys are unique scalars.
    Map(Vec<(Node, Node)>),
}

/// What YAML 1.1 makes of a plain scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// `~`, `null` or nothing.
    Null,
    /// `true`, `yes`, `on` and their opposites.
    Bool(bool),
    /// A decimal integer; its text may hold `_` and a sign.
    Integer(&'a str),
    /// An integer in a notation that this project refuses: octal, hexadecimal, binary, sexagesimal.
    OddInteger(&'a str),
    /// A number with a dot, or an infinity or NaN.
    Float(&'a str),
    /// Everything else, and every quoted scalar.
    Text(&'a str),
}

impl Node {
    /// The entries of a mapping.
    pub fn as_map(&self) -> Option<&[(Node, Node)]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items of a sequence.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// A scalar's text, whatever YAML reads into it.
    pub fn scalar_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The value under a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.iter().find(|(name, _)| name.scalar_text() == Some(key)).map(|(_, value)| value)
    }

    /// How a scalar reads; nothing for collections.
    pub fn resolve(&self) -> Option<Scalar<'_>> {
        match &self.value {
            Value::Scalar { text, plain: true } => Some(resolve_plain(text)),
            Value::Scalar { text, plain: false } => Some(Scalar::Text(text)),
            _ => None,
        }
    }

    /// True for a null scalar.
    pub fn is_null(&self) -> bool {
        self.resolve() == Some(Scalar::Null)
    }

    /// "a mapping", "an integer", …: for messages.
    pub fn kind(&self) -> &'static str {
        match self.resolve() {
            None if self.as_map().is_some() => "a mapping",
            None => "a list",
            Some(Scalar::Null) => "null",
            Some(Scalar::Bool(_)) => "a boolean",
            Some(Scalar::Integer(_) | Scalar::OddInteger(_)) => "an integer",
            Some(Scalar::Float(_)) => "a float",
            Some(Scalar::Text(_)) => "a string",
        }
    }
}

/// How YAML 1.1 (as the field's tools read it) resolves a plain scalar.
pub fn resolve_plain(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(text),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits =
        |part: &str, allowed: fn(char) -> bool| !part.is_empty() && part.chars().all(|c| c == '_' || allowed(c));
    let decimal = |c: char| c.is_ascii_digit();
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Scalar::Float(text);
    }
    if let Some(radix) = unsigned.strip_prefix('0').filter(|rest| !rest.is_empty()) {
        let odd = radix.strip_prefix('b').is_some_and(|bits| digits(bits, |c| matches!(c, '0' | '1')))
            || radix.strip_prefix('x').is_some_and(|hex| digits(hex, |c| c.is_ascii_hexdigit()))
            || digits(radix, |c| matches!(c, '0'..='7'));
        if odd {
            return Scalar::OddInteger(text);
        }
    }
    let starts_with_digit = unsigned.starts_with(|c: char| c.is_ascii_digit());
    if starts_with_digit && (unsigned == "0" || !unsigned.starts_with('0')) && digits(unsigned, decimal) {
        return Scalar::Integer(text);
    }
    if starts_with_digit && unsigned.contains(':') {
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let mut parts = whole.split(':');
        let head = parts.next().is_some_and(|head| digits(head, decimal));
        let sixties = parts.all(|part| {
            matches!(part.len(), 1 | 2) && digits(part, decimal) && part.parse::<u8>().is_ok_and(|n| n < 60)
        });
        if head && sixties && fraction.chars().all(|c| c == '_' || c.is_ascii_digit()) {
            let dotted = whole.len() != unsigned.len();
            return match (dotted, unsigned.starts_with('0')) {
                (true, _) => Scalar::Float(text),
                (false, false) => Scalar::OddInteger(text),
                (false, true) => Scalar::Text(text),
            };
        }
    }
    if let Some((whole, rest)) = unsigned.split_once('.') {
        let (fraction, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let exponent_reads = exponent
            .is_none_or(|e| e.strip_prefix(['-', '+']).is_some_and(|e| !e.is_empty() && e.chars().all(decimal)));
        let fraction_reads = fraction.chars().all(|c| c == '_' || c.is_ascii_digit());
        let whole_reads = match whole {
            "" => fraction.starts_with(|c: char| c.is_ascii_digit()) && unsigned == text,
            _ => starts_with_digit && digits(whole, decimal),
        };
        if exponent_reads && fraction_reads && whole_reads {
            return Scalar::Float(text);
        }
    }
    Scalar::Text(text)
}

/// Parses a source that must hold exactly one document.
///
/// # Errors
/// Syntax faults, a second document, duplicate or composite keys, unknown or exploding aliases, tags: at their places.
pub fn parse(source: &Arc<Source>) -> Result<Node, Diagnostics> {
    let documents = parse_all(source)?;
    let mut documents = documents.into_iter();
    match (documents.next(), documents.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => {
            Err(Diagnostic::at(&place(source, 0..0), "the file is empty").help("it must hold one YAML document").into())
        }
        (Some(_), Some(second)) => Err(Diagnostic::at(&second.place, "a second YAML document in one file")
            .help("keep one document a file; remove the `---` line")
            .into()),
    }
}

fn place(source: &Arc<Source>, span: std::ops::Range<usize>) -> Place {
    Place { source: Arc::clone(source), span }
}

fn parse_all(source: &Arc<Source>) -> Result<Vec<Node>, Diagnostics> {
    if source.text.len() > MAX_BYTES {
        return Err(Diagnostic::new(format!(
            "{}: {} MiB of YAML; at most {} MiB are read",
            source.name,
            source.text.len() >> 20,
            MAX_BYTES >> 20
        ))
        .into());
    }
    let options = granit_parser::options! { emit_comments: false, flow_nesting_limit: 64, block_nesting_limit: 64 };
    let mut builder = Builder {
        source,
        open: Vec::new(),
        anchors: HashMap::new(),
        aliased: 0,
        done: Vec::new(),
        faults: Diagnostics::default(),
    };
    for step in Parser::new_from_str_with_options(&source.text, options) {
        match step {
            Ok((event, span)) => builder.event(event, span),
            Err(error) => {
                builder.faults.push(syntax(source, &error));
                break;
            }
        }
        if builder.aliased > MAX_ALIASED_NODES {
            break;
        }
    }
    let Builder { done, faults, .. } = builder;
    faults.or(done)
}

fn syntax(source: &Arc<Source>, error: &ScanError) -> Diagnostic {
    let offset = error.marker().byte_offset().unwrap_or(0).min(source.text.len());
    let line = source.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let tab = source.text[line..].chars().take_while(|c| c.is_whitespace() && *c != '\n').any(|c| c == '\t');
    let fault = Diagnostic::at(&place(source, offset..offset), format!("not valid YAML: {}", error.info()));
    if tab { fault.help("indent with spaces; YAML forbids tabs") } else { fault }
}

/// Collections under construction, innermost last.
struct Builder<'s> {
    source: &'s Arc<Source>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    aliased: usize,
    done: Vec<Node>,
    faults: Diagnostics,
}

/// The entries of an open mapping, and where each key first stood.
type Entries = (Vec<(Node, Node)>, HashMap<String, Place>);

struct Open {
    start: usize,
    anchor: usize,
    items: Vec<Node>,
    entries: Option<Entries>,
    key: Option<Node>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) {
        let range = span.byte_range().unwrap_or(0..0);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if let Some(tag) = tag {
                    self.faults.push(
                        Diagnostic::at(&place(self.source, range.clone()), format!("the tag `{tag}` is not read here"))
                            .help("remove it; quote the value to make it a string"),
                    );
                }
                let value = Value::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                self.finish(Node { place: place(self.source, range), value }, anchor);
            }
            Event::SequenceStart(_, anchor, _) => self.open(range.start, anchor, false),
            Event::MappingStart(_, anchor, _) => self.open(range.start, anchor, true),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let value = match open.entries {
                        Some((entries, _)) => Value::Map(entries),
                        None => Value::List(open.items),
                    };
                    let end = range.end.max(open.start);
                    self.finish(Node { place: place(self.source, open.start..end), value }, open.anchor);
                }
            }
            Event::Alias(id) => match self.anchors.get(&id) {
                Some((node, size)) => {
                    self.aliased += size;
                    if self.aliased > MAX_ALIASED_NODES {
                        let fault =
                            Diagnostic::at(&place(self.source, range), "aliases expand to more than 100,000 nodes");
                        self.faults.push(fault.help("write the values out, or share them in smaller parts"));
                    } else {
                        let node = node.clone();
                        self.finish(node, 0);
                    }
                }
                None => {
                    let fault = Diagnostic::at(&place(self.source, range), "an alias inside the node that it names");
                    self.faults.push(fault.help("a YAML value cannot contain itself"));
                }
            },
            _ => {}
        }
    }

    fn open(&mut self, start: usize, anchor: usize, map: bool) {
        let entries = map.then(Default::default);
        self.open.push(Open { start, anchor, items: Vec::new(), entries, key: None });
    }

    fn finish(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            let size = size(&node);
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(open) = self.open.last_mut() else {
            self.done.push(node);
            return;
        };
        let Some((entries, seen)) = &mut open.entries else {
            open.items.push(node);
            return;
        };
        match open.key.take() {
            None => open.key = Some(node),
            Some(key) => match key.scalar_text() {
                None => {
                    let fault = Diagnostic::at(&key.place, format!("{} as a key", key.kind()));
                    self.faults.push(fault.help("keys are plain words"));
                }
                Some(text) => match seen.get(text) {
                    Some(first) => self.faults.push(
                        Diagnostic::at(&key.place, format!("the key `{text}` stands twice in this mapping"))
                            .label("again here")
                            .related(first, "first here")
                            .help("keep one of them; other tools would silently take the last"),
                    ),
                    None => {
                        seen.insert(text.to_owned(), key.place.clone());
                        entries.push((key, node));
                    }
                },
            },
        }
    }
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::Scalar { .. } => 1,
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|(_, value)| 1 + size(value)).sum::<usize>(),
    }
}
