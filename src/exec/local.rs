//! Services as child processes of this host, each under a supervisor of its own (see `supervisor`).
//!
//! A supervisor that is itself killed tells nothing more; what it watched over is then found by the log it writes to.
//!
//! All groups of a job are this host, so only jobs with substitutions (a rehearsal, the cpu profile) may have several
//! nodes, or services that want a container: what is measured here is not what the spec's images would do.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::descendants;
use super::executor::{Address, Allocation, Executor, Instance, Launch, Left, Place, StartError};
use super::exit::Exit;
use super::host::{Host, Job};
use super::ports::{PortError, PortRegistry};
use super::supervisor::{Report, STUCK};

/// Runs services as child processes.
#[derive(Debug, Clone)]
pub struct Local {
    ports: PortRegistry,
}

impl Local {
    /// With the ports of this user.
    ///
    /// # Errors
    /// The directory of port locks does not work.
    pub fn new() -> Result<Self, PortError> {
        Ok(Self { ports: PortRegistry::of_user()? })
    }
}

impl Executor for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn allocate<'a>(&'a self, job: &'a Job, host: &'a Host) -> BoxFuture<'a, Result<Box<dyn Allocation>, StartError>> {
        let spec = &job.spec;
        let refused = if spec.deployment.substitutions.is_some() {
            None
        } else if let Some(service) = spec.processes().find(|service| service.image.is_some()) {
            Some(format!("{} runs in an image, and local processes have none: use the docker profile", service.name))
        } else if spec.deployment.groups.iter().map(|group| group.nodes).sum::<u64>() > 1 {
            Some("the job wants several nodes, and local processes have one".to_owned())
        } else {
            None
        };
        let room = Room {
            ports: self.ports.clone(),
            ixbuild: host.ixbuild.clone(),
            path: host.path.clone(),
            started: Mutex::default(),
        };
        let result = match refused {
            Some(message) => Err(StartError::host(message)),
            None => Ok(Box::new(room) as Box<dyn Allocation>),
        };
        std::future::ready(result).boxed()
    }

    fn clear<'a>(&'a self, left: &'a Left) -> BoxFuture<'a, Result<Vec<String>, StartError>> {
        clear(left).boxed()
    }
}

/// The room of one job: this host.
struct Room {
    ports: PortRegistry,
    ixbuild: PathBuf,
    path: String,
    /// Every process that was started.
    started: Mutex<Vec<watch::Receiver<State>>>,
}

impl Allocation for Room {
    fn endpoint(&self, _place: &Place) -> Result<Address, StartError> {
        self.ports.take().map(Address::local).map_err(|error| StartError::passing(error.to_string()))
    }

    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<Arc<dyn Instance>, StartError>> {
        async move {
            let missing = launch.mounts.iter().find(|mount| mount.source != mount.target);
            if let (false, Some(mount)) = (launch.played, missing) {
                let (name, target) = (&launch.service.name, &mount.target);
                let message = format!("{name} wants {target} mounted, and local processes have no mounts");
                return Err(StartError::host(message));
            }
            let process = Process::spawn(self, &launch)?;
            self.started.lock().unwrap_or_else(PoisonError::into_inner).push(process.state.clone());
            process.started(&launch).await?;
            Ok(Arc::new(process) as Arc<dyn Instance>)
        }
        .boxed()
    }

    /// Waits for those whose start was given up: they are ending.
    fn release(&self) -> BoxFuture<'_, ()> {
        let started = std::mem::take(&mut *self.started.lock().unwrap_or_else(PoisonError::into_inner));
        async move {
            for mut state in started {
                let _ = timeout(STUCK, state.wait_for(|state| state.gone)).await;
            }
        }
        .boxed()
    }
}

/// A process under its supervisor.
struct Process {
    grace: Duration,
    /// Our end of the supervisor's stdin; closing it ends everything below.
    owner: Mutex<Option<OwnedWriteHalf>>,
    state: watch::Receiver<State>,
}

