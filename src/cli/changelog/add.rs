//! `ixbuild changelog add`: one more entry at the end of the changelog.

use clap::Args;
use serde_json::json;

use crate::changelog::draft::{Draft, append, link_of};
use crate::changelog::json::EntryJson;
use crate::changelog::select::known;
use crate::cli::Globals;
use crate::cli::error::Error;
use crate::cli::exit;
use crate::cli::filters::ScenarioArg;
use crate::cli::printer::Printer;
use crate::cli::project;
use crate::config::changelog::{FILE, parse};
use crate::config::inputs::{Inputs, read_source};
use crate::config::load::Config;
use crate::lock::write;

/// Append an entry to the changelog: keys to measure again, and why
///
/// What is there stays byte for byte; the file is replaced whole or not at all. Keys and globs (quote them) must name
/// entries of the masters on disk.
///
/// Exit codes: 0 written, 2 a key that no master has, or no link, 3 a changelog that breaks its rules, 6 the file cannot
/// be written.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Config keys, or globs (`*`) over them
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// What changed; give it again for more lines
    #[arg(long = "message", short = 'm', value_name = "TEXT", required = true)]
    message: Vec<String>,
    /// The pull request: its number (the link follows that of the last entry), or the whole link
    #[arg(long, value_name = "N|URL")]
    pr: String,
    /// Only these scenarios
    #[arg(long, value_name = "KIND", num_args = 1.., value_delimiter = ',')]
    scenario_type: Vec<ScenarioArg>,
    /// Evals, and no throughput
    #[arg(long)]
    evals_only: bool,
    /// Every row that can be evaluated, and no throughput
    #[arg(long)]
    all_evals: bool,
    /// No evals of rows whose prefill ep is smaller
    #[arg(long, value_name = "N")]
    eval_min_prefill_ep: Option<u32>,
    /// Only the points that were added to existing curves
    #[arg(long, conflicts_with_all = ["evals_only", "all_evals", "eval_min_prefill_ep"])]
    append_only: bool,
    /// The changelog
    #[arg(long, value_name = "FILE", alias = "changelog-file", default_value = FILE)]
    changelog: String,
    /// Print the entry, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object: `path`, `line`, `entry`, `written`
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &AddArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let root = project::find(globals.project.as_deref())?;
    let prefix = project::shown(&root);
    let config = Config::of(&Inputs::read(&root, &prefix)?)?;
    let path = root.join(&args.changelog);
    let name = if prefix.is_empty() { args.changelog.clone() } else { format!("{prefix}/{}", args.changelog) };
    let existing = if path.exists() { Some(read_source(&path, &name)?) } else { None };
    let entries = existing.as_ref().map_or_else(|| Ok(Vec::new()), parse)?;
    let draft = Draft {
        config_keys: args.keys.clone(),
        scenario_type: args.scenario_type.iter().map(|kind| (*kind).into()).collect(),
        description: args.message.clone(),
        pr_link: link(&args.pr, &entries)?,
        evals_only: args.evals_only,
        all_evals: args.all_evals,
        append_only: args.append_only,
        eval_min_prefill_ep: args.eval_min_prefill_ep,
    };
    let appended = append(existing.as_ref(), &name, &draft)?;
    // The entry is not in the file yet: its places would mislead.
    known(&appended.entry, &config).map_err(|faults| {
        let words = |fault: crate::config::diagnostic::Diagnostic| {
            let error = Error::usage(fault.message);
            fault.help.into_iter().fold(error, Error::hint)
        };
        faults.0.into_iter().next().map_or_else(|| Error::usage("no such key"), words)
    })?;
    if !args.dry_run {
        write(&path, &appended.text).map_err(|error| Error::environment(error.to_string()))?;
    }
    let (line, _) = appended.entry.place.source.line_column(appended.entry.place.span.start);
    if args.json {
        let value = json!({"path": name, "line": line, "entry": EntryJson(&appended.entry), "written": !args.dry_run});
        printer.data(&value.to_string());
    } else {
        printer.data(&draft.to_string());
        let did = if args.dry_run { "would stand at" } else { "appended at" };
        printer.note(&format!("{did} {name}:{line}"));
    }
    Ok(exit::OK)
}

fn link(pr: &str, entries: &[crate::config::changelog::ChangelogEntry]) -> Result<String, Error> {
    let number = pr.trim_start_matches('#');
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(pr.to_owned());
    }
    link_of(entries, number).ok_or_else(|| {
        Error::usage(format!("no entry yet shows how links to pull requests look; {pr} alone is none"))
            .hint(format!("pass the whole link, such as --pr https://github.com/ORG/REPO/pull/{number}"))
    })
}
