//! All arms against the figures and flags of the public benchmark, written down here a second time and without recipes.

use std::collections::BTreeMap;

use ixbuild::spec::JobSpec;

use super::services::{Process, start_order};
use super::tree::{Tree, real};

/// A line of the benchmark's table of rows.
struct Row {
    mtp: bool,
    ep: u64,
    dp_attn: bool,
    backend: Option<(&'static str, Option<&'static str>)>,
    conc: &'static [u64],
}

const TP: u64 = 8;
const MODEL: &str = "deepseek-ai/DeepSeek-V4-Pro";
const IMAGE: &str = "vllm/vllm-openai:nightly-dev-x86_64-cu13.0.1-904e4ec";
const LOW: &[u64] = &[8, 12, 16];
const SIMPLE: &[u64] = &[8, 16, 24, 32, 40, 48, 56, 64, 68, 72, 80];
const STORES: &[u64] = &[12, 20, 28, 36, 44, 52, 60, 68, 76];
const MOONCAKE: Option<(&str, Option<&str>)> = Some(("mooncake", Some("0.3.11.post1")));
const LMCACHE: Option<(&str, Option<&str>)> = Some(("lmcache", Some("0.5.1")));
const BUILT_IN: Option<(&str, Option<&str>)> = Some(("vllm-simple", None));

const ROWS: [Row; 10] = [
    Row { mtp: false, ep: 1, dp_attn: false, backend: None, conc: &[1, 2, 4, 6, 8] },
    Row { mtp: false, ep: 1, dp_attn: false, backend: BUILT_IN, conc: LOW },
    Row { mtp: false, ep: 1, dp_attn: false, backend: LMCACHE, conc: LOW },
    Row { mtp: false, ep: 8, dp_attn: true, backend: BUILT_IN, conc: SIMPLE },
    Row { mtp: false, ep: 8, dp_attn: true, backend: MOONCAKE, conc: STORES },
    Row { mtp: false, ep: 8, dp_attn: true, backend: LMCACHE, conc: STORES },
    Row { mtp: true, ep: 1, dp_attn: false, backend: None, conc: &[1, 2, 4, 6, 8] },
    Row { mtp: true, ep: 1, dp_attn: false, backend: BUILT_IN, conc: LOW },
    Row { mtp: true, ep: 8, dp_attn: true, backend: BUILT_IN, conc: SIMPLE },
    Row { mtp: true, ep: 8, dp_attn: true, backend: MOONCAKE, conc: STORES },
];

/// One arm of the table.
struct Arm<'r> {
    row: &'r Row,
    conc: u64,
    eval: bool,
}

impl Row {
    fn backend(&self) -> Option<&'static str> {
        self.backend.map(|(name, _)| name)
    }
}

impl Arm<'_> {
    fn id(&self) -> String {
        let row = self.row;
        let (key, spec) = if row.mtp { ("-mtp", "-mtp") } else { ("", "") };
        let topology = if row.dp_attn { "tp8-ep8-dpa" } else { "tp8" };
        let (kv, conc) = (row.backend().unwrap_or("resident"), self.conc);
        let eval = if self.eval { "-eval" } else { "" };
        format!("dsv4-fp4-b200-vllm-agentic{key}/agentic/{topology}-{kv}{spec}-c{conc}{eval}")
    }
}

fn arms() -> impl Iterator<Item = Arm<'static>> {
    let of = |row: &'static Row| row.conc.iter().map(move |conc| (row, *conc));
    ROWS.iter().flat_map(of).flat_map(|(row, conc)| [false, true].map(|eval| Arm { row, conc, eval }))
}

/// floor(min(available MiB, 2861022) · 2^20 · 0.80 · (tp·pp·pcp) / gpus-per-node / 10^9)
fn budget_gb(row: &Row) -> u64 {
    let Some(_) = row.backend else { return 0 };
    // 3,095,781 MiB are there; the rule caps them.
    let bytes = 2_861_022_u128 * (1 << 20) * 80 / 100 * u128::from(TP) / 8;
    u64::try_from(bytes / 1_000_000_000).unwrap()
}

