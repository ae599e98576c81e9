//! Strict argument vectors: which flags a program takes, of which type, and every fault of a command line at once.
//!
//! A [`Grammar`] is a table. [`Grammar::parse`] reads `--flag value` and `--flag=value`, refuses what the table does not
//! hold, repeated flags and malformed values, and goes on to the end, so that one start shows all faults. The caller
//! then takes typed values out of [`Parsed`] (what it cannot do without counts as missing), adds the conflicts that it
//! sees, and gets either its own type or all faults from [`Parsed::finish`].
//! It knows no program: the tables stand beside the code that plays them.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;

/// What a flag's value must be.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// No value: present or not.
    Switch,
    /// A whole number within bounds, both inclusive.
    Integer(u64, u64),
    /// A decimal number within bounds, both inclusive.
    Decimal(f64, f64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A JSON document.
    Json,
    /// A number with a time unit: `500ms`, `60s`, `5m`, `1h`.
    Duration,
    /// An `http://` URL.
    Url,
    /// Any text that is not empty.
    Text,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Switch => f.write_str("no value"),
            Kind::Integer(low, u64::MAX) => write!(f, "a whole number from {low}"),
            Kind::Integer(low, high) => write!(f, "a whole number from {low} to {high}"),
            Kind::Decimal(low, high) => write!(f, "a number from {low} to {high}"),
            Kind::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Kind::Json => f.write_str("a JSON document"),
            Kind::Duration => f.write_str("a time with its unit, such as 60s"),
            Kind::Url => f.write_str("a URL that starts with http://"),
            Kind::Text => f.write_str("a text"),
        }
    }
}

/// A TCP port.
pub const PORT: Kind = Kind::Integer(1, 65535);
/// A share of a whole.
pub const RATIO: Kind = Kind::Decimal(0.0, 1.0);
/// A count of at least one.
pub const COUNT: Kind = Kind::Integer(1, u64::MAX);

/// What a program takes.
#[derive(Debug)]
pub struct Grammar {
    /// The program as messages name it.
    pub program: &'static str,
    /// Words without a flag, in order; each is required.
    pub positionals: &'static [&'static str],
    /// The flags.
    pub flags: &'static [(&'static str, Kind)],
}

