//! `ixbuild diff`: every difference of two specs.

use clap::Args;
use serde_json::{Value, json};

use super::Globals;
use super::error::Error;
use super::exit;
use super::plan::change_text;
use super::printer::Printer;
use super::project::Project;
use super::selection::{is_hash, one_arm};
use crate::compose::Composed;
use crate::ids::JobHash;
use crate::spec::diff::{Change, changes};
use crate::store::StoreView;

const NOTES: &str = "\
An arm is taken as the configs say it now, a job hash as it was recorded.

Examples:
  ixbuild diff tp8-resident-c8 tp8-vllm-simple-c8
  ixbuild diff job:15cd tp8-resident-mtp-c1 --profile rehearsal";

/// Print every difference of two specs, grouped by stage
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct DiffArgs {
    /// The old side: an arm or a job hash
    #[arg(value_name = "ARM|HASH")]
    old: String,
    /// The new side: an arm or a job hash
    #[arg(value_name = "ARM|HASH")]
    new: String,
    /// Print one JSON object: `old`, `new` (job hashes), `changes` (each `stage`, `what`, `old`, `new`)
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn diff(args: &DiffArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let (old_hash, old) = side(&args.old, globals)?;
    let (new_hash, new) = side(&args.new, globals)?;
    let found = changes(&old, &new);
    if args.json {
        printer.data(&json!({"old": old_hash, "new": new_hash, "changes": found}).to_string());
        return Ok(exit::OK);
    }
    let shown = |word: &str, hash: &JobHash| match is_hash(word) {
        true => hash.short(),
        false => format!("{word} ({})", hash.short()),
    };
    printer.note(&format!("{} → {}", shown(&args.old, &old_hash), shown(&args.new, &new_hash)));
    printer.data(&if found.is_empty() { "no difference: one job".to_owned() } else { grouped(&found) });
    Ok(exit::OK)
}

/// Changes under a heading for each stage.
pub(super) fn grouped(changes: &[Change]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut stage = "";
    for change in changes {
        if change.what.is_empty() {
            lines.push(change_text(change, usize::MAX));
            continue;
        }
        if change.stage != stage {
            stage = &change.stage;
            lines.push(stage.to_owned());
        }
        let within = Change { stage: String::new(), ..change.clone() };
        lines.push(format!("  {}", change_text(&within, usize::MAX)));
    }
    lines.join("\n")
}

/// A spec by arm or hash.
pub(super) fn side(word: &str, globals: &Globals) -> Result<(JobHash, Value), Error> {
    let (hash, bytes) = if is_hash(word) {
        let store = globals.store()?;
        let hash = store.resolve(word)?;
        let bytes = store.spec(&hash)?.ok_or_else(|| Error::usage(format!("the store has no spec of {hash}")))?;
        (hash, bytes)
    } else {
        let project = Project::open(globals)?;
        let arm = one_arm(&project, word)?;
        match project.composer().compose(&arm)? {
            Composed::Job(job) => (job.spec.hash(), job.spec.canonical()),
            Composed::Blocked(blocked) => {
                return Err(Error::refused(format!("{} has no spec: {}", arm.id, blocked.why)).hint(blocked.unblock));
            }
        }
    };
    let value = serde_json::from_slice(&bytes).map_err(|error| Error::environment(format!("{hash}: {error}")))?;
    Ok((hash, value))
}
