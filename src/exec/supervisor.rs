//! `ixbuild supervise`: the process between ixbuild and a service, so that no service outlives its owner.
//!
//! ```text
//! ixbuild ──socket or pipe on stdin──► ixbuild supervise -- vllm serve … ──► vllm ──► engine cores, workers, …
//! ```
//!
//! The supervisor is a subreaper: an orphaned descendant becomes its child, whatever group or session it moved to. Its
//! owner holds the other end of its stdin. End of file there (the owner stopped the service, or was killed), SIGTERM,
//! SIGINT or SIGHUP, or the end of the command itself, makes it end every descendant: TERM, then after the grace period
//! KILL, until none is left. Then it ends as the command did: with its status, or by its signal.
//!
//! When stdin is a socket it also reports there, a line each: [`Report`]. It knows no service, spec or log.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::descendants;
use super::exit::Exit;

/// How long KILLed processes may take to vanish before they are given up (a process stuck in the kernel never does).
pub const STUCK: Duration = Duration::from_secs(10);

/// What the supervisor tells its owner, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The command runs under this process id.
    Started(i32),
    /// The command could not be started.
    CannotStart {
        /// Whether the program is missing or not executable, as opposed to a shortage that may pass.
        program: bool,
        /// The system's words.
        why: String,
    },
    /// The command ended; its descendants are being ended.
    Ended(Exit),
}

impl Report {
    /// The line, without its newline.
    pub fn to_line(&self) -> String {
        match self {
            Report::Started(pid) => format!("started {pid}"),
            Report::CannotStart { program: true, why } => format!("no-program {}", why.replace('\n', " ")),
            Report::CannotStart { program: false, why } => format!("no-start {}", why.replace('\n', " ")),
            Report::Ended(Exit::Code(code)) => format!("exited {code}"),
            Report::Ended(Exit::Signal(number)) => format!("killed {number}"),
            Report::Ended(Exit::Lost) => "lost".to_owned(),
        }
    }

    /// Reads a line back; none for any other text.
    pub fn from_line(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "started" => Report::Started(rest.parse().ok()?),
            "no-program" => Report::CannotStart { program: true, why: rest.to_owned() },
            "no-start" => Report::CannotStart { program: false, why: rest.to_owned() },
            "exited" => Report::Ended(Exit::Code(rest.parse().ok()?)),
            "killed" => Report::Ended(Exit::Signal(rest.parse().ok()?)),
            "lost" => Report::Ended(Exit::Lost),
            _ => return None,
        })
    }
}

/// Why the supervisor cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// No command was given.
    #[error("nothing to supervise: pass a command after `--`")]
    NoCommand,
    /// The kernel refused what the supervisor needs.
    #[error("cannot {what}: {source}")]
    Setup {
        /// What was refused.
        what: &'static str,
        /// The system's words.
        source: std::io::Error,
    },
    /// The command does not start.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// First word of the command.
        program: String,
        /// The system's words.
        source: std::io::Error,
    },
}

