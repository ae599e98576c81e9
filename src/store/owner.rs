//! Who a process is, in a way that other processes, containers, boots and machines can judge: is it still there?
//!
//! A process on this kernel is judged by pid and start time; one of an earlier boot of this machine is gone; one on
//! another machine, or in a pid namespace that we do not see into, is never presumed dead.

use std::fs;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::ids::Digest;

/// The identity of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Owner {
    /// `/etc/machine-id`; empty where there is none.
    pub machine: String,
    /// The host's name. Machines cloned from one image may share a machine id, so both must agree.
    pub host: String,
    /// The kernel's boot id; empty where there is none.
    pub boot: String,
    /// The pid namespace that `pid` counts in.
    pub pid_namespace: String,
    /// The process.
    pub pid: u32,
    /// When it started, clock ticks since boot: a reused pid has another.
    pub started: u64,
}

/// Whether a process is still there, as far as we can tell from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It runs.
    Alive,
    /// It ended, or its machine restarted.
    Dead,
    /// It is, or was, where we cannot look.
    Elsewhere,
}

impl Owner {
    /// This process.
    pub fn current() -> Self {
        let host = host();
        let pid = std::process::id();
        Self { pid, started: start_time(pid).unwrap_or(0), ..host.clone() }
    }

    /// Whether it is on the kernel that we run on.
    pub fn on_this_kernel(&self) -> bool {
        !self.boot.is_empty() && self.boot == host().boot
    }

    /// Whether its pid and start time mean here what they meant to it.
    pub fn shares_pids(&self) -> bool {
        self.on_this_kernel() && self.pid_namespace == host().pid_namespace
    }

    /// Whether it ran on this machine before it last started.
    pub fn on_an_earlier_boot(&self) -> bool {
        let here = host();
        !self.boot.is_empty()
            && !here.boot.is_empty()
            && self.boot != here.boot
            && !self.machine.is_empty()
            && self.machine == here.machine
            && self.host == here.host
    }

    /// Whether it is still there.
    pub fn presence(&self) -> Presence {
        if self.on_this_kernel() {
            if self.pid_namespace != host().pid_namespace {
                return Presence::Elsewhere;
            }
            return if start_time(self.pid) == Some(self.started) { Presence::Alive } else { Presence::Dead };
        }
        if self.on_an_earlier_boot() { Presence::Dead } else { Presence::Elsewhere }
    }

    /// A file-name part that only processes carry whose pids we can judge, apart from the boot.
    pub(crate) fn tag(&self) -> String {
        let place = format!("{}\0{}\0{}", self.machine, self.host, self.pid_namespace);
        let boot = Digest::of(self.boot.as_bytes()).hex();
        format!("{}-{}-{}-{}", &Digest::of(place.as_bytes()).hex()[..12], &boot[..12], self.pid, self.started)
    }
}

/// Whether the process that wrote a [tag](Owner::tag) is gone for sure.
pub(crate) fn tagged_dead(tag: &str) -> bool {
    let own = Owner::current();
    let own_tag = own.tag();
    let mut ours = own_tag.split('-');
    let mut parts = tag.split('-');
    let (Some(place), Some(boot), Some(pid), Some(started)) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let (Ok(pid), Ok(started)) = (pid.parse::<u32>(), started.parse::<u64>()) else { return false };
    if own.boot.is_empty() || ours.next() != Some(place) {
        return false;
    }
    if ours.next() == Some(boot) { start_time(pid) != Some(started) } else { !own.machine.is_empty() }
}

/// `pid 4711 on HOST`.
impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {} on {}", self.pid, if self.host.is_empty() { "an unnamed host" } else { &self.host })
    }
}

/// What all processes of this machine share.
fn host() -> &'static Owner {
    static HOST: OnceLock<Owner> = OnceLock::new();
    HOST.get_or_init(|| {
        let read = |path| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        Owner {
            machine: read("/etc/machine-id"),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: read("/proc/sys/kernel/random/boot_id"),
            pid_namespace: fs::read_link("/proc/self/ns/pid")
                .map(|link| link.to_string_lossy().into_owned())
                .unwrap_or_default(),
            pid: 0,
            started: 0,
        }
    })
}

/// When a live process started, clock ticks since boot. A zombie is not live: it is dead and merely unreaped.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name stands in parentheses and may hold anything, so count fields from its end.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_a_reused_pid_is_not() {
        let me = Owner::current();
        assert_eq!(me.presence(), Presence::Alive);
        assert_eq!(Owner { started: me.started + 1, ..me.clone() }.presence(), Presence::Dead);
        assert!(!tagged_dead(&me.tag()));
        assert!(tagged_dead(&Owner { started: me.started + 1, ..me }.tag()));
    }

    #[test]
    fn an_unreaped_child_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while start_time(pid).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().unwrap();
    }

    #[test]
    fn only_an_earlier_boot_of_this_very_machine_is_dead() {
        let me = Owner::current();
        let boot = "another".to_owned();
        assert_eq!(Owner { boot: boot.clone(), machine: "m".into(), ..me.clone() }.presence(), Presence::Elsewhere);
        assert_eq!(Owner { boot: boot.clone(), host: "h".into(), ..me.clone() }.presence(), Presence::Elsewhere);
        assert_eq!(Owner { boot: boot.clone(), machine: String::new(), ..me.clone() }.presence(), Presence::Elsewhere);
        assert_eq!(Owner { pid_namespace: "pid:[1]".into(), ..me.clone() }.presence(), Presence::Elsewhere);
        if !me.machine.is_empty() {
            assert_eq!(Owner { boot: boot.clone(), ..me.clone() }.presence(), Presence::Dead);
            assert!(tagged_dead(&Owner { boot: boot.clone(), ..me.clone() }.tag()));
        }
        assert!(!tagged_dead(&Owner { boot, machine: "m".into(), ..me }.tag()));
        assert!(!tagged_dead("garbage"));
    }
}
