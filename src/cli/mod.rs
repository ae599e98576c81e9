//! The command line: flags, verbs, and the mapping from outcomes to exit codes. Nothing imports this module.

pub mod error;
pub mod exit;
pub mod printer;
pub mod replay;
pub mod sim;

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
    /// Play a service of a rehearsal.
    Sim(sim::Sim),
    /// Play the load generator of a rehearsal.
    Replay(replay::Replay),
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
    match cli.verb {
        Verb::Sim(command) => sim::run(&command, printer),
        Verb::Replay(command) => replay::run(&command, printer),
    }
}
