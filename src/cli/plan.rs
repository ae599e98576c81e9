//! `ixbuild plan`: what would run, and why.

use std::cell::OnceCell;

use clap::Args;
use serde_json::{Value, json};

use super::Globals;
use super::error::Error;
use super::exit;
use super::names::{Grouped, split};
use super::printer::Printer;
use super::project::{Files, Project};
use super::selection::Selection;
use super::since::{self, Format, SinceArgs};
use super::table::{Tone, count, cut, duration, paint};
use crate::compose::Blocked;
use crate::config::profile::Profile;
use crate::matrix::arm::Arm;
use crate::memo::{Key, Memos};
use crate::plan::{self, Plan, Planned, Policy, Reason, State, Summary};
use crate::store::Store;

/// Input files of more bytes than this are worth a memo: below, composing takes less time than reading one.
const MEMO_FROM: usize = 1 << 20;

/// How many reasons the table shows for an arm.
const SHOWN: usize = 4;

/// How many characters of an old or new value the table shows.
const VALUE: usize = 48;

const NOTES: &str = "\
Reasons compare an arm with the nearest spec that was recorded for it; `ixbuild why` prints all of them. With --json: \
`profile`, `store`, `arms` (each `id`, `job`, `state` of recorded, run, running or blocked, `reasons`) and `summary` \
(counts by state, `jobs`, `gpu_hours`, `wall_seconds`).

Examples:
  ixbuild plan                                   every arm, under the profile docker
  ixbuild plan '*mooncake*' --profile rehearsal  some arms, as they would be rehearsed
  ixbuild plan --max-conc 16 --json              for a script";

/// Show what is recorded, what would run and why, what is running, and what is blocked
#[derive(Debug, Args)]
#[command(after_help = NOTES, override_usage = "ixbuild plan [ARM|KEY|GLOB]... [OPTIONS]")]
pub struct PlanArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    since: SinceArgs,
    #[command(flatten)]
    selection: Selection,
}

impl PlanArgs {
    /// Whether it was asked for one JSON object.
    pub(super) fn wants_json(&self) -> bool {
        self.json || self.since.format == Some(Format::Json)
    }
}

pub(super) fn plan(args: &PlanArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    if args.since.revision.is_some() {
        return since::run(&args.since, &args.selection, args.wants_json(), globals, printer);
    }
    let store = globals.store()?;
    let (plan, profile) = prepare(args, globals, &store)?;
    if args.since.format == Some(Format::Markdown) {
        printer.data(&since::markdown_of_plan(&plan, &profile));
        return Ok(exit::OK);
    }
    print(&plan, profile.jobs, args.wants_json(), &profile, &store, printer);
    Ok(exit::OK)
}

/// Plans a selection; of a large matrix whose inputs did not change, from the memo of the last time.
fn prepare(args: &PlanArgs, globals: &Globals, store: &Store) -> Result<(Plan, Profile), Error> {
    let files = Files::read(globals)?;
    let memo = match Memos::of_user() {
        Some(memos) if files.inputs.bytes() > MEMO_FROM => {
            let selection = format!("{:?}", args.selection);
            Key::of(&files.inputs, globals.profile_name(), &selection).map(|key| (memos, key))
        }
        _ => None,
    };
    let known = memo.as_ref().and_then(|(memos, key)| memos.load(key));
    let opened: OnceCell<(Project, Vec<Arm>)> = OnceCell::new();
    let open = || -> Result<&(Project, Vec<Arm>), Error> {
        if let Some(opened) = opened.get() {
            return Ok(opened);
        }
        let project = files.clone().open(globals)?;
        let arms = args.selection.choose(&project)?;
        Ok(opened.get_or_init(|| (project, arms)))
    };
    let outlines = match known {
        Some(outlines) => outlines,
        None => {
            let (project, arms) = open()?;
            let outlines = project.outlines(&arms.iter().collect::<Vec<_>>())?;
            if let Some((memos, key)) = &memo {
                memos.save(key, &outlines);
            }
            outlines
        }
    };
    // After the project, which reports the faults of all its files at once.
    let profile = Profile::load(&files.inputs, globals.profile_name())?;
    let policy = Policy::of(&profile, false);
    let spec = |index: usize| {
        let (project, arms) = open().map_err(|error| error.diagnostics)?;
        Ok(project.job(&arms[index])?.spec.canonical())
    };
    Ok((plan::plan(outlines, &spec, store, &policy)?, profile))
}

