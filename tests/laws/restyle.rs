//! YAML written again with another face: flow or block, quotes, comments, blank lines, keys in another order.

use std::fmt::Write;

use ixbuild::config::diagnostic::Source;
use ixbuild::config::document::{self, Node, Scalar, Value};

struct Restyle<'c> {
    choices: &'c [u8],
    next: usize,
    out: String,
}

/// The keys whose maps have an order that counts: an args map is argv, and a `let` may use those before it.
const ORDERED: [&str; 2] = ["args", "let"];

/// The same document. `choices` decides of every style that YAML offers.
pub fn restyled(text: &str, choices: &[u8]) -> String {
    let root = document::parse(&Source::new("restyled.yaml", text)).unwrap();
    let mut style = Restyle { choices, next: 0, out: String::new() };
    style.block(&root, 0, true);
    style.out
}

impl Restyle<'_> {
    fn flip(&mut self) -> bool {
        self.next += 1;
        self.choices[self.next % self.choices.len()] & 1 == 1
    }

    fn scalar(&mut self, node: &Node, in_flow: bool) {
        let Value::Scalar { text, plain } = &node.value else { return };
        let string = matches!(node.resolve(), Some(Scalar::Text(_)));
        let bare = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let must_quote = !plain || (string && in_flow && !text.chars().all(bare));
        if !(must_quote || string && self.flip()) {
            self.out.push_str(text);
        } else if self.flip() {
            let _ = write!(self.out, "'{}'", text.replace('\'', "''"));
        } else {
            let _ = write!(self.out, "{text:?}");
        }
    }

    fn entries<'n>(&mut self, map: &'n [(Node, Node)], rotate: bool) -> Vec<&'n (Node, Node)> {
        let by = if rotate && self.flip() { self.next % map.len().max(1) } else { 0 };
        map.iter().skip(by).chain(map.iter().take(by)).collect()
    }

    fn flow(&mut self, node: &Node, rotate: bool) {
        match &node.value {
            Value::Scalar { .. } => self.scalar(node, true),
            Value::List(items) => {
                self.out.push('[');
                for item in items {
                    self.flow(item, true);
                    let separator = if self.flip() { "  ,\n                        " } else { ", " };
                    self.out.push_str(separator);
                }
                self.out.push(']');
            }
            Value::Map(map) => {
                self.out.push_str("{ ");
                for (key, value) in self.entries(map, rotate) {
                    self.scalar(key, true);
                    self.out.push_str(": ");
                    self.flow(value, unordered(key));
                    let separator = if self.flip() { ", # a comment: [x}\n                    " } else { ", " };
                    self.out.push_str(separator);
                }
                self.out.push('}');
            }
        }
    }

    fn block(&mut self, node: &Node, depth: usize, rotate: bool) {
        let indent = "  ".repeat(depth);
        match &node.value {
            Value::Map(map) if !map.is_empty() => {
                for (key, value) in self.entries(map, rotate) {
                    if self.flip() {
                        let _ = writeln!(self.out, "{indent}# a comment\n");
                    }
                    self.out.push_str(&indent);
                    self.scalar(key, false);
                    self.child(value, depth, unordered(key));
                }
            }
            Value::List(items) if !items.is_empty() => {
                for item in items {
                    let _ = write!(self.out, "{indent}- ");
                    self.flow(item, true);
                    self.out.push('\n');
                }
            }
            _ => {
                self.out.push_str(&indent);
                self.flow(node, true);
                self.out.push('\n');
            }
        }
    }

    fn child(&mut self, value: &Node, depth: usize, rotate: bool) {
        self.out.push(':');
        if matches!(value.value, Value::Scalar { .. }) {
            self.out.push(' ');
            self.scalar(value, false);
            self.out.push('\n');
        } else if self.flip() {
            self.out.push(' ');
            self.flow(value, rotate);
            self.out.push('\n');
        } else {
            self.out.push('\n');
            self.block(value, depth + 1, rotate);
        }
    }
}

fn unordered(key: &Node) -> bool {
    !key.scalar_text().is_some_and(|name| ORDERED.contains(&name))
}
