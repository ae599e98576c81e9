//! Whole derivations: a spec and raw layers in, metrics and gates out.

use super::*;
use crate::spec::JobSpec;
use serde_json::{Value, json};

const S: u64 = 1_000_000_000;
/// Where the tests' profiling phase begins, Unix ns.
const T0: u64 = 1_700_000_000 * S;

fn service(name: &str, engine: Option<&str>, replicas: u64) -> Value {
    let mut service = json!({
        "after": [], "argv": [], "endpoints": ["http"], "entrypoint": [name], "env": {}, "files": {}, "group": "node",
        "mounts": [], "name": name, "packages": [], "probe": {"exit": {}}, "replicas": replicas,
        "resources": {"capabilities": [], "devices": [], "gpus": 0, "ulimits": {}},
    });
    if let Some(engine) = engine {
        service["engine"] = json!(engine);
    }
    service
}

/// An MTP throughput arm at concurrency 2 on 8 GPUs, with two engine processes and a router.
fn document() -> Value {
    json!({
        "deployment": {
            "groups": [{"dram-gb": 2399, "gpus-per-node": 8, "name": "node", "nodes": 1}],
            "hardware": {"gpu": "b200", "runner": "cluster:b200-dgxc"},
            "model": {"id": "deepseek-ai/DeepSeek-V4-Pro"},
            "services": [service("router", None, 1), service("server", Some("vllm"), 2)],
            "speculative": {"acceptance": {"synthetic": {"cell": {}, "length": "2.49"}}, "method": "mtp", "tokens": 3},
        },
        "measurement": {
            "client": service("client", None, 1), "concurrency": 2, "output": "aiperf", "server": "fresh",
            "gates": {"acceptance-tolerance": "0.02", "max-error-ratio": "0.10", "min-drafts": 1000},
            "workload": {"dataset": {"id": "a/traces"}, "duration-s": 10, "seed": 42, "split": "train"},
        },
        "schema": "ixbuild.spec/v1",
    })
}

fn spec_with(change: impl FnOnce(&mut Value)) -> JobSpec {
    let mut document = document();
    change(&mut document);
    serde_json::from_value(document).unwrap()
}

fn row(phase: &str, start_s: f64, e2el_s: f64, ttft_s: f64, input: u64, output: u64) -> String {
    let ns = |s: f64| T0.saturating_add_signed((s * 1e9) as i64);
    json!({
        "metadata": {"session_num": 0, "request_start_ns": ns(start_s), "request_end_ns": ns(start_s + e2el_s),
            "worker_id": "w", "record_processor_id": "p", "benchmark_phase": phase, "was_cancelled": false},
        "metrics": {
            "request_latency": {"value": e2el_s * 1e3, "unit": "ms"},
            "time_to_first_token": {"value": ttft_s * 1e3, "unit": "ms"},
            "inter_token_latency": {"value": 7777.0, "unit": "ms"},
            "inter_chunk_latency": {"value": [1.0, 2.0], "unit": "ms"},
            "input_sequence_length": {"value": input, "unit": "tokens"},
            "output_sequence_length": {"value": output, "unit": "tokens"},
        },
    })
    .to_string()
        + "\n"
}

fn exposition(values: &[(&str, u64)]) -> String {
    values.iter().map(|(series, value)| format!("vllm:{series} {value}\n")).collect()
}

fn scrape(at_s: f64, service: &str, instance: u64, values: &[(&str, u64)]) -> String {
    let t_ns = T0.saturating_add_signed((at_s * 1e9) as i64);
    json!({"t_ns": t_ns, "service": service, "instance": instance, "text": exposition(values)}).to_string() + "\n"
}

