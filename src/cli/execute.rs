//! Runs tasks on this machine for the verbs that do: host and executor of a profile, signals, progress.
//!
//! Knows neither where the tasks come from nor what their results mean.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Globals;
use super::error::Error;
use super::printer::Printer;
use super::progress::Progress;
use super::project::find;
use crate::config::diagnostic::Diagnostics;
use crate::config::inputs::{Inputs, read_source};
use crate::config::profile::{self, ExecutorKind, Profile};
use crate::exec::provenance::Git;
use crate::exec::{Host, Local, Timing, cancellation};
use crate::spec::JobSpec;
use crate::store::Store;
use crate::sweep::{Context, Finish, Task, sweep};

/// The profile of rehearsals where none is asked for.
const REHEARSAL: &str = "rehearsal";

/// The profile under which a stored spec runs: the one asked for, else `rehearsal` for a rehearsal and the default for what
/// is real; and the project's folder, if there is one. A project is not needed: the built-in profiles need no file, and of a
/// project nothing but its profiles is read.
///
/// # Errors
/// No such profile; a fault in its file; a profile whose executor cannot run the spec.
pub fn profile_for(spec: &JobSpec, globals: &Globals) -> Result<(Profile, Option<PathBuf>), Error> {
    let rehearsal = spec.deployment.substitutions.is_some();
    let root = match &globals.project {
        Some(asked) => Some(find(Some(asked))?),
        None => find(None).ok(),
    };
    let name = globals.profile.as_deref().unwrap_or(if rehearsal { REHEARSAL } else { profile::DEFAULT });
    let inputs = root.as_deref().map_or_else(|| Ok(Inputs::default()), |root| profiles(root, name))?;
    let profile = Profile::load(&inputs, name)?;
    match (rehearsal, profile.executor == ExecutorKind::Local) {
        (true, false) => Err(Error::refused(format!("the job is a rehearsal, which the profile {name} cannot run"))
            .hint(format!("pass --profile {REHEARSAL}, or a profile with `executor: local`"))),
        (false, true) => {
            Err(Error::refused(format!("the job is not a rehearsal, and the profile {name} starts no images"))
                .hint(format!("pass --profile {}, or another with an executor that starts images", profile::DEFAULT)))
        }
        _ => Ok((profile, root)),
    }
}

/// The file of a profile, if the project has it, and the names of the others.
fn profiles(root: &Path, wanted: &str) -> Result<Inputs, Diagnostics> {
    let folder = root.join("configs/profiles");
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = format!("configs/profiles/{}", entry.file_name().to_string_lossy());
        let text = match entry.path().file_stem() {
            Some(stem) if stem == wanted => read_source(&entry.path(), &name)?.text.clone(),
            _ => String::new(),
        };
        texts.push((name, text));
    }
    Ok(Inputs::from_texts(texts))
}

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
