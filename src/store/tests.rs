//! What users of the store rely on: both views agree, the order of writes, power failures, full and read-only disks,
//! claims, exclusions, damage.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::fs_twin::{Loss, Op, TwinFs, after_power_failure};
use super::memory::MemoryStore;
use super::*;
use crate::ids::{ArmId, Digest, JobHash};

fn arm(name: &str) -> ArmId {
    ArmId(name.into())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_750_000_000 + second).unwrap()
}

fn job_of(spec: &str) -> JobHash {
    JobHash(Digest::of(spec.as_bytes()))
}

fn input<'a>(spec: &'a str, arms: &'a [ArmId], second: i64, outcome: Outcome) -> AttemptInput<'a> {
    let result = format!("{{\"tokens\":{second}}}");
    AttemptInput {
        job: job_of(spec),
        spec: spec.as_bytes(),
        arms,
        started: at(second),
        ended: at(second + 1),
        outcome,
        rehearsal: true,
        reasons: json!([{ "why": "new" }]),
        layers: vec![Layer::new(RESULT_TYPE, "result.json", Source::Bytes(result.into_bytes()))],
    }
}

fn failed() -> Outcome {
    Outcome::Failed { kind: "not-ready".into(), message: "vllm did not answer".into() }
}

fn sound(store: &Store) -> Report {
    let report = store.verify(&|_| {}).unwrap();
    assert_eq!(report.problems, [], "in {}", store.root().display());
    report
}

// ---- one suite for every view ----