/// Drafts, accepted and generated tokens of one process.
fn counters(drafts: u64, accepted: u64, generated: u64) -> Vec<(&'static str, u64)> {
    vec![
        ("spec_decode_num_drafts_total{engine=\"0\"}", drafts),
        ("spec_decode_num_draft_tokens_total{engine=\"0\"}", 3 * drafts),
        ("spec_decode_num_accepted_tokens_total{engine=\"0\"}", accepted),
        ("spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"}", drafts),
        ("spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"1\"}", accepted - drafts),
        ("spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"2\"}", 0),
        ("generation_tokens_total{engine=\"0\"}", generated),
        ("prompt_tokens_total{engine=\"0\"}", 10 * generated),
        ("prefix_cache_queries_total{engine=\"0\"}", 8 * generated),
        ("prefix_cache_hits_total{engine=\"0\"}", 2 * generated),
        ("external_prefix_cache_queries_total{engine=\"0\"}", 6 * generated),
        ("external_prefix_cache_hits_total{engine=\"0\"}", 3 * generated),
        ("request_success_total{engine=\"0\",finished_reason=\"stop\"}", generated / 100),
    ]
}

/// Raw layers, owned.
struct Layers {
    requests: String,
    aggregate: Value,
    counters: String,
}

impl Layers {
    fn derive(&self, spec: &JobSpec) -> Derived {
        let aggregate = self.aggregate.to_string();
        derive(
            spec,
            &Raw {
                requests: Some(self.requests.as_bytes()),
                aggregate: Some(aggregate.as_bytes()),
                counters: Some(self.counters.as_bytes()),
                eval_report: None,
                engine_logs: &[b"(EngineCore_DP0 pid=1) GPU KV cache size: 4,096 tokens\n"],
            },
        )
        .unwrap()
    }
}

/// A run that passes: 4000 tokens in 10 s; 2 · 800 drafts and 2 · 1192 accepted, so that the length is 1 + 1.49.
fn good() -> Layers {
    Layers {
        requests: [
            row("warmup", -9.0, 5.0, 1.0, 7, 999),
            row("profiling", 0.0, 5.0, 1.0, 10_000, 1001),
            row("profiling", 0.5, 9.5, 3.5, 20_000, 2999),
        ]
        .concat(),
        aggregate: json!({
            "aiperf_version": "0.13.0", "run_info": {"random_seed": 42},
            "request_count": {"unit": "requests", "avg": 2.0},
            "metadata": {"dataset": {"source_type": "public_dataset", "hf_dataset_name": "a/traces", "hf_split": "train"}},
        }),
        counters: [
            scrape(-20.0, "server", 0, &counters(0, 0, 0)),
            scrape(-1.0, "server", 0, &counters(100, 110, 500)),
            scrape(-1.0, "server", 1, &counters(100, 120, 499)),
            scrape(5.0, "router", 0, &[("generation_tokens_total", 1)]),
            scrape(10.0, "server", 0, &counters(900, 1302, 2500)),
            scrape(10.5, "server", 1, &counters(900, 1312, 2499)),
        ]
        .concat(),
    }
}

fn gate(derived: &Derived, name: GateName) -> &Gate {
    derived.gates.iter().find(|gate| gate.name == name).unwrap()
}

#[test]
fn a_good_run_passes_every_gate() {
    let derived = good().derive(&spec_with(|_| {}));
    let verdicts: Vec<_> = derived.gates.iter().map(|gate| (gate.name, gate.verdict)).collect();
    let passed = |name| (name, GateVerdict::Passed);
    assert_eq!(
        verdicts,
        [
            passed(GateName::RequestsCompleted),
            passed(GateName::TokensGenerated),
            passed(GateName::ErrorRatio),
            passed(GateName::AcceptanceLength),
            passed(GateName::DatasetReplayed),
            passed(GateName::CountersAgree),
        ],
        "{derived:#?}"
    );
    assert!(derived.valid(true) && derived.valid(false));
}

