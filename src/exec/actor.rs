//! A service made of words, to try executors with: `say TEXT`, `sleep MS`, `serve PORT`, … one after the other, then its
//! end with status 0. The in-memory executor plays it in this process; tests play it in a process of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::spec::{
    ClientOutput, Deployment, Gates, Group, Hardware, JobSpec, Measurement, Pinned, Probe, Resources, Schema, Server,
    Service, Text, Workload,
};

/// The program in the entrypoint of an actor's service.
pub const PROGRAM: &str = "actor";

/// What an actor cannot do, told to its log; it then ends with this status.
pub const CONFUSED: i32 = 70;

/// A service that plays these words, ready at once, with no endpoint.
pub fn service(name: &str, words: &[&str]) -> Service {
    Service {
        after: Vec::new(),
        argv: words.iter().map(|word| Text::Literal((*word).to_owned())).collect(),
        endpoints: BTreeSet::new(),
        engine: None,
        entrypoint: vec![PROGRAM.to_owned()],
        env: BTreeMap::new(),
        files: BTreeMap::new(),
        group: "main".to_owned(),
        image: None,
        mounts: Vec::new(),
        name: name.to_owned(),
        packages: Vec::new(),
        probe: Probe::AliveAfter { ms: 0 },
        replicas: 1,
        resources: Resources::default(),
    }
}

/// A job of one node with these services and this client.
pub fn spec(services: Vec<Service>, client: Service) -> JobSpec {
    let group = Group { dram_gb: 1, gpus_per_node: 1, name: "main".to_owned(), nodes: 1 };
    let pinned = |id: &str| Pinned { id: id.to_owned(), revision: None };
    JobSpec {
        deployment: Deployment {
            groups: vec![group],
            hardware: Hardware { gpu: "none".to_owned(), runner: "none".to_owned() },
            model: pinned("org/model"),
            services,
            speculative: None,
            substitutions: None,
        },
        measurement: Measurement {
            client,
            concurrency: 1,
            gates: Gates { acceptance_tolerance: None, max_error_ratio: None, min_drafts: None, min_score: None },
            output: ClientOutput::Aiperf,
            server: Server::Fresh,
            workload: Workload { dataset: pinned("org/data"), duration_s: None, seed: None, split: None },
        },
        schema: Schema::V1,
        exploratory: false,
        what_if: Vec::new(),
    }
}

/// Plays words; the status with which the actor ends. What it serves ends with it.
///
/// | words | what it does |
/// |---|---|
/// | `say TEXT` | writes a line to its output |
/// | `env NAME` | writes `NAME=value`, or `NAME unset` |
/// | `sleep MS` | does nothing for so long |
/// | `serve PORT` | from now on answers HTTP with 200 and `requests N`, N counting |
/// | `refuse PORT` | from now on answers HTTP with 503 |
/// | `get URL` | asks, and ends with status 1 unless the answer is 2xx |
/// | `write PATH TEXT` | writes a file |
/// | `cat PATH` | writes a file's content to its output |
/// | `await PATH` | waits until the file is there |
/// | `queue PATH OTHER` | the first to do so makes the file and goes on; later ones wait for the other file |
/// | `deaf` | from now on ignores TERM |
/// | `exit STATUS` | ends |
/// | `hang` | does nothing for ever |
pub async fn play(
    words: &[String],
    env: &BTreeMap<String, String>,
    out: &mut (dyn Write + Send),
    deaf: &AtomicBool,
) -> i32 {
    let mut serving = JoinSet::new();
    let mut words = words.iter().map(String::as_str);
    let result = async {
        while let Some(word) = words.next() {
            let mut next = || words.next().ok_or_else(|| format!("`{word}` wants more words"));
            match word {
                "say" => line(out, next()?)?,
                "env" => {
                    let name = next()?;
                    let text = env.get(name).map_or(format!("{name} unset"), |value| format!("{name}={value}"));
                    line(out, &text)?;
                }
                "sleep" => tokio::time::sleep(Duration::from_millis(number(next()?)?)).await,
                "serve" | "refuse" => {
                    let port = number(next()?)?;
                    let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
                    serving.spawn(answer(listener, word == "serve"));
                }
                "get" => {
                    let url = next()?;
                    let http = super::readiness::http_client().map_err(|error| error.to_string())?;
                    let answer = http.get(url).send().await.and_then(reqwest::Response::error_for_status);
                    if let Err(error) = answer {
                        line(out, &format!("{error:?}"))?;
                        return Ok(1);
                    }
                }
                "write" => std::fs::write(next()?, next()?).map_err(|error| error.to_string())?,
                "cat" => line(out, &std::fs::read_to_string(next()?).map_err(|error| error.to_string())?)?,
                "await" => appears(next()?).await,
                "queue" => {
                    let (path, other) = (next()?, next()?);
                    if std::fs::File::create_new(path).is_err() {
                        appears(other).await;
                    }
                }
                "deaf" => deaf.store(true, Ordering::SeqCst),
                "exit" => return number(next()?),
                "hang" => std::future::pending().await,
                other => return Err(format!("`{other}` is no word of an actor")),
            }
        }
        Ok(0)
    };
    match result.await {
        Ok(status) => status,
        Err(message) => {
            let _ = line(out, &message);
            CONFUSED
        }
    }
}

/// Resolves once a file is there.
async fn appears(path: &str) {
    while !std::path::Path::new(path).exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn line(out: &mut (dyn Write + Send), text: &str) -> Result<(), String> {
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

/// Answers every request in the same way.
async fn answer(listener: TcpListener, well: bool) {
    let count = Arc::new(AtomicU64::new(0));
    while let Ok((mut stream, _)) = listener.accept().await {
        let count = Arc::clone(&count);
        tokio::spawn(async move {
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(bytes) => request.extend_from_slice(&buffer[..bytes]),
                }
            }
            let body = format!("requests {}\n", count.fetch_add(1, Ordering::SeqCst) + 1);
            let status = if well { "200 OK" } else { "503 Service Unavailable" };
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
            let _ = stream.shutdown().await;
        });
    }
}
