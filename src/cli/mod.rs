//! The command line: flags, verbs, and the mapping from outcomes to exit codes. Nothing imports this module.

pub mod error;
pub mod exit;
pub mod printer;
pub mod supervise;

use clap::{Parser, Subcommand};

use error::Error;
use printer::Printer;

/// A build tool whose artefacts are benchmark results.
#[derive(Debug, Parser)]
#[command(name = "ixbuild", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// What every local service runs under.
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

fn dispatch(cli: Cli, _printer: Printer) -> Result<u8, Error> {
    match cli.verb {
        Verb::Supervise(arguments) => supervise::run(&arguments),
    }
}
