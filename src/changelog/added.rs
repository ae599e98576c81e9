//! What a changelog has that an earlier one has not, and the rules that an addition keeps.
//!
//! Always: no line that is not blank goes away, there is no NUL, carriage return or tab in what is added, the file ends
//! with a line end, and what is added parses. For a review ([`Added::review`]) also: entries stand at the end, and name
//! a key once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::diff::{Difference, difference, lines};
use crate::config::changelog::{ChangelogEntry, parse_parts};
use crate::config::diagnostic::{Diagnostic, Diagnostics, Place, Source};

/// The new entries of a changelog.
#[derive(Debug, Clone)]
pub struct Added {
    /// In file order.
    pub entries: Vec<ChangelogEntry>,
    source: Arc<Source>,
    /// What is new, in bytes.
    parts: Vec<Range<usize>>,
}

/// Compares a changelog with an earlier one (nothing: there was none) and reads what is new.
///
/// # Errors
/// Lines that went away, bytes that do not belong into a changelog, faulty entries: all of them.
pub fn added(base: Option<&Arc<Source>>, head: &Arc<Source>) -> Result<Added, Diagnostics> {
    let old = base.map(|base| lines(&base.text)).unwrap_or_default();
    let new = lines(&head.text);
    let found = difference(&old, &new);
    let starts = starts(&new);
    let parts: Vec<Range<usize>> = found.added.iter().map(|run| starts[run.start]..starts[run.end]).collect();
    let mut faults = Diagnostics::default();
    if let Some(base) = base {
        removed(base, &old, &found, &mut faults);
    }
    bytes(head, &parts, &mut faults);
    if !faults.0.is_empty() {
        return Err(faults);
    }
    let entries = parse_parts(head, &parts)?;
    Ok(Added { entries, source: Arc::clone(head), parts })
}

/// The offset of each line, and of the end.
fn starts(lines: &[&str]) -> Vec<usize> {
    let mut at = 0;
    let mut starts = vec![0];
    starts.extend(lines.iter().map(|line| {
        at += line.len();
        at
    }));
    starts
}

/// Each run of removed lines is one fault. Blank lines may go, and the empty list of a changelog without entries.
fn removed(base: &Arc<Source>, old: &[&str], found: &Difference, faults: &mut Diagnostics) {
    let starts = starts(old);
    let mut runs: Vec<Range<usize>> = Vec::new();
    for line in found.removed.iter().copied() {
        match runs.last_mut() {
            Some(run) if run.end == line => run.end += 1,
            _ => runs.push(line..line + 1),
        }
    }
    for run in runs {
        let says = |line: &usize| !matches!(old[*line].trim(), "" | "[]");
        let Some(first) = run.clone().find(says) else { continue };
        let count = run.filter(says).count();
        let text = old[first].trim_end();
        let span = starts[first]..starts[first] + text.len();
        let lines =
            if count == 1 { "this line is".to_owned() } else { format!("this line and {} more are", count - 1) };
        let fault =
            Diagnostic::at(&Place { source: Arc::clone(base), span }, format!("a removed line: {}", text.trim()))
                .label(format!("{lines} gone or changed"));
        let open = old.last().is_some_and(|last| !last.ends_with('\n')) && first + 1 == old.len();
        faults.push(match open {
            true => fault.help("the file did not end with a line end: add that in a commit of its own"),
            false => fault.help("restore it: entries are only ever added; to correct one, append another"),
        });
    }
}

