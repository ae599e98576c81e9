//! The store as processes use it: the verbs, OCI tools, full and read-only disks, and writers killed at random moments.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ixbuild::ids::{ArmId, Digest, JobHash};
use ixbuild::store::{
    AttemptInput, AttemptRef, Claim, LOGS_TYPE, Layer, Outcome, Presence, REQUESTS_TYPE, RESULT_TYPE, Source, Store,
    StoreError, StoreView as _,
};
use jiff::Timestamp;

/// Set for the helper processes below, which are this test binary again.
const DIR: &str = "IXBUILD_TEST_STORE";

fn ixbuild(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ixbuild"))
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent-home")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn job_of(spec: &str) -> JobHash {
    JobHash(Digest::of(spec.as_bytes()))
}

fn attempt_of<'a>(spec: &'a str, arms: &'a [ArmId], layers: Vec<Layer>) -> AttemptInput<'a> {
    AttemptInput {
        job: job_of(spec),
        spec: spec.as_bytes(),
        arms,
        started: Timestamp::now(),
        ended: Timestamp::now(),
        outcome: Outcome::Valid,
        rehearsal: true,
        reasons: serde_json::json!([]),
        layers,
    }
}

fn result(content: &str) -> Layer {
    Layer::new(RESULT_TYPE, "result.json", Source::Bytes(content.as_bytes().to_vec()))
}

fn record(store: &Store, spec: &str) -> AttemptRef {
    store
        .record(attempt_of(spec, &[ArmId("key/agentic/tp8-resident-c1".into())], vec![result("{\"tokens\":1}")]))
        .unwrap()
}

/// Runs a helper below in a process of its own.
fn helper(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(DIR, dir);
    command
}

/// The store of a helper, and none when it is called as a test.
fn helper_store() -> Option<Store> {
    Some(Store::open(std::env::var_os(DIR)?).unwrap())
}

// ---- the verbs ----

#[test]
fn path_prints_the_default_the_variable_and_the_option() {
    let path = |args: &[&str], env: &[(&str, &str)]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ixbuild"))
            .args(["store", "path"])
            .args(args)
            .env_clear()
            .envs(env.iter().copied())
            .output()
            .unwrap();
        (output.status.code().unwrap(), text(&output.stdout).trim_end().to_owned(), text(&output.stderr).to_owned())
    };
    let home = ("HOME", "/h");
    assert_eq!(path(&[], &[home]).1, "/h/.local/share/ixbuild");
    assert_eq!(path(&[], &[home, ("XDG_DATA_HOME", "/d")]).1, "/d/ixbuild");
    assert_eq!(path(&[], &[home, ("XDG_DATA_HOME", "relative")]).1, "/h/.local/share/ixbuild");
    assert_eq!(path(&[], &[home, ("IXBUILD_STORE", "/e")]).1, "/e");
    assert_eq!(path(&[], &[home, ("IXBUILD_STORE", "")]).1, "/h/.local/share/ixbuild");
    assert_eq!(path(&["--store", "/o"], &[home, ("IXBUILD_STORE", "/e")]).1, "/o");
    let (code, out, err) = path(&[], &[]);
    assert_eq!((code, out.as_str()), (5, ""));
    assert!(err.contains("no place for the store") && err.contains("set IXBUILD_STORE"), "{err}");
}

#[test]
fn path_finds_a_job_by_its_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().to_str().unwrap();
    record(&Store::open(store).unwrap(), "{}");
    let job = job_of("{}");
    let found = ixbuild(&["store", "path", &job.short(), "--store", store]);
    let expected = format!("{store}/jobs/{}/{}\n", &job.hex()[..2], job.hex());
    assert_eq!((found.status.code(), text(&found.stdout)), (Some(0), expected.as_str()));
    let missed = ixbuild(&["store", "path", "job:0000", "--store", store]);
    assert_eq!(missed.status.code(), Some(2));
    assert!(text(&missed.stderr).contains("no job in"), "{}", text(&missed.stderr));
}

