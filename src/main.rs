//! Parse, call, map to an exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    ExitCode::from(ixbuild::cli::run(ixbuild::cli::Cli::parse()))
}
