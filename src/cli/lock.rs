//! `ixbuild lock`: pins what the matrix, the recipes and `configs/clients.yaml` name.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::Globals;
use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::project::Project;
use super::table::{Tone, count, paint};
use crate::compose::wanted;
use crate::lock::apply::{Line, Status, apply};
use crate::lock::pip::Surroundings;
use crate::lock::resolve::{Answers, Sources, requests, resolve};
use crate::lock::update::{Name, Step, Then, UnknownName, Update, plan};
use crate::lock::{self, hub};
use crate::matrix::filter::{Filter, Sweep};

const EXAMPLES: &str = "\
Examples:
  ixbuild lock                   after a version in the matrix or in configs/clients.yaml changed
  ixbuild lock --update lmcache  ask again for one package
  ixbuild lock --check           for CI: exit 4 if it would change or pins less than everything";

/// Pin what the configs name, in ixbuild.lock: the wheel of each package version, the revision of each model and data set
///
/// What the lock pins already is kept; nothing is asked for it. What cannot be pinned stands there as `unlocked`: its arms
/// can be planned and rehearsed, real runs of them are blocked. Entries that nothing names any more are dropped.
///
/// The package index is that of --index-url, else of PIP_INDEX_URL or UV_INDEX_URL, else of pip's configuration files, else
/// the public one. The hub is HF_ENDPOINT's, asked with HF_TOKEN where it is set.
///
/// Exit codes: 0 the lock is written, though entries that nobody could be asked for may be unlocked; 4 the index or the hub
/// refused an entry (the rest is written), or --check found the lock wanting; 3 faulty input; 6 the file cannot be written.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LockArgs {
    /// Ask again for entries that are locked: all, or those of a package, image, model or data set
    #[arg(long, value_name = "NAME", num_args = 0..)]
    update: Option<Vec<String>>,
    /// The package index: a PEP 503 URL such as https://HOST/simple
    #[arg(long, value_name = "URL")]
    index_url: Option<String>,
    /// Lock files that their publisher took back
    #[arg(long)]
    allow_yanked: bool,
    /// Ask nobody and write nothing; exit 4 if the lock would change or pins less than everything
    #[arg(long, alias = "locked", conflicts_with_all = ["update", "dry_run"])]
    check: bool,
    /// Ask, print what would be written, and write nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print one JSON object: `entries` (each `section`, `name`, `status` of locked, kept, unlocked, dropped, and `detail`;
    /// closures also `package` and `base`), `complete`, `changed`, `written`
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn lock(args: &LockArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let project = Project::open(globals)?;
    let wanted = wanted(&project.recipes, &project.arms(&Filter::Sweep(Sweep::default()))?)?;
    let old = &project.lock;
    let update = match &args.update {
        None => Update::Nothing,
        Some(names) if names.is_empty() => Update::All,
        Some(names) => Update::Named(names.clone()),
    };
    let steps = plan(old, &wanted, &update)?;
    let answers = match args.check {
        true => Answers::new(),
        false => ask(&steps, args, printer)?,
    };
    let (new, lines) = apply(old, &steps, &answers);
    let text = new.render();
    let changed = project.inputs.get(lock::FILE).is_none_or(|source| source.text != text);
    let written = !args.check && !args.dry_run && lock::write(&project.root.join(lock::FILE), &text)?;
    let complete = lines.iter().all(|line| matches!(line.status, Status::Locked | Status::Kept));
    if args.json {
        printer.data(&json_of(&lines, complete, changed, written).to_string());
    } else {
        printer.data(&render(&lines, args.check, printer));
    }
    failures(&lines, printer);
    printer.note(match (written, changed) {
        (true, _) => "wrote ixbuild.lock",
        (false, false) => "ixbuild.lock is as it was",
        (false, true) if args.check => "ixbuild.lock is not up to date: run `ixbuild lock`",
        (false, true) => "ixbuild.lock would change; nothing was written",
    });
    let refused = lines.iter().any(|line| line.failure.as_ref().is_some_and(|failure| failure.refused));
    let wanting = args.check && (changed || !complete);
    Ok(if refused || wanting { exit::REFUSED } else { exit::OK })
}

impl From<UnknownName> for Error {
    fn from(error: UnknownName) -> Self {
        Self::usage(error.to_string()).hint(match &error.near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`ixbuild lock --check` lists every name".to_owned(),
        })
    }
}

