//! The descendants of this process, from `/proc`: whoever forked, left its group or called `setsid` included.
//!
//! It needs a subreaper above the processes (see `supervisor`): an orphan then becomes our child, and stays in the tree.
//! It does not know why they run.

use std::collections::BTreeMap;
use std::fs;

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
    fn a_child_is_seen_until_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(living().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!living().contains(&pid));
    }
}
