//! Notices of a sweep as bars on a terminal, and as plain lines elsewhere. Everything goes to stderr.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::printer::Printer;
use super::results::headline;
use super::table::{Tone, paint_if};
use crate::exec::{Failure, What};
use crate::result::GateVerdict;
use crate::sweep::{Finish, Notice, Task};

/// Follows a sweep.
pub struct Progress<'t> {
    tasks: &'t [Task],
    printer: Printer,
    bars: Option<MultiProgress>,
    total: ProgressBar,
    running: BTreeMap<usize, Running>,
    begun: Instant,
    done: usize,
    failed: usize,
}

struct Running {
    bar: ProgressBar,
    since: Instant,
    phase: String,
}

/// What to do with a job whose services are kept up after a failure.
fn held(name: &str, failure: &Failure, endpoints: &BTreeMap<String, String>) -> String {
    let mut lines = vec![format!("kept      {name}  {failure}"), "  its services stay up:".to_owned()];
    let width = endpoints.keys().map(String::len).max().unwrap_or(0);
    lines.extend(endpoints.iter().map(|(name, address)| format!("    {name:<width$}  {address}")));
    lines.push(format!("  logs: ixbuild logs {name}"));
    lines.push(format!("  stop them: Ctrl-C, which ends the run, or `ixbuild stop {name}`"));
    lines.join("\n")
}