impl From<lock::WriteError> for Error {
    fn from(error: lock::WriteError) -> Self {
        Self::environment(error.to_string()).hint("the lock is as it was")
    }
}

/// Asks the index and the hub, with progress on stderr.
fn ask(steps: &[Step], args: &LockArgs, printer: Printer) -> Result<Answers, Error> {
    let number = requests(steps);
    if number == 0 {
        return Ok(Answers::new());
    }
    let variable = |name: &str| std::env::var(name).ok();
    let surroundings = Surroundings { variable: &variable, read: &read };
    let sources = Sources {
        index: surroundings.index(args.index_url.as_deref()).map_err(|error| Error::environment(error.to_string()))?,
        hub: variable("HF_ENDPOINT").filter(|url| !url.is_empty()).unwrap_or_else(|| hub::DEFAULT.to_owned()),
        token: variable("HF_TOKEN").filter(|token| !token.is_empty()),
        allow_yanked: args.allow_yanked,
    };
    if steps.iter().any(|step| step.then == Then::Ask && step.name.section() == "packages") {
        printer.note(&format!("package index from {}", sources.index.source));
    }
    let bar = match printer.interactive {
        true => ProgressBar::new(number as u64),
        false => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("asking {pos}/{len}") {
        bar.set_style(style);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::environment(format!("tokio: {error}")))?;
    let answers = runtime.block_on(resolve(steps, &sources, &|| bar.inc(1)));
    bar.finish_and_clear();
    answers.map_err(|why| Error::environment(format!("no HTTP client: {why}")))
}

/// A configuration file of pip; more than a mebibyte is none.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(1 << 20).read_to_string(&mut text)?;
    Ok(text)
}

fn json_of(lines: &[Line], complete: bool, changed: bool, written: bool) -> Value {
    let entry = |line: &Line| {
        let mut entry = json!({
            "section": line.name.section(),
            "name": line.name.to_string(),
            "status": line.status,
            "detail": line.detail,
        });
        if let Name::Closure(package, base) = &line.name {
            entry["package"] = package.to_string().into();
            entry["base"] = base.as_str().into();
        }
        if let Some(failure) = &line.failure {
            entry["failure"] = json!({"why": failure.why, "refused": failure.refused});
        }
        entry
    };
    json!({
        "entries": lines.iter().map(entry).collect::<Vec<_>>(),
        "complete": complete,
        "changed": changed,
        "written": written,
    })
}

/// One line an entry, then counts.
fn render(lines: &[Line], check: bool, printer: Printer) -> String {
    let mut counts: BTreeMap<Status, usize> = BTreeMap::new();
    let mut out = Vec::with_capacity(lines.len() + 1);
    for line in lines {
        *counts.entry(line.status).or_default() += 1;
        let tone = match line.status {
            Status::Locked | Status::Kept => Tone::Good,
            Status::Unlocked => Tone::Bad,
            Status::Dropped => Tone::Warm,
        };
        let status = paint(printer, tone, &format!("{:<8}", line.status.word()));
        out.push(format!("{status}  {}: {}", line.name, shortened(&line.detail)));
    }
    let words: Vec<String> = counts.iter().map(|(status, n)| format!("{n} {}", status.word())).collect();
    let summary = if words.is_empty() { "nothing is named".to_owned() } else { words.join(", ") };
    out.push(format!("{}: {summary}{}", count_entries(lines.len()), if check { " (nobody was asked)" } else { "" }));
    out.join("\n")
}

/// A text with its digests cut to 12 digits; the file has them whole.
fn shortened(text: &str) -> String {
    let short = |word: &str| match word.strip_prefix("sha256:") {
        Some(hex) if hex.len() == 64 => format!("sha256:{}…", &hex[..12]),
        _ => word.to_owned(),
    };
    text.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

fn count_entries(n: usize) -> String {
    if n == 1 { count(n, "entry") } else { format!("{n} entries") }
}

/// What kept entries were asked for in vain, and what helps.
fn failures(lines: &[Line], printer: Printer) {
    for line in lines {
        let Some(failure) = &line.failure else { continue };
        if line.status == Status::Kept {
            printer.note(&format!("{} is kept as it was: {}", line.name, failure.why));
        }
        if let Some(fix) = &failure.fix {
            printer.note(&format!("{}: {fix}", line.name));
        }
    }
}
