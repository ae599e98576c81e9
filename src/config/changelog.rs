//! The changelog: what was changed to be measured again. Text → entries, every fault of the text at its place.
//!
//! ```yaml
//! - config-keys:                     # keys of the masters, or globs (`*` alone) over them
//!     - dsv4-fp4-b200-vllm-agentic*
//!   description:                     # what changed, a line an item
//!     - "Bump the image"
//!   pr-link: https://example.com/org/repo/pull/1
//!   scenario-type: [agentic-coding]  # optional: else both scenarios
//!   evals-only: true                 # optional: evaluate, do not measure speed
//!   all-evals: true                  # optional: evaluate every row that can be
//!   eval-min-prefill-ep: 8           # optional: no evals of rows with a smaller prefill ep
//!   append-only: true                # optional, without the three before: points were added to a curve, no other changed
//! ```
//!
//! Which keys exist, and what an entry selects, is `changelog`'s business.

use std::sync::Arc;

use super::diagnostic::{Diagnostic, Diagnostics, Place, Source};
use super::document::{self, Node, Value};
use super::fields::{self, Faults, Fields};
use super::topology::ScenarioType;

/// The changelog in a project.
pub const FILE: &str = "perf-changelog.yaml";

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogEntry {
    /// Where it starts.
    pub place: Place,
    /// Keys and globs, in file order.
    pub config_keys: Vec<Pattern>,
    /// What changed.
    pub description: Vec<String>,
    /// The pull request.
    pub pr_link: String,
    /// Evals and no throughput.
    pub evals_only: bool,
    /// Every row that can be evaluated, and no throughput.
    pub all_evals: bool,
    /// Only points that were added to existing curves.
    pub append_only: bool,
    /// Eval rows with a smaller prefill ep are dropped.
    pub eval_min_prefill_ep: Option<u32>,
    /// The scenarios, in file order; empty where the entry does not say.
    pub scenario_type: Vec<ScenarioType>,
}

/// A config key, or a glob over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// As written.
    pub text: String,
    /// Where.
    pub place: Place,
}

impl ChangelogEntry {
    /// The scenarios that it is about.
    pub fn scenarios(&self) -> &[ScenarioType] {
        if self.scenario_type.is_empty() { &ScenarioType::ALL } else { &self.scenario_type }
    }
}

const ENTRY: &[&str] = &[
    "config-keys",
    "description",
    "pr-link",
    "scenario-type",
    "evals-only",
    "all-evals",
    "eval-min-prefill-ep",
    "append-only",
];

/// Reads a whole changelog.
///
/// # Errors
/// Every fault of the text.
pub fn parse(source: &Arc<Source>) -> Result<Vec<ChangelogEntry>, Diagnostics> {
    let whole = 0..source.text.len();
    parse_parts(source, std::slice::from_ref(&whole))
}

/// Reads the entries that stand in some parts of a changelog (byte ranges, in order), whatever is around them. Places
/// are those of the whole text.
///
/// # Errors
/// Every fault of the parts.
pub fn parse_parts(source: &Arc<Source>, parts: &[std::ops::Range<usize>]) -> Result<Vec<ChangelogEntry>, Diagnostics> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(Vec::new()) };
    let (start, end) = (first.start, last.end);
    // What lies between the parts becomes blank, so that offsets stay.
    let mut text = String::with_capacity(end - start);
    let mut at = start;
    for part in parts {
        text.extend(source.text[at..part.start].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        text.push_str(&source.text[part.clone()]);
        at = part.end;
    }
    if text.lines().all(|line| line.trim_start().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Vec::new());
    }
    let part = Source::new(source.name.clone(), text);
    let home = |place: &mut Place| {
        place.span = place.span.start + start..place.span.end + start;
        place.source = Arc::clone(source);
    };
    let mut root = document::parse(&part).map_err(|mut found| {
        for fault in &mut found.0 {
            fault.place.iter_mut().for_each(&home);
            fault.related.iter_mut().for_each(|(place, _)| home(place));
        }
        found
    })?;
    rehome(&mut root, &home);
    let faults = Faults::default();
    if root.is_null() {
        return Ok(Vec::new());
    }
    let items = fields::list(&root, "a changelog", &faults).unwrap_or_default();
    let entries = items.iter().filter_map(|item| entry(item, &faults)).collect();
    faults.or(entries)
}

