//! The rehearsal's cast: engine, router, KV stores and replay client, each under its real command line.
//!
//! A rehearsal starts the services of an arm with the argv, environment and files that the real ones get; the programs
//! are played by this module. What is simulated is behaviour: flags and config files that the real program would refuse
//! are refused, ports are opened, health and metrics answered, tokens streamed with a stated latency law.
//! What it does not know: models, text, GPUs. Its numbers mean nothing beyond its own law, which is why records made
//! with it say so and carry [`SIMULATOR_VERSION`] and [`REPLAY_VERSION`].
//!
//! - engine: [`vllm_args`] (command line), [`kv_transfer`], [`chat`] (protocol), [`engine`] (requests to ranks),
//!   [`rank`] (queue, batch, clock), [`latency`], [`acceptance`], [`prefix_cache`], [`counters`] (`/metrics`)
//! - [`router`], with [`ring`] for its hashing; [`kv`]: Mooncake's master and the LMCache server
//! - [`replay`]: the client
//! - [`argv`] reads command lines, [`settings`] what a profile may set, [`http`] serves

pub mod acceptance;
pub mod argv;
pub mod chat;
pub mod counters;
pub mod engine;
mod engine_http;
pub mod http;
pub mod kv;
pub mod kv_transfer;
pub mod latency;
pub mod prefix_cache;
pub mod rank;
pub mod replay;
pub mod ring;
pub mod router;
pub mod settings;
pub mod vllm_args;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use settings::Settings;
use tokio::sync::watch;

/// The version of the simulated services. Raise it with every change of their behaviour: it is part of what a rehearsal's
/// job hash covers.
pub const SIMULATOR_VERSION: u64 = 1;

/// The version of the replay client. Raise it with every change of its behaviour: it is part of what a rehearsal's job
/// hash covers.
pub const REPLAY_VERSION: u64 = 1;

/// A part in the cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `vllm serve`.
    Vllm,
    /// `vllm-router`.
    VllmRouter,
    /// `mooncake_master`.
    Mooncake,
    /// `lmcache server`.
    LmCache,
}

/// Why a simulated service or the replay client ended badly.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The real program would refuse this command line.
    #[error(transparent)]
    Argv(#[from] argv::ArgvError),
    /// The settings are faulty.
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    /// The engine's command line asks for Mooncake, but nothing says where its config is.
    #[error("--kv-transfer-config asks for MooncakeStoreConnector, but MOONCAKE_CONFIG_PATH is not set")]
    NoMooncakeConfig,
    /// A config file is faulty.
    #[error("{}: {why}", .path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A service that must be there does not answer.
    #[error("cannot reach {what} at {address}: {source}")]
    Connect {
        /// The service.
        what: &'static str,
        /// Where it should be.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A port cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The HTTP client cannot be built.
    #[error("cannot set up the HTTP client: {0}")]
    Client(reqwest::Error),
    /// The fault that the settings asked for.
    #[error("crashed after {0} requests, as the setting crash-after-requests asks")]
    Crashed(u64),
}

/// Takes lines for the service's log.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// A log that hands its lines on.
    pub fn new(line: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(line))
    }

    /// Adds a line.
    pub fn line(&self, text: &str) {
        (self.0)(text);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// Looks up an environment variable.
pub type Environment<'e> = &'e (dyn Fn(&str) -> Option<String> + Sync);

/// Turns true once the service must stop.
pub type Stop = watch::Receiver<bool>;

/// Returns when the service must stop; also when nobody can tell any more.
pub async fn stopped(mut stop: Stop) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Plays a service until it is stopped. `argv` is what follows the program's own words (`vllm serve`, `vllm-router`,
/// `mooncake_master`, `lmcache server`).
///
/// # Errors
/// The service would not start, or died of an injected fault.
pub async fn serve(
    role: Role,
    argv: &[String],
    settings: &Settings,
    environment: Environment<'_>,
    stop: Stop,
    log: Log,
) -> Result<(), SimError> {
    match role {
        Role::Vllm => {
            let args = vllm_args::VllmArgs::parse(argv)?;
            engine_http::serve(args, settings, environment, stop, log).await
        }
        Role::VllmRouter => router::serve(router::RouterArgs::parse(argv)?, settings, stop, log).await,
        Role::Mooncake => kv::serve_mooncake(kv::MooncakeArgs::parse(argv)?, stop, log).await,
        Role::LmCache => kv::serve_lmcache(kv::LmCacheArgs::parse(argv)?, settings, stop, log).await,
    }
}

/// The value behind a mutex; a panic elsewhere leaves nothing here half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
