//! One YAML scalar as a template: numbers keep their digits, quoted text stays text, conditions are one expression.

use std::collections::BTreeSet;

use super::expr::{Expr, Leaf, MAX_INTEGER, Template};
use crate::config::diagnostic::Diagnostic;
use crate::config::document::{Node, Scalar};

/// Compiles one condition, `${{ … }}`.
///
/// # Errors
/// Anything but one whole expression, and faulty expressions.
pub fn condition(node: &Node, names: &BTreeSet<String>) -> Result<Expr, Diagnostic> {
    let text = node.scalar_text().unwrap_or_default();
    match Template::compile(text, &node.place, names)? {
        Template::Whole(expr) => Ok(expr),
        _ => {
            let example = if text.is_empty() || text.contains("${{") { "router != none" } else { text };
            Err(Diagnostic::at(&node.place, "a condition is one expression")
                .help(format!("write it as a whole: `${{{{ {example} }}}}`")))
        }
    }
}

/// A scalar node as a template: numbers keep their digits, quoted text stays text.
///
/// # Errors
/// Integers beyond 2^53, numbers in odd notations, faulty expressions.
pub fn template(node: &Node, names: &BTreeSet<String>) -> Result<Template, Diagnostic> {
    let Some(scalar) = node.resolve() else {
        return Err(Diagnostic::at(&node.place, format!("a scalar is expected here, this is {}", node.kind())));
    };
    let leaf = match scalar {
        Scalar::Null => Leaf::Null,
        Scalar::Bool(value) => {
            let word = node.scalar_text().unwrap_or_default();
            if !word.eq_ignore_ascii_case(if value { "true" } else { "false" }) {
                return Err(Diagnostic::at(&node.place, format!("YAML reads `{word}` as {value}"))
                    .help(format!("write `{value}` if that is meant, \"{word}\" if the program reads the word")));
            }
            Leaf::Bool(value)
        }
        Scalar::Integer(digits) => match digits.replace('_', "").parse::<i64>() {
            Ok(value) if value.abs() <= MAX_INTEGER => Leaf::Integer(value),
            _ => {
                return Err(Diagnostic::at(&node.place, format!("{digits} is beyond 2^53"))
                    .help("quote it if it is text; JSON readers lose digits of larger integers"));
            }
        },
        Scalar::Float(digits) if is_json_number(digits) => Leaf::Decimal(digits.to_owned()),
        Scalar::Float(text) | Scalar::OddInteger(text) => {
            return Err(Diagnostic::at(&node.place, format!("`{text}` is a number in a notation that is not kept"))
                .help(format!("write plain digits such as 0.80, or quote it (\"{text}\") if it is text")));
        }
        Scalar::Text(text) => return Template::compile(text, &node.place, names),
    };
    Ok(Template::Fixed(leaf))
}

/// Digits, one dot with digits on both sides: what JSON reads back unchanged.
fn is_json_number(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    unsigned
        .split_once('.')
        .is_some_and(|(whole, fraction)| digits(whole) && digits(fraction) && (whole == "0" || !whole.starts_with('0')))
}