/// Prints a plan with so many jobs at a time.
pub(super) fn print(plan: &Plan, jobs: usize, as_json: bool, profile: &Profile, store: &Store, printer: Printer) {
    let summary = plan.summary(jobs);
    if as_json {
        let head = json!({"profile": profile.name, "store": store.root().display().to_string()}).to_string();
        let arms = plan.arms.iter().enumerate().map(|(index, arm)| {
            let comma = if index == 0 { "" } else { "," };
            format!("{comma}{}", arm_json(arm))
        });
        let start = format!("{},\"arms\":[", head.trim_end_matches('}'));
        let end = format!("],\"summary\":{}}}\n", json!(summary));
        return printer.stream(std::iter::once(start).chain(arms).chain([end]));
    }
    printer.note(&format!("profile {}, store {}", profile.name, store.root().display()));
    if !plan.arms.is_empty() {
        printer.data(&render(plan, printer));
    }
    printer.data(&summary_line(&summary, jobs, profile));
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
fn render(plan: &Plan, printer: Printer) -> String {
    let width = plan.arms.iter().map(|arm| split(arm.id.as_str()).1.chars().count()).max().unwrap_or(0);
    let mut notes: Vec<(String, String, usize)> = Vec::new();
    let mut grouped = Grouped::default();
    for arm in &plan.arms {
        let (tone, mut words) = match &arm.state {
            State::Recorded { n: 1 } => (Tone::Good, vec![String::new()]),
            State::Recorded { n } => (Tone::Good, vec![count(*n, "record")]),
            State::Run(reasons) => (Tone::Warm, reasons.iter().map(|reason| reason_text(reason, VALUE)).collect()),
            State::Running { owner } => (Tone::Warm, vec![owner.clone()]),
            State::Blocked(blocked) => {
                let mut marks: Vec<usize> = blocked.iter().map(|blocked| note(&mut notes, blocked)).collect();
                marks.sort_unstable();
                let marks: Vec<String> = marks.into_iter().map(|mark| format!("[{mark}]")).collect();
                (Tone::Bad, vec![marks.join(" ")])
            }
        };
        if words.len() > SHOWN {
            let more = words.len() - SHOWN + 1;
            words.truncate(SHOWN - 1);
            words.push(format!("and {more} more"));
        }
        let (_, name) = split(arm.id.as_str());
        let state = paint(printer, tone, &format!("{:<8}", arm.state.word()));
        for (index, word) in words.iter().enumerate() {
            let line = match index {
                0 => format!("{state}  {name:<width$}  {word}"),
                _ => format!("{:8}  {:width$}  {word}", "", ""),
            };
            grouped.push(arm.id.as_str(), &line);
        }
    }
    let mut lines = grouped.lines();
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

/// A reason in words; values of at most so many characters.
pub(super) fn reason_text(reason: &Reason, limit: usize) -> String {
    match reason {
        Reason::New => "new".to_owned(),
        Reason::Changed { change, .. } => change_text(change, limit),
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

/// `server --max-num-seqs: 16 → 32`; values of at most so many characters.
pub(super) fn change_text(change: &crate::spec::diff::Change, limit: usize) -> String {
    let side = |value: &Option<String>| match value {
        None => "(none)".to_owned(),
        Some(text) if text.is_empty() => "\"\"".to_owned(),
        Some(text) => cut(text, limit),
    };
    let what = [change.stage.as_str(), change.what.as_str()].join(" ");
    format!("{}: {} → {}", what.trim(), side(&change.old), side(&change.new))
}

/// Counts by state and what is to come.
fn summary_line(summary: &Summary, at_a_time: usize, profile: &Profile) -> String {
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
        let hours = if profile.rehearses() {
            "no GPU-hours (a rehearsal)".to_owned()
        } else {
            format!("{:.1} GPU-hours", summary.gpu_hours)
        };
        let shared =
            if summary.jobs < summary.run { format!(" in {}", count(summary.jobs, "job")) } else { String::new() };
        line.push_str(&format!(
            "{shared}\n{hours}, about {} with {} at a time",
            duration(summary.wall_seconds),
            count(at_a_time, "job")
        ));
    }
    line
}