trait Writable: StoreView {
    fn put_derivation(&mut self, input: &DerivationInput<'_>) -> Derivation;
    fn put(&mut self, input: AttemptInput<'_>) -> AttemptRef;
    fn drop_attempt(&mut self, attempt: &AttemptRef);
    fn served(&mut self, arm: &ArmId, job: &JobHash, at: Timestamp);
}

impl Writable for MemoryStore {
    fn put_derivation(&mut self, input: &DerivationInput<'_>) -> Derivation {
        self.derive(input).unwrap()
    }
    fn put(&mut self, input: AttemptInput<'_>) -> AttemptRef {
        self.record(input).unwrap()
    }
    fn drop_attempt(&mut self, attempt: &AttemptRef) {
        self.exclude(&attempt.job, &attempt.manifest, "thermal throttling", at(99));
    }
    fn served(&mut self, arm: &ArmId, job: &JobHash, at: Timestamp) {
        self.serve_for(arm, job, at);
    }
}

impl Writable for Store {
    fn put_derivation(&mut self, input: &DerivationInput<'_>) -> Derivation {
        self.derive(input).unwrap()
    }
    fn put(&mut self, input: AttemptInput<'_>) -> AttemptRef {
        self.record(input).unwrap()
    }
    fn drop_attempt(&mut self, attempt: &AttemptRef) {
        self.exclude(&attempt.job, &attempt.manifest, "thermal throttling", at(99)).unwrap();
    }
    fn served(&mut self, arm: &ArmId, job: &JobHash, at: Timestamp) {
        self.serve_for(arm, job, at).unwrap();
    }
}

fn any_view(mut view: impl Writable) {
    let (spec, arms) = ("{\"spec\":1}", [arm("k/agentic/tp8-c1"), arm("k2/agentic/tp8-c1")]);
    let job = job_of(spec);
    assert_eq!(view.job(&job).unwrap(), JobState::default());
    assert_eq!(view.spec(&job).unwrap(), None);
    assert_eq!(view.arm_jobs(&arms[0]).unwrap(), []);
    assert!(matches!(view.resolve("job:a"), Err(StoreError::NoSuchJob { .. })));

    // A failed attempt is kept and is no hit.
    let first = view.put(input(spec, &arms, 0, failed()));
    let state = view.job(&job).unwrap();
    assert_eq!((state.is_hit(1), state.last(), state.last_failed()), (false, Some(&first), Some(&first)));
    assert_eq!(view.arm_jobs(&arms[0]).unwrap(), [], "failures are nothing to compare with");
    let read = view.attempt(&first).unwrap();
    assert_eq!((read.outcome, read.arms, read.ended), (failed(), arms.to_vec(), at(1)));

    // k records, oldest first.
    let third = view.put(input(spec, &arms, 20, Outcome::Valid));
    let second = view.put(input(spec, &arms, 10, Outcome::Valid));
    let state = view.job(&job).unwrap();
    assert_eq!(state.attempts, [first.clone(), second.clone(), third.clone()]);
    assert_eq!(state.records().collect::<Vec<_>>(), [&second, &third]);
    assert_eq!((state.is_hit(1), state.is_hit(2), state.is_hit(3)), (true, true, false));
    assert_eq!(state.last_failed(), None);
    assert_eq!(view.spec(&job).unwrap().unwrap(), spec.as_bytes());
    assert_eq!(view.layer(&third, "result.json").unwrap().unwrap(), b"{\"tokens\":20}");
    assert_eq!(view.layer(&third, "counters.jsonl").unwrap(), None);
    assert_eq!(view.reasons(&third).unwrap(), json!([{ "why": "new" }]));

    // Excluded ones do not count, and are still there.
    view.drop_attempt(&third);
    let state = view.job(&job).unwrap();
    assert_eq!((state.attempts.len(), state.records().count(), state.is_hit(2)), (3, 1, false));
    assert!(state.attempts[2].excluded && view.attempt(&state.attempts[2]).is_ok());
    let reason = view.exclusion(&state.attempts[2]).unwrap().map(|excluded| excluded.reason);
    assert_eq!((reason.as_deref(), view.exclusion(&second).unwrap()), (Some("thermal throttling"), None));

    // Invalid and cancelled ones keep what they say.
    let gates = Outcome::Invalid { gates: vec!["acceptance-length".into()] };
    for (second, outcome) in [(30, gates), (31, Outcome::Cancelled)] {
        let attempt = view.put(input("{\"spec\":2}", &arms, second, outcome.clone()));
        assert_eq!(view.attempt(&attempt).unwrap().outcome, outcome);
    }
    assert!(!view.job(&job_of("{\"spec\":2}")).unwrap().is_hit(1));

    // Newer formulas stand before what was recorded; the highest version counts, the latest of equals.
    let spec = "{\"spec\":derived}";
    let recorded = view.put(input(spec, &arms[1..], 80, Outcome::Valid));
    let standing = |view: &dyn StoreView| view.job(&recorded.job).unwrap().attempts[0].clone();
    let derivation = |formulas, second, failed: &[&str], text: &str| DerivationInput {
        attempt: &recorded,
        formulas,
        at: at(second),
        failed: failed.iter().map(ToString::to_string).collect(),
        layers: vec![Layer::new(RESULT_TYPE, "result.json", Source::Bytes(text.as_bytes().to_vec()))],
    };
    for (formulas, second, failed, text, expected) in [
        (3, 90, vec!["error-ratio"], "three", "three"),
        (2, 91, vec![], "two", "three"),
        (3, 92, vec![], "three again", "three again"),
        (4, 91, vec!["acceptance-length"], "four", "four"),
    ] {
        let kept = view.put_derivation(&derivation(formulas, second, &failed, text));
        assert_eq!((kept.formulas, kept.outcome == OutcomeKind::Valid), (formulas, failed.is_empty()));
        let found = standing(&view);
        assert_eq!((found.outcome, found.manifest), (OutcomeKind::Valid, recorded.manifest), "the attempt stays");
        assert_eq!(view.layer(&found, "result.json").unwrap().unwrap(), expected.as_bytes());
        assert_eq!(view.layer(&recorded, "result.json").unwrap().unwrap(), b"{\"tokens\":80}", "as recorded");
        assert!(view.reasons(&found).unwrap().is_array(), "what is not derived is the attempt's");
    }
    let (found, state) = (standing(&view), view.job(&recorded.job).unwrap());
    assert_eq!((found.standing(), state.is_hit(1)), (OutcomeKind::Invalid, false), "it stops counting");
    assert_eq!(state.last_failed(), Some(&found));
    let read = view.attempt(&found).unwrap();
    assert_eq!(read.standing(), &Outcome::Invalid { gates: vec!["acceptance-length".into()] });
    assert_eq!(read.outcome, Outcome::Valid);

    // What was invalid and becomes valid counts, and its arms know it.
    let failed = Outcome::Invalid { gates: vec!["error-ratio".into()] };
    let newly = [arm("k/agentic/newly-c1")];
    let invalid = view.put(input("{\"spec\":4}", &newly, 80, failed));
    assert_eq!(view.arm_jobs(&newly[0]).unwrap(), []);
    view.put_derivation(&DerivationInput { attempt: &invalid, ..derivation(2, 90, &[], "{}") });
    assert!(view.job(&invalid.job).unwrap().is_hit(1));
    assert_eq!(view.arm_jobs(&newly[0]).unwrap().len(), 1);

    // Arms remember the jobs recorded and served for them, oldest first; the first time stands.
    let other = "{\"spec\":3}";
    view.put(input(other, &arms[..1], 40, Outcome::Valid));
    view.put(input(other, &arms[..1], 50, Outcome::Valid));
    let noted = |job, second| ArmJob { job, at: at(second) };
    let first_recorded = view.arm_jobs(&arms[0]).unwrap()[0].clone();
    assert_eq!(first_recorded.job, job);
    assert_eq!(view.arm_jobs(&arms[0]).unwrap(), [first_recorded, noted(job_of(other), 41)]);
    let moved = arm("k3/agentic/tp8-c1");
    view.served(&moved, &job, at(60));
    view.served(&moved, &job, at(70));
    assert_eq!(view.arm_jobs(&moved).unwrap(), [noted(job, 60)]);

    // Prefixes.
    let jobs = [job, job_of("{\"spec\":2}"), job_of(other), recorded.job, invalid.job];
    for job in &jobs {
        assert_eq!(view.resolve(&job.to_string()).unwrap(), *job);
        assert_eq!(view.resolve(&format!("sha256:{}", &job.hex()[..12])).unwrap(), *job);
    }
    for bad in ["", "abc", "job:", "job:ABC", "job:xyz", &format!("job:{}", "a".repeat(65))] {
        assert!(matches!(view.resolve(bad), Err(StoreError::NotAPrefix(_))), "{bad}");
    }
    let by_digit = |digit: char| jobs.iter().filter(|job| job.hex().starts_with(digit)).count();
    for digit in "0123456789abcdef".chars() {
        match (by_digit(digit), view.resolve(&format!("job:{digit}"))) {
            (0, Err(StoreError::NoSuchJob { .. })) | (1, Ok(_)) => {}
            (2.., Err(StoreError::Ambiguous { candidates, .. })) => assert_eq!(candidates.len(), by_digit(digit)),
            other => panic!("{digit}: {other:?}"),
        }
    }
    let states = view.jobs(&jobs).unwrap();
    assert_eq!(states, jobs.map(|job| view.job(&job).unwrap()));
}

#[test]
fn every_view_keeps_the_same_promises() {
    any_view(MemoryStore::default());
    let dir = tempfile::tempdir().unwrap();
    any_view(Store::open(dir.path().join("store")).unwrap());
    sound(&Store::open(dir.path().join("store")).unwrap());
}

#[test]
fn ambiguous_prefixes_name_the_candidates() {
    let mut store = MemoryStore::default();
    let specs: Vec<String> = (0..40).map(|n| format!("{{\"spec\":{n}}}")).collect();
    for spec in &specs {
        store.put(input(spec, &[], 0, Outcome::Valid));
    }
    let crowded = "0123456789abcdef"
        .chars()
        .find(|digit| specs.iter().filter(|spec| job_of(spec).hex().starts_with(*digit)).count() > 1)
        .unwrap();
    let error = store.resolve(&format!("job:{crowded}")).unwrap_err();
    assert!(error.to_string().contains(&format!("is ambiguous: job:{crowded}")), "{error}");
    assert_eq!(error.fix().unwrap(), "give more digits");
}

#[test]
fn many_jobs_at_once_are_the_same_as_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let specs: Vec<String> = (0..5000).map(|n| n.to_string()).collect();
    for index in [0, 7, 4999] {
        store.record(input(&specs[index], &[], 0, Outcome::Valid)).unwrap();
    }
    let jobs: Vec<JobHash> = specs.iter().map(|spec| job_of(spec)).collect();
    let Claim::Claimed(_claimed) = store.claim(&jobs[9], vec![]).unwrap() else { panic!() };
    let states = store.jobs(&jobs).unwrap();
    let hits: Vec<usize> = (0..5000).filter(|index| states[*index].is_hit(1)).collect();
    let running: Vec<usize> = (0..5000).filter(|index| states[*index].running().is_some()).collect();
    assert_eq!((hits, running), (vec![0, 7, 4999], vec![9]));
}

// ---- creating and refusing ----

#[test]
fn reading_a_store_that_is_not_there_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a").join("store");
    let store = Store::open(&root).unwrap();
    let job = job_of("x");
    assert_eq!(store.job(&job).unwrap(), JobState::default());
    assert_eq!(store.jobs(&[job]).unwrap(), [JobState::default()]);
    assert_eq!(store.claims().unwrap(), []);
    assert_eq!(sound(&store).attempts, 0);
    assert_eq!(store.end_claim(&job, true).unwrap(), None);
    drop(store);
    assert!(!dir.path().join("a").exists());
}

