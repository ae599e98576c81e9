//! How `ixbuild reproduce` tells what it found, in the order in which it is to be read: gates, comparability, metrics, one
//! word.

use serde_json::{Value, json};

use super::exit;
use super::printer::Printer;
use super::table::{Tone, count, paint, table};
use crate::ids::{Digest, JobHash};
use crate::reproduce::{Agreement, Before, Fact, Known, Word};
use crate::result::compare::MetricVerdict;
use crate::result::verdict::{Basis, Comparison, MoreRuns};
use crate::result::{Gate, GateVerdict, Reproduction};
use crate::spec::JobSpec;
use crate::sweep::Finish;

/// A new run, as it is told.
pub struct Run {
    outcome: &'static str,
    attempt: Option<Digest>,
    gates: Vec<Gate>,
    failure: Option<String>,
}

impl Run {
    /// Of what became of it.
    pub fn of(finish: &Finish) -> Self {
        let (outcome, attempt, gates, failure) = match finish {
            Finish::Recorded { attempt, derived } => ("valid", Some(attempt), derived.gates.clone(), None),
            Finish::Invalid { attempt, derived, .. } => ("invalid", Some(attempt), derived.gates.clone(), None),
            Finish::Failed { failure } => ("failed", None, Vec::new(), Some(failure.message.clone())),
            Finish::Store { error, .. } => ("failed", None, Vec::new(), Some(error.clone())),
            Finish::Served { attempt } => ("served", Some(attempt), Vec::new(), None),
            Finish::Cancelled | Finish::Stopped => ("stopped", None, Vec::new(), None),
            Finish::NotStarted => ("not started", None, Vec::new(), None),
        };
        Self { outcome, attempt: attempt.map(|at| at.manifest), gates, failure }
    }
}

/// What was found.
pub struct Report<'r> {
    /// The job.
    pub job: JobHash,
    /// Its spec.
    pub spec: &'r JobSpec,
    /// The profile in force.
    pub profile: &'r str,
    /// What the new runs take, or would have taken.
    pub gpu_hours: f64,
    /// What there was before.
    pub before: &'r Before,
    /// What is the same and what is not.
    pub facts: Vec<Fact>,
    /// The new runs.
    pub runs: Vec<Run>,
    /// The metrics, if any run can be compared.
    pub reproduction: Option<Reproduction>,
    /// The answer; none if no run came to its end.
    pub word: Option<Word>,
}

