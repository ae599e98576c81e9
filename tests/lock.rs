//! `ixbuild lock` as a user calls it, against a package index and a hub on this machine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on may end")]

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use axum::extract::{Path as UrlPath, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const ROUTER: &str = "vllm_router-0.1.14-cp38-abi3-manylinux_2_28_x86_64.whl";

/// An index and a hub in one server.
struct World {
    address: String,
    served: Arc<Served>,
    // Dropping it ends the server.
    _runtime: tokio::runtime::Runtime,
}

#[derive(Default)]
struct Served {
    /// Package → files of its page.
    pages: Mutex<BTreeMap<String, Vec<Value>>>,
    /// `models/ID` or `datasets/ID` → status and body.
    hub: Mutex<BTreeMap<String, (u16, Value)>>,
    /// Every request: its path, and the authorization that came with it.
    log: Mutex<Vec<(String, String)>>,
    /// Requests that fail with 503 before the first that does not.
    failing: Mutex<usize>,
}

impl World {
    /// A server that has what this project needs.
    fn new() -> Self {
        let served = Arc::new(Served::default());
        for name in [
            ROUTER,
            "vllm_router-0.1.14-cp38-abi3-manylinux_2_28_aarch64.whl",
            "vllm_router-0.1.13-cp38-abi3-manylinux_2_28_x86_64.whl",
            "mooncake_transfer_engine_cuda13-0.3.11.post1-cp311-cp311-manylinux_2_35_x86_64.whl",
            "mooncake_transfer_engine_cuda13-0.3.11.post1-cp312-cp312-manylinux_2_35_x86_64.whl",
            "lmcache-0.5.1-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
            "mini_swe_agent-2.4.5-py3-none-any.whl",
            "swe_rex-1.4.0-py3-none-any.whl",
            "swebench-4.1.0-py3-none-any.whl",
        ] {
            let package = name.split('-').next().unwrap().replace('_', "-");
            served.pages.lock().unwrap().entry(package).or_default().push(file(name));
        }
        for id in ["models/deepseek-ai/DeepSeek-V4-Pro", "datasets/princeton-nlp/SWE-Bench_Lite"] {
            served.hub.lock().unwrap().insert(id.into(), (200, json!({"id": id, "sha": COMMIT})));
        }
        let traces = "datasets/semianalysisai/cc-traces-weka-062126";
        served.hub.lock().unwrap().insert(traces.into(), (200, json!({"sha": COMMIT})));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = Router::new()
            .route("/simple/{name}/", get(page))
            .route("/api/{*path}", get(hub))
            .layer(axum::middleware::from_fn_with_state(served.clone(), log))
            .with_state(served.clone());
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { address, served, _runtime: runtime }
    }

    fn index(&self) -> String {
        format!("http://{}/simple", self.address)
    }

    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.served.log.lock().unwrap().iter().map(|(path, _)| path.clone()).collect();
        paths.sort();
        paths
    }

    fn files(&self, package: &str, change: impl FnOnce(&mut Vec<Value>)) {
        change(self.served.pages.lock().unwrap().entry(package.to_owned()).or_default());
    }
}

