//! What the store costs: `cargo bench --bench store [-- DIR [MEGABYTES]]`.
//!
//! 1. Putting a large file, against the slower of hashing it alone (`sha2`) and copying it alone (`dd conv=fsync`). Bound: 1.3.
//! 2. Looking up 68 and 100,000 jobs, in a store that has them and in one that does not exist.
//!
//! DIR is where to write, by default the directory for temporary files; give one on the disk that the store will use.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ixbuild::ids::{ArmId, Digest, JobHash};
use ixbuild::store::{AttemptInput, Outcome, Store, StoreView as _};
use jiff::Timestamp;
use sha2::Digest as _;

const ROUNDS: usize = 5;
const MB: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let dir = match args.first() {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let megabytes = args.get(1).map_or(Ok(512), |text| text.parse())?;
    put(dir.path(), megabytes)?;
    lookups(dir.path())
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let value = work();
    (start.elapsed(), value)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn put(dir: &Path, megabytes: u64) -> Result<(), Box<dyn std::error::Error>> {
    let source = dir.join("source");
    let (mut hash, mut copy, mut put) = (Vec::new(), Vec::new(), Vec::new());
    // In turn, so that a disk that slows down slows all three; new content each round, so that nothing is there already.
    for _ in 0..ROUNDS {
        let content: Vec<u8> = std::iter::repeat_with(|| fastrand::u64(..).to_le_bytes())
            .take(usize::try_from(megabytes * MB / 8)?)
            .flatten()
            .collect();
        std::fs::write(&source, &content)?;
        std::fs::File::open(&source)?.sync_all()?;
        hash.push(timed(|| sha2::Sha256::digest(&content)).0);
        drop(content);

        let copied = dir.join("copied");
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", source.display())).arg(format!("of={}", copied.display()));
        let (time, output) = timed(|| dd.args(["bs=1M", "conv=fsync"]).output());
        assert!(output?.status.success(), "dd failed");
        copy.push(time);
        std::fs::remove_file(copied)?;

        let root = dir.join("put");
        let (time, stored) = timed(|| Store::open(&root)?.put_file(&source));
        stored?;
        put.push(time);
        std::fs::remove_dir_all(root)?;
    }
    let (hash, copy, put) = (median(hash), median(copy), median(put));
    let rate = |time: Duration| format!("{:7.1?} {:6.0} MB/s", time, megabytes as f64 / time.as_secs_f64());
    println!("{megabytes} MB, median of {ROUNDS}");
    println!("  sha2             {}", rate(hash));
    println!("  dd conv=fsync    {}", rate(copy));
    println!("  store put        {}", rate(put));
    println!("  put / the slower {:.2} (bound 1.3)", put.as_secs_f64() / hash.max(copy).as_secs_f64());
    Ok(())
}

fn lookups(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    const JOBS: usize = 100_000;
    let specs: Vec<String> = (0..JOBS).map(|job| format!("{{\"job\":{job}}}")).collect();
    let jobs: Vec<JobHash> = specs.iter().map(|spec| JobHash(Digest::of(spec.as_bytes()))).collect();
    let root = dir.join("many");
    // Attempts as the store names them: what a lookup reads of a job is its directory.
    let store = Store::open(&root)?;
    let at = Timestamp::from_second(1_750_000_000)?;
    let first = store.record(AttemptInput {
        job: jobs[0],
        spec: specs[0].as_bytes(),
        arms: &[ArmId("key/agentic/tp8-resident-c1".into())],
        started: at,
        ended: at,
        outcome: Outcome::Valid,
        rehearsal: true,
        reasons: serde_json::Value::Null,
        layers: Vec::new(),
    })?;
    let name = std::fs::read_dir(store.job_path(&first.job))?.next().ok_or("no attempt")??.file_name();
    for job in &jobs[1..] {
        std::fs::create_dir_all(store.job_path(job))?;
        std::fs::write(store.job_path(job).join(&name), "")?;
    }
    for count in [68, JOBS] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let (time, states) = timed(|| Store::open(&root)?.jobs(&jobs[..count]));
            assert!(states?.iter().all(|state| state.is_hit(1)));
            times.push(time);
        }
        let (empty, states) = timed(|| Store::open(dir.join("none"))?.jobs(&jobs[..count]));
        assert!(!states?.iter().any(|state| state.is_hit(1)));
        println!("look up {count:6} jobs: recorded {:8.1?}, no store {empty:8.1?}", median(times));
    }
    Ok(())
}
