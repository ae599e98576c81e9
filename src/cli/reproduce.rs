//! `ixbuild reproduce`: runs a stored spec again and says whether its records hold.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::Globals;
use super::error::Error;
use super::execute::{How, execute, profile_for};
use super::exit;
use super::printer::Printer;
use super::table::{count, duration};
use super::verdict::{Report, Run};
use crate::compose::Job;
use crate::config::profile::{ExecutorKind, Profile};
use crate::exec::machine::Machine;
use crate::exec::provenance::{Git, Provenance};
use crate::ids::JobHash;
use crate::plan::Reason;
use crate::records;
use crate::reproduce::{Agreement, Before, Word, before, comparability, judge};
use crate::result::ResultDoc;
use crate::spec::JobSpec;
use crate::store::{Store, StoreView};
use crate::sweep::{Finish, Task};

/// The fact by which a profile states the GPU model of its nodes.
const GPU: &str = "gpu";

const NOTES: &str = "\
No project is needed, and what the configs say today does not matter: the stored spec runs. Prints the gates of the new \
runs, what differs between then and now, every metric with its 90% interval and its tolerance, and one word. Throughput \
decides (of an eval, the score); latencies are advisory.

  REPRODUCED      the interval of the ratio lies inside the tolerance (exit code 0)
  DRIFTED         it lies wholly outside (10)
  INCONCLUSIVE    it straddles an edge; how many more runs would decide is told (11)
  NOT-COMPARABLE  another GPU model or simulator, or no record; nothing is run (12)
  INVALID         a new run failed its gates (13)

One run against one record is INCONCLUSIVE unless they are far apart. Calls add up: reproductions made earlier on this \
machine count as new runs. Without a verdict the exit code is 1 if no new run came to its end, and 4 if the profile cannot \
run the job. With --json: `job`, `arms`, `profile`, `gpu_hours`, `runs`, `comparability`, `recorded`, `earlier`, `history`, \
`metrics`, `verdict`, `more_runs`, `why`.

Examples:
  ixbuild reproduce job:15cd                 one run against what is recorded
  ixbuild reproduce job:15cd --replicates 3  three";

/// Run a recorded job again, exactly as its stored spec says, and say whether its numbers hold
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct ReproduceArgs {
    /// A job: `job:` or `sha256:` and the first digits of its hash
    #[arg(value_name = "HASH")]
    job: String,
    /// New runs, one after another
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<u64>::new().range(1..=1000))]
    replicates: u64,
    /// Do not ask before GPU-hours are spent
    #[arg(long, short)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// What a reproduction takes.
struct Cost {
    gpu_hours: f64,
    wall_s: u64,
}

pub(super) fn reproduce(args: &ReproduceArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let store = globals.store()?;
    let job = store.resolve(&args.job)?;
    let spec = records::spec(&store, &job)?;
    let spec = spec.ok_or_else(|| Error::usage(format!("the store has no spec of {job}")))?;
    let (profile, root) = profile_for(&spec, globals)?;
    let here = Machine::this();
    let before = before(&store, &job, &spec, &here)?;
    let cost = cost(&store, &before, &spec, &profile, args.replicates)?;
    printer.note(&format!("profile {}, store {}", profile.name, store.root().display()));
    printer.note(&announcement(&job, &before, &cost, args.replicates));

    let provenances: Vec<&Provenance> = before.recorded.iter().filter_map(|known| known.provenance.as_ref()).collect();
    let stated = profile.host.get(GPU).map(String::as_str);
    let facts = comparability(&job, &spec, &provenances, &here, stated);
    let broken = facts.iter().any(|fact| fact.agreement == Agreement::Breaks);
    let mut report = Report {
        job,
        spec: &spec,
        profile: &profile.name,
        gpu_hours: cost.gpu_hours,
        before: &before,
        facts,
        runs: Vec::new(),
        reproduction: None,
        word: Some(Word::NotComparable),
    };
    // GPUs that are another model say so whatever the executor; for the lack of any there may be a node elsewhere.
    let none_here = here.gpus.is_empty() && stated.is_none() && spec.deployment.substitutions.is_none();
    if before.recorded.is_empty() || (broken && !none_here) {
        return Ok(report.print(args.json, printer));
    }
    if profile.executor != ExecutorKind::Local {
        return Err(Error::refused(format!("the profile {} has no executor yet", profile.name))
            .hint("only rehearsals can be reproduced until it has; nothing was started"));
    }
    if broken {
        return Ok(report.print(args.json, printer));
    }
    if cost.gpu_hours > 0.0 && !args.yes && printer.can_ask() && !printer.ask("go on?") {
        return Err(Error::refused("nothing was started"));
    }
    let finishes = run(&job, &spec, args, (&profile, root), (&before, cost.wall_s), &store, printer)?;
    if finishes.iter().any(|finish| matches!(finish, Finish::Cancelled | Finish::Stopped)) {
        let kept = finishes.iter().filter(|finish| finish.is_valid()).count();
        printer.note(&format!("stopped: no verdict; {} kept, which count for the next call", count(kept, "record")));
        return Ok(exit::INTERRUPTED);
    }
    if finishes.iter().any(|finish| matches!(finish, Finish::Store { .. })) {
        return Ok(exit::STORE);
    }
    report.runs = finishes.iter().map(Run::of).collect();
    let new: Vec<&ResultDoc> = finishes.iter().filter_map(measured).collect();
    report.word = if finishes.iter().any(|finish| matches!(finish, Finish::Invalid { .. })) {
        Some(Word::Invalid)
    } else if new.is_empty() {
        None
    } else {
        let found = judge(&before, &new);
        let word = found.verdict.into();
        report.reproduction = Some(found);
        Some(word)
    };
    Ok(report.print(args.json, printer))
}

