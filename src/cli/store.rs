//! `ixbuild store`: checks the store, or says where it is.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::error::Error;
use super::exit;
use super::printer::Printer;
use crate::store::{self, IndexState, Report, Store, StoreError, StoreView as _};

const NOTES: &str = "\
The store is an OCI image layout; `skopeo inspect --raw oci:DIR:TAG` reads a record of it. Its tags stand in index.json.

Examples:
  ixbuild store verify
  ls $(ixbuild store path job:15cd)";

/// Check the store of results, or print where it is
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Args {
    /// What to do with it.
    #[command(subcommand)]
    verb: Verb,
}

const VERIFY: &str = "\
It changes nothing without --repair and may run while other processes record. It exits with 5 if it finds damage.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read everything in the store and name all damage, with what to do about it
    #[command(after_help = VERIFY)]
    Verify {
        /// Set damaged files and the attempts that need them aside in `damaged/`, remove what killed writers left, and
        /// rebuild index.json; no intact file is lost
        #[arg(long)]
        repair: bool,
        /// Print one JSON object: attempts, records, blobs, bytes, unreferenced, leftovers, index, problems
        #[arg(long)]
        json: bool,
    },
    /// Print the store's directory, or the one of a job's attempts
    Path {
        /// A job: `job:` or `sha256:` and the first digits of its hash
        job: Option<String>,
    },
}

impl Args {
    /// Whether one JSON object is wanted.
    pub(super) fn wants_json(&self) -> bool {
        matches!(self.verb, Verb::Verify { json: true, .. })
    }
}

/// Opens the store that the command line names, or the default one.
///
/// # Errors
/// No place for a store, or a place that holds something else.
pub fn open(dir: Option<PathBuf>) -> Result<Store, Error> {
    let root = match dir.filter(|dir| !dir.as_os_str().is_empty()) {
        Some(dir) => dir,
        None => store::default_root()?,
    };
    Ok(Store::open(root)?)
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::NoSuchJob { .. }
            | StoreError::Ambiguous { .. }
            | StoreError::NotAPrefix(_)
            | StoreError::NoSuchAttempt { .. }
            | StoreError::NoReason => exit::USAGE,
            StoreError::Claimed { .. } | StoreError::AlreadyExcluded { .. } => exit::REFUSED,
            _ => exit::STORE,
        };
        Self { hint: error.fix(), ..Self::new(code, error.to_string()) }
    }
}

/// Carries it out.
///
/// # Errors
/// A store that cannot be read, or repaired; a job that is not in it.
pub fn run(args: Args, dir: Option<PathBuf>, printer: Printer) -> Result<u8, Error> {
    let store = open(dir)?;
    match args.verb {
        Verb::Verify { repair, json } => verify(&store, repair, json, printer),
        Verb::Path { job } => {
            let path = match job {
                Some(prefix) => store.job_path(&store.resolve(&prefix)?),
                None => store.root().to_owned(),
            };
            printer.data(&path.display().to_string());
            Ok(exit::OK)
        }
    }
}

fn verify(store: &Store, repair: bool, json: bool, printer: Printer) -> Result<u8, Error> {
    let bar = if printer.interactive { progress_bar() } else { ProgressBar::hidden() };
    let report = store.verify(&|progress| {
        bar.set_length(progress.blobs);
        bar.set_position(progress.checked);
        bar.set_message(size(progress.bytes));
    });
    bar.finish_and_clear();
    let report = report?;
    if json {
        printer.data(&as_json(&report).to_string());
    } else {
        print(&report, store.root(), repair, printer);
    }
    if !repair {
        return Ok(if report.problems.is_empty() { exit::OK } else { exit::STORE });
    }
    let done = store.repair(&report)?;
    for (from, to) in &done.moved {
        printer.note(&format!("moved {} to {}", from.display(), to.display()));
    }
    for path in &done.rewritten {
        printer.note(&format!("wrote {}", path.display()));
    }
    for path in &done.removed {
        printer.note(&format!("removed {}", path.display()));
    }
    let left = if report.problems.is_empty() { 0 } else { store.verify(&|_| {})?.problems.len() };
    match left {
        0 => Ok(exit::OK),
        count => Err(Error::new(exit::STORE, format!("{} that repair cannot solve", plural(count as u64, "problem")))
            .hint("do as the fix of each says")),
    }
}

fn print(report: &Report, root: &Path, repair: bool, printer: Printer) {
    for problem in &report.problems {
        printer.data(&format!("damaged: {}: {}\n  fix: {}", problem.path.display(), problem.what, problem.fix));
    }
    let damage = match report.problems.len() {
        0 => "no damage".to_owned(),
        count => plural(count as u64, "problem"),
    };
    printer.data(&format!(
        "{}: {} ({}), {} ({}): {damage}",
        root.display(),
        plural(report.attempts, "attempt"),
        plural(report.records, "record"),
        plural(report.blobs, "blob"),
        size(report.bytes),
    ));
    if report.unreferenced > 0 {
        printer.note(&format!("{} that no attempt refers to", plural(report.unreferenced, "blob")));
    }
    let mut notes = Vec::new();
    if !report.leftovers.is_empty() {
        notes.push(format!("{} of writers that were killed", plural(report.leftovers.len() as u64, "temporary file")));
    }
    match report.index {
        IndexState::Current => {}
        IndexState::Behind(count) => notes.push(format!("index.json is behind by {}", plural(count, "attempt"))),
        IndexState::Missing => notes.push("index.json is missing or unreadable".to_owned()),
    }
    for note in notes {
        let hint = if repair { "" } else { "; `ixbuild store verify --repair` puts it right" };
        printer.note(&format!("{note}{hint}"));
    }
}

fn as_json(report: &Report) -> serde_json::Value {
    let problem = |problem: &store::Problem| json!({ "path": problem.path.to_string_lossy(), "what": problem.what, "fix": problem.fix });
    json!({
        "attempts": report.attempts,
        "records": report.records,
        "blobs": report.blobs,
        "bytes": report.bytes,
        "unreferenced": report.unreferenced,
        "leftovers": report.leftovers.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "index": match report.index {
            IndexState::Current => "current",
            IndexState::Behind(_) => "behind",
            IndexState::Missing => "missing",
        },
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("verifying {pos}/{len} blobs, {msg} [{wide_bar}] {eta}") {
        bar.set_style(style);
    }
    bar
}

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Bytes in decimal units, one decimal.
fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (1_000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit)
}
