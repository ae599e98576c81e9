//! `ixbuild sim serve`: plays one service of a rehearsal. Started by the local executor, or by hand to try a command line.

use clap::{Args, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::error::Error;
use super::exit;
use super::printer::Printer;
use crate::sim::settings::Settings;
use crate::sim::{self, Log, Role, SimError, Stop};

/// Play a service of a rehearsal
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Sim {
    /// What to do.
    #[command(subcommand)]
    pub verb: SimVerb,
}

/// What the simulator does.
#[derive(Debug, Subcommand)]
pub enum SimVerb {
    /// Serve under a real command line until SIGTERM or Ctrl-C
    Serve(Serve),
}

const NOTES: &str = "\
It takes ports, batch limit and acceptance from the real arguments and refuses flags that the real program does not know.

Example:
  ixbuild sim serve --as vllm -- MODEL --port 8000 --max-num-seqs 8 --tensor-parallel-size 8";

/// `sim serve`.
#[derive(Debug, Args)]
#[command(after_help = NOTES, override_usage = "ixbuild sim serve --as <PROGRAM> [--settings <JSON>] -- [ARGV]...")]
pub struct Serve {
    /// The program to play: `vllm serve`, vllm-router, mooncake_master, `lmcache server`
    #[arg(long = "as", value_name = "PROGRAM")]
    pub role: Program,
    /// Latency law, caches and injected faults: a JSON object, as `substitute.engine` of a profile
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub settings: String,
    /// The real arguments, after the program's own words (`vllm serve`, `lmcache server`, …)
    #[arg(last = true)]
    pub argv: Vec<String>,
}

/// Programs that can be played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "comments here would stretch the verb's help")]
pub enum Program {
    Vllm,
    VllmRouter,
    Mooncake,
    Lmcache,
}

impl From<Program> for Role {
    fn from(program: Program) -> Self {
        match program {
            Program::Vllm => Role::Vllm,
            Program::VllmRouter => Role::VllmRouter,
            Program::Mooncake => Role::Mooncake,
            Program::Lmcache => Role::LmCache,
        }
    }
}

impl From<SimError> for Error {
    fn from(error: SimError) -> Self {
        let code = match &error {
            SimError::Argv(_) | SimError::Settings(_) => exit::USAGE,
            SimError::NoMooncakeConfig | SimError::ConfigFile { .. } => exit::BAD_INPUT,
            SimError::Crashed(_) => exit::ARM_FAILED,
            SimError::Read { .. }
            | SimError::Write { .. }
            | SimError::Connect { .. }
            | SimError::Bind { .. }
            | SimError::Client(_) => exit::ENVIRONMENT,
        };
        Error::new(code, error.to_string())
    }
}

/// Serves until told to stop.
///
/// # Errors
/// The service would not start, or died of an injected fault.
pub fn run(command: &Sim, printer: Printer) -> Result<u8, Error> {
    let SimVerb::Serve(serve) = &command.verb;
    let settings = Settings::parse(&serve.settings).map_err(SimError::from)?;
    let log = Log::new(move |line| printer.note(line));
    block_on(async {
        let stop = stop_signal()?;
        sim::serve(serve.role.into(), &serve.argv, &settings, &|name| std::env::var(name).ok(), stop, log).await?;
        Ok(exit::OK)
    })
}

/// Runs a future on this thread: the simulator's work is small and 4 arms share two cores.
pub(super) fn block_on<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::environment(format!("cannot start the event loop: {error}")))?;
    runtime.block_on(future)
}

/// Turns true at SIGTERM or Ctrl-C.
pub(super) fn stop_signal() -> Result<Stop, Error> {
    let listen = |kind| signal(kind).map_err(|error| Error::environment(format!("cannot listen to signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let (sender, stop) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _ = sender.send(true);
        // Dropped with the runtime; a closed channel would read as a stop, which it is by now.
    });
    Ok(stop)
}
