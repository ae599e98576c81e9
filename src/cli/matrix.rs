//! `ixbuild matrix`: the rows of the matrix, for machines and for people.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::error::Error;
use super::exit;
use super::filters::FilterArgs;
use super::printer::Printer;
use super::table::table;
use crate::config::load::{Config, RUNNERS};
use crate::matrix::arms::arms;
use crate::matrix::expand::MatrixRow;
use crate::matrix::rows::JsonRow;

/// How many jobs one CI matrix may have.
const CI_LIMIT: usize = 256;

const NOTES: &str = "\
Examples:
  ixbuild matrix --config-files configs/nvidia-master.yaml --format table
  ixbuild matrix --config-files configs/*-master.yaml --config-keys '*-mtp' --conc 8 16";

/// Print the matrix: one row a job, as the field's own tools print it
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct MatrixArgs {
    /// A list with one row a line, a table for people, or `{"include": […]}` for a CI matrix
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub format: Format,
    /// Master files
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub config_files: Vec<PathBuf>,
    /// Runners file
    #[arg(long, value_name = "FILE", default_value = RUNNERS)]
    pub runner_config: PathBuf,
    /// Which rows.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Output of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "comments here would stretch the verb's help")]
pub enum Format {
    Json,
    Table,
    Github,
}

/// Prints the matrix; the exit code.
pub(super) fn run(args: &MatrixArgs, printer: Printer) -> Result<u8, Error> {
    if args.config_files.is_empty() {
        return Err(Error::usage("matrix needs --config-files").hint("such as --config-files configs/*-master.yaml"));
    }
    let rows = args.filter.rows(&Config::load(&args.config_files, &args.runner_config)?)?;
    // Printed in one go: nobody reads half a document.
    match args.format {
        Format::Json if rows.is_empty() => printer.data("[]"),
        Format::Json => printer.data(&json(&rows, ["[\n", ",\n", "\n]"])?),
        Format::Github => {
            if rows.len() > CI_LIMIT {
                printer.note(&format!("{} rows: a GitHub matrix takes {CI_LIMIT}; filter them", rows.len()));
            }
            printer.data(&json(&rows, ["{\"include\":[", ",", "]}"])?);
        }
        Format::Table => {
            if !rows.is_empty() {
                printer.data(&as_table(&rows));
            }
            let found = arms(&rows);
            printer.note(&format!("{} rows, {} arms", rows.len(), found.arms.len()));
        }
    }
    Ok(exit::OK)
}

fn json(rows: &[MatrixRow], [open, separator, close]: [&str; 3]) -> Result<String, Error> {
    let mut out = open.as_bytes().to_vec();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(separator.as_bytes());
        }
        serde_json::to_writer(&mut out, &JsonRow(row)).map_err(|error| Error::environment(error.to_string()))?;
    }
    out.extend_from_slice(close.as_bytes());
    String::from_utf8(out).map_err(|error| Error::environment(error.to_string()))
}

fn as_table(rows: &[MatrixRow]) -> String {
    let cells = rows.iter().map(|line| {
        let concs: Vec<String> = line.concs.iter().map(u32::to_string).collect();
        let eval = match (line.mark.run_eval, line.mark.eval_conc, line.mark.eval_only) {
            (Some(true), Some(conc), only) => format!("at {conc}{}", if only { ", only" } else { "" }),
            (Some(true), None, only) => if only { "only" } else { "yes" }.to_owned(),
            _ => "-".to_owned(),
        };
        vec![line.row.label.to_string(), concs.join(" "), line.row.runner.clone(), line.row.gpus().to_string(), eval]
    });
    table(&["ROW", "CONC", "RUNNER", "GPUS", "EVAL"], &[false; 5], &cells.collect::<Vec<_>>())
}
