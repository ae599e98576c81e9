//! A tree → a type that says with serde what it wants; a fault stands at the place that it is about.
//!
//! For small files whose types are their schema. It stops at the first fault; what reports all of them at once reads its
//! fields itself.

use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use serde_path_to_error::Segment;

use super::diagnostic::Diagnostic;
use super::document::{self, Node, Scalar};

/// Reads a tree as a type.
///
/// # Errors
/// The first value that does not fit; numbers that are out of range or in a notation that is refused.
pub fn typed<T: DeserializeOwned>(node: &Node) -> Result<T, Diagnostic> {
    serde_path_to_error::deserialize(json(node)?).map_err(|error| {
        let mut at = node;
        let mut place = &node.place;
        for segment in error.path() {
            let next = match segment {
                Segment::Map { key } => at
                    .as_map()
                    .and_then(|entries| entries.iter().find(|(name, _)| name.scalar_text() == Some(key)))
                    .map(|(name, value)| {
                        (value, if value.scalar_text().is_some() { &value.place } else { &name.place })
                    }),
                Segment::Seq { index } => at.as_list().and_then(|items| items.get(*index)).map(|i| (i, &i.place)),
                _ => None,
            };
            let Some((value, found)) = next else { break };
            (at, place) = (value, found);
        }
        Diagnostic::at(place, error.inner().to_string())
    })
}

fn json(node: &Node) -> Result<Value, Diagnostic> {
    let out_of_range = |text: &str| Diagnostic::at(&node.place, format!("{text} is out of range"));
    Ok(match &node.value {
        document::Value::List(items) => Value::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        document::Value::Map(entries) => {
            let read =
                |(key, value): &(Node, Node)| Ok((key.scalar_text().unwrap_or_default().to_owned(), json(value)?));
            Value::Object(entries.iter().map(read).collect::<Result<Map<_, _>, Diagnostic>>()?)
        }
        document::Value::Scalar { .. } => match node.resolve().unwrap_or(Scalar::Null) {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Text(text) => Value::from(text),
            Scalar::Integer(text) => {
                let digits = text.replace('_', "");
                let digits = digits.strip_prefix('+').unwrap_or(&digits);
                let number =
                    digits.parse::<i64>().map(Number::from).or_else(|_| digits.parse::<u64>().map(Number::from));
                Value::Number(number.map_err(|_| out_of_range(text))?)
            }
            Scalar::Float(text) => {
                let number = text.replace('_', "").parse().ok().and_then(Number::from_f64);
                Value::Number(number.ok_or_else(|| out_of_range(text))?)
            }
            Scalar::OddInteger(text) => {
                return Err(Diagnostic::at(&node.place, format!("{text} is {}", node.kind()))
                    .help("write it in decimal digits, or quote it where it is text"));
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::super::diagnostic::Source;
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields)]
    struct Thing {
        size_gb: u8,
        #[serde(default)]
        ratio: f64,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        more: BTreeMap<String, Thing>,
    }

    fn read(text: &str) -> Result<Thing, String> {
        let tree = document::parse(&Source::new("t.yaml", text)).unwrap();
        typed(&tree).map_err(|fault: Diagnostic| fault.to_string())
    }

    #[test]
    fn values_read_as_yaml_says() {
        let thing = read("size-gb: 1_0\nratio: 0.5\nnames: [\"1\", b]\nmore: {x: {size-gb: +1}}\n").unwrap();
        assert_eq!((thing.size_gb, thing.ratio, thing.names), (10, 0.5, vec!["1".to_owned(), "b".to_owned()]));
        assert_eq!(thing.more["x"].size_gb, 1);
    }

    #[test]
    fn faults_stand_at_their_places() {
        for (text, want) in [
            ("size-gb: 1\nmore:\n  x: {size-gb: no-number}\n", "t.yaml:3:16: invalid type: string"),
            ("size-gb: 1\nnames: [a, 2]\n", "t.yaml:2:12: invalid type: integer `2`"),
            ("size-gb: 300\n", "t.yaml:1:10: invalid value: integer `300`"),
            ("size-gb: 1\nmore:\n  x:\n    ratio: 1.0\n", "t.yaml:3:3: missing field `size-gb`"),
            ("size-gb: 99999999999999999999\n", "t.yaml:1:10: 99999999999999999999 is out of range"),
            ("size-gb: 0x10\n", "t.yaml:1:10: 0x10 is an octal"),
            ("size-gb: 1\nratio: .nan\n", "t.yaml:2:8: .nan is out of range"),
            ("size-gb: 1\nsise: 2\n", "t.yaml:2:7: unknown field `sise`, expected one of"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.starts_with(want), "{fault}\n{want}");
        }
    }
}