#[test]
fn a_directory_with_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    Store::open(dir.path()).unwrap();
    fs::write(dir.path().join("thesis.tex"), "").unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(error.to_string().ends_with("is not a store: it has no readable oci-layout file but holds `thesis.tex`"));
    let error = Store::open(dir.path().join("thesis.tex")).unwrap_err();
    assert!(error.to_string().ends_with("thesis.tex is not a store: it is not a directory"), "{error}");
    fs::write(dir.path().join("oci-layout"), br#"{"imageLayoutVersion":"2.0.0"}"#).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(error.to_string().ends_with("its layout version is 2.0.0"), "{error}");
}

#[test]
fn a_spec_that_is_not_the_jobs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let mut wrong = input("{}", &[], 0, Outcome::Valid);
    wrong.spec = b"{ }";
    assert!(matches!(store.record(wrong), Err(StoreError::SpecMismatch { .. })));
    assert!(!store.root().exists());
}

// ---- layers ----

#[test]
fn layers_come_from_bytes_files_and_directories() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("requests.jsonl");
    // Several chunks, so that the hashing thread takes part.
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(&rows, &content).unwrap();
    fs::create_dir(dir.path().join("logs")).unwrap();
    fs::write(dir.path().join("logs/vllm.log"), "ready\n").unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let mut layered = input("{}", &[], 0, Outcome::Valid);
    layered.layers.push(Layer::new(REQUESTS_TYPE, "requests.jsonl", Source::File(rows)));
    layered.layers.push(Layer::new(LOGS_TYPE, "logs.tar.zst", Source::Directory(dir.path().join("logs"))));
    let attempt = store.record(layered).unwrap();
    assert_eq!(store.layer(&attempt, "requests.jsonl").unwrap().unwrap(), content);
    let mut logs = Vec::new();
    each_file(store.open_layer(&attempt, "logs.tar.zst").unwrap().unwrap(), |path, text| {
        let mut bytes = Vec::new();
        text.read_to_end(&mut bytes)?;
        logs.push((path, bytes));
        Ok(())
    })
    .unwrap();
    assert_eq!(logs, [("vllm.log".into(), b"ready\n".to_vec())]);
    let report = sound(&store);
    assert_eq!((report.records, report.unreferenced, report.index), (1, 0, IndexState::Current));
    let titles: Vec<String> = store.attempt(&attempt).unwrap().layers.into_iter().map(|layer| layer.title).collect();
    assert_eq!(titles, ["result.json", "requests.jsonl", "logs.tar.zst", "reasons.json"]);
}

#[test]
fn the_same_attempt_twice_is_one_and_blobs_are_shared() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let first = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    let blobs = sound(&store).blobs;
    assert_eq!(store.record(input("{}", &[], 0, Outcome::Valid)).unwrap(), first);
    let report = sound(&store);
    assert_eq!((report.attempts, report.blobs), (1, blobs));
    // Another start: one manifest more.
    let mut again = input("{}", &[], 0, Outcome::Valid);
    again.started = at(5);
    store.record(again).unwrap();
    let report = sound(&store);
    assert_eq!((report.attempts, report.blobs), (2, blobs + 1));
}

