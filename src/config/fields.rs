//! Typed reading of a document's nodes: every fault is noted at its place and reading goes on.
//!
//! A loader opens a mapping with the fields that it may have, takes each as the type it needs, and builds its value at
//! the end from the ones that read:
//!
//! ```
//! use ixbuild::config::{diagnostic::Source, document, fields::{Faults, Fields}};
//!
//! let source = Source::new("router.yaml", "name: vllm-router\nversion: 1.10\n");
//! let node = document::parse(&source).unwrap();
//! let faults = Faults::default();
//! let read = Fields::open(&node, "a router", &["name", "version"], &faults).and_then(|router| {
//!     let name = router.string("name");
//!     let version = router.string("version"); // an unquoted 1.10 is a float: noted, with the fix
//!     Some((name?, version?))
//! });
//! assert!(read.is_none());
//! assert!(faults.or(read).is_err());
//! ```
//!
//! Read all fields into variables before the first `?`, so that one fault does not hide the next. `None` means that
//! the field is absent or was faulty; which one, [`Faults`] knows. This file knows no schema.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::diagnostic::{Diagnostic, Diagnostics, Place, Source};
use super::document::{Node, Scalar};
use super::similar::{closest, listed};

/// What a loader has found wrong so far. Shared by reference while a tree is walked.
#[derive(Debug, Default)]
pub struct Faults(RefCell<Diagnostics>);

impl Faults {
    /// Notes one.
    pub fn push(&self, fault: Diagnostic) {
        self.0.borrow_mut().push(fault);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.borrow().0.len()
    }

    /// True when nothing was found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes over what another loader found; its value, if it had one.
    pub fn absorb<T>(&self, result: Result<T, Diagnostics>) -> Option<T> {
        self.0.borrow_mut().absorb(result)
    }

    /// `value` when nothing was found.
    ///
    /// # Errors
    /// All the faults, file by file, in the order of their places.
    pub fn or<T>(self, value: T) -> Result<T, Diagnostics> {
        let mut found = self.0.into_inner();
        let mut files: Vec<*const Source> = Vec::new();
        found.0.sort_by_cached_key(|fault| {
            let place = fault.place.as_ref()?;
            let file = Arc::as_ptr(&place.source);
            let index = files.iter().position(|known| *known == file).unwrap_or_else(|| {
                files.push(file);
                files.len() - 1
            });
            Some((index, place.span.start))
        });
        found.or(value)
    }
}

/// The fields of one mapping.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'n, 'f> {
    node: &'n Node,
    entries: &'n [(Node, Node)],
    what: &'f str,
    known: &'f [&'f str],
    place: &'n Place,
    faults: &'f Faults,
}

