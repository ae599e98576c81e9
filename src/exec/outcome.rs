//! What an attempt came to: how it ended, when, and where its output lies. Values; reading output is downstream's affair.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::exit::Exit;

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// When it began.
    #[serde(with = "timestamp")]
    pub started: Timestamp,
    /// When everything was stopped.
    #[serde(with = "timestamp")]
    pub ended: Timestamp,
    /// In order: `allocate`, `start`, `client`, `stop`, as far as it came.
    pub phases: Vec<Phase>,
    /// Every binding as bound, by name: `server.http.port`, `server:file(x.json)`, `cache(aiperf)`.
    pub bindings: BTreeMap<String, String>,
    /// The directory that the client was told to write to.
    pub client_output: PathBuf,
    /// The counter samples, JSON lines (see `counters`). Absent on disk if the client never started.
    pub counters: PathBuf,
    /// One log a process: `server.log`, `server@1.log` for a second instance, and the client's.
    pub logs: PathBuf,
    /// Every process that was started, the client last.
    pub processes: Vec<ProcessReport>,
}

impl Outcome {
    /// The phase of that name, if it came so far.
    pub fn phase(&self, name: PhaseName) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// The failure, if it failed.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.end {
            End::Failed(failure) => Some(failure),
            End::Completed | End::Cancelled => None,
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The client ended with status 0 while every service stayed up.
    Completed,
    /// Something went wrong.
    Failed(Failure),
    /// It was told to stop.
    Cancelled,
}

/// A stretch of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Which.
    pub name: PhaseName,
    /// When it began.
    #[serde(with = "timestamp")]
    pub started: Timestamp,
    /// How long it took, s.
    pub seconds: f64,
}

/// The stretches of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseName {
    /// Nodes, ports, files.
    Allocate,
    /// Services up to the last one's readiness.
    Start,
    /// The client.
    Client,
    /// Teardown.
    Stop,
}

/// A process of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProcessReport {
    /// Its service.
    pub service: String,
    /// Which replica, from 0.
    pub instance: u64,
    /// The executor's handle, such as `pid:4711:START`.
    pub handle: String,
    /// Seconds from start to readiness; none if it never was ready (or is the client).
    pub ready_after: Option<f64>,
    /// How it ended, by itself or when stopped; none if it could not be stopped.
    pub exit: Option<Exit>,
    /// Its log.
    pub log: PathBuf,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose fault.
    pub kind: FailureKind,
    /// The service it is about; none if it is about the whole job.
    pub service: Option<String>,
    /// One sentence.
    pub message: String,
    /// The log to read.
    pub log: Option<PathBuf>,
    /// The log's last lines when it failed, secrets masked.
    pub tail: Vec<String>,
}

impl Failure {
    /// A failure without a log.
    pub fn new(kind: FailureKind, service: Option<&str>, message: impl Into<String>) -> Self {
        Self { kind, service: service.map(str::to_owned), message: message.into(), log: None, tail: Vec::new() }
    }
}

/// The sentence, then the log's last lines and path.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for line in &self.tail {
            write!(f, "\n  | {line}")?;
        }
        match &self.log {
            Some(log) => write!(f, "\n  log: {}", log.display()),
            None => Ok(()),
        }
    }
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The spec describes nothing that could run: a cycle, an unknown service.
    Spec,
    /// This host lacks something: a program, a fact, the model.
    Host,
    /// Something that may pass: a taken port, a full disk, a killed supervisor. The only kind worth another try.
    Infrastructure,
    /// A service ended or did not do its work.
    Service,
    /// The client ended with an error.
    Client,
    /// A service was not ready, or the client not done, in time.
    Timeout,
}

/// The last `lines` lines of a log, from its last 64 KiB. Empty when it cannot be read.
pub fn log_tail(path: &Path, lines: usize) -> Vec<String> {
    use std::io::{Read, Seek, SeekFrom};
    const WINDOW: u64 = 64 * 1024;
    let read = || -> std::io::Result<(bool, Vec<u8>)> {
        let mut file = std::fs::File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(WINDOW);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(WINDOW).read_to_end(&mut bytes)?;
        Ok((start > 0, bytes))
    };
    let Ok((cut, bytes)) = read() else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    // The first line of a cut window is a piece of one, unless it is all there is.
    let skip = usize::from(cut && text.lines().nth(1).is_some());
    let all: Vec<&str> = text.lines().skip(skip).collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
}

/// Timestamps as RFC 3339 text.
pub mod timestamp {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(at)
    }

    /// Reads it.
    ///
    /// # Errors
    /// Text that is no RFC 3339 timestamp.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tail_is_its_last_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("x.log");
        assert!(log_tail(&log, 3).is_empty());
        std::fs::write(&log, "one\ntwo\nthree\nhalf").unwrap();
        assert_eq!(log_tail(&log, 2), ["three", "half"]);
        std::fs::write(&log, format!("{}\nlast\n", "x".repeat(70_000))).unwrap();
        assert_eq!(log_tail(&log, 9), ["last"]);
        std::fs::write(&log, b"\xff\n").unwrap();
        assert_eq!(log_tail(&log, 9), ["\u{fffd}"]);
    }

    #[test]
    fn a_failure_shows_its_log() {
        let mut failure = Failure::new(FailureKind::Service, Some("server"), "server exited with status 1");
        failure.tail = vec!["CUDA error".to_owned()];
        failure.log = Some("/s/logs/server.log".into());
        assert_eq!(failure.to_string(), "server exited with status 1\n  | CUDA error\n  log: /s/logs/server.log");
    }
}
