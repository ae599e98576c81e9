//! Numbers in expressions stay exact: what would make a float is refused before anything is evaluated. Knows no grammar
//! beyond quotes, numbers and `/`.

use crate::config::diagnostic::{Diagnostic, Place};

/// Refuses what would make a float: `/`, and a number with a dot or an exponent.
///
/// # Errors
/// The first of them, at the expression.
pub(super) fn check(source: &str, place: &Place) -> Result<(), Diagnostic> {
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => at += 1,
            b'/' => {
                return Err(Diagnostic::at(place, format!("`{source}`: `/` divides into a float"))
                    .help("write `//` for integer division; numbers in a spec are exact"));
            }
            b'0'..=b'9' if at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') => {
                let end = bytes[at..].iter().position(|c| !(c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_')));
                let word = &source[at..end.map_or(bytes.len(), |end| at + end)];
                if word.contains(['.', 'e', 'E']) {
                    return Err(Diagnostic::at(place, format!("`{source}`: {word} is a float")).help(
                        "put the number outside the expression (an overlay can choose it), or compute in integers",
                    ));
                }
                at += word.len() - 1;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}