impl<'n, 'f> Fields<'n, 'f> {
    /// Opens a mapping: `what` names it in messages with its article ("a router"), `known` lists every field it may
    /// have. Notes every unknown field; nothing, and a fault, when the node is no mapping.
    pub fn open(node: &'n Node, what: &'f str, known: &'f [&'f str], faults: &'f Faults) -> Option<Self> {
        Self::open_hinted(node, what, known, &|_| None, faults)
    }

    /// As [`Fields::open`]; `hint` gives the fix for unknown fields that it recognizes, such as those of an older schema.
    pub fn open_hinted(
        node: &'n Node,
        what: &'f str,
        known: &'f [&'f str],
        hint: &dyn Fn(&str) -> Option<String>,
        faults: &'f Faults,
    ) -> Option<Self> {
        let fields = Self::open_any(node, what, faults)?;
        for (key, _) in fields.entries {
            let name = key.scalar_text().unwrap_or_default();
            if !known.contains(&name) {
                let help = match (hint(name), closest(name, known.iter().copied())) {
                    (Some(hint), _) => hint,
                    (None, Some(near)) => format!("did you mean `{near}`?"),
                    (None, None) => format!("the fields of {what}: {}", listed(known.iter().copied(), 24)),
                };
                faults.push(Diagnostic::at(&key.place, format!("unknown field `{name}` in {what}")).help(help));
            }
        }
        Some(Self { known, ..fields })
    }

    /// Opens a mapping whose keys are data (names that the file's author chooses): any key may stand in it.
    pub fn open_any(node: &'n Node, what: &'f str, faults: &'f Faults) -> Option<Self> {
        let Some(entries) = node.as_map() else {
            wrong_kind(node, what, "a mapping", faults);
            return None;
        };
        Some(Self { node, entries, what, known: &[], place: &node.place, faults })
    }

    /// Where messages about missing fields point, when not at the mapping's start: usually the key above it.
    #[must_use]
    pub fn at(self, place: &'n Place) -> Self {
        Self { place, ..self }
    }

    /// The mapping itself.
    pub fn node(&self) -> &'n Node {
        self.node
    }

    /// Where it stands.
    pub fn place(&self) -> &'n Place {
        self.place
    }

    /// Its entries in file order, unknown ones too.
    pub fn entries(&self) -> &'n [(Node, Node)] {
        self.entries
    }

    /// Notes a fault at the mapping.
    pub fn fault(&self, message: impl Into<String>, help: impl Into<String>) {
        self.faults.push(Diagnostic::at(self.place, message).help(help));
    }

    /// A field's key and value as written, null or not.
    pub fn entry(&self, name: &str) -> Option<(&'n Node, &'n Node)> {
        debug_assert!(self.known.is_empty() || self.known.contains(&name), "`{name}` is not listed for {}", self.what);
        self.entries.iter().find(|(key, _)| key.scalar_text() == Some(name)).map(|(key, value)| (key, value))
    }

    /// An optional field: null is absent.
    pub fn optional(&self, name: &str) -> Option<&'n Node> {
        self.entry(name).map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// A required field: absence and null are noted.
    pub fn required(&self, name: &str) -> Option<&'n Node> {
        match self.entry(name) {
            None if self.is_misspelt(name) => None,
            None => {
                let message = format!("{} lacks `{name}`", self.what);
                self.faults
                    .push(Diagnostic::at(self.place, message).label("in this one").help(format!("add `{name}: …`")));
                None
            }
            Some((_, value)) if value.is_null() => {
                self.faults.push(
                    Diagnostic::at(&value.place, format!("`{name}` is null in {}", self.what))
                        .help(format!("give `{name}` a value")),
                );
                None
            }
            Some((_, value)) => Some(value),
        }
    }

    /// Whether an unknown field is near this one: then its own fault says it all.
    fn is_misspelt(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, _)| {
            let written = key.scalar_text().unwrap_or_default();
            !self.known.contains(&written) && closest(written, self.known.iter().copied()) == Some(name)
        })
    }

    /// A required non-empty string.
    pub fn string(&self, name: &str) -> Option<&'n str> {
        string(self.required(name)?, &quoted(name), self.faults)
    }

    /// An optional non-empty string.
    pub fn optional_string(&self, name: &str) -> Option<&'n str> {
        string(self.optional(name)?, &quoted(name), self.faults)
    }

    /// A required boolean.
    pub fn boolean(&self, name: &str) -> Option<bool> {
        boolean(self.required(name)?, &quoted(name), self.faults)
    }

    /// An optional boolean.
    pub fn optional_boolean(&self, name: &str) -> Option<bool> {
        boolean(self.optional(name)?, &quoted(name), self.faults)
    }

    /// A required integer within a range.
    pub fn integer(&self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        integer(self.required(name)?, &quoted(name), range, self.faults)
    }

    /// An optional integer within a range.
    pub fn optional_integer(&self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        integer(self.optional(name)?, &quoted(name), range, self.faults)
    }

    /// A required decimal number, as its text.
    pub fn decimal(&self, name: &str) -> Option<&'n str> {
        decimal(self.required(name)?, &quoted(name), self.faults)
    }

    /// An optional decimal number, as its text.
    pub fn optional_decimal(&self, name: &str) -> Option<&'n str> {
        decimal(self.optional(name)?, &quoted(name), self.faults)
    }

    /// A required list.
    pub fn list(&self, name: &str) -> Option<&'n [Node]> {
        list(self.required(name)?, &quoted(name), self.faults)
    }

    /// An optional list.
    pub fn optional_list(&self, name: &str) -> Option<&'n [Node]> {
        list(self.optional(name)?, &quoted(name), self.faults)
    }

    /// An optional list of strings. Absent: nothing. Faulty items are noted and make it nothing too.
    pub fn optional_strings(&self, name: &str) -> Option<Vec<&'n str>> {
        let item = format!("an item of `{name}`");
        let items = self.optional_list(name)?;
        let read: Vec<_> = items.iter().filter_map(|node| string(node, &item, self.faults)).collect();
        (read.len() == items.len()).then_some(read)
    }

    /// An optional word out of a set, as the value that stands beside it.
    pub fn optional_choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        choice(self.optional(name)?, &quoted(name), choices, self.faults)
    }

    /// A required word out of a set, as the value that stands beside it.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        choice(self.required(name)?, &quoted(name), choices, self.faults)
    }
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}

