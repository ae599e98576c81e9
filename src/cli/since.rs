//! `ixbuild plan --since`: arms against those of a git revision's files, and plans as tables for a pull request.

use std::collections::HashSet;
use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::changelog::repository;
use super::names::{Grouped, short, split};
use super::printer::Printer;
use super::project::{Project, shown};
use super::selection::Selection;
use super::table::{Tone, count, cut, paint};
use super::{Globals, exit};
use crate::changelog::added::added;
use crate::changelog::append_only::Side;
use crate::changelog::check::part_arms;
use crate::changelog::revision::changelog;
use crate::changelog::select::{Options, select};
use crate::cli::error::Error;
use crate::config::changelog::FILE;
use crate::config::inputs::{Blobs, Inputs, read_source};
use crate::config::profile::Profile;
use crate::git::{Repository, Revision};
use crate::ids::ArmId;
use crate::matrix::arm::Arm;
use crate::plan::{Plan, Reason, State};
use crate::project;
use crate::since::{Fate, Since, since};
use crate::spec::diff::Change;

/// How many arms a cell names.
const NAMED: usize = 3;

/// How many changes a cell lists.
const LISTED: usize = 4;

/// How many characters of a value are shown.
const VALUE: usize = 48;

/// Review: against a revision, for a pull request.
#[derive(Debug, Args)]
#[command(next_help_heading = "Review")]
pub struct SinceArgs {
    /// Compare with the specs that a git revision's files make, instead of the store
    #[arg(long = "since", value_name = "REF")]
    pub(super) revision: Option<String>,
    /// With --since: only arms that new entries of the changelog select
    #[arg(long, requires = "revision")]
    changelog: bool,
    /// Output: text, json (as --json), or markdown, a table for a pull request
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub(super) format: Option<Format>,
}

/// Output of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "comments here would stretch the verb's help")]
pub enum Format {
    Text,
    Json,
    Markdown,
}

/// A comparison and what to call it.
struct Found<'a> {
    base: &'a Revision,
    profile: &'a Profile,
    since: &'a Since,
    /// With --changelog: arms that changed and that no new entry selects.
    unselected: Option<usize>,
}

pub(super) fn run(
    args: &SinceArgs,
    selection: &Selection,
    as_json: bool,
    globals: &Globals,
    printer: Printer,
) -> Result<u8, Error> {
    let project = Project::open(globals)?;
    let chosen = selection.choose(&project)?;
    let mut repository = repository_of(&project.root)?;
    let name = args.revision.as_deref().unwrap_or("HEAD");
    let base = repository.resolve(name)?;
    let mut blobs = Blobs::default();
    let inputs = Inputs::from_revision(&mut repository, &base, &mut blobs)?;
    let before = project::Project::load(inputs, globals.profile_name())?;
    let mut compared = since(&before, &project, &chosen, selection.is_empty())?;
    let mut unselected = None;
    if args.changelog {
        let selected = selected(&mut repository, &base, &before, &project, &chosen, &mut blobs)?;
        let ids: HashSet<&ArmId> = selected.iter().map(|arm| &arm.id).collect();
        let missed = compared.arms.iter().filter(|arm| arm.fate.runs() && !ids.contains(&arm.id)).count();
        unselected = Some(missed);
        compared = since(&before, &project, &selected, false)?;
    }
    let found = Found { base: &base, profile: &project.profile, since: &compared, unselected };
    match (as_json, args.format) {
        (true, _) => printer.data(&found.json().to_string()),
        (false, Some(Format::Markdown)) => printer.data(&found.markdown()),
        (false, _) => found.print(printer),
    }
    Ok(exit::OK)
}

fn repository_of(root: &Path) -> Result<Repository, Error> {
    let globals = Globals { project: Some(root.to_owned()), store: None, profile: None };
    Ok(repository(&globals)?.0)
}

/// The arms, among those chosen and their eval twins, that new entries of the changelog on disk select.
fn selected(
    repository: &mut Repository,
    base: &Revision,
    before: &project::Project,
    after: &Project,
    chosen: &[Arm],
    blobs: &mut Blobs,
) -> Result<Vec<Arm>, Error> {
    let head = repository.resolve("HEAD")?;
    repository.require_ancestor(base, &head)?;
    let prefix = shown(&after.root);
    let name = if prefix.is_empty() { FILE.to_owned() } else { format!("{prefix}/{FILE}") };
    let text = read_source(&after.root.join(FILE), &name)?;
    let new = added(changelog(repository, base, FILE, blobs)?.as_ref(), &text)?;
    let sides = (Side::of(&before.inputs)?, Side::of(&after.inputs)?);
    let selection = select(new.entries, &sides.1, Some(&sides.0), Options::default())?;
    let ids: HashSet<&str> = chosen.iter().map(|arm| throughput(&arm.id)).collect();
    let arms = selection.parts.iter().flat_map(part_arms);
    Ok(arms.filter(|arm| ids.contains(throughput(&arm.id))).collect())
}

