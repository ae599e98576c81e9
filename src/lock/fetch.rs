//! GET with a time limit, a size limit and retries. Knows hosts and statuses, and nothing of what is fetched.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Client, StatusCode, Url};

use crate::net;

/// How often to try.
const ATTEMPTS: u32 = 3;

/// The pause before the second try; it doubles with each one.
const PAUSE: Duration = Duration::from_millis(250);

/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(30);

/// The largest body, bytes: pages of projects with tens of thousands of files stay below.
const LARGEST: usize = 128 << 20;

/// What a server answered.
pub(super) struct Answer {
    pub status: StatusCode,
    /// The media type; empty when none is given.
    pub kind: String,
    pub body: Vec<u8>,
}

/// No answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum FetchError {
    #[error("cannot reach {host}: {why}")]
    Unreachable { host: String, why: String },
    #[error("{host} answers {status} (asked {ATTEMPTS} times)")]
    Status { host: String, status: StatusCode },
    #[error("{host} answers with more than {} MiB", LARGEST >> 20)]
    TooLarge { host: String },
}

/// Fetches; remembers which hosts cannot be reached, so that each costs its time limits once.
pub(super) struct Fetcher {
    client: Client,
    dead: Mutex<BTreeMap<String, FetchError>>,
}

/// One try.
enum Try {
    Answer(Answer),
    Again(FetchError, Option<Duration>),
    Never(FetchError),
}

impl Fetcher {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let client = net::remote().connect_timeout(CONNECT).read_timeout(SILENCE).build()?;
        Ok(Self { client, dead: Mutex::default() })
    }

    /// Any answer but those of an overloaded or failing server, which is asked again.
    pub(super) async fn get(&self, url: &Url, accept: &str, bearer: Option<&str>) -> Result<Answer, FetchError> {
        let host = host(url);
        let mut pause = PAUSE;
        let mut tries = 1;
        loop {
            if let Some(error) = self.dead.lock().unwrap_or_else(PoisonError::into_inner).get(&host) {
                return Err(error.clone());
            }
            match self.ask(url, accept, bearer, &host).await {
                Try::Answer(answer) => return Ok(answer),
                Try::Again(_, asked) if tries < ATTEMPTS => {
                    tokio::time::sleep(asked.unwrap_or(pause).min(LONGEST_PAUSE)).await;
                    pause *= 2;
                    tries += 1;
                }
                Try::Again(error, _) => {
                    if matches!(error, FetchError::Unreachable { .. }) {
                        self.dead.lock().unwrap_or_else(PoisonError::into_inner).insert(host, error.clone());
                    }
                    return Err(error);
                }
                Try::Never(error) => return Err(error),
            }
        }
    }

    async fn ask(&self, url: &Url, accept: &str, bearer: Option<&str>, host: &str) -> Try {
        let lost = |error| Try::Again(FetchError::Unreachable { host: host.to_owned(), why: net::causes(error) }, None);
        let mut request = self.client.get(url.clone()).header("accept", accept);
        if let Some(token) = bearer {
            request = request.bearer_auth(token);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return lost(error),
        };
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
            let asked = header("retry-after").and_then(|value| value.trim().parse().ok()).map(Duration::from_secs);
            return Try::Again(FetchError::Status { host: host.to_owned(), status }, asked);
        }
        let kind = header("content-type").unwrap_or_default().to_owned();
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            match chunk {
                Ok(chunk) => body.extend_from_slice(&chunk),
                Err(error) => return lost(error),
            }
            if body.len() > LARGEST {
                return Try::Never(FetchError::TooLarge { host: host.to_owned() });
            }
        }
        Try::Answer(Answer { status, kind, body })
    }
}

/// Host and port as messages name them.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
