//! The flags that say which part of the matrix a verb works on: shared by `matrix`, `plan`, `run` and others.

use clap::{Args, ValueEnum};

use super::error::Error;
use crate::config::load::Config;
use crate::matrix::evals::{self, Evals};
use crate::matrix::expand::{MatrixRow, expand};
use crate::matrix::filter::{Common, Filter, Keys, ScenarioType, Sweep};

/// Which part of the matrix.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Matrix")]
pub struct FilterArgs {
    /// Config keys or globs of them (`*`, `?`), instead of a whole sweep
    #[arg(long, num_args = 1.., value_name = "KEY")]
    pub config_keys: Vec<String>,
    /// Only these concurrencies (`matrix` takes it with --config-keys)
    #[arg(long, num_args = 1.., value_name = "N", value_delimiter = ',')]
    pub conc: Vec<i64>,
    /// Sequence lengths of fixed-seq-len rows, in and out
    #[arg(long, num_args = 1.., value_name = "NAME")]
    pub seq_lens: Vec<SeqLen>,
    /// Kinds of scenario
    #[arg(long, num_args = 1.., value_name = "KIND")]
    pub scenario_type: Vec<ScenarioArg>,
    /// Run on each node of the runner whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub runner_node_filter: Option<String>,
    /// Keys that start with one of these
    #[arg(long, num_args = 1.., value_name = "PREFIX")]
    pub model_prefix: Vec<String>,
    /// Precisions
    #[arg(long, num_args = 1.., value_name = "NAME")]
    pub precision: Vec<String>,
    /// Serving engines
    #[arg(long, num_args = 1.., value_name = "NAME")]
    pub framework: Vec<String>,
    /// Runner labels
    #[arg(long, num_args = 1.., value_name = "LABEL")]
    pub runner_type: Vec<String>,
    /// Single-node entries
    #[arg(long)]
    pub single_node: bool,
    /// Multi-node entries
    #[arg(long)]
    pub multi_node: bool,
    /// Factor of concurrency ranges, greater than 1 [default: 2]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub step_size: Option<i64>,
    /// Least concurrency
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub min_conc: Option<i64>,
    /// Greatest concurrency
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_conc: Option<i64>,
    /// Greatest tp of single-node fixed-seq-len rows
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_tp: Option<i64>,
    /// Greatest ep of single-node fixed-seq-len rows: greater ones become it
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_ep: Option<i64>,
    /// Mark no rows for evaluation
    #[arg(long, conflicts_with_all = ["evals_only", "all_evals"])]
    pub no_evals: bool,
    /// Rows that are evaluated, agentic ones too, and no others
    #[arg(long)]
    pub evals_only: bool,
    /// Every row that can be evaluated, and no others
    #[arg(long)]
    pub all_evals: bool,
}

/// Names of sequence lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "comments here would stretch the verb's help")]
pub enum SeqLen {
    #[value(name = "1k1k")]
    In1kOut1k,
    #[value(name = "8k1k")]
    In8kOut1k,
}

/// Kinds of scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "comments here would stretch the verb's help")]
pub enum ScenarioArg {
    FixedSeqLen,
    AgenticCoding,
}

impl FilterArgs {
    /// The rows that pass, evals marked.
    ///
    /// # Errors
    /// Flags that contradict each other, selections that match nothing, rows that do not fit their runners.
    pub fn rows(&self, config: &Config) -> Result<Vec<MatrixRow>, Error> {
        let rows = expand(&config.entries, &config.runners, &self.filter()?)?;
        Ok(evals::apply(rows, self.evals()))
    }

    /// Whether no flag narrows the matrix.
    pub fn is_empty(&self) -> bool {
        let widest = [&self.config_keys, &self.model_prefix, &self.precision, &self.framework, &self.runner_type];
        let bounds = [self.min_conc, self.max_conc, self.max_tp];
        widest.iter().all(|words| words.is_empty())
            && self.conc.is_empty()
            && self.seq_lens.is_empty()
            && self.scenario_type.is_empty()
            && self.runner_node_filter.is_none()
            && bounds.iter().all(Option::is_none)
            && !(self.single_node || self.multi_node || self.evals_only || self.all_evals)
    }