/// The id of an arm, or of the arm whose eval twin it is.
fn throughput(id: &ArmId) -> &str {
    id.as_str().strip_suffix("-eval").unwrap_or(id.as_str())
}

impl Found<'_> {
    fn json(&self) -> Value {
        let arms = self.since.arms.iter().map(|arm| {
            let reasons: Vec<Value> = match &arm.fate {
                Fate::Unchanged => Vec::new(),
                Fate::New => vec![json!(Reason::New)],
                Fate::Changed { since, changes } => changes
                    .iter()
                    .map(|change| json!(Reason::Changed { change: change.clone(), since: *since }))
                    .collect(),
                Fate::Blocked(blocked) => {
                    vec![json!({"kind": "blocked", "why": blocked.why, "unblock": blocked.unblock})]
                }
            };
            json!({"id": arm.id, "job": arm.job, "state": arm.fate.word(), "reasons": reasons})
        });
        let mut value = json!({
            "profile": self.profile.name,
            "since": self.base.commit.as_str(),
            "arms": arms.collect::<Vec<_>>(),
            "removed": self.since.removed,
            "summary": self.since.summary(),
        });
        if let Some(unselected) = self.unselected {
            value["changed_unselected"] = unselected.into();
        }
        value
    }

    /// `12 changed, 4 new, …`.
    fn counts(&self) -> String {
        let summary = self.since.summary();
        let mut text = format!(
            "{}: {} changed, {} new, {} removed, {} unchanged, {} blocked",
            count(self.since.arms.len(), if self.unselected.is_some() { "selected arm" } else { "arm" }),
            summary.changed,
            summary.new,
            summary.removed,
            summary.unchanged,
            summary.blocked
        );
        if summary.jobs > 0 {
            let hours = match self.profile.rehearses() {
                true => "no GPU-hours (a rehearsal)".to_owned(),
                false => format!("{:.1} GPU-hours", summary.gpu_hours),
            };
            text.push_str(&format!("; {} to run, {hours}", count(summary.jobs, "job")));
        }
        text
    }

    fn unselected_line(&self) -> Option<String> {
        let missed = self.unselected.filter(|missed| *missed > 0)?;
        Some(format!(
            "{} changed and no new entry selects them: ixbuild changelog check --base {} says which to append",
            count(missed, "arm"),
            self.base.commit.short()
        ))
    }

    fn print(&self, printer: Printer) {
        printer.note(&format!("profile {}, since {}", self.profile.name, self.base.commit.short()));
        let shown = || self.since.arms.iter().filter(|arm| arm.fate != Fate::Unchanged);
        let width = shown().map(|arm| split(arm.id.as_str()).1.chars().count()).max().unwrap_or(0);
        let mut grouped = Grouped::default();
        for arm in shown() {
            let tone = if matches!(arm.fate, Fate::Blocked(_)) { Tone::Bad } else { Tone::Warm };
            let state = paint(printer, tone, &format!("{:<8}", arm.fate.word()));
            let name = split(arm.id.as_str()).1;
            let words = why(&arm.fate, "");
            for (index, word) in words.iter().enumerate() {
                let line = match index {
                    0 => format!("{state}  {name:<width$}  {word}"),
                    _ => format!("{:8}  {:width$}  {word}", "", ""),
                };
                grouped.push(arm.id.as_str(), line.trim_end());
            }
        }
        for id in &self.since.removed {
            grouped.push(id.as_str(), &format!("{:<8}  {}", "removed", split(id.as_str()).1));
        }
        let lines = grouped.lines();
        if !lines.is_empty() {
            printer.data(&lines.join("\n"));
        }
        printer.data(&self.counts());
        if let Some(line) = self.unselected_line() {
            printer.note(&line);
        }
    }

    fn markdown(&self) -> String {
        let mut rows = Rows::default();
        for arm in self.since.arms.iter().filter(|arm| arm.fate != Fate::Unchanged) {
            rows.add(arm.fate.word(), arm.id.as_str(), why(&arm.fate, "`"));
        }
        for id in &self.since.removed {
            rows.add("removed", id.as_str(), Vec::new());
        }
        let title = format!("### ixbuild plan since `{}`", self.base.commit.short());
        let mut parts = vec![title, format!("{} (profile {})", self.counts(), self.profile.name)];
        parts.extend(rows.table());
        parts.extend(self.unselected_line());
        parts.join("\n\n")
    }
}

