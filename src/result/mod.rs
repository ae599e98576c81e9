//! Raw per-request rows and counters to metrics, gates and verdicts.
//!
//! | layer | read by | becomes |
//! |---|---|---|
//! | per-request rows | [`samples`] | [`metrics`]: times, lengths, rates |
//! | the client's aggregate | [`aggregate`] | request accounting, data set |
//! | scrapes of `/metrics` | [`prometheus`], [`counters`], [`engine`] | [`server`]: acceptance, caches, tokens |
//! | an eval report | [`eval`] | score |
//!
//! [`derive()`] does it all and decides the [`gates`]; it is pure, so that stored layers can be derived again under newer
//! formulas. [`median()`] values several records of one job as one; [`compare`] and [`verdict`] set runs of one spec side by
//! side, with quantiles from [`student`]. Nothing here knows the store, or where the layers came from.

pub mod aggregate;
pub mod compare;
pub mod counters;
pub mod document;
pub mod engine;
pub mod error;
pub mod eval;
pub mod gates;
pub mod median;
pub mod metrics;
pub mod prometheus;
pub mod samples;
pub mod server;
pub mod stats;
pub mod student;
pub mod verdict;

#[cfg(test)]
pub(crate) mod tests;

use serde::{Deserialize, Serialize};

pub use compare::{Reproduction, compare_metrics, reproduction};
pub use document::{FORMULAS, ResultDoc};
pub use error::{Layer, RawError};
pub use gates::{Gate, GateName, GateVerdict};
pub use median::{Median, median};
pub use verdict::Verdict;

use crate::spec::{ClientOutput, JobSpec};

/// The raw layers of a run, as bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw<'a> {
    /// The client's per-request rows (`profile_export.jsonl`).
    pub requests: Option<&'a [u8]>,
    /// The client's aggregate (`profile_export_aiperf.json`).
    pub aggregate: Option<&'a [u8]>,
    /// Scrapes, one JSON object a line.
    pub counters: Option<&'a [u8]>,
    /// The eval harness's report.
    pub eval_report: Option<&'a [u8]>,
    /// The logs of the engine services: KV cache sizes stand nowhere else.
    pub engine_logs: &'a [&'a [u8]],
}

/// What the raw layers of a run come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// The metrics.
    pub result: ResultDoc,
    /// Every gate that applies, decided.
    pub gates: Vec<Gate>,
}

impl Derived {
    /// Whether the run may be a record: every gate passed; what could not be judged fails a real run where it is required.
    pub fn valid(&self, real: bool) -> bool {
        self.gates.iter().all(|gate| gate.lets_through(real))
    }
}

/// Derives metrics and gates of one run of `spec`.
///
/// # Errors
/// A layer that the spec's client writes is missing, a layer is malformed (the line is named), or a bound of the spec is no
/// decimal.
pub fn derive(spec: &JobSpec, raw: &Raw<'_>) -> Result<Derived, RawError> {
    let mut result = ResultDoc {
        schema: document::Schema::V1,
        formulas: FORMULAS,
        job: spec.hash(),
        rehearsal: spec.deployment.substitutions.is_some(),
        concurrency: spec.measurement.concurrency,
        gpus: spec.gpus(),
        requests: None,
        server: None,
        eval: None,
    };
    let server = |samples| server::server_metrics(&spec.deployment, raw.counters, raw.engine_logs, samples);
    let gates = match spec.measurement.output {
        ClientOutput::Aiperf => {
            let samples = samples::read(raw.requests.ok_or(RawError::Missing(Layer::Requests))?)?;
            let aggregate = aggregate::read(raw.aggregate.ok_or(RawError::Missing(Layer::Aggregate))?)?;
            result.requests = Some(metrics::request_metrics(&samples, &aggregate, result.gpus));
            result.server = server(Some(&samples))?;
            gates::throughput(spec, &result, &samples, &aggregate)?
        }
        ClientOutput::Swebench => {
            result.eval = Some(eval::read(raw.eval_report.ok_or(RawError::Missing(Layer::EvalReport))?)?);
            result.server = server(None)?;
            gates::eval(spec, &result)?
        }
    };
    Ok(Derived { result, gates })
}
