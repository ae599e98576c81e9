//! Notices of a sweep as bars on a terminal, and as plain lines elsewhere. Everything goes to stderr.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::names;
use super::printer::Printer;
use super::results::headline;
use super::table::{Tone, cut, duration, paint_if};
use crate::exec::{Failure, What};
use crate::result::GateVerdict;
use crate::sweep::{Finish, Notice, Task};

/// The longest name that leaves room for the rest of a line of 80 columns.
const NAME: usize = 40;

/// Without bars a phase is a line of its own once the one before it took so long.
const LONG: Duration = Duration::from_secs(5);

/// Follows a sweep.
pub struct Progress {
    ids: Vec<String>,
    names: Vec<String>,
    width: usize,
    expected: Duration,
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
    told: Instant,
}

impl Progress {
    /// For these tasks, which should take so long.
    pub fn new(tasks: &[Task], expected: Duration, printer: Printer) -> Self {
        let ids = tasks.iter().map(|task| task.arms.first().map_or("", |arm| arm.as_str()));
        let names: Vec<String> = names::short(ids.clone()).into_iter().map(|name| cut(name, NAME)).collect();
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
        Self {
            width: names.iter().map(|name| name.chars().count()).max().unwrap_or(0),
            names,
            ids: ids.map(str::to_owned).collect(),
            expected,
            printer,
            bars,
            total,
            running: BTreeMap::new(),
            begun: Instant::now(),
            done: 0,
            failed: 0,
        }
    }

    /// Shows one notice.
    pub fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Waiting { task, owner } => {
                self.phase(*task, &format!("waiting: {owner} runs it"), true);
            }
            Notice::TookOver { task, owner, ended, scratch } => {
                let ended = if ended.is_empty() { String::new() } else { format!("; ended {}", ended.join(", ")) };
                let files = scratch.as_ref().map(|files| format!("\n  its files: {}", files.display()));
                let name = self.name(*task);
                let files = files.unwrap_or_default();
                self.say(&format!("{:<8}  {name}  from {owner}, which is dead{ended}{files}", "taken"));
            }
            Notice::Event { task, event } => {
                let phase = match &event.what {
                    What::Began { .. } => "starting".to_owned(),
                    What::Starting(who) => format!("starting {who}"),
                    What::Ready { who, .. } => format!("{who} is ready"),
                    What::ClientStarted => "measuring".to_owned(),
                    What::Stopping => "stopping".to_owned(),
                    What::Holding { failure, endpoints } => {
                        let id = self.ids.get(*task).map_or("", String::as_str);
                        self.say(&held(&self.name(*task), id, failure, endpoints));
                        "failed, services are kept".to_owned()
                    }
                    _ => return,
                };
                self.phase(*task, &phase, false);
            }
            Notice::Again { task, finish } => {
                if let Finish::Failed { failure } = finish {
                    self.say(&format!("{:<8}  {}  {failure}", "again", self.name(*task)));
                }
            }
            Notice::Finished { task, finish } => self.finished(*task, finish),
        }
        self.counts();
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

    /// Takes the bars away.
    pub fn end(&mut self) {
        for running in self.running.values() {
            running.bar.finish_and_clear();
        }
        self.total.finish_and_clear();
    }

    fn phase(&mut self, task: usize, phase: &str, tell: bool) {
        let name = self.name(task);
        if !self.running.contains_key(&task) {
            let bar = match &self.bars {
                Some(bars) => bars.insert_before(&self.total, ProgressBar::new_spinner()),
                None => ProgressBar::hidden(),
            };
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}  {elapsed:>4}  {wide_msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(name.clone());
            if self.bars.is_some() {
                bar.enable_steady_tick(Duration::from_millis(100));
            } else {
                self.say(&format!("{:<8}  {}", "start", name.trim_end()));
            }
            self.running.insert(task, Running { bar, since: Instant::now(), told: Instant::now() });
        }
        let Some(running) = self.running.get_mut(&task) else { return };
        running.bar.set_message(phase.to_owned());
        if self.bars.is_none() && (tell || running.told.elapsed() >= LONG) {
            running.told = Instant::now();
            let took = running.since.elapsed().as_secs();
            self.say(&format!("{:<8}  {name}  {took:>4} s  {phase}", "…"));
        }
    }

    fn finished(&mut self, task: usize, finish: &Finish) {
        if matches!(finish, Finish::NotStarted) {
            return;
        }
        let name = self.name(task);
        let running = self.running.remove(&task);
        let took = running.as_ref().map_or(0.0, |running| running.since.elapsed().as_secs_f64());
        if let Some(running) = running {
            running.bar.finish_and_clear();
        }
        self.done += 1;
        self.failed += usize::from(!finish.is_valid());
        self.total.set_position(self.done as u64);
        let (tone, word, rest) = told(finish);
        let word = paint_if(self.printer.colour_err, tone, &format!("{word:<8}"));
        let count = format!("{:>width$}/{}", self.done, self.names.len(), width = self.names.len().to_string().len());
        self.say(format!("{word}  {count}  {name}  {took:>6.1} s  {rest}").trim_end());
    }

    fn counts(&self) {
        let elapsed = self.begun.elapsed();
        let left = match self.done {
            0 => self.expected.saturating_sub(elapsed).as_secs_f64(),
            done => elapsed.as_secs_f64() / done as f64 * (self.names.len() - done) as f64,
        };
        let left = if left > 0.0 { format!(", about {} left", duration(left.ceil() as u64)) } else { String::new() };
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        self.total.set_message(format!("{} running{failed}{left}", self.running.len()));
    }

    fn name(&self, task: usize) -> String {
        format!("{:<width$}", self.names.get(task).map_or("", String::as_str), width = self.width)
    }
}

