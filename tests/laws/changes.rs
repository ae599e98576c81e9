//! What changes the names of jobs, and of which ones alone.

use ixbuild::ids::Digest;
use ixbuild::sim::{REPLAY_VERSION, SIMULATOR_VERSION};
use ixbuild::spec::JobSpec;

use super::tree::{GOLDEN, LOCK, MASTER, RECIPE, RUNNERS, Tree, lib, moved, moves, moves_from, named, real, real_jobs};

fn real_tree() -> Tree {
    Tree::real()
}

#[test]
fn an_overlay_of_a_backend_moves_the_arms_of_that_backend() {
    let offload = lib("kv-offload");
    let mooncake = |id: &str| id.contains("-mooncake-");
    moves(&real_tree().edit(&offload, "eviction_ratio=: 0.10", "eviction_ratio=: 0.11"), 36, mooncake);
    moves(&real_tree().edit(&offload, "local_buffer_size: 4GB", "local_buffer_size: 5GB"), 36, mooncake);
    moves(&real_tree().edit(&offload, "MC_WORKERS_PER_CTX: 4", "MC_WORKERS_PER_CTX: 5"), 36, mooncake);
    moves(&real_tree().edit(&offload, "load_async: true", "load_async: false"), 36, mooncake);
    moves(&real_tree().edit(&offload, "alive-after-ms: 2000", "alive-after-ms: 2001"), 36, mooncake);
    let lmcache = |id: &str| id.contains("-lmcache-");
    moves(&real_tree().edit(&offload, "chunk-size: 1024", "chunk-size: 512"), 24, lmcache);
    moves(
        &real_tree().edit(&offload, "        args:\n          enable-cumem-allocator: null\n", "        args:\n"),
        24,
        lmcache,
    );
    moves(&real_tree().edit(&offload, "lazy_offload: false", "lazy_offload: true"), 56, |id| {
        id.contains("-vllm-simple-")
    });
}

#[test]
fn eighteen_throughput_arms_run_again_when_the_mooncake_overlay_changes() {
    let changed = real_tree().edit(&lib("kv-offload"), "default_kv_lease_ttl=: 60s", "default_kv_lease_ttl=: 30s");
    let moved = moved(real_jobs("rehearsal"), &changed.jobs("rehearsal"));
    assert_eq!(moved.len(), 18);
    assert!(moved.iter().all(|id| id.contains("-mooncake-")), "{moved:?}");
}

#[test]
fn other_overlays_move_the_arms_that_they_make() {
    moves(&real_tree().edit(RECIPE, "gpu-memory-utilization: 0.9\n", "gpu-memory-utilization: 0.91\n"), 56, |id| {
        id.contains("-mtp-c")
    });
    moves(&real_tree().edit(RECIPE, "prefill-schedule-interval: 16", "prefill-schedule-interval: 8"), 98, |id| {
        id.contains("-dpa-")
    });
    moves(
        &real_tree().edit(&lib("vllm-router"), "request-timeout-secs: 14400", "request-timeout-secs: 3600"),
        98,
        |id| id.contains("-dpa-"),
    );
    moves(
        &real_tree().edit(&lib("aiperf-agentic"), "num-dataset-entries: 393", "num-dataset-entries: 394"),
        68,
        |id| !id.ends_with("-eval"),
    );
    moves(&real_tree().edit(&lib("swe-bench"), "agent.step_limit=75", "agent.step_limit=76"), 68, |id| {
        id.ends_with("-eval")
    });
    moves(&real_tree().edit(RECIPE, "block-size: 256", "block-size: 128"), 136, |_| true);
}

#[test]
fn the_order_of_args_is_argv() {
    let swapped = real_tree().edit(
        RECIPE,
        "      kv-cache-dtype: fp8\n      block-size: 256\n",
        "      block-size: 256\n      kv-cache-dtype: fp8\n",
    );
    moves(&swapped, 136, |_| true);
    let swapped = real_tree().edit(
        &lib("kv-offload"),
        "          max-gpu-workers: 1\n          max-cpu-workers: 8\n",
        "          max-cpu-workers: 8\n          max-gpu-workers: 1\n",
    );
    moves(&swapped, 24, |id| id.contains("-lmcache-"));
}

#[test]
fn a_golden_value_moves_the_throughput_arms_of_its_cell() {
    let changed = real_tree().edit(GOLDEN, "    3: 2.49\n", "    3: 2.50\n");
    moves(&changed, 28, |id| id.contains("-mtp-c") && !id.ends_with("-eval"));
    let other_head = real_tree().edit(GOLDEN, "verification: plain", "verification: block");
    moves(&other_head, 28, |id| id.contains("-mtp-c") && !id.ends_with("-eval"));
}

#[test]
fn what_a_row_says_moves_its_arms() {
    let mooncake = |id: &str| id.contains("-mooncake-");
    moves(&real_tree().edit_all(MASTER, "\"0.3.11.post1\"", "\"0.3.12\""), 36, mooncake);
    moves(&real_tree().edit_all(MASTER, "version: \"0.1.14\"", "version: \"0.1.15\""), 98, |id| id.contains("-dpa-"));
    moves(
        &real_tree().edit_all(MASTER, "image: vllm/vllm-openai:nightly", "image: vllm/vllm-openai:weekly"),
        136,
        |_| true,
    );
    // 0.70 of the same memory: another budget for every arm that offloads.
    moves(&real_tree().edit_all(MASTER, "dram-utilization: 0.80", "dram-utilization: 0.70"), 116, |id| {
        !id.contains("-resident-")
    });
    let fleet = real_tree().edit_all(MASTER, "cluster:b200-dgxc", "cluster:b200-other").edit_all(
        RUNNERS,
        "cluster:b200-dgxc",
        "cluster:b200-other",
    );
    moves(&fleet, 136, |_| true);
    moves(&real_tree().edit(RUNNERS, "3_095_781", "2_800_000"), 116, |id| !id.contains("-resident-"));
}