fn rehome(node: &mut Node, home: &dyn Fn(&mut Place)) {
    home(&mut node.place);
    match &mut node.value {
        Value::Scalar { .. } => {}
        Value::List(items) => items.iter_mut().for_each(|item| rehome(item, home)),
        Value::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
            rehome(key, home);
            rehome(value, home);
        }),
    }
}

fn entry(node: &Node, faults: &Faults) -> Option<ChangelogEntry> {
    let before = faults.len();
    let entry = Fields::open(node, "a changelog entry", ENTRY, faults)?;
    let config_keys = texts(&entry, "config-keys", "a config key or a glob, such as `dsv4-*`", faults);
    let description = texts(&entry, "description", "a line that says what changed", faults);
    let pr_link = entry.string("pr-link");
    let flags = ["evals-only", "all-evals", "append-only"].map(|name| entry.optional_boolean(name).unwrap_or(false));
    let [evals_only, all_evals, append_only] = flags;
    let eval_min_prefill_ep = entry.optional_integer("eval-min-prefill-ep", 1..=1 << 16);
    let scenario_type = match entry.optional("scenario-type") {
        None => Some(Vec::new()),
        Some(_) => scenarios(&entry, faults),
    };
    if append_only {
        let evals = [("evals-only", evals_only), ("all-evals", all_evals)];
        let evals = evals.into_iter().chain([("eval-min-prefill-ep", eval_min_prefill_ep.is_some())]);
        for (key, _) in evals.filter(|(_, set)| *set).filter_map(|(name, _)| entry.entry(name)) {
            let name = key.scalar_text().unwrap_or_default();
            let mut fault = Diagnostic::at(&key.place, format!("`{name}` in an append-only entry"))
                .label("append-only entries have no evals")
                .help(format!("remove `{name}`, or write two entries in two commits"));
            if let Some((key, _)) = entry.entry("append-only") {
                fault = fault.related(&key.place, "append-only here");
            }
            faults.push(fault);
        }
    }
    if faults.len() > before {
        return None;
    }
    let config_keys = config_keys?.into_iter();
    Some(ChangelogEntry {
        place: node.place.clone(),
        config_keys: config_keys.map(|(text, place)| Pattern { text, place }).collect(),
        description: description?.into_iter().map(|(text, _)| text).collect(),
        pr_link: pr_link?.to_owned(),
        evals_only,
        all_evals,
        append_only,
        eval_min_prefill_ep: eval_min_prefill_ep.and_then(|ep| u32::try_from(ep).ok()),
        scenario_type: scenario_type?,
    })
}

/// A required list of strings with at least one item.
fn texts(entry: &Fields<'_, '_>, name: &str, item: &str, faults: &Faults) -> Option<Vec<(String, Place)>> {
    let items = entry.list(name)?;
    if items.is_empty() {
        let place = entry.entry(name).map_or(entry.place(), |(key, _)| &key.place);
        faults.push(Diagnostic::at(place, format!("`{name}` is empty")).help(format!("list at least {item}")));
        return None;
    }
    let what = format!("an item of `{name}`");
    let read =
        items.iter().filter_map(|node| Some((fields::string(node, &what, faults)?.to_owned(), node.place.clone())));
    Some(read.collect())
}