#[test]
fn a_layer_that_cannot_be_read_records_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut gone = input("{}", &[], 0, Outcome::Valid);
    gone.layers.push(Layer::new(REQUESTS_TYPE, "requests.jsonl", Source::File(dir.path().join("gone.jsonl"))));
    let error = store.record(gone).unwrap_err();
    assert!(error.to_string().contains("gone.jsonl"), "{error}");
    assert_eq!(store.job(&job_of("{}")).unwrap(), JobState::default());
    assert_eq!(sound(&store).leftovers.len(), 0);
}

// ---- the order of writes, and what failures leave ----

#[test]
fn every_file_is_written_synced_renamed_and_its_directory_synced() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let twin = TwinFs::new();
    let store = Store::open_on(Arc::new(twin.clone()), &root).unwrap();
    store.record(input("{}", &[arm("a")], 0, Outcome::Valid)).unwrap();
    let log = twin.log();
    let position = |from: usize, wanted: &Op| log[from..].iter().position(|op| op == wanted).map(|at| from + at);
    let last = log.iter().rposition(|op| matches!(op, Op::Rename(_, to) if to.starts_with(root.join("jobs")))).unwrap();
    let mut renames = 0;
    for (index, op) in log.iter().enumerate() {
        let Op::Rename(temp, to) = op else { continue };
        renames += 1;
        assert_eq!(temp.parent(), to.parent(), "the temporary file stands in the destination directory");
        let created = position(0, &Op::Create(temp.clone())).unwrap();
        let synced = log[..index].iter().rposition(|op| *op == Op::Sync(temp.clone())).unwrap();
        let written = log[..index].iter().rposition(|op| matches!(op, Op::Write(path, _) if path == temp)).unwrap();
        assert!(created < written && written < synced && synced < index, "{}", to.display());
        let dir_synced = position(index, &Op::SyncDir(to.parent().unwrap().to_owned())).unwrap();
        // What the attempt needs is on the disk before the attempt is.
        assert!(index >= last || dir_synced < last, "{}", to.display());
    }
    // oci-layout, spec, result, reasons, manifest, arm, attempt, index.
    assert_eq!(renames, 8);
}

#[test]
fn whatever_a_power_failure_leaves_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let twin = TwinFs::new();
    let store = Store::open_on(Arc::new(twin.clone()), &root).unwrap();
    let arms = [arm("a"), arm("b")];
    let Claim::Claimed(claimed) = store.claim(&job_of("{}"), vec!["pid:1:2".into()]).unwrap() else { panic!() };
    store.record(input("{}", &arms, 0, Outcome::Valid)).unwrap();
    let first_done = twin.log().len();
    claimed.guard.release().unwrap();
    let second = store.record(input("{}", &arms, 10, failed())).unwrap();
    store.exclude(&second.job, &second.manifest, "a reason", at(20)).unwrap();
    let log = twin.log();
    for loss in [Loss::All, Loss::Contents] {
        let mut seen = Vec::new();
        for end in 0..=log.len() {
            let left = tempfile::tempdir().unwrap();
            after_power_failure(&log[..end], loss, &root, left.path());
            let store = Store::open(left.path().join("store")).unwrap();
            let report = sound(&store);
            let state = store.job(&job_of("{}")).unwrap();
            assert_eq!(state.attempts.len() as u64, report.attempts);
            for attempt in &state.attempts {
                assert!(store.layer(attempt, "result.json").unwrap().is_some());
            }
            assert!(end < first_done || state.is_hit(1), "a record that was reported is lost after {end} operations");
            assert!(!state.is_hit(1) || store.arm_jobs(&arms[1]).unwrap().len() == 1);
            seen.push(report.attempts);
            // And the store goes on from there.
            if end % 7 == 0 {
                store.record(input("{}", &arms, 30, Outcome::Valid)).unwrap();
                sound(&store);
            }
        }
        assert!(seen.is_sorted() && seen.contains(&0) && seen.last() == Some(&2), "{loss:?}: {seen:?}");
    }
}

#[test]
fn a_full_or_read_only_disk_is_a_clear_error_and_loses_nothing() {
    use rustix::io::Errno;
    for (errno, text, fix) in [
        (Errno::NOSPC, "No space left on device", "free space there"),
        (Errno::DQUOT, "quota exceeded", "free space there"),
        (Errno::ROFS, "Read-only file system", "write access"),
        (Errno::ACCESS, "Permission denied", "write access"),
    ] {
        // Every place where a full disk can show; one kind of place for the others.
        let kinds: &[&str] = match errno {
            Errno::NOSPC => &["mkdir", "create", "write", "fsync", "rename", "fsync dir"],
            _ => &["create"],
        };
        for &kind in kinds {
            let mut failures = 0;
            for after in 0.. {
                let dir = tempfile::tempdir().unwrap();
                let root = dir.path().join("store");
                let twin = TwinFs::new();
                let store = Store::open_on(Arc::new(twin.clone()), &root).unwrap();
                if after % 2 == 1 {
                    store.record(input("{\"before\":1}", &[arm("a")], 0, Outcome::Valid)).unwrap();
                }
                twin.fail(Some((kind, after, errno.raw_os_error())));
                let recorded = store.record(input("{}", &[arm("a")], 0, Outcome::Valid));
                twin.fail(None);
                let report = sound(&store);
                assert_eq!(report.leftovers, Vec::<PathBuf>::new());
                assert!(store.job(&job_of("{\"before\":1}")).unwrap().is_hit(1) || after % 2 == 0);
                match recorded {
                    // The fault came later than the record: in the index, which is only a cache.
                    Ok(_) => break,
                    Err(error) => {
                        failures += 1;
                        let message = error.to_string();
                        assert!(message.contains(text) && message.contains(dir.path().to_str().unwrap()), "{message}");
                        assert!(error.fix().unwrap().contains(fix));
                    }
                }
                // Healed, the same attempt goes in.
                store.record(input("{}", &[arm("a")], 0, Outcome::Valid)).unwrap();
                assert!(store.job(&job_of("{}")).unwrap().is_hit(1));
            }
            assert!(failures > 0, "{kind} never failed");
        }
    }
}

