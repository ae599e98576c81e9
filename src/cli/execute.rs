//! Runs tasks on this machine for the verbs that do: host and executor of a profile, signals, progress.
//!
//! Knows neither where the tasks come from nor what their results mean.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::error::Error;
use super::printer::Printer;
use super::progress::Progress;
use crate::config::profile::Profile;
use crate::exec::provenance::Git;
use crate::exec::{Host, Local, Timing, cancellation};
use crate::store::Store;
use crate::sweep::{Context, Finish, Task, sweep};

/// How tasks are run, beside the profile.
pub struct How {
    /// The state of the project's repository.
    pub git: Option<Git>,
    /// Valid records that make a hit.
    pub records: usize,
    /// Whether recorded jobs run again.
    pub rerun: bool,
    /// Jobs at a time.
    pub jobs: NonZeroUsize,
    /// Start nothing more after a failure.
    pub fail_fast: bool,
    /// Further tries after failures of the infrastructure.
    pub retries: u32,
    /// After a failure, leave the job's services up until it is stopped.
    pub keep_on_failure: bool,
    /// How long the whole is expected to take.
    pub expected: Duration,
}

/// Runs tasks with progress on stderr; what became of each, in order. Ctrl-C, SIGTERM and SIGHUP stop every
/// process, unless we were started with them ignored (`nohup`, a background job of a script).
///
/// # Errors
/// This machine cannot start processes.
pub fn execute(
    tasks: &[Task],
    how: How,
    profile: &Profile,
    store: &Store,
    printer: Printer,
) -> Result<Vec<Finish>, Error> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Error::environment(format!("tokio: {error}")))?;
    let executor = Local::new().map_err(|error| Error::environment(error.to_string()))?;
    let host = host(profile)?;
    let context = Context {
        store,
        executor: &executor,
        host: &host,
        scratch: scratch_root(),
        git: how.git,
        records: how.records,
        rerun: how.rerun,
        jobs: how.jobs,
        fail_fast: how.fail_fast,
        retries: how.retries,
        keep_on_failure: how.keep_on_failure,
    };
    Ok(runtime.block_on(async {
        let (canceller, cancel) = cancellation();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut progress = Progress::new(tasks, how.expected, printer);
        let mut work = std::pin::pin!(sweep(tasks, &context, &sender, &cancel));
        let mut signals = Signals::new();
        let finishes = loop {
            tokio::select! {
                biased;
                Some(notice) = receiver.recv() => progress.notice(&notice),
                finishes = &mut work => break finishes,
                () = signals.next() => {
                    canceller.cancel();
                    progress.say(&format!("stopping every process; logs stay in {}", context.scratch.display()));
                }
            }
        };
        while let Ok(notice) = receiver.try_recv() {
            progress.notice(&notice);
        }
        progress.end();
        finishes
    }))
}

/// The signals that stop a sweep.
struct Signals(Vec<tokio::signal::unix::Signal>);

impl Signals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let wanted = kinds.into_iter().filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
        Self(wanted.filter_map(|kind| signal(kind).ok()).collect())
    }

    async fn next(&mut self) {
        std::future::poll_fn(|context| match self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        })
        .await;
    }
}

/// The signals that a process ignores, a bit each, from its `/proc` status.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn host(profile: &Profile) -> Result<Host, Error> {
    let timing = &profile.timing;
    let ixbuild =
        std::env::current_exe().map_err(|error| Error::environment(format!("the path of this program: {error}")))?;
    Ok(Host {
        facts: profile.host.clone(),
        models: profile.models.clone(),
        caches: scratch_root().join("caches"),
        secrets: profile.secrets.clone(),
        path: std::env::var("PATH").unwrap_or_default(),
        timing: Timing {
            poll: Duration::from_millis(timing.poll_ms),
            ready_timeout: Duration::from_secs(timing.ready_timeout_s),
            grace: Duration::from_secs(timing.grace_s),
            scrape_interval: Duration::from_millis(timing.scrape_ms),
            client_timeout: Duration::from_secs(timing.client_timeout_s),
        },
        ixbuild,
    })
}

/// Where attempts keep their files while they run; those of failures stay.
fn scratch_root() -> PathBuf {
    match std::env::var_os("IXBUILD_SCRATCH") {
        Some(root) if !root.is_empty() => root.into(),
        _ => std::env::temp_dir().join(format!("ixbuild-{}", rustix::process::getuid().as_raw())),
    }
}
