//! `ixbuild logs`: what the processes of an attempt printed, while it runs and afterwards.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::Globals;
use super::claims::named;
use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::project::Project;
use super::selection::{is_hash, one_arm};
use crate::compose::Composed;
use crate::config::similar::listed;
use crate::ids::JobHash;
use crate::spec::JobSpec;
use crate::store::{AttemptRef, ClaimRecord, Presence, Store, StoreView, each_file};
use crate::sweep::title;

const NOTES: &str = "\
Without SERVICE the logs of all, each line behind its service's name: one after the other, or with -f as they come.

Examples:
  ixbuild logs tp8-resident-mtp-c1 server -f      what its server prints
  ixbuild logs tp8-resident-mtp-c1 --attempt 1    what its first attempt printed";

/// How often a running attempt's logs are looked at.
const LOOK: Duration = Duration::from_millis(150);

/// Print what the processes of an attempt printed: of the one that runs, else of the newest that is stored
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct LogsArgs {
    /// An arm or a job hash
    #[arg(value_name = "ARM|HASH")]
    what: String,
    /// Only this service, as it is
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
    /// Go on as the attempt goes on, until it ends
    #[arg(long, short)]
    follow: bool,
    /// Another attempt: its number, counted from 1 as `ixbuild show` lists them, or the first digits of its manifest
    #[arg(long, value_name = "N|MANIFEST", conflicts_with = "follow")]
    attempt: Option<String>,
}

pub(super) fn logs(args: &LogsArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let store = globals.store()?;
    let job = find(&args.what, &store, globals)?;
    let claim = store.claims()?.into_iter().find(|claim| claim.job == job);
    let running = claim.filter(|_| args.attempt.is_none()).and_then(|claim| Some((claim.presence, claim.record?)));
    if let Some((presence, record)) = running
        && let Some(scratch) = record.work.scratch.clone()
    {
        if presence == Presence::Alive || scratch.is_dir() {
            if presence == Presence::Dead {
                printer.note(&format!("of {}, which is dead", record.owner));
            }
            let out = Out::new(args.service.clone(), printer);
            return live(out, &scratch.join("logs"), &store, &record, args.follow && presence != Presence::Dead);
        }
        printer.note(&format!("{} runs it, with its logs there: {}", record.owner, scratch.join("logs").display()));
    }
    let (job, attempt) = stored(&store, job, args, globals)?;
    let spec = store.spec(&job)?.and_then(|bytes| serde_json::from_slice::<JobSpec>(&bytes).ok());
    let names: Vec<String> = spec.iter().flat_map(JobSpec::processes).map(|service| service.name.clone()).collect();
    let mut out = Out::new(args.service.clone(), printer);
    out.know(&names)?;
    if args.follow {
        printer.note("it does not run: these are the logs of the newest attempt");
    }
    printer.note(&format!(
        "{} of {}, {}",
        attempt.outcome,
        attempt.started.strftime("%Y-%m-%d %H:%M:%S UTC"),
        job.short()
    ));
    print_stored(out, &store, &attempt)
}

/// The job that a word names: of what runs, of what is stored, or as the configs say it.
fn find(what: &str, store: &Store, globals: &Globals) -> Result<JobHash, Error> {
    if is_hash(what) {
        return Ok(store.resolve(what)?);
    }
    let claims = store.claims()?;
    if let [claim] = named(&claims, what)?[..] {
        return Ok(claim.job);
    }
    let project = Project::open(globals)?;
    let arm = one_arm(&project, what)?;
    match project.composer().compose(&arm)? {
        Composed::Job(job) => Ok(job.spec.hash()),
        Composed::Blocked(blocked) => {
            Err(Error::refused(format!("{} has no spec: {}", arm.id, blocked.why)).hint(blocked.unblock))
        }
    }
}

/// The attempt asked for, else the newest; of an arm that was never tried as it is, the newest of what it was.
fn stored(store: &Store, job: JobHash, args: &LogsArgs, globals: &Globals) -> Result<(JobHash, AttemptRef), Error> {
    let attempts = store.job(&job)?.attempts;
    if let Some(asked) = &args.attempt {
        let by_number = asked.parse::<usize>().ok().and_then(|number| attempts.get(number.checked_sub(1)?));
        let digits = asked.strip_prefix("sha256:").unwrap_or(asked);
        let by_manifest: Vec<&AttemptRef> = match digits.len() >= 4 {
            true => attempts.iter().filter(|attempt| attempt.manifest.hex().starts_with(digits)).collect(),
            false => Vec::new(),
        };
        return match (by_number, &by_manifest[..]) {
            (Some(attempt), _) => Ok((job, attempt.clone())),
            (None, [attempt]) => Ok((job, (*attempt).clone())),
            (None, []) => Err(Error::usage(format!("{} has no attempt `{asked}`", job.short())).hint(format!(
                "it has {}; `ixbuild show {}` lists them",
                attempts.len(),
                job.short()
            ))),
            (None, _) => Err(Error::usage(format!("`{asked}` is ambiguous")).hint("give more digits")),
        };
    }
    let mut found = attempts.last().cloned().map(|attempt| (job, attempt));
    if found.is_none() && !is_hash(&args.what) {
        let arm = one_arm(&Project::open(globals)?, &args.what)?;
        for earlier in store.arm_jobs(&arm.id)? {
            let last = store.job(&earlier.job)?.attempts.last().cloned();
            let newer = |attempt: &AttemptRef| found.as_ref().is_none_or(|(_, known)| known.started < attempt.started);
            found = last.filter(newer).map(|attempt| (earlier.job, attempt)).or(found);
        }
    }
    found.ok_or_else(|| Error::usage(format!("{} was never tried", args.what)).hint("`ixbuild ps` shows what runs"))
}

