//! Stdout and stderr: closed pipes, full disks, colour, JSON on failure.

use std::fs;
use std::process::Stdio;

use crate::env::Env;

#[test]
fn a_closed_pipe_ends_quietly() {
    let env = Env::new();
    let binary = env!("CARGO_BIN_EXE_ixbuild");
    let mut shell = env.command("sh");
    shell.env("IXBUILD", binary).args(["-c", "{ \"$IXBUILD\" plan; echo \"exit $?\" >&2; } | head -1"]);
    let said = env.said(&mut shell).ok();
    assert_eq!(said.out, "dsv4-fp4-b200-vllm-agentic/agentic\n");
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("profile quick") && lines[1] == "exit 0", "{}", said.err);
}

#[test]
fn data_that_cannot_be_written_is_an_error() {
    let env = Env::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = env.command(env!("CARGO_BIN_EXE_ixbuild"));
    let output = command.args(["plan", "--json"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("cannot write to stdout"), "{err}");
}

#[test]
fn a_stderr_that_is_gone_does_not_stop_a_run() {
    let env = Env::new();
    let mut command = env.command("sh");
    command.env("IXBUILD", env!("CARGO_BIN_EXE_ixbuild")).args(["-c", "exec \"$IXBUILD\" run tp8-resident-c1 2>&-"]);
    let said = env.said(&mut command).ok();
    assert!(said.out.ends_with("1 arm: 1 recorded\n"), "{}", said.out);
}

#[test]
fn there_is_no_colour_off_a_terminal_and_no_bar() {
    let env = Env::new();
    let mut command = env.command(env!("CARGO_BIN_EXE_ixbuild"));
    let said = env.said(command.env("TERM", "xterm-256color").args(["run", "tp8-resident-c1"])).ok();
    assert!(!said.out.contains('\x1b') && !said.err.contains('\x1b') && !said.err.contains('\r'), "{:?}", said.err);
}

#[test]
fn a_terminal_gets_colour_unless_told_otherwise() {
    let env = Env::new();
    let on_terminal = |names: &[(&str, &str)]| {
        // `script` gives its command a terminal.
        let mut command = env.command("script");
        command.envs(names.iter().copied()).args(["-qec"]).stdin(Stdio::null());
        command.arg(format!("{} plan nonsense", env!("CARGO_BIN_EXE_ixbuild"))).arg("/dev/null");
        match command.output() {
            Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "CI has no script(1): {error}");
                eprintln!("SKIPPED: there is no script(1)");
                None
            }
        }
    };
    let Some(coloured) = on_terminal(&[("TERM", "xterm")]) else { return };
    assert!(coloured.contains("\x1b[") && coloured.contains("no arm or config key"), "{coloured:?}");
    for names in [[("NO_COLOR", "1"), ("TERM", "xterm")], [("NO_COLOR", ""), ("TERM", "dumb")]] {
        let plain = on_terminal(&names).unwrap();
        assert!(!plain.contains('\x1b') && plain.contains("error: no arm or config key"), "{plain:?}");
    }
}

#[test]
fn json_is_one_object_even_when_it_fails() {
    let env = Env::new();
    for (args, code) in [
        (&["plan", "nonsense", "--json"][..], 2),
        (&["run", "--json"], 2),
        (&["show", "job:00", "--json"], 2),
        (&["show", "tp8-resident-mtp-c1-eval", "--json"], 4),
        (&["why", "nonsense", "--json"], 2),
        (&["diff", "tp8-resident-c1", "nonsense", "--json"], 2),
        (&["plan", "--profile", "nonsense", "--json"], 3),
        (&["plan", "--store", "/dev/null", "--json"], 5),
    ] {
        let said = env.ixbuild(args).ended(code);
        let error = &said.json()["error"];
        assert_eq!(error["code"], code, "{args:?}");
        assert!(error["message"].as_str().is_some_and(|message| said.err.contains(message)), "{args:?}: {error}");
    }
}