#[test]
fn verify_of_a_store_that_is_not_there_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let output = ixbuild(&["store", "verify", "--store", store.to_str().unwrap()]);
    let expected = format!("{}: 0 attempts (0 records), 0 blobs (0 B): no damage\n", store.display());
    assert_eq!((output.status.code(), text(&output.stdout), text(&output.stderr)), (Some(0), expected.as_str(), ""));
    assert!(!store.exists());
}

#[test]
fn verify_names_damage_and_repair_sets_it_aside() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let store = Store::open(root).unwrap();
    record(&store, "{\"kept\":1}");
    let attempt = record(&store, "{}");
    drop(store);
    let verify = |args: &[&str]| ixbuild(&[&["store", "verify", "--store", root], args].concat());
    let sound = verify(&[]);
    assert_eq!((sound.status.code(), text(&sound.stderr)), (Some(0), ""));
    let summary = format!("{root}: 2 attempts (2 records), 6 blobs (");
    assert!(text(&sound.stdout).starts_with(&summary), "{}", text(&sound.stdout));

    let spec = dir.path().join("blobs/sha256").join(attempt.job.hex());
    std::fs::write(&spec, "[]").unwrap();
    let damaged = verify(&[]);
    assert_eq!(damaged.status.code(), Some(5));
    let out = text(&damaged.stdout);
    assert!(out.starts_with(&format!("damaged: {}: its content has the digest sha256:", spec.display())), "{out}");
    assert!(out.contains("1 attempt needs it\n  fix: copy it back") && out.ends_with(": 1 problem\n"), "{out}");
    let json: serde_json::Value = serde_json::from_slice(&verify(&["--json"]).stdout).unwrap();
    assert_eq!(json["problems"][0]["path"], spec.to_str().unwrap());
    assert_eq!((&json["records"], &json["index"]), (&2.into(), &"current".into()));

    let repaired = verify(&["--repair"]);
    assert_eq!(repaired.status.code(), Some(0), "{}", text(&repaired.stderr));
    assert!(text(&repaired.stderr).contains(&format!("moved {} to {root}/damaged/blobs/sha256/", spec.display())));
    let after = verify(&[]);
    assert_eq!(after.status.code(), Some(0));
    assert!(text(&after.stdout).starts_with(&format!("{root}: 1 attempt (1 record), ")), "{}", text(&after.stdout));
}

