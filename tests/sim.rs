//! The rehearsal's cast as programs: real processes, real sockets, the recipes' own command lines.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

const MTP: &str = r#"{"method":"mtp","num_speculative_tokens":3,"rejection_sample_method":"synthetic","synthetic_acceptance_length":2.49}"#;
const LOAD: &str = r#"{"duration-ms":1000,"warmup-ms":200}"#;

/// A port that nobody listens on. Ports are walked, not asked for at 0, so that two tests never get the same.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = 20_000 + (std::process::id() % 40) as u16 * 250;
        let port = base + step % 250;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn ixbuild(arguments: &[&str], argv: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ixbuild"));
    command.args(arguments).arg("--").args(argv).env_clear();
    command
}

/// A running service; stopped when dropped.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, settings: &str, argv: &[String], environment: &[(&str, &Path)]) -> Service {
    let mut command = ixbuild(&["sim", "serve", "--as", role, "--settings", settings], argv);
    command.envs(environment.iter().copied()).stderr(Stdio::null());
    Service(command.spawn().unwrap())
}

/// Starts what is expected to end by itself.
fn finish(role: &str, settings: &str, argv: &[String], environment: &[(&str, &Path)]) -> (Option<i32>, String) {
    let mut command = ixbuild(&["sim", "serve", "--as", role, "--settings", settings], argv);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn vllm(port: u16, max_num_seqs: usize, ranks: usize, more: &[&str]) -> Vec<String> {
    let (tp, dp) = if ranks > 1 { (1, ranks) } else { (8, 1) };
    let mut argv = words(&format!(
        "/models/m --served-model-name org/m --host 0.0.0.0 --port {port} --trust-remote-code --kv-cache-dtype fp8 \
         --block-size 256 --max-model-len 1048576 --max-num-seqs {max_num_seqs} --tensor-parallel-size {tp} \
         --data-parallel-size {dp}"
    ));
    argv.extend(more.iter().map(|word| (*word).to_owned()));
    argv
}

fn aiperf(port: u16, concurrency: usize, output: &Path) -> Vec<String> {
    words(&format!(
        "profile --scenario inferencex-agentx-mvp --url http://localhost:{port} --endpoint /v1/chat/completions \
         --endpoint-type chat --streaming --model org/m --concurrency {concurrency} --benchmark-duration 3600 \
         --random-seed 42 --failed-request-threshold 0.10 --trajectory-start-min-ratio 0.25 \
         --trajectory-start-max-ratio 0.75 --agentic-cache-warmup-duration 600 --warmup-grace-period 1800 \
         --use-server-token-count --no-gpu-telemetry --tokenizer-trust-remote-code --num-dataset-entries 393 \
         --slice-duration 1.0 --output-artifact-dir {} --public-dataset semianalysis_cc_traces_weka_062126",
        output.display()
    ))
}

fn replay(settings: &str, argv: &[String]) -> Output {
    let mut command = ixbuild(&["replay", "--settings", settings], argv);
    command.env("AIPERF_HTTP_X_SESSION_ID_FROM_CORRELATION_ID", "1").output().unwrap()
}

fn replayed(settings: &str, argv: &[String]) {
    let output = replay(settings, argv);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Status and body of one HTTP/1.1 exchange.
fn http(port: u16, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let mut chunked = false;
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok()?;
        chunked |= line.eq_ignore_ascii_case("transfer-encoding: chunked\r\n");
    }
    let mut text = String::new();
    if !chunked {
        reader.read_to_string(&mut text).ok()?;
        return Some((status, text));
    }
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).ok()? + 2];
        reader.read_exact(&mut chunk).ok()?;
        if chunk.len() == 2 {
            return Some((status, text));
        }
        text.push_str(std::str::from_utf8(&chunk[..chunk.len() - 2]).ok()?);
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        sleep(Duration::from_millis(20));
    }
}

fn healthy(port: u16, path: &str) {
    until("healthy", || http(port, "GET", path, "").is_some_and(|(status, _)| status == 200));
}

fn chat(port: u16, body: &Json) -> (u16, String) {
    http(port, "POST", "/v1/chat/completions", &body.to_string()).unwrap()
}

