//! `ixbuild run`: runs what has no record, serves what has.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use clap::Args;
use serde_json::json;

use super::Globals;
use super::consent::consent;
use super::error::Error;
use super::execute::{How, execute};
use super::exit;
use super::plan::{render, summary_line};
use super::printer::Printer;
use super::project::Project;
use super::results::{HEADER, headline};
use super::selection::Selection;
use super::table::{count, table};
use super::whatif::{Variation, announce, tasks};
use crate::config::profile::ExecutorKind;
use crate::exec::provenance::Git;
use crate::ids::{ArmId, JobHash};
use crate::matrix::filter::{Filter, Sweep};
use crate::plan::{Plan, State};
use crate::result::ResultDoc;
use crate::store::{Store, StoreView};
use crate::sweep::{Finish, title};

/// Run arms and record their results; what is recorded is served, not run again
///
/// Give arms, or --only-changed for every arm without a record. Beyond one arm a failure does not stop the others;
/// the exit code tells. Ctrl-C stops every process, keeps the logs, and exits with 130.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    selection: Selection,
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
    ///
    /// One job at a time. The run waits at the first one that fails, and says where its services listen and where their
    /// logs are. Ctrl-C ends them and the run; `ixbuild stop ARM` ends them, and the run goes on with the next arm.
    /// A failed gate is judged after the services were stopped, so it keeps nothing.
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
    /// Print one JSON object: `arms` (each `id`, `job`, `outcome`, `result`) and `summary`
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RunArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    if args.selection.is_empty() && !args.only_changed && !args.all {
        return Err(Error::usage("nothing is selected")
            .hint("name arms, keys or globs, or pass --only-changed for every arm without a record, or --all"));
    }
    let project = Project::open(globals)?;
    let store = globals.store()?;
    let arms = project.arms(&Filter::Sweep(Sweep::default()))?;
    let chosen = args.selection.choose(&arms)?;
    let (plan, varied) = match args.variation.is_none() {
        true => (project.plan(&chosen, &store, args.rerun)?, None),
        false => args.variation.plan(&project, &chosen, &store, args.rerun).map(|(plan, tasks)| (plan, Some(tasks)))?,
    };
    printer.note(&format!("profile {}, store {}", project.profile.name, store.root().display()));
    if varied.is_some() {
        announce(&plan, printer);
    }
    let jobs = args.jobs.or(NonZeroUsize::new(project.profile.jobs)).filter(|_| !args.keep_on_failure);
    let jobs = jobs.unwrap_or(NonZeroUsize::MIN);
    let summary = plan.summary(jobs.get());
    if args.dry_run {
        printer.data(&render(&plan, printer));
        printer.data(&summary_line(&summary, &project));
        return Ok(exit::OK);
    }
    let mut outcomes: BTreeMap<JobHash, Finish> = BTreeMap::new();
    let tasks = match varied {
        Some(tasks) => tasks,
        None => tasks(&plan, |index| Ok(Some(project.job(chosen[index])?)))?,
    };
    let waits = plan.arms.iter().any(|arm| matches!(arm.state, State::Running { .. }));
    if summary.run == 0 && !waits {
        printer.note(&format!("{} recorded, nothing to run", count(summary.recorded, "arm")));
    } else if project.profile.executor != ExecutorKind::Local {
        return Err(Error::refused(format!("the profile {} has no executor yet", project.profile.name))
            .hint("pass --profile rehearsal to rehearse on this machine; nothing was started"));
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
        };
        let finishes = execute(&tasks, how, &project.profile, &store, printer)?;
        outcomes.extend(tasks.iter().map(|task| task.hash).zip(finishes));
    }
    let report = Report { plan: &plan, outcomes: &outcomes, store: &store, all: args.all };
    match args.json {
        true => printer.data(&report.json(&project)?),
        false => report.print(printer)?,
    }
    Ok(report.exit_code())
}

/// What a run came to.
struct Report<'r> {
    plan: &'r Plan,
    outcomes: &'r BTreeMap<JobHash, Finish>,
    store: &'r Store,
    all: bool,
}

