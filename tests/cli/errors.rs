//! Faulty input: every fault at its place with the line and the fix, all at once, and nothing on stdout.

use std::fs;

use crate::env::Env;

/// The messages of a command that must refuse faulty input.
fn refusal(env: &Env, args: &[&str]) -> String {
    let said = env.ixbuild(args).ended(3);
    assert_eq!(said.out, "");
    said.transcript()
}

#[test]
fn faults_of_several_files_come_at_once() {
    let env = Env::new();
    let master = "configs/nvidia-master.yaml";
    env.edit(master, "version: \"0.5.1\"", "version: 0.51");
    env.edit(master, "precision: fp4", "precison: fp4");
    env.edit(
        master,
        "kv-offload-backend: { name: mooncake, version: \"0.3.11.post1\" }\n",
        "kv-offload-backend: { name: mooncake }\n",
    );
    env.edit("configs/recipes/lib/kv-offload.yaml", "dram_gb // gpus", "dram_gbb // gpus");
    env.edit("golden_al_distribution/dsv4_mtp.yaml", "3: 2.49", "3: 5.49");
    env.edit("configs/runners.yaml", "gpus-per-node: 8", "gpus-per-node: eight");
    fs::write(env.path("configs/profiles/quick.yaml"), "executor: local\njobs: many\n").unwrap();
    insta::assert_snapshot!(refusal(&env, &["plan"]));
    // Every verb that needs the project says the same.
    let said = refusal(&env, &["plan"]);
    for args in [&["run", "--only-changed"][..], &["show", "tp8-resident-c1"], &["why", "tp8-resident-c1"]] {
        assert_eq!(refusal(&env, args), said);
    }
    // And as JSON where JSON was asked for.
    let json = env.ixbuild(&["plan", "--json"]).ended(3).json();
    let diagnostics = json["error"]["diagnostics"].as_array().unwrap();
    assert!(diagnostics.len() >= 6, "{json}");
    assert!(diagnostics.iter().all(|fault| fault["file"].is_string() && fault["line"].is_u64()), "{json}");
    assert_eq!(json["error"]["code"], 3);
}

#[test]
fn faults_of_composition() {
    let mut said = String::new();
    let mut case = |name: &str, file: &str, from: &str, to: &str| {
        let env = Env::new();
        env.edit(file, from, to);
        said.push_str(&format!("# {name}\n{}\n", refusal(&env, &["plan"])));
    };
    let recipe = "configs/recipes/dsv4-fp4-b200-vllm.yaml";
    case(
        "a requirement that does not hold",
        "configs/nvidia-master.yaml",
        "        router: { name: vllm-router, version: \"0.1.14\" }\n        conc-list: [8, 16,",
        "        conc-list: [8, 16,",
    );
    case("a fragment that is not there", recipe, "lib/vllm.yaml", "lib/vlm.yaml");
    case("a service that is not there", "configs/recipes/lib/aiperf-agentic.yaml", "after: [server]", "after: [sever]");
    case(
        "a row beyond its node",
        "configs/nvidia-master.yaml",
        "{ tp: 8, kv-offloading: none",
        "{ tp: 16, kv-offloading: none",
    );
    case("a second document", "configs/runners.yaml", "\nhardware:", "\n---\nhardware:");
    insta::assert_snapshot!(said);
}

#[test]
fn two_recipes_for_one_arm() {
    let env = Env::new();
    let recipe = env.path("configs/recipes/dsv4-fp4-b200-vllm.yaml");
    fs::copy(&recipe, env.path("configs/recipes/another.yaml")).unwrap();
    let said = refusal(&env, &["plan"]);
    assert!(said.contains("another.yaml") && said.contains("dsv4-fp4-b200-vllm.yaml"), "{said}");
}

#[test]
fn an_arm_without_a_recipe_is_blocked_with_what_to_write() {
    let env = Env::new();
    env.edit("configs/nvidia-master.yaml", "precision: fp4", "precision: fp8");
    let said = env.ixbuild(&["plan", "tp8-resident-c1"]).ok();
    assert!(said.out.contains("no recipe matches") && said.out.contains("precision: fp8"), "{}", said.out);
}

#[test]
fn there_is_no_project_or_no_profile_here() {
    let env = Env::new();
    let binary = env!("CARGO_BIN_EXE_ixbuild");
    let nowhere = env.said(env.command(binary).current_dir(env.scratch()).arg("plan")).ended(2);
    assert!(nowhere.err.contains("no ixbuild project in") && nowhere.err.contains("--project DIR"), "{}", nowhere.err);
    let scratch = env.scratch().display().to_string();
    let other = env.ixbuild(&["plan", "--project", &scratch]).ended(2);
    assert!(other.err.contains("is no ixbuild project"), "{}", other.err);
    // From a folder below, and from anywhere with --project.
    let project = env.path("").display().to_string();
    for (folder, args) in [(env.path("configs/recipes"), &["plan"][..]), ("/".into(), &["plan", "-C", &project])] {
        let said = env.said(env.command(binary).current_dir(folder).args(args)).ok();
        assert!(said.out.contains("68 arms: 0 recorded, 68 to run"), "{}", said.out);
    }
    let said = env.ixbuild(&["plan", "--profile", "rehersal"]).ended(3);
    assert!(
        said.err.contains("no profile `rehersal`") && said.err.contains("did you mean `rehearsal`?"),
        "{}",
        said.err
    );
}

#[test]
fn inputs_that_are_no_yaml() {
    let mut said = String::new();
    let cases: [(&str, &[u8]); 5] = [
        ("configs/nvidia-master.yaml", b""),
        ("configs/nvidia-master.yaml", b"a: [\n"),
        ("configs/runners.yaml", b"labels:\n\tx: 1\n"),
        ("golden_al_distribution/dsv4_mtp.yaml", b"model: \xff\n"),
        ("ixbuild.lock", b"{\"version\": 99}"),
    ];
    for (path, bytes) in cases {
        let env = Env::new();
        fs::write(env.path(path), bytes).unwrap();
        said.push_str(&format!("# {path}\n{}\n", refusal(&env, &["plan"])));
    }
    insta::assert_snapshot!(said);
}
