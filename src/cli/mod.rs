//! The command line: flags, verbs, and the mapping from outcomes to exit codes. Nothing imports this module.

pub mod error;
pub mod exit;
pub mod printer;
pub mod store;

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Parser, Subcommand};

use error::Error;
use printer::Printer;

/// A build tool whose artefacts are benchmark results.
#[derive(Debug, Parser)]
#[command(name = "ixbuild", version, propagate_version = true)]
pub struct Cli {
    /// The directory of results.
    #[arg(
        long,
        global = true,
        env = "IXBUILD_STORE",
        value_name = "DIR",
        value_parser = OsStringValueParser::new().map(PathBuf::from),
        long_help = "The directory of results. Default: $XDG_DATA_HOME/ixbuild, else ~/.local/share/ixbuild."
    )]
    pub store: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check the store of results, or print where it is.
    Store(store::Args),
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
        Verb::Store(args) => store::run(args, cli.store, printer),
    }
}
