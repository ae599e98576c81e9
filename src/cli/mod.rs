//! The command line: flags, verbs, and the mapping from outcomes to exit codes. Nothing imports this module.

pub mod changelog;
pub mod error;
pub mod exit;
pub mod filters;
mod lock;
pub mod matrix;
pub mod printer;
pub mod project;
pub mod replay;
mod script;
pub mod sim;
pub mod store;
pub mod supervise;

mod attempts;
mod claims;
mod consent;
mod diff;
mod exclude;
mod execute;
mod logs;
mod names;
mod plan;
mod progress;
mod ps;
mod recompute;
mod report;
mod reproduce;
mod results;
mod run;
mod selection;
mod show;
mod since;
mod stop;
mod table;
mod verdict;
mod whatif;
mod why;

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::config::profile;
use crate::store::Store;
use error::Error;
use printer::Printer;

/// A build tool whose artefacts are LLM inference benchmark results
#[derive(Debug, Parser)]
#[command(
    name = "ixbuild",
    version,
    max_term_width = 110,
    after_help = NOTES,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// Where and how.
    #[command(flatten)]
    pub globals: Globals,
}

const NOTES: &str = "\
Every row of the matrix at one concurrency (an arm) is compiled into a job spec, named by the SHA-256 of that spec, run, \
and stored under that name. What did not change is never run again.

Examples:
  ixbuild plan --profile rehearsal                what would run, and why
  ixbuild run --only-changed --profile rehearsal  run every arm that has no record
  ixbuild show tp8-resident-mtp-c1 --format sh    the commands of an arm, as a script
  ixbuild why tp8-resident-mtp-c1                 why an arm ran, or would run
  ixbuild logs tp8-resident-mtp-c1 server         what its server printed

Exit codes: 0 done, 1 an arm failed, 2 usage, 3 faulty input, 4 blocked or refused, 5 store, 6 environment, 10 to 13 \
what reproduce found, 130 interrupted. With --json an error is one object as well: `error` with `code`, `message`, `hint`, `diagnostics`.";

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Globals {
    /// The project's folder [default: the nearest one above the working directory with configs/runners.yaml]
    #[arg(long, short = 'C', global = true, value_name = "DIR", env = "IXBUILD_PROJECT", hide_env_values = true)]
    pub project: Option<PathBuf>,
    /// Where results live [default: $XDG_DATA_HOME/ixbuild, else ~/.local/share/ixbuild]
    #[arg(long, global = true, value_name = "DIR", env = "IXBUILD_STORE", hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub store: Option<PathBuf>,
    /// Where and how specs run: rehearsal, docker, or a name from configs/profiles [default: docker]
    #[arg(long, short = 'P', global = true, value_name = "NAME", env = "IXBUILD_PROFILE", hide_env_values = true)]
    pub profile: Option<String>,
}

impl Globals {
    /// The profile in force.
    pub fn profile_name(&self) -> &str {
        self.profile.as_deref().unwrap_or(profile::DEFAULT)
    }

    /// The store in force. Nothing is created before the first write.
    ///
    /// # Errors
    /// No place for it; a folder that holds something else.
    pub fn store(&self) -> Result<Store, Error> {
        store::open(self.store.clone())
    }
}

/// The verbs. Their help stands with their arguments.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "a comment here would replace the verb's own help")]
pub enum Verb {
    Plan(plan::PlanArgs),
    Run(run::RunArgs),
    Ps(ps::PsArgs),
    Logs(logs::LogsArgs),
    Stop(stop::StopArgs),
    Show(show::ShowArgs),
    Why(why::WhyArgs),
    Reproduce(reproduce::ReproduceArgs),
    Exclude(exclude::ExcludeArgs),
    Recompute(recompute::RecomputeArgs),
    Diff(diff::DiffArgs),
    Lock(lock::LockArgs),
    Matrix(Box<matrix::MatrixArgs>),
    Changelog(changelog::ChangelogArgs),
    Store(store::Args),
    Sim(sim::Sim),
    Replay(replay::Replay),
    #[command(hide = true)]
    Supervise(supervise::Supervise),
}

impl Verb {
    /// Whether it was asked for one JSON object.
    fn wants_json(&self) -> bool {
        match self {
            Verb::Plan(args) => args.wants_json(),
            Verb::Run(args) => args.json,
            Verb::Ps(args) => args.json,
            Verb::Show(args) => args.wants_json(),
            Verb::Why(args) => args.json,
            Verb::Reproduce(args) => args.json,
            Verb::Exclude(args) => args.json,
            Verb::Recompute(args) => args.json,
            Verb::Diff(args) => args.json,
            Verb::Lock(args) => args.json,
            Verb::Store(args) => args.wants_json(),
            Verb::Changelog(args) => args.wants_json(),
            Verb::Logs(_) | Verb::Stop(_) => false,
            Verb::Matrix(_) | Verb::Sim(_) | Verb::Replay(_) | Verb::Supervise(_) => false,
        }
    }
}

/// Carries out one command line; the exit code.
pub fn run(cli: Cli) -> u8 {
    let printer = Printer::from_environment();
    let Some(verb) = cli.verb else {
        printer.note(Cli::command().render_help().to_string().trim_end());
        return exit::USAGE;
    };
    let as_json = verb.wants_json();
    match dispatch(verb, &cli.globals, printer) {
        Ok(code) => code,
        Err(error) => {
            printer.note(&error.render(printer.colour_err));
            if as_json {
                printer.data(&error.json().to_string());
            }
            error.code
        }
    }
}

fn dispatch(verb: Verb, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    match verb {
        Verb::Plan(args) => plan::plan(&args, globals, printer),
        Verb::Run(args) => run::run(&args, globals, printer),
        Verb::Ps(args) => ps::ps(&args, globals, printer),
        Verb::Logs(args) => logs::logs(&args, globals, printer),
        Verb::Stop(args) => stop::stop(&args, globals, printer),
        Verb::Show(args) => show::show(&args, globals, printer),
        Verb::Why(args) => why::why(&args, globals, printer),
        Verb::Reproduce(args) => reproduce::reproduce(&args, globals, printer),
        Verb::Exclude(args) => exclude::exclude(&args, globals, printer),
        Verb::Recompute(args) => recompute::recompute(&args, globals, printer),
        Verb::Diff(args) => diff::diff(&args, globals, printer),
        Verb::Lock(args) => lock::lock(&args, globals, printer),
        Verb::Matrix(args) => matrix::run(&args, printer),
        Verb::Changelog(args) => changelog::run(&args, globals, printer),
        Verb::Store(args) => store::run(args, globals.store.clone(), printer),
        Verb::Sim(args) => sim::run(&args, printer),
        Verb::Replay(args) => replay::run(&args, printer),
        Verb::Supervise(args) => supervise::run(&args),
    }
}
