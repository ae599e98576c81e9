//! Samples of the engines' counters while the client runs: each engine's own `/metrics`, never a router's.
//!
//! One sample before the client starts, one every interval, one after it ended, as JSON lines
//! `{"t_ns", "took_ns", "service", "instance", "text"}`: `t_ns` is Unix time in ns at the middle of the request, `took_ns` how
//! long it took (the engine read its counters at some instant within), `text` the Prometheus exposition as it came. What the
//! counters mean is downstream's affair.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;

use super::event::Who;

/// The endpoint of an engine that answers `/metrics`.
pub const ENDPOINT: &str = "http";

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Unix time of the request's middle, ns.
    pub t_ns: u64,
    /// How long the request took, ns.
    pub took_ns: u64,
    /// The engine's service.
    pub service: String,
    /// Which replica, from 0.
    pub instance: u64,
    /// Prometheus exposition text.
    pub text: String,
}

/// Reads some engines' counters into a file.
#[derive(Debug)]
pub struct Scraper {
    targets: Vec<(Who, String)>,
    http: reqwest::Client,
    path: PathBuf,
    file: Mutex<File>,
}

impl Scraper {
    /// For engines at these base URLs, into a new file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(targets: Vec<(Who, String)>, http: reqwest::Client, path: &Path) -> io::Result<Self> {
        let targets = targets.into_iter().map(|(who, base)| (who, format!("{base}/metrics"))).collect();
        let file = Mutex::new(File::options().append(true).create_new(true).open(path)?);
        Ok(Self { targets, http, path: path.to_owned(), file })
    }

    /// One sample of each engine, all at once. A failed one is told to `failed` and costs nothing else.
    pub async fn sample(&self, failed: &(dyn Fn(&Who, String) + Sync)) {
        join_all(self.targets.iter().map(|(who, url)| async move {
            if let Err(message) = self.sample_one(who, url).await {
                failed(who, message);
            }
        }))
        .await;
    }

    /// Samples every interval, for ever, the first after one interval.
    pub async fn keep_sampling(&self, interval: Duration, failed: &(dyn Fn(&Who, String) + Sync)) -> Infallible {
        let interval = interval.max(Duration::from_millis(1));
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.sample(failed).await;
        }
    }

    async fn sample_one(&self, who: &Who, url: &str) -> Result<(), String> {
        let (before, clock) = (SystemTime::now(), Instant::now());
        let answer = async {
            let answer = self.http.get(url).send().await?.error_for_status()?;
            answer.text().await
        };
        let text = answer.await.map_err(|error| chain(&error))?;
        let took = clock.elapsed();
        let t_ns = (before + took / 2).duration_since(UNIX_EPOCH).map_or(0, nanoseconds);
        let sample =
            Sample { t_ns, took_ns: nanoseconds(took), service: who.service.clone(), instance: who.instance, text };
        let mut line = serde_json::to_vec(&sample).map_err(|error| error.to_string())?;
        line.push(b'\n');
        // One write a line, and no await while the lock is held: lines stay whole.
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(&line).map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// An error with its causes, the most telling of which reqwest leaves out of its message.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