/// Runs a command until it ends or the owner is gone, and ends all its descendants. Returns how the command ended.
///
/// # Errors
/// The command cannot be started, or the kernel refuses the subreaper or the signal handlers.
pub fn supervise(command: &[String], grace: Duration) -> Result<Exit, SuperviseError> {
    let setup = |what| move |source: std::io::Error| SuperviseError::Setup { what, source };
    let (program, arguments) = command.split_first().ok_or(SuperviseError::NoCommand)?;
    set_child_subreaper(Some(getpid())).map_err(|errno| setup("become a subreaper")(errno.into()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(setup("set up the supervisor's event loop"))?;
    runtime.block_on(async {
        let owner = std::io::stdin().as_fd().try_clone_to_owned().map_err(setup("read stdin"))?;
        let mut reports = std::fs::File::from(owner.try_clone().map_err(setup("report on stdin"))?);
        // Only a socket carries it; on a pipe or a terminal there is nobody to read reports, or nobody at all.
        let mut report = move |report: Report| drop(reports.write_all(format!("{}\n", report.to_line()).as_bytes()));

        let handler = |kind| signal(kind).map_err(setup("handle signals"));
        let mut died = handler(SignalKind::child())?;
        let mut stops =
            [handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?, handler(SignalKind::hangup())?];
        let gone = owner_gone(std::fs::File::from(owner));

        // A group of its own, so that a service that signals its whole group does not hit its supervisor.
        let spawned = Command::new(program).args(arguments).stdin(Stdio::null()).process_group(0).spawn();
        let main = match spawned {
            Ok(child) => i32::try_from(child.id()).unwrap_or_default(),
            Err(source) => {
                let program_fault = matches!(source.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied);
                report(Report::CannotStart { program: program_fault, why: source.to_string() });
                return Err(SuperviseError::Start { program: program.clone(), source });
            }
        };
        report(Report::Started(main));

        let [terminate, interrupt, hangup] = &mut stops;
        let stopped = async {
            tokio::select! {
                _ = gone => {}
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
        };
        tokio::pin!(stopped);
        let mut ended = None;
        while ended.is_none() {
            ended = reap(main).main;
            if ended.is_some() {
                break;
            }
            tokio::select! {
                _ = died.recv() => {}
                () = &mut stopped => break,
            }
        }
        if let Some(exit) = ended {
            report(Report::Ended(exit));
        }
        let later = end_descendants(main, grace, &mut died).await;
        let exit = ended.or(later).unwrap_or(Exit::Lost);
        if ended.is_none() {
            report(Report::Ended(exit));
        }
        Ok(exit)
    })
}

/// Resolves when the other end of `owner` is closed. A thread of its own, because stdin may be of any kind.
async fn owner_gone(mut owner: std::fs::File) {
    let (tell, told) = tokio::sync::oneshot::channel();
    let watch = move || {
        let mut buffer = [0; 64];
        loop {
            match owner.read(&mut buffer) {
                Ok(0) => break,
                Err(error) if error.kind() != ErrorKind::Interrupted => break,
                Ok(_) | Err(_) => {}
            }
        }
        // The receiver is gone when the command ended first.
        let _ = tell.send(());
    };
    let spawned = std::thread::Builder::new().name("owner".to_owned()).spawn(watch);
    // Without a thread there is no way to see the owner go: better to stop now. The sender is dropped, which resolves `told`.
    drop(spawned);
    let _ = told.await;
}

/// What a look at our children found.
#[derive(Debug, Default)]
struct Reaped {
    /// How the command ended, if it is among them.
    main: Option<Exit>,
    /// There are no children any more, and so no descendants: orphans would be our children.
    none_left: bool,
}

/// Collects every ended child.
fn reap(main: i32) -> Reaped {
    let mut found = Reaped::default();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == main => {
                let signal = || status.terminating_signal().map(Exit::Signal);
                found.main = status.exit_status().map(Exit::Code).or_else(signal);
            }
            Ok(Some(_)) => {}
            Ok(None) => return found,
            // ECHILD is the only way to fail without a signal handler in between.
            Err(errno) => return Reaped { none_left: errno == rustix::io::Errno::CHILD, ..found },
        }
    }
}

/// TERM to every descendant, KILL after the grace period, until none is left; how `main` ended, if it ends here.
async fn end_descendants(main: i32, grace: Duration, died: &mut tokio::signal::unix::Signal) -> Option<Exit> {
    const LOOK: Duration = Duration::from_millis(20);
    let patience = Instant::now() + grace;
    let mut told: Vec<Pid> = Vec::new();
    let mut ended = None;
    loop {
        let reaped = reap(main);
        ended = reaped.main.or(ended);
        if reaped.none_left || Instant::now() > patience + STUCK {
            return ended;
        }
        for pid in descendants::living() {
            if Instant::now() >= patience {
                descendants::signal(pid, Signal::KILL);
            } else if !told.contains(&pid) {
                told.push(pid);
                descendants::signal(pid, Signal::TERM);
                // A stopped process acts on TERM only once it runs again.
                descendants::signal(pid, Signal::CONT);
            }
        }
        tokio::select! {
            _ = died.recv() => {}
            () = sleep(LOOK) => {}
        }
    }
}

/// Ends this process as the command ended. Returns the exit code to use when that was no signal.
pub fn mirror(exit: Exit) -> u8 {
    match exit {
        Exit::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
        Exit::Lost => u8::MAX,
        Exit::Signal(number) => {
            let code = die_by(number);
            // This process handles TERM, INT and HUP; a fresh image of it does not.
            let error = Command::new("/proc/self/exe").args(["supervise", "--die-by", &number.to_string()]).exec();
            drop(error);
            code
        }
    }
}

/// Ends this process by a signal. If it survives (the runtime ignores PIPE), the exit code that shells use for it.
pub fn die_by(number: i32) -> u8 {
    if let Some(signal) = Signal::from_named_raw(number) {
        // No second core dump beside the command's own; ignoring the error costs but a file.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        // Twice: the runtime's handler for SEGV and BUS uses up the first.
        let _ = kill_process(getpid(), signal);
        let _ = kill_process(getpid(), signal);
    }
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_read_back_as_written() {
        for report in [
            Report::Started(12),
            Report::CannotStart { program: true, why: "No such file".to_owned() },
            Report::CannotStart { program: false, why: "x".to_owned() },
            Report::Ended(Exit::Code(3)),
            Report::Ended(Exit::Signal(9)),
            Report::Ended(Exit::Lost),
        ] {
            assert_eq!(Report::from_line(&report.to_line()), Some(report));
        }
        assert_eq!(Report::from_line("hello"), None);
    }
}
