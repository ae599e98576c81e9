//! `ixbuild matrix`: the rows of the matrix, for machines and for people.

use clap::{Args, ValueEnum};

use super::error::Error;
use super::exit;
use super::filters::FilterArgs;
use super::printer::Printer;
use crate::matrix::arms::arms;
use crate::matrix::expand::MatrixRow;
use crate::matrix::rows::JsonRow;

/// How many jobs one CI matrix may have.
const CI_LIMIT: usize = 256;

/// Print the matrix: one row a job, as the field's own tools print it
#[derive(Debug, Args)]
pub struct MatrixArgs {
    /// Output
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub format: Format,
    /// Which rows.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Output of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A JSON list, one row a line
    Json,
    /// A table for people
    Table,
    /// `{"include": […]}` on one line, for a CI matrix
    Github,
}

/// Prints the matrix; the exit code.
pub(super) fn run(args: &MatrixArgs, printer: Printer) -> Result<u8, Error> {
    if args.filter.config_files.is_empty() {
        return Err(Error::usage("matrix needs --config-files").hint("such as --config-files configs/*-master.yaml"));
    }
    let rows = args.filter.rows()?;
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
                printer.data(&table(&rows));
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

/// Columns as wide as their widest cell.
fn table(rows: &[MatrixRow]) -> String {
    let mut cells = vec![["ROW", "CONC", "RUNNER", "GPUS", "EVAL"].map(str::to_owned)];
    for line in rows {
        let concs: Vec<String> = line.concs.iter().map(u32::to_string).collect();
        let eval = match (line.mark.run_eval, line.mark.eval_conc, line.mark.eval_only) {
            (Some(true), Some(conc), only) => format!("at {conc}{}", if only { ", only" } else { "" }),
            (Some(true), None, only) => if only { "only" } else { "yes" }.to_owned(),
            _ => "-".to_owned(),
        };
        let gpus = line.row.gpus().to_string();
        cells.push([line.row.label.to_string(), concs.join(" "), line.row.runner.clone(), gpus, eval]);
    }
    let widths: Vec<usize> =
        (0..5).map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let lines = cells.iter().map(|row| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}
