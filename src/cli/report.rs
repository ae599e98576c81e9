//! What a run came to: a table of results, what failed, counts, the exit code.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::error::Error;
use super::exit;
use super::names::{Grouped, split};
use super::printer::Printer;
use super::results::{HEADER, header, headline};
use super::table::{aligned, count};
use crate::ids::JobHash;
use crate::plan::{Plan, Planned, State};
use crate::records;
use crate::result::Median;
use crate::store::Store;
use crate::sweep::Finish;

/// Words for what became of an arm, in the order of the summary.
const OUTCOMES: [&str; 7] = ["recorded", "served", "invalid", "failed", "stopped", "not started", "blocked"];

/// What a run came to.
pub struct Report<'r> {
    /// What was to be done.
    pub plan: &'r Plan,
    /// What became of the jobs that ran.
    pub outcomes: &'r BTreeMap<JobHash, Finish>,
    /// Where results are.
    pub store: &'r Store,
    /// Whether served results are shown as well.
    pub all: bool,
}

impl Report<'_> {
    /// The worst that happened.
    pub fn exit_code(&self) -> u8 {
        let any = |test: fn(&Finish) -> bool| self.outcomes.values().any(test);
        if any(|finish| matches!(finish, Finish::Cancelled)) {
            exit::INTERRUPTED
        } else if any(|finish| matches!(finish, Finish::Store { .. })) {
            exit::STORE
        } else if any(|finish| !finish.is_valid()) {
            exit::ARM_FAILED
        } else if self.plan.arms.iter().any(|arm| matches!(arm.state, State::Blocked(_))) {
            exit::REFUSED
        } else {
            exit::OK
        }
    }

    fn finish(&self, arm: &Planned) -> Option<&Finish> {
        self.outcomes.get(&arm.job?)
    }

    /// The word for what became of an arm.
    fn outcome(&self, arm: &Planned) -> &'static str {
        match (&arm.state, self.finish(arm)) {
            (State::Recorded { .. }, _) => "served",
            (State::Blocked(_), _) => "blocked",
            (_, Some(Finish::Recorded { .. })) => "recorded",
            (_, Some(Finish::Served { .. })) => "served",
            (_, Some(Finish::Invalid { .. })) => "invalid",
            (_, Some(Finish::Failed { .. } | Finish::Store { .. })) => "failed",
            (_, Some(Finish::Cancelled | Finish::Stopped)) => "stopped",
            (_, Some(Finish::NotStarted) | None) => "not started",
        }
    }

    /// The value of an arm: the median of its records, or what an invalid run measured.
    fn value(&self, arm: &Planned) -> Result<Option<Median>, Error> {
        let Some(job) = arm.job else { return Ok(None) };
        match self.finish(arm) {
            Some(Finish::Invalid { derived, .. }) => Ok(Some(Median { n: 1, result: derived.result.clone() })),
            _ => Ok(records::value(self.store, &job)?),
        }
    }

    fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for arm in &self.plan.arms {
            *counts.entry(self.outcome(arm)).or_default() += 1;
        }
        counts
    }

    /// For people: results, failures, counts; what blocks on stderr.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn print(&self, printer: Printer) -> Result<(), Error> {
        let table = self.table()?;
        if !table.is_empty() {
            printer.data(&table.join("\n"));
        }
        for line in self.failures() {
            printer.data(&line);
        }
        let counts = self.counts();
        let words: Vec<String> =
            OUTCOMES.iter().filter_map(|word| counts.get(word).map(|n| format!("{n} {word}"))).collect();
        printer.data(&format!("{}: {}", count(self.plan.arms.len(), "arm"), words.join(", ")));
        let blocked = self.plan.arms.iter().find_map(|arm| match &arm.state {
            State::Blocked(blocked) => blocked.first(),
            _ => None,
        });
        if let Some(blocked) = blocked {
            printer.note(&format!("blocked: {}; unblock: {}", blocked.why, blocked.unblock));
        }
        Ok(())
    }

    /// Results under their groups. What became of an arm stands at its end, where it is not a new record, and the number of its
    /// records, where there are several.
    fn table(&self) -> Result<Vec<String>, Error> {
        let mut arms = Vec::new();
        let mut rows = Vec::new();
        for arm in &self.plan.arms {
            let outcome = self.outcome(arm);
            if matches!(outcome, "recorded" | "invalid") || (self.all && outcome == "served") {
                let value = self.value(arm)?;
                let mut row = vec![split(arm.id.as_str()).1.to_owned()];
                row.extend(headline(value.as_ref().map(|value| &value.result)));
                let median = value.as_ref().filter(|value| value.n > 1).map(|value| format!("median of {}", value.n));
                let eval = value.and_then(|value| value.result.eval);
                let score = eval.and_then(|eval| Some(format!("score {:.3} of {}", eval.score?, eval.instances)));
                let outcome = (outcome != "recorded").then(|| outcome.to_owned());
                row.push([score, outcome, median].into_iter().flatten().collect::<Vec<_>>().join(", "));
                arms.push(arm.id.as_str());
                rows.push(row);
            }
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let right: Vec<bool> = [false].into_iter().chain(HEADER[0].map(|_| true)).chain([false]).collect();
        let mut lines = aligned(&header(&["arm"], &[""]), &right, &rows).into_iter();
        let mut out: Vec<String> = lines.by_ref().take(2).map(|line| format!("  {line}")).collect();
        let mut grouped = Grouped::default();
        for (id, line) in arms.into_iter().zip(lines) {
            grouped.push(id, &line);
        }
        out.extend(grouped.lines());
        Ok(out)
    }

    /// One line an arm that failed; its log's tail was printed when it did.
    fn failures(&self) -> Vec<String> {
        let line = |arm: &Planned| {
            let (message, place) = match self.finish(arm)? {
                Finish::Failed { failure } => (failure.message.clone(), failure.log.clone()),
                Finish::Store { error, scratch, .. } => {
                    (error.clone(), Some(scratch.clone()).filter(|kept| kept.is_dir()))
                }
                Finish::Invalid { scratch, .. } => ("a gate failed".to_owned(), Some(scratch.join("logs"))),
                _ => return None,
            };
            let place = place.map(|place| format!(": {}", place.display())).unwrap_or_default();
            Some(format!("{:<8}  {}: {message}{place}", self.outcome(arm), arm.id))
        };
        self.plan.arms.iter().filter_map(line).collect()
    }

    /// For machines.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn json(&self, profile: &str) -> Result<String, Error> {
        let arms: Result<Vec<Value>, Error> = self.plan.arms.iter().map(|arm| self.arm_json(arm)).collect();
        Ok(json!({"profile": profile, "arms": arms?, "summary": self.counts()}).to_string())
    }

    fn arm_json(&self, arm: &Planned) -> Result<Value, Error> {
        let failure = match self.finish(arm) {
            Some(Finish::Failed { failure }) => json!(failure),
            Some(Finish::Store { error, .. }) => json!({"kind": "store", "message": error}),
            Some(Finish::Invalid { derived, .. }) => json!({"kind": "gate", "gates": derived.gates}),
            _ => Value::Null,
        };
        let (n, result) = self.value(arm)?.map_or((0, None), |value| (value.n, Some(value.result)));
        Ok(json!({
            "id": arm.id,
            "job": arm.job,
            "outcome": self.outcome(arm),
            "n": n,
            "result": result,
            "failure": failure,
        }))
    }
}
