//! A hermetic environment: a copy of this project's inputs with quick rehearsal profiles, and nothing inherited.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than anything here takes on a busy machine.
pub const LONG: Duration = Duration::from_secs(90);

/// An arm with an engine and a client.
pub const ARM: &str = "dsv4-fp4-b200-vllm-agentic-mtp/agentic/tp8-resident-mtp-c1";
/// Another.
pub const OTHER: &str = "dsv4-fp4-b200-vllm-agentic/agentic/tp8-resident-c1";

pub struct Env {
    dir: tempfile::TempDir,
}

impl Env {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for name in ["configs", "golden_al_distribution", "ixbuild.lock"] {
            copy(&here.join(name), &dir.path().join("project").join(name));
        }
        let env = Self { dir };
        let built_in = std::fs::read_to_string(here.join("src/config/profiles/rehearsal.yaml")).unwrap();
        // `quick` measures a quarter of a second, `steady` a while, `endless` longer than any test.
        for (name, ms) in [("quick", 250), ("steady", 2_500), ("endless", 600_000)] {
            let profile = built_in.replace(
                "client: {duration-ms: 1000, warmup-ms: 200}",
                &format!("client: {{duration-ms: {ms}, warmup-ms: 50}}"),
            );
            assert_ne!(profile, built_in);
            let profile =
                profile.replace("grace-s: 5", "grace-s: 2").replace("client-timeout-s: 120", "client-timeout-s: 1200");
            env.write(&format!("configs/profiles/{name}.yaml"), &profile);
        }
        env
    }

    pub fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.project().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Replaces text in an input file.
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.project().join(path)).unwrap();
        assert!(text.contains(from), "{path} holds no `{from}`");
        self.write(path, &text.replace(from, to));
    }

    /// `ixbuild`, or another program in its place, with these arguments.
    pub fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(self.project());
        command.env("PATH", "/usr/bin:/bin").env("HOME", self.dir.path());
        command.env("IXBUILD_STORE", self.store()).env("IXBUILD_SCRATCH", self.scratch());
        command.env("IXBUILD_PROFILE", "quick").stdin(Stdio::null());
        command
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_ixbuild"), args)
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// One that must succeed, as JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        serde_json::from_str(&ran.out).unwrap()
    }

    /// Starts one in the background.
    pub fn start(&self, args: &[&str]) -> Background {
        Background::start(self.command(args))
    }

    /// The job of an arm, as a profile makes it.
    pub fn job(&self, arm: &str, profile: &str) -> String {
        self.json(&["show", arm, "--profile", profile])["job"].as_str().unwrap().to_owned()
    }

    /// The outcomes of a job's attempts, oldest first.
    pub fn attempts(&self, job: &str) -> Vec<String> {
        let shown = self.run(&["show", job, "--json"]);
        if shown.code == 2 {
            return Vec::new();
        }
        let shown: Value = serde_json::from_str(&shown.out).unwrap();
        shown["attempts"].as_array().unwrap().iter().map(|one| one["outcome"].as_str().unwrap().to_owned()).collect()
    }

    /// Processes of this environment's attempts, whoever their parents are.
    pub fn processes(&self) -> Vec<i32> {
        let scratch = format!("={}/", self.scratch().display());
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = |pid: &i32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let text = String::from_utf8_lossy(&environ).into_owned();
            text.split('\0').any(|one| one.starts_with("TMPDIR=") && one.contains(&scratch)) && lives(*pid)
        };
        pids.filter(ours).collect()
    }

    /// Waits until `ps` shows so many jobs in a phase.
    pub fn until_phase(&self, phase: &str, jobs: usize) -> Value {
        let mut last = Value::Null;
        eventually(&format!("{jobs} × {phase}"), || {
            last = self.json(&["ps"]);
            last.as_array().unwrap().iter().filter(|one| one["phase"] == phase).count() == jobs
        });
        last
    }
}

/// No test leaves a process behind, even one that fails.
impl Drop for Env {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, "KILL");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).unwrap();
    }
}

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// An `ixbuild` in the background, whose stderr is read as it comes.
pub struct Background {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    pub said: String,
}

impl Background {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, said: String::new() }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Waits for the next line on stderr that holds some words; the line.
    pub fn until(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended without `{words}`: {}", self.said);
            self.said.push_str(&line);
            if line.contains(words) {
                return line;
            }
        }
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ran {
        let mut out = String::new();
        let mut rest = String::new();
        // Outputs here are far smaller than a pipe holds.
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.stderr.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        Ran { code: status.code().unwrap_or(-1), out, err: std::mem::take(&mut self.said) + &rest }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn lives(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

pub fn signal(pid: i32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