/// `--flag value` pairs and bare flags of one line.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// What the server is told, in pieces: within each the order is the benchmark's.
fn server_argv(arm: &Arm<'_>) -> Vec<Vec<String>> {
    let (row, conc) = (arm.row, arm.conc);
    let (tp, dp) = if row.dp_attn { (1, TP) } else { (TP, 1) };
    let cumem = if row.backend() == Some("lmcache") { "" } else { "--enable-cumem-allocator" };
    let drafts = if row.mtp { 3 } else { 0 };
    let mut pieces = vec![
        words(&format!(
            "<model.path> --served-model-name {MODEL} --host 0.0.0.0 --port <server.http.port> --trust-remote-code \
             --kv-cache-dtype fp8 --block-size 256 --max-model-len 1048576 --numa-bind {cumem} \
             --no-enable-flashinfer-autotune --tokenizer-mode deepseek_v4 --reasoning-parser deepseek_v4 \
             --attention-config {{\"backend\":\"FLASHINFER_MLA_SPARSE_DSV4\",\"use_fp4_indexer_cache\":true,\"use_prefill_query_quantization\":true}} \
             --no-disable-hybrid-kv-cache-manager --disable-uvicorn-access-log \
             --compilation-config {{\"cudagraph_mode\":\"FULL_DECODE_ONLY\",\"mode\":0}} --max-num-seqs {}",
            2 * conc
        )),
        words(&format!("--gpu-memory-utilization {}", if row.mtp { "0.9" } else { "0.92" })),
        words(&format!("--max-cudagraph-capture-size {}", 2 * conc * (1 + drafts))),
        words(&format!("--tensor-parallel-size {tp} --data-parallel-size {dp}")),
    ];
    if row.mtp {
        let synthetic = if arm.eval {
            ""
        } else {
            ",\"rejection_sample_method\":\"synthetic\",\"synthetic_acceptance_length\":2.49"
        };
        pieces.push(words(&format!(
            "--tool-call-parser deepseek_v4 --enable-auto-tool-choice \
             --speculative-config {{\"method\":\"mtp\",\"num_speculative_tokens\":3{synthetic}}}"
        )));
    }
    if row.ep > 1 {
        pieces.push(words(
            "--enable-expert-parallel --moe-backend deep_gemm_amxf4_mega_moe --enable-ep-weight-filter \
             --prefill-schedule-interval 16",
        ));
    }
    let transfer = |connector: &str, extra: &str| {
        let json = format!(
            "{{\"kv_connector\":\"{connector}\",\"kv_connector_extra_config\":{{{extra}}},\"kv_role\":\"kv_both\"}}"
        );
        vec!["--kv-transfer-config".to_owned(), json]
    };
    match row.backend() {
        None => {}
        Some("vllm-simple") => pieces.push(transfer(
            "SimpleCPUOffloadConnector",
            &format!(
                "\"cpu_bytes_to_use_per_rank\":{},\"enable_cross_layers_blocks\":\"true\",\"lazy_offload\":false",
                budget_gb(row) * 1_000_000_000 / TP
            ),
        )),
        Some("mooncake") => pieces.push(transfer("MooncakeStoreConnector", "\"load_async\":true")),
        Some(_) => pieces.push(transfer(
            "LMCacheMPConnector",
            "\"lmcache.mp.host\":\"tcp://127.0.0.1\",\"lmcache.mp.mq_timeout\":300,\"lmcache.mp.port\":<lmcache.rpc.port>",
        )),
    }
    pieces
}

fn env(lines: &[&str]) -> BTreeMap<String, String> {
    let pairs = lines.iter().flat_map(|line| line.split_whitespace()).map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

const SERVER_ENV: &str = "VLLM_ENGINE_READY_TIMEOUT_S=3600 VLLM_PREFIX_CACHE_RETENTION_INTERVAL=32768 \
    VLLM_USE_V2_MODEL_RUNNER=1 VLLM_USE_RUST_FRONTEND=1 VLLM_DSV4_MEGA_FP8_COMBINE=1 VLLM_RPC_TIMEOUT=600000 \
    TORCH_CUDA_ARCH_LIST=10.0 PYTHONNOUSERSITE=1 VLLM_FLOAT32_MATMUL_PRECISION=high";

fn backend_env(backend: Option<&str>) -> &'static str {
    match backend {
        None => "",
        Some("vllm-simple") => "PYTHONHASHSEED=42",
        Some("mooncake") => {
            "MC_ENABLE_DEST_DEVICE_AFFINITY=1 PYTHONHASHSEED=0 WITH_NVIDIA_PEERMEM=0 MC_SLICE_SIZE=1048576 \
             MC_WORKERS_PER_CTX=4 MOONCAKE_CONFIG_PATH=<file(mooncake.json)>"
        }
        Some(_) => "PYTHONHASHSEED=0 VLLM_LOG_STATS_INTERVAL=5",
    }
}