/// What is known of a process.
#[derive(Debug, Clone, Default)]
struct State {
    /// What its supervisor first said.
    start: Option<Report>,
    /// When its main process started, clock ticks since boot; 0 if that had ended by then.
    since: u64,
    /// How it ended.
    exit: Option<Exit>,
    /// Its supervisor ended too: nothing of it is left.
    gone: bool,
}

impl Process {
    /// Starts the supervisor. The caller waits for the state to say how that went.
    fn spawn(room: &Room, launch: &Launch) -> Result<Self, StartError> {
        let failed = |what: String| {
            let name = launch.service.name.clone();
            move |error: io::Error| StartError::passing(format!("cannot start {name}: {what}: {error}"))
        };
        let log_fault = || failed(launch.log.display().to_string());
        let log = File::options().create(true).append(true).open(&launch.log).map_err(log_fault())?;
        let (ours, theirs) = StdUnixStream::pair().map_err(failed("socket".to_owned()))?;
        ours.set_nonblocking(true).map_err(failed("socket".to_owned()))?;
        let (reports, owner) = UnixStream::from_std(ours).map_err(failed("socket".to_owned()))?.into_split();

        let mut command = Command::new(&room.ixbuild);
        command.args(["supervise", "--grace-ms", &launch.grace.as_millis().to_string(), "--"]).args(&launch.command);
        command.env_clear().env("PATH", &room.path);
        command.env("HOME", launch.scratch.join("home")).env("TMPDIR", launch.scratch.join("tmp"));
        command.envs(launch.secrets.iter().map(|(name, secret)| (name, &secret.0))).envs(&launch.env);
        command.current_dir(launch.scratch.join("work"));
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(log.try_clone().map_err(log_fault())?).stderr(log);
        // Ctrl-C at the terminal is for ixbuild alone, which then stops the job in order.
        command.process_group(0);
        let child = command.spawn().map_err(failed(room.ixbuild.display().to_string()))?;
        // `command` still holds the supervisor's end of the socket: it must not outlive this function.
        let (tell, state) = watch::channel(State::default());
        tokio::spawn(follow(child, BufReader::new(reports), launch.log.clone(), tell));
        Ok(Self { grace: launch.grace, owner: Mutex::new(Some(owner)), state })
    }

    /// Waits until the process runs.
    async fn started(&self, launch: &Launch) -> Result<(), StartError> {
        let name = &launch.service.name;
        let mut state = self.state.clone();
        let said = match state.wait_for(|state| state.start.is_some() || state.gone).await {
            Ok(state) => state.start.clone(),
            Err(_) => None,
        };
        match said {
            Some(Report::Started(_)) => Ok(()),
            Some(Report::CannotStart { program, why }) => {
                let message = format!("cannot start {name}: `{}`: {why}", launch.command[0]);
                Err(if program { StartError::host(message) } else { StartError::passing(message) })
            }
            Some(Report::Ended(_)) | None => {
                Err(StartError::passing(format!("cannot start {name}: its supervisor ended, see its log")))
            }
        }
    }

    /// Its pid and start time; the latter is 0 for one that ended at once.
    fn identity(&self) -> (i32, u64) {
        let state = self.state.borrow();
        match state.start {
            Some(Report::Started(pid)) => (pid, state.since),
            _ => (0, 0),
        }
    }
}

/// Reads what a supervisor says, and sees it end.
async fn follow(mut child: Child, mut reports: BufReader<OwnedReadHalf>, log: PathBuf, tell: watch::Sender<State>) {
    loop {
        let mut line = String::new();
        let read = reports.read_line(&mut line).await;
        if !read.is_ok_and(|bytes| bytes > 0) {
            break;
        }
        tell.send_modify(|state| match Report::from_line(line.trim_end()) {
            Some(Report::Ended(exit)) => state.exit = Some(exit),
            Some(report) => {
                if let Report::Started(pid) = report {
                    state.since = descendants::started(pid).unwrap_or(0);
                }
                state.start = Some(report);
            }
            None => {}
        });
    }
    let _ = child.wait().await;
    if tell.borrow().exit.is_none() {
        // No last word: the supervisor was killed. What it watched over is still to be ended.
        end_writers(&log).await;
    }
    tell.send_modify(|state| {
        state.exit = state.exit.or(Some(Exit::Lost));
        state.gone = true;
    });
}

