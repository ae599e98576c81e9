//! The simulated `vllm-router`: a proxy of all traffic that keeps a session on one data-parallel rank.
//!
//! Each worker URL stands for as many targets as `--intra-node-data-parallel-size` says. The session header picks the
//! target by consistent hash; the rank goes on to the worker in a header. Bodies of responses are passed on as they come.
//! It is healthy once all workers are. It counts on a Prometheus port of its own, and never retries.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::argv::{ArgvError, COUNT, Grammar, Kind, PORT};
use super::engine_http::RANK_HEADER;
use super::ring::Ring;
use super::settings::Settings;
use super::{Log, SimError, Stop, http, lock};

const GRAMMAR: Grammar = Grammar {
    program: "vllm-router",
    positionals: &[],
    flags: &[
        ("--disable-retries", Kind::Switch),
        ("--host", Kind::Text),
        ("--intra-node-data-parallel-size", COUNT),
        ("--policy", Kind::Choice(&["consistent_hash"])),
        ("--port", PORT),
        ("--prometheus-host", Kind::Text),
        ("--prometheus-port", PORT),
        ("--request-timeout-secs", COUNT),
        ("--worker-startup-check-interval", COUNT),
        ("--worker-urls", Kind::Url),
    ],
};

/// The command line of `vllm-router`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterArgs {
    worker: String,
    ranks: u64,
    host: String,
    port: u16,
    prometheus_host: String,
    prometheus_port: u16,
    timeout: Duration,
    check_interval: Duration,
}

impl RouterArgs {
    /// Reads the words after `vllm-router`.
    ///
    /// # Errors
    /// All faults of the command line.
    pub fn parse(argv: &[String]) -> Result<Self, ArgvError> {
        let mut parsed = GRAMMAR.parse(argv);
        let args = Self {
            worker: parsed.need_text("--worker-urls").trim_end_matches('/').to_owned(),
            ranks: parsed.integer("--intra-node-data-parallel-size").unwrap_or(1),
            host: parsed.need_text("--host"),
            port: parsed.need_port("--port"),
            prometheus_host: parsed.need_text("--prometheus-host"),
            prometheus_port: parsed.need_port("--prometheus-port"),
            timeout: Duration::from_secs(parsed.need_integer("--request-timeout-secs")),
            check_interval: parsed
                .integer("--worker-startup-check-interval")
                .map_or(Duration::from_millis(50), Duration::from_secs),
        };
        parsed.need_text("--policy");
        if !parsed.has("--disable-retries") {
            parsed.conflict("--disable-retries is missing: a retried request would be counted twice");
        }
        if parsed.has("--port") && parsed.integer("--port") == parsed.integer("--prometheus-port") {
            parsed.conflict("--port and --prometheus-port are the same");
        }
        parsed.finish(args)
    }
}