/// One fault of a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The program has no such flag.
    #[error("unknown flag {flag}{}", near_text(.near))]
    Unknown {
        /// As it stands.
        flag: String,
        /// Flags that it may have meant, nearest first.
        near: Vec<&'static str>,
    },
    /// A flag stands twice.
    #[error("{0} is given more than once")]
    Repeated(&'static str),
    /// A flag stands without its value.
    #[error("{0} lacks its value: {1}")]
    NoValue(&'static str, String),
    /// The value is not of the flag's type.
    #[error("{flag} takes {want}, not `{value}`")]
    Malformed {
        /// The flag.
        flag: &'static str,
        /// What stands there.
        value: String,
        /// What must stand there.
        want: String,
    },
    /// A flag or word that the program cannot do without.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A word that belongs to no flag.
    #[error("`{0}` belongs to no flag")]
    Stray(String),
    /// Flags or fields that contradict each other.
    #[error("{0}")]
    Conflict(String),
}

fn near_text(near: &[&'static str]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

/// All faults of a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{program} refuses its command line: {}", .faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ArgvError {
    /// The program.
    pub program: &'static str,
    /// At least one.
    pub faults: Vec<Fault>,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Switch,
    Integer(u64),
    Decimal(f64),
    Text(String),
    Json(Json),
}

/// A parsed command line, with the faults found so far.
#[derive(Debug)]
pub struct Parsed {
    program: &'static str,
    /// Present flags and words; `None` where the value is malformed (already a fault, thus not missing as well).
    values: BTreeMap<&'static str, Option<Value>>,
    faults: Vec<Fault>,
}

impl Grammar {
    /// Reads a command line to its end.
    pub fn parse(&self, argv: &[String]) -> Parsed {
        let mut parsed = Parsed { program: self.program, values: BTreeMap::new(), faults: Vec::new() };
        let mut positionals = self.positionals.iter();
        let mut words = argv.iter().peekable();
        while let Some(word) = words.next() {
            if !word.starts_with("--") {
                match positionals.next() {
                    Some(name) => drop(parsed.values.insert(name, Some(Value::Text(word.clone())))),
                    None => parsed.faults.push(Fault::Stray(word.clone())),
                }
                continue;
            }
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let Some((flag, kind)) = self.flags.iter().find(|(flag, _)| *flag == name) else {
                let near = self.near(name);
                parsed.faults.push(Fault::Unknown { flag: name.to_owned(), near });
                // Its value, if it has one, is not a fault of its own.
                if inline.is_none() && words.peek().is_some_and(|next| !next.starts_with("--")) {
                    words.next();
                }
                continue;
            };
            let value = match kind {
                Kind::Switch => inline,
                _ => inline.or_else(|| words.next_if(|next| !next.starts_with("--")).cloned()),
            };
            if parsed.values.contains_key(flag) {
                parsed.faults.push(Fault::Repeated(flag));
                continue;
            }
            let read = match (kind, value) {
                (Kind::Switch, None) => Ok(Value::Switch),
                (_, None) => Err(Fault::NoValue(flag, kind.to_string())),
                (_, Some(value)) => {
                    read_value(*kind, &value).ok_or_else(|| Fault::Malformed { flag, want: kind.to_string(), value })
                }
            };
            parsed.values.insert(flag, read.map_err(|fault| parsed.faults.push(fault)).ok());
        }
        for name in positionals {
            parsed.faults.push(Fault::Missing(name));
        }
        parsed
    }

    /// Up to three flags that a misspelt one may have meant.
    fn near(&self, name: &str) -> Vec<&'static str> {
        let limit = (name.len() / 3).max(3);
        let mut ranked: Vec<(usize, &'static str)> = self
            .flags
            .iter()
            .map(|(flag, _)| (edit_distance(name, flag), *flag))
            .filter(|(distance, _)| *distance <= limit)
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().take(3).map(|(_, flag)| flag).collect()
    }
}

fn read_value(kind: Kind, value: &str) -> Option<Value> {
    match kind {
        Kind::Switch => None,
        Kind::Integer(low, high) => {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number: u64 = digits.then(|| value.parse().ok()).flatten()?;
            (low..=high).contains(&number).then_some(Value::Integer(number))
        }
        Kind::Decimal(low, high) => {
            let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let number: f64 = plain.then(|| value.parse().ok()).flatten()?;
            (low..=high).contains(&number).then_some(Value::Decimal(number))
        }
        Kind::Choice(words) => words.contains(&value).then(|| Value::Text(value.to_owned())),
        Kind::Json => serde_json::from_str(value).ok().map(Value::Json),
        Kind::Duration => {
            let unit = value.trim_start_matches(|c: char| c.is_ascii_digit());
            let known = ["ms", "s", "m", "h"].contains(&unit) && unit.len() < value.len();
            known.then(|| Value::Text(value.to_owned()))
        }
        Kind::Url => {
            let rest = value.strip_prefix("http://")?;
            (!rest.is_empty() && !rest.starts_with('/')).then(|| Value::Text(value.to_owned()))
        }
        Kind::Text => (!value.is_empty()).then(|| Value::Text(value.to_owned())),
    }
}

impl Parsed {
    fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name).and_then(Option::as_ref)
    }

    fn need(&mut self, name: &'static str) {
        let reported = self.faults.contains(&Fault::Missing(name));
        if !self.values.contains_key(name) && !reported {
            self.faults.push(Fault::Missing(name));
        }
    }

    /// Whether a flag or word stands there, well-formed or not.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The whole number of a flag, if it is given.
    pub fn integer(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    /// The whole number of a flag that must be given; 0 with a fault otherwise.
    pub fn need_integer(&mut self, name: &'static str) -> u64 {
        self.need(name);
        self.integer(name).unwrap_or_default()
    }

    /// The port of a flag that must be given; 0 with a fault otherwise.
    pub fn need_port(&mut self, name: &'static str) -> u16 {
        self.need_integer(name).try_into().unwrap_or_default()
    }

    /// The number of a flag, if it is given.
    pub fn decimal(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Decimal(number)) => Some(*number),
            _ => None,
        }
    }

    /// The text of a flag or word, if it is given.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The text of a flag or word that must be given; empty with a fault otherwise.
    pub fn need_text(&mut self, name: &'static str) -> String {
        self.need(name);
        self.text(name).unwrap_or_default().to_owned()
    }

    /// The JSON document of a flag, if it is given.
    pub fn json(&self, name: &str) -> Option<&Json> {
        match self.value(name) {
            Some(Value::Json(json)) => Some(json),
            _ => None,
        }
    }

    /// Adds a contradiction between flags.
    pub fn conflict(&mut self, message: impl Into<String>) {
        self.faults.push(Fault::Conflict(message.into()));
    }

    /// Adds a contradiction when a flag stands without another that it needs.
    pub fn needs(&mut self, flag: &str, other: &str) {
        if self.has(flag) && !self.has(other) {
            self.conflict(format!("{flag} needs {other}"));
        }
    }

    /// The caller's own type, unless there were faults.
    ///
    /// # Errors
    /// All faults of the command line.
    pub fn finish<T>(self, value: T) -> Result<T, ArgvError> {
        if self.faults.is_empty() {
            return Ok(value);
        }
        Err(ArgvError { program: self.program, faults: self.faults })
    }
}

