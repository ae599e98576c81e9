//! One YAML document as a tree of text scalars, every node with its place.
//!
//! serde would stop at the first fault and forget where values stood; loaders instead walk this tree, collect all the
//! faults of a file, and keep the places. Scalars stay text: [`Node::resolve`] says how YAML 1.1 reads a plain one,
//! so `1.10` is known to be a float (and can be refused where a version belongs) and `904e4` stays text.
//! Anchors, aliases and merge keys (`<<`) are expanded, within a bound. This file knows no schema.

use std::sync::Arc;

use granit_parser::{Parser, ScanError};

use super::builder::Builder;
use super::diagnostic::{Diagnostic, Diagnostics, Place, Source};

/// The largest input that is read, in bytes. Real master files are 400 KB.
pub const MAX_BYTES: usize = 64 << 20;

/// How deep collections may nest. Real files nest 7 deep.
const MAX_DEPTH: usize = 64;

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

    /// True for a scalar without quotes: it alone can be null, a boolean or a number.
    pub fn is_plain(&self) -> bool {
        matches!(&self.value, Value::Scalar { plain: true, .. })
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
            Some(Scalar::Integer(_)) => "an integer",
            Some(Scalar::OddInteger(_)) => "an octal, hexadecimal, binary or base-60 integer",
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
/// Syntax faults, a second document, duplicate or composite keys, unknown or exploding aliases, tags, tabs, control
/// characters: at their places.
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

/// A place in a source.
pub(super) fn place(source: &Arc<Source>, span: std::ops::Range<usize>) -> Place {
    Place { source: Arc::clone(source), span }
}

/// The fault of an input beyond [`MAX_BYTES`].
pub(super) fn too_large(name: &str, size: u64) -> Diagnostic {
    Diagnostic::new(format!("{name} has {} MiB; at most {} MiB are read", size >> 20, MAX_BYTES >> 20))
}

fn parse_all(source: &Arc<Source>) -> Result<Vec<Node>, Diagnostics> {
    if source.text.len() > MAX_BYTES {
        return Err(too_large(&source.name, source.text.len() as u64).into());
    }
    if let Some((at, control)) = control_character(&source.text) {
        let fault = Diagnostic::at(
            &place(source, at..at + control.len_utf8()),
            format!("a control character, U+{:04X}", u32::from(control)),
        );
        return Err(fault.help("remove it; in double quotes it can be written as an escape").into());
    }
    let options =
        granit_parser::options! { emit_comments: false, flow_nesting_limit: MAX_DEPTH, block_nesting_limit: MAX_DEPTH };
    let mut builder = Builder::new(source);
    for step in Parser::new_from_str_with_options(&source.text, options) {
        match step {
            Ok((event, span)) => builder.event(event, span),
            Err(error) => {
                builder.fault(syntax(source, &error));
                break;
            }
        }
        if builder.exploded() {
            break;
        }
    }
    builder.finish()
}

/// The first character that YAML does not allow in a stream at all.
fn control_character(text: &str) -> Option<(usize, char)> {
    let control = |c: char| matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f'..='\u{84}' | '\u{86}'..='\u{9f}');
    // Bytes that can start one. Most texts have none, and need no decoding.
    let suspect = |b: &u8| (*b < b' ' && !matches!(b, b'\t' | b'\n' | b'\r')) || *b == 0x7f || *b == 0xc2;
    let from = text.as_bytes().iter().position(suspect)?;
    text[from..].char_indices().find(|(_, c)| control(*c)).map(|(at, c)| (from + at, c))
}

fn syntax(source: &Arc<Source>, error: &ScanError) -> Diagnostic {
    let offset = error.marker().byte_offset().unwrap_or(0).min(source.text.len());
    let line = source.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let line = source.text[line..].lines().next().unwrap_or_default();
    let fault = Diagnostic::at(&place(source, offset..offset), format!("not valid YAML: {}", error.info()));
    let indent = &line[..line.len() - line.trim_start().len()];
    if indent.contains('\t') {
        fault.help("indent with spaces; YAML forbids tabs")
    } else if let Some(wide) = line.chars().find(|c| matches!(c, '\u{ff0c}' | '\u{ff1a}' | '\u{3001}')) {
        fault.help(format!("the line holds `{wide}`, U+{:04X}: write the ASCII character", u32::from(wide)))
    } else if error.info().contains("mapping values are not allowed") {
        fault.help("quote a value that holds `: `, and check the indentation")
    } else {
        fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Node {
        parse(&Source::new("t.yaml", text)).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
    }

    fn refusal(text: &str) -> String {
        parse(&Source::new("t.yaml", text)).map_or_else(|faults| faults.to_string(), |node| format!("read: {node:?}"))
    }

    /// The marked text of a node.
    fn marked(node: &Node) -> &str {
        &node.place.source.text[node.place.span.clone()]
    }

    #[test]
    fn scalars_read_as_yaml_1_1_reads_them() {
        use Scalar::{Bool, Float, Integer, Null, OddInteger, Text};
        for (text, expected) in [
            ("", Null),
            ("~", Null),
            ("Null", Null),
            ("nULL", Text("nULL")),
            ("none", Text("none")),
            ("yes", Bool(true)),
            ("OFF", Bool(false)),
            ("y", Text("y")),
            ("0", Integer("0")),
            ("3_095_781", Integer("3_095_781")),
            ("-12", Integer("-12")),
            ("+1", Integer("+1")),
            ("_1", Text("_1")),
            ("010", OddInteger("010")),
            ("0o10", Text("0o10")),
            ("0x1F", OddInteger("0x1F")),
            ("0b101", OddInteger("0b101")),
            ("1:30", OddInteger("1:30")),
            ("1:60", Text("1:60")),
            ("0123489", Text("0123489")),
            ("1.10", Float("1.10")),
            ("1.2.1", Text("1.2.1")),
            ("1.", Float("1.")),
            (".5", Float(".5")),
            (".", Text(".")),
            ("1e3", Text("1e3")),
            ("904e4", Text("904e4")),
            ("71e001", Text("71e001")),
            ("1.0e3", Text("1.0e3")),
            ("1.0e+3", Float("1.0e+3")),
            ("-.inf", Float("-.inf")),
            (".NaN", Float(".NaN")),
            ("1:30.5", Float("1:30.5")),
            ("904e4ec", Text("904e4ec")),
        ] {
            assert_eq!(resolve_plain(text), expected, "{text}");
        }
    }

    #[test]
    fn quotes_make_text() {
        let node = tree("a: '1.10'\nb: \"true\"\nc: |\n  12\n");
        for (key, text) in [("a", "1.10"), ("b", "true"), ("c", "12\n")] {
            assert_eq!(node.get(key).and_then(Node::resolve), Some(Scalar::Text(text)));
        }
    }

    #[test]
    fn a_collection_ends_with_its_last_child() {
        let node = tree("a:\n  b: 1\n  c:\n  - x\n  - y\n\n# comment\nd: {e: [1, 2], f: 3}  # end\ng:\nh: \"q\"\n");
        let at = |key: &str| node.get(key).map(marked);
        assert_eq!(at("a"), Some("b: 1\n  c:\n  - x\n  - y"));
        assert_eq!(node.get("a").and_then(|a| a.get("c")).map(marked), Some("- x\n  - y"));
        assert_eq!(at("d"), Some("{e: [1, 2], f: 3}"));
        assert_eq!(at("h"), Some("\"q\""));
        let empty = node.get("g").map(|g| g.place.to_string());
        assert_eq!(empty.as_deref(), Some("t.yaml:9:2"));
    }

    #[test]
    fn line_ends_and_marks_do_not_matter() {
        let plain = tree("a:\n- {b: x, c: 12}\nd: text");
        let shape = |node: &Node| format!("{:?}", strip(node));
        for other in [
            "a:\r\n- {b: x, c: 12}\r\nd: text\r\n",
            "\u{feff}a:\n- {b: x, c: 12}\nd: text\n",
            "---\na: # c\n- {b: x, # c\n   c: 12}\n\n\nd:    text\n...\n",
        ] {
            assert_eq!(shape(&tree(other)), shape(&plain), "{other:?}");
        }
        let crlf = tree("a: 1\r\nb: xyz\r\n");
        assert_eq!(crlf.get("b").map(marked), Some("xyz"));
        assert_eq!(crlf.get("b").map(|b| b.place.to_string()).as_deref(), Some("t.yaml:2:4"));
        let bom = tree("\u{feff}a: é\nb: xyz");
        assert_eq!(bom.get("b").map(marked), Some("xyz"));
    }

    #[derive(Debug)]
    #[allow(dead_code)] // compared through Debug
    enum Bare {
        Scalar(String),
        List(Vec<Bare>),
        Map(Vec<(Bare, Bare)>),
    }

    fn strip(node: &Node) -> Bare {
        match &node.value {
            Value::Scalar { text, .. } => Bare::Scalar(text.clone()),
            Value::List(items) => Bare::List(items.iter().map(strip).collect()),
            Value::Map(entries) => Bare::Map(entries.iter().map(|(k, v)| (strip(k), strip(v))).collect()),
        }
    }

    #[test]
    fn merge_keys_give_way_to_the_mappings_own() {
        let text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: [*a, *b], w: 0, x: 9}\nd: {<<: *b}\n";
        let node = tree(text);
        let of = |key: &str| format!("{:?}", strip(node.get(key).unwrap()));
        let map = |pairs: &[(&str, &str)]| {
            let scalar = |text: &str| Bare::Scalar(text.into());
            format!("{:?}", Bare::Map(pairs.iter().map(|(k, v)| (scalar(k), scalar(v))).collect()))
        };
        assert_eq!(of("c"), map(&[("y", "2"), ("z", "4"), ("x", "9"), ("w", "0")]));
        assert_eq!(of("d"), map(&[("y", "3"), ("z", "4")]));
        assert_eq!(refusal("a: {<<: 1}"), "t.yaml:1:9: `<<` merges mappings, not an integer");
    }

    #[test]
    fn an_alias_is_what_it_names() {
        let node = tree("a: &x [1, 2]\nb:\n  c: *x\nd: 1\n");
        assert_eq!(node.get("b").and_then(|b| b.get("c")).map(marked), Some("[1, 2]"));
        assert_eq!(node.get("b").map(marked), Some("c: *x"));
    }

    #[test]
    fn refusals_have_a_place() {
        let many: String = (0..20).map(|n| format!("k{n}: 1\n")).collect();
        for (text, expected) in [
            ("", "t.yaml:1:1: the file is empty"),
            ("# nothing\n", "t.yaml:1:1: the file is empty"),
            ("a: 1\n---\nb: 2\n", "t.yaml:3:1: a second YAML document in one file"),
            ("a: 1\nb: 2\na: 3\n", "t.yaml:3:1: the key `a` stands twice in this mapping"),
            (
                &format!("{many}k18: 2\nk3: 2\n"),
                "t.yaml:21:1: the key `k18` stands twice in this mapping\nt.yaml:22:1: the key `k3` stands twice in this mapping",
            ),
            ("[a]: 1\n", "t.yaml:1:1: a list as a key"),
            ("a: !!str 1\n", "t.yaml:1:10: the tag `tag:yaml.org,2002:str` is not read here"),
            ("a: !x [1]\n", "t.yaml:1:7: the tag `!x` is not read here"),
            ("a: &x [1, *x]\n", "t.yaml:1:11: an alias inside the node that it names"),
            ("a:\tb\n", "t.yaml:1:3: a tab outside quotes"),
            ("a: b\t# c\n", "t.yaml:1:5: a tab outside quotes"),
            ("a: b\tc\n", "t.yaml:1:5: a tab outside quotes"),
            ("a: b\0\n", "t.yaml:1:5: a control character, U+0000"),
            ("a: \u{7}\n", "t.yaml:1:4: a control character, U+0007"),
        ] {
            assert_eq!(refusal(text), expected, "{text:?}");
        }
        assert!(refusal("a:\n\tb: 1\n").starts_with("t.yaml:2:2: not valid YAML"), "{}", refusal("a:\n\tb: 1\n"));
        assert!(refusal("a: b: c\n").starts_with("t.yaml:1:"), "{}", refusal("a: b: c\n"));
        assert!(refusal("a: [1, 2\n").contains("not valid YAML"), "{}", refusal("a: [1, 2\n"));
        assert!(refusal("a: *nope\n").starts_with("t.yaml:1:4: not valid YAML"), "{}", refusal("a: *nope\n"));
    }

    #[test]
    fn tabs_may_stand_in_quotes_and_comments() {
        tree("a: \"b\tc\"  # d\te\nb: |\n  x\ty\n# \t\nc: 'd\te'\n");
    }

    #[test]
    fn deep_nesting_and_alias_bombs_are_refused() {
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
            assert!(refusal(&deep).contains("not valid YAML"));
        }
        let block: String = (0..3_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert!(refusal(&block).contains("not valid YAML"));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let alias = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(", ")));
        }
        assert!(refusal(&bomb).contains("aliases expand to more than"), "{}", refusal(&bomb));
    }
}