/// Prints the logs layer of an attempt.
fn print_stored(mut out: Out, store: &Store, attempt: &AttemptRef) -> Result<u8, Error> {
    let Some(layer) = store.open_layer(attempt, title::LOGS)? else {
        out.printer.note("it has no logs: it ended before anything was started");
        return Ok(exit::OK);
    };
    let mut printed = false;
    let read = each_file(layer, |path, content| {
        let name = stem(&path);
        if !out.wants(&name) {
            return Ok(());
        }
        printed = true;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match content.read(&mut buffer)? {
                0 => break,
                bytes => out.feed(&name, &buffer[..bytes]),
            }
        }
        out.finish(&name);
        Ok(())
    });
    read.map_err(|error| {
        Error::new(exit::STORE, format!("the logs of {}: {error}", attempt.tag())).hint("run `ixbuild store verify`")
    })?;
    if !printed {
        out.printer.note("it was not started in this attempt");
    }
    Ok(exit::OK)
}

/// Prints the log files of an attempt that runs, or whose owner died; with `follow` until its claim is gone.
fn live(mut out: Out, folder: &Path, store: &Store, record: &ClaimRecord, follow: bool) -> Result<u8, Error> {
    // What is open can be read to its end after the attempt has removed it.
    let mut open: BTreeMap<String, File> = BTreeMap::new();
    loop {
        let held = store.job(&record.job)?.claim.and_then(|claim| claim.record);
        let last = !follow || held.is_none_or(|held| !held.is_same_claim(record));
        let names = log_names(folder);
        // A service that is followed may start later.
        if out.know(&names).is_err() && last && open.is_empty() {
            return out.know(&names).map(|()| exit::OK);
        }
        for name in names {
            if out.wants(&name) && !open.contains_key(&name) {
                // Gone between the listing and now: the attempt has ended.
                open.extend(File::open(folder.join(format!("{name}.log"))).ok().map(|file| (name, file)));
            }
        }
        for (name, file) in &mut open {
            let mut buffer = Vec::new();
            let path = folder.join(format!("{name}.log"));
            file.read_to_end(&mut buffer)
                .map_err(|error| Error::environment(format!("{}: {error}", path.display())))?;
            out.feed(name, &buffer);
        }
        if last {
            open.keys().for_each(|name| out.finish(name));
            break;
        }
        std::thread::sleep(LOOK);
    }
    if follow && let Some(attempt) = store.job(&record.job)?.attempts.last() {
        out.printer.note(&format!("the attempt ended: {}", attempt.outcome));
    }
    Ok(exit::OK)
}

/// The names of the logs in a folder, in order.
fn log_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "log"));
    let mut names: Vec<String> = logs.map(|path| stem(&path)).collect();
    names.sort();
    names
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Lines of logs on their way to stdout.
struct Out {
    service: Option<String>,
    /// Width of the names before the lines.
    width: usize,
    /// What came of a line that has not ended, by log.
    begun: BTreeMap<String, Vec<u8>>,
    printer: Printer,
}

impl Out {
    /// For one service, or for all.
    fn new(service: Option<String>, printer: Printer) -> Self {
        Self { service, width: 0, begun: BTreeMap::new(), printer }
    }

    /// Takes note of the names that there are.
    ///
    /// # Errors
    /// The service asked for is not among them.
    fn know(&mut self, names: &[String]) -> Result<(), Error> {
        self.width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(self.width);
        match &self.service {
            Some(service) if !names.iter().any(|name| self.wants(name)) => {
                let there = match names {
                    [] => "none has started".to_owned(),
                    names => format!("there is {}", listed(names.iter().map(String::as_str), 32)),
                };
                Err(Error::usage(format!("no log of a service `{service}`")).hint(there))
            }
            _ => Ok(()),
        }
    }

    /// Whether a log is asked for: `server` is also `server@1`, its second instance.
    fn wants(&self, log: &str) -> bool {
        let service = log.split_once('@').map_or(log, |(service, _)| service);
        self.service.as_deref().is_none_or(|asked| asked == log || asked == service)
    }

    /// Prints what has come of a log; with names, whole lines of it.
    fn feed(&mut self, log: &str, bytes: &[u8]) {
        if self.service.is_some() {
            return self.printer.bytes(bytes);
        }
        let begun = self.begun.entry(log.to_owned()).or_default();
        begun.extend_from_slice(bytes);
        let Some(end) = begun.iter().rposition(|byte| *byte == b'\n') else { return };
        let rest = begun.split_off(end + 1);
        let whole = std::mem::replace(begun, rest);
        self.lines(log, &whole);
    }

    /// Prints the line that a log ends with, if it has no newline.
    fn finish(&mut self, log: &str) {
        let rest = self.begun.remove(log).unwrap_or_default();
        if !rest.is_empty() {
            self.lines(log, &[&rest[..], b"\n"].concat());
        }
    }

    fn lines(&self, log: &str, lines: &[u8]) {
        let prefix = format!("{log:<width$} | ", width = self.width);
        let mut out = Vec::with_capacity(lines.len() * 2);
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            out.extend_from_slice(prefix.as_bytes());
            out.extend_from_slice(line);
        }
        self.printer.bytes(&out);
    }
}