/// Levenshtein distance in bytes; flags are ASCII.
fn edit_distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAMMAR: Grammar = Grammar {
        program: "engine",
        positionals: &["MODEL"],
        flags: &[
            ("--port", PORT),
            ("--ratio", RATIO),
            ("--eager", Kind::Switch),
            ("--method", Kind::Choice(&["a", "b"])),
            ("--config", Kind::Json),
            ("--ttl", Kind::Duration),
            ("--url", Kind::Url),
            ("--max-num-seqs", COUNT),
        ],
    };

    fn parse(line: &str) -> Parsed {
        GRAMMAR.parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn faults(line: &str) -> Vec<String> {
        parse(line).faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn both_spellings_of_a_value_are_read() {
        let mut parsed = parse(r#"m --port 80 --ratio=0.5 --eager --config {"a":1} --ttl 60s --url=http://h:1"#);
        assert_eq!(parsed.need_text("MODEL"), "m");
        assert_eq!(parsed.need_port("--port"), 80);
        assert_eq!(parsed.decimal("--ratio"), Some(0.5));
        assert!(parsed.has("--eager"));
        assert_eq!(parsed.json("--config"), Some(&serde_json::json!({"a": 1})));
        assert_eq!(parsed.text("--ttl"), Some("60s"));
        assert_eq!(parsed.text("--url"), Some("http://h:1"));
        assert!(parsed.finish(()).is_ok());
    }

    #[test]
    fn an_unknown_flag_names_the_one_that_was_meant_and_swallows_its_value() {
        assert_eq!(faults("m --max-num-seq 4"), ["unknown flag --max-num-seq; did you mean --max-num-seqs?"]);
        assert_eq!(faults("m --max_num_seqs=4"), ["unknown flag --max_num_seqs; did you mean --max-num-seqs?"]);
        assert_eq!(faults("m --quantization-of-everything x"), ["unknown flag --quantization-of-everything"]);
    }

    #[test]
    fn every_fault_of_a_line_is_reported() {
        let all =
            faults("m more --port 0 --ratio 1.5 --eager=1 --method c --config {a} --ttl 60 --url h --max-num-seqs");
        assert_eq!(
            all,
            [
                "`more` belongs to no flag",
                "--port takes a whole number from 1 to 65535, not `0`",
                "--ratio takes a number from 0 to 1, not `1.5`",
                "--eager takes no value, not `1`",
                "--method takes one of a, b, not `c`",
                "--config takes a JSON document, not `{a}`",
                "--ttl takes a time with its unit, such as 60s, not `60`",
                "--url takes a URL that starts with http://, not `h`",
                "--max-num-seqs lacks its value: a whole number from 1",
            ]
        );
    }

    #[test]
    fn numbers_are_plain_digits() {
        for text in ["+4", "-4", "4.0", "1e3", "0x4", "4_000", ""] {
            assert_eq!(faults(&format!("m --max-num-seqs={text}")).len(), 1, "{text}");
        }
        for text in ["-0.5", "nan", "inf", "1e-1", "."] {
            assert_eq!(faults(&format!("m --ratio={text}")).len(), 1, "{text}");
        }
    }

    #[test]
    fn what_is_needed_and_absent_is_missing_and_what_is_malformed_is_not_missing_too() {
        let mut parsed = parse("--port x");
        parsed.need_text("MODEL");
        parsed.need_port("--port");
        parsed.need_integer("--max-num-seqs");
        let error = parsed.finish(()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "engine refuses its command line: --port takes a whole number from 1 to 65535, not `x`; MODEL is missing; \
             --max-num-seqs is missing"
        );
    }

    #[test]
    fn a_repeated_flag_is_refused_even_with_an_equal_value() {
        assert_eq!(faults("m --port 1 --port 1"), ["--port is given more than once"]);
    }

    #[test]
    fn distances_are_levenshtein() {
        for (a, b, want) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(edit_distance(a, b), want, "{a} {b}");
        }
    }
}