/// A digest that moves in the lock moves the arms that use it; a tag that moves elsewhere moves nothing, being no input.
#[test]
fn a_locked_digest_moves_the_arms_that_use_it() {
    let locked = real_tree().locked(|_| true, "");
    let before = locked.jobs("docker");
    let check = |name: &'static str, count: usize, expected: &dyn Fn(&str) -> bool| {
        let is = |entry: &str| {
            entry == name || entry.starts_with(&format!("{name} ")) || entry.ends_with(&format!("/{name}"))
        };
        assert!(real_tree().text(LOCK).contains(name), "{name}");
        moves_from(&before, &locked.clone().locked(is, "moved"), count, expected);
    };
    let (eval, load) = (|id: &str| id.ends_with("-eval"), |id: &str| !id.ends_with("-eval"));
    check("mooncake-transfer-engine-cuda13", 36, &|id| id.contains("-mooncake-"));
    check("lmcache", 24, &|id| id.contains("-lmcache-"));
    check("vllm-router", 98, &|id| id.contains("-dpa-"));
    check("git+https://github.com/SemiAnalysisAI/aiperf", 68, &load);
    check("swebench", 68, &eval);
    check("mini-swe-agent", 68, &eval);
    check("swe-rex", 68, &eval);
    check("vllm/vllm-openai:nightly-dev-x86_64-cu13.0.1-904e4ec", 136, &|_| true);
    check("deepseek-ai/DeepSeek-V4-Pro", 136, &|_| true);
    check("semianalysisai/cc-traces-weka-062126", 68, &load);
    check("princeton-nlp/SWE-Bench_Lite", 68, &eval);
}

#[test]
fn locking_an_entry_moves_the_arms_that_use_it() {
    let locked = real_tree().locked(|name| name.starts_with("lmcache "), "");
    moves(&locked, 24, |id| id.contains("-lmcache-"));
}

#[test]
fn a_rehearsal_is_another_job_and_so_is_one_with_other_settings() {
    let (docker, rehearsal) = (real_jobs("docker"), real_jobs("rehearsal"));
    assert_eq!((docker.len(), rehearsal.len()), (136, 68));
    assert!(rehearsal.iter().all(|(id, job)| docker[id] != *job));

    let text = include_str!("../../src/config/profiles/rehearsal.yaml");
    let under = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        real_tree().with("configs/profiles/other.yaml", text.replace(from, to)).jobs("other")
    };
    assert_eq!(&under("engine: {}", "engine: {}"), rehearsal);
    for (from, to, count) in [
        ("engine: {}", "engine: {step-us: 301}", 68),
        ("engine: {}", "engine: {real-acceptance: 0.75}", 68),
        ("duration-ms: 1000", "duration-ms: 1001", 68),
        // A part that only some jobs have concerns those alone.
        ("mooncake_master: mooncake", "mooncake_master: lmcache", 18),
        ("vllm-router: vllm-router", "vllm-router: vllm", 49),
        ("    aiperf: replay", "    aiperf: replay\n    unused: vllm", 0),
    ] {
        assert_eq!(moved(rehearsal, &under(from, to)).len(), count, "{to}");
    }
}

#[test]
fn the_simulators_own_versions_are_part_of_a_rehearsal() {
    let spec = named(real("rehearsal"), "tp8-ep8-dpa-mooncake-mtp-c12");
    let substitutions = spec.deployment.substitutions.as_ref().unwrap();
    assert_eq!((substitutions.simulator_version, substitutions.replay_version), (SIMULATOR_VERSION, REPLAY_VERSION));
    let with = |change: &dyn Fn(&mut JobSpec)| {
        let mut spec = spec.clone();
        change(&mut spec);
        spec.hash()
    };
    let newer = with(&|spec| spec.deployment.substitutions.as_mut().unwrap().simulator_version += 1);
    let newer_client = with(&|spec| spec.deployment.substitutions.as_mut().unwrap().replay_version += 1);
    assert!(newer != spec.hash() && newer_client != spec.hash() && newer != newer_client);
}

/// The two halves have names of their own: what is served, and what is measured on it.
#[test]
fn the_halves_change_on_their_own() {
    let before = real("docker");
    let of = |specs: &std::collections::BTreeMap<String, JobSpec>| -> Vec<(Digest, Digest)> {
        specs.values().map(|spec| (spec.deployment_digest(), spec.measurement_digest())).collect()
    };
    let client = real_tree()
        .edit(&lib("aiperf-agentic"), "warmup-grace-period: 1800", "warmup-grace-period: 60")
        .specs("docker");
    let server = real_tree().edit(RECIPE, "block-size: 256", "block-size: 128").specs("docker");
    let mut measurements_moved = 0;
    for ((now, client), server) in of(before).iter().zip(of(&client)).zip(of(&server)) {
        assert_eq!((now.0, now.1), (client.0, server.1));
        assert_ne!(now.0, server.0);
        measurements_moved += usize::from(now.1 != client.1);
    }
    assert_eq!(measurements_moved, 68, "evals have another client");
}