/// Why an arm would run or cannot, in a few words; names between `quote`s.
fn why(fate: &Fate, quote: &str) -> Vec<String> {
    match fate {
        Fate::Unchanged => vec![String::new()],
        Fate::New => vec!["new".to_owned()],
        Fate::Blocked(blocked) => vec![format!("{}; unblock: {}", blocked.why, blocked.unblock)],
        Fate::Changed { changes, .. } => listed(changes.iter().map(|change| change_text(change, quote)).collect()),
    }
}

/// The first few, and how many more.
fn listed(mut words: Vec<String>) -> Vec<String> {
    if words.len() > LISTED {
        let more = words.len() - LISTED + 1;
        words.truncate(LISTED - 1);
        words.push(format!("and {more} more"));
    }
    words
}

fn change_text(change: &Change, quote: &str) -> String {
    let side = |value: &Option<String>| match value {
        None => "(none)".to_owned(),
        Some(text) => format!("{quote}{}{quote}", cut(&text.replace(['\n', '`'], " "), VALUE)),
    };
    let what = [change.stage.as_str(), change.what.as_str()].join(" ");
    format!("{quote}{}{quote}: {} → {}", what.trim(), side(&change.old), side(&change.new))
}

/// A plan against the store, as a table for a pull request.
pub(super) fn markdown_of_plan(plan: &Plan, profile: &Profile) -> String {
    let mut rows = Rows::default();
    for arm in plan.arms.iter().filter(|arm| !matches!(arm.state, State::Recorded { .. })) {
        let words = match &arm.state {
            State::Recorded { .. } => Vec::new(),
            State::Run(reasons) => listed(reasons.iter().map(reason_text).collect()),
            State::Running { owner } => vec![owner.clone()],
            State::Blocked(blocked) => listed(
                blocked.iter().map(|blocked| format!("{}; unblock: `{}`", blocked.why, blocked.unblock)).collect(),
            ),
        };
        rows.add(arm.state.word(), arm.id.as_str(), words);
    }
    let summary = plan.summary(profile.jobs);
    let mut counts = format!(
        "{}: {} recorded, {} to run, {} running, {} blocked",
        count(plan.arms.len(), "arm"),
        summary.recorded,
        summary.run,
        summary.running,
        summary.blocked
    );
    if summary.run > 0 && !profile.rehearses() {
        counts.push_str(&format!("; {:.1} GPU-hours", summary.gpu_hours));
    }
    let mut parts = vec!["### ixbuild plan".to_owned(), format!("{counts} (profile {})", profile.name)];
    parts.extend(rows.table());
    parts.join("\n\n")
}

fn reason_text(reason: &Reason) -> String {
    match reason {
        Reason::Changed { change, .. } => change_text(change, "`"),
        other => super::plan::reason_text(other, VALUE),
    }
}

/// Rows of a Markdown table; arms of one state for the same reasons share one.
#[derive(Debug, Default)]
struct Rows<'a>(Vec<(&'static str, &'a str, Vec<&'a str>, Vec<String>)>);

impl<'a> Rows<'a> {
    fn add(&mut self, state: &'static str, id: &'a str, why: Vec<String>) {
        let (group, _) = split(id);
        match self.0.iter_mut().find(|(s, g, _, w)| (*s, *g) == (state, group) && *w == why) {
            Some((_, _, ids, _)) => ids.push(id),
            None => self.0.push((state, group, vec![id], why)),
        }
    }

    /// The table; nothing without rows.
    fn table(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut lines = vec!["| state | arms | why |".to_owned(), "|---|---|---|".to_owned()];
        for (state, group, ids, why) in &self.0 {
            let names = short(ids.iter().copied());
            let mut shown: Vec<String> = names.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
            if names.len() > NAMED {
                shown.push(format!("and {} more", names.len() - NAMED));
            }
            let arms = format!("{} of `{group}`: {}", names.len(), shown.join(", "));
            let why = why.join("<br>").replace('|', "\\|").replace('\n', " ");
            lines.push(format!("| {state} | {arms} | {why} |"));
        }
        Some(lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_with_the_same_reasons_share_a_row() {
        let mut rows = Rows::default();
        for id in ["k/agentic/a-c1", "k/agentic/a-c2", "k/agentic/a-c4", "k/agentic/a-c8"] {
            rows.add("changed", id, vec!["`a|b`: 1 → 2".to_owned()]);
        }
        rows.add("new", "l/8k1k/a-c1", vec!["new".to_owned()]);
        assert_eq!(
            rows.table().unwrap(),
            "| state | arms | why |\n|---|---|---|\n\
             | changed | 4 of `k/agentic`: `a-c1`, `a-c2`, `a-c4`, and 1 more | `a\\|b`: 1 → 2 |\n\
             | new | 1 of `l/8k1k`: `a-c1` | new |"
        );
        assert_eq!(Rows::default().table(), None);
    }
}
