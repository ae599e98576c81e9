//! The command line: flags, verbs, and the mapping from outcomes to exit codes. Nothing imports this module.

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

mod claims;
mod consent;
mod diff;
mod execute;
mod logs;
mod plan;
mod progress;
mod ps;
mod results;
mod run;
mod selection;
mod show;
mod stop;
mod table;
mod whatif;
mod why;

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand};

use crate::config::profile;
use crate::store::Store;
use error::Error;
use printer::Printer;

/// A build tool whose artefacts are LLM inference benchmark results.
///
/// Every row of the matrix at one concurrency (an arm) is compiled into a job spec, named by the SHA-256 of that spec, run,
/// and stored under that name. What did not change is never run again.
#[derive(Debug, Parser)]
#[command(name = "ixbuild", version, propagate_version = true, max_term_width = 110, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// Where and how.
    #[command(flatten)]
    pub globals: Globals,
}

const EXAMPLES: &str = "\
Examples:
  ixbuild plan --profile rehearsal                  what would run, and why
  ixbuild run --only-changed --profile rehearsal    run every arm that has no record
  ixbuild show tp8-resident-mtp-c1 --format sh      the commands of an arm, as a script
  ixbuild why tp8-resident-mtp-c1                   why an arm ran, or would run

Exit codes: 0 done, 1 an arm failed, 2 usage, 3 faulty input, 4 blocked or refused, 5 store, 6 environment,
130 interrupted. The README says more.";

/// Flags of every verb.
#[derive(Debug, Args)]
pub struct Globals {
    /// The project's folder [default: the nearest one above the working directory with configs/runners.yaml]
    #[arg(long, short = 'C', global = true, value_name = "DIR", env = "IXBUILD_PROJECT")]
    pub project: Option<PathBuf>,
    /// Where results live [default: $XDG_DATA_HOME/ixbuild, else ~/.local/share/ixbuild]
    #[arg(long, global = true, value_name = "DIR", env = "IXBUILD_STORE",
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub store: Option<PathBuf>,
    /// Where and how specs run: rehearsal, docker, or a name from configs/profiles [default: docker]
    #[arg(long, short = 'P', global = true, value_name = "NAME", env = "IXBUILD_PROFILE")]
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
    Diff(diff::DiffArgs),
    Lock(lock::LockArgs),
    Matrix(Box<matrix::MatrixArgs>),
    Store(store::Args),
    Sim(sim::Sim),
    Replay(replay::Replay),
    #[command(hide = true)]
    Supervise(supervise::Supervise),
}

/// Carries out one command line; the exit code.
pub fn run(cli: Cli) -> u8 {
    let printer = Printer::from_environment();
    match dispatch(cli, printer) {
        Ok(code) => code,
        Err(error) => {
            printer.note(&error.render(printer.colour_err));
            error.code
        }
    }
}

fn dispatch(cli: Cli, printer: Printer) -> Result<u8, Error> {
    let globals = &cli.globals;
    match cli.verb {
        Verb::Plan(args) => plan::plan(&args, globals, printer),
        Verb::Run(args) => run::run(&args, globals, printer),
        Verb::Ps(args) => ps::ps(&args, globals, printer),
        Verb::Logs(args) => logs::logs(&args, globals, printer),
        Verb::Stop(args) => stop::stop(&args, globals, printer),
        Verb::Show(args) => show::show(&args, globals, printer),
        Verb::Why(args) => why::why(&args, globals, printer),
        Verb::Diff(args) => diff::diff(&args, globals, printer),
        Verb::Lock(args) => lock::lock(&args, globals, printer),
        Verb::Matrix(args) => matrix::run(&args, printer),
        Verb::Store(args) => store::run(args, cli.globals.store, printer),
        Verb::Sim(args) => sim::run(&args, printer),
        Verb::Replay(args) => replay::run(&args, printer),
        Verb::Supervise(args) => supervise::run(&args),
    }
}