/// What does not belong into a changelog, in what is new.
fn bytes(head: &Arc<Source>, parts: &[Range<usize>], faults: &mut Diagnostics) {
    let at = |span: Range<usize>| Place { source: Arc::clone(head), span };
    for (byte, name, help) in [
        ('\0', "a NUL byte", "remove it: git takes the file for binary"),
        ('\r', "a carriage return", "save the file with line feeds alone (LF)"),
        ('\t', "a tab", "use spaces"),
    ] {
        let mut places = parts
            .iter()
            .flat_map(|part| head.text[part.clone()].match_indices(byte).map(move |(offset, _)| part.start + offset));
        if let Some(first) = places.next() {
            let more = match places.count() {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            faults.push(Diagnostic::at(&at(first..first + 1), format!("{name} in the changelog{more}")).help(help));
        }
    }
    if !head.text.is_empty() && !head.text.ends_with('\n') {
        let start = head.text.rfind('\n').map_or(0, |newline| newline + 1);
        faults.push(
            Diagnostic::at(&at(start..head.text.len()), "no line end at the end of the changelog")
                .label("the next entry would change this line")
                .help("end the file with a line feed"),
        );
    }
}

impl Added {
    /// What a review refuses and a selection bears: entries above older ones, and keys that one entry names twice.
    pub fn review(&self) -> Diagnostics {
        let mut faults = Diagnostics::default();
        let text = &self.source.text;
        for (index, part) in self.parts.iter().enumerate() {
            let rest = self.parts.get(index + 1).map_or(text.len(), |next| next.start);
            let after = &text[part.end..rest];
            let Some(entry) = self.entries.iter().find(|entry| part.contains(&entry.place.span.start)) else {
                continue;
            };
            if !after.trim().is_empty() {
                let older = part.end + after.len() - after.trim_start().len();
                let older = Place { source: Arc::clone(&self.source), span: older..older + 1 };
                faults.push(
                    Diagnostic::at(&entry.place, "an entry above older ones")
                        .label("new")
                        .related(&older, "older")
                        .help("move it to the end of the file: the changelog is in the order of its commits"),
                );
            }
        }
        for entry in &self.entries {
            let mut seen: HashMap<&str, &Place> = HashMap::new();
            for key in &entry.config_keys {
                match seen.get(key.text.as_str()) {
                    None => {
                        seen.insert(&key.text, &key.place);
                    }
                    Some(first) => faults.push(
                        Diagnostic::at(&key.place, format!("`{}` stands twice in this entry", key.text))
                            .label("again here")
                            .related(first, "first here")
                            .help("keep one of them"),
                    ),
                }
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str) -> String {
        format!("- config-keys:\n    - {key}\n  description:\n    - \"x\"\n  pr-link: p\n")
    }

    fn read(base: &str, head: &str) -> Result<Added, Vec<String>> {
        let base = Source::new("main:c.yaml", base);
        let said = |found: Diagnostics| found.0.iter().map(ToString::to_string).collect();
        added(Some(&base), &Source::new("c.yaml", head)).map_err(said)
    }

    fn keys(base: &str, head: &str) -> Vec<String> {
        let added = read(base, head).unwrap();
        added.entries.iter().flat_map(|entry| entry.config_keys.iter().map(|key| key.text.clone())).collect()
    }

    #[test]
    fn new_entries_are_read_wherever_they_stand() {
        let (a, b, c) = (entry("a"), entry("b"), entry("c"));
        assert_eq!(keys(&a, &format!("{a}\n{b}\n{c}")), ["b", "c"]);
        assert_eq!(keys(&format!("{a}\n{c}"), &format!("{a}\n{b}\n{c}")), ["b"]);
        assert_eq!(keys(&format!("{a}  \n"), &format!("{a}\n{b}\n")), ["b"]);
        assert_eq!(keys(&a, &format!("{a}\n  \n")), Vec::<String>::new());
        assert_eq!(keys(&a, &a), Vec::<String>::new());
    }

    #[test]
    fn lines_never_go_away() {
        let (a, b) = (entry("a"), entry("b"));
        assert_eq!(read(&format!("{a}\n{b}"), &a).unwrap_err(), ["main:c.yaml:7:1: a removed line: - config-keys:"]);
        assert_eq!(read(&a, &a.replace("\"x\"", "\"y\"")).unwrap_err(), ["main:c.yaml:4:1: a removed line: - \"x\""]);
        assert_eq!(
            read(a.trim_end(), &format!("{a}{b}")).unwrap_err(),
            ["main:c.yaml:5:1: a removed line: pr-link: p"]
        );
    }

    #[test]
    fn bytes_that_tools_stumble_over_are_refused() {
        let (a, b) = (entry("a"), entry("b"));
        for (text, said) in [
            (b.replace("x\"", "x\0\""), "c.yaml:9:9: a NUL byte in the changelog"),
            (b.replace('\n', "\r\n"), "c.yaml:6:15: a carriage return in the changelog, and 4 more"),
            (b.replace("x\"", "x\ty\""), "c.yaml:9:9: a tab in the changelog"),
            (b.trim_end().to_owned(), "c.yaml:10:1: no line end at the end of the changelog"),
        ] {
            assert_eq!(read(&a, &format!("{a}{text}")).unwrap_err(), [said], "{text:?}");
        }
    }

    #[test]
    fn a_review_wants_entries_at_the_end_and_keys_once() {
        let (a, b, c) = (entry("a"), entry("b"), entry("c"));
        let review = |base: &str, head: &str| read(base, head).unwrap().review().to_string();
        assert_eq!(review(&a, &format!("{a}\n{b}\n")), "");
        assert_eq!(review(&format!("{a}\n{c}"), &format!("{a}\n{b}\n{c}")), "c.yaml:7:3: an entry above older ones");
        let twice = b.replace("    - b\n", "    - b\n    - b\n");
        assert_eq!(review(&a, &format!("{a}{twice}")), "c.yaml:8:7: `b` stands twice in this entry");
    }
}
