//! The report of an eval harness: score and number of instances.
//!
//! Reads the SWE-bench harness's run report (`total_instances`, `submitted_instances`, `completed_instances`,
//! `resolved_instances`, …). The score is resolved / total: an instance without a patch is a failure, not a gap.

use serde::{Deserialize, Serialize};

use super::error::{Layer, RawError};
use super::stats::ratio;

/// What an eval measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalResult {
    /// resolved / instances, 0 to 1; null without instances.
    pub score: Option<f64>,
    /// Instances of the evaluated split: the n of the score.
    pub instances: u64,
    /// Instances for which a patch was submitted.
    pub submitted: Option<u64>,
    /// Instances whose evaluation ended.
    pub completed: Option<u64>,
    /// Instances that were solved.
    pub resolved: u64,
}

#[derive(Deserialize)]
struct Report {
    total_instances: u64,
    resolved_instances: u64,
    #[serde(default)]
    submitted_instances: Option<u64>,
    #[serde(default)]
    completed_instances: Option<u64>,
}

/// Reads a SWE-bench report.
///
/// # Errors
/// A text that is not such a report, or one that resolved more than there was.
pub fn read(bytes: &[u8]) -> Result<EvalResult, RawError> {
    let report: Report = serde_json::from_slice(bytes).map_err(|error| RawError::json(Layer::EvalReport, 1, &error))?;
    if report.resolved_instances > report.total_instances {
        let reason = format!("{} of {} instances resolved", report.resolved_instances, report.total_instances);
        return Err(RawError::Senseless { layer: Layer::EvalReport, reason });
    }
    Ok(EvalResult {
        score: ratio(report.resolved_instances as f64, report.total_instances as f64),
        instances: report.total_instances,
        submitted: report.submitted_instances,
        completed: report.completed_instances,
        resolved: report.resolved_instances,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_counts_every_instance() {
        let report =
            br#"{"total_instances":300,"submitted_instances":290,"completed_instances":280,"resolved_instances":150,
            "unresolved_instances":130,"empty_patch_instances":10,"error_instances":0,"schema_version":2}"#;
        let eval = read(report).unwrap();
        assert_eq!((eval.score, eval.instances, eval.completed), (Some(0.5), 300, Some(280)));
    }

    #[test]
    fn a_report_that_makes_no_sense_is_refused() {
        for (text, reason) in [
            (r#"{"total_instances":3}"#, "missing field `resolved_instances`"),
            (r#"{"total_instances":3,"resolved_instances":4}"#, "4 of 3 instances resolved"),
            ("", "EOF"),
        ] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason) && error.starts_with("eval report"), "{error}");
        }
        assert_eq!(read(br#"{"total_instances":0,"resolved_instances":0}"#).unwrap().score, None);
    }
}
