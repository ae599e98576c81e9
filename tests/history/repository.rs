//! A project in a repository of its own: a copy of this one's inputs, git without the user's settings, and `ixbuild` in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub const KEY: &str = "dsv4-fp4-b200-vllm-agentic";
pub const MTP: &str = "dsv4-fp4-b200-vllm-agentic-mtp";
pub const MASTER: &str = "configs/nvidia-master.yaml";
pub const CHANGELOG: &str = "perf-changelog.yaml";

/// A changelog with one entry.
pub const ONE: &str = "\
- config-keys:
    - dsv4-*
  description:
    - \"The first sweep\"
  pr-link: https://example.com/org/repo/pull/1
";

pub struct Repository {
    pub dir: tempfile::TempDir,
    home: tempfile::TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Itself, if the command succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Makes sure that it failed in the documented way: this code, nothing on stdout, these words on stderr.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &str) {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{self:?}");
        assert!(self.err.starts_with("error: ") && self.err.contains(words), "no `{words}` in {}", self.err);
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Repository {
    /// This project's inputs, and a changelog of one entry, as the first commit (tag `base`).
    pub fn new() -> Self {
        let made = Self::empty();
        let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in ["configs", "golden_al_distribution"] {
            copy(&tree.join(folder), &made.path(folder));
        }
        fs::copy(tree.join("ixbuild.lock"), made.path("ixbuild.lock")).unwrap();
        made.write(CHANGELOG, ONE);
        made.commit("base");
        made.git(&["tag", "base"]);
        made
    }

    /// A repository without a commit.
    pub fn empty() -> Self {
        let made = Self { dir: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() };
        made.git(&["init", "-q", "-b", "main"]);
        made
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(path), text).unwrap();
    }

    /// Appends to a file.
    pub fn append(&self, path: &str, text: &str) {
        self.write(path, format!("{}{text}", self.read(path)));
    }

    /// Replaces a part of a file, which must be there.
    #[track_caller]
    pub fn edit(&self, path: &str, old: &str, new: &str) {
        let text = self.read(path);
        assert!(text.contains(old), "no `{old}` in {path}");
        self.write(path, text.replace(old, new));
    }

    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"])
            .args(args)
            .current_dir(self.dir.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("HOME", self.home.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Commits everything.
    pub fn commit(&self, message: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
    }

    /// An `ixbuild` command, without the caller's settings.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ixbuild"));
        command.args(args).current_dir(self.dir.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("IXBUILD_") || name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        for name in ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"] {
            command.env(name, self.home.path());
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("NO_COLOR", "1");
        command
    }

    pub fn ixbuild(&self, args: &[&str]) -> Said {
        self.command(args).output().unwrap().into()
    }

    /// `changelog check --base base --json`.
    pub fn check(&self) -> Said {
        self.ixbuild(&["changelog", "check", "--base", "base", "--json"])
    }
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
