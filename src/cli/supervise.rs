//! `ixbuild supervise`: what every local service runs under. Not for people; see `exec::supervisor`.

use std::time::Duration;

use clap::Args;

use super::error::Error;
use crate::exec::supervisor::{SuperviseError, die_by, mirror, supervise};

/// Run a command until it ends or stdin closes, then end all its descendants.
#[derive(Debug, Args)]
pub struct Supervise {
    /// Milliseconds between TERM and KILL.
    #[arg(long, default_value_t = 10_000)]
    pub grace_ms: u64,
    /// Only end by this signal.
    #[arg(long, conflicts_with = "command")]
    pub die_by: Option<i32>,
    /// The command.
    #[arg(last = true, required_unless_present = "die_by")]
    pub command: Vec<String>,
}

/// Ends as the command ended: the exit code, or the same signal.
///
/// # Errors
/// The command cannot be started.
pub fn run(arguments: &Supervise) -> Result<u8, Error> {
    if let Some(number) = arguments.die_by {
        return Ok(die_by(number));
    }
    match supervise(&arguments.command, Duration::from_millis(arguments.grace_ms)) {
        Ok(exit) => Ok(mirror(exit)),
        Err(error @ SuperviseError::NoCommand) => Err(Error::usage(error.to_string())),
        Err(error) => Err(Error::environment(error.to_string())),
    }
}