#[test]
fn figures_by_hand() {
    let spec = spec_with(|_| {});
    let result = good().derive(&spec).result;
    assert_eq!((result.job, result.gpus, result.concurrency, result.rehearsal), (spec.hash(), 8, 2, false));
    let requests = result.requests.unwrap();
    assert_eq!((requests.accounting.rows_total, requests.accounting.rows_warmup_dropped), (3, 1));
    assert_eq!(requests.duration_s, Some(10.0));
    assert_eq!(requests.throughput.output_tok_per_s, Some(400.0));
    assert_eq!(requests.throughput.total_tok_per_s_per_gpu, Some(3400.0 / 8.0));
    // (5 − 1)/1000 and (9.5 − 3.5)/2998, not the client's inter_token_latency.
    let itl = requests.latency.itl_s;
    assert!((itl.mean.unwrap() - (0.004 + 6.0 / 2998.0) / 2.0).abs() < 1e-15);
    let server = result.server.unwrap();
    let speculative = server.speculative.unwrap();
    assert_eq!((speculative.drafts, speculative.accepted_tokens), (1600, 2384));
    assert_eq!(speculative.acceptance_length, Some(2.49));
    assert_eq!(speculative.acceptance_by_position, [1.0, 0.49, 0.0]);
    assert_eq!(speculative.acceptance_rate, Some(2384.0 / 4800.0));
    assert_eq!(server.generation_tokens, Some(4000));
    assert_eq!(server.prompt_tokens, Some(40_000));
    assert_eq!(server.requests_finished["stop"], 40);
    // Hits 2 of 8 on the GPU, 3 of the 6 that it lacked outside, 5 of 8 overall.
    assert_eq!(server.cache.gpu_hit_rate, Some(0.25));
    assert_eq!(server.cache.external_hit_rate, Some(0.5));
    assert_eq!(server.cache.overall_hit_rate, Some(0.625));
    assert_eq!(server.kv_cache.pool_tokens, Some(4096));
    let window = server.window.unwrap();
    assert!(window.clean && window.processes == 2 && window.scrapes == 4);
}

#[test]
fn warm_up_rows_and_other_services_change_nothing() {
    let spec = spec_with(|_| {});
    let plain = good().derive(&spec);
    let mut layers = good();
    layers.requests = row("warmup", -500.0, 400.0, 1.0, 1, 1_000_000) + &layers.requests;
    layers.counters += &scrape(3.0, "router", 0, &counters(9, 9, 9));
    let mut more = layers.derive(&spec);
    let accounting = &mut more.result.requests.as_mut().unwrap().accounting;
    assert_eq!((accounting.rows_total, accounting.rows_warmup_dropped), (4, 2));
    (accounting.rows_total, accounting.rows_warmup_dropped) = (3, 1);
    assert_eq!(more, plain);
}

#[test]
fn the_order_of_rows_and_scrapes_changes_nothing() {
    let spec = spec_with(|_| {});
    let mut layers = good();
    let reverse = |text: &str| text.lines().rev().map(|line| format!("{line}\n")).collect::<String>();
    (layers.requests, layers.counters) = (reverse(&layers.requests), reverse(&layers.counters));
    assert_eq!(layers.derive(&spec), good().derive(&spec));
}

#[test]
fn a_result_reads_back_as_written() {
    let derived = good().derive(&spec_with(|_| {}));
    let text = serde_json::to_string_pretty(&derived).unwrap();
    assert_eq!(serde_json::from_str::<Derived>(&text).unwrap(), derived);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["result"]["schema"], "ixbuild.result/v1");
    assert_eq!(value["result"]["eval"], Value::Null);
}

#[test]
fn the_error_ratio_is_inclusive_exact_and_from_the_aggregate() {
    let spec = spec_with(|_| {});
    for (errors, completed, verdict, observed) in [
        (3.0, 30.0, GateVerdict::Passed, "0.1"),
        (300_001.0, 3_000_000.0, GateVerdict::Failed, "0.1"),
        (1.0, 1.0, GateVerdict::Failed, "1"),
        (0.0, 0.0, GateVerdict::Failed, "0/0"),
    ] {
        let mut layers = good();
        layers.aggregate["error_request_count"] = json!({"unit": "requests", "avg": errors});
        layers.aggregate["completed_request_count"] = json!({"unit": "requests", "avg": completed});
        let derived = layers.derive(&spec);
        let gate = gate(&derived, GateName::ErrorRatio);
        assert_eq!((gate.verdict, gate.observed.as_deref()), (verdict, Some(observed)), "{errors} of {completed}");
        assert_eq!(derived.valid(true), verdict == GateVerdict::Passed);
    }
}

