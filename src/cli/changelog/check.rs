//! `ixbuild changelog check`: the rules of the changelog, and whether its new entries select what changed.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};

use super::cost::{CostArgs, basis, gpu_hours};
use crate::changelog::added::added;
use crate::changelog::append_only::Side;
use crate::changelog::check::{EntryReport, Measurable, Report, check};
use crate::changelog::draft::{Draft, link_of};
use crate::changelog::json::EntryJson;
use crate::changelog::measure::{Estimate, Name, hours, recipes};
use crate::changelog::revision::{changelog, required_changelog};
use crate::changelog::select::{Options, Selection, select};
use crate::changelog::suggest::{Context, suggest};
use crate::cli::Globals;
use crate::cli::error::Error;
use crate::cli::exit;
use crate::cli::printer::Printer;
use crate::cli::project;
use crate::cli::table::count;
use crate::config::changelog::{self, FILE};
use crate::config::diagnostic::Source;
use crate::config::inputs::{Blobs, Inputs, read_source};
use crate::git::Repository;

/// Review the changelog: what was added keeps the rules, and selects what changed
///
/// Lines are only ever added, at the end, without carriage returns, tabs or NULs; entries parse, and name keys that the
/// masters have. Then job hashes at base and head are compared: arms that changed and that no new entry selects will
/// never be swept (the entry to append is printed); entries that select arms none of which changed would measure them
/// again for nothing. Arms without a recipe are compared by their rows.
///
/// `--json` prints one object: `base`, `head`, `arms`, `changed`, `by_row`, `entries` (each `line`, `entry`, `selected`,
/// `changed`, `gpu_hours`, `idle_gpu_hours`), `uncovered` (each `id`, `name`, `new`), `uncovered_gpu_hours`, `append` (the
/// missing entries as text), `estimate`.
///
/// Exit codes: 0 nothing to object to, 2 a revision that is not there or not an ancestor, 3 a rule is broken or an input is
/// faulty, 4 arms changed that no entry selects (with --strict, also entries that select only unchanged arms), 6 no git, no
/// repository, a shallow clone.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The revision to compare with
    #[arg(long, value_name = "REF", alias = "base-ref")]
    base: String,
    /// The revision to check [default: the files on disk]
    #[arg(long, value_name = "REF", alias = "head-ref")]
    head: Option<String>,
    /// The changelog
    #[arg(long, value_name = "FILE", alias = "changelog-file", default_value = FILE)]
    changelog: String,
    /// Also object to entries that select only unchanged arms
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    cost: CostArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// What a check looks at.
struct Checked {
    /// The revision or folder, for people.
    name: String,
    inputs: Inputs,
    changelog: Option<Arc<Source>>,
}

pub(super) fn run(args: &CheckArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let (mut repository, root) = super::repository(globals)?;
    let mut blobs = Blobs::default();
    let revision = repository.resolve(&args.base)?;
    let head = head(args, &mut repository, &root, &mut blobs)?;
    let tip = repository.resolve(args.head.as_deref().unwrap_or("HEAD"))?;
    repository.require_ancestor(&revision, &tip)?;
    let base = Checked {
        name: revision.commit.short().to_owned(),
        changelog: changelog(&mut repository, &revision, &args.changelog, &mut blobs)?,
        inputs: Inputs::from_revision(&mut repository, &revision, &mut blobs)?,
    };
    let Some(text) = &head.changelog else {
        return Err(Error::usage(format!("there is no {}", args.changelog)).hint("name it with --changelog FILE"));
    };
    let added = added(base.changelog.as_ref(), text)?;
    let mut faults = added.review();
    let (before, after) = (Side::of(&base.inputs)?, Side::of(&head.inputs)?);
    let selection = match select(added.entries, &after, Some(&before), Options::default()) {
        Ok(selection) => Some(selection),
        Err(crate::changelog::select::SelectError::Faults(found)) => {
            faults.0.extend(found.0);
            None
        }
        Err(other) => return Err(other.into()),
    };
    let (Some(selection), true) = (selection, faults.0.is_empty()) else { return Err(faults.into()) };
    let profile = globals.profile_name();
    let estimate = args.cost.estimate(&head.inputs, profile)?;
    let projects = (recipes(&base.inputs, profile)?, recipes(&head.inputs, profile)?);
    let measurable = (
        Measurable { project: projects.0.as_ref(), config: &before.config },
        Measurable { project: projects.1.as_ref(), config: &after.config },
    );
    let report = check(&measurable.0, &measurable.1, &selection, estimate)?;
    let entries = changelog::parse(text).unwrap_or_default();
    let pr_link = link_of(&entries, "XXX").unwrap_or_else(|| "https://github.com/ORG/REPO/pull/XXX".to_owned());
    let context =
        Context { base: (&measurable.0, &before), head: (&measurable.1, &after), selection: &selection, pr_link };
    let drafts = suggest(&context, &report.uncovered)?;
    let found =
        Found { base: &base.name, head: &head.name, report: &report, selection: &selection, drafts: &drafts, estimate };
    match args.json {
        true => printer.data(&found.json().to_string()),
        false => found.print(printer),
    }
    let idle = report.entries.iter().any(EntryReport::is_idle);
    let refused = !report.uncovered.is_empty() || (args.strict && idle);
    Ok(if refused { exit::REFUSED } else { exit::OK })
}

