//! `ixbuild changelog audit`: what content addressing would have saved over a history.

use clap::Args;
use serde_json::{Value, json};

use super::cost::{CostArgs, basis, gpu_hours, thousands};
use crate::changelog::audit::{Audit, Audited, AuditedCommit, Totals, audit};
use crate::changelog::measure::{Estimate, hours};
use crate::cli::Globals;
use crate::cli::error::Error;
use crate::cli::exit;
use crate::cli::printer::Printer;
use crate::cli::table::{count, table};
use crate::config::changelog::FILE;
use crate::config::inputs::{Blobs, Inputs};
use crate::git::Repository;

/// How many characters of an entry's keys the table shows.
const KEYS: usize = 60;

/// Walk a history of the changelog: what its entries had measured, and how much of that nothing had changed
///
/// For each commit that changes the changelog (along first parents), and in total: the arms that its entries select, those
/// whose inputs nothing had measured before, and the GPU-hours of the others. Every arm where the range starts is taken as
/// measured. Commits whose entries cannot be read are listed and passed over.
///
/// `--json` prints one object: `from`, `to`, `start_arms`, `commits` (each `commit`, `subject`, and `entries`, each with
/// `line`, `config-keys`, `selected`, `changed`, `by_row`, `gpu_hours`, `idle_gpu_hours`; or `skipped` with the reason),
/// `total`, `estimate`.
///
/// Exit codes: 0 printed, 2 a revision that is not there or not an ancestor, 6 no git, no repository, a shallow clone.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// The range: the commits after A, up to B [default B: HEAD]
    #[arg(long, value_name = "A..B")]
    range: String,
    /// The changelog
    #[arg(long, value_name = "FILE", alias = "changelog-file", default_value = FILE)]
    changelog: String,
    #[command(flatten)]
    cost: CostArgs,
    /// Threads that read masters [default: the machine's]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &AuditArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let (mut repository, _) = super::repository(globals)?;
    let (from, to) = range(&args.range)?;
    let (from, to) = (repository.resolve(from)?, repository.resolve(to)?);
    repository.require_ancestor(&from, &to)?;
    let profile = globals.profile_name();
    let estimate = estimate(args, &mut repository, &to, profile)?;
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let asked = Audit { changelog: &args.changelog, profile, estimate, threads };
    let audited = audit(&mut repository, &from, &to, asked)?;
    if args.json {
        let value = json!({
            "from": from.commit.as_str(),
            "to": to.commit.as_str(),
            "start_arms": audited.start.as_ref().ok(),
            "commits": audited.commits.iter().map(commit_json).collect::<Vec<_>>(),
            "total": totals_json(&audited.totals()),
            "estimate": {"start_up_s": estimate.start_up_s, "assumed_load_s": estimate.assumed_load_s},
        });
        printer.data(&value.to_string());
    } else {
        print(&audited, estimate, printer);
    }
    Ok(exit::OK)
}

/// The profile is the one where the range ends: it says what a start-up takes, and nothing else here.
fn estimate(
    args: &AuditArgs,
    repository: &mut Repository,
    to: &crate::git::Revision,
    profile: &str,
) -> Result<Estimate, Error> {
    let inputs = Inputs::from_revision(repository, to, &mut Blobs::default())?;
    Ok(args.cost.estimate(&inputs, profile)?)
}

fn range(text: &str) -> Result<(&str, &str), Error> {
    match text.split_once("..") {
        Some((from, to)) if !from.is_empty() && !to.starts_with('.') => {
            Ok((from, if to.is_empty() { "HEAD" } else { to }))
        }
        _ => Err(Error::usage(format!("`{text}` is no range")).hint("write --range A..B: after A, up to B")),
    }
}

fn totals_json(totals: &Totals) -> Value {
    json!({
        "selected": totals.selected,
        "changed": totals.changed,
        "by_row": totals.by_row,
        "gpu_hours": hours(totals.gpu_s),
        "idle_gpu_hours": hours(totals.idle_gpu_s),
    })
}

fn commit_json(commit: &AuditedCommit) -> Value {
    let mut value = json!({"commit": commit.revision.commit.as_str(), "subject": commit.revision.subject});
    match &commit.entries {
        Ok(entries) => {
            let entries = entries.iter().map(|entry| {
                let mut value = totals_json(&entry.totals);
                value["line"] = entry.place.source.line_column(entry.place.span.start).0.into();
                value["config-keys"] = json!(entry.config_keys);
                value
            });
            value["entries"] = entries.collect();
        }
        Err(faults) => value["skipped"] = faults.to_string().into(),
    }
    value
}

fn print(audited: &Audited, estimate: Estimate, printer: Printer) {
    let mut rows = Vec::new();
    let mut skipped = Vec::new();
    for commit in &audited.commits {
        let name = commit.revision.commit.short().to_owned();
        match &commit.entries {
            Err(faults) => {
                let first = faults.0.first().map(ToString::to_string).unwrap_or_default();
                skipped.push(format!("{name} {first}"));
            }
            Ok(entries) => rows.extend(entries.iter().map(|entry| {
                let totals = entry.totals;
                let keys = entry.config_keys.join(", ");
                let short: String = keys.chars().take(KEYS).collect();
                let keys = if short.len() < keys.len() { format!("{short}…") } else { short };
                let idle = totals.selected - totals.changed;
                let number = |gpu_s| format!("{:.1}", hours(gpu_s));
                let counts = [totals.selected, totals.changed, idle].map(|n| n.to_string());
                let mut row = vec![name.clone(), keys];
                row.extend(counts);
                row.extend([number(totals.gpu_s), number(totals.idle_gpu_s)]);
                row
            })),
        }
    }
    if !rows.is_empty() {
        let header = ["commit", "entry", "arms", "changed", "unchanged", "GPU-hours", "for nothing"];
        printer.data(&table(&header, &[false, false, true, true, true, true, true], &rows));
    }
    for line in &skipped {
        printer.note(&format!("passed over: {line}"));
    }
    match &audited.start {
        Ok(names) => printer.note(&format!("taken as measured at the start: {} names", thousands(*names as u64))),
        Err(faults) => printer.note(&format!("nothing is taken as measured at the start: {faults}")),
    }
    printer.data(&summary(audited, rows.len(), skipped.len()));
    printer.note(&basis(estimate));
}

fn summary(audited: &Audited, entries: usize, skipped: usize) -> String {
    let totals = audited.totals();
    let idle = totals.selected - totals.changed;
    let share = if totals.selected == 0 { 0.0 } else { idle as f64 * 100.0 / totals.selected as f64 };
    let mut text = format!(
        "{} with {entries} entries selected {} arms in {}\n{} of them ({share:.0}%) were unchanged: {} for nothing",
        count(audited.commits.len() - skipped, "commit"),
        thousands(totals.selected as u64),
        gpu_hours(totals.gpu_s),
        thousands(idle as u64),
        gpu_hours(totals.idle_gpu_s)
    );
    if totals.by_row > 0 {
        text.push_str(&format!(
            "\n{} arms have no recipe in their tree: compared by row, so what scripts and packages change is not seen",
            thousands(totals.by_row as u64)
        ));
    }
    text
}
