//! `ixbuild replay`: plays the load generator of a rehearsal under the real one's command line.

use clap::Args;

use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::sim::{block_on, stop_signal};
use crate::sim::replay::settings::ReplaySettings;
use crate::sim::replay::{self, Verdict};
use crate::sim::{Log, SimError};

const NOTES: &str = "\
It takes URL, concurrency, durations and seed from the real arguments, and writes aiperf's own output files.

Example:
  ixbuild replay --settings '{\"duration-ms\": 1000, \"warmup-ms\": 200}' -- profile --url http://localhost:8000 …

`ixbuild show ARM --format sh` prints a whole command line.";

/// Play the load generator of a rehearsal
#[derive(Debug, Args)]
#[command(after_help = NOTES, override_usage = "ixbuild replay [--settings <JSON>] -- [ARGV]...")]
pub struct Replay {
    /// How far an hour of load is shrunk: a JSON object, as `substitute.client` of a profile
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub settings: String,
    /// The real arguments, after `aiperf`
    #[arg(last = true)]
    pub argv: Vec<String>,
}

/// Replays until the load is over or told to stop.
///
/// # Errors
/// The command line is at fault, too many requests failed, or the output cannot be written.
pub fn run(command: &Replay, printer: Printer) -> Result<u8, Error> {
    let settings = ReplaySettings::parse(&command.settings).map_err(SimError::from)?;
    let log = Log::new(move |line| printer.note(line));
    block_on(async {
        let stop = stop_signal()?;
        let environment = |name: &str| std::env::var(name).ok();
        match replay::run(&command.argv, &settings, &environment, stop, log).await? {
            Verdict::Done => Ok(exit::OK),
            Verdict::Stopped => Ok(exit::INTERRUPTED),
            Verdict::NothingCompleted => Err(Error::new(exit::ARM_FAILED, "no request completed")),
            Verdict::TooManyErrors { failed, total, threshold } => Err(Error::new(
                exit::ARM_FAILED,
                format!("{failed} of {total} requests failed: more than --failed-request-threshold {threshold} allows"),
            )),
        }
    })
}
