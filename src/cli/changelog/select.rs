//! `ixbuild changelog select`: the rows that new entries select, as JSON.

use clap::Args;

use crate::changelog::added::added;
use crate::changelog::json::SelectionJson;
use crate::changelog::revision::{changelog, required_changelog, side};
use crate::changelog::select::{Options, select};
use crate::cli::Globals;
use crate::cli::error::Error;
use crate::cli::exit;
use crate::cli::printer::Printer;
use crate::config::changelog::FILE;
use crate::config::inputs::Blobs;

/// Print what the entries that were added between two revisions select, as the field's own tools print it
///
/// One JSON object: `single_node` and `multi_node` (rows by scenario), `evals`, `agentic_evals`, `multinode_evals`,
/// `multinode_agentic_evals`, and `changelog_metadata` (both commits and the entries). Files come from git alone.
///
/// Exit codes: 0 printed (nothing selected is an empty selection), 2 a revision that is not there or not an ancestor,
/// 3 faults in the changelog, the masters or the runners file, 6 no git, no repository, a shallow clone.
#[derive(Debug, Args)]
pub struct SelectArgs {
    /// The revision before the entries
    #[arg(long, value_name = "REF", alias = "base-ref")]
    base: String,
    /// The revision with them
    #[arg(long, value_name = "REF", alias = "head-ref", default_value = "HEAD")]
    head: String,
    /// The changelog
    #[arg(long, value_name = "FILE", alias = "changelog-file", default_value = FILE)]
    changelog: String,
    /// Of throughput rows alike but for concurrency, only the lowest
    #[arg(long)]
    trim_conc: bool,
    /// Every row that can be evaluated, and no throughput
    #[arg(long)]
    all_evals: bool,
    /// Evals, and no throughput
    #[arg(long)]
    evals_only: bool,
    /// Print JSON, which is the only output there is
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &SelectArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let (mut repository, _) = super::repository(globals)?;
    let (base, head) = (repository.resolve(&args.base)?, repository.resolve(&args.head)?);
    repository.require_ancestor(&base, &head)?;
    let mut blobs = Blobs::default();
    let before = changelog(&mut repository, &base, &args.changelog, &mut blobs)?;
    let after = required_changelog(&mut repository, &head, &args.changelog, &mut blobs)?;
    let added = added(before.as_ref(), &after)?;
    let append_only = added.entries.iter().any(|entry| entry.append_only);
    let side_before = if append_only { Some(side(&mut repository, &base, &mut blobs)?) } else { None };
    let side_after = side(&mut repository, &head, &mut blobs)?;
    let options = Options { trim_conc: args.trim_conc, all_evals: args.all_evals, evals_only: args.evals_only };
    let selection = select(added.entries, &side_after, side_before.as_ref(), options)?;
    if selection.entries.is_empty() {
        printer.note(&format!("no entry was added to {} between {} and {}", args.changelog, args.base, args.head));
    }
    let value = SelectionJson { selection: &selection, base: &base.commit, head: &head.commit };
    let text = serde_json::to_string_pretty(&value).map_err(|error| Error::environment(error.to_string()))?;
    printer.data(&text);
    Ok(exit::OK)
}
