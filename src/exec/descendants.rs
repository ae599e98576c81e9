//! The descendants of this process, from `/proc`: whoever forked, left its group or called `setsid` included.
//!
//! It needs a subreaper above the processes (see `supervisor`): an orphan then becomes our child, and stays in the tree.
//! Where that is gone, [`writers`] finds what is left by the log that it writes to, and [`of_attempt`] by its directory.
//! It does not know why they run.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, getpid, kill_process};

/// The living descendants of this process, parents before children. Zombies are left out: nothing of them runs.
pub fn living() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<(i32, bool)>> = BTreeMap::new();
    for (pid, parent, zombie) in processes() {
        children.entry(parent).or_default().push((pid, zombie));
    }
    let mut found = Vec::new();
    let mut next = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = next.pop() {
        // Removed, so that an inconsistent snapshot cannot send this round in circles.
        for (pid, zombie) in children.remove(&parent).unwrap_or_default() {
            next.push(pid);
            if !zombie {
                found.extend(Pid::from_raw(pid));
            }
        }
    }
    found
}

/// The processes whose stdout or stderr is this file: those of one instance, when it is the instance's log.
pub fn writers(log: &Path) -> Vec<Pid> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let Some(wanted) = identity(log) else { return Vec::new() };
    let writes = |pid: i32| {
        let stream = |number: i32| PathBuf::from(format!("/proc/{pid}/fd/{number}"));
        [1, 2].into_iter().any(|number| identity(&stream(number)) == Some(wanted))
    };
    let own = getpid().as_raw_nonzero().get();
    let found = processes().filter(|(pid, _, zombie)| *pid != own && !zombie && writes(*pid));
    found.filter_map(|(pid, ..)| Pid::from_raw(pid)).collect()
}

/// The processes of an attempt, supervisors included: those that write to one of its logs, or whose `HOME` or `TMPDIR` lies
/// in its directory. A shell or a pager that somebody opened there is none.
pub fn of_attempt(scratch: &Path) -> Vec<Pid> {
    use std::os::unix::ffi::OsStrExt;
    let logs = scratch.join("logs");
    let variables: Vec<Vec<u8>> = [("HOME", "home"), ("TMPDIR", "tmp")]
        .map(|(name, folder)| [name.as_bytes(), b"=", scratch.join(folder).as_os_str().as_bytes()].concat())
        .into();
    let ours = |pid: i32| {
        let stream =
            |number: i32| fs::read_link(format!("/proc/{pid}/fd/{number}")).is_ok_and(|to| to.starts_with(&logs));
        let environment = || fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        stream(1) || stream(2) || environment().split(|byte| *byte == 0).any(|one| variables.iter().any(|v| v == one))
    };
    let own = getpid().as_raw_nonzero().get();
    let found = processes().filter(|(pid, _, zombie)| *pid != own && !zombie && ours(*pid));
    found.filter_map(|(pid, ..)| Pid::from_raw(pid)).collect()
}

/// When a process started, clock ticks since boot: with its id, its identity. None once it ended.
pub fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, zombie) = parse_stat(&stat)?;
    // Field 22, and the state is field 3.
    let start = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(19)?;
    if zombie { None } else { start.parse().ok() }
}

/// Sends a signal; a process that has just ended is no error.
pub fn signal(pid: Pid, signal: Signal) {
    // ESRCH: gone. EPERM: a set-uid program; its end is awaited as that of the others.
    let _ = kill_process(pid, signal);
}

/// Every process that `/proc` shows: its id, its parent's, and whether it is a zombie.
fn processes() -> impl Iterator<Item = (i32, i32, bool)> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // A process that ends between the listing and this read is skipped.
        let (parent, zombie) = parse_stat(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
        Some((pid, parent, zombie))
    })
}

/// Parent and whether it is a zombie, from `pid (name) state parent …`; the name may hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<(i32, bool)> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    Some((fields.next()?.parse().ok()?, matches!(state, "Z" | "X")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_past_any_name() {
        assert_eq!(parse_stat("7 (sh) S 1 7 7 0"), Some((1, false)));
        assert_eq!(parse_stat("7 (a) Z 9 (b) Z 3 7"), Some((3, true)));
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn a_writer_is_found_by_its_log() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").stdout(log.reopen().unwrap()).spawn().unwrap();
        assert_eq!(writers(log.path()), [Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(writers(log.path()).is_empty());
    }

    #[test]
    fn a_process_of_an_attempt_is_found_without_its_supervisor_or_log() {
        let scratch = tempfile::tempdir().unwrap();
        let sleep = |folder: &str| {
            let mut command = std::process::Command::new("sleep");
            // Somebody may look around there, and that is all that the other one does.
            command.arg("60").current_dir(scratch.path()).env("TMPDIR", scratch.path().join(folder)).spawn().unwrap()
        };
        let (mut ours, mut other) = (sleep("tmp"), sleep("another"));
        let pid = i32::try_from(ours.id()).unwrap();
        assert_eq!(of_attempt(scratch.path()), [Pid::from_raw(pid).unwrap()]);
        assert!(started(pid).unwrap() >= started(i32::try_from(std::process::id()).unwrap()).unwrap());
        ours.kill().unwrap();
        ours.wait().unwrap();
        assert_eq!((of_attempt(scratch.path()), started(pid)), (vec![], None));
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_child_is_seen_until_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(living().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!living().contains(&pid));
    }
}