/// Notes that `what` should be `expected` and is something else; with the fix where quotes are the fix.
pub fn wrong_kind(node: &Node, what: &str, expected: &str, faults: &Faults) {
    let shown = match node.scalar_text() {
        Some(text) if !text.is_empty() && text.chars().count() <= 40 => format!(": `{text}`"),
        _ => String::new(),
    };
    let mut fault = Diagnostic::at(&node.place, format!("{what} must be {expected}, not {}{shown}", node.kind()))
        .label(format!("{} here", node.kind()));
    match (expected, node.resolve(), node.scalar_text()) {
        ("a string", Some(Scalar::Text(_)), _) => {}
        ("a string", Some(_), Some(text)) if !text.is_empty() => {
            fault = fault.help(format!("put it in quotes: \"{text}\""));
        }
        ("an integer", Some(Scalar::OddInteger(_)), _) => {
            fault = fault.help("write decimal digits, with optional `_` between them");
        }
        ("an integer" | "a decimal number" | "a boolean", Some(Scalar::Text(text)), _) if !node.is_plain() => {
            fault = fault.help(format!("remove the quotes: {text}"));
        }
        ("an integer", Some(_), _) => fault = fault.help("write decimal digits, such as 8"),
        ("a boolean", Some(_), _) => fault = fault.help("write `true` or `false`"),
        ("a list", Some(_), Some(text)) if !text.is_empty() => fault = fault.help(format!("write [{text}]")),
        _ => {}
    }
    faults.push(fault);
}

/// A non-empty string.
pub fn string<'n>(node: &'n Node, what: &str, faults: &Faults) -> Option<&'n str> {
    match node.resolve() {
        Some(Scalar::Text("")) => {
            faults.push(Diagnostic::at(&node.place, format!("{what} is empty")).help("write a value, or remove it"));
            None
        }
        Some(Scalar::Text(text)) => Some(text),
        _ => {
            wrong_kind(node, what, "a string", faults);
            None
        }
    }
}

/// A boolean.
pub fn boolean(node: &Node, what: &str, faults: &Faults) -> Option<bool> {
    match node.resolve() {
        Some(Scalar::Bool(value)) => Some(value),
        _ => {
            wrong_kind(node, what, "a boolean", faults);
            None
        }
    }
}

/// An integer within a range.
pub fn integer(node: &Node, what: &str, range: RangeInclusive<u64>, faults: &Faults) -> Option<u64> {
    let Some(Scalar::Integer(text)) = node.resolve() else {
        wrong_kind(node, what, "an integer", faults);
        return None;
    };
    let (low, high) = (*range.start(), *range.end());
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let value = digits.strip_prefix('+').unwrap_or(&digits).parse::<u64>().ok();
    let bound = match value {
        Some(value) if range.contains(&value) => return Some(value),
        Some(value) if value < low && low == 1 => "greater than 0".to_owned(),
        Some(value) if value < low => format!("at least {low}"),
        None if text.starts_with('-') && low <= 1 => if low == 1 { "greater than 0" } else { "at least 0" }.to_owned(),
        None if text.starts_with('-') => format!("at least {low}"),
        _ => format!("at most {high}"),
    };
    let message = format!("{what} must be {bound}, not {}", text.trim_start_matches('+'));
    faults.push(Diagnostic::at(&node.place, message).label(format!("not {bound}")));
    None
}

/// A decimal number without an infinity or a NaN, as its text: digits, at most one dot, an optional exponent, which may
/// stand without a dot here (`1e-1`). Its `_` are left in.
pub fn decimal<'n>(node: &'n Node, what: &str, faults: &Faults) -> Option<&'n str> {
    let read = match node.resolve() {
        Some(Scalar::Integer(text)) => Some(text),
        Some(Scalar::Float(text)) if !text.contains(':') && !text.ends_with(['f', 'F', 'n', 'N']) => Some(text),
        Some(Scalar::Text(text)) if node.is_plain() && is_scientific(text) => Some(text),
        _ => None,
    };
    if read.is_none() {
        wrong_kind(node, what, "a decimal number", faults);
    }
    read
}

/// Digits with at most one dot, then an exponent: what YAML 1.1 reads as text for want of a dot or a sign.
fn is_scientific(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let Some((number, exponent)) = unsigned.split_once(['e', 'E']) else { return false };
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let digits = number.strip_suffix('.').unwrap_or(number);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    all_digits(exponent) && all_digits(fraction) && (all_digits(whole) || whole.is_empty())
}