/// Ends the processes of an attempt whose owner is dead. Their supervisors do so by themselves, as their owner's end of the
/// socket is closed: this waits for them, and does their work where they were killed too.
async fn clear(left: &Left) -> Result<Vec<String>, StartError> {
    const LOOK: Duration = Duration::from_millis(20);
    let foreign = |handle: &String| StartError::host(format!("cannot end `{handle}`: it is no local process"));
    let handles = left.handles.iter().map(|handle| parse_handle(handle).ok_or_else(|| foreign(handle)));
    let handles = handles.collect::<Result<Vec<_>, _>>()?;
    let living = || {
        let noted = handles.iter().filter(|(pid, start)| descendants::started(*pid) == Some(*start));
        let mut found: Vec<Pid> = noted.filter_map(|(pid, _)| Pid::from_raw(*pid)).collect();
        let others = left.scratch.iter().flat_map(|scratch| descendants::of_attempt(scratch));
        found.extend(others.filter(|pid| !found.contains(pid)).collect::<Vec<_>>());
        found
    };
    let patience = Instant::now() + left.grace;
    let mut told: Vec<Pid> = Vec::new();
    loop {
        let living = living();
        let words = |pids: &[Pid]| pids.iter().map(|pid| format!("pid {}", pid.as_raw_nonzero())).collect::<Vec<_>>();
        if living.is_empty() {
            return Ok(words(&told));
        }
        if Instant::now() > patience + STUCK {
            let message = format!("{} of an attempt whose owner is dead do not end", words(&living).join(", "));
            return Err(StartError::passing(message));
        }
        for pid in living {
            if Instant::now() >= patience {
                descendants::signal(pid, Signal::KILL);
            } else if !told.contains(&pid) {
                told.push(pid);
                descendants::signal(pid, Signal::TERM);
                descendants::signal(pid, Signal::CONT);
            }
        }
        sleep(LOOK).await;
    }
}

/// Pid and start time from `pid:4711:START`.
fn parse_handle(handle: &str) -> Option<(i32, u64)> {
    let (pid, start) = handle.strip_prefix("pid:")?.split_once(':')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// KILL to every process that writes to a log, until none is left.
async fn end_writers(log: &Path) {
    let patience = Instant::now() + STUCK;
    while Instant::now() < patience {
        let writers = descendants::writers(log);
        if writers.is_empty() {
            return;
        }
        writers.into_iter().for_each(|pid| descendants::signal(pid, Signal::KILL));
        sleep(Duration::from_millis(20)).await;
    }
}

impl Instance for Process {
    fn handle(&self) -> String {
        let (pid, start) = self.identity();
        format!("pid:{pid}:{start}")
    }

    fn exited(&self) -> BoxFuture<'_, Exit> {
        let mut state = self.state.clone();
        async move {
            match state.wait_for(|state| state.exit.is_some()).await {
                Ok(state) => state.exit.unwrap_or(Exit::Lost),
                // The runtime is going down.
                Err(_) => Exit::Lost,
            }
        }
        .boxed()
    }

    fn stop(&self) -> BoxFuture<'_, Result<Exit, StartError>> {
        drop(self.owner.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut state = self.state.clone();
        let patience = self.grace + STUCK + Duration::from_secs(5);
        async move {
            match timeout(patience, state.wait_for(|state| state.gone)).await {
                Ok(Ok(state)) => Ok(state.exit.unwrap_or(Exit::Lost)),
                Ok(Err(_)) | Err(_) => {
                    let (pid, _) = self.identity();
                    Err(StartError::passing(format!("pid {pid} or a descendant of it does not end")))
                }
            }
        }
        .boxed()
    }
}
