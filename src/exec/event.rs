//! What happens during a job, as it happens. Reporters consume these; nothing here prints.
//!
//! Events carry names, addresses and times, never environment values: a secret cannot be in one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::exit::Exit;
use super::outcome::{Failure, FailureKind, timestamp};
use crate::ids::JobHash;

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// When.
    #[serde(serialize_with = "timestamp::serialize")]
    pub at: Timestamp,
    /// The job's label.
    pub job: String,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// A service's instance, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Who {
    /// The service.
    pub service: String,
    /// Which of its replicas.
    pub instance: u64,
}

/// `server`, or `prefill[2]` beyond the first instance.
impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.instance {
            0 => f.write_str(&self.service),
            instance => write!(f, "{}[{instance}]", self.service),
        }
    }
}

/// What happened. Durations are seconds when serialized.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// The attempt began.
    Began {
        /// The job's name.
        hash: JobHash,
        /// Counted from 1.
        attempt: u32,
    },
    /// Nodes and ports are allocated; services start next.
    Allocated,
    /// An instance is being started.
    Starting(Who),
    /// It runs. The handle is the executor's: enough to find it again by hand.
    Started {
        /// Which.
        #[serde(flatten)]
        who: Who,
        /// Such as `pid:4711:START`.
        handle: String,
    },
    /// It passed its probe.
    Ready {
        /// Which.
        #[serde(flatten)]
        who: Who,
        /// Since it was started.
        #[serde(serialize_with = "seconds")]
        after: Duration,
    },
    /// Every service is ready and the client runs.
    ClientStarted,
    /// An engine's counters could not be read.
    ScrapeFailed {
        /// Which.
        #[serde(flatten)]
        who: Who,
        /// Why.
        message: String,
    },
    /// The client ended.
    ClientEnded {
        /// How.
        exit: Exit,
        /// Since it was started.
        #[serde(serialize_with = "seconds")]
        after: Duration,
    },
    /// The job failed and is being kept: its services stay up until the run is cancelled.
    Holding {
        /// Why it failed.
        failure: Failure,
        /// Where the services listen: `server.http` → `HOST:PORT`.
        endpoints: BTreeMap<String, String>,
    },
    /// Services are being stopped.
    Stopping,
    /// An instance is gone, with all its descendants.
    Stopped {
        /// Which.
        #[serde(flatten)]
        who: Who,
        /// How it ended.
        exit: Exit,
    },
    /// An instance could not be stopped: something of it may still run.
    Stuck {
        /// Which.
        #[serde(flatten)]
        who: Who,
        /// What is known.
        message: String,
    },
    /// The attempt is over.
    Ended {
        /// How.
        end: EndKind,
    },
}

/// How an attempt ended, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndKind {
    /// The client ended with status 0.
    Completed,
    /// Something went wrong.
    Failed(FailureKind),
    /// It was told to stop.
    Cancelled,
}

/// Where a run sends its events.
pub type EventSender = UnboundedSender<Event>;

/// A channel for events. A run goes on when the receiver is dropped.
pub fn channel() -> (EventSender, UnboundedReceiver<Event>) {
    unbounded_channel()
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object() {
        let event = Event {
            at: Timestamp::UNIX_EPOCH,
            job: "a".to_owned(),
            what: What::Ready {
                who: Who { service: "server".to_owned(), instance: 0 },
                after: Duration::from_millis(1500),
            },
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"at":"1970-01-01T00:00:00Z","job":"a","event":"ready","service":"server","instance":0,"after":1.5}"#
        );
        let event = Event { what: What::Stopping, ..event };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"at":"1970-01-01T00:00:00Z","job":"a","event":"stopping"}"#
        );
    }
}