// ---- damage ----

fn one_problem(store: &Store) -> Problem {
    let mut problems = store.verify(&|_| {}).unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0)
}

#[test]
fn a_flipped_byte_is_found_set_aside_and_run_again() {
    for title in ["result.json", "the spec", "the manifest"] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let kept = store.record(input("{\"other\":1}", &[arm("a")], 7, Outcome::Valid)).unwrap();
        let attempt = store.record(input("{}", &[arm("a")], 0, Outcome::Valid)).unwrap();
        let digest = match title {
            "the spec" => attempt.job.0,
            "the manifest" => attempt.manifest,
            _ => store.attempt(&attempt).unwrap().layers.remove(0).digest,
        };
        let path = dir.path().join("blobs/sha256").join(digest.hex());
        let mut bytes = fs::read(&path).unwrap();
        bytes[1] ^= 1;
        fs::write(&path, &bytes).unwrap();

        let error = match title {
            "the spec" => store.spec(&attempt.job).unwrap_err(),
            _ => store.layer(&attempt, "result.json").unwrap_err(),
        };
        assert!(error.to_string().starts_with(&format!("{} is damaged: its content has the digest", path.display())));
        assert!(error.fix().unwrap().contains("ixbuild store verify --repair"));
        let problem = one_problem(&store);
        assert_eq!(problem.path, path, "{title}");
        assert!(problem.what.ends_with("; 1 attempt needs it"), "{}", problem.what);

        let done = store.repair(&store.verify(&|_| {}).unwrap()).unwrap();
        assert_eq!(done.moved.len(), 2, "the attempt and the blob");
        assert!(done.moved.iter().all(|(_, to)| to.exists()), "nothing is deleted");
        assert_eq!(fs::read(dir.path().join("damaged/blobs/sha256").join(digest.hex())).unwrap(), bytes);
        assert_eq!(sound(&store).index, IndexState::Current);
        assert!(!store.job(&attempt.job).unwrap().is_hit(1) && store.job(&kept.job).unwrap().is_hit(1));
        store.record(input("{}", &[arm("a")], 0, Outcome::Valid)).unwrap();
        assert!(store.job(&attempt.job).unwrap().is_hit(1));
        sound(&store);
    }
}

#[test]
fn a_missing_blob_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let attempt = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    for digest in [store.attempt(&attempt).unwrap().layers[0].digest, attempt.job.0, attempt.manifest] {
        let path = dir.path().join("blobs/sha256").join(digest.hex());
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let problem = one_problem(&store);
        assert_eq!((problem.path, problem.what.as_str()), (path.clone(), "it is missing; 1 attempt needs it"));
        if digest != attempt.job.0 {
            let error = store.layer(&attempt, "result.json").unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains("it is missing"), "{error}");
        }
        fs::write(&path, bytes).unwrap();
        sound(&store);
    }
}

#[test]
fn a_truncated_blob_is_written_anew_by_the_next_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let attempt = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    fs::write(dir.path().join("blobs/sha256").join(attempt.job.hex()), "").unwrap();
    one_problem(&store);
    store.record(input("{}", &[], 1, Outcome::Valid)).unwrap();
    sound(&store);
}

#[test]
fn damage_beside_the_blobs_is_found_and_repaired() {
    type Harm = fn(&Path, &AttemptRef) -> PathBuf;
    let harms: [(&str, Harm); 5] = [
        ("it does not describe the manifest", |root, attempt| {
            let path = Paths { root: root.to_owned() }.attempt(attempt);
            fs::write(&path, "{}").unwrap();
            path
        }),
        ("it is not an attempt", |root, attempt| {
            let path = Paths { root: root.to_owned() }.job(&attempt.job).join("note.txt");
            fs::write(&path, "hello").unwrap();
            path
        }),
        ("it is not a blob", |root, _| {
            let path = root.join("blobs/sha256/x");
            fs::write(&path, "hello").unwrap();
            path
        }),
        ("expected value", |root, attempt| {
            let path = Paths { root: root.to_owned() }.arm(&arm("a")).join(attempt.job.hex());
            fs::write(&path, "oops").unwrap();
            path
        }),
        ("it is missing", |root, _| {
            fs::remove_file(root.join("oci-layout")).unwrap();
            root.join("oci-layout")
        }),
    ];
    for (what, harm) in harms {
        let dir = tempfile::tempdir().unwrap();
        let attempt = {
            let store = Store::open(dir.path()).unwrap();
            store.record(input("{}", &[arm("a")], 0, Outcome::Valid)).unwrap()
        };
        let path = harm(dir.path(), &attempt);
        let store = Store::open(dir.path()).unwrap();
        let problem = one_problem(&store);
        assert!(problem.path == path && problem.what.contains(what), "{what}: {problem:?}");
        store.repair(&store.verify(&|_| {}).unwrap()).unwrap();
        sound(&store);
        assert!(store.job(&attempt.job).unwrap().is_hit(1), "{what}: the result is untouched");
    }
}