    /// How far evaluation goes.
    pub fn evals(&self) -> Evals {
        match (self.no_evals, self.all_evals, self.evals_only) {
            (true, _, _) => Evals::None,
            (false, true, _) => Evals::All,
            (false, false, true) => Evals::Only,
            (false, false, false) => Evals::Marked,
        }
    }

    /// The filter that the flags describe.
    ///
    /// # Errors
    /// Flags that contradict each other.
    pub fn filter(&self) -> Result<Filter, Error> {
        let common = Common {
            seq_lens: self.seq_lens.iter().filter_map(value_name).collect(),
            scenarios: self.scenario_type.iter().map(|kind| (*kind).into()).collect(),
            runner_node: self.runner_node_filter.clone(),
        };
        if !self.config_keys.is_empty() {
            if let Some(flag) = self.sweep_flags().into_iter().find_map(|(flag, given)| given.then_some(flag)) {
                return Err(Error::usage(format!("{flag} filters a whole sweep, and --config-keys names its entries"))
                    .hint(format!("remove {flag} or --config-keys")));
            }
            let conc = (!self.conc.is_empty()).then(|| self.conc.clone());
            return Ok(Filter::Keys(Keys { common, keys: self.config_keys.clone(), conc }));
        }
        if !self.conc.is_empty() {
            return Err(Error::usage("--conc keeps concurrencies of named entries")
                .hint("add --config-keys (`'*'` for all), or use --min-conc and --max-conc"));
        }
        if let (Some(min), Some(max)) = (self.min_conc, self.max_conc)
            && min > max
        {
            return Err(Error::usage(format!("--min-conc {min} is greater than --max-conc {max}")));
        }
        let step_size = self.step_size.unwrap_or(2);
        let step_size = u32::try_from(step_size).ok().filter(|step| *step > 1).ok_or_else(|| {
            Error::usage(format!("--step-size {step_size} is no factor"))
                .hint("ranges multiply by it: it must be greater than 1")
        })?;
        Ok(Filter::Sweep(Sweep {
            common,
            model_prefix: self.model_prefix.clone(),
            precision: self.precision.clone(),
            framework: self.framework.clone(),
            runner_type: self.runner_type.clone(),
            single_node: self.single_node,
            multi_node: self.multi_node,
            step_size,
            min_conc: self.min_conc,
            max_conc: self.max_conc,
            max_tp: self.max_tp,
            max_ep: self.max_ep,
        }))
    }

    /// The flags of a whole sweep, and whether they are given.
    fn sweep_flags(&self) -> [(&'static str, bool); 11] {
        [
            ("--model-prefix", !self.model_prefix.is_empty()),
            ("--precision", !self.precision.is_empty()),
            ("--framework", !self.framework.is_empty()),
            ("--runner-type", !self.runner_type.is_empty()),
            ("--single-node", self.single_node),
            ("--multi-node", self.multi_node),
            ("--step-size", self.step_size.is_some()),
            ("--min-conc", self.min_conc.is_some()),
            ("--max-conc", self.max_conc.is_some()),
            ("--max-tp", self.max_tp.is_some()),
            ("--max-ep", self.max_ep.is_some()),
        ]
    }
}

fn value_name(length: &SeqLen) -> Option<String> {
    length.to_possible_value().map(|value| value.get_name().to_owned())
}

impl From<ScenarioArg> for ScenarioType {
    fn from(kind: ScenarioArg) -> Self {
        match kind {
            ScenarioArg::FixedSeqLen => ScenarioType::FixedSeqLen,
            ScenarioArg::AgenticCoding => ScenarioType::AgenticCoding,
        }
    }
}
