//! A hermetic environment for a command: a copy of this tree's inputs, an own store, scratch folder and home, and an
//! environment that holds nothing else. What a command says is made comparable before it meets a snapshot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Arms that [`Env::recorded`] has records of: with and without speculation, router, and each kind of KV store.
pub const RECORDED: [&str; 5] = [
    "tp8-resident-c1",
    "tp8-lmcache-c8",
    "tp8-resident-mtp-c1",
    "tp8-ep8-dpa-vllm-simple-mtp-c8",
    "tp8-ep8-dpa-mooncake-mtp-c12",
];

/// One key's name ends where the other's goes on.
pub const KEY: &str = "dsv4-fp4-b200-vllm-agentic";
pub const MTP: &str = "dsv4-fp4-b200-vllm-agentic-mtp";

/// A project and everything that a command may touch.
pub struct Env {
    dir: tempfile::TempDir,
}

/// What a command said.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
    dir: PathBuf,
}

impl Env {
    /// A project without records, and the profile `quick`.
    pub fn new() -> Self {
        let env = Self { dir: tempfile::Builder::new().prefix("ixbuild-cli-").tempdir().unwrap() };
        let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in ["configs", "golden_al_distribution"] {
            copy(&tree.join(folder), &env.path(folder));
        }
        fs::copy(tree.join("ixbuild.lock"), env.path("ixbuild.lock")).unwrap();
        for folder in ["home", "scratch"] {
            fs::create_dir(env.dir.path().join(folder)).unwrap();
        }
        env.profile("quick", &[]);
        env
    }

