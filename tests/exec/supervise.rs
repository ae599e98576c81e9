//! `ixbuild supervise`: ends as its command does, and ends everything when its owner is gone.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use crate::bench::{IXBUILD, eventually, lives, number_in};

fn supervise(grace_ms: u32, script: &str) -> Child {
    Command::new(IXBUILD)
        .args(["supervise", "--grace-ms", &grace_ms.to_string(), "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits without closing its stdin first, as `Child::wait` would.
fn wait(mut child: Child) -> std::process::ExitStatus {
    let _owner = child.stdin.take();
    child.wait().unwrap()
}

#[test]
fn it_ends_as_its_command_does() {
    assert_eq!(wait(supervise(50, "exit 7")).code(), Some(7));
    assert_eq!(wait(supervise(50, "exit 0")).code(), Some(0));
    assert_eq!(wait(supervise(50, "kill -KILL $$")).signal(), Some(9));
    assert_eq!(wait(supervise(50, "kill -SEGV $$")).signal(), Some(11));
    let missing =
        Command::new(IXBUILD).args(["supervise", "--", "no-such-program"]).stdin(Stdio::piped()).output().unwrap();
    assert_eq!(missing.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot start `no-such-program`"));
}

#[test]
fn a_descendant_does_not_outlive_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = format!("setsid sleep 600 & echo $! > {}; exit 3", file.display());
    assert_eq!(wait(supervise(50, &script)).code(), Some(3));
    assert!(!lives(number_in(&file)));
}

#[test]
fn closing_its_stdin_ends_all_descendants() {
    let directory = tempfile::tempdir().unwrap();
    let far = directory.path().join("far");
    // A chain: shell, shell in a session of its own whose parent ends, and a child of that.
    let script = format!(
        "(setsid sh -c 'trap \"\" TERM; sleep 600 & echo $! > {}; while :; do sleep 1; done' &); while :; do sleep 1; done",
        far.display()
    );
    let mut child = supervise(100, &script);
    let pid = number_in(&far);
    assert!(lives(pid));
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert!(!lives(pid));
}

#[test]
fn nothing_survives_a_kill_of_the_holder_of_the_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let (near, supervisor) = (directory.path().join("near"), directory.path().join("supervisor"));
    let service = format!("echo $PPID > {}; echo $$ > {}; sleep 600", supervisor.display(), near.display());
    // The holder keeps the writing end of the supervisor's stdin.
    let mut holder = Command::new("sh")
        .args(["-c", &format!("tail -f /dev/null | '{IXBUILD}' supervise --grace-ms 100 -- sh -c '{service}'")])
        .process_group_of_its_own()
        .spawn()
        .unwrap();
    let (near, supervisor) = (number_in(&near), number_in(&supervisor));
    assert!(lives(near) && lives(supervisor));
    let tail = children_of(i32::try_from(holder.id()).unwrap()).into_iter().find(|pid| *pid != supervisor).unwrap();
    assert!(Command::new("kill").args(["-9", &tail.to_string()]).status().unwrap().success());
    eventually("supervisor and service are gone", || !lives(near) && !lives(supervisor));
    holder.wait().unwrap();
}

#[test]
fn it_survives_a_service_that_signals_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = format!("setsid sleep 600 & echo $! > {}; kill -9 0", file.display());
    assert_eq!(wait(supervise(50, &script)).signal(), Some(9));
    assert!(!lives(number_in(&file)), "the supervisor lived on to end it");
}

#[test]
fn a_termination_is_passed_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = format!("trap 'exit 5' TERM; echo $$ > {}; while :; do sleep 0.05; done", file.display());
    let child = supervise(60_000, &script);
    let pid = number_in(&file);
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(wait(child).code(), Some(5));
    assert!(!lives(pid));
}

trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}

fn children_of(parent: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit(')').next().unwrap_or_default();
        after.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    })
    .collect()
}
