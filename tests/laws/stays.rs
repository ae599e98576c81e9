//! What never changes a job's name.

use std::path::Path;

use ixbuild::config::inputs::Inputs;
use ixbuild::project::Project;
use proptest::prelude::*;

use super::restyle::restyled;
use super::tree::{GOLDEN, Jobs, KEY, MASTER, RECIPE, RUNNERS, Tree, every_arm, lib, moved, real, real_jobs};

/// The committed jobs stand, every one under its own id.
#[track_caller]
fn stays(changed: &Tree) {
    assert_eq!(moved(real_jobs("docker"), &changed.jobs("docker")), [].into());
}

/// The committed jobs stand, whatever they are called now.
#[track_caller]
fn stays_under_other_names(changed: &Tree) {
    let names = |jobs: Jobs| jobs.into_values().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(names(changed.jobs("docker")), names(real_jobs("docker").clone()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn style_comments_and_key_order(
        choices in proptest::collection::vec(any::<u8>(), 7..97),
        crlf in any::<bool>(),
        bom in any::<bool>(),
    ) {
        let mut tree = Tree::real();
        for (path, text) in tree.0.iter_mut().filter(|(path, _)| path.ends_with(".yaml")) {
            *text = restyled(text, &choices);
            prop_assert!(!text.is_empty(), "{}", path);
            if crlf {
                *text = text.replace('\n', "\r\n");
            }
            if bom {
                text.insert(0, '\u{feff}');
            }
        }
        prop_assert_eq!(&tree.jobs("docker"), real_jobs("docker"));
    }
}

#[test]
fn line_ends_of_every_file() {
    let mut tree = Tree::real();
    tree.0.values_mut().for_each(|text| *text = text.replace('\n', "\r\n"));
    stays(&tree);
    assert_eq!(&tree.jobs("rehearsal"), real_jobs("rehearsal"));
}

#[test]
fn the_folder_and_the_prefix_that_messages_show() {
    for prefix in ["", "some/where/else", "../.."] {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in &Tree::real().0 {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let project = Project::load(Inputs::read(folder.path(), prefix).unwrap(), "docker").unwrap();
        let jobs = every_arm(&project).unwrap().into_iter();
        let jobs: Jobs = jobs.map(|arm| (arm.id.to_string(), project.job(&arm).unwrap().spec.hash())).collect();
        assert_eq!(&jobs, real_jobs("docker"));
    }
}

#[test]
fn names_of_keys_arms_recipes_and_curves() {
    let renamed = Tree::real().edit_all(MASTER, KEY, "another-name");
    assert_eq!(renamed.jobs("docker").keys().filter(|id| id.starts_with("another-name")).count(), 136);
    stays_under_other_names(&renamed);

    let text = Tree::real().text(RECIPE).to_owned();
    stays(&Tree::real().without(RECIPE).with("configs/recipes/zz.yaml", text));
    let text = Tree::real().text(&lib("kv-offload")).to_owned();
    let moved = Tree::real().without(&lib("kv-offload")).with("configs/recipes/parts/offload.yaml", text);
    stays(&moved.edit(RECIPE, "lib/kv-offload.yaml", "parts/offload.yaml"));
    let text = Tree::real().text(GOLDEN).to_owned();
    let renamed = Tree::real().without(GOLDEN).with("golden_al_distribution/other.yaml", text);
    stays(&renamed.edit(RECIPE, "curve: dsv4_mtp", "curve: other"));
}

#[test]
fn the_key_and_the_file_that_a_row_stands_in() {
    // The MTP key's rows move to the other key, whose fields are the same.
    let master = Tree::real().text(MASTER).to_owned();
    let (first, second) = master.split_once(&format!("{KEY}-mtp:")).unwrap();
    let rows = second.split_once("search-space:\n").unwrap().1;
    let merged = Tree::real().with(MASTER, format!("{first}{rows}"));
    assert_eq!(merged.jobs("docker").len(), 136);
    stays_under_other_names(&merged);

    let split = Tree::real().with(MASTER, first).with("configs/other-master.yaml", format!("{KEY}-mtp:{second}"));
    stays(&split);
}

#[test]
fn unrelated_rows_and_entries() {
    let row = "      - { tp: 8, kv-offloading: none, conc-list: [1, 2, 4, 6, 8] }\n";
    let more = format!("{row}      - {{ tp: 4, kv-offloading: none, conc-list: [3] }}\n");
    let jobs = Tree::real().edit(MASTER, row, &more).jobs("docker");
    assert_eq!(jobs.len(), 138);
    assert!(real_jobs("docker").iter().all(|(id, job)| jobs[id] == *job));

    let jobs = Tree::real().edit(MASTER, row, "").jobs("docker");
    assert_eq!(jobs.len(), 126);
    assert!(jobs.iter().all(|(id, job)| real_jobs("docker")[id] == *job));

    stays(&Tree::real().edit(MASTER, row, "").edit(
        MASTER,
        "        conc-list: [8, 12, 16]\n      - tp: 8\n        kv-offloading: dram\n        kv-offload-backend: { name: lmcache",
        &format!("        conc-list: [16, 8, 12, 8]\n{row}      - tp: 8\n        kv-offloading: dram\n        kv-offload-backend: {{ name: lmcache"),
    ));

    let other = "o-key:\n  image: o/o:1\n  model: o/o\n  model-prefix: o\n  precision: fp8\n  framework: vllm\n  runner: h100\n  multinode: false\n  scenarios:\n    fixed-seq-len:\n    - isl: 1024\n      osl: 1024\n      search-space:\n      - { tp: 8, conc-start: 4, conc-end: 64 }\n";
    let tree = Tree::real().with("configs/other-master.yaml", other);
    let tree = tree.edit(RUNNERS, "labels:\n", "labels:\n  h100: [h100-x_00]\n");
    assert_eq!(tree.blocked("docker").len(), 10);
    assert_eq!(&tree.jobs("docker"), real_jobs("docker"));
}

#[test]
fn other_cells_and_curves() {
    stays(&Tree::real().edit(GOLDEN, "    2: 2.27\n", "    2: 2.28\n").edit(GOLDEN, "    3: 2.97\n", "    3: 2.98\n"));
    stays(&Tree::real().edit(GOLDEN, "    8: 2.58\n", "").edit(
        GOLDEN,
        "reasoning-effort: high",
        "reasoning-effort: low",
    ));
    stays(&Tree::real().without("golden_al_distribution/qwen3.5_mtp.yaml"));
    let other = Tree::real().text(GOLDEN).replace("deepseek-v4-pro", "other");
    stays(&Tree::real().with("golden_al_distribution/other.yaml", other));
}

#[test]
fn other_recipes_tools_and_lock_entries() {
    let other = Tree::real().text(RECIPE).replace("gpu: b200", "gpu: h200").replace("0.92", "0.5");
    stays(&Tree::real().with("configs/recipes/other.yaml", other));
    stays(&Tree::real().edit(RECIPE, "else: this recipe has no pipeline parallelism", "else: no pp"));
    stays(&Tree::real().edit_all(RECIPE, "draft_tokens", "n"));
    let tools = "\nunused:\n  package: unused\n  version: \"1\"\n";
    let with_python =
        |text: &str| if text.contains("python: ") { format!("{tools}  python: 3.12\n") } else { tools.to_owned() };
    let clients = Tree::real().text("configs/clients.yaml").to_owned();
    stays(&Tree::real().with("configs/clients.yaml", format!("{clients}{}", with_python(&clients))));
    stays(&Tree::real().edit(super::tree::LOCK, "\"images\": {\n", "\"images\": {\n    \"a/a:1\": \"unlocked\",\n"));
}

#[test]
fn the_version_of_a_backend_that_is_built_into_the_engine() {
    stays(&Tree::real().edit_all(MASTER, "{ name: vllm-simple, version: 904e4ec }", "{ name: vllm-simple }"));
}

#[test]
fn the_tag_of_a_locked_image() {
    let locked = Tree::real().locked(|_| true, "");
    let tag = "vllm/vllm-openai:nightly-dev-x86_64-cu13.0.1-904e4ec";
    let mirrored = locked.clone().edit_all(MASTER, tag, "mirror.example/vllm:other").edit(
        super::tree::LOCK,
        tag,
        "mirror.example/vllm:other",
    );
    assert_eq!(mirrored.jobs("docker"), locked.jobs("docker"));
    assert!(locked.specs("docker").values().all(|spec| spec.unlocked().iter().all(|name| name.starts_with("closure"))));
}

#[test]
fn hosts_paths_times_and_secrets_of_a_profile() {
    let docker = include_str!("../../src/config/profiles/docker.yaml");
    let rehearsal = include_str!("../../src/config/profiles/rehearsal.yaml");
    for (name, text) in [("docker", docker), ("rehearsal", rehearsal)] {
        let mut text = text.to_owned();
        for (from, to) in [
            ("jobs: ", "jobs: 1"),
            ("poll-ms: ", "poll-ms: 1"),
            ("ready-timeout-s: ", "ready-timeout-s: 1"),
            ("grace-s: ", "grace-s: 1"),
            ("scrape-ms: ", "scrape-ms: 1"),
            ("client-timeout-s: ", "client-timeout-s: 1"),
            ("start-up-s: ", "start-up-s: 1"),
        ] {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let text = text.lines().filter(|line| {
            !line.starts_with("secrets") && !line.starts_with("host:") && !line.starts_with("  rdma-devices")
        });
        let text = text.collect::<Vec<_>>().join("\n");
        let text = format!(
            "{text}\nrecords: 3\nsecrets: [A, B]\nhost: {{rdma-devices: 'mlx5_0,mlx5_7'}}\nmodels: {{deepseek-ai/DeepSeek-V4-Pro: /mnt/weights}}\n"
        );
        let jobs = Tree::real().with("configs/profiles/elsewhere.yaml", text).jobs("elsewhere");
        assert_eq!(&jobs, real_jobs(name));
    }
}

#[test]
fn a_spec_names_nothing_of_what_it_does_not_depend_on() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).display().to_string();
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    for (id, spec) in real("docker").iter().chain(real("rehearsal")) {
        let text = String::from_utf8(spec.canonical()).unwrap();
        let mut words =
            vec![id.as_str(), KEY, "dsv4_mtp", "b200-dgxc_0", env!("CARGO_PKG_VERSION"), "rehearsal", "mlx5", &folder];
        words.extend(Some(host.trim()).filter(|host| host.len() > 8));
        for word in words {
            // The package's own version may occur within another's.
            let found =
                text.contains(word) && (word != env!("CARGO_PKG_VERSION") || text.contains(&format!("\"{word}\"")));
            assert!(!found, "{id} holds {word}");
        }
    }
}
