//! `ixbuild plan`: what would run, and why.

use clap::Args;
use serde_json::{Value, json};

use super::Globals;
use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::project::Project;
use super::selection::Selection;
use super::table::{Tone, count, duration, paint};
use crate::compose::Blocked;
use crate::matrix::filter::{Filter, Sweep};
use crate::plan::{Plan, Planned, Reason, State, Summary};

/// How many reasons the table shows for an arm.
const SHOWN: usize = 4;

/// Show what is recorded, what would run and why, what is running, and what is blocked
///
/// Reasons compare an arm with the nearest spec that was recorded for it. `--json` prints one object: `arms` (each with
/// `id`, `job`, `state` of recorded, run, running, blocked, and `reasons`) and `summary` (counts by state, `jobs`,
/// `gpu_hours`, `wall_seconds`).
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    selection: Selection,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn plan(args: &PlanArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let project = Project::open(globals)?;
    let store = globals.store()?;
    let arms = project.arms(&Filter::Sweep(Sweep::default()))?;
    let plan = project.plan(&args.selection.choose(&arms)?, &store, false)?;
    let summary = plan.summary(project.profile.jobs);
    if args.json {
        let value = json!({
            "profile": project.profile.name,
            "store": store.root().display().to_string(),
            "arms": plan.arms.iter().map(arm_json).collect::<Vec<_>>(),
            "summary": summary,
        });
        printer.data(&value.to_string());
        return Ok(exit::OK);
    }
    printer.note(&format!("profile {}, store {}", project.profile.name, store.root().display()));
    printer.data(&render(&plan, printer));
    printer.data(&summary_line(&summary, &project));
    Ok(exit::OK)
}

/// One arm of the documented JSON.
pub(super) fn arm_json(arm: &Planned) -> Value {
    let reasons: Vec<Value> = match &arm.state {
        State::Recorded { .. } => Vec::new(),
        State::Run(reasons) => reasons.iter().map(|reason| json!(reason)).collect(),
        State::Running { owner } => vec![json!({"kind": "running", "owner": owner})],
        State::Blocked(blocked) => blocked
            .iter()
            .map(|blocked| json!({"kind": "blocked", "why": blocked.why, "unblock": blocked.unblock}))
            .collect(),
    };
    let mut value = json!({
        "id": arm.id,
        "job": arm.job,
        "state": arm.state.word(),
        "reasons": reasons,
    });
    if let State::Recorded { n } = arm.state {
        value["records"] = n.into();
    }
    value
}

/// The plan as lines: state, arm, reasons; then what blocks, once each.
pub(super) fn render(plan: &Plan, printer: Printer) -> String {
    let width = plan.arms.iter().map(|arm| arm.id.as_str().chars().count()).max().unwrap_or(0);
    let mut notes: Vec<(String, String, usize)> = Vec::new();
    let mut lines = Vec::new();
    for arm in &plan.arms {
        let (tone, mut words) = match &arm.state {
            State::Recorded { n: 1 } => (Tone::Good, vec![String::new()]),
            State::Recorded { n } => (Tone::Good, vec![count(*n, "record")]),
            State::Run(reasons) => (Tone::Warm, reasons.iter().map(reason_text).collect()),
            State::Running { owner } => (Tone::Warm, vec![owner.clone()]),
            State::Blocked(blocked) => {
                let marks: Vec<String> =
                    blocked.iter().map(|blocked| format!("[{}]", note(&mut notes, blocked))).collect();
                (Tone::Bad, vec![marks.join(" ")])
            }
        };
        if words.len() > SHOWN {
            let more = words.len() - SHOWN + 1;
            words.truncate(SHOWN - 1);
            words.push(format!("and {more} more: ixbuild why {}", arm.id));
        }
        let state = paint(printer, tone, &format!("{:<8}", arm.state.word()));
        for (index, word) in words.iter().enumerate() {
            let line = match index {
                0 => format!("{state}  {:<width$}  {word}", arm.id.as_str()),
                _ => format!("{:8}  {:width$}  {word}", "", ""),
            };
            lines.push(line.trim_end().to_owned());
        }
    }
    for (index, (why, unblock, arms)) in notes.iter().enumerate() {
        lines.push(format!("[{}] {why} ({}); unblock: {unblock}", index + 1, count(*arms, "arm")));
    }
    lines.join("\n")
}

/// The number of a blocking reason among the notes under the table.
fn note(notes: &mut Vec<(String, String, usize)>, blocked: &Blocked) -> usize {
    let known = notes.iter().position(|(why, _, _)| *why == blocked.why);
    let index = known.unwrap_or_else(|| {
        notes.push((blocked.why.clone(), blocked.unblock.clone(), 0));
        notes.len() - 1
    });
    notes[index].2 += 1;
    index + 1
}

/// A reason in words.
pub(super) fn reason_text(reason: &Reason) -> String {
    match reason {
        Reason::New => "new".to_owned(),
        Reason::Changed { change, .. } => change_text(change),
        Reason::LastAttempt { outcome } => format!("the last attempt was {outcome}"),
        Reason::Few { have, want } => format!("{} of {want}", count(*have, "record")),
        Reason::Excluded { why } => format!("its record was excluded: {why}"),
        Reason::Outdated { formulas, gates } => {
            format!("its record is invalid under formulas {formulas}: {}", gates.join(", "))
        }
        Reason::Rerun => "asked for with --rerun".to_owned(),
        Reason::Reproduce { run, of } => format!("reproduction, run {run} of {of}"),
    }
}

/// `server --max-num-seqs: 16 → 32`.
pub(super) fn change_text(change: &crate::spec::diff::Change) -> String {
    let side = |value: &Option<String>| match value {
        None => "(none)".to_owned(),
        Some(text) if text.is_empty() => "\"\"".to_owned(),
        Some(text) => text.clone(),
    };
    let what = [change.stage.as_str(), change.what.as_str()].join(" ");
    format!("{}: {} → {}", what.trim_end(), side(&change.old), side(&change.new))
}

/// Counts by state and what is to come.
pub(super) fn summary_line(summary: &Summary, project: &Project) -> String {
    let total = summary.recorded + summary.run + summary.running + summary.blocked;
    let mut line = format!(
        "{}: {} recorded, {} to run, {} running, {} blocked",
        count(total, "arm"),
        summary.recorded,
        summary.run,
        summary.running,
        summary.blocked
    );
    if summary.run > 0 {
        let hours = if project.profile.rehearses() {
            "no GPU-hours (a rehearsal)".to_owned()
        } else {
            format!("{:.1} GPU-hours", summary.gpu_hours)
        };
        let shared =
            if summary.jobs < summary.run { format!(" in {}", count(summary.jobs, "job")) } else { String::new() };
        line.push_str(&format!(
            "{shared}\n{hours}, about {} with {} at a time",
            duration(summary.wall_seconds),
            count(project.profile.jobs, "job")
        ));
    }
    line
}