/// The sum of a counter over all series that hold a label.
fn counter(page: &str, name: &str, label: &str) -> f64 {
    let series = page.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
    series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn metrics(port: u16) -> String {
    http(port, "GET", "/metrics", "").unwrap().1
}

fn records(directory: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(directory.join("profile_export.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn aggregate(directory: &Path) -> Json {
    serde_json::from_slice(&std::fs::read(directory.join("profile_export_aiperf.json")).unwrap()).unwrap()
}

fn terminate(service: &Service) {
    let pid = rustix::process::Pid::from_child(&service.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn the_engine_answers_with_and_without_streaming() {
    let port = port();
    let _engine = start("vllm", "{}", &vllm(port, 4, 1, &["--speculative-config", MTP]), &[]);
    healthy(port, "/health");
    let models: Json = serde_json::from_str(&http(port, "GET", "/v1/models", "").unwrap().1).unwrap();
    assert_eq!(models["data"][0]["id"], "org/m");
    assert_eq!(models["data"][0]["max_model_len"], 1_048_576);

    let body = json!({"model": "org/m", "messages": [{"role": "user", "content": "x".repeat(4096)}], "max_tokens": 100, "ignore_eos": true});
    let (status, text) = chat(port, &body);
    let reply: Json = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &reply["usage"]["completion_tokens"]), (200, &json!(100)));
    assert_eq!(reply["choices"][0]["finish_reason"], "length");

    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let (status, text) = chat(port, &streamed);
    let events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!((status, events.last()), (200, Some(&"[DONE]")));
    let usage: Json = serde_json::from_str(events[events.len() - 2]).unwrap();
    assert_eq!(usage["usage"]["completion_tokens"], 100);
    assert_eq!(usage["usage"]["prompt_tokens"], reply["usage"]["prompt_tokens"]);

    let page = metrics(port);
    assert_eq!(counter(&page, "vllm:generation_tokens_total", ""), 200.0);
    assert_eq!(counter(&page, "vllm:request_success_total", "finished_reason=\"length\""), 2.0);
    assert_eq!(
        counter(&page, "vllm:prefix_cache_hits_total", ""),
        1024.0,
        "the second prompt is cached but for its tail"
    );
    // 99 tokens after the first, at 2.49 a draft: 40 drafts for each.
    assert_eq!(counter(&page, "vllm:spec_decode_num_drafts_total", ""), 80.0);
}

#[test]
fn the_engine_refuses_requests_in_the_protocols_shape() {
    let port = port();
    let _engine = start("vllm", "{}", &vllm(port, 4, 1, &[]), &[]);
    healthy(port, "/health");
    let messages = json!([{"role": "user", "content": "x"}]);
    for (body, want) in [
        (json!({"model": "other", "messages": messages}), 404),
        (json!({"model": "org/m", "messages": []}), 400),
        (json!({"model": "org/m", "messages": messages, "max_tokens": 2_000_000}), 400),
    ] {
        let (status, text) = chat(port, &body);
        let error: Json = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &error["error"]["code"]), (want, &json!(want)), "{text}");
    }
    assert_eq!(http(port, "POST", "/v1/chat/completions", "{").unwrap().0, 400);
}

#[test]
fn one_session_alone_drafts_enough_to_judge_the_acceptance_length() {
    let (port, out) = (port(), tempfile::tempdir().unwrap());
    let _engine = start("vllm", "{}", &vllm(port, 2, 1, &["--speculative-config", MTP]), &[]);
    healthy(port, "/health");
    replayed(LOAD, &aiperf(port, 1, out.path()));
    let page = metrics(port);
    let drafts = counter(&page, "vllm:spec_decode_num_drafts_total", "");
    let accepted = counter(&page, "vllm:spec_decode_num_accepted_tokens_total", "");
    assert!(drafts > 1000.0, "{drafts} drafts");
    let length = 1.0 + accepted / drafts;
    assert!((length / 2.49 - 1.0).abs() < 0.02, "{length}");
    let at = |position| {
        counter(&page, "vllm:spec_decode_num_accepted_tokens_per_pos_total", &format!("position=\"{position}\""))
    };
    assert_eq!((at(0), at(2)), (drafts, 0.0));
    let records = records(out.path());
    assert!(records.iter().all(|record| record["error"].is_null()));
}

#[test]
fn an_acceptance_bias_shows_in_the_counters() {
    let (port, out) = (port(), tempfile::tempdir().unwrap());
    let settings = r#"{"acceptance-bias":-0.3}"#;
    let _engine = start("vllm", settings, &vllm(port, 8, 1, &["--speculative-config", MTP]), &[]);
    healthy(port, "/health");
    replayed(r#"{"duration-ms":300,"warmup-ms":0}"#, &aiperf(port, 4, out.path()));
    let page = metrics(port);
    let length = 1.0
        + counter(&page, "vllm:spec_decode_num_accepted_tokens_total", "")
            / counter(&page, "vllm:spec_decode_num_drafts_total", "");
    assert!((length - 2.19).abs() < 0.05, "{length}");
}

#[test]
fn router_engine_and_client_count_alike_and_the_phases_stand_apart() {
    let (engine, front, prometheus, out) = (port(), port(), port(), tempfile::tempdir().unwrap());
    let router = words(&format!(
        "--worker-urls http://localhost:{engine} --policy consistent_hash --intra-node-data-parallel-size 8 --host 0.0.0.0 \
         --port {front} --prometheus-host 127.0.0.1 --prometheus-port {prometheus} --request-timeout-secs 14400 \
         --disable-retries"
    ));
    let early = start("vllm-router", "{}", &router, &[]);
    until("the router listens", || http(front, "GET", "/health", "").is_some());
    assert_eq!(http(front, "GET", "/health", "").unwrap().0, 503, "not healthy before its worker");
    let _engine = start("vllm", "{}", &vllm(engine, 48, 8, &["--speculative-config", MTP]), &[]);
    healthy(front, "/health");
    replayed(LOAD, &aiperf(front, 24, out.path()));

    let records = records(out.path());
    let tokens: u64 =
        records.iter().map(|record| record["metrics"]["output_sequence_length"]["value"].as_u64().unwrap()).sum();
    let page = metrics(engine);
    let count = records.len() as f64;
    assert!(count > 50.0, "{count} requests");
    assert_eq!(counter(&page, "vllm:request_success_total", ""), count);
    assert_eq!(counter(&page, "vllm:generation_tokens_total", ""), tokens as f64);
    assert_eq!(counter(&metrics(prometheus), "vllm_router_requests_total", "route=\"/v1/chat/completions\""), count);
    assert_eq!(counter(&metrics(prometheus), "vllm_router_processed_requests_total", ""), count);
    assert_eq!(metrics(front).lines().count(), page.lines().count(), "the router passes /metrics on");

    // The sessions are spread over the ranks, and every session stays on one.
    let ranks: Vec<f64> =
        (0..8).map(|rank| counter(&page, "vllm:request_success_total", &format!("engine=\"{rank}\""))).collect();
    assert!(ranks.iter().filter(|count| **count > 0.0).count() >= 4, "{ranks:?}");
    assert!(
        counter(&page, "vllm:prefix_cache_hits_total", "")
            > 0.5 * counter(&page, "vllm:prefix_cache_queries_total", "")
    );

    let times = |phase: &str, field: &str| -> Vec<u64> {
        let of_phase = records.iter().filter(|record| record["metadata"]["benchmark_phase"] == phase);
        of_phase.map(|record| record["metadata"][field].as_u64().unwrap()).collect()
    };
    let quiet_from = *times("warmup", "request_end_ns").iter().max().unwrap();
    let quiet_to = *times("profiling", "request_start_ns").iter().min().unwrap();
    assert!(quiet_to - quiet_from >= 150_000_000, "{} ns", quiet_to - quiet_from);

    let aggregate = aggregate(out.path());
    assert_eq!(
        aggregate["completed_request_count"]["avg"].as_u64().unwrap() as usize,
        times("profiling", "request_end_ns").len()
    );
    assert!(aggregate.get("error_request_count").is_none());
    terminate(&early);
}

#[test]
fn the_schedule_follows_from_the_seed() {
    let port = port();
    let _engine = start("vllm", "{}", &vllm(port, 8, 1, &[]), &[]);
    healthy(port, "/health");
    let sent = || -> BTreeMap<String, (u64, u64, String)> {
        let out = tempfile::tempdir().unwrap();
        replayed(
            r#"{"duration-ms":5000,"warmup-ms":0,"max-requests":12,"output-token-scale":0.1}"#,
            &aiperf(port, 3, out.path()),
        );
        let records = records(out.path());
        let row = |record: &Json| {
            let length = |name: &str| record["metrics"][name]["value"].as_u64().unwrap();
            let correlation = record["metadata"]["x_correlation_id"].as_str().unwrap().to_owned();
            let id = record["metadata"]["x_request_id"].as_str().unwrap().to_owned();
            (id, (length("input_sequence_length"), length("output_sequence_length"), correlation))
        };
        assert_eq!(records.len(), 12);
        records.iter().map(row).collect()
    };
    let (one, other) = (sent(), sent());
    let both = one.iter().filter(|(id, row)| other.get(*id) == Some(row)).count();
    // Which lane gets the last requests depends on speed; what each request is does not.
    assert!(both >= 9, "{one:?}\n{other:?}");
    assert!(one.iter().all(|(id, row)| other.get(id).is_none_or(|found| found == row)));
}

#[test]
fn injected_errors_reach_the_client_and_fail_it_above_its_threshold() {
    let (port, out) = (port(), tempfile::tempdir().unwrap());
    let _engine = start("vllm", r#"{"error-rate":0.5}"#, &vllm(port, 8, 1, &[]), &[]);
    healthy(port, "/health");
    let output = replay(LOAD, &aiperf(port, 2, out.path()));
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("--failed-request-threshold 0.1"), "{message}");
    let aggregate = aggregate(out.path());
    let count = |name: &str| aggregate[name]["avg"].as_f64().unwrap();
    assert!(count("error_request_count") / count("completed_request_count") > 0.1);
    assert_eq!(aggregate["error_summary"][0]["error_details"]["code"], 500);
    assert_eq!(aggregate["was_cancelled"], true, "it gives up as soon as that is clear");
}

#[test]
fn a_crash_in_the_middle_ends_the_engine_and_fails_the_client() {
    let (port, out) = (port(), tempfile::tempdir().unwrap());
    let mut engine = start("vllm", r#"{"crash-after-requests":20}"#, &vllm(port, 8, 1, &[]), &[]);
    healthy(port, "/health");
    let output = replay(r#"{"duration-ms":5000,"warmup-ms":0}"#, &aiperf(port, 4, out.path()));
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(engine.0.wait().unwrap().code(), Some(1));
}

#[test]
fn an_engine_that_never_gets_ready_says_so() {
    let port = port();
    let _engine = start("vllm", r#"{"never-ready":true,"startup-ms":0}"#, &vllm(port, 8, 1, &[]), &[]);
    until("the engine listens", || http(port, "GET", "/health", "").is_some());
    sleep(Duration::from_millis(100));
    assert_eq!(http(port, "GET", "/health", "").unwrap().0, 503);
    let body = json!({"model": "org/m", "messages": [{"role": "user", "content": "x"}]});
    assert_eq!(chat(port, &body).0, 503);
}

#[test]
fn what_the_real_program_would_refuse_ends_with_the_usage_code() {
    let port = port();
    for (role, argv, why) in [
        ("vllm", vllm(port, 8, 1, &["--max-num-seq", "3"]), "did you mean --max-num-seqs?"),
        ("vllm", vllm(port, 8, 1, &["--speculative-config", "{}"]), "missing field `method`"),
        ("vllm", words("/models/m"), "--served-model-name is missing"),
        ("vllm-router", words("--worker-urls localhost:1"), "--worker-urls takes a URL"),
        ("mooncake", words("--prt 1"), "did you mean --port?"),
        ("lmcache", words("--l1-size-gb x"), "--l1-size-gb takes a whole number"),
    ] {
        let (code, message) = finish(role, "{}", &argv, &[]);
        assert!(code == Some(2) && message.contains(why), "{role}: {code:?} {message}");
    }
    let (code, message) = finish("vllm", r#"{"step":1}"#, &vllm(port, 8, 1, &[]), &[]);
    assert!(code == Some(2) && message.contains("unknown field `step`"), "{message}");
}

#[test]
fn the_engine_finds_the_mooncake_master_through_its_config_file() {
    let transfer = r#"{"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both","kv_connector_extra_config":{"load_async":true}}"#;
    let (port, master) = (port(), port());
    let argv = vllm(port, 8, 1, &["--kv-transfer-config", transfer]);
    let (code, message) = finish("vllm", "{}", &argv, &[]);
    assert!(code == Some(3) && message.contains("MOONCAKE_CONFIG_PATH is not set"), "{code:?} {message}");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mooncake.json");
    let environment = [("MOONCAKE_CONFIG_PATH", path.as_path())];
    let (code, message) = finish("vllm", "{}", &argv, &environment);
    assert!(code == Some(6) && message.contains("cannot read") && message.contains("mooncake.json"), "{message}");

    let config = json!({
        "mode": "embedded", "metadata_server": "P2PHANDSHAKE", "master_server_address": format!("127.0.0.1:{master}"),
        "global_segment_size": "299GB", "local_buffer_size": "4GB", "protocol": "rdma", "device_name": "mlx5_0,mlx5_1",
        "enable_offload": false,
    });
    std::fs::write(&path, config.to_string()).unwrap();
    let (code, message) = finish("vllm", "{}", &argv, &environment);
    assert!(code == Some(6) && message.contains("cannot reach the Mooncake master"), "{message}");

    let line = "--eviction_high_watermark_ratio=0.80 --eviction_ratio=0.10 --default_kv_lease_ttl=60s";
    let _master = start("mooncake", "{}", &words(&format!("--port {master} {line}")), &[]);
    until("the master listens", || TcpStream::connect(("127.0.0.1", master)).is_ok());
    let _engine = start("vllm", "{}", &argv, &environment);
    healthy(port, "/health");
}

#[test]
fn the_engine_needs_its_lmcache_server() {
    let (port, cache, health) = (port(), port(), port());
    let transfer = json!({"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config": {
        "lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": cache, "lmcache.mp.mq_timeout": 300}});
    let argv = vllm(port, 8, 1, &["--kv-transfer-config", &transfer.to_string()]);
    let (code, message) = finish("vllm", "{}", &argv, &[]);
    assert!(code == Some(6) && message.contains("cannot reach the LMCache server"), "{message}");
    let line = words(&format!(
        "--host 127.0.0.1 --port {cache} --http-host 127.0.0.1 --http-port {health} --l1-size-gb 1799 --l1-init-size-gb 20 \
         --max-gpu-workers 1 --max-cpu-workers 8 --chunk-size 1024 --l1-align-bytes 16384 --eviction-trigger-watermark 0.85 \
         --eviction-ratio 0.10 --eviction-policy LRU --supported-transfer-mode lmcache_driven --no-separate-object-groups"
    ));
    let _server = start("lmcache", "{}", &line, &[]);
    healthy(health, "/healthcheck");
    let _engine = start("vllm", "{}", &argv, &[]);
    healthy(port, "/health");
}

#[test]
fn services_stop_gracefully_and_a_stopped_client_keeps_what_it_has() {
    let (port, out) = (port(), tempfile::tempdir().unwrap());
    let mut engine = start("vllm", "{}", &vllm(port, 8, 1, &[]), &[]);
    healthy(port, "/health");
    let mut client =
        ixbuild(&["replay", "--settings", r#"{"duration-ms":60000,"warmup-ms":0}"#], &aiperf(port, 2, out.path()));
    let mut client = Service(client.stderr(Stdio::null()).spawn().unwrap());
    until("requests are served", || counter(&metrics(port), "vllm:request_success_total", "") > 4.0);
    terminate(&client);
    assert_eq!(client.0.wait().unwrap().code(), Some(130));
    assert!(records(out.path()).len() >= 4);
    assert_eq!(aggregate(out.path())["was_cancelled"], true);
    terminate(&engine);
    assert_eq!(engine.0.wait().unwrap().code(), Some(0));
}