impl<'t> Progress<'t> {
    /// For these tasks.
    pub fn new(tasks: &'t [Task], printer: Printer) -> Self {
        let bars = printer.interactive.then(MultiProgress::new);
        let total = match &bars {
            Some(bars) => bars.add(ProgressBar::new(tasks.len() as u64)),
            None => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}") {
            total.set_style(style.progress_chars("━╸─"));
        }
        if bars.is_some() {
            total.enable_steady_tick(Duration::from_millis(200));
        }
        Self { tasks, printer, bars, total, running: BTreeMap::new(), begun: Instant::now(), done: 0, failed: 0 }
    }

    /// Shows one notice.
    pub fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Waiting { task, owner } => self.phase(*task, format!("waiting: {owner} runs it")),
            Notice::TookOver { task, owner, ended, scratch } => {
                let ended = if ended.is_empty() { String::new() } else { format!("; ended {}", ended.join(", ")) };
                let files =
                    scratch.as_ref().map(|files| format!("\n  its files: {}", files.display())).unwrap_or_default();
                let name = self.name(*task);
                self.say(&format!("took over {name} from {owner}, which is dead{ended}{files}"));
            }
            Notice::Event { task, event } => {
                let phase = match &event.what {
                    What::Began { .. } => "starting".to_owned(),
                    What::Starting(who) => format!("starting {who}"),
                    What::Ready { who, .. } => format!("{who} is ready"),
                    What::ClientStarted => "measuring".to_owned(),
                    What::Stopping => "stopping".to_owned(),
                    What::Holding { failure, endpoints } => {
                        self.say(&held(self.name(*task), failure, endpoints));
                        "failed, services are kept".to_owned()
                    }
                    _ => return,
                };
                self.phase(*task, phase);
            }
            Notice::Again { task, finish } => {
                if let Finish::Failed { failure } = finish {
                    self.say(&format!("again     {}  {failure}", self.name(*task)));
                }
            }
            Notice::Finished { task, finish } => self.finished(*task, finish),
        }
        self.counts();
    }

    /// Takes the bars away.
    pub fn end(&mut self) {
        for running in self.running.values() {
            running.bar.finish_and_clear();
        }
        self.total.finish_and_clear();
    }

    fn phase(&mut self, task: usize, phase: String) {
        let name = self.name(task);
        if !self.running.contains_key(&task) {
            let bar = match &self.bars {
                Some(bars) => {
                    let bar = bars.insert_before(&self.total, ProgressBar::new_spinner());
                    bar.enable_steady_tick(Duration::from_millis(100));
                    bar
                }
                None => ProgressBar::hidden(),
            };
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
                bar.set_style(style);
            }
            if self.bars.is_none() {
                self.printer.note(&format!("start     {name}"));
            }
            self.running.insert(task, Running { bar, since: Instant::now(), phase: String::new() });
        }
        if let Some(running) = self.running.get_mut(&task) {
            running.bar.set_message(format!("{name}  {phase}"));
            if self.bars.is_none() && phase.starts_with("waiting") {
                self.printer.note(&format!("waiting   {name}: {}", phase.trim_start_matches("waiting: ")));
            }
            running.phase = phase;
        }
    }

    fn finished(&mut self, task: usize, finish: &Finish) {
        let name = self.name(task).to_owned();
        let running = self.running.remove(&task);
        let took = running.as_ref().map_or(0.0, |running| running.since.elapsed().as_secs_f64());
        if let Some(running) = running {
            running.bar.finish_and_clear();
        }
        self.done += 1;
        if !finish.is_valid() {
            self.failed += 1;
        }
        self.total.set_position(self.done as u64);
        let word = |tone, word: &str| paint_if(self.printer.colour_err, tone, &format!("{word:<8}"));
        let line = match finish {
            Finish::Recorded { derived, .. } => {
                let [throughput, ttft, ..] = headline(Some(&derived.result));
                format!(
                    "{}  {name}  {took:.1} s  {throughput} tok/s/GPU, TTFT p90 {ttft} s",
                    word(Tone::Good, "recorded")
                )
            }
            Finish::Served { .. } => format!("{}  {name}  recorded by another process", word(Tone::Good, "served")),
            Finish::Invalid { derived, scratch, .. } => {
                let failed = derived.gates.iter().filter(|gate| gate.verdict != GateVerdict::Passed);
                let gates: Vec<String> =
                    failed.map(|gate| format!("\n  {}: {}", gate.name, gate.explanation)).collect();
                let logs = scratch.join("logs");
                format!(
                    "{}  {name}  {took:.1} s{}\n  logs: {}",
                    word(Tone::Bad, "invalid"),
                    gates.concat(),
                    logs.display()
                )
            }
            Finish::Failed { failure } => format!("{}  {name}  {took:.1} s  {failure}", word(Tone::Bad, "failed")),
            Finish::Cancelled => format!("{}  {name}", word(Tone::Warm, "stopped")),
            Finish::Stopped => format!("{}  {name}  by ixbuild stop", word(Tone::Warm, "stopped")),
            Finish::NotStarted => return,
            Finish::Store { error, fix, scratch } => {
                let fix = fix.as_ref().map(|fix| format!("\n  {fix}")).unwrap_or_default();
                let files = match scratch.is_dir() {
                    true => format!("\n  its files stay in {}", scratch.display()),
                    false => String::new(),
                };
                format!("{}  {name}  {error}{fix}{files}\n  nothing more is started", word(Tone::Bad, "failed"))
            }
        };
        self.say(&line);
    }

    /// A line above the bars.
    pub fn say(&self, line: &str) {
        match &self.bars {
            Some(bars) => {
                // A terminal that is gone is no reason to stop measuring.
                let _ = bars.println(line);
            }
            None => self.printer.note(line),
        }
    }

    fn counts(&self) {
        let elapsed = self.begun.elapsed();
        let left = self.tasks.len() - self.done;
        let eta = match self.done {
            0 => String::new(),
            done => {
                let seconds = elapsed.as_secs_f64() / done as f64 * left as f64;
                format!(", about {} left", super::table::duration(seconds.ceil() as u64))
            }
        };
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        self.total.set_message(format!("{} running{failed}{eta}", self.running.len()));
    }

    fn name(&self, task: usize) -> &'t str {
        self.tasks.get(task).and_then(|task| task.arms.first()).map_or("", |arm| arm.as_str())
    }
}