/// The services of an arm beside its server and client.
fn others(arm: &Arm<'_>) -> BTreeMap<&'static str, Process> {
    let gb = budget_gb(arm.row);
    let image = Some(IMAGE.to_owned());
    let mut found = BTreeMap::new();
    match arm.row.backend() {
        Some("mooncake") => {
            let process = Process {
                entrypoint: "mooncake_master".into(),
                argv: words(
                    "--port <mooncake.rpc.port> --eviction_high_watermark_ratio=0.80 --eviction_ratio=0.10 \
                     --default_kv_lease_ttl=60s",
                ),
                packages: vec!["mooncake-transfer-engine-cuda13 0.3.11.post1 alone".into()],
                probe: "alive after 2000 ms".into(),
                image: image.clone(),
                ..Process::default()
            };
            found.insert("mooncake", process);
        }
        Some("lmcache") => {
            let process = Process {
                entrypoint: "lmcache server".into(),
                argv: words(&format!(
                    "--host 127.0.0.1 --port <lmcache.rpc.port> --http-host 127.0.0.1 --http-port <lmcache.http.port> \
                     --l1-size-gb {} --l1-init-size-gb 20 --max-gpu-workers 1 --max-cpu-workers 8 --chunk-size 1024 \
                     --l1-align-bytes 16384 --eviction-trigger-watermark 0.85 --eviction-ratio 0.10 \
                     --eviction-policy LRU --supported-transfer-mode lmcache_driven --no-separate-object-groups",
                    gb * 3 / 4
                )),
                packages: vec!["lmcache 0.5.1".into()],
                probe: "GET http/healthcheck".into(),
                image: image.clone(),
                ..Process::default()
            };
            found.insert("lmcache", process);
        }
        _ => {}
    }
    if arm.row.dp_attn {
        let process = Process {
            entrypoint: "vllm-router".into(),
            argv: words(&format!(
                "--worker-urls http://localhost:<server.http.port> --policy consistent_hash \
                 --intra-node-data-parallel-size {TP} --host 0.0.0.0 --port <router.http.port> \
                 --prometheus-host 127.0.0.1 --prometheus-port <router.prometheus.port> --request-timeout-secs 14400 \
                 --disable-retries"
            )),
            packages: vec!["vllm-router 0.1.14".into()],
            after: vec!["server".into()],
            probe: "GET http/health".into(),
            image,
            ..Process::default()
        };
        found.insert("router", process);
    }
    found
}

fn load_client(arm: &Arm<'_>) -> Process {
    let front = if arm.row.dp_attn { "router" } else { "server" };
    let session = if arm.row.dp_attn { "AIPERF_HTTP_X_SESSION_ID_FROM_CORRELATION_ID=1" } else { "" };
    Process {
        entrypoint: "aiperf profile".into(),
        argv: words(&format!(
            "--scenario inferencex-agentx-mvp --url http://localhost:<{front}.http.port> --endpoint /v1/chat/completions \
             --endpoint-type chat --streaming --model {MODEL} --concurrency {} --benchmark-duration 3600 --random-seed 42 \
             --failed-request-threshold 0.10 --trajectory-start-min-ratio 0.25 --trajectory-start-max-ratio 0.75 \
             --agentic-cache-warmup-duration 600 --warmup-grace-period 1800 --use-server-token-count \
             --no-gpu-telemetry --tokenizer-trust-remote-code --num-dataset-entries 393 --slice-duration 1.0 \
             --output-artifact-dir <directory(artifacts)> --public-dataset semianalysis_cc_traces_weka_062126",
            arm.conc
        )),
        env: env(&[
            "AIPERF_DATASET_WEKA_LIVE_ASSISTANT_RESPONSES=0 AIPERF_DATASET_CONFIGURATION_TIMEOUT=1800",
            "AIPERF_SERVICE_PROFILE_CONFIGURE_TIMEOUT=1800 AIPERF_DATASET_MMAP_CACHE_DIR=<cache(aiperf-mmap)>",
            session,
        ]),
        packages: vec!["git+https://github.com/SemiAnalysisAI/aiperf 0d2aa0572ac685943d38c580675c4a61023581d3".into()],
        after: vec![front.into()],
        probe: "exit".into(),
        ..Process::default()
    }
}

/// Flags with what follows them, in order: what is compared where only some of the order counts.
fn pairs(argv: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for item in argv {
        match found.last_mut() {
            Some(flag) if !item.starts_with("--") && flag.starts_with("--") && !flag.contains(' ') => {
                flag.push(' ');
                flag.push_str(item);
            }
            _ => found.push(item.clone()),
        }
    }
    found
}

fn check_server(arm: &Arm<'_>, spec: &JobSpec) {
    let id = arm.id();
    let server = spec.deployment.services.iter().find(|service| service.name == "server").unwrap();
    let found = Process::of(server);
    assert_eq!(found.entrypoint, "vllm serve", "{id}");
    let have = pairs(&found.argv);
    let pieces: Vec<Vec<String>> = server_argv(arm).iter().map(|piece| pairs(piece)).collect();
    let (mut all, mut sorted) = (pieces.concat(), have.clone());
    all.sort();
    sorted.sort();
    assert_eq!(sorted, all, "{id}");
    for piece in &pieces {
        let places: Vec<usize> = piece.iter().map(|pair| have.iter().position(|h| h == pair).unwrap()).collect();
        assert!(places.is_sorted(), "{id}: {piece:?} stands in another order in {have:?}");
    }
    assert_eq!(have[0], "<model.path>", "{id}");
    assert_eq!(found.env, env(&[SERVER_ENV, backend_env(arm.row.backend())]), "{id}");
    let mut files = BTreeMap::new();
    if arm.row.backend() == Some("mooncake") {
        let text = format!(
            "{{\"device_name\":\"<host(rdma-devices)>\",\"enable_offload\":false,\"global_segment_size\":\"{}GB\",\
             \"local_buffer_size\":\"4GB\",\"master_server_address\":\"127.0.0.1:<mooncake.rpc.port>\",\
             \"metadata_server\":\"P2PHANDSHAKE\",\"mode\":\"embedded\",\"protocol\":\"rdma\"}}",
            budget_gb(arm.row) / TP
        );
        files.insert("mooncake.json".to_owned(), text);
    }
    assert_eq!(found.files, files, "{id}");
    assert_eq!((found.probe.as_str(), found.image.as_deref()), ("GET http/health", Some(IMAGE)), "{id}");
    let (packages, after): (&[&str], &[&str]) = match arm.row.backend() {
        Some("mooncake") => (&["mooncake-transfer-engine-cuda13 0.3.11.post1 alone"], &["mooncake"]),
        Some("lmcache") => (&["lmcache 0.5.1"], &["lmcache"]),
        _ => (&[], &[]),
    };
    assert_eq!((found.packages, found.after), (owned(packages), owned(after)), "{id}");
    assert_eq!(server.resources.gpus, TP, "{id}");
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn every_arm_runs_what_the_benchmark_runs() {
    let specs = real("docker");
    assert_eq!(arms().map(|arm| arm.id()).collect::<std::collections::BTreeSet<_>>(), specs.keys().cloned().collect());
    for arm in arms() {
        let id = arm.id();
        let spec = &specs[&id];
        check_server(&arm, spec);
        let mut expected = others(&arm);
        for service in spec.deployment.services.iter().filter(|service| service.name != "server") {
            if service.name == "agent" && arm.eval {
                continue;
            }
            let process = expected.remove(service.name.as_str());
            assert_eq!(Some(Process::of(service)), process, "{id}: {}", service.name);
        }
        assert!(expected.is_empty(), "{id} lacks {:?}", expected.keys());

        let mut order = Vec::new();
        order.extend(arm.row.backend().filter(|name| *name != "vllm-simple"));
        order.push("server");
        order.extend(arm.row.dp_attn.then_some("router"));
        order.extend(arm.eval.then_some("agent"));
        order.push("client");
        assert_eq!(start_order(spec), order, "{id}");

        let group = &spec.deployment.groups[0];
        assert_eq!((spec.deployment.groups.len(), group.nodes, group.gpus_per_node), (1, 1, 8), "{id}");
        assert_eq!(group.dram_gb, if arm.row.backend.is_some() { 2399 } else { 0 }, "{id}");
        assert_eq!((spec.deployment.model.id.as_str(), spec.measurement.concurrency), (MODEL, arm.conc), "{id}");
        assert_eq!(
            (spec.deployment.hardware.gpu.as_str(), spec.deployment.hardware.runner.as_str()),
            ("b200", "cluster:b200-dgxc")
        );
        if arm.eval { check_eval(&arm, spec) } else { check_load(&arm, spec) }
    }
}

fn check_load(arm: &Arm<'_>, spec: &JobSpec) {
    let id = arm.id();
    assert_eq!(Process::of(&spec.measurement.client), load_client(arm), "{id}");
    let workload = &spec.measurement.workload;
    assert_eq!(workload.dataset.id, "semianalysisai/cc-traces-weka-062126", "{id}");
    assert_eq!((workload.split.as_deref(), workload.duration_s, workload.seed), (Some("train"), Some(3600), Some(42)));
    let gates = &spec.measurement.gates;
    assert_eq!((gates.max_error_ratio.as_deref(), gates.min_score.as_deref()), (Some("0.10"), None), "{id}");
    let bounds = arm.row.mtp.then_some(("0.02", 1000));
    assert_eq!(gates.acceptance_tolerance.as_deref().zip(gates.min_drafts), bounds, "{id}");
}

fn check_eval(arm: &Arm<'_>, spec: &JobSpec) {
    let (id, conc) = (arm.id(), arm.conc);
    let front = if arm.row.dp_attn { "router" } else { "server" };
    let agent = Process::of(spec.deployment.services.iter().find(|service| service.name == "agent").unwrap());
    let said = pairs(&agent.argv);
    for wanted in [
        format!("--workers {conc}"),
        "--split test".into(),
        "--subset lite".into(),
        "--config agent.step_limit=75".into(),
        "--config model.model_kwargs.temperature=0".into(),
        format!("--config model.model_kwargs.api_base=http://localhost:<{front}.http.port>/v1"),
        format!("--model hosted_vllm/{MODEL}"),
    ] {
        assert!(said.contains(&wanted), "{id}: {wanted} is not in {said:?}");
    }
    assert_eq!(agent.packages, owned(&["mini-swe-agent 2.4.5", "swe-rex 1.4.0"]), "{id}");
    let client = Process::of(&spec.measurement.client);
    assert_eq!((client.packages, client.after), (owned(&["swebench 4.1.0"]), owned(&["agent"])), "{id}");
    let gates = &spec.measurement.gates;
    assert_eq!((gates.min_score.as_deref(), gates.acceptance_tolerance.as_deref()), (Some("0.50"), None), "{id}");
    assert_eq!(spec.measurement.workload.split.as_deref(), Some("test"), "{id}");
}

/// How long services may take is the benchmark's too, and not hashed.
#[test]
fn services_get_the_time_that_the_benchmark_gives() {
    let project = Tree::real().project("docker").unwrap();
    for arm in super::tree::every_arm(&project).unwrap() {
        let job = project.job(&arm).unwrap();
        assert_eq!(job.ready_timeout_s.get("server"), Some(&3600), "{}", arm.id);
        let lmcache = arm.id.as_str().contains("-lmcache-").then_some(&120);
        assert_eq!(job.ready_timeout_s.get("lmcache"), lmcache, "{}", arm.id);
    }
}

/// The golden curves of the table, cell by cell.
#[test]
fn the_golden_curves_hold_the_measured_lengths() {
    use ixbuild::config::golden::Thinking::{Off, On};
    let curves = Tree::real().project("docker").unwrap().curves;
    let table: [(&str, _, &[(u32, &str)]); 9] = [
        (
            "dsv4_mtp",
            On,
            &[(1, "1.79"), (2, "2.27"), (3, "2.49"), (4, "2.54"), (5, "2.55"), (6, "2.55"), (7, "2.54"), (8, "2.58")],
        ),
        (
            "dsv4_mtp",
            Off,
            &[(1, "1.92"), (2, "2.61"), (3, "2.97"), (4, "3.00"), (5, "3.10"), (6, "3.16"), (7, "3.00"), (8, "3.11")],
        ),
        ("minimax-m3_eagle3", On, &[(3, "2.83")]),
        ("minimax-m3_eagle3-gqa", On, &[(3, "2.78")]),
        ("kimi-k3_dspark", On, &[(3, "2.87")]),
        ("kimi-k3_dspark-block", On, &[(2, "2.51"), (3, "3.00"), (4, "3.36"), (6, "3.75"), (7, "3.84")]),
        ("kimi-k2.5_eagle3", On, &[(3, "2.88"), (4, "3.24")]),
        ("glm-5.2_mtp", On, &[(2, "2.5"), (3, "2.99"), (4, "3.33"), (5, "3.61"), (8, "4.06")]),
        ("qwen3.5_mtp", On, &[(3, "3.39"), (6, "4.80"), (7, "5.04")]),
    ];
    let mut count = 0;
    for (curve, thinking, cells) in table {
        for (n, length) in cells {
            let cell = curves.cell(curve, thinking, *n).unwrap();
            assert_eq!(cell.acceptance_length, *length, "{curve} N = {n}");
            count += 1;
        }
    }
    assert_eq!(curves.iter().map(|curve| curve.cells().count()).sum::<usize>(), count);
}
