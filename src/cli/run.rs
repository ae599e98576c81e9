//! `ixbuild run`: runs what has no record, serves what has.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;

use super::consent::consent;
use super::error::Error;
use super::execute::{How, execute};
use super::exit;
use super::printer::Printer;
use super::project::Project;
use super::report::Report;
use super::selection::Selection;
use super::table::count;
use super::whatif::{Variation, announce, tasks};
use super::{Globals, plan};
use crate::config::profile::ExecutorKind;
use crate::exec::provenance::Git;
use crate::ids::JobHash;
use crate::matrix::arm::Arm;
use crate::sweep::Finish;

const NOTES: &str = "\
Beyond one arm a failure does not stop the others; the exit code tells. Ctrl-C (also SIGTERM and SIGHUP) stops every \
process, keeps the logs, and exits with 130; `ixbuild stop` ends one job alone. Files of what failed stay in \
$IXBUILD_SCRATCH [default: ixbuild-UID in the temporary folder]. With --json: `profile`, `arms` (each `id`, `job`, \
`outcome`, `n`, `result`: the median of n records, `failure`) and `summary` (counts by outcome).

--keep-on-failure runs one job at a time and waits at the first one that fails, with its services up: it says where they \
listen and where the logs are. Ctrl-C ends them and the run; `ixbuild stop ARM` ends them, and the run goes on with the \
next arm. A failed gate is judged after the services were stopped, so it keeps nothing.

What-ifs: PATH of --set is a line of `ixbuild diff` with dots between its words. The client is the service `client`.
  SERVICE.args.FLAG         a flag (also SERVICE.FLAG), and with .KEY a value within its JSON
  SERVICE.env.NAME          a variable; SERVICE.file.NAME a file, SERVICE.resources.…, SERVICE.probe.…
  concurrency               composes the arm there, with all that its recipe derives from it
  workload.… gates.… substitutions.…
  +PATH=VALUE               adds a flag (`true`: without a value), a variable, or a key of JSON
  PATH=null                 removes one

Examples:
  ixbuild run --only-changed --profile rehearsal    every arm without a record
  ixbuild run tp8-resident-mtp-c1 -P rehearsal      one arm
  ixbuild run '*mooncake*' --max-conc 20 --dry-run  what that would run
  ixbuild run tp8-resident-mtp-c1 --set server.args.--max-num-seqs=32 --set +server.env.VLLM_LOGGING_LEVEL=DEBUG";

/// Run arms and record their results; what is recorded is served, not run again
#[derive(Debug, Args)]
#[command(after_help = NOTES, override_usage = "ixbuild run [ARM|KEY|GLOB]... [OPTIONS]")]
pub struct RunArgs {
    /// Select every arm that has no record
    #[arg(long)]
    only_changed: bool,
    /// Select every arm, and print the results of recorded ones too
    #[arg(long)]
    all: bool,
    /// Run recorded arms again; their results gain a record
    #[arg(long)]
    rerun: bool,
    /// Jobs at a time [default: as the profile says]
    #[arg(long, short, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Start nothing more after the first failure
    #[arg(long)]
    fail_fast: bool,
    /// Try again after failures of the infrastructure, at most so often
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// After a failure leave the services up, to look at: until Ctrl-C, or `ixbuild stop ARM`
    #[arg(long, conflicts_with_all = ["jobs", "retries"])]
    keep_on_failure: bool,
    #[command(flatten)]
    variation: Variation,
    /// Run above the profile's threshold of GPU-hours (`ask-above-gpu-hours`) without being asked
    #[arg(long, short)]
    yes: bool,
    /// Print the plan and run nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    selection: Selection,
}

pub(super) fn run(args: &RunArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    if args.selection.is_empty() && !args.only_changed && !args.all {
        return Err(Error::usage("nothing is selected")
            .hint("name arms, keys or globs, or pass --only-changed for every arm without a record, or --all"));
    }
    let project = Project::open(globals)?;
    let store = globals.store()?;
    let chosen = args.selection.choose(&project)?;
    let chosen: Vec<&Arm> = chosen.iter().collect();
    let (plan, varied) = match args.variation.is_none() {
        true => (project.plan(&chosen, &store, args.rerun)?, None),
        false => args.variation.plan(&project, &chosen, &store, args.rerun).map(|(plan, tasks)| (plan, Some(tasks)))?,
    };
    let jobs = args.jobs.or(NonZeroUsize::new(project.profile.jobs)).filter(|_| !args.keep_on_failure);
    let jobs = jobs.unwrap_or(NonZeroUsize::MIN);
    if args.dry_run {
        plan::print(&plan, jobs.get(), args.json, &project.profile, &store, printer);
        return Ok(exit::OK);
    }
    let summary = plan.summary(jobs.get());
    let profile = &project.profile;
    if profile.executor != ExecutorKind::Local && summary.recorded < plan.arms.len() {
        return Err(Error::refused(format!(
            "the profile {} has no executor yet: {} not recorded, nothing was started",
            profile.name,
            count(plan.arms.len() - summary.recorded, "arm")
        ))
        .hint("pass --profile rehearsal to simulate them on this machine"));
    }
    printer.note(&format!("profile {}, store {}", profile.name, store.root().display()));
    let mut outcomes: BTreeMap<JobHash, Finish> = BTreeMap::new();
    announce(&plan, printer);
    let tasks = match varied {
        Some(tasks) => tasks,
        None => tasks(&plan, |index| Ok(Some(project.job(chosen[index])?)))?,
    };
    if tasks.is_empty() {
        printer.note(&format!("nothing to run: {} recorded, {} blocked", summary.recorded, summary.blocked));
    } else {
        consent(&summary, &project.profile, args.yes, printer)?;
        let how = How {
            git: Git::of(&project.root),
            records: project.profile.records,
            rerun: args.rerun,
            jobs,
            fail_fast: args.fail_fast,
            retries: args.retries,
            keep_on_failure: args.keep_on_failure,
            expected: Duration::from_secs(summary.wall_seconds),
        };
        let finishes = execute(&tasks, how, &project.profile, &store, printer)?;
        outcomes.extend(tasks.iter().map(|task| task.hash).zip(finishes));
    }
    let report = Report { plan: &plan, outcomes: &outcomes, store: &store, all: args.all };
    match args.json {
        true => printer.data(&report.json(&profile.name)?),
        false => report.print(printer)?,
    }
    Ok(report.exit_code())
}