fn measured(finish: &Finish) -> Option<&ResultDoc> {
    match finish {
        Finish::Recorded { derived, .. } => Some(&derived.result),
        _ => None,
    }
}

/// As long as the longest record took; without any, as the profile estimates.
fn cost(store: &Store, before: &Before, spec: &JobSpec, profile: &Profile, runs: u64) -> Result<Cost, Error> {
    let mut wall_s = 0.0_f64;
    for known in &before.recorded {
        let took = store.attempt(&known.at)?.ended.duration_since(known.at.started);
        wall_s = wall_s.max(took.as_secs_f64());
    }
    if before.recorded.is_empty() {
        let load = profile.estimate.load_s.or(spec.measurement.workload.duration_s).unwrap_or_default();
        wall_s = (profile.estimate.start_up_s + load) as f64;
    }
    let all = wall_s * runs as f64;
    let gpus = if spec.deployment.substitutions.is_some() { 0 } else { spec.gpus() };
    Ok(Cost { gpu_hours: gpus as f64 * all / 3600.0, wall_s: all.ceil() as u64 })
}

fn announcement(job: &JobHash, before: &Before, cost: &Cost, runs: u64) -> String {
    let arm = before.arms.first().map(|arm| format!(" ({arm})")).unwrap_or_default();
    let hours = match cost.gpu_hours {
        0.0 => "no GPU-hours (a rehearsal)".to_owned(),
        hours => format!("{hours:.1} GPU-hours"),
    };
    let runs = count(usize::try_from(runs).unwrap_or(usize::MAX), "run");
    format!("{runs} of {}{arm}: {hours}, about {}", job.short(), duration(cost.wall_s))
}

fn run(
    job: &JobHash,
    spec: &JobSpec,
    args: &ReproduceArgs,
    (profile, root): (&Profile, Option<PathBuf>),
    (before, wall_s): (&Before, u64),
    store: &Store,
    printer: Printer,
) -> Result<Vec<Finish>, Error> {
    let of = usize::try_from(args.replicates).unwrap_or(usize::MAX);
    // Time limits are no part of a spec: those of the newest record that tells them.
    let limits = before.recorded.iter().rev().find_map(|known| known.provenance.as_ref());
    let ready_timeout_s = limits.map(|provenance| provenance.ready_timeouts_s.clone()).unwrap_or_default();
    let task = |run| Task {
        arms: before.arms.iter().cloned().collect(),
        hash: *job,
        job: Box::new(Job { spec: spec.clone(), ready_timeout_s: ready_timeout_s.clone() }),
        reasons: vec![Reason::Reproduce { run, of }],
    };
    let tasks: Vec<Task> = (1..=of).map(task).collect();
    let how = How {
        git: root.as_deref().and_then(Git::of),
        records: profile.records,
        rerun: true,
        jobs: NonZeroUsize::MIN,
        fail_fast: false,
        retries: 0,
        keep_on_failure: false,
        expected: Duration::from_secs(wall_s),
    };
    execute(&tasks, how, profile, store, printer)
}
