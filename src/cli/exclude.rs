//! `ixbuild exclude`: takes an attempt out of the count.

use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::Globals;
use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::table::count;
use crate::ids::JobHash;
use crate::store::{AttemptRef, Store, StoreError, StoreView};

const NOTES: &str = "\
The attempt stays readable and `show` lists it with its reason; it is no hit any more, and no median or comparison uses it. \
There is no undoing it: run the arm again instead. With --json: `job`, `attempt`, `reason`, `n` (records left).

Examples:
  ixbuild exclude job:15cd --reason 'GPU 3 throttled'      a job's only record
  ixbuild exclude 84963d4a64ca --reason 'GPU 3 throttled'  an attempt, as `show` lists it";

/// Take an attempt out of the count, for good, and keep why
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct ExcludeArgs {
    /// An attempt, by the first digits of its manifest or by its tag `ix1-…`; or a job with one record, as `job:…`
    #[arg(value_name = "ATTEMPT|HASH")]
    what: String,
    /// Why, for whoever reads the numbers later
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn exclude(args: &ExcludeArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let store = globals.store()?;
    if args.reason.trim().is_empty() {
        return Err(StoreError::NoReason.into());
    }
    let at = attempt(&store, &args.what)?;
    let arms = if at.collected { Vec::new() } else { store.attempt(&at)?.arms };
    store.exclude(&at.job, &at.manifest, &args.reason, Timestamp::now())?;
    let left = store.job(&at.job)?.records().count();
    if args.json {
        let value = json!({"job": at.job, "attempt": at.manifest, "reason": args.reason.trim(), "n": left});
        printer.data(&value.to_string());
        return Ok(exit::OK);
    }
    let short = &at.manifest.hex()[..12];
    printer.data(&format!("excluded the {} attempt {short} of {}", at.standing(), at.job.short()));
    let profile = if at.rehearsal { " --profile rehearsal" } else { "" };
    let again = match arms.first() {
        Some(arm) if left == 0 => format!("`ixbuild run {arm}{profile}` runs it again"),
        Some(arm) => format!("`ixbuild run {arm}{profile} --rerun` makes another"),
        None => format!("`ixbuild reproduce {}` runs it again", at.job.short()),
    };
    printer.note(&format!("{} left; {again}", count(left, "record")));
    Ok(exit::OK)
}

/// The attempt that a word names.
fn attempt(store: &Store, word: &str) -> Result<AttemptRef, Error> {
    if word.starts_with("job:") {
        return only_record(store, &store.resolve(word)?);
    }
    if let Some(tag) = word.strip_prefix("ix1-") {
        return by_tag(store, word, tag);
    }
    let digits = word.strip_prefix("sha256:").unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c)) {
        return Err(Error::usage(format!("`{word}` is neither an attempt nor a job"))
            .hint("`ixbuild show ARM` lists attempts; give the first digits of one, its tag, or job:… for a job"));
    }
    let mut found = Vec::new();
    for job in store.tried()? {
        found.extend(store.job(&job)?.attempts.into_iter().filter(|at| at.manifest.hex().starts_with(digits)));
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        // A whole digest with its algorithm may be that of a job too.
        [] if word.starts_with("sha256:") => only_record(store, &store.resolve(word)?),
        [] => Err(Error::usage(format!("no attempt starts with `{word}`"))
            .hint("`ixbuild show ARM` lists attempts; a job is written job:…")),
        several => Err(ambiguous(word, several)),
    }
}

/// `ix1-JOB.MANIFEST`, the manifest's first digits.
fn by_tag(store: &Store, word: &str, tag: &str) -> Result<AttemptRef, Error> {
    let unknown = || Error::usage(format!("no attempt has the tag {word}")).hint("`ixbuild show ARM` lists attempts");
    let (job, digits) = tag.split_once('.').ok_or_else(unknown)?;
    let job = store.resolve(&format!("job:{job}"))?;
    let attempts = store.job(&job)?.attempts.into_iter();
    match attempts.filter(|at| at.manifest.hex().starts_with(digits)).collect::<Vec<_>>().as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(unknown()),
        several => Err(ambiguous(word, several)),
    }
}

fn only_record(store: &Store, job: &JobHash) -> Result<AttemptRef, Error> {
    let records: Vec<AttemptRef> = store.job(job)?.records().cloned().collect();
    match records.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            Err(Error::usage(format!("{} has no record", job.short()))
                .hint("its attempts count for nothing as they are"))
        }
        several => Err(ambiguous(&job.short(), several)),
    }
}

fn ambiguous(word: &str, found: &[AttemptRef]) -> Error {
    let list: Vec<String> = found.iter().map(|at| format!("{} of {}", &at.manifest.hex()[..12], at.started)).collect();
    let said = format!("`{word}` stands for {}: {}", count(found.len(), "attempt"), list.join(", "));
    Error::usage(said).hint("name one of them")
}