impl Report<'_> {
    /// Prints it; the exit code.
    pub fn print(&self, as_json: bool, printer: Printer) -> u8 {
        if as_json {
            printer.data(&self.json().to_string());
        } else {
            let parts = [self.gates(), self.comparability(printer), self.metrics(), self.conclusion(printer)];
            printer.data(&parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n"));
        }
        match self.word {
            Some(Word::Reproduced) => exit::REPRODUCED,
            Some(Word::Drifted) => exit::DRIFTED,
            Some(Word::Inconclusive) => exit::INCONCLUSIVE,
            Some(Word::NotComparable) => exit::NOT_COMPARABLE,
            Some(Word::Invalid) => exit::INVALID,
            None => exit::ARM_FAILED,
        }
    }

    fn gates(&self) -> String {
        if self.runs.is_empty() {
            return String::new();
        }
        let mut lines = vec!["gates".to_owned()];
        for (index, run) in self.runs.iter().enumerate() {
            let of = |verdict| run.gates.iter().filter(move |gate| gate.verdict == verdict).count();
            let mut line = format!("  run {} of {}  {}", index + 1, self.runs.len(), run.outcome);
            if let Some(attempt) = &run.attempt {
                line.push_str(&format!("  {}", &attempt.hex()[..12]));
            }
            if !run.gates.is_empty() {
                line.push_str(&format!("  {} passed", of(GateVerdict::Passed)));
            }
            if let Some(failure) = &run.failure {
                line.push_str(&format!(": {failure}"));
            }
            lines.push(line);
            for gate in run.gates.iter().filter(|gate| gate.verdict != GateVerdict::Passed) {
                let verdict = if gate.verdict == GateVerdict::Failed { "failed" } else { "not judged" };
                lines.push(format!("    {} {verdict}: {}", gate.name, gate.explanation));
            }
        }
        lines.join("\n")
    }

    fn comparability(&self, printer: Printer) -> String {
        let width = self.facts.iter().map(|fact| fact.what.chars().count()).max().unwrap_or(0);
        let mut lines = vec!["comparability".to_owned()];
        for fact in &self.facts {
            let (tone, word) = match fact.agreement {
                Agreement::Same => (Tone::Good, "same"),
                Agreement::Differs => (Tone::Warm, "differs"),
                Agreement::Breaks => (Tone::Bad, "breaks"),
                Agreement::Unknown => (Tone::Warm, "unknown"),
            };
            let recorded = if fact.recorded.is_empty() { "(unknown)".to_owned() } else { fact.recorded.join(" or ") };
            let now = fact.now.as_deref().unwrap_or("(unknown)");
            let values = match fact.agreement {
                Agreement::Same => now.to_owned(),
                _ => format!("{recorded} → {now}"),
            };
            let note = fact.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
            let word = paint(printer, tone, &format!("{word:<7}"));
            lines.push(format!("  {word}  {:<width$}  {values}{note}", fact.what));
        }
        lines.extend(
            self.before
                .unusable
                .iter()
                .map(|(at, why)| format!("  left out: record {}: {why}", &at.manifest.hex()[..12])),
        );
        lines.join("\n")
    }

    fn metrics(&self) -> String {
        let Some(found) = &self.reproduction else { return String::new() };
        let rows: Vec<Vec<String>> = found.metrics.iter().map(row).collect();
        let header = ["metric", "recorded", "n", "new", "n", "ratio", "90% interval", "tolerance", "from", "says"];
        let right = [false, true, true, true, true, true, true, true, false, false];
        let (earlier, here) =
            (self.before.earlier.len(), self.runs.iter().filter(|run| run.outcome == "valid").count());
        let mut lines = vec!["metrics".to_owned()];
        lines.extend(table(&header, &right, &rows).lines().map(|line| format!("  {line}")));
        if earlier > 0 {
            lines.push(format!("  new: {here} of this call, {earlier} of earlier calls on this machine"));
        }
        let decisive = found.metrics.iter().filter(|metric| metric.headline.decisive);
        if let Some(comparison) = decisive.filter_map(|metric| metric.comparison.as_ref()).next() {
            lines.push(format!("  interval: {}", self.basis(comparison)));
        }
        lines.join("\n")
    }

    fn basis(&self, comparison: &Comparison) -> String {
        let history: usize = self.before.history.iter().map(Vec::len).sum();
        match comparison.basis {
            Basis::Welch => "Welch's t, each side's own spread".to_owned(),
            Basis::Pooled if history > 0 => {
                format!("t with the spread pooled over both sides and a history of {}", count(history, "run"))
            }
            Basis::Pooled => "t with the spread pooled over both sides".to_owned(),
            Basis::Assumed => {
                "a spread of 5% a run is assumed, for one run against one tells none: it may show drift alone"
                    .to_owned()
            }
        }
    }

    /// What stands behind the word, in one sentence; empty where the metrics say it.
    fn why(&self) -> String {
        match self.word {
            None => "no new run came to its end".to_owned(),
            Some(Word::NotComparable) => {
                let broken = self.facts.iter().filter(|fact| fact.agreement == Agreement::Breaks);
                let words: Vec<String> = broken
                    .map(|fact| {
                        format!(
                            "{}: {} → {}",
                            fact.what,
                            fact.recorded.join(" or "),
                            fact.now.as_deref().unwrap_or("(unknown)")
                        )
                    })
                    .chain(self.before.recorded.is_empty().then(|| "it has no valid record to compare with".to_owned()))
                    .collect();
                format!("{}; nothing was run", words.join("; "))
            }
            Some(Word::Invalid) => {
                let count = self.runs.iter().filter(|run| run.outcome == "invalid").count();
                format!("{count} of {} failed gates", super::table::count(self.runs.len(), "new run"))
            }
            Some(Word::Inconclusive) => match self.reproduction.as_ref().and_then(|found| found.more_runs) {
                Some(more) => self.advice(more),
                None => "no decisive metric can be compared".to_owned(),
            },
            Some(Word::Reproduced | Word::Drifted) => String::new(),
        }
    }

    fn advice(&self, more: MoreRuns) -> String {
        match more {
            MoreRuns::New(runs) | MoreRuns::ToLearnSpread(runs) => {
                format!("{more}: ixbuild reproduce {} --replicates {runs}", self.job.short())
            }
            MoreRuns::EachSide(_) => match self.before.arms.first() {
                Some(arm) => format!("{more}; `ixbuild run {arm} --rerun` adds to the records"),
                None => more.to_string(),
            },
            MoreRuns::TooClose => more.to_string(),
        }
    }

    fn conclusion(&self, printer: Printer) -> String {
        let (tone, word) = match self.word {
            Some(word @ Word::Reproduced) => (Tone::Good, word.text()),
            Some(word @ (Word::Drifted | Word::Invalid)) => (Tone::Bad, word.text()),
            Some(word) => (Tone::Warm, word.text()),
            None => (Tone::Bad, "no verdict"),
        };
        let why = self.why();
        let colon = if why.is_empty() { "" } else { ": " };
        format!("{}{colon}{why}", paint(printer, tone, word))
    }

    fn json(&self) -> Value {
        let manifests = |known: &[Known]| known.iter().map(|known| known.at.manifest).collect::<Vec<_>>();
        let run = |run: &Run| json!({"outcome": run.outcome, "attempt": run.attempt, "gates": run.gates, "failure": run.failure});
        let left_out = |(at, why): &(crate::store::AttemptRef, String)| json!({"attempt": at.manifest, "why": why});
        let why = self.why();
        json!({
            "job": self.job,
            "arms": self.before.arms,
            "profile": self.profile,
            "rehearsal": self.spec.deployment.substitutions.is_some(),
            "gpu_hours": self.gpu_hours,
            "runs": self.runs.iter().map(run).collect::<Vec<_>>(),
            "comparability": self.facts,
            "recorded": manifests(&self.before.recorded),
            "earlier": manifests(&self.before.earlier),
            "history": {"groups": self.before.history.len(), "runs": self.before.history.iter().map(Vec::len).sum::<usize>()},
            "unusable": self.before.unusable.iter().map(left_out).collect::<Vec<_>>(),
            "metrics": self.reproduction.as_ref().map(|found| &found.metrics),
            "more_runs": self.reproduction.as_ref().and_then(|found| found.more_runs),
            "verdict": self.word,
            "why": (!why.is_empty()).then_some(why),
        })
    }
}

fn row(metric: &MetricVerdict) -> Vec<String> {
    let headline = &metric.headline;
    let name = format!("{}, {}", headline.name, headline.unit);
    let tolerance = format!("±{}%", headline.band * 100.0);
    let source = headline.band_source.to_owned();
    let Some(found) = &metric.comparison else {
        let why = metric.incomparable.clone().unwrap_or_default();
        let mut row = vec![name];
        row.extend(std::iter::repeat_n("–".to_owned(), 6));
        row.extend([tolerance, source, why]);
        return row;
    };
    let says = if headline.decisive { found.verdict.to_string() } else { format!("{} (advisory)", found.verdict) };
    vec![
        name,
        figure(found.recorded_median),
        found.recorded_n.to_string(),
        figure(found.new_median),
        found.new_n.to_string(),
        format!("{:.4}", found.ratio),
        format!("{:.4} to {:.4}", found.interval[0], found.interval[1]),
        tolerance,
        source,
        says,
    ]
}

/// Five digits.
fn figure(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 10_000.0 => 0,
        size if size >= 1_000.0 => 1,
        size if size >= 100.0 => 2,
        size if size >= 10.0 => 3,
        size if size >= 1.0 => 4,
        _ => 5,
    };
    format!("{value:.digits$}")
}
