//! `ixbuild stop`: ends running jobs, what dead owners left, and services that were kept up.

use std::time::{Duration, Instant};

use clap::Args;

use super::Globals;
use super::claims::{name, named};
use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::table::count;
use crate::exec::{Local, Timing};
use crate::store::{Claim, ClaimRecord, HeldClaim, Presence, Store, StoreError};
use crate::sweep::clear;

const NOTES: &str = "\
A job of a sweep is stopped alone: its owner ends its processes, records the attempt as stopped, and goes on with the \
rest. Owners on other machines are asked too, through the store. What a dead owner left on this machine is ended. The \
exit code is 4 where an owner did not stop in time.

Examples:
  ixbuild stop tp8-resident-mtp-c1  one job
  ixbuild stop --all                everything that `ixbuild ps` shows";

/// How often a claim is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Stop running jobs, clear up after dead owners, and end services kept by `run --keep-on-failure`
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct StopArgs {
    /// An arm id, its unique end, a config key, a glob, or a job hash, of what `ixbuild ps` shows
    #[arg(value_name = "ARM|HASH", required_unless_present = "all")]
    what: Vec<String>,
    /// Everything that `ixbuild ps` shows
    #[arg(long, conflicts_with = "what")]
    all: bool,
    /// End the claims of owners that cannot be judged from here. If one still runs, its job may run twice
    #[arg(long)]
    force: bool,
    /// Seconds to wait for owners to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    wait: u64,
}

pub(super) fn stop(args: &StopArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let store = globals.store()?;
    let claims = store.claims()?;
    let mut chosen: Vec<&HeldClaim> = Vec::new();
    for what in &args.what {
        let found = named(&claims, what)?;
        if found.is_empty() {
            return Err(Error::usage(format!("nothing runs `{what}`")).hint("`ixbuild ps` shows what runs"));
        }
        chosen.extend(found.into_iter().filter(|claim| !chosen.contains(claim)).collect::<Vec<_>>());
    }
    if args.all {
        chosen = claims.iter().collect();
    }
    if chosen.is_empty() {
        printer.note(&format!("nothing runs in {}", store.root().display()));
    }
    // All are asked before one is waited for.
    let mut asked = Vec::new();
    for claim in chosen {
        match (claim.presence, &claim.record) {
            (Presence::Dead, Some(record)) => clear_up(&store, record, printer)?,
            (Presence::Elsewhere, _) if args.force => end(&store, claim, printer)?,
            (Presence::Alive | Presence::Elsewhere, Some(record)) => {
                store.ask_to_stop(record)?;
                printer.note(&format!("asked {} to stop {}", record.owner, name(claim)));
                asked.push((claim, record));
            }
            (_, None) => {
                return Err(Error::refused(format!("the claim on {} cannot be read", claim.job))
                    .hint("`ixbuild stop --force` ends it; if its owner still runs, the job may run twice"));
            }
        }
    }
    wait(&store, asked, Duration::from_secs(args.wait), printer)
}

/// Waits until the claims of who was asked are gone.
fn wait(
    store: &Store,
    mut asked: Vec<(&HeldClaim, &ClaimRecord)>,
    patience: Duration,
    printer: Printer,
) -> Result<u8, Error> {
    let until = Instant::now() + patience;
    while !asked.is_empty() {
        let now = store.claims()?;
        let stands = |asked: &ClaimRecord| {
            let found =
                now.iter().find(|claim| claim.record.as_ref().is_some_and(|record| record.is_same_claim(asked)));
            found.cloned()
        };
        let mut left = Vec::new();
        for (claim, record) in asked {
            match stands(record) {
                None => printer.data(&format!("stopped {}", name(claim))),
                // It died of something else.
                Some(found) if found.presence == Presence::Dead => clear_up(store, record, printer)?,
                Some(_) => left.push((claim, record)),
            }
        }
        asked = left;
        if let Some((claim, record)) = asked.first()
            && Instant::now() >= until
        {
            let refused = format!(
                "{} did not stop within {} s: {} of {}",
                count(asked.len(), "job"),
                patience.as_secs(),
                name(claim),
                record.owner
            );
            return Err(Error::refused(refused).hint(match claim.presence {
                Presence::Elsewhere => {
                    "it was asked; if its machine is gone, `ixbuild stop --force` ends its claim".to_owned()
                }
                _ => {
                    format!("it was asked, and `ixbuild ps` shows its phase; `kill {}` ends its run", record.owner.pid)
                }
            }));
        }
        if !asked.is_empty() {
            std::thread::sleep(LOOK);
        }
    }
    Ok(exit::OK)
}

/// Takes over a dead owner's claim, ends what it left, and lets go.
fn clear_up(store: &Store, record: &ClaimRecord, printer: Printer) -> Result<(), Error> {
    let (dead, guard) = match store.claim(&record.job, Vec::new())? {
        Claim::Claimed(claimed) => match claimed.left {
            Some(left) => (left, Some(claimed.guard)),
            // Somebody else was quicker.
            None => return Ok(claimed.guard.release()?),
        },
        // Without locks a dead owner's claim stands until it is ended.
        Claim::Held(held) if held.presence == Presence::Dead => (record.clone(), None),
        Claim::Held(_) => return Ok(()),
    };
    let (owner, what) = (dead.owner.to_string(), dead.work.arms.first().map(ToString::to_string));
    let ended = end_left(dead);
    match (ended, guard) {
        (Ok(ended), guard) => {
            match guard {
                Some(guard) => guard.release()?,
                None => drop(store.end_claim(&record.job, false)?),
            }
            let ended = if ended.is_empty() { String::new() } else { format!(", ended {}", ended.join(", ")) };
            let what = what.unwrap_or_else(|| record.job.short());
            printer.data(&format!("cleared {what} of {owner}, which is dead{ended}"));
            Ok(())
        }
        (Err(error), guard) => {
            // On file for whoever tries next.
            guard.into_iter().for_each(crate::store::ClaimGuard::leave);
            Err(error)
        }
    }
}

fn end_left(dead: ClaimRecord) -> Result<Vec<String>, Error> {
    let failed = |error: String| Error::environment(error);
    let runtime = tokio::runtime::Runtime::new().map_err(|error| failed(format!("tokio: {error}")))?;
    let executor = Local::new().map_err(|error| failed(error.to_string()))?;
    runtime.block_on(clear(&executor, dead, Timing::default().grace)).map_err(|error| failed(error.to_string()))
}

/// Ends the claim of an owner that cannot be judged from here.
fn end(store: &Store, claim: &HeldClaim, printer: Printer) -> Result<(), Error> {
    let ended = store.end_claim(&claim.job, true).map_err(|error| match error {
        StoreError::Claimed { .. } => Error::refused(format!("{error}, which holds its lock: it runs"))
            .hint("without --force it is asked to stop"),
        other => other.into(),
    })?;
    printer.data(&format!("ended the claim on {}", name(claim)));
    let owner = claim.record.as_ref().map_or_else(|| "its owner".to_owned(), |record| record.owner.to_string());
    let handles = ended.map(|record| record.work.handles).unwrap_or_default();
    let left = if handles.is_empty() { String::new() } else { format!(", and end there: {}", handles.join(", ")) };
    printer.note(&format!(
        "warning: {owner} cannot be judged from here. If it still runs, the job may run twice: make sure that it is gone{left}"
    ));
    Ok(())
}