    /// A project with records of [`RECORDED`], made once and copied.
    pub fn recorded() -> Self {
        static MADE: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
        let files = MADE.get_or_init(|| {
            let env = Self::new();
            let args: Vec<&str> = ["run"].into_iter().chain(RECORDED).collect();
            let said = env.ixbuild(&args).ok();
            assert!(said.out.ends_with("5 arms: 5 recorded\n"), "{}", said.out);
            let mut files = Vec::new();
            collect(&env.store(), &env.store(), &mut files);
            files
        });
        let env = Self::new();
        for (path, bytes) in files {
            let path = env.store().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        env
    }

    /// The built-in rehearsal, a quarter of a second of load an arm, with some texts of it replaced.
    pub fn profile(&self, name: &str, edits: &[(&str, &str)]) {
        let mut text = include_str!("../../src/config/profiles/rehearsal.yaml").to_owned();
        let quick = ("{duration-ms: 1000, warmup-ms: 200}", "{duration-ms: 250, warmup-ms: 50}");
        for (from, to) in [quick].iter().chain(edits) {
            assert!(text.contains(from), "the profile has no `{from}`");
            text = text.replacen(from, to, 1);
        }
        fs::create_dir_all(self.path("configs/profiles")).unwrap();
        fs::write(self.path(&format!("configs/profiles/{name}.yaml")), text).unwrap();
    }

    /// A path of the project.
    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("project").join(path)
    }

    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }

    /// Replaces the first occurrence of a text in a file of the project.
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(path)).unwrap();
        assert!(text.contains(from), "{path} has no `{from}`");
        fs::write(self.path(path), text.replacen(from, to, 1)).unwrap();
    }

    /// A program in the project and in the environment, under the profile `quick`.
    pub fn command(&self, program: &str) -> Command {
        let at = |name: &str| self.dir.path().join(name);
        let mut command = Command::new(program);
        command
            .current_dir(self.path(""))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", at("home"))
            .env("XDG_DATA_HOME", at("home/data"))
            .env("XDG_CACHE_HOME", at("home/cache"))
            .env("XDG_CONFIG_HOME", at("home/config"))
            .env("IXBUILD_STORE", self.store())
            .env("IXBUILD_SCRATCH", self.scratch())
            .env("IXBUILD_PROFILE", "quick")
            .stdin(Stdio::null());
        command
    }

    /// Runs ixbuild.
    pub fn ixbuild(&self, args: &[&str]) -> Said {
        self.said(self.command(env!("CARGO_BIN_EXE_ixbuild")).args(args))
    }

    /// Runs ixbuild as somebody who chose no profile.
    pub fn without_profile(&self, args: &[&str]) -> Said {
        self.said(self.command(env!("CARGO_BIN_EXE_ixbuild")).env_remove("IXBUILD_PROFILE").args(args))
    }

    /// Runs a command to its end.
    pub fn said(&self, command: &mut Command) -> Said {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said {
            code: output.status.code().unwrap_or_else(|| panic!("{command:?}: {}", output.status)),
            out: text(output.stdout),
            err: text(output.stderr),
            dir: self.dir.path().to_owned(),
        }
    }

    /// The arms of a plan by id: state and job hash.
    pub fn plan(&self, args: &[&str]) -> Vec<(String, String, String)> {
        let args: Vec<&str> = ["plan", "--json"].iter().chain(args).copied().collect();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let plan = self.ixbuild(&args).ok().json();
        let arms = plan["arms"].as_array().unwrap();
        arms.iter().map(|arm| (text(&arm["id"]), text(&arm["state"]), text(&arm["job"]))).collect()
    }

    /// The ends of the ids in a state.
    pub fn in_state(&self, state: &str) -> Vec<String> {
        let of_state = self.plan(&[]).into_iter().filter(|(_, found, _)| found == state);
        of_state.map(|(id, ..)| id.rsplit('/').next().unwrap().to_owned()).collect()
    }

    /// Processes that work for a command of this environment: by their command line, folder or environment.
    pub fn processes(&self) -> Vec<String> {
        let mark = self.scratch().display().to_string();
        let works_here = |process: &Path| {
            let read = |file: &str| fs::read(process.join(file)).unwrap_or_default();
            let cwd = fs::read_link(process.join("cwd")).unwrap_or_default();
            let text = [read("cmdline"), read("environ"), cwd.display().to_string().into_bytes()].concat();
            String::from_utf8_lossy(&text).contains(&mark)
        };
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let found = processes.filter(|path| path.join("cmdline").exists() && works_here(path));
        found.map(|path| format!("{}: {}", path.display(), shown(&path.join("cmdline")))).collect()
    }

    /// Waits until nothing works here any more.
    pub fn quiet(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        while !self.processes().is_empty() {
            assert!(Instant::now() < until, "still there: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn shown(cmdline: &Path) -> String {
    String::from_utf8_lossy(&fs::read(cmdline).unwrap_or_default()).replace('\0', " ")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Every file below a folder, by its path from `root`.
pub fn collect(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => collect(root, &entry.path(), files),
            false => {
                let path = entry.path();
                files.push((path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
}

impl Said {
    /// The command ended well.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.ended(0)
    }

    /// The command ended with this code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Stdout as exactly one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}:\n{}", self.out))
    }

    /// As [`Said::transcript`], with measured numbers as `N` and blanks between columns as two.
    pub fn measured(&self) -> String {
        let number = |word: &str| match word.strip_prefix("score").unwrap_or(word).split_once('.') {
            Some((whole, part)) if digits(whole) && digits(part) => "N".to_owned(),
            _ => word.to_owned(),
        };
        let line = |line: &str| {
            let indent = &line[..line.len() - line.trim_start().len()];
            let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
            let cells: Vec<String> =
                cells.map(|cell| cell.split(' ').map(number).collect::<Vec<_>>().join(" ")).collect();
            let indent = if indent.len() > 2 { "  " } else { indent };
            format!("{indent}{}\n", cells.join("  "))
        };
        self.transcript().lines().map(line).collect()
    }

    /// Everything that was said, for a snapshot: paths, times and hashes by name.
    pub fn transcript(&self) -> String {
        let exit = if self.code == 0 { String::new() } else { format!("── exit {}\n", self.code) };
        let err = if self.err.is_empty() { String::new() } else { format!("── stderr\n{}", self.err) };
        comparable(&format!("{}{err}{exit}", self.out), &self.dir)
    }
}

/// A text without what differs from run to run.
fn comparable(text: &str, dir: &Path) -> String {
    let dir = dir.display().to_string();
    let mut lines: Vec<String> = Vec::new();
    for line in text.replace(&dir, "$DIR").lines() {
        // The name of an attempt stands at the start of a line; 12 digits elsewhere may be a number.
        let attempt = line.split(' ').next().is_some_and(|word| word.len() == 12 && hex(word));
        let line = if attempt { format!("ATTEMPT     {}", &line[12..]) } else { line.to_owned() };
        let words: Vec<String> = line.split(' ').map(comparable_word).collect();
        lines.push(words.join(" "));
    }
    lines.join("\n") + "\n"
}

fn hex(text: &str) -> bool {
    text.len() >= 12 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn comparable_word(word: &str) -> String {
    let bare = word.trim_end_matches([',', ':', ')', ';']);
    let rest = &word[bare.len()..];
    let open = bare.len() - bare.trim_start_matches('(').len();
    let (open, bare) = bare.split_at(open);
    let named = |name: &str| format!("{open}{name}{rest}");
    if let Some(job) = bare.strip_prefix("job:").filter(|job| hex(job)) {
        return named(if job.len() == 64 { "job:HASH" } else { "job:SHORT" });
    }
    if bare.strip_prefix("sha256:").is_some_and(hex) {
        return named("sha256:DIGEST");
    }
    if bare.len() == 10 && bare.split('-').map(str::len).eq([4, 2, 2]) && bare.split('-').all(digits) {
        return named("DATE");
    }
    if bare.len() == 8 && bare.split(':').map(str::len).eq([2, 2, 2]) && bare.split(':').all(digits) {
        return named("TIME");
    }
    // $DIR/scratch/HASH-PID-TIME-ATTEMPT/…
    if let Some((before, after)) = word.split_once("$DIR/scratch/")
        && let Some((attempt, below)) = after.split_once('/')
        && attempt.contains('-')
    {
        return format!("{before}$DIR/scratch/ATTEMPT/{below}");
    }
    word.to_owned()
}