impl Report<'_> {
    fn exit_code(&self) -> u8 {
        let any = |test: fn(&Finish) -> bool| self.outcomes.values().any(test);
        if any(|finish| matches!(finish, Finish::Cancelled)) {
            exit::INTERRUPTED
        } else if any(|finish| matches!(finish, Finish::Store { .. })) {
            exit::STORE
        } else if any(|finish| !finish.is_valid()) {
            exit::ARM_FAILED
        } else if self.plan.arms.iter().any(|arm| matches!(arm.state, State::Blocked(_))) {
            exit::REFUSED
        } else {
            exit::OK
        }
    }

    /// The word for what became of an arm.
    fn outcome(&self, state: &State, job: Option<JobHash>) -> &'static str {
        match (state, job.and_then(|job| self.outcomes.get(&job))) {
            (State::Recorded { .. }, _) => "served",
            (State::Blocked(_), _) => "blocked",
            (_, Some(Finish::Recorded { .. })) => "recorded",
            (_, Some(Finish::Served { .. })) => "served",
            (_, Some(Finish::Invalid { .. })) => "invalid",
            (_, Some(Finish::Failed { .. } | Finish::Store { .. })) => "failed",
            (_, Some(Finish::Cancelled | Finish::Stopped)) => "stopped",
            (_, Some(Finish::NotStarted) | None) => "not started",
        }
    }

    /// The result of an arm: of this run, or the newest record's.
    fn result(&self, job: Option<JobHash>) -> Result<Option<ResultDoc>, Error> {
        let Some(job) = job else { return Ok(None) };
        if let Some(Finish::Recorded { derived, .. } | Finish::Invalid { derived, .. }) = self.outcomes.get(&job) {
            return Ok(Some(derived.result.clone()));
        }
        let state = self.store.job(&job)?;
        let Some(record) = state.records().next_back() else { return Ok(None) };
        let bytes = self.store.layer(record, title::RESULT)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    fn print(&self, printer: Printer) -> Result<(), Error> {
        let mut rows = Vec::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for arm in &self.plan.arms {
            let outcome = self.outcome(&arm.state, arm.job);
            *counts.entry(outcome).or_default() += 1;
            let ran = matches!(outcome, "recorded" | "invalid");
            if ran || (self.all && outcome == "served") {
                let mut row = vec![arm.id.to_string(), outcome.to_owned()];
                row.extend(headline(self.result(arm.job)?.as_ref()));
                rows.push(row);
            }
        }
        if !rows.is_empty() {
            let header: Vec<&str> = ["arm", "outcome"].into_iter().chain(HEADER).collect();
            let right: Vec<bool> = [false; 2].into_iter().chain(HEADER.map(|_| true)).collect();
            printer.data(&table(&header, &right, &rows));
        }
        let order = ["recorded", "served", "invalid", "failed", "stopped", "not started", "blocked"];
        let words: Vec<String> =
            order.iter().filter_map(|word| counts.get(word).map(|n| format!("{n} {word}"))).collect();
        printer.data(&format!("{}: {}", count(self.plan.arms.len(), "arm"), words.join(", ")));
        let blocked = self.plan.arms.iter().find_map(|arm| match &arm.state {
            State::Blocked(blocked) => blocked.first(),
            _ => None,
        });
        if let Some(blocked) = blocked {
            printer.note(&format!("blocked: {}\n  unblock: {}", blocked.why, blocked.unblock));
        }
        Ok(())
    }

    fn json(&self, project: &Project) -> Result<String, Error> {
        let mut list = Vec::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for arm in &self.plan.arms {
            let outcome = self.outcome(&arm.state, arm.job);
            *counts.entry(outcome).or_default() += 1;
            let failure = match arm.job.and_then(|job| self.outcomes.get(&job)) {
                Some(Finish::Failed { failure }) => json!(failure),
                Some(Finish::Store { error, .. }) => json!({"kind": "store", "message": error}),
                _ => json!(null),
            };
            list.push(arm_result(&arm.id, arm.job, outcome, self.result(arm.job)?, failure));
        }
        Ok(json!({"profile": project.profile.name, "arms": list, "summary": counts}).to_string())
    }
}

fn arm_result(
    id: &ArmId,
    job: Option<JobHash>,
    outcome: &str,
    result: Option<ResultDoc>,
    failure: serde_json::Value,
) -> serde_json::Value {
    json!({"id": id, "job": job, "outcome": outcome, "result": result, "failure": failure})
}