#[test]
fn another_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.tex"), "").unwrap();
    let output = ixbuild(&["store", "verify", "--repair", "--store", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(5));
    let err = text(&output.stderr);
    assert!(err.contains("is not a store") && err.contains("thesis.tex") && err.contains("--store"), "{err}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

// ---- OCI tools ----

#[test]
fn skopeo_inspects_and_copies_a_record() {
    if Command::new("skopeo").arg("--version").output().is_err() {
        let advice = "skopeo is not installed (Debian: apt-get install skopeo)";
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{advice}");
        eprintln!("SKIPPED: {advice}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    std::fs::write(logs.join("vllm.log"), "ready\n".repeat(1000)).unwrap();
    let root = dir.path().join("store");
    let store = Store::open(&root).unwrap();
    record(&store, "{\"other\":1}");
    let layers = vec![result("{\"tokens\":7}"), Layer::new(LOGS_TYPE, "logs.tar.zst", Source::Directory(logs))];
    let attempt = store.record(attempt_of("{\"spec\":1}", &[ArmId("a".into())], layers)).unwrap();
    store.flush_index().unwrap();

    let source = format!("oci:{}:{}", root.display(), attempt.tag());
    let skopeo = |args: &[&str]| {
        let output = Command::new("skopeo").args(args).output().unwrap();
        assert!(output.status.success(), "skopeo {args:?}: {}", text(&output.stderr));
        output.stdout
    };
    let raw = skopeo(&["inspect", "--raw", &source]);
    assert_eq!(Digest::of(&raw), attempt.manifest);
    let manifest: serde_json::Value = serde_json::from_slice(&raw).unwrap();
    assert_eq!(manifest["artifactType"], "application/vnd.ixbuild.record.v1+json");
    assert_eq!(manifest["config"]["digest"], job_of("{\"spec\":1}").0.to_string());
    assert_eq!(manifest["layers"][1]["mediaType"], LOGS_TYPE);

    let copy = dir.path().join("copy");
    skopeo(&["copy", "--insecure-policy", &source, &format!("dir:{}", copy.display())]);
    assert_eq!(std::fs::read(copy.join("manifest.json")).unwrap(), raw);
    assert_eq!(std::fs::read(copy.join(attempt.job.hex())).unwrap(), b"{\"spec\":1}");
    let result = manifest["layers"][0]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    assert_eq!(std::fs::read(copy.join(result)).unwrap(), b"{\"tokens\":7}");
}

// ---- disks that say no ----

/// Runs a helper below with a file system of its own mounted at `dir`; false if mounting is not permitted here.
fn on_tmpfs(dir: &Path, options: &str, name: &str) -> bool {
    std::fs::create_dir_all(dir).unwrap();
    let mount = format!("mount -t tmpfs -o {options} tmpfs \"${DIR}\"");
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args([namespace, "sh", "-c", script, "sh"]).env(DIR, dir);
        command
    };
    if !unshared(&mount).output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: mounting a tmpfs is not permitted here");
        return false;
    }
    let helper = helper(name, dir);
    let output =
        unshared(&format!("{mount} && exec \"$@\"")).arg(helper.get_program()).args(helper.get_args()).output();
    let output = output.unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    true
}

#[test]
fn a_full_disk_is_a_clear_error_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    on_tmpfs(&dir.path().join("store"), "size=1m", "on_a_full_disk");
}

#[test]
#[ignore = "a helper process of a_full_disk_is_a_clear_error_and_loses_nothing"]
fn on_a_full_disk() {
    let Some(store) = helper_store() else { return };
    record(&store, "{\"before\":1}");
    let big: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let rows = store.root().with_file_name("rows.jsonl");
    std::fs::write(&rows, big).unwrap();
    let layer = Layer::new(REQUESTS_TYPE, "requests.jsonl", Source::File(rows));
    let error = store.record(attempt_of("{}", &[], vec![layer])).unwrap_err();
    assert!(matches!(&error, StoreError::Io { error, .. } if error.kind() == std::io::ErrorKind::StorageFull));
    assert!(error.to_string().contains(store.root().to_str().unwrap()), "{error}");
    assert!(error.fix().unwrap().contains("free space there"));
    let report = store.verify(&|_| {}).unwrap();
    assert_eq!((report.problems.as_slice(), report.leftovers.len(), report.records), (&[][..], 0, 1));
    record(&store, "{\"small\":1}");
    assert_eq!(store.verify(&|_| {}).unwrap().records, 2);
}

#[test]
fn a_read_only_disk_is_readable_and_a_clear_error_to_writers() {
    let dir = tempfile::tempdir().unwrap();
    on_tmpfs(&dir.path().join("store"), "size=1m", "on_a_read_only_disk");
}

#[test]
#[ignore = "a helper process of a_read_only_disk_is_readable_and_a_clear_error_to_writers"]
fn on_a_read_only_disk() {
    let Some(store) = helper_store() else { return };
    let root = store.root().to_owned();
    let attempt = record(&store, "{}");
    drop(store);
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&root).status().unwrap();
    assert!(remounted.success());
    let store = Store::open(&root).unwrap();
    assert!(store.job(&attempt.job).unwrap().is_hit(1));
    assert_eq!(store.verify(&|_| {}).unwrap().problems, []);
    let errors = [
        store.record(attempt_of("{\"new\":1}", &[], vec![])).unwrap_err(),
        store.claim(&attempt.job, vec![]).unwrap_err(),
        store.exclude(&attempt.job, &attempt.manifest, "reason", Timestamp::now()).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("Read-only file system"), "{error}");
        assert!(error.to_string().contains(root.to_str().unwrap()), "{error}");
        assert!(error.fix().unwrap().contains("--store"));
    }
}