/// A page's entry for a wheel whose content is its name.
fn file(name: &str) -> Value {
    json!({
        "filename": name,
        "hashes": {"sha256": sha256(name)},
        "requires-python": ">=3.8",
        "url": format!("https://files.invalid/{name}"),
        "yanked": false,
    })
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn log(State(served): State<Arc<Served>>, request: Request, next: axum::middleware::Next) -> Response {
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let entry = (request.uri().path().to_owned(), authorization.unwrap_or_default().to_owned());
    served.log.lock().unwrap().push(entry);
    {
        let mut failing = served.failing.lock().unwrap();
        if *failing > 0 {
            *failing -= 1;
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    }
    next.run(request).await
}

async fn page(State(served): State<Arc<Served>>, UrlPath(name): UrlPath<String>, request: Request) -> Response {
    let kind = "application/vnd.pypi.simple.v1+json";
    if request.headers().get("accept").is_none_or(|accept| accept != kind) {
        return ([(header::CONTENT_TYPE, "text/html")], "<html></html>").into_response();
    }
    match served.pages.lock().unwrap().get(&name) {
        Some(files) => {
            let page = json!({"meta": {"api-version": "1.1"}, "name": name, "files": files});
            ([(header::CONTENT_TYPE, kind)], page.to_string()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn hub(State(served): State<Arc<Served>>, UrlPath(path): UrlPath<String>) -> Response {
    let found = path.strip_suffix("/revision/main").and_then(|id| served.hub.lock().unwrap().get(id).cloned());
    let (status, body) = found.unwrap_or((404, json!({"error": "Repository not found"})));
    (StatusCode::from_u16(status).unwrap(), Json(body)).into_response()
}

/// A project: this repository's configs, without a lock.
struct Project {
    root: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in ["configs", "golden_al_distribution"] {
            copy(&here.join(folder), &root.path().join(folder));
        }
        fs::create_dir(root.path().join("home")).unwrap();
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn lock_text(&self) -> String {
        fs::read_to_string(self.path("ixbuild.lock")).unwrap()
    }

    fn locked(&self) -> Value {
        serde_json::from_str(&self.lock_text()).unwrap()
    }

    fn edit(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        fs::write(self.path(name), text.replace(from, to)).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ixbuild"));
        let home = self.path("home");
        command.env_clear().env("HOME", &home).env("XDG_CONFIG_DIRS", home.join("none")).current_dir(self.root.path());
        command.env("IXBUILD_STORE", self.path("store")).args(args);
        command
    }

    /// `ixbuild lock` against a world.
    fn lock(&self, world: &World, args: &[&str]) -> Ran {
        let mut command = self.command(&["lock"]);
        command.args(args).env("PIP_INDEX_URL", world.index()).env("HF_ENDPOINT", format!("http://{}", world.address));
        Ran::from(command.output().unwrap())
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What a command said.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

#[test]
fn lock_pins_every_wheel_and_revision_and_says_what_stays_open() {
    let (world, project) = (World::new(), Project::new());
    let ran = project.lock(&world, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lock = project.locked();
    let router = &lock["packages"]["vllm-router 0.1.14 cp312 linux/amd64"];
    assert_eq!(*router, json!({"files": {ROUTER: format!("sha256:{}", sha256(ROUTER))}}));
    let packages = lock["packages"].as_object().unwrap();
    assert_eq!(packages.len(), 7);
    for (name, entry) in packages.iter().filter(|(name, _)| !name.starts_with("git+")) {
        let (file, digest) = entry["files"].as_object().unwrap_or_else(|| panic!("{name}")).iter().next().unwrap();
        assert_eq!(*digest, format!("sha256:{}", sha256(file)));
        assert!(file.contains("x86_64") || file.ends_with("-py3-none-any.whl"), "{file}");
        assert!(!file.contains("cp311"), "{file}");
    }
    for id in ["models/deepseek-ai/DeepSeek-V4-Pro", "datasets/semianalysisai/cc-traces-weka-062126"] {
        assert_eq!(lock["hub"][id], json!({"revision": COMMIT}));
    }
    let image = "vllm/vllm-openai:nightly-dev-x86_64-cu13.0.1-904e4ec";
    assert_eq!(lock["images"], json!({image: "unlocked"}));
    assert!(ran.out.contains(&format!("unlocked  {image}: ")), "{}", ran.out);
    assert!(ran.out.contains("unlocked  closure of lmcache 0.5.1 in "), "{}", ran.out);
    assert!(!project.lock_text().contains(&world.address) && !project.lock_text().contains("http:"), "no address");
    // One request a package and id.
    assert_eq!(world.paths().len(), 9, "{:?}", world.paths());
    assert!(world.paths().contains(&"/api/models/deepseek-ai/DeepSeek-V4-Pro/revision/main".to_owned()));
}

#[test]
fn what_is_locked_is_kept_without_asking_until_it_is_updated() {
    let (world, project) = (World::new(), Project::new());
    project.lock(&world, &[]);
    let first = project.lock_text();
    let asked = world.paths().len();
    let again = project.lock(&world, &[]);
    assert!(again.err.contains("ixbuild.lock is as it was"), "{again:?}");
    assert_eq!((again.code, project.lock_text()), (Some(0), first.clone()));
    assert_eq!(world.paths().len(), asked, "a second lock asks nobody");

    let moved = "f".repeat(40);
    let model = "models/deepseek-ai/DeepSeek-V4-Pro";
    world.served.hub.lock().unwrap().insert(model.into(), (200, json!({"sha": moved})));
    assert_eq!(project.lock(&world, &["--update", "vllm-router"]).code, Some(0));
    assert_eq!(project.lock_text(), first, "an update of something else leaves it");
    let ran = project.lock(&world, &["--update", "deepseek-ai/DeepSeek-V4-Pro", "--dry-run"]);
    assert!(ran.out.contains(&format!("locked    {model}: {moved}")), "{ran:?}");
    assert_eq!(project.lock_text(), first, "a dry run writes nothing");
    project.lock(&world, &["--update"]);
    assert_eq!(project.locked()["hub"][model], json!({"revision": moved}));
    let changed: Vec<_> = project.lock_text().lines().zip(first.lines()).filter(|(a, b)| a != b).map(|_| ()).collect();
    assert_eq!(changed.len(), 1, "one entry is one line");
    let unknown = project.lock(&world, &["--update", "vllm-routr"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("did you mean `vllm-router`?"), "{}", unknown.err);
}

#[test]
fn a_new_version_adds_its_entry_and_drops_the_old_one() {
    let (world, project) = (World::new(), Project::new());
    project.lock(&world, &[]);
    project.edit("configs/nvidia-master.yaml", "version: \"0.1.14\"", "version: \"0.1.13\"");
    let check = project.lock(&world, &["--check"]);
    assert_eq!(check.code, Some(4), "{check:?}");
    assert!(check.out.contains("unlocked  vllm-router 0.1.13 cp312 linux/amd64: the lock has no such entry"));
    let ran = project.lock(&world, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("dropped   vllm-router 0.1.14 cp312 linux/amd64: nothing names it"), "{}", ran.out);
    let lock = project.locked();
    assert!(lock["packages"]["vllm-router 0.1.13 cp312 linux/amd64"]["files"].is_object());
    assert!(lock["packages"]["vllm-router 0.1.14 cp312 linux/amd64"].is_null());
}

#[test]
fn an_edited_version_blocks_real_runs_until_it_is_locked() {
    let (world, project) = (World::new(), Project::new());
    project.lock(&world, &[]);
    let blocked = || {
        let arm = "dsv4-fp4-b200-vllm-agentic-mtp/agentic/tp8-ep8-dpa-mooncake-mtp-c12";
        let ran = Ran::from(project.command(&["plan", "--json", "--profile", "docker", arm]).output().unwrap());
        let plan: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
        assert_eq!(plan["arms"][0]["state"], "blocked");
        let reasons = plan["arms"][0]["reasons"].as_array().unwrap().clone();
        assert!(reasons.iter().all(|reason| reason["unblock"] == "ixbuild lock"), "{reasons:?}");
        reasons.iter().map(|reason| reason["why"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = blocked();
    assert!(before.contains(&"unlocked: closure of vllm-router 0.1.14".to_owned()), "{before:?}");
    assert!(!before.iter().any(|why| why.contains("mooncake") || why.contains("model ")), "{before:?}");
    project.edit("configs/nvidia-master.yaml", "version: \"0.3.11.post1\"", "version: \"0.3.12\"");
    assert!(blocked().contains(&"unlocked: package mooncake-transfer-engine-cuda13 0.3.12".to_owned()));
    // Unlocked specs still have hashes: a rehearsal plans all of them.
    let ran = Ran::from(project.command(&["plan", "--json", "--profile", "rehearsal"]).output().unwrap());
    let plan: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(plan["summary"]["run"], 68, "{}", plan["summary"]);
    // The index has no such version: the lock says so, and the block stays.
    let refused = project.lock(&world, &[]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.out.contains("the index has no version 0.3.12; it has 0.3.11.post1"), "{}", refused.out);
    world.files("mooncake-transfer-engine-cuda13", |files| {
        files.push(file("mooncake_transfer_engine_cuda13-0.3.12-cp312-cp312-manylinux_2_35_x86_64.whl"));
    });
    assert_eq!(project.lock(&world, &[]).code, Some(0));
    assert!(!blocked().iter().any(|why| why.contains("mooncake")));
}

#[test]
fn check_asks_nobody_writes_nothing_and_fails_while_anything_is_open() {
    let (world, project) = (World::new(), Project::new());
    let missing = project.lock(&world, &["--locked"]);
    assert_eq!(missing.code, Some(4));
    assert!(missing.err.contains("ixbuild.lock is not up to date: run `ixbuild lock`"), "{}", missing.err);
    assert!(!project.path("ixbuild.lock").exists());
    project.lock(&world, &[]);
    let asked = world.paths().len();
    let open = project.lock(&world, &["--check", "--json"]);
    assert_eq!((open.code, world.paths().len()), (Some(4), asked), "the image is open still");
    let json: Value = serde_json::from_str(&open.out).unwrap();
    assert_eq!((&json["complete"], &json["changed"], &json["written"]), (&json!(false), &json!(false), &json!(false)));
    // With everything pinned, by hand here, it is satisfied, and so are real runs.
    let digest = format!("sha256:{}", "0".repeat(64));
    let mut lock = project.locked();
    for entry in json["entries"].as_array().unwrap().iter().filter(|entry| entry["status"] == "unlocked") {
        let name = entry["name"].as_str().unwrap();
        match (entry["section"].as_str().unwrap(), entry["base"].as_str()) {
            ("images", _) => {
                lock["images"][name] = json!({"config": digest, "manifest": digest, "platform": "linux/amd64"});
            }
            (_, Some(base)) => {
                assert!(!name.contains("mooncake"), "it is installed alone: {name}");
                lock["packages"][entry["package"].as_str().unwrap()]["closures"][base] = json!({"dep.whl": digest});
            }
            (section, None) => lock[section][name] = json!({"files": {"built.whl": digest}}),
        }
    }
    fs::write(project.path("ixbuild.lock"), lock.to_string()).unwrap();
    let loose = project.lock(&world, &["--check"]);
    assert_eq!(loose.code, Some(4), "it is not as the command writes it: {loose:?}");
    project.lock(&world, &[]);
    let closed = project.lock(&world, &["--check"]);
    assert_eq!(closed.code, Some(0), "{closed:?}");
    assert_eq!(world.paths().len(), asked);
    let ran = Ran::from(project.command(&["plan", "--json", "--profile", "docker"]).output().unwrap());
    let plan: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&plan["summary"]["blocked"], &plan["summary"]["run"]), (&json!(0), &json!(68)), "{ran:?}");
}

#[test]
fn answers_that_pin_nothing_are_refused_with_the_reason() {
    let (world, project) = (World::new(), Project::new());
    world.files("lmcache", |files| files[0]["requires-python"] = json!("<3.12"));
    world.files("swebench", |files| files[0]["hashes"] = json!({}));
    world.files("swe-rex", |files| *files = vec![file("swe_rex-1.4.0.tar.gz")]);
    world.files("vllm-router", |files| files[0]["yanked"] = json!("wrong CUDA"));
    world.served.pages.lock().unwrap().remove("mini-swe-agent");
    world.served.hub.lock().unwrap().insert("models/deepseek-ai/DeepSeek-V4-Pro".into(), (401, json!({})));
    let ran = project.lock(&world, &[]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    for line in [
        "lmcache-0.5.1-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl requires Python <3.12",
        "the index gives no valid SHA-256 for swebench-4.1.0-py3-none-any.whl",
        "no wheel of 1.4.0 fits cp312 on linux/amd64; it has swe_rex-1.4.0.tar.gz",
        "was yanked: wrong CUDA",
        "has no package mini-swe-agent",
        "answers 401 Unauthorized",
    ] {
        assert!(ran.out.contains(line), "{line}\n{}", ran.out);
    }
    assert!(ran.err.contains("pass --allow-yanked") && ran.err.contains("need HF_TOKEN"), "{}", ran.err);
    let lock = project.locked();
    assert_eq!(lock["packages"]["swebench 4.1.0 cp312 linux/amd64"], "unlocked", "no digest is made up");
    assert!(lock["packages"]["mooncake-transfer-engine-cuda13 0.3.11.post1 cp312 linux/amd64"].is_object());
    let yanked = project.lock(&world, &["--allow-yanked"]);
    assert!(yanked.out.contains("locked    vllm-router 0.1.14"), "{}", yanked.out);
}

#[test]
fn servers_that_fail_are_asked_again_and_hosts_that_are_away_leave_entries_open() {
    let (world, project) = (World::new(), Project::new());
    *world.served.failing.lock().unwrap() = 2;
    // A free port that nobody listens on.
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run = |args: &[&str]| {
        let mut command = project.command(&["lock"]);
        command.args(args).env("UV_INDEX_URL", world.index()).env("HF_ENDPOINT", format!("http://{away}"));
        Ran::from(command.output().unwrap())
    };
    let ran = run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lock = project.locked();
    assert!(lock["packages"]["lmcache 0.5.1 cp312 linux/amd64"].is_object(), "{ran:?}");
    assert_eq!(lock["hub"]["models/deepseek-ai/DeepSeek-V4-Pro"], "unlocked");
    let line = format!("unlocked  models/deepseek-ai/DeepSeek-V4-Pro: cannot reach {away}: ");
    assert!(ran.out.contains(&line), "{}", ran.out);
    // An update that reaches nobody keeps what is locked.
    project.lock(&world, &[]);
    let before = project.lock_text();
    let ran = run(&["--update", "deepseek-ai/DeepSeek-V4-Pro"]);
    assert!(ran.err.contains("is kept as it was: cannot reach"), "{ran:?}");
    assert_eq!(project.lock_text(), before);
}

#[test]
fn the_hubs_token_goes_to_the_hub_alone_and_is_never_shown() {
    let (world, project) = (World::new(), Project::new());
    world.served.hub.lock().unwrap().remove("datasets/princeton-nlp/SWE-Bench_Lite");
    let index = world.index().replace("http://", "http://reader:pass%40word@");
    let mut command = project.command(&["lock", "--index-url", &index]);
    command.env("HF_ENDPOINT", format!("http://{}/", world.address)).env("HF_TOKEN", "hf_secret");
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    for (path, authorization) in world.served.log.lock().unwrap().iter() {
        match path.starts_with("/api/") {
            true => assert_eq!(authorization, "Bearer hf_secret", "{path}"),
            false => assert_eq!(authorization, "Basic cmVhZGVyOnBhc3NAd29yZA==", "{path}"),
        }
    }
    for text in [&ran.out, &ran.err, &project.lock_text()] {
        assert!(!text.contains("hf_secret") && !text.contains("pass%40word") && !text.contains("pass@word"), "{text}");
    }
}

#[test]
fn the_index_comes_from_pips_configuration() {
    let (world, project) = (World::new(), Project::new());
    let config = project.path("home/.config/pip");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("pip.conf"), format!("[global]\nindex-url = {}\n", world.index())).unwrap();
    let mut command = project.command(&["lock"]);
    command.env("HF_ENDPOINT", format!("http://{}", world.address));
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("home/.config/pip/pip.conf"), "{}", ran.err);
    assert!(world.paths().contains(&"/simple/vllm-router/".to_owned()));
}

#[test]
fn a_lock_that_cannot_be_read_or_written_is_left_as_it_is() {
    let (world, project) = (World::new(), Project::new());
    let newer = "{\"version\": 9, \"more\": {}}";
    fs::write(project.path("ixbuild.lock"), newer).unwrap();
    let ran = project.lock(&world, &[]);
    assert_eq!((ran.code, project.lock_text().as_str()), (Some(3), newer), "{ran:?}");
    assert!(ran.err.contains("has format 9; this ixbuild reads up to 1"), "{}", ran.err);
    fs::remove_file(project.path("ixbuild.lock")).unwrap();
    // A folder in the file's place cannot be replaced by it.
    fs::create_dir(project.path("ixbuild.lock")).unwrap();
    let ran = project.lock(&world, &[]);
    assert!(matches!(ran.code, Some(3 | 6)), "{ran:?}");
    assert!(ran.err.contains("ixbuild.lock"), "{}", ran.err);
    assert!(project.path("ixbuild.lock").is_dir());
}
