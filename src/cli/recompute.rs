//! `ixbuild recompute`: derives recorded results again under the current formulas.

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Globals;
use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::table::count;
use crate::ids::JobHash;
use crate::recompute::{Change, Finding, RecomputeError, apply, candidates, examine};
use crate::records::{self, RecordError};
use crate::result::FORMULAS;
use crate::store::{AttemptRef, Store, StoreView};

const NOTES: &str = "\
A new version of ixbuild may compute figures or judge gates otherwise. Nothing is run for that: what the raw layers give \
now is stored beside each attempt that it changes, and `show`, `run` and `plan` use it from then on. The attempt itself \
stays as it was recorded. A record that fails a gate now counts no more; an invalid attempt that passes them all becomes a \
record. Exits with 1 if there is an attempt that cannot be derived. With --json: `formulas`, `changed` (each `job`, \
`attempt`, `formulas`, `outcome`, `failed_gates`, `figures`), `underivable` and `summary`.

Examples:
  ixbuild recompute --dry-run  what would change
  ixbuild recompute job:15cd   one job";

/// Derive recorded results and gates again from their raw layers, and say what changed
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct RecomputeArgs {
    /// Jobs, as `job:…`; all jobs where none is named
    #[arg(value_name = "HASH")]
    jobs: Vec<String>,
    /// Print what would change and store nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// What there is to say of a store.
#[derive(Default)]
struct Tally {
    same: usize,
    newer: usize,
    changed: Vec<Value>,
    underivable: Vec<Value>,
}

pub(super) fn recompute(args: &RecomputeArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let store = globals.store()?;
    let jobs = match args.jobs.as_slice() {
        [] => store.tried()?,
        named => named.iter().map(|name| store.resolve(name)).collect::<Result<_, _>>()?,
    };
    let mut tally = Tally::default();
    for job in &jobs {
        one_job(job, &store, args, &mut tally, printer)?;
    }
    let Tally { same, newer, changed, underivable } = &tally;
    let summary = json!({"same": same, "changed": changed.len(), "newer": newer, "underivable": underivable.len()});
    if args.json {
        let value = json!({"formulas": FORMULAS, "changed": changed, "underivable": underivable, "summary": summary});
        printer.data(&value.to_string());
    } else {
        let would = if args.dry_run { "would change" } else { "changed" };
        let mut line = format!("formulas {FORMULAS}: {} {would}, {same} as on file", count(changed.len(), "attempt"));
        if *newer > 0 {
            line.push_str(&format!(", {newer} derived by a newer ixbuild"));
        }
        if !underivable.is_empty() {
            line.push_str(&format!(", {} cannot be derived", underivable.len()));
        }
        printer.data(&line);
    }
    Ok(if underivable.is_empty() { exit::OK } else { exit::ARM_FAILED })
}

fn one_job(
    job: &JobHash,
    store: &Store,
    args: &RecomputeArgs,
    tally: &mut Tally,
    printer: Printer,
) -> Result<(), Error> {
    let mut attempts = candidates(store.job(job)?.attempts).peekable();
    if attempts.peek().is_none() {
        return Ok(());
    }
    let spec = match records::spec(store, job) {
        Ok(Some(spec)) => Ok(spec),
        Ok(None) => Err(format!("the store has no spec of {job}")),
        Err(RecordError::Store(error)) => return Err(error.into()),
        Err(error) => Err(error.to_string()),
    };
    for at in attempts {
        let found = match &spec {
            Ok(spec) => examine(store, &at, spec).map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        match found {
            Ok(Finding::Same) => tally.same += 1,
            Ok(Finding::Newer { .. }) => tally.newer += 1,
            Ok(Finding::Changed(change)) => {
                if !args.dry_run {
                    apply(store, &change, Timestamp::now())?;
                }
                if !args.json {
                    printer.data(&text(&change));
                }
                tally.changed.push(as_json(&change));
            }
            Err(why) => {
                if !args.json {
                    printer.data(&format!("{}: cannot be derived: {why}", name(&at)));
                }
                tally.underivable.push(json!({"job": job, "attempt": at.manifest, "why": why}));
            }
        }
    }
    Ok(())
}

impl From<RecomputeError> for Error {
    fn from(error: RecomputeError) -> Self {
        match error {
            RecomputeError::Record(error) => error.into(),
            RecomputeError::Raw(_) | RecomputeError::Logs { .. } => Self::new(exit::STORE, error.to_string()),
        }
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => error.into(),
            RecordError::Unreadable { .. } => Self::new(exit::STORE, error.to_string())
                .hint("`ixbuild recompute` derives results again; or use the version of ixbuild that wrote it"),
        }
    }
}

fn name(at: &AttemptRef) -> String {
    format!("{} attempt {}", at.job.short(), &at.manifest.hex()[..12])
}

fn word(valid: bool) -> &'static str {
    if valid { "valid" } else { "invalid" }
}

/// What changed of an attempt, a line each.
fn text(change: &Change) -> String {
    let formulas = match change.formulas {
        Some(FORMULAS) => String::new(),
        Some(old) => format!(" formulas {old} → {FORMULAS}"),
        None => format!(" formulas unknown → {FORMULAS}"),
    };
    let outcome = match (change.was_valid, change.is_valid) {
        (was, is) if was == is => String::new(),
        (was, is) => format!(" {} → {}", word(was), word(is)),
    };
    let mut lines = vec![format!("{}:{formulas}{outcome}", name(&change.at)).trim_end_matches(':').to_owned()];
    let side = |value: &Value| match value {
        Value::Null => "(none)".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    lines.extend(
        change.figures.iter().map(|figure| format!("  {}: {} → {}", figure.name, side(&figure.old), side(&figure.new))),
    );
    if change.figures.is_empty() {
        lines.push("  no figure changed".to_owned());
    }
    lines.join("\n")
}

fn as_json(change: &Change) -> Value {
    json!({
        "job": change.at.job,
        "attempt": change.at.manifest,
        "formulas": {"old": change.formulas, "new": FORMULAS},
        "outcome": {"old": word(change.was_valid), "new": word(change.is_valid)},
        "failed_gates": change.failed,
        "figures": change.figures,
    })
}
