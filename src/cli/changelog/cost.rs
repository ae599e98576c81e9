//! The flags that say what measuring costs, and GPU-hours as text.

use clap::Args;

use crate::changelog::measure::{ASSUMED_LOAD_S, Estimate, hours};
use crate::config::diagnostic::Diagnostics;
use crate::config::inputs::Inputs;
use crate::config::profile::Profile;

/// What measuring an arm takes, for GPU-hours.
#[derive(Debug, Args)]
pub struct CostArgs {
    /// Seconds from allocation to the first measured request [default: what the profile estimates]
    #[arg(long, value_name = "SECONDS")]
    start_up: Option<u64>,
    /// Seconds of load of arms that declare none: fixed-seq-len points and evaluations
    #[arg(long, value_name = "SECONDS", default_value_t = ASSUMED_LOAD_S)]
    assume_load: u64,
}

impl CostArgs {
    /// The estimate that the flags and the profile make.
    ///
    /// # Errors
    /// A profile that does not exist or is faulty.
    pub fn estimate(&self, inputs: &Inputs, profile: &str) -> Result<Estimate, Diagnostics> {
        let of_profile = Estimate::of(&Profile::load(inputs, profile)?)?;
        let start_up_s = self.start_up.unwrap_or(of_profile.start_up_s);
        Ok(Estimate { start_up_s, assumed_load_s: self.assume_load })
    }
}

/// `1,234.5 GPU-hours`.
pub fn gpu_hours(gpu_s: u64) -> String {
    let tenths = (hours(gpu_s) * 10.0).round() as u64;
    format!("{}.{} GPU-hours", thousands(tenths / 10), tenths % 10)
}

/// `12,345`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What the numbers rest on, in one sentence.
pub fn basis(estimate: Estimate) -> String {
    format!(
        "GPU-hours: GPUs × ({} s start-up + load); load is what the job declares, 3600 s of an agentic row, else {} s (assumed)",
        estimate.start_up_s, estimate.assumed_load_s
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(gpu_hours(0), "0.0 GPU-hours");
        assert_eq!(gpu_hours(3600 * 1_234_567 + 1_800), "1,234,567.5 GPU-hours");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(100_000), "100,000");
    }
}
