//! A changelog entry that is yet to be written: its text, and the changelog with it at the end.

use std::fmt;
use std::sync::Arc;

use super::added::added;
use crate::config::changelog::{ChangelogEntry, parse};
use crate::config::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::config::document::{Scalar, resolve_plain};
use crate::config::topology::ScenarioType;

/// What an entry will say. [`fmt::Display`] is its YAML, without a line end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    /// Keys and globs.
    pub config_keys: Vec<String>,
    /// Scenarios; empty for both.
    pub scenario_type: Vec<ScenarioType>,
    /// What changed.
    pub description: Vec<String>,
    /// The pull request.
    pub pr_link: String,
    /// Evals and no throughput.
    pub evals_only: bool,
    /// Every row that can be evaluated, and no throughput.
    pub all_evals: bool,
    /// Only points that were added.
    pub append_only: bool,
    /// Eval rows with a smaller prefill ep are dropped.
    pub eval_min_prefill_ep: Option<u32>,
}

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "- config-keys:")?;
        for key in &self.config_keys {
            write!(f, "\n    - {}", plain_or_quoted(key))?;
        }
        if !self.scenario_type.is_empty() {
            write!(f, "\n  scenario-type:")?;
        }
        for kind in &self.scenario_type {
            write!(f, "\n    - {}", kind.word())?;
        }
        write!(f, "\n  description:")?;
        for line in &self.description {
            write!(f, "\n    - {}", quoted(line))?;
        }
        write!(f, "\n  pr-link: {}", plain_or_quoted(&self.pr_link))?;
        for (name, set) in
            [("evals-only", self.evals_only), ("all-evals", self.all_evals), ("append-only", self.append_only)]
        {
            if set {
                write!(f, "\n  {name}: true")?;
            }
        }
        match self.eval_min_prefill_ep {
            Some(ep) => write!(f, "\n  eval-min-prefill-ep: {ep}"),
            None => Ok(()),
        }
    }
}

/// A scalar without quotes where that reads as the same text.
fn plain_or_quoted(text: &str) -> String {
    let word = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !text.ends_with(':')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.*/:?=&+~%@".contains(c));
    if word && matches!(resolve_plain(text), Scalar::Text(_)) { text.to_owned() } else { quoted(text) }
}

/// Double quotes, and the escapes that YAML shares with JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A changelog with one more entry.
#[derive(Debug, Clone)]
pub struct Appended {
    /// The whole text. It starts with every byte that was there, but for the empty list `[]` of a changelog without
    /// entries, which gives way.
    pub text: String,
    /// The entry as it reads there.
    pub entry: ChangelogEntry,
}

/// Puts an entry at the end of a changelog (nothing: it is the first).
///
/// # Errors
/// A changelog that does not parse or that ends within a line; an entry that breaks its rules.
pub fn append(existing: Option<&Arc<Source>>, name: &str, draft: &Draft) -> Result<Appended, Diagnostics> {
    let old = match existing {
        Some(source) => {
            parse(source)?;
            source.text.as_str()
        }
        None => "",
    };
    let kept = match old.trim_end().strip_suffix("[]") {
        Some(before) if before.is_empty() || before.ends_with('\n') => before,
        _ => old,
    };
    let blank = kept.lines().next_back().is_none_or(|line| line.trim().is_empty());
    let separator = if blank { "" } else { "\n" };
    let text = format!("{kept}{separator}{draft}\n");
    let source = Source::new(name, text.as_str());
    let mut new = added(existing, &source)?.entries;
    match (new.pop(), new.is_empty()) {
        (Some(entry), true) => Ok(Appended { text, entry }),
        _ => Err(Diagnostic::new(format!("{name} does not take the entry as one")).into()),
    }
}

/// A pull request's link from its number, after the pattern of the last entry that has a number in its link.
pub fn link_of(entries: &[ChangelogEntry], number: &str) -> Option<String> {
    let mut links = entries.iter().rev().map(|entry| entry.pr_link.trim_end_matches('/'));
    links.find_map(|link| {
        let (start, last) = link.rsplit_once('/')?;
        (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())).then(|| format!("{start}/{number}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn draft() -> Draft {
        Draft {
            config_keys: vec!["dsv4-*".into(), "*-mtp".into(), "1.10".into()],
            description: vec!["Say \"it\": # here".into()],
            pr_link: "https://example.com/o/r/pull/12".into(),
            ..Draft::default()
        }
    }

    #[test]
    fn an_entry_reads_as_the_fields_own() {
        let text = "\
- config-keys:
    - dsv4-*
    - \"*-mtp\"
    - \"1.10\"
  scenario-type:
    - agentic-coding
  description:
    - \"Say \\\"it\\\": # here\"
  pr-link: https://example.com/o/r/pull/12
  append-only: true";
        let scenario_type = vec![ScenarioType::AgenticCoding];
        assert_eq!(Draft { scenario_type, append_only: true, ..draft() }.to_string(), text);
    }

    #[test]
    fn what_was_there_stays_byte_for_byte() {
        for old in ["# none yet\n", "", "- config-keys: [a]\n  description: [b]\n  pr-link: c\n  \n"] {
            let source = Source::new("c.yaml", old);
            let first = append(Some(&source), "c.yaml", &draft()).unwrap();
            assert!(first.text.starts_with(old), "{}", first.text);
            let again = append(Some(&Source::new("c.yaml", first.text.as_str())), "c.yaml", &draft()).unwrap();
            assert!(again.text.starts_with(&format!("{}\n- config-keys:\n", first.text)), "{}", again.text);
        }
        let empty = append(Some(&Source::new("c.yaml", "# none yet\n[]\n")), "c.yaml", &draft()).unwrap();
        assert!(empty.text.starts_with("# none yet\n\n- config-keys:\n"), "{}", empty.text);
        assert!(append(None, "c.yaml", &draft()).unwrap().text.starts_with("- config-keys:\n"));
    }

    #[test]
    fn a_changelog_that_ends_within_a_line_is_refused() {
        let old = Source::new("c.yaml", "- config-keys: [a]\n  description: [b]\n  pr-link: c");
        let said = append(Some(&old), "c.yaml", &draft()).unwrap_err().to_string();
        assert_eq!(said, "c.yaml:3:1: a removed line: pr-link: c");
        assert!(append(Some(&Source::new("c.yaml", "- x: [\n")), "c.yaml", &draft()).is_err());
    }

    #[test]
    fn links_follow_the_last_one() {
        let text = "\
- config-keys: [a]\n  description: [b]\n  pr-link: https://x.org/o/r/pull/7
- config-keys: [a]\n  description: [b]\n  pr-link: https://x.org/o/r/pull/XXX\n";
        let entries = parse(&Source::new("c.yaml", text)).unwrap();
        assert_eq!(link_of(&entries, "12").as_deref(), Some("https://x.org/o/r/pull/12"));
        assert_eq!(link_of(&entries[1..], "12"), None);
    }

    proptest! {
        #[test]
        fn any_text_reads_back(line in "[^\\x00]{1,24}", key in "[a-z0-9*.:?#-]{1,12}") {
            let draft = Draft { description: vec![line.clone()], config_keys: vec![key.clone()], ..draft() };
            let read = append(None, "c.yaml", &draft).unwrap().entry;
            prop_assert_eq!(&read.description, &[line]);
            prop_assert_eq!(&read.config_keys[0].text, &key);
        }
    }
}
