//! `ixbuild run`: runs what has no record, serves what has.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::progress::Progress;
use super::project::Project;
use super::report::Report;
use super::selection::Selection;
use super::table::count;
use super::{Globals, plan};
use crate::config::profile::{ExecutorKind, Profile};
use crate::exec::provenance::Git;
use crate::exec::{Host, Local, Timing, cancellation};
use crate::ids::JobHash;
use crate::matrix::arm::Arm;
use crate::plan::{Plan, State};
use crate::store::Store;
use crate::sweep::{Context, Finish, Task, sweep};

const NOTES: &str = "\
Beyond one arm a failure does not stop the others; the exit code tells. Ctrl-C stops every process, keeps the logs, and \
exits with 130. Files of what failed stay in $IXBUILD_SCRATCH [default: ixbuild-UID in the temporary folder]. With \
--json: `profile`, `arms` (each `id`, `job`, `outcome`, `result`, `failure`) and `summary` (counts by outcome).

Examples:
  ixbuild run --only-changed --profile rehearsal    every arm without a record
  ixbuild run tp8-resident-mtp-c1 -P rehearsal      one arm
  ixbuild run '*mooncake*' --max-conc 20 --dry-run  what that would run";

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
    let plan = project.plan(&chosen, &store, args.rerun)?;
    let jobs = args.jobs.or(NonZeroUsize::new(project.profile.jobs)).unwrap_or(NonZeroUsize::MIN);
    if args.dry_run {
        plan::print(&plan, jobs.get(), args.json, &project, &store, printer);
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
    let tasks = tasks(&plan, &chosen, &project)?;
    if tasks.is_empty() {
        printer.note(&format!("nothing to run: {} recorded, {} blocked", summary.recorded, summary.blocked));
    } else {
        let expected = Duration::from_secs(summary.wall_seconds);
        let finishes = execute(&tasks, args, jobs, expected, &project, &store, printer)?;
        outcomes.extend(tasks.iter().map(|task| task.hash).zip(finishes));
    }
    let report = Report { plan: &plan, outcomes: &outcomes, store: &store, all: args.all };
    match args.json {
        true => printer.data(&report.json(&profile.name)?),
        false => report.print(printer)?,
    }
    Ok(report.exit_code())
}

/// One task a job: arms with equal specs share it.
fn tasks(plan: &Plan, arms: &[&Arm], project: &Project) -> Result<Vec<Task>, Error> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut index: BTreeMap<JobHash, usize> = BTreeMap::new();
    for (planned, arm) in plan.arms.iter().zip(arms) {
        let reasons = match &planned.state {
            State::Run(reasons) => reasons.clone(),
            State::Running { .. } => Vec::new(),
            _ => continue,
        };
        let Some(hash) = planned.job else { continue };
        match index.get(&hash) {
            Some(at) => tasks[*at].arms.push(arm.id.clone()),
            None => {
                index.insert(hash, tasks.len());
                tasks.push(Task { arms: vec![arm.id.clone()], hash, job: project.job(arm)?, reasons });
            }
        }
    }
    Ok(tasks)
}

fn execute(
    tasks: &[Task],
    args: &RunArgs,
    jobs: NonZeroUsize,
    expected: Duration,
    project: &Project,
    store: &Store,
    printer: Printer,
) -> Result<Vec<Finish>, Error> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Error::environment(format!("tokio: {error}")))?;
    let executor = Local::new().map_err(|error| Error::environment(error.to_string()))?;
    let host = host(&project.profile)?;
    let context = Context {
        store,
        executor: &executor,
        host: &host,
        scratch: scratch_root(),
        git: Git::of(&project.root),
        records: project.profile.records,
        rerun: args.rerun,
        jobs,
        fail_fast: args.fail_fast,
        retries: args.retries,
    };
    Ok(runtime.block_on(async {
        let (canceller, cancel) = cancellation();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut progress = Progress::new(tasks, expected, printer);
        let mut work = std::pin::pin!(sweep(tasks, &context, &sender, &cancel));
        let mut signals = Signals::new();
        let finishes = loop {
            tokio::select! {
                biased;
                Some(notice) = receiver.recv() => progress.notice(&notice),
                finishes = &mut work => break finishes,
                () = signals.next() => {
                    canceller.cancel();
                    progress.say(&format!("stopping every process; logs stay in {}", context.scratch.display()));
                }
            }
        };
        while let Ok(notice) = receiver.try_recv() {
            progress.notice(&notice);
        }
        progress.end();
        finishes
    }))
}

/// Ctrl-C and SIGTERM.
struct Signals {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self { interrupt: signal(SignalKind::interrupt()).ok(), terminate: signal(SignalKind::terminate()).ok() }
    }

    async fn next(&mut self) {
        let wait = async |signal: &mut Option<tokio::signal::unix::Signal>| match signal {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        };
        tokio::select! {
            () = wait(&mut self.interrupt) => {}
            () = wait(&mut self.terminate) => {}
        }
    }
}

fn host(profile: &Profile) -> Result<Host, Error> {
    let timing = &profile.timing;
    let ixbuild =
        std::env::current_exe().map_err(|error| Error::environment(format!("the path of this program: {error}")))?;
    Ok(Host {
        facts: profile.host.clone(),
        models: profile.models.clone(),
        caches: scratch_root().join("caches"),
        secrets: profile.secrets.clone(),
        path: std::env::var("PATH").unwrap_or_default(),
        timing: Timing {
            poll: Duration::from_millis(timing.poll_ms),
            ready_timeout: Duration::from_secs(timing.ready_timeout_s),
            grace: Duration::from_secs(timing.grace_s),
            scrape_interval: Duration::from_millis(timing.scrape_ms),
            client_timeout: Duration::from_secs(timing.client_timeout_s),
        },
        ixbuild,
    })
}

/// Where attempts keep their files while they run; those of failures stay.
fn scratch_root() -> PathBuf {
    match std::env::var_os("IXBUILD_SCRATCH") {
        Some(root) if !root.is_empty() => root.into(),
        _ => std::env::temp_dir().join(format!("ixbuild-{}", rustix::process::getuid().as_raw())),
    }
}
