//! An args map, read into flags: the ending of a key chooses the form (the table stands in `schema`).

use super::compile::Reader;
use super::schema::{ArgBody, Form};
use crate::config::diagnostic::Diagnostic;
use crate::config::document::{Node, Value};
use crate::config::fields::{self, Fields};
use crate::speculative::is_reserved;

impl Reader<'_> {
    /// Refuses written words that are reserved flags.
    pub(super) fn no_reserved(&self, words: Option<&[Node]>) {
        for word in words.unwrap_or_default() {
            if let Some(text) = word.scalar_text().filter(|text| is_reserved(text)) {
                self.reserved(&word.place, text);
            }
        }
    }

    pub(super) fn args(&self, node: Option<&Node>) -> Vec<ArgBody> {
        let Some(fields) = node.and_then(|node| Fields::open_any(node, "`args`", self.faults)) else {
            return Vec::new();
        };
        let mut args: Vec<ArgBody> = Vec::new();
        for (key, value) in fields.entries() {
            let written = key.scalar_text().unwrap_or_default();
            let (name, form) = match written {
                name if name.ends_with('=') => (&name[..name.len() - 1], Form::Joined),
                name if name.ends_with("[]") => (&name[..name.len() - 2], Form::Repeated),
                name if name.ends_with("...") => (&name[..name.len() - 3], Form::Multiple),
                name => (name, Form::Spaced),
            };
            let flag = if name.starts_with('-') { name.to_owned() } else { format!("--{name}") };
            if is_reserved(&flag) {
                self.reserved(&key.place, &flag);
                continue;
            }
            if let Some(other) = args.iter().find(|other| other.flag == flag) {
                self.faults.push(
                    Diagnostic::at(&key.place, format!("{flag} is set twice, in two forms"))
                        .related(&other.place, "also here")
                        .help("use one form of the key"),
                );
                continue;
            }
            self.no_reserved(value.as_list());
            let listed = matches!(form, Form::Repeated | Form::Multiple);
            let collection = matches!(value.value, Value::List(_) | Value::Map(_));
            if form == Form::Joined && collection {
                fields::wrong_kind(value, &format!("`{written}`"), "a scalar", self.faults);
            } else if listed && value.as_list().is_none() && !value.is_null() {
                fields::wrong_kind(value, &format!("`{written}`"), "a list", self.faults);
            } else if let Some(value) = self.json(value) {
                args.push(ArgBody { flag, form, value, place: key.place.clone() });
            }
        }
        args
    }
}