/// What to do with a job whose services are kept up after a failure.
fn held(name: &str, id: &str, failure: &Failure, endpoints: &BTreeMap<String, String>) -> String {
    let mut lines = vec![format!("{:<8}  {name}  {failure}", "kept"), "  its services stay up:".to_owned()];
    let width = endpoints.keys().map(String::len).max().unwrap_or(0);
    lines.extend(endpoints.iter().map(|(name, address)| format!("    {name:<width$}  {address}")));
    lines.push(format!("  logs: ixbuild logs {id}"));
    lines.push(format!("  stop them: Ctrl-C, which ends the run, or `ixbuild stop {id}`"));
    lines.join("\n")
}

/// How an end is told: colour, word, and the rest of its line with the lines below it.
fn told(finish: &Finish) -> (Tone, &'static str, String) {
    match finish {
        Finish::Recorded { derived, .. } => {
            let [throughput, ..] = headline(Some(&derived.result));
            (Tone::Good, "recorded", format!("{throughput:>9} tok/s/GPU"))
        }
        Finish::Served { .. } => (Tone::Good, "served", "recorded by another process".to_owned()),
        Finish::Invalid { derived, scratch, .. } => {
            let failed = derived.gates.iter().filter(|gate| gate.verdict == GateVerdict::Failed);
            let mut lines: Vec<String> = failed.map(|gate| format!("{}: {}", gate.name, gate.explanation)).collect();
            lines.push(format!("logs: {}", scratch.join("logs").display()));
            (Tone::Bad, "invalid", format!("kept, not served\n  {}", lines.join("\n  ")))
        }
        Finish::Failed { failure } => (Tone::Bad, "failed", failure.to_string()),
        Finish::Cancelled => (Tone::Warm, "stopped", String::new()),
        Finish::Stopped => (Tone::Warm, "stopped", "by ixbuild stop".to_owned()),
        Finish::NotStarted => (Tone::Warm, "", String::new()),
        Finish::Store { error, fix, scratch } => {
            let fix = fix.as_ref().map(|fix| format!("\n  {fix}")).unwrap_or_default();
            let files = match scratch.is_dir() {
                true => format!("\n  its files stay in {}", scratch.display()),
                false => String::new(),
            };
            (Tone::Bad, "failed", format!("{error}{fix}{files}\n  nothing more is started"))
        }
    }
}
