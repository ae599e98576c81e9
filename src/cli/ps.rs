//! `ixbuild ps`: who runs what.

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Globals;
use super::claims::{name, word};
use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::table::{duration, table};
use crate::store::{HeldClaim, Presence};

const NOTES: &str = "\
An owner is alive, dead (the next run of the job takes over, or `ixbuild stop` clears up), or elsewhere: on another \
machine or in another pid namespace, where nobody can look from here. With --json: a list of objects `job`, `arms`, \
`phase`, `owner` (`host`, `pid`, `state`), `since`, `handles`, `scratch`; null where a claim cannot be read.

Example:
  ixbuild ps --json  for a script";

/// Show who runs what: every claimed job of the store, its owner, and how far it is
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct PsArgs {
    /// Print a JSON list
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn ps(args: &PsArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let store = globals.store()?;
    let claims = store.claims()?;
    if args.json {
        printer.data(&Value::Array(claims.iter().map(as_json).collect()).to_string());
        return Ok(exit::OK);
    }
    if claims.is_empty() {
        printer.note(&format!("nothing runs in {}", store.root().display()));
        return Ok(exit::OK);
    }
    let rows: Vec<Vec<String>> = claims.iter().map(row).collect();
    printer.data(&table(&["job", "arm", "phase", "for", "owner"], &[false, false, false, true, false], &rows));
    if claims.iter().any(|claim| claim.presence == Presence::Dead) {
        printer.note("what a dead owner left ends with the next run of its job, or with `ixbuild stop --all`");
    }
    Ok(exit::OK)
}

fn row(claim: &HeldClaim) -> Vec<String> {
    let record = claim.record.as_ref();
    let phase = record.and_then(|record| record.work.phase.clone()).unwrap_or_else(|| "claimed".to_owned());
    let since = record.and_then(|record| record.since.parse::<Timestamp>().ok());
    let seconds = since.map(|since| Timestamp::now().duration_since(since).as_secs());
    let owner = record.map_or_else(|| "unknown".to_owned(), |record| record.owner.to_string());
    let others = record.map_or(0, |record| record.work.arms.len().saturating_sub(1));
    vec![
        claim.job.short(),
        if others > 0 { format!("{} (+{others})", name(claim)) } else { name(claim) },
        phase,
        seconds.map_or_else(String::new, |seconds| duration(seconds.unsigned_abs())),
        format!("{owner}, {}", word(claim.presence)),
    ]
}

fn as_json(claim: &HeldClaim) -> Value {
    let state = word(claim.presence);
    match &claim.record {
        Some(record) => json!({
            "job": claim.job,
            "arms": record.work.arms,
            "phase": record.work.phase,
            "owner": {"host": record.owner.host, "pid": record.owner.pid, "state": state},
            "since": record.since,
            "handles": record.work.handles,
            "scratch": record.work.scratch,
        }),
        None => json!({
            "job": claim.job, "arms": null, "phase": null, "since": null, "handles": null, "scratch": null,
            "owner": {"host": null, "pid": null, "state": state},
        }),
    }
}