/// A list.
pub fn list<'n>(node: &'n Node, what: &str, faults: &Faults) -> Option<&'n [Node]> {
    let items = node.as_list();
    if items.is_none() {
        wrong_kind(node, what, "a list", faults);
    }
    items
}

/// A word out of a set, as the value that stands beside it.
pub fn choice<T: Copy>(node: &Node, what: &str, choices: &[(&str, T)], faults: &Faults) -> Option<T> {
    let text = string(node, what, faults)?;
    let found = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    if found.is_none() {
        let words = || choices.iter().map(|(word, _)| *word);
        let mut fault = Diagnostic::at(&node.place, format!("{what} cannot be `{text}`"))
            .label(format!("one of {}", listed(words(), 24)));
        if let Some(near) = closest(text, words()) {
            fault = fault.help(format!("did you mean `{near}`?"));
        }
        faults.push(fault);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;

    fn faults_of(text: &str, read: impl Fn(&Fields<'_, '_>)) -> Vec<String> {
        let node = document::parse(&Source::new("f.yaml", text)).unwrap();
        let faults = Faults::default();
        if let Some(fields) = Fields::open(&node, "a thing", &["name", "count", "on", "share", "mode", "tags"], &faults)
        {
            read(&fields);
        }
        let found = faults.or(()).err().unwrap_or_default();
        found.0.iter().map(|f| format!("{f} ({})", f.help.as_deref().unwrap_or("-"))).collect()
    }

    #[test]
    fn values_come_typed() {
        let text = "name: 904e4\ncount: 3_000\non: false\nshare: 1e-1\nmode: b\ntags: [x, '1']\n";
        let faults = faults_of(text, |f| {
            assert_eq!(f.string("name"), Some("904e4"));
            assert_eq!(f.integer("count", 1..=u64::MAX), Some(3000));
            assert_eq!(f.boolean("on"), Some(false));
            assert_eq!(f.decimal("share"), Some("1e-1"));
            assert_eq!(f.choice("mode", &[("a", 1), ("b", 2)]), Some(2));
            assert_eq!(f.optional_strings("tags"), Some(vec!["x", "1"]));
        });
        assert_eq!(faults, Vec::<String>::new());
    }

    #[test]
    fn every_fault_is_noted_with_its_fix() {
        let text = "name: 1.10\ncount: \"3\"\non: 1\nshare: .inf\nmode: bb\ntags: [1]\nnmae: x\n";
        let faults = faults_of(text, |f| {
            f.string("name");
            f.integer("count", 1..=9);
            f.boolean("on");
            f.decimal("share");
            f.choice("mode", &[("aa", 1), ("b", 2)]);
            f.optional_strings("tags");
        });
        assert_eq!(
            faults,
            [
                "f.yaml:1:7: `name` must be a string, not a float: `1.10` (put it in quotes: \"1.10\")",
                "f.yaml:2:8: `count` must be an integer, not a string: `3` (remove the quotes: 3)",
                "f.yaml:3:5: `on` must be a boolean, not an integer: `1` (write `true` or `false`)",
                "f.yaml:4:8: `share` must be a decimal number, not a float: `.inf` (-)",
                "f.yaml:5:7: `mode` cannot be `bb` (did you mean `b`?)",
                "f.yaml:6:8: an item of `tags` must be a string, not an integer: `1` (put it in quotes: \"1\")",
                "f.yaml:7:1: unknown field `nmae` in a thing (did you mean `name`?)",
            ]
        );
    }

    #[test]
    fn null_is_absent_or_missing() {
        let faults = faults_of("name: ~\ncount: null\n", |f| {
            assert_eq!(f.optional_string("name"), None);
            assert_eq!(f.integer("count", 0..=1), None);
            assert_eq!(f.boolean("on"), None);
        });
        assert_eq!(
            faults,
            [
                "f.yaml:1:1: a thing lacks `on` (add `on: …`)",
                "f.yaml:2:8: `count` is null in a thing (give `count` a value)"
            ]
        );
    }

    #[test]
    fn integers_have_bounds() {
        let faults = faults_of("count: 10\nshare: 99999999999999999999\nmode: -1\n", |f| {
            f.integer("count", 1..=9);
            f.integer("share", 1..=u64::MAX);
            f.integer("mode", 0..=u64::MAX);
        });
        assert_eq!(
            faults,
            [
                "f.yaml:1:8: `count` must be at most 9, not 10 (-)",
                "f.yaml:2:8: `share` must be at most 18446744073709551615, not 99999999999999999999 (-)",
                "f.yaml:3:7: `mode` must be at least 0, not -1 (-)"
            ]
        );
    }
}