/// The side to check: a revision, or the files on disk.
fn head(args: &CheckArgs, repository: &mut Repository, root: &Path, blobs: &mut Blobs) -> Result<Checked, Error> {
    if let Some(name) = &args.head {
        let revision = repository.resolve(name)?;
        return Ok(Checked {
            name: revision.commit.short().to_owned(),
            changelog: Some(required_changelog(repository, &revision, &args.changelog, blobs)?),
            inputs: Inputs::from_revision(repository, &revision, blobs)?,
        });
    }
    let root = project::find(Some(root))?;
    let prefix = project::shown(&root);
    let path = root.join(&args.changelog);
    let name = if prefix.is_empty() { args.changelog.clone() } else { format!("{prefix}/{}", args.changelog) };
    Ok(Checked {
        name: "the files on disk".to_owned(),
        changelog: if path.exists() { Some(read_source(&path, &name)?) } else { None },
        inputs: Inputs::read(&root, &prefix)?,
    })
}

/// Everything to print.
struct Found<'a> {
    base: &'a str,
    head: &'a str,
    report: &'a Report,
    selection: &'a Selection,
    drafts: &'a [Draft],
    estimate: Estimate,
}

impl Found<'_> {
    fn uncovered_gpu_s(&self) -> u64 {
        self.report.uncovered.iter().map(|missed| missed.arm.gpu_s).sum()
    }

    /// The missing entries, ready to be pasted at the end of the file.
    fn append(&self) -> String {
        self.drafts.iter().map(|draft| format!("\n{draft}\n")).collect()
    }

    fn json(&self) -> Value {
        let entries = self.selection.entries.iter().zip(&self.report.entries).map(|(entry, found)| {
            json!({
                "line": entry.place.source.line_column(entry.place.span.start).0,
                "entry": EntryJson(entry),
                "selected": found.selected,
                "changed": found.changed,
                "gpu_hours": hours(found.gpu_s),
                "idle_gpu_hours": hours(found.idle_gpu_s),
            })
        });
        let uncovered = self.report.uncovered.iter().map(|missed| {
            let name = match missed.arm.name {
                Name::Job(job) => job.to_string(),
                Name::Row { row, .. } => format!("row:{}", row.0.hex()),
            };
            json!({"id": missed.arm.id, "name": name, "new": missed.new, "gpu_hours": hours(missed.arm.gpu_s)})
        });
        json!({
            "base": self.base,
            "head": self.head,
            "arms": self.report.arms,
            "changed": self.report.changed,
            "by_row": self.report.by_row,
            "entries": entries.collect::<Vec<_>>(),
            "uncovered": uncovered.collect::<Vec<_>>(),
            "uncovered_gpu_hours": hours(self.uncovered_gpu_s()),
            "append": self.append(),
            "estimate": {"start_up_s": self.estimate.start_up_s, "assumed_load_s": self.estimate.assumed_load_s},
        })
    }

    fn print(&self, printer: Printer) {
        let report = self.report;
        printer.note(&format!("compared {} with {}", self.head, self.base));
        printer.data(&format!("{}, {} changed", count(report.arms, "arm"), report.changed));
        if report.by_row > 0 {
            printer.data(&format!(
                "{} without a recipe (or a job) here: compared by row, so what scripts and packages change is not seen",
                count(report.by_row, "arm")
            ));
        }
        for (entry, found) in self.selection.entries.iter().zip(&report.entries) {
            let (line, _) = entry.place.source.line_column(entry.place.span.start);
            let keys: Vec<&str> = entry.config_keys.iter().map(|key| key.text.as_str()).collect();
            printer.data(&format!("{}:{line} {}: {}", entry.place.source.name, keys.join(", "), verdict(found)));
        }
        if report.uncovered.is_empty() {
            if report.entries.is_empty() {
                printer.data("no new entry, and no arm needs one");
            }
        } else {
            self.print_uncovered(printer);
        }
        if !(report.uncovered.is_empty() && report.entries.is_empty()) {
            printer.note(&basis(self.estimate));
        }
    }

    fn print_uncovered(&self, printer: Printer) {
        let uncovered = &self.report.uncovered;
        printer.data(&format!(
            "{} changed and no new entry selects {}: never to be swept ({})",
            count(uncovered.len(), "arm"),
            if uncovered.len() == 1 { "it" } else { "them" },
            gpu_hours(self.uncovered_gpu_s())
        ));
        let mut keys: Vec<(&str, usize, usize, &str)> = Vec::new();
        for missed in uncovered {
            let key = &*missed.arm.key().0;
            match keys.iter_mut().find(|(known, ..)| *known == key) {
                Some((_, all, new, _)) => {
                    *all += 1;
                    *new += usize::from(missed.new);
                }
                None => keys.push((key, 1, usize::from(missed.new), missed.arm.id.as_str())),
            }
        }
        for (key, all, new, first) in keys {
            let new = if new > 0 { format!(", {new} of them new") } else { String::new() };
            printer.data(&format!("  {key}: {}{new}, such as {first}", count(all, "arm")));
        }
        let word = if self.drafts.len() == 1 { "this entry" } else { "these entries" };
        printer.data(&format!("append {word}:\n{}", self.append()));
    }
}

/// What an entry's selection is worth.
fn verdict(found: &EntryReport) -> String {
    let all = found.selected.len();
    let arms = count(all, "arm");
    match all - found.changed {
        _ if all == 0 => "selects no arm".to_owned(),
        0 => format!("{arms}, all changed ({})", gpu_hours(found.gpu_s)),
        idle if idle == all => {
            format!("{arms}, none changed: would re-run {arms} for nothing ({})", gpu_hours(found.gpu_s))
        }
        idle => format!(
            "{arms}, {} changed ({}); the other {idle} would be re-run for nothing ({})",
            found.changed,
            gpu_hours(found.gpu_s - found.idle_gpu_s),
            gpu_hours(found.idle_gpu_s)
        ),
    }
}