#[test]
fn nothing_completed_or_generated_fails() {
    let spec = spec_with(|_| {});
    let mut layers = good();
    layers.requests = row("warmup", 0.0, 1.0, 0.5, 1, 1);
    layers.aggregate = json!({});
    let derived = layers.derive(&spec);
    assert_eq!(gate(&derived, GateName::RequestsCompleted).verdict, GateVerdict::Failed);
    assert_eq!(gate(&derived, GateName::TokensGenerated).verdict, GateVerdict::Failed);
    assert!(!derived.valid(false));
    assert_eq!(derived.result.server.unwrap().unavailable.as_deref(), Some("no profiling request was made"));
}

/// Tolerance 2% of 2.49 is 0.0498: with 10,000 drafts 14,402 to 15,398 accepted pass, both ends included.
#[test]
fn the_acceptance_length_is_held_to_its_target_exactly() {
    let spec = spec_with(|spec| spec["deployment"]["services"][1]["replicas"] = json!(1));
    for (accepted, verdict) in [
        (14_401, GateVerdict::Failed),
        (14_402, GateVerdict::Passed),
        (14_900, GateVerdict::Passed),
        (15_398, GateVerdict::Passed),
        (15_399, GateVerdict::Failed),
    ] {
        let mut layers = good();
        layers.counters = scrape(-1.0, "server", 0, &counters(0, 0, 0))
            + &scrape(10.0, "server", 0, &counters(10_000, accepted, 4000));
        assert_eq!(gate(&layers.derive(&spec), GateName::AcceptanceLength).verdict, verdict, "{accepted}");
    }
}

#[test]
fn too_few_drafts_or_no_counters_leave_the_length_unjudged_and_fail_real_runs_alone() {
    let spec = spec_with(|spec| spec["deployment"]["services"][1]["replicas"] = json!(1));
    for (drafts, verdict) in [(999, GateVerdict::NotJudged), (1000, GateVerdict::Passed)] {
        let mut layers = good();
        layers.counters = scrape(-1.0, "server", 0, &counters(0, 0, 0))
            + &scrape(10.0, "server", 0, &counters(drafts, drafts * 149 / 100, 4000));
        let derived = layers.derive(&spec);
        assert_eq!(gate(&derived, GateName::AcceptanceLength).verdict, verdict);
        assert_eq!((derived.valid(true), derived.valid(false)), (verdict == GateVerdict::Passed, true));
    }
    let mut layers = good();
    layers.counters = String::new();
    let gate_of = |derived: &Derived| gate(derived, GateName::AcceptanceLength).clone();
    let gate = gate_of(&layers.derive(&spec));
    assert_eq!(gate.verdict, GateVerdict::NotJudged);
    assert_eq!(gate.explanation, "0 of 1 processes of engine `server` were scraped");
}

#[test]
fn arms_with_real_verification_or_without_speculation_have_no_length_gate() {
    for speculative in [Value::Null, json!({"acceptance": {"real": {}}, "method": "mtp", "tokens": 3})] {
        let spec = spec_with(|spec| spec["deployment"]["speculative"] = speculative);
        let derived = good().derive(&spec);
        assert!(derived.gates.iter().all(|gate| gate.name != GateName::AcceptanceLength));
    }
}

#[test]
fn a_restarted_engine_gives_no_figures_and_no_record() {
    let mut layers = good();
    layers.counters += &scrape(5.0, "server", 0, &counters(1, 1, 1));
    let derived = layers.derive(&spec_with(|_| {}));
    let server = derived.result.server.as_ref().unwrap();
    assert!(server.unavailable.as_ref().unwrap().contains("the server restarted"));
    assert_eq!((server.generation_tokens, server.speculative.is_some()), (None, false));
    assert!(!derived.valid(true));
}

