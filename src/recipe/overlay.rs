//! Recipe files as written, and the merging of overlays: maps deep, everything else replaces.
//!
//! A merged tree keeps the places of its parts, so that an error in an overlay shows the overlay. This file knows where
//! the parts of a recipe stand, not what services look like.

use crate::config::diagnostic::{Diagnostics, Place};
use crate::config::document::{Node, Value};
use crate::config::fields::{Faults, Fields};

/// The parts of a recipe that overlays may change.
pub const BODY: [&str; 5] = ["services", "client", "eval", "speculative", "python"];

/// A recipe or a fragment that recipes extend.
#[derive(Debug)]
pub struct RecipeFile {
    /// Its path in the project.
    pub path: String,
    /// The whole document.
    pub place: Place,
    /// Which arms it is for; fragments have none.
    pub matches: Option<Node>,
    /// Fragments that it builds on, in order.
    pub extends: Vec<(String, Place)>,
    /// Named values, in order: name, its place, the value.
    pub lets: Vec<(String, Place, Node)>,
    /// Conditions that an arm must meet, with the message where it does not.
    pub require: Vec<(Node, String)>,
    /// Services, clients and speculation.
    pub body: Node,
    /// Changes to the body, each under its condition.
    pub overlays: Vec<(Node, Node)>,
}

impl RecipeFile {
    /// Reads a document's outer parts.
    ///
    /// # Errors
    /// Unknown fields and wrong kinds, all of them.
    pub fn read(path: &str, document: &Node) -> Result<Self, Diagnostics> {
        let faults = Faults::default();
        let known =
            ["match", "extends", "let", "require", "overlays", "services", "client", "eval", "speculative", "python"];
        let file = Fields::open(document, "a recipe", &known, &faults).map(|fields| Self {
            path: path.to_owned(),
            place: document.place.clone(),
            matches: fields.optional("match").cloned(),
            extends: extends(&fields, &faults),
            lets: fields.optional("let").and_then(|lets| Fields::open_any(lets, "`let`", &faults)).map_or_else(
                Vec::new,
                |lets| {
                    let read = |(key, value): &(Node, Node)| {
                        (key.scalar_text().unwrap_or_default().to_owned(), key.place.clone(), value.clone())
                    };
                    lets.entries().iter().map(read).collect()
                },
            ),
            require: requirements(&fields, &faults),
            body: body(document),
            overlays: overlays(&fields, &faults),
        });
        faults.or(file).and_then(|file| file.ok_or_else(Diagnostics::default))
    }
}

fn extends(fields: &Fields<'_, '_>, faults: &Faults) -> Vec<(String, Place)> {
    let items = fields.optional_list("extends").unwrap_or_default();
    let read = |item: &Node| {
        crate::config::fields::string(item, "a fragment's path", faults)
            .map(|path| (path.to_owned(), item.place.clone()))
    };
    items.iter().filter_map(read).collect()
}

fn requirements(fields: &Fields<'_, '_>, faults: &Faults) -> Vec<(Node, String)> {
    let items = fields.optional_list("require").unwrap_or_default();
    let read = |item: &Node| {
        let fields = Fields::open(item, "a requirement", &["that", "else"], faults)?;
        let (that, otherwise) = (fields.required("that"), fields.string("else"));
        Some((that?.clone(), otherwise?.to_owned()))
    };
    items.iter().filter_map(read).collect()
}

fn overlays(fields: &Fields<'_, '_>, faults: &Faults) -> Vec<(Node, Node)> {
    let items = fields.optional_list("overlays").unwrap_or_default();
    let read = |item: &Node| {
        let known = ["when", "services", "client", "eval", "speculative"];
        let fields = Fields::open(item, "an overlay", &known, faults)?;
        Some((fields.required("when")?.clone(), body(item)))
    };
    items.iter().filter_map(read).collect()
}

/// The parts of a document that belong to the body.
fn body(document: &Node) -> Node {
    let entries = document.as_map().unwrap_or_default();
    let parts = entries.iter().filter(|(key, _)| key.scalar_text().is_some_and(|name| BODY.contains(&name)));
    Node { place: document.place.clone(), value: Value::Map(parts.cloned().collect()) }
}

/// `top` laid over `base`: maps merge by key and keep the order of first definition; lists, scalars and nulls replace.
pub fn merge(base: &mut Node, top: &Node) {
    match (&mut base.value, &top.value) {
        (Value::Map(entries), Value::Map(changes)) => {
            for (key, change) in changes {
                let name = key.scalar_text();
                match entries.iter_mut().find(|(existing, _)| existing.scalar_text() == name) {
                    Some((_, value)) => merge(value, change),
                    None => entries.push((key.clone(), change.clone())),
                }
            }
        }
        _ => *base = top.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::Source;
    use crate::config::document::parse;

    fn show(node: &Node) -> String {
        match &node.value {
            Value::Scalar { text, .. } => text.clone(),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
            Value::Map(entries) => {
                let pairs = entries.iter().map(|(key, value)| format!("{}:{}", show(key), show(value)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
            }
        }
    }

    #[test]
    fn maps_merge_in_the_order_of_first_definition_and_the_rest_replaces() {
        let read = |text: &str| parse(&Source::new("r.yaml", text)).unwrap();
        let mut base = read("{a: 1, b: {x: 1, y: [1, 2]}, c: {z: 1}}");
        merge(&mut base, &read("{d: 4, b: {y: [3], w: 5}, a: null, c: 7}"));
        assert_eq!(show(&base), "{a:null,b:{x:1,y:[3],w:5},c:7,d:4}");
    }
}
