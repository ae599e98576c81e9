//! What a run is given: the job, and what the host provides. Nothing of it is hashed but the spec.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::JobHash;
use crate::spec::JobSpec;

/// One attempt at one job.
#[derive(Debug, Clone)]
pub struct Job {
    /// For messages; not identity.
    pub label: String,
    /// The job's name.
    pub hash: JobHash,
    /// What to run, and all that is run.
    pub spec: Arc<JobSpec>,
    /// This attempt's own directory: missing or empty before, kept after. Its parents are made.
    pub scratch: PathBuf,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Time limits of this job that differ from the host's.
    pub limits: Limits,
    /// After a failure, leave the services up until the run is cancelled.
    pub keep_on_failure: bool,
}

/// Time limits of one job.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Service → how long it may take to be ready.
    pub ready_timeout: BTreeMap<String, Duration>,
    /// How long the client may run.
    pub client_timeout: Option<Duration>,
}

/// What the host provides.
#[derive(Debug, Clone)]
pub struct Host {
    /// Facts that specs ask for by name, such as `rdma-devices`.
    pub facts: BTreeMap<String, String>,
    /// Model id → where its weights are. A job with substitutions gets the id itself for a model that is not here.
    pub models: BTreeMap<String, PathBuf>,
    /// Where caches lie that outlive jobs; each is a directory in it.
    pub caches: PathBuf,
    /// Names of variables of our own environment that processes get. Their values are never shown or recorded.
    pub secrets: Vec<String>,
    /// `PATH` of local processes.
    pub path: String,
    /// How often and how long to ask and wait.
    pub timing: Timing,
    /// The running executable: the supervisor of local processes, and the cast of a rehearsal.
    pub ixbuild: PathBuf,
}

/// How often and how long to ask and wait.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Between two questions whether a service is ready.
    pub poll: Duration,
    /// How long a service may take to be ready.
    pub ready_timeout: Duration,
    /// Between TERM and KILL.
    pub grace: Duration,
    /// Between two samples of the engines' counters.
    pub scrape_interval: Duration,
    /// How long the client may run.
    pub client_timeout: Duration,
}

/// Those of a real engine: polls every 5 s, an hour to get ready, 30 s to stop, a sample every 5 s, 12 h for the client.
impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(5),
            ready_timeout: Duration::from_secs(3600),
            grace: Duration::from_secs(30),
            scrape_interval: Duration::from_secs(5),
            client_timeout: Duration::from_secs(12 * 3600),
        }
    }
}

/// A value that is passed on and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Host {
    /// The secrets that our environment holds; a name that it does not hold is left out.
    pub fn secret_values(&self) -> BTreeMap<String, Secret> {
        let value = |name: &String| Some((name.clone(), Secret(std::env::var(name).ok()?)));
        self.secrets.iter().filter_map(value).collect()
    }
}

/// Puts the names of secrets in the place of their values. Values under 6 characters are left alone: masking them would
/// hit words at random.
pub fn mask(text: &str, secrets: &BTreeMap<String, Secret>) -> String {
    let mut masked = text.to_owned();
    for (name, Secret(value)) in secrets {
        if value.len() >= 6 {
            masked = masked.replace(value.as_str(), &format!("(${name})"));
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_and_has_no_debug_form() {
        let secrets = BTreeMap::from([
            ("HF_TOKEN".to_owned(), Secret("hf_abcdef".to_owned())),
            ("SHORT".to_owned(), Secret("on".to_owned())),
        ]);
        assert_eq!(mask("token hf_abcdef on", &secrets), "token ($HF_TOKEN) on");
        assert!(!format!("{secrets:?}").contains("hf_abcdef"));
    }
}