#[derive(Debug)]
struct Proxy {
    client: reqwest::Client,
    worker: String,
    ranks: usize,
    ring: Ring,
    healthy: AtomicBool,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: BTreeMap<String, u64>,
    processed: BTreeMap<usize, u64>,
    errors: BTreeMap<(String, &'static str), u64>,
}

/// Plays `vllm-router` until it is stopped.
pub(super) async fn serve(args: RouterArgs, settings: &Settings, stop: Stop, log: Log) -> Result<(), SimError> {
    let listener = http::bind(&args.host, args.port).await?;
    let metrics_listener = http::bind(&args.prometheus_host, args.prometheus_port).await?;
    let address = http::address(&listener);
    let ranks = usize::try_from(args.ranks).unwrap_or(usize::MAX);
    let names: Vec<String> = (0..ranks).map(|rank| format!("{}@{rank}", args.worker)).collect();
    let client = crate::net::local()
        // Simulated engines listen on the loopback address of IPv4 alone.
        .resolve("localhost", SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .retry(reqwest::retry::never())
        .timeout(args.timeout)
        .build()
        .map_err(SimError::Client)?;
    let proxy = Arc::new(Proxy {
        client,
        ring: Ring::new(names.iter().map(String::as_str)),
        worker: args.worker,
        ranks,
        healthy: AtomicBool::new(false),
        counts: Mutex::new(Counts::default()),
    });
    let front = axum::Router::new().route("/health", get(health)).fallback(forward).with_state(Arc::clone(&proxy));
    let counts = axum::Router::new().route("/metrics", get(metrics)).with_state(Arc::clone(&proxy));
    let drain = Duration::from_millis(settings.drain_ms);
    log.line(&format!("listening on {address} for {ranks} ranks at {}", proxy.worker));
    let served = tokio::select! {
        served = futures_util::future::try_join(
            http::serve(listener, front, stop.clone(), drain),
            http::serve(metrics_listener, counts, stop, drain),
        ) => served.map(|_| ()),
        never = watch_worker(&proxy, args.check_interval, &log) => match never {},
    };
    log.line("stopped");
    served.map_err(|source| SimError::Bind { address, source })
}

/// Turns healthy with the worker, and stays so: the run's own checks notice a death later.
async fn watch_worker(proxy: &Proxy, interval: Duration, log: &Log) -> std::convert::Infallible {
    let url = format!("{}/health", proxy.worker);
    loop {
        let asked = proxy.client.get(&url).send().await;
        if asked.is_ok_and(|response| response.status().is_success()) {
            proxy.healthy.store(true, Ordering::Relaxed);
            log.line("the worker is healthy");
            return std::future::pending().await;
        }
        tokio::time::sleep(interval).await;
    }
}

async fn health(State(proxy): State<Arc<Proxy>>) -> StatusCode {
    if proxy.healthy.load(Ordering::Relaxed) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Headers that concern one connection only.
fn hop_by_hop(name: &HeaderName) -> bool {
    [header::CONNECTION, header::TRANSFER_ENCODING, header::TE, header::TRAILER, header::UPGRADE, header::HOST]
        .contains(name)
        || name.as_str() == "keep-alive"
}

/// The session of a request: its header, else what it says.
fn session<'r>(headers: &'r HeaderMap, body: &'r [u8]) -> &'r [u8] {
    ["x-session-id", "x-correlation-id"]
        .iter()
        .find_map(|name| headers.get(*name).map(HeaderValue::as_bytes).filter(|value| !value.is_empty()))
        .unwrap_or(body)
}

async fn forward(
    State(proxy): State<Arc<Proxy>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let route = uri.path().to_owned();
    *lock(&proxy.counts).requests.entry(route.clone()).or_default() += 1;
    let rank = proxy.ring.target(session(&headers, &body)).unwrap_or(0);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut onward: HeaderMap = HeaderMap::with_capacity(headers.len() + 1);
    for (name, value) in headers.iter().filter(|(name, _)| !hop_by_hop(name)) {
        onward.append(name, value.clone());
    }
    if proxy.ranks > 1 {
        onward.insert(HeaderName::from_static(RANK_HEADER), HeaderValue::from(rank));
    }
    let url = format!("{}{path}", proxy.worker);
    let asked = proxy.client.request(method, url).headers(onward).body(body).send();
    match asked.await {
        Ok(response) => proxy.answer(route, rank, response),
        Err(error) => proxy.failed(route, &error),
    }
}

impl Proxy {
    /// Passes a worker's response on, its body as it comes.
    fn answer(self: &Arc<Self>, route: String, rank: usize, response: reqwest::Response) -> Response {
        let status = response.status();
        {
            let mut counts = lock(&self.counts);
            *counts.processed.entry(rank).or_default() += 1;
            if status.is_server_error() {
                *counts.errors.entry((route.clone(), "upstream")).or_default() += 1;
            }
        }
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = status;
        for (name, value) in response.headers().iter().filter(|(name, _)| !hop_by_hop(name)) {
            answer.headers_mut().append(name, value.clone());
        }
        let proxy = Arc::clone(self);
        let broken = move |_: &reqwest::Error| {
            *lock(&proxy.counts).errors.entry((route.clone(), "stream")).or_default() += 1;
        };
        *answer.body_mut() =
            Body::from_stream(futures_util::TryStreamExt::inspect_err(response.bytes_stream(), broken));
        answer
    }

    /// The answer when the worker gave none.
    fn failed(&self, route: String, error: &reqwest::Error) -> Response {
        let (status, kind) = if error.is_timeout() {
            (StatusCode::GATEWAY_TIMEOUT, "timeout")
        } else {
            (StatusCode::BAD_GATEWAY, "connection")
        };
        *lock(&self.counts).errors.entry((route, kind)).or_default() += 1;
        (status, format!("the worker did not answer: {error}")).into_response()
    }
}

async fn metrics(State(proxy): State<Arc<Proxy>>) -> Response {
    let text = lock(&proxy.counts).render(&proxy.worker, proxy.healthy.load(Ordering::Relaxed));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

impl Counts {
    fn render(&self, worker: &str, healthy: bool) -> String {
        let mut out = String::from("# TYPE vllm_router_requests_total counter\n");
        for (route, count) in &self.requests {
            let _ = writeln!(out, "vllm_router_requests_total{{route=\"{route}\"}} {count}");
        }
        out.push_str("# TYPE vllm_router_processed_requests_total counter\n");
        for (rank, count) in &self.processed {
            let _ = writeln!(out, "vllm_router_processed_requests_total{{worker=\"{worker}@{rank}\"}} {count}");
        }
        out.push_str("# TYPE vllm_router_request_errors_total counter\n");
        for ((route, kind), count) in &self.errors {
            let labels = format!("route=\"{route}\",error_type=\"{kind}\"");
            let _ = writeln!(out, "vllm_router_request_errors_total{{{labels}}} {count}");
        }
        let _ =
            writeln!(out, "# TYPE vllm_router_active_workers gauge\nvllm_router_active_workers {}", u8::from(healthy));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<RouterArgs, String> {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        RouterArgs::parse(&argv).map_err(|error| error.to_string())
    }

    const LINE: &str = "--worker-urls http://localhost:8000 --policy consistent_hash --intra-node-data-parallel-size 8 \
                        --host 0.0.0.0 --port 9000 --prometheus-host 127.0.0.1 --prometheus-port 9001 \
                        --request-timeout-secs 14400";

    #[test]
    fn the_recipes_line_is_taken() {
        let args = parse(&format!("{LINE} --disable-retries")).unwrap();
        assert_eq!((args.ranks, args.port, args.prometheus_port), (8, 9000, 9001));
        assert_eq!(args.worker, "http://localhost:8000");
    }

    #[test]
    fn a_router_that_would_retry_or_share_a_port_is_refused() {
        assert!(parse(LINE).unwrap_err().contains("--disable-retries is missing"));
        let same = format!("{} --disable-retries", LINE.replace("9001", "9000"));
        assert!(parse(&same).unwrap_err().contains("are the same"));
        let policy = format!("{} --disable-retries", LINE.replace("consistent_hash", "random"));
        assert!(parse(&policy).unwrap_err().contains("--policy takes one of consistent_hash"));
    }

    #[test]
    fn the_session_header_comes_before_the_correlation_id_before_the_body() {
        let mut headers = HeaderMap::new();
        assert_eq!(session(&headers, b"body"), b"body");
        headers.insert("X-Correlation-ID", HeaderValue::from_static("c"));
        assert_eq!(session(&headers, b"body"), b"c");
        headers.insert("X-Session-ID", HeaderValue::from_static("s"));
        assert_eq!(session(&headers, b"body"), b"s");
    }
}