#[test]
fn another_data_set_seed_or_a_short_run_fails() {
    type Change = fn(&mut Layers);
    let changes: [(Change, &str); 7] = [
        (|layers| layers.aggregate["metadata"]["dataset"]["hf_dataset_name"] = json!("b/c"), "the client replayed b/c"),
        (
            |layers| layers.aggregate["metadata"]["dataset"]["hf_split"] = json!("test"),
            "the client replayed split test",
        ),
        (|layers| layers.aggregate["run_info"]["random_seed"] = json!(1), "the client used seed 1, not 42"),
        (|layers| layers.aggregate["was_cancelled"] = json!(true), "the client was cancelled"),
        (
            |layers| layers.aggregate["is_complete"] = json!(false),
            "the client calls its run incomplete: no reason given",
        ),
        (
            |layers| layers.aggregate["metadata"]["submission_valid"] = json!(false),
            "the client calls its scenario violated: no reason given",
        ),
        (|layers| layers.requests = row("profiling", 0.0, 5.0, 1.0, 1, 4000), "5 s of 10 s were measured"),
    ];
    for (change, explanation) in changes {
        let mut layers = good();
        change(&mut layers);
        let derived = layers.derive(&spec_with(|_| {}));
        let gate = gate(&derived, GateName::DatasetReplayed);
        assert_eq!((gate.verdict, gate.explanation.as_str()), (GateVerdict::Failed, explanation));
    }
}

#[test]
fn an_unnamed_data_set_fails_real_runs_and_not_rehearsals() {
    let mut layers = good();
    layers.aggregate["metadata"] = json!({});
    let derived = layers.derive(&spec_with(|_| {}));
    assert_eq!(gate(&derived, GateName::DatasetReplayed).verdict, GateVerdict::NotJudged);
    assert_eq!((derived.valid(true), derived.valid(false)), (false, true));

    let rehearsal = spec_with(|spec| {
        spec["deployment"]["substitutions"] =
            json!({"client": {}, "engine": {}, "programs": {}, "replay-version": 1, "simulator-version": 1});
    });
    let derived = layers.derive(&rehearsal);
    assert!(derived.result.rehearsal && derived.valid(false));
    layers.aggregate["was_cancelled"] = json!(true);
    assert!(!layers.derive(&rehearsal).valid(false));
}

#[test]
fn counters_are_held_against_the_client_only_where_they_compare() {
    let spec = spec_with(|_| {});
    let with_generated = |generated: u64| {
        let mut layers = good();
        layers.counters = [
            scrape(-1.0, "server", 0, &counters(0, 0, 0)),
            scrape(-1.0, "server", 1, &counters(0, 0, 0)),
            scrape(10.0, "server", 0, &counters(1600, 2384, generated)),
            scrape(10.0, "server", 1, &counters(0, 0, 0)),
        ]
        .concat();
        layers
    };
    // Received 4000: one per cent is 40; twice two sessions of 2999 tokens can be cut off.
    for (generated, verdict) in [
        (3959, GateVerdict::Failed),
        (3960, GateVerdict::Passed),
        (4040, GateVerdict::Passed),
        (4041, GateVerdict::NotJudged),
        (4040 + 4 * 2999, GateVerdict::NotJudged),
        (4041 + 4 * 2999, GateVerdict::Failed),
    ] {
        let derived = with_generated(generated).derive(&spec);
        assert_eq!(gate(&derived, GateName::CountersAgree).verdict, verdict, "{generated}");
        assert_eq!(derived.valid(true), verdict != GateVerdict::Failed);
    }
    let mut dirty = with_generated(1);
    dirty.requests += &row("warmup", -3.0, 2.5, 1.0, 1, 1);
    assert_eq!(gate(&dirty.derive(&spec), GateName::CountersAgree).verdict, GateVerdict::NotJudged);
    let mut failing = with_generated(1);
    failing.aggregate["error_request_count"] = json!({"avg": 1.0});
    assert_eq!(gate(&failing.derive(&spec), GateName::CountersAgree).verdict, GateVerdict::NotJudged);
}

