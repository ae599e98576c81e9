//! `ixbuild why`: why an arm would run, or why its record was made.

use clap::Args;
use serde_json::json;

use super::Globals;
use super::diff::grouped;
use super::error::Error;
use super::exit;
use super::plan::{arm_json, reason_text};
use super::printer::Printer;
use super::project::Project;
use super::selection::{is_hash, one_arm};
use crate::ids::JobHash;
use crate::plan::{Reason, State};
use crate::store::{Store, StoreView};

const NOTES: &str = "\
With --json: of an arm without a record the object that `plan --json` has for it; else `id`, `job`, `state` and \
`attempts` (each `manifest`, `started`, `outcome`, `arms`, `reasons`).

Examples:
  ixbuild why tp8-resident-mtp-c1 --profile rehearsal
  ixbuild why job:15cd                                 any unique start of a hash";

/// Say why an arm would run, with every changed input; of recorded arms and hashes, why they were run
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct WhyArgs {
    /// An arm or a job hash
    #[arg(value_name = "ARM|HASH")]
    what: String,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn why(args: &WhyArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let store = globals.store()?;
    if is_hash(&args.what) {
        let hash = store.resolve(&args.what)?;
        return recorded(&hash, None, &store, args.json, printer);
    }
    let project = Project::open(globals)?;
    let arm = one_arm(&project, &args.what)?;
    let plan = project.plan(&[&arm], &store, false)?;
    let Some(planned) = plan.arms.first() else { return Ok(exit::OK) };
    if let (State::Recorded { .. }, Some(hash)) = (&planned.state, planned.job) {
        return recorded(&hash, Some(arm.id.as_str()), &store, args.json, printer);
    }
    if args.json {
        printer.data(&arm_json(planned).to_string());
        return Ok(exit::OK);
    }
    printer.note(&format!("profile {}", project.profile.name));
    printer.data(&format!("{}: {}", planned.state.word(), arm.id));
    match &planned.state {
        State::Run(reasons) => print_reasons(reasons, printer),
        State::Running { owner } => printer.data(&format!("  {owner}")),
        State::Blocked(blocked) => {
            for blocked in blocked {
                printer.data(&format!("  {}\n  unblock: {}", blocked.why, blocked.unblock));
            }
        }
        State::Recorded { .. } => {}
    }
    Ok(exit::OK)
}

/// Why each attempt of a job was made.
fn recorded(hash: &JobHash, arm: Option<&str>, store: &Store, as_json: bool, printer: Printer) -> Result<u8, Error> {
    let state = store.job(hash)?;
    let mut attempts = Vec::new();
    for attempt in &state.attempts {
        let full = store.attempt(attempt)?;
        attempts.push((attempt, full, store.reasons(attempt)?));
    }
    if as_json {
        let list: Vec<_> = attempts
            .iter()
            .map(|(at, full, reasons)| {
                json!({"manifest": at.manifest, "started": at.started.to_string(), "outcome": at.standing().word(), "arms": full.arms, "reasons": reasons})
            })
            .collect();
        printer.data(&json!({"id": arm, "job": hash, "state": if state.is_hit(1) { "recorded" } else { "attempted" }, "attempts": list}).to_string());
        return Ok(exit::OK);
    }
    let name = arm.map_or_else(|| hash.short(), |arm| format!("{arm} ({})", hash.short()));
    printer.data(&format!("{}: {name}", if state.is_hit(1) { "recorded" } else { "no valid record" }));
    for (at, full, reasons) in attempts {
        let arms: Vec<&str> = full.arms.iter().map(|arm| arm.as_str()).collect();
        let label = if arm.is_some() { String::new() } else { format!(" for {}", arms.join(", ")) };
        let started = at.started.strftime("%Y-%m-%d %H:%M:%S UTC");
        printer.data(&format!("{started}{label}: {}; it ran because", at.standing().word()));
        let reasons: Vec<Reason> = serde_json::from_value(reasons).unwrap_or_default();
        print_reasons(&reasons, printer);
    }
    Ok(exit::OK)
}

fn print_reasons(reasons: &[Reason], printer: Printer) {
    let mut changes = Vec::new();
    let mut since = None;
    for reason in reasons {
        match reason {
            Reason::Changed { change, since: job } => {
                changes.push(change.clone());
                since = Some(*job);
            }
            Reason::New => printer.data("  new: nothing was ever recorded for it"),
            other => printer.data(&format!("  {}", reason_text(other, usize::MAX))),
        }
    }
    if let Some(since) = since {
        printer.data(&format!("  changed since {}:", since.short()));
        for line in grouped(&changes).lines() {
            printer.data(&format!("    {line}"));
        }
    }
}