fn scenarios(entry: &Fields<'_, '_>, faults: &Faults) -> Option<Vec<ScenarioType>> {
    let items = entry.list("scenario-type")?;
    let words = ScenarioType::ALL.map(|kind| (kind.word(), kind));
    if items.is_empty() {
        let place = entry.entry("scenario-type").map_or(entry.place(), |(key, _)| &key.place);
        faults.push(Diagnostic::at(place, "`scenario-type` is empty").help("name a scenario, or remove it for both"));
    }
    Some(items.iter().filter_map(|node| fields::choice(node, "an item of `scenario-type`", &words, faults)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
- config-keys: [a-*]
  description:
    - \"one: two\"
  pr-link: https://example.com/pull/1

- config-keys:
    - b
  scenario-type:
    - agentic-coding
  description: [three]
  pr-link: https://example.com/pull/2
  append-only: true
";

    fn read(text: &str) -> Result<Vec<ChangelogEntry>, Vec<String>> {
        let lines = |fault: &Diagnostic| format!("{fault} ({})", fault.help.as_deref().unwrap_or("-"));
        parse(&Source::new("c.yaml", text)).map_err(|found| found.0.iter().map(lines).collect())
    }

    #[test]
    fn entries_read() {
        let entries = read(GOOD).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].scenarios(), entries[0].append_only), (&ScenarioType::ALL[..], false));
        assert_eq!((entries[1].scenarios(), entries[1].append_only), (&[ScenarioType::AgenticCoding][..], true));
        assert_eq!(entries[1].place.to_string(), "c.yaml:6:3");
        assert_eq!(read("# nothing yet\n[]\n").unwrap(), []);
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn parts_keep_their_places() {
        let text = format!("- broken: [\n{GOOD}");
        let source = Source::new("c.yaml", text.as_str());
        let at = |line: &str| text.find(line).unwrap();
        let second = at("- config-keys:\n    - b")..text.len();
        let entries = parse_parts(&source, std::slice::from_ref(&second)).unwrap();
        assert_eq!(entries[0].place.to_string(), "c.yaml:7:3");
        assert_eq!(entries[0].config_keys[0].place.to_string(), "c.yaml:8:7");
        let first = at("- config-keys: [a-*]")..at("  description");
        let found = parse_parts(&source, &[first, second]).unwrap_err();
        let said: Vec<String> = found.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["c.yaml:2:3: a changelog entry lacks `description`", "c.yaml:2:3: a changelog entry lacks `pr-link`"]
        );
    }

    #[test]
    fn all_faults_come_at_once() {
        let text = "\
- config-keys: []
  description: just text
  pr-link: 12
  scenario-type: [agentic, fixed-seq-len]
  eval-min-prefill-ep: 0
  note: x
- config-keys: [1.10]
  description: [yes]
  pr-link: p
  append-only: true
  all-evals: true
- text
";
        assert_eq!(
            read(text).unwrap_err(),
            [
                "c.yaml:1:3: `config-keys` is empty (list at least a config key or a glob, such as `dsv4-*`)",
                "c.yaml:2:16: `description` must be a list, not a string: `just text` (write [just text])",
                "c.yaml:3:12: `pr-link` must be a string, not an integer: `12` (put it in quotes: \"12\")",
                "c.yaml:4:19: an item of `scenario-type` cannot be `agentic` (-)",
                "c.yaml:5:24: `eval-min-prefill-ep` must be greater than 0, not 0 (-)",
                "c.yaml:6:3: unknown field `note` in a changelog entry (the fields of a changelog entry: `config-keys`, \
                 `description`, `pr-link`, `scenario-type`, `evals-only`, `all-evals`, `eval-min-prefill-ep`, `append-only`)",
                "c.yaml:7:17: an item of `config-keys` must be a string, not a float: `1.10` (put it in quotes: \"1.10\")",
                "c.yaml:8:17: an item of `description` must be a string, not a boolean: `yes` (put it in quotes: \"yes\")",
                "c.yaml:11:3: `all-evals` in an append-only entry (remove `all-evals`, or write two entries in two commits)",
                "c.yaml:12:3: a changelog entry must be a mapping, not a string: `text` (-)",
            ]
        );
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        let text = GOOD.replace("  append-only: true\n", "  pr-link: x\n");
        assert_eq!(
            read(&text).unwrap_err(),
            [
                "c.yaml:12:3: the key `pr-link` stands twice in this mapping (keep one of them; other tools would silently take the last)"
            ]
        );
    }
}