// ---- the index ----

#[test]
fn the_index_is_rebuilt_from_what_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("index.json");
    let store = Store::open(dir.path()).unwrap();
    let first = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    let second = store.record(input("{}", &[], 1, failed())).unwrap();
    store.flush_index().unwrap();
    let listed = fs::read_to_string(&index).unwrap();
    assert!(listed.contains(&first.tag()) && listed.contains(&second.tag()));
    assert_eq!(fs::read_dir(dir.path().join("pending")).unwrap().count(), 0);

    for harm in ["", "not json"] {
        fs::write(&index, harm).unwrap();
        assert_eq!(sound(&store).index, IndexState::Missing);
        assert_eq!(store.rebuild_index().unwrap(), 2);
        assert_eq!(sound(&store).index, IndexState::Current);
    }
    // A damaged index is no obstacle to the next record.
    fs::write(&index, "not json").unwrap();
    store.record(input("{}", &[], 2, Outcome::Valid)).unwrap();
    store.flush_index().unwrap();
    assert_eq!(sound(&store).index, IndexState::Current);
}

#[test]
fn what_a_killed_process_left_for_the_index_is_merged_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let first = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    fs::write(dir.path().join("index.json"), br#"{"schemaVersion":2,"manifests":[]}"#).unwrap();
    let name = format!("{}.{}", first.job.hex(), paths::attempt_name(&first));
    fs::write(dir.path().join("pending").join(name), "").unwrap();
    fs::write(dir.path().join("pending/garbage"), "").unwrap();
    assert_eq!(sound(&store).index, IndexState::Behind(1));
    store.record(input("{}", &[], 1, Outcome::Valid)).unwrap();
    drop(store);
    let report = sound(&Store::open(dir.path()).unwrap());
    assert_eq!((report.index, report.attempts), (IndexState::Current, 2));
    assert_eq!(fs::read_dir(dir.path().join("pending")).unwrap().count(), 0);
}

#[test]
fn leftovers_of_the_dead_are_named_and_removed_those_of_the_living_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    let me = Owner::current();
    let file = |owner: &Owner| dir.path().join(format!("blobs/sha256/.tmp-{}-0", owner.tag()));
    let dead = file(&Owner { started: me.started + 1, ..me.clone() });
    let elsewhere = file(&Owner { machine: "m".into(), ..me.clone() });
    let living = file(&me);
    for path in [&dead, &elsewhere, &living] {
        fs::write(path, "half").unwrap();
    }
    let report = sound(&store);
    assert_eq!(report.leftovers, std::slice::from_ref(&dead));
    assert_eq!(store.repair(&report).unwrap().removed, std::slice::from_ref(&dead));
    assert!(!dead.exists() && elsewhere.exists() && living.exists());
}

// ---- exclusions and tombstones ----

#[test]
fn an_exclusion_takes_a_reason_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let attempt = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    let exclude = |manifest: &Digest, reason| store.exclude(&attempt.job, manifest, reason, at(9));
    assert!(matches!(exclude(&attempt.manifest, " "), Err(StoreError::NoReason)));
    assert!(matches!(exclude(&Digest::of(b"?"), "x"), Err(StoreError::NoSuchAttempt { .. })));
    exclude(&attempt.manifest, "GPU 3 throttled").unwrap();
    let error = exclude(&attempt.manifest, "again").unwrap_err();
    assert!(error.to_string().ends_with("is already excluded: GPU 3 throttled"), "{error}");
    let on_file = store.exclusion(&attempt).unwrap().unwrap();
    assert_eq!((on_file.reason.as_str(), on_file.at), ("GPU 3 throttled", at(9)));
    assert!(!store.job(&attempt.job).unwrap().is_hit(1));
    sound(&store);
}

#[test]
fn a_collected_attempt_says_so_and_counts_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let attempt = store.record(input("{}", &[], 0, failed())).unwrap();
    let stone = store.job_path(&attempt.job).join(format!("collected.{}", attempt.manifest.hex()));
    fs::write(stone, br#"{"at":"2026-01-31T00:00:00Z","reason":"gc: older than 90 days"}"#).unwrap();
    fs::remove_dir_all(dir.path().join("blobs/sha256")).unwrap();
    sound(&store);
    let state = store.job(&attempt.job).unwrap();
    assert!(state.attempts[0].collected && state.records().count() == 0);
    let error = store.attempt(&state.attempts[0]).unwrap_err();
    assert!(error.to_string().ends_with("was collected on 2026-01-31T00:00:00Z: gc: older than 90 days"), "{error}");
    assert_eq!(store.rebuild_index().unwrap(), 0);
}

// ---- derivations ----

fn rederived(store: &Store, attempt: &AttemptRef, text: &str) -> Derivation {
    let layers = vec![Layer::new(RESULT_TYPE, "result.json", Source::Bytes(text.as_bytes().to_vec()))];
    store.derive(&DerivationInput { attempt, formulas: 2, at: at(50), failed: Vec::new(), layers }).unwrap()
}