// ---- processes that are killed ----

struct Writer {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Writer {
    /// Starts a helper and waits until it is at work.
    fn start(name: &str, dir: &Path) -> Self {
        let mut child = helper(name, dir).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.ends_with("at work\n") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "the writer ended before it began");
        }
        Self { child, said }
    }

    /// SIGKILL; what it had reported by then.
    fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        said
    }
}

/// A test that fails leaves no helper behind.
impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "a helper process of writers_killed_at_random_moments_leave_a_sound_store"]
fn writing() {
    let Some(store) = helper_store() else { return };
    let rows: Vec<u8> = (0..600_000_u32).map(|n| (n % 251) as u8).collect();
    let file = store.root().with_file_name(format!("rows-{}", std::process::id()));
    println!("at work");
    // More than a writer lives to see; bounded, so that it does not compete with the verification of the other's death.
    for round in 0_u32..12 {
        // Few jobs, so that writers meet.
        let spec = format!("{{\"job\":{}}}", fastrand::u32(..6));
        let Claim::Claimed(claimed) = store.claim(&job_of(&spec), vec!["pid:1:1".into()]).unwrap() else { continue };
        let mut layers = vec![result(&format!("{{\"pid\":{},\"round\":{round}}}", std::process::id()))];
        if round % 4 == 0 {
            std::fs::write(&file, &rows[..fastrand::usize(..rows.len())]).unwrap();
            layers.push(Layer::new(REQUESTS_TYPE, "requests.jsonl", Source::File(file.clone())));
        }
        let attempt = store.record(attempt_of(&spec, &[ArmId(spec.as_str().into())], layers)).unwrap();
        println!("recorded {}", attempt.manifest);
        if round % 3 == 0 {
            store.exclude(&attempt.job, &attempt.manifest, "for a change", Timestamp::now()).unwrap();
        }
        claimed.guard.release().unwrap();
    }
    std::thread::sleep(Duration::from_secs(600));
}

/// What one series of kills met.
#[derive(Default)]
struct Met {
    kills: usize,
    recorded: usize,
    interrupted: usize,
}

/// Two writers at a time on one store, each killed at a random moment and followed by a verification.
fn series(kills: usize) -> Met {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = Store::open(&root).unwrap();
    let mut met = Met::default();
    let mut reported = HashSet::new();
    let mut leftovers: HashSet<PathBuf> = HashSet::new();
    while met.kills < kills {
        let writers = [Writer::start("writing", &root), Writer::start("writing", &root)];
        for victim in writers {
            std::thread::sleep(Duration::from_micros(fastrand::u64(..10_000)));
            for line in victim.kill().lines() {
                reported.extend(line.strip_prefix("recorded ").map(|manifest| manifest.parse::<Digest>().unwrap()));
            }
            met.kills += 1;
            let report = store.verify(&|_| {}).unwrap();
            assert_eq!(report.problems, [], "after {} kills", met.kills);
            leftovers.extend(report.leftovers);
        }
    }
    let mut kept = HashSet::new();
    for job in 0..6 {
        let job = job_of(&format!("{{\"job\":{job}}}"));
        for attempt in store.job(&job).unwrap().attempts {
            assert!(store.layer(&attempt, "result.json").unwrap().is_some());
            kept.insert(attempt.manifest);
        }
        // Whoever died with the claim, it can be had.
        assert!(matches!(store.claim(&job, vec![]).unwrap(), Claim::Claimed(_)));
    }
    assert!(reported.is_subset(&kept), "a record that was reported is lost");
    met.recorded = kept.len();
    met.interrupted = leftovers.len();
    // What the dead left is known as such, and goes.
    let report = store.verify(&|_| {}).unwrap();
    store.repair(&report).unwrap();
    let report = store.verify(&|_| {}).unwrap();
    assert_eq!((report.problems.as_slice(), report.leftovers.len()), (&[][..], 0));
    met
}

