//! Where a result comes from: the machine, the tool, the sources, the times, every binding. Recorded beside a result, and
//! no part of the job's hash. Secrets appear by name alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::machine::Machine;
use super::outcome::{Outcome, Phase, ProcessReport, timestamp};

/// Where a result comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Provenance {
    /// The job's label when it ran; not identity.
    pub label: String,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// The executor: `local`, `docker`.
    pub executor: String,
    /// The version of ixbuild.
    pub tool: String,
    /// The configuration's git revision; none outside a repository or without git.
    pub git: Option<Git>,
    /// The machine.
    pub machine: Machine,
    /// When the attempt began.
    #[serde(with = "timestamp")]
    pub started: Timestamp,
    /// When everything was stopped.
    #[serde(with = "timestamp")]
    pub ended: Timestamp,
    /// Its stretches.
    pub phases: Vec<Phase>,
    /// Seconds that services were given to be ready, where it was not the host's default: no part of a spec, so this is where a
    /// reproduction finds them.
    #[serde(default)]
    pub ready_timeouts_s: BTreeMap<String, u64>,
    /// Every binding as bound.
    pub bindings: BTreeMap<String, String>,
    /// Names of the secrets that processes were given.
    pub secrets: Vec<String>,
    /// Every process, with its times and its end.
    pub processes: Vec<ProcessReport>,
}

/// A state of a git repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Git {
    /// The commit that is checked out.
    pub revision: String,
    /// Whether files differ from it, untracked ones included.
    pub dirty: bool,
}

impl Provenance {
    /// Of an attempt that ended. The machine and git state may be gathered once for many.
    pub fn of(
        job: &super::host::Job,
        outcome: &Outcome,
        host: &Host,
        executor: &str,
        machine: Machine,
        git: Option<Git>,
    ) -> Self {
        let timeouts = job.limits.ready_timeout.iter();
        Self {
            label: job.label.clone(),
            attempt: job.attempt,
            executor: executor.to_owned(),
            tool: format!("ixbuild {}", env!("CARGO_PKG_VERSION")),
            git,
            machine,
            started: outcome.started,
            ended: outcome.ended,
            phases: outcome.phases.clone(),
            ready_timeouts_s: timeouts.map(|(name, limit)| (name.clone(), limit.as_secs())).collect(),
            bindings: outcome.bindings.clone(),
            secrets: host.secret_values().into_keys().collect(),
            processes: outcome.processes.clone(),
        }
    }
}

impl Git {
    /// The state of the repository that holds a directory; none without a commit, a repository, or git itself.
    pub fn of(directory: &Path) -> Option<Self> {
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            // Reading must not write: no refreshed index, no locks beside a person's own git.
            command.arg("--no-optional-locks").arg("-C").arg(directory).args(arguments).stdin(Stdio::null());
            let output = command.output().ok().filter(|output| output.status.success())?;
            String::from_utf8(output.stdout).ok()
        };
        let revision = git(&["rev-parse", "--verify", "HEAD"])?.trim().to_owned();
        let dirty = !git(&["status", "--porcelain"])?.is_empty();
        Some(Self { revision, dirty })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_outside_any_repository_has_no_revision() {
        assert_eq!(Git::of(Path::new("/proc")), None);
    }

    #[test]
    fn a_repository_has_a_revision_and_may_be_dirty() {
        let directory = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"];
            let mut command = Command::new("git");
            let output = command.current_dir(directory.path()).args(who).args(arguments).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        git(&["init", "--quiet"]);
        assert_eq!(Git::of(directory.path()), None, "no commit yet");
        git(&["commit", "--quiet", "--allow-empty", "-m", "m"]);
        let clean = Git::of(directory.path()).unwrap();
        assert_eq!((clean.revision.as_str(), clean.dirty), (git(&["rev-parse", "HEAD"]).trim(), false));
        std::fs::write(directory.path().join("new"), "").unwrap();
        assert!(Git::of(directory.path()).unwrap().dirty);
    }
}