#[test]
fn a_derivation_refers_to_its_attempt_and_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let attempt = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    let derivation = rederived(&store, &attempt, "anew");
    store.flush_index().unwrap();
    let report = sound(&store);
    assert_eq!((report.attempts, report.unreferenced, report.index), (1, 0, IndexState::Current));
    let manifest = fs::read(dir.path().join("blobs/sha256").join(derivation.manifest.hex())).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["artifactType"], DERIVED_TYPE);
    assert_eq!(manifest["subject"]["digest"], attempt.manifest.to_string());
    assert_eq!(manifest["config"]["digest"], attempt.job.0.to_string());
    let tag = format!("{}.{}", attempt.tag(), &derivation.manifest.hex()[..12]);
    let listed = |store: &Store| {
        let index = fs::read_to_string(store.root().join("index.json")).unwrap();
        index.contains(&format!("\"{tag}\""))
    };
    assert!(listed(&store));
    assert_eq!(store.rebuild_index().unwrap(), 2);
    assert!(listed(&store));
}

#[test]
fn a_damaged_derivation_is_set_aside_and_its_attempt_stands() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let attempt = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    let derivation = rederived(&store, &attempt, "anew");
    let blobs = dir.path().join("blobs/sha256");
    for damage in [Digest::of(b"anew"), derivation.manifest] {
        fs::write(blobs.join(damage.hex()), "flipped").unwrap();
        let at = store.job(&attempt.job).unwrap().attempts[0].clone();
        assert!(matches!(store.layer(&at, "result.json"), Err(StoreError::Damaged { .. })));
        let report = store.verify(&|_| {}).unwrap();
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        store.repair(&report).unwrap();
        let at = store.job(&attempt.job).unwrap().attempts[0].clone();
        assert_eq!((at.derived.clone(), at.counts()), (None, true));
        assert_eq!(store.layer(&at, "result.json").unwrap().unwrap(), b"{\"tokens\":0}");
        sound(&store);
        rederived(&store, &attempt, "anew");
    }
    sound(&store);
}

#[test]
fn a_name_that_its_manifest_does_not_bear_out_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let attempt = store.record(input("{}", &[], 0, Outcome::Valid)).unwrap();
    rederived(&store, &attempt, "anew");
    let job = store.job_path(&attempt.job);
    let mut names = fs::read_dir(&job).unwrap().map(|entry| entry.unwrap().path());
    let path = names.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("derived.")).unwrap();
    let lie = job.join(path.file_name().unwrap().to_str().unwrap().replace(".valid.", ".invalid."));
    fs::rename(&path, &lie).unwrap();
    let problem = one_problem(&store);
    assert!(problem.path == lie && problem.what.contains("it says valid"), "{problem:?}");
}

// ---- claims ----

fn claimed(store: &Store, job: &JobHash, handles: &[&str]) -> Box<Claimed> {
    match store.claim(job, handles.iter().map(|handle| handle.to_string()).collect()).unwrap() {
        Claim::Claimed(claimed) => claimed,
        Claim::Held(held) => panic!("held by {held}"),
    }
}

fn held(store: &Store, job: &JobHash) -> HeldClaim {
    match store.claim(job, vec![]).unwrap() {
        Claim::Held(held) => *held,
        Claim::Claimed(_) => panic!("claimed twice"),
    }
}

/// Puts another process's claim on file.
fn leave_claim(store: &Store, job: &JobHash, change: impl FnOnce(&mut serde_json::Value)) {
    let path = store.0.paths.claim(job);
    let claimed = claimed(store, job, &["pid:1:2"]);
    let mut record = serde_json::to_value(claimed.guard.record()).unwrap();
    claimed.guard.release().unwrap();
    change(&mut record);
    fs::write(path, record.to_string()).unwrap();
}

fn stores(dir: &Path) -> [Store; 3] {
    [TwinFs::new(), TwinFs::without_locks(true), TwinFs::without_locks(false)]
        .into_iter()
        .enumerate()
        .map(|(index, twin)| Store::open_on(Arc::new(twin), dir.join(index.to_string())).unwrap())
        .collect::<Vec<_>>()
        .try_into()
        .unwrap()
}

#[test]
fn a_claim_is_exclusive_listed_and_released_with_locks_and_without() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        let job = job_of("{}");
        let mut first = claimed(&store, &job, &["pid:10:20"]);
        let other = held(&store, &job);
        assert_eq!((other.presence, other.record.as_ref()), (Presence::Alive, Some(first.guard.record())));
        assert!(other.blocks() && other.to_string().starts_with(&format!("pid {} on ", std::process::id())));
        first.guard.set_handles(vec!["pid:11:21".into()]).unwrap();
        let listed = store.claims().unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].record.as_ref().unwrap().work.handles, ["pid:11:21"]);
        assert_eq!(store.job(&job).unwrap().running(), Some(&listed[0]));
        assert_eq!(store.resolve("job:4").unwrap(), job, "claimed jobs have prefixes too");
        assert!(matches!(store.end_claim(&job, false), Err(StoreError::Claimed { .. })));
        first.guard.release().unwrap();
        assert_eq!(store.claims().unwrap(), []);
        drop(claimed(&store, &job, &[]));
        assert_eq!(store.claims().unwrap(), []);
        claimed(&store, &job, &[]);
        sound(&store);
    }
}

#[test]
fn of_many_claimants_one_wins_and_the_others_find_its_record() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        for round in 0..20 {
            let spec = format!("{{\"round\":{round}}}");
            let job = job_of(&spec);
            let runs = std::sync::atomic::AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| {
                        loop {
                            match store.claim(&job, vec![]).unwrap() {
                                Claim::Claimed(claimed) if claimed.state.is_hit(1) => break,
                                Claim::Claimed(claimed) => {
                                    runs.fetch_add(1, Ordering::SeqCst);
                                    store.record(input(&spec, &[], 0, Outcome::Valid)).unwrap();
                                    claimed.guard.release().unwrap();
                                    break;
                                }
                                Claim::Held(_) => std::thread::yield_now(),
                            }
                        }
                    });
                }
            });
            assert_eq!(runs.into_inner(), 1);
        }
    }
}