/// `IXBUILD_TEST_KILLS` says how many; 1,000 unless it does.
#[test]
fn writers_killed_at_random_moments_leave_a_sound_store() {
    const A_SERIES: usize = 20;
    // Stores at once: the writers wait for the disk most of the time.
    const LANES: usize = 6;
    let kills: usize = std::env::var("IXBUILD_TEST_KILLS").map_or(1000, |text| text.parse().unwrap());
    let start = Instant::now();
    let left = std::sync::atomic::AtomicUsize::new(kills);
    let met = std::sync::Mutex::new(Met::default());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                use std::sync::atomic::Ordering::SeqCst;
                while let Ok(had) =
                    left.fetch_update(SeqCst, SeqCst, |left| (left > 0).then(|| left.saturating_sub(A_SERIES)))
                {
                    let this = series(had.min(A_SERIES));
                    let mut met = met.lock().unwrap();
                    met.kills += this.kills;
                    met.recorded += this.recorded;
                    met.interrupted += this.interrupted;
                }
            });
        }
    });
    let met = met.into_inner().unwrap();
    assert!(met.kills >= kills);
    assert!(met.recorded > 0 && met.interrupted > 0, "no writer was killed while it wrote");
    println!(
        "{} kills in {:.1?}: {} records, {} writes cut short",
        met.kills,
        start.elapsed(),
        met.recorded,
        met.interrupted
    );
}

#[test]
#[ignore = "a helper process of a_killed_owners_claim_is_taken_over"]
fn holding() {
    let Some(store) = helper_store() else { return };
    let Claim::Claimed(_claimed) = store.claim(&job_of("{}"), vec!["pid:77:88".into()]).unwrap() else { panic!() };
    println!("at work");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_owners_claim_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let owner = Writer::start("holding", dir.path());
    let pid = owner.child.id();
    let Claim::Held(held) = store.claim(&job_of("{}"), vec![]).unwrap() else { panic!("claimed twice") };
    assert_eq!((held.presence, held.record.unwrap().owner.pid), (Presence::Alive, pid));
    assert!(matches!(store.end_claim(&job_of("{}"), true), Err(StoreError::Claimed { .. })), "it holds the lock");
    owner.kill();
    let Claim::Claimed(claimed) = store.claim(&job_of("{}"), vec![]).unwrap() else { panic!("not taken over") };
    assert_eq!(claimed.left.unwrap().work.handles, ["pid:77:88"]);
}

#[test]
#[ignore = "a helper process of several_processes_run_each_job_once"]
fn sharing() {
    let Some(store) = helper_store() else { return };
    println!("at work");
    for job in 0..30 {
        let spec = format!("{{\"job\":{job}}}");
        loop {
            match store.claim(&job_of(&spec), vec![]).unwrap() {
                Claim::Claimed(claimed) => {
                    if !claimed.state.is_hit(1) {
                        record(&store, &spec);
                    }
                    break;
                }
                Claim::Held(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

#[test]
fn several_processes_run_each_job_once() {
    let dir = tempfile::tempdir().unwrap();
    let writers: Vec<Writer> = (0..4).map(|_| Writer::start("sharing", dir.path())).collect();
    for mut writer in writers {
        assert!(writer.child.wait().unwrap().success());
    }
    let store = Store::open(dir.path()).unwrap();
    let report = store.verify(&|_| {}).unwrap();
    assert_eq!((report.attempts, report.problems.as_slice()), (30, &[][..]));
    assert_eq!(report.index, ixbuild::store::IndexState::Current, "their indexes merged");
    assert_eq!(store.claims().unwrap(), []);
}
