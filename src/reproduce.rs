//! Whether a job's records reproduce: what they are compared with, whether that is a comparison at all, and the one word.
//!
//! A job has two kinds of records. Those that `run` made are the claim; those that `reproduce` made test it, and count as
//! new runs. Calls add up: reproductions of earlier calls on this machine stand on the new side too, so that "2 more runs
//! would decide" means two more. Reproductions elsewhere, and records of other jobs of the same arms, tell how much runs of one
//! spec differ: the history.
//!
//! Everything is compared under the current formulas; records of older ones are derived again in memory. Reads the store
//! and starts nothing; the statistics are those of [`crate::result::verdict`].

mod facts;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::exec::machine::Machine;
use crate::exec::provenance::Provenance;
use crate::ids::{ArmId, JobHash};
use crate::recompute::{RecomputeError, rederive};
use crate::records;
use crate::result::verdict::Spread;
use crate::result::{FORMULAS, Reproduction, ResultDoc, Verdict, compare, reproduction};
use crate::spec::JobSpec;
use crate::store::{AttemptRef, Store, StoreView};
pub use facts::{Agreement, Fact, comparability};

/// The answer, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Word {
    /// The new runs agree with the records.
    Reproduced,
    /// They differ by more than the tolerance.
    Drifted,
    /// Too few runs to tell.
    Inconclusive,
    /// There is nothing to compare, or it is not the same thing.
    NotComparable,
    /// A new run failed its gates.
    Invalid,
}

impl Word {
    /// As it is printed.
    pub fn text(self) -> &'static str {
        match self {
            Word::Reproduced => "REPRODUCED",
            Word::Drifted => "DRIFTED",
            Word::Inconclusive => "INCONCLUSIVE",
            Word::NotComparable => "NOT-COMPARABLE",
            Word::Invalid => "INVALID",
        }
    }
}

impl From<Verdict> for Word {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Reproduced => Word::Reproduced,
            Verdict::Drifted => Word::Drifted,
            Verdict::Inconclusive => Word::Inconclusive,
        }
    }
}

/// A record, read.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its name.
    pub at: AttemptRef,
    /// What it measured, under the current formulas.
    pub result: ResultDoc,
    /// Where.
    pub provenance: Option<Provenance>,
}

/// What is known of a job before the new runs.
#[derive(Debug, Default)]
pub struct Before {
    /// The arms that its records measured.
    pub arms: BTreeSet<ArmId>,
    /// The records to reproduce, oldest first.
    pub recorded: Vec<Known>,
    /// Reproductions of earlier calls on this machine, oldest first.
    pub earlier: Vec<Known>,
    /// Groups of other runs, each of one spec and machine: what the spread is taken from beside.
    pub history: Vec<Vec<ResultDoc>>,
    /// Records that cannot be used, and why.
    pub unusable: Vec<(AttemptRef, String)>,
}

/// Reads what there is of a job and of its arms.
///
/// # Errors
/// A store that cannot be read.
pub fn before(store: &Store, job: &JobHash, spec: &JobSpec, here: &Machine) -> Result<Before, RecomputeError> {
    let mut before = Before::default();
    let mut elsewhere: BTreeMap<String, Vec<ResultDoc>> = BTreeMap::new();
    for at in store.job(job)?.records() {
        before.arms.extend(store.attempt(at)?.arms);
        let result = match current(store, at, spec) {
            Ok(Ok(result)) => result,
            Ok(Err(why)) => {
                before.unusable.push((at.clone(), why));
                continue;
            }
            Err(error) => return Err(error),
        };
        let known = Known { at: at.clone(), result, provenance: records::provenance(store, at)? };
        let machine = known.provenance.as_ref().map(|provenance| &provenance.machine);
        if !records::is_reproduction(store, at)? {
            before.recorded.push(known);
        } else if machine.is_some_and(|machine| same_node(machine, here)) {
            before.earlier.push(known);
        } else {
            let host = machine.map(|machine| machine.host.clone()).unwrap_or_default();
            elsewhere.entry(host).or_default().push(known.result);
        }
    }
    if before.recorded.is_empty() {
        // All that is left are reproductions: they are the claim now.
        before.recorded = std::mem::take(&mut before.earlier);
    }
    before.history = elsewhere.into_values().collect();
    before.history.extend(other_jobs(store, job, spec, &before.arms)?);
    before.history.retain(|group| group.len() > 1);
    Ok(before)
}

/// A record's result under the current formulas, or why there is none.
fn current(store: &Store, at: &AttemptRef, spec: &JobSpec) -> Result<Result<ResultDoc, String>, RecomputeError> {
    if let Some(result) = records::result(store, at)?
        && result.formulas == FORMULAS
    {
        return Ok(Ok(result));
    }
    match rederive(store, at, spec) {
        Ok(derived) if derived.valid(spec.deployment.substitutions.is_none()) => Ok(Ok(derived.result)),
        Ok(_) => Ok(Err(format!("invalid under formulas {FORMULAS}"))),
        Err(error @ (RecomputeError::Raw(_) | RecomputeError::Logs { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The records of other jobs of the arms, on the same GPUs, one group a job.
fn other_jobs(
    store: &Store,
    job: &JobHash,
    spec: &JobSpec,
    arms: &BTreeSet<ArmId>,
) -> Result<Vec<Vec<ResultDoc>>, RecomputeError> {
    let mut jobs = BTreeSet::new();
    for arm in arms {
        jobs.extend(store.arm_jobs(arm)?.into_iter().map(|noted| noted.job).filter(|other| other != job));
    }
    let mut groups = Vec::new();
    for other in jobs {
        let attempts: Vec<AttemptRef> = store.job(&other)?.records().cloned().collect();
        let alike = |known: &JobSpec| {
            known.deployment.hardware.gpu == spec.deployment.hardware.gpu
                && known.deployment.substitutions.is_some() == spec.deployment.substitutions.is_some()
        };
        if attempts.len() < 2 || !records::spec(store, &other)?.is_some_and(|known| alike(&known)) {
            continue;
        }
        let mut group = Vec::new();
        for at in attempts {
            if !records::is_reproduction(store, &at)? {
                group.extend(records::result(store, &at)?.filter(|result| result.formulas == FORMULAS));
            }
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Whether two descriptions are of one machine in one state: runs on it may be taken together.
fn same_node(one: &Machine, other: &Machine) -> bool {
    let state =
        |machine: &Machine| (machine.host.clone(), machine.kernel.clone(), machine.cpu.clone(), machine.gpus.clone());
    state(one) == state(other)
}

/// Compares new runs, and those of earlier calls, with the records.
pub fn judge(before: &Before, new: &[&ResultDoc]) -> Reproduction {
    let recorded: Vec<&ResultDoc> = before.recorded.iter().map(|known| &known.result).collect();
    let all: Vec<&ResultDoc> = before.earlier.iter().map(|known| &known.result).chain(new.iter().copied()).collect();
    reproduction(&recorded, &all, &spreads(before))
}

/// The spread of each metric that the history tells.
fn spreads(before: &Before) -> BTreeMap<&'static str, Spread> {
    let groups: Vec<Vec<&ResultDoc>> = before.history.iter().map(|group| group.iter().collect()).collect();
    compare::history(&groups)
}
