//! Faulty recipes, curves, locks and profiles: each refused at file:line:column with its line and its fix.

use ixbuild::cli::error::Error;

use super::tree::{GOLDEN, LOCK, MASTER, RECIPE, Tree, lib};

/// A snapshot without the expression that made it.
macro_rules! shows {
    ($name:literal, $said:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($name, $said) })
    };
}

/// What is said of changes of one file, one after another.
fn edits(path: &str, edits: &[(&str, &str)]) -> String {
    let said = edits.iter().map(|(from, to)| Tree::real().edit(path, from, to).refusal("docker"));
    said.map(|said| located(&said)).collect::<Vec<_>>().join("\n\n")
}

/// Refusals must name a place, show its line and give a fix.
#[track_caller]
fn located(said: &str) -> String {
    // A label that lists the choices is a fix as well; what to do about broken syntax is the parser's own words.
    let fix = said.contains("help: ") || said.contains(" one of `") || said.contains("not valid YAML: ");
    assert!(said.contains("--> ") && said.contains(" | ") && fix, "{said}");
    let place = said.lines().find_map(|line| line.trim_start().strip_prefix("--> ")).unwrap();
    assert_eq!(place.split(':').count(), 3, "file:line:column in {place}");
    said.to_owned()
}

/// What a command says of an arm that has no spec.
fn blocked(tree: &Tree, arm: &str) -> String {
    let blocked = tree.blocked("docker");
    let (id, why) = blocked.iter().find(|(id, _)| id.ends_with(arm)).unwrap_or_else(|| panic!("{arm} is not blocked"));
    Error::refused(format!("{id} has no spec: {}", why.why)).hint(&why.unblock).render(false)
}

#[test]
fn expressions() {
    let from = "max-num-seqs: ${{ 2 * conc }}";
    shows!(
        "expressions",
        edits(
            RECIPE,
            &[
                (from, "max-num-seqs: ${{ 2 * concurrency }}"),
                (from, "max-num-seqs: ${{ 2 * cnc }}"),
                (from, "max-num-seqs: ${{ conc / 2 }}"),
                (from, "max-num-seqs: ${{ conc * 1.5 }}"),
                (from, "max-num-seqs: ${{ 2 * conc"),
                (from, "max-num-seqs: ${{ 2 * }}"),
                (from, "max-num-seqs: ${{ conc | int }}"),
                (from, "max-num-seqs: ${{ conc * 9007199254740993 }}"),
                (from, "max-num-seqs: ${{ model_path ~ \"/x\" }}"),
                (from, "max-num-seqs: ${{ endpoint(\"server\", \"http\").prt }}"),
                (from, "max-num-seqs: ${{ conc // 0 }}"),
                ("when: ${{ spec_decoding == \"mtp\" }}", "when: ${{ spec_decoding }}"),
                ("when: ${{ spec_decoding == \"mtp\" }}", "when: spec_decoding == mtp"),
                ("  draft_tokens: 3", "  draft_tokens: 3.5"),
                ("  draft_tokens: 3", "  conc: 3"),
            ]
        )
    );
}

#[test]
fn fragments_and_matching() {
    let cycle = Tree::real().edit(
        &lib("vllm"),
        "services:\n  server:\n    engine",
        "extends: [lib/aiperf-agentic.yaml]\n\nservices:\n  server:\n    engine",
    );
    let cycle = cycle.edit(&lib("aiperf-agentic"), "client:\n  tools", "extends: [lib/vllm.yaml]\n\nclient:\n  tools");
    let second = Tree::real().text(RECIPE).to_owned();
    let said = [
        located(&cycle.refusal("docker")),
        edits(
            RECIPE,
            &[
                ("  - lib/vllm-router.yaml\n", "  - lib/vllm-roter.yaml\n"),
                ("  - lib/vllm-router.yaml\n", "  - vllm/elsewhere.yaml\n"),
                ("match: {model-prefix: dsv4", "match: {model-prefx: dsv4"),
                ("scenario: agentic-coding", "scenario: agentic"),
                (
                    "match: {model-prefix: dsv4, precision: fp4, gpu: b200, framework: vllm, scenario: agentic-coding, multinode: false}\n",
                    "",
                ),
            ],
        ),
        located(&Tree::real().with("configs/recipes/second.yaml", second).refusal("docker")),
        located(&Tree::real().with("configs/recipes/empty.yaml", "# nothing\n").refusal("docker")),
    ];
    shows!("fragments_and_matching", said.join("\n\n"));
}