#[test]
fn a_dead_owners_claim_is_taken_over_with_its_handles() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let job = job_of("{}");
    leave_claim(&store, &job, |record| record["owner"]["started"] = json!(1));
    let found = store.job(&job).unwrap();
    assert_eq!(found.claim.as_ref().unwrap().presence, Presence::Dead);
    assert_eq!(found.running(), None, "a plan may run it");
    let mut taken = claimed(&store, &job, &["pid:3:4"]);
    assert_eq!(taken.left.as_ref().unwrap().work.handles, ["pid:1:2"]);
    // Until they are dealt with, the old handles survive this owner as well.
    assert_eq!(store.claims().unwrap()[0].record.as_ref().unwrap().work.handles, ["pid:1:2", "pid:3:4"]);
    taken.guard.set_handles(vec!["pid:3:4".into()]).unwrap();
    assert_eq!(store.claims().unwrap()[0].record.as_ref().unwrap().work.handles, ["pid:3:4"]);
    // Services that stay up stay on file.
    taken.guard.leave();
    assert_eq!(claimed(&store, &job, &[]).left.unwrap().work.handles, ["pid:3:4"]);
}

#[test]
fn an_owner_elsewhere_is_never_presumed_dead() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let job = job_of("{}");
    let elsewhere = |record: &mut serde_json::Value| {
        record["owner"]["machine"] = json!("another");
        record["owner"]["boot"] = json!("another");
        record["owner"]["pid"] = json!(4_000_000);
    };
    leave_claim(&store, &job, elsewhere);
    for _ in 0..2 {
        let held = held(&store, &job);
        assert!(held.blocks() && held.presence == Presence::Elsewhere);
        assert!(held.to_string().ends_with("which cannot be judged from here"));
    }
    let error = store.end_claim(&job, false).unwrap_err();
    assert!(error.fix().unwrap().contains("ixbuild stop"), "{error}");
    assert_eq!(store.end_claim(&job, true).unwrap().unwrap().work.handles, ["pid:1:2"]);
    drop(claimed(&store, &job, &[]));

    // Nor is one whose record cannot be read.
    fs::write(store.0.paths.claim(&job), "").unwrap();
    assert!(held(&store, &job).blocks());
    store.end_claim(&job, true).unwrap();
    drop(claimed(&store, &job, &[]));
}

#[test]
fn a_request_to_stop_is_for_one_claim_alone_and_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        let job = job_of("{}");
        let first = claimed(&store, &job, &[]);
        let record = first.guard.record().clone();
        assert!(!first.guard.stop_request().is_made());
        store.ask_to_stop(&record).unwrap();
        assert!(first.guard.stop_request().is_made());
        assert_eq!(store.claims().unwrap().len(), 1, "a request is no claim");
        sound(&store);
        first.guard.release().unwrap();
        assert_eq!(store.0.disk.list(&store.0.paths.claims()).unwrap(), Vec::<String>::new());
        // A request that comes too late asks nothing of the next claim.
        store.ask_to_stop(&record).unwrap();
        let second = claimed(&store, &job, &[]);
        assert!(!second.guard.stop_request().is_made());
        assert!(!second.guard.record().is_same_claim(&record));
    }
}

#[test]
fn a_claim_says_what_it_is_for_and_a_taken_over_one_what_was_left_until_ours_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let job = job_of("{}");
    leave_claim(&store, &job, |record| {
        record["owner"]["started"] = json!(1);
        record["arms"] = json!(["old"]);
        record["scratch"] = json!("/s/old");
    });
    let work = Work {
        arms: vec![ArmId("new".into())],
        handles: vec![],
        phase: Some("starting".into()),
        scratch: Some("/s/new".into()),
    };
    let Claim::Claimed(mut taken) = store.claim_for(&job, work.clone()).unwrap() else { panic!("not taken over") };
    let on_file = || store.claims().unwrap()[0].record.clone().unwrap().work;
    assert_eq!((on_file().scratch, on_file().handles), (Some("/s/old".into()), vec!["pid:1:2".to_owned()]));
    taken.guard.set_work(work.clone()).unwrap();
    assert_eq!(on_file(), work);
    taken.guard.release().unwrap();
    let Claim::Claimed(fresh) = store.claim_for(&job, work.clone()).unwrap() else { panic!("not free") };
    assert_eq!((on_file(), fresh.left), (work, None));
}

#[test]
fn without_locks_a_dead_owners_claim_blocks_until_it_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_on(Arc::new(TwinFs::without_locks(true)), dir.path()).unwrap();
    let job = job_of("{}");
    leave_claim(&store, &job, |record| record["owner"]["started"] = json!(1));
    let found = held(&store, &job);
    assert!(found.presence == Presence::Dead && found.blocks());
    assert_eq!(store.end_claim(&job, false).unwrap().unwrap().work.handles, ["pid:1:2"]);
    let mut ours = claimed(&store, &job, &[]);
    // `stop` elsewhere ends ours by force: we notice, and do not end the next one's.
    store.end_claim(&job, true).unwrap();
    assert!(ours.guard.stop_request().is_made(), "whoever lives after all must stop");
    let next = claimed(&store, &job, &[]);
    assert!(matches!(ours.guard.set_handles(vec![]), Err(StoreError::ClaimLost { .. })));
    drop(ours);
    assert!(next.guard.is_ours().unwrap());
}
