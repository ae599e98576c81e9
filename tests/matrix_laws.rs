//! What never changes the matrix: YAML style, comments, key order, unrelated entries.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fmt::Write;
use std::sync::Arc;

use ixbuild::config::diagnostic::Source;
use ixbuild::config::document::{self, Node, Value};
use ixbuild::config::{master, runners::Runners};
use ixbuild::matrix::filter::{Filter, Sweep};
use ixbuild::matrix::{arms::arms, expand::expand, rows::JsonRow, rows::row_hash};
use proptest::prelude::*;

const MASTER: &str = include_str!("../configs/nvidia-master.yaml");
const RUNNERS: &str = include_str!("../configs/runners.yaml");
const MULTI: &str = r#"
m-multi:
  image: org/engine:1
  model: org/m
  model-prefix: m
  precision: fp4
  framework: dynamo-vllm
  runner: cluster:b200-dgxc
  multinode: true
  router: { name: r, version: "1.10" }
  scenarios:
    fixed-seq-len:
    - isl: 8192
      osl: 1024
      search-space:
      - { conc-start: 4, conc-end: 100, spec-decoding: mtp,
          prefill: { num-worker: 1, tp: 4, ep: 4, dp-attn: true, additional-settings: ["A=1", "B: 2"] },
          decode: { num-worker: 2, tp: 8, ep: 1, dp-attn: false, pp: 2 } }
"#;

/// Per arm its id, the hash of its row and the row's JSON by value.
fn points(text: &str) -> Vec<(String, String, serde_json::Value)> {
    let entries = master::parse(&Source::new("m.yaml", text)).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    let runners = Runners::parse(&Source::new("r.yaml", RUNNERS)).unwrap();
    let rows = expand(&entries, &runners, &Filter::Sweep(Sweep::default())).unwrap();
    let json = rows.iter().map(|line| serde_json::to_value(JsonRow(line)).unwrap());
    let arms = arms(&rows).arms;
    let hashes = arms.iter().map(|arm| (arm.id.to_string(), row_hash(&arm.row).0.hex(), serde_json::Value::Null));
    hashes.chain(json.map(|row| (String::new(), String::new(), row))).collect()
}

/// Writes a tree again: flow or block, keys rotated, comments and blank lines, quotes where they are allowed.
struct Restyle {
    choices: Vec<u8>,
    next: usize,
    out: String,
}

impl Restyle {
    fn flip(&mut self) -> bool {
        self.next += 1;
        self.choices[self.next % self.choices.len()] & 1 == 1
    }

    fn scalar(&mut self, node: &Node) {
        let Value::Scalar { text, plain } = &node.value else { return };
        let string = matches!(node.resolve(), Some(document::Scalar::Text(_)));
        if *plain && !(string && self.flip()) {
            self.out.push_str(text);
        } else if self.flip() {
            let _ = write!(self.out, "'{}'", text.replace('\'', "''"));
        } else {
            let _ = write!(self.out, "{:?}", text);
        }
    }

    fn entries<'n>(&mut self, map: &'n [(Node, Node)], rotate: bool) -> Vec<&'n (Node, Node)> {
        let by = if rotate && self.flip() { self.next % map.len().max(1) } else { 0 };
        map.iter().skip(by).chain(map.iter().take(by)).collect()
    }

    fn flow(&mut self, node: &Node) {
        match &node.value {
            Value::Scalar { .. } => self.scalar(node),
            Value::List(items) => {
                self.out.push('[');
                for item in items {
                    self.flow(item);
                    let separator = if self.flip() { "  ,\n                        " } else { ", " };
                    self.out.push_str(separator);
                }
                self.out.push(']');
            }
            Value::Map(map) => {
                self.out.push_str("{ ");
                for (key, value) in self.entries(map, true) {
                    self.scalar(key);
                    self.out.push_str(": ");
                    self.flow(value);
                    let separator = if self.flip() { ", # a comment: [x}\n                    " } else { ", " };
                    self.out.push_str(separator);
                }
                self.out.push('}');
            }
        }
    }

    fn block(&mut self, node: &Node, depth: usize) {
        let indent = "  ".repeat(depth);
        match &node.value {
            Value::Map(map) if !map.is_empty() => {
                for (key, value) in self.entries(map, depth > 0) {
                    if self.flip() {
                        let _ = writeln!(self.out, "{indent}# a comment\n");
                    }
                    self.out.push_str(&indent);
                    self.scalar(key);
                    self.child(value, depth);
                }
            }
            Value::List(items) if !items.is_empty() => {
                for item in items {
                    self.out.push_str(&indent);
                    self.out.push('-');
                    self.out.push(' ');
                    self.flow(item);
                    self.out.push('\n');
                }
            }
            _ => {
                self.out.push_str(&indent);
                self.flow(node);
                self.out.push('\n');
            }
        }
    }

    fn child(&mut self, value: &Node, depth: usize) {
        self.out.push(':');
        if matches!(value.value, Value::Scalar { .. }) || self.flip() {
            self.out.push(' ');
            self.flow(value);
            self.out.push('\n');
        } else {
            self.out.push('\n');
            self.block(value, depth + 1);
        }
    }
}

fn restyled(text: &str, choices: Vec<u8>) -> String {
    let source: Arc<Source> = Source::new("m.yaml", text);
    let root = document::parse(&source).unwrap();
    let mut style = Restyle { choices, next: 0, out: String::new() };
    style.block(&root, 0);
    style.out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn style_comments_and_key_order_change_nothing(
        choices in proptest::collection::vec(any::<u8>(), 7..97),
        crlf in any::<bool>(),
        bom in any::<bool>(),
    ) {
        for text in [MASTER, MULTI] {
            let mut other = restyled(text, choices.clone());
            if crlf {
                other = other.replace('\n', "\r\n");
            }
            if bom {
                other.insert(0, '\u{feff}');
            }
            prop_assert_eq!(points(&other), points(text), "{}", other);
        }
    }

    #[test]
    fn other_entries_change_nothing(first in any::<bool>()) {
        let both = if first { format!("{MULTI}{MASTER}") } else { format!("{MASTER}{MULTI}") };
        let both = points(&both);
        for point in points(MASTER).iter().chain(&points(MULTI)) {
            prop_assert!(both.contains(point), "{:?}", point);
        }
    }
}