#[test]
fn an_eval_is_scored_and_its_score_held_against_the_bound() {
    let spec = spec_with(|spec| {
        spec["measurement"]["output"] = json!("swebench");
        spec["measurement"]["gates"] = json!({"min-score": "0.50"});
        spec["deployment"]["speculative"] = json!({"acceptance": {"real": {}}, "method": "mtp", "tokens": 3});
    });
    for (resolved, verdict) in [(150, GateVerdict::Passed), (149, GateVerdict::Failed)] {
        let report =
            json!({"total_instances": 300, "completed_instances": 290, "resolved_instances": resolved}).to_string();
        let counters = good().counters;
        let raw = Raw { eval_report: Some(report.as_bytes()), counters: Some(counters.as_bytes()), ..Raw::default() };
        let derived = derive(&spec, &raw).unwrap();
        assert_eq!(gate(&derived, GateName::EvalScore).verdict, verdict);
        assert_eq!(derived.valid(true), verdict == GateVerdict::Passed);
        assert_eq!(derived.result.eval.as_ref().unwrap().instances, 300);
        // From the first scrape to the last: evals have no phases.
        assert_eq!(derived.result.server.unwrap().generation_tokens, Some(2500 + 2000));
    }
}

#[test]
fn missing_layers_and_senseless_bounds_are_errors() {
    let spec = spec_with(|_| {});
    assert_eq!(derive(&spec, &Raw::default()), Err(RawError::Missing(Layer::Requests)));
    let requests = Raw { requests: Some(b""), ..Raw::default() };
    assert_eq!(derive(&spec, &requests), Err(RawError::Missing(Layer::Aggregate)));
    let spec = spec_with(|spec| spec["measurement"]["gates"]["max-error-ratio"] = json!("a tenth"));
    let raw = Raw { requests: Some(b""), aggregate: Some(b"{}"), ..Raw::default() };
    let error = derive(&spec, &raw).unwrap_err().to_string();
    assert_eq!(error, "max-error-ratio of the spec is `a tenth`, which is not a decimal number");
}

#[test]
fn an_engine_whose_names_are_unknown_says_so() {
    let spec = spec_with(|spec| spec["deployment"]["services"][1]["engine"] = json!("sglang"));
    let derived = good().derive(&spec);
    let server = derived.result.server.as_ref().unwrap();
    assert!(server.unavailable.as_ref().unwrap().contains("no metric names are known"));
    assert!(!derived.valid(true));
}

/// A result to compare with others.
pub fn a_result() -> ResultDoc {
    good().derive(&spec_with(|_| {})).result
}

/// Cut and garbled layers give errors that name a line, or other figures; never a panic.
#[test]
fn damaged_layers_are_told_by_line() {
    let spec = spec_with(|_| {});
    let layers = good();
    let aggregate = layers.aggregate.to_string();
    let whole = [layers.requests.as_bytes(), aggregate.as_bytes(), layers.counters.as_bytes()];
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..600 {
        let mut damaged = whole.map(<[u8]>::to_vec);
        let layer = &mut damaged[round % 3];
        let place = rng.usize(..layer.len());
        if rng.bool() {
            layer.truncate(place)
        } else {
            layer[place] = rng.u8(..)
        }
        let [requests, aggregate, counters] = &damaged;
        let raw =
            Raw { requests: Some(requests), aggregate: Some(aggregate), counters: Some(counters), ..Raw::default() };
        match derive(&spec, &raw) {
            Ok(derived) => assert!(!serde_json::to_string(&derived).unwrap().contains("NaN")),
            Err(error) => assert!(error.to_string().contains("line ") || error.to_string().contains(" is "), "{error}"),
        }
    }
}