#[test]
fn services() {
    shows!(
        "services",
        [
            edits(
                &lib("vllm-router"),
                &[
                    ("after: [server]", "after: [sever]"),
                    ("after: [server]", "after: [client]"),
                    ("endpoint(\"server\", \"http\")", "endpoint(\"server\", \"htp\")"),
                    ("endpoint(\"server\", \"http\")", "endpoint(\"engine\", \"http\")"),
                    ("probe: {http: /health}", "probe: {http: /health, endpoint: web}"),
                    ("probe: {http: /health}", "probe: {http: /health, exit: true}"),
                    ("        image: row\n", ""),
                    ("router: {name: vllm-router}", "kv-offload-backend: {name: vllm-router}"),
                ]
            ),
            edits(
                &lib("vllm"),
                &[
                    ("    endpoints: [http]\n", "    endpoints: [http]\n    after: [router]\n"),
                    ("    endpoints: [http]\n", "    endpoints: [http]\n    after: [server]\n"),
                    ("      gpus: ${{ gpus }}", "      gpus: ${{ model }}"),
                ]
            ),
            edits(&lib("kv-offload"), &[("file(\"mooncake.json\")", "file(\"mooncake.jsn\")")]),
            edits(&lib("aiperf-agentic"), &[("tools: [aiperf]", "tools: [aiprf]")]),
            located(
                &Tree::real()
                    .edit(
                        RECIPE,
                        "services:\n  server:\n    env:",
                        "services:\n  client:\n    image: row\n    entrypoint: [x]\n  server:\n    env:"
                    )
                    .refusal("docker")
            ),
        ]
        .join("\n\n")
    );
}

#[test]
fn fields_of_a_recipe() {
    shows!(
        "fields_of_a_recipe",
        [
            edits(
                RECIPE,
                &[
                    ("let:\n", "lets: {}\nlet:\n"),
                    (
                        "    args:\n      trust-remote-code: true\n",
                        "    argz: {}\n    args:\n      trust-remote-code: true\n"
                    ),
                    // No version and no acceptance length: those keys do not exist.
                    ("      curve: dsv4_mtp\n", "      curve: dsv4_mtp\n      acceptance-length: 2.49\n"),
                    ("let:\n", "version: \"1.0\"\nlet:\n"),
                    (
                        "      trust-remote-code: true\n",
                        "      trust-remote-code: true\n      speculative-config: {method: mtp}\n"
                    ),
                    (
                        "      trust-remote-code: true\n",
                        "      trust-remote-code: true\n      speculative_config.num_speculative_tokens: 2\n"
                    ),
                    (
                        "      trust-remote-code: true\n",
                        "      trust-remote-code: true\n      --speculative-conf=: x\n"
                    ),
                    ("      trust-remote-code: true\n", "      trust-remote-code: true\n      -sc: x\n"),
                    ("      VLLM_USE_RUST_FRONTEND: 1\n", "      SGLANG_SIMULATE_ACC_LEN: \"2.49\"\n"),
                    ("      VLLM_USE_RUST_FRONTEND: 1\n", "      VLLM_USE_RUST_FRONTEND: true\n"),
                    ("      VLLM_USE_RUST_FRONTEND: 1\n", "      VLLM_USE_RUST_FRONTEND: ${{ dp_attn }}\n"),
                    ("      kv-cache-dtype: fp8\n", "      kv-cache-dtype: fp8\n      kv-cache-dtype=: fp8\n"),
                    ("      kv-cache-dtype: fp8\n", "      kv-cache-dtype: on\n"),
                    ("      kv-cache-dtype: fp8\n", "      kv-cache-dtype: 0x10\n"),
                    ("      kv-cache-dtype: fp8\n", "      kv-cache-dtype: 9007199254740993\n"),
                    ("      kv-cache-dtype: fp8\n", "      kv-cache-dtype...: fp8\n"),
                    ("      kv-cache-dtype: fp8\n", "      kv-cache-dtype: fp8\n      kv-cache-dtype: fp4\n"),
                ]
            ),
            edits(
                &lib("kv-offload"),
                &[
                    (
                        "kv-offload-backend: {name: lmcache}\n        entrypoint",
                        "kv-offload-backend: {name: lmcache, version: \"0.5.1\"}\n        entrypoint"
                    ),
                    ("          mooncake.json:\n", "          ../mooncake.json:\n"),
                ]
            ),
            edits(
                &lib("vllm"),
                &[
                    ("    entrypoint: [vllm, serve]\n", "    entrypoint: [vllm, serve, --speculative-config, x]\n"),
                    ("      - ${{ model_path }}\n", "      - ${{ model_path }}\n      - --speculative_config={}\n"),
                ]
            ),
        ]
        .join("\n\n")
    );
}

#[test]
fn requirements_and_rows() {
    shows!("requirements_and_rows", [
        edits(MASTER, &[
            ("        kv-offload-backend: { name: mooncake, version: \"0.3.11.post1\" }\n        router: { name: vllm-router, version: \"0.1.14\" }\n        conc-list: [12, 20, 28, 36, 44, 52, 60, 68, 76]\n      - tp: 8\n", "        kv-offload-backend: { name: mooncake, version: \"0.3.11.post1\" }\n        conc-list: [12]\n      - tp: 8\n"),
            ("- { tp: 8, spec-decoding: mtp, kv-offloading: none, conc-list: [1, 2, 4, 6, 8] }", "- { tp: 8, spec-decoding: draft_model, kv-offloading: none, conc-list: [1] }"),
        ]),
        edits(RECIPE, &[("when: ${{ spec_decoding == \"mtp\" }}", "when: ${{ spec_decoding != \"draft_model\" }}")]),
    ].join("\n\n"));
}

