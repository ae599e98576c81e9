//! The simulated KV stores: Mooncake's master and the LMCache server.
//!
//! They open the ports that the engine and the executor look for, and hold connections until the other side ends them.
//! They store nothing: the engine simulates hits itself (see [`super::prefix_cache`]).

use std::time::Duration;

use axum::routing::get;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::argv::{ArgvError, COUNT, Grammar, Kind, PORT, RATIO};
use super::settings::Settings;
use super::{Log, SimError, Stop, http, stopped};

const MOONCAKE: Grammar = Grammar {
    program: "mooncake_master",
    positionals: &[],
    flags: &[
        ("--default_kv_lease_ttl", Kind::Duration),
        ("--eviction_high_watermark_ratio", RATIO),
        ("--eviction_ratio", RATIO),
        ("--port", PORT),
    ],
};

const LMCACHE: Grammar = Grammar {
    program: "lmcache server",
    positionals: &[],
    flags: &[
        ("--chunk-size", COUNT),
        ("--eviction-policy", Kind::Choice(&["LRU"])),
        ("--eviction-ratio", RATIO),
        ("--eviction-trigger-watermark", RATIO),
        ("--host", Kind::Text),
        ("--http-host", Kind::Text),
        ("--http-port", PORT),
        ("--l1-align-bytes", COUNT),
        ("--l1-init-size-gb", COUNT),
        ("--l1-size-gb", COUNT),
        ("--max-cpu-workers", COUNT),
        ("--max-gpu-workers", COUNT),
        ("--no-separate-object-groups", Kind::Switch),
        ("--port", PORT),
        ("--supported-transfer-mode", Kind::Choice(&["lmcache_driven"])),
    ],
};

/// The command line of `mooncake_master`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MooncakeArgs {
    port: u16,
}

impl MooncakeArgs {
    /// Reads the words after `mooncake_master`.
    ///
    /// # Errors
    /// All faults of the command line.
    pub fn parse(argv: &[String]) -> Result<Self, ArgvError> {
        let mut parsed = MOONCAKE.parse(argv);
        let args = Self { port: parsed.need_port("--port") };
        parsed.finish(args)
    }
}

/// The command line of `lmcache server`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LmCacheArgs {
    host: String,
    port: u16,
    http_host: String,
    http_port: u16,
}

impl LmCacheArgs {
    /// Reads the words after `lmcache server`.
    ///
    /// # Errors
    /// All faults of the command line.
    pub fn parse(argv: &[String]) -> Result<Self, ArgvError> {
        let mut parsed = LMCACHE.parse(argv);
        let args = Self {
            host: parsed.need_text("--host"),
            port: parsed.need_port("--port"),
            http_host: parsed.need_text("--http-host"),
            http_port: parsed.need_port("--http-port"),
        };
        let size = parsed.need_integer("--l1-size-gb");
        if let Some(first) = parsed.integer("--l1-init-size-gb")
            && size > 0
            && first > size
        {
            parsed.conflict(format!("--l1-init-size-gb {first} exceeds --l1-size-gb {size}"));
        }
        if args.port != 0 && args.port == args.http_port {
            parsed.conflict("--port and --http-port are the same");
        }
        parsed.finish(args)
    }
}

/// Plays `mooncake_master` until it is stopped. It speaks no HTTP.
pub(super) async fn serve_mooncake(args: MooncakeArgs, stop: Stop, log: Log) -> Result<(), SimError> {
    let listener = http::bind("127.0.0.1", args.port).await?;
    log.line(&format!("master listening on {}", http::address(&listener)));
    tokio::select! {
        () = stopped(stop) => {}
        () = hold_connections(listener, &log) => {}
    }
    log.line("stopped");
    Ok(())
}

/// Plays `lmcache server` until it is stopped.
pub(super) async fn serve_lmcache(
    args: LmCacheArgs,
    settings: &Settings,
    stop: Stop,
    log: Log,
) -> Result<(), SimError> {
    let listener = http::bind(&args.host, args.port).await?;
    let health = http::bind(&args.http_host, args.http_port).await?;
    let address = http::address(&health);
    log.line(&format!("listening on {}, health on {address}", http::address(&listener)));
    let healthy = || async { axum::Json(json!({"status": "healthy"})) };
    let router = axum::Router::new().route("/healthcheck", get(healthy));
    let served = tokio::select! {
        served = http::serve(health, router, stop, Duration::from_millis(settings.drain_ms)) => served,
        () = hold_connections(listener, &log) => Ok(()),
    };
    log.line("stopped");
    served.map_err(|source| SimError::Bind { address, source })
}

/// Accepts clients and reads what they send until they go.
async fn hold_connections(listener: TcpListener, log: &Log) {
    loop {
        match listener.accept().await {
            Ok((mut stream, peer)) => {
                let log = log.clone();
                log.line(&format!("client {peer} connected"));
                tokio::spawn(async move {
                    let mut scratch = [0; 4096];
                    while stream.read(&mut scratch).await.is_ok_and(|count| count > 0) {}
                    log.line(&format!("client {peer} gone"));
                });
            }
            // Out of descriptors, or the client left at once: neither ends the service.
            Err(error) => {
                log.line(&format!("cannot accept: {error}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    const LMCACHE_LINE: &str = "--host 127.0.0.1 --port 6555 --http-host 127.0.0.1 --http-port 8080 --l1-size-gb 1799 \
        --l1-init-size-gb 20 --max-gpu-workers 1 --max-cpu-workers 8 --chunk-size 1024 --l1-align-bytes 16384 \
        --eviction-trigger-watermark 0.85 --eviction-ratio 0.10 --eviction-policy LRU \
        --supported-transfer-mode lmcache_driven --no-separate-object-groups";

    #[test]
    fn the_recipes_lines_are_taken() {
        let line = "--port 50051 --eviction_high_watermark_ratio=0.80 --eviction_ratio=0.10 --default_kv_lease_ttl=60s";
        assert_eq!(MooncakeArgs::parse(&words(line)), Ok(MooncakeArgs { port: 50051 }));
        let args = LmCacheArgs::parse(&words(LMCACHE_LINE)).unwrap();
        assert_eq!((args.port, args.http_port), (6555, 8080));
    }

    #[test]
    fn faulty_lines_are_refused() {
        let mooncake = MooncakeArgs::parse(&words("--eviction-ratio=0.1")).unwrap_err().to_string();
        assert!(mooncake.contains("did you mean --eviction_ratio?") && mooncake.contains("--port is missing"));
        for (from, to, why) in [
            ("--l1-init-size-gb 20", "--l1-init-size-gb 2000", "exceeds --l1-size-gb"),
            ("--http-port 8080", "--http-port 6555", "are the same"),
            ("LRU", "FIFO", "--eviction-policy takes one of LRU"),
            ("0.85", "1.85", "--eviction-trigger-watermark takes a number from 0 to 1"),
        ] {
            let error = LmCacheArgs::parse(&words(&LMCACHE_LINE.replace(from, to))).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