/// No spec, no fault: what would unblock the arm is said.
#[test]
fn arms_without_a_spec() {
    let mtp = "tp8-resident-mtp-c1";
    shows!(
        "arms_without_a_spec",
        [
            blocked(&Tree::real().edit(GOLDEN, "    3: 2.49\n", ""), mtp),
            blocked(&Tree::real().edit(RECIPE, "draft_tokens: 3", "draft_tokens: 9"), mtp),
            blocked(&Tree::real().edit(RECIPE, "curve: dsv4_mtp", "curve: dsv4_mpt"), mtp),
            blocked(&Tree::real().edit(RECIPE, "curve: dsv4_mtp", "curve: another"), mtp),
            blocked(&Tree::real().edit(RECIPE, "gpu: b200", "gpu: b300"), mtp),
        ]
        .join("\n\n")
    );
    let arms = Tree::real().blocked("rehearsal");
    assert_eq!(arms.len(), 68);
    assert!(
        arms.iter().all(|(id, why)| id.ends_with("-eval") && why.why.contains("no part for `mini-extra`")),
        "{arms:?}"
    );
}

#[test]
fn curves() {
    shows!(
        "curves",
        edits(
            GOLDEN,
            &[
                ("    3: 2.49\n", "    3: 4.49\n"),
                ("    3: 2.49\n", "    3: \"2.49\"\n"),
                ("    3: 2.49\n", "    3: 2.49\n    3: 2.50\n"),
                ("    3: 2.49\n", "    three: 2.49\n"),
                ("  thinking-on:\n", "  thinking-in:\n"),
                ("draft-head: mtp\n", ""),
            ]
        )
    );
    let twice = Tree::real().text(GOLDEN).to_owned();
    let said = Tree::real().with("golden_al_distribution/again.yaml", twice).refusal("docker");
    shows!("two_curves_of_one_identity", located(&said));
}

/// A golden value that is missing blocks the arms of its cell, and no others.
#[test]
fn a_missing_cell_blocks_its_arms_alone() {
    let blocked = Tree::real().edit(GOLDEN, "    3: 2.49\n", "").blocked("docker");
    assert_eq!(blocked.len(), 28);
    assert!(blocked.keys().all(|id| id.contains("-mtp-c") && !id.ends_with("-eval")));
}

#[test]
fn locks() {
    let with = |text: &str| located(&Tree::real().with(LOCK, text).refusal("docker"));
    let text = Tree::real().text(LOCK).to_owned();
    shows!(
        "locks",
        [
            with(&text.replace("\"version\": 1", "\"version\": 9")),
            with(&text.replace("\"version\": 1,", "")),
            with(&text.replacen("\"unlocked\"", "\"unlockd\"", 1)),
            with(&text.replacen(
                "\"unlocked\"",
                "{\"config\": \"sha256:12\", \"manifest\": \"sha256:12\", \"platform\": \"linux/amd64\"}",
                1
            )),
            with(&text[..text.len() / 2]),
            with(&text.replacen("\"unlocked\",\n", "\"unlocked\"\n<<<<<<< ours\n", 2)),
            with(""),
            with("version: 1\n"),
        ]
        .join("\n\n")
    );
}

#[test]
fn profiles() {
    let rehearsal = include_str!("../../src/config/profiles/rehearsal.yaml");
    let under = |from: &str, to: &str| {
        assert!(rehearsal.contains(from), "{from}");
        let tree = Tree::real().with("configs/profiles/own.yaml", rehearsal.replace(from, to));
        located(&tree.refusal("own"))
    };
    let built_in = Tree::real().with("configs/profiles/docker.yaml", rehearsal).refusal("docker");
    shows!(
        "profiles",
        [
            under("jobs: 4", "job: 4"),
            under("jobs: 4", "jobs: four"),
            under("jobs: 4", "jobs: 0"),
            under("executor: local", "executor: podman"),
            under("executor: local\n", ""),
            under("  poll-ms: 20", "  poll-s: 20"),
            under("    aiperf: replay", "    aiperf: [replay]"),
            under("engine: {}", "engine: {step-us: [1]}"),
            under("engine: {}", "engine: {step-us: 9007199254740993}"),
            under("engine: {}", "engine: {real-acceptance: .inf}"),
            under("jobs: 4", "jobs: 4\njobs: 5"),
            under("jobs: 4", "jobs: [4"),
            Tree::real().refusal("rehersal"),
            Tree::real().refusal("gpu-farm"),
            built_in,
        ]
        .join("\n\n")
    );
}

#[test]
fn tools() {
    shows!(
        "tools",
        edits(
            "configs/clients.yaml",
            &[
                ("  package: swebench\n", "  package: swebench\n  repository: https://example.org/x\n"),
                ("  version: \"4.1.0\"", "  version: 4.1"),
                ("  commit: 0d2a", "  comit: 0d2a"),
            ]
        )
    );
}
