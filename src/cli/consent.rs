//! Whether a run may cost what it will: above a threshold of GPU-hours somebody says so, at the terminal or with `--yes`.

use super::error::Error;
use super::printer::Printer;
use super::table::count;
use crate::config::profile::Profile;
use crate::plan::Summary;

/// What is to be done before a run.
#[derive(Debug, PartialEq, Eq)]
enum Consent {
    /// Nothing.
    Given,
    /// To ask this.
    Asked(String),
}

/// Asks where it must; what it costs is known before anything starts.
///
/// # Errors
/// Nobody to ask, or the answer is no.
pub fn consent(summary: &Summary, profile: &Profile, yes: bool, printer: Printer) -> Result<(), Error> {
    let Consent::Asked(question) = needed(summary, profile.ask_above_gpu_hours(), yes) else { return Ok(()) };
    if !printer.can_ask() {
        return Err(Error::refused(format!("{question}: nobody to ask, nothing was started"))
            .hint("pass --yes to run it; `ask-above-gpu-hours` in the profile is the threshold"));
    }
    match printer.ask(&format!("{question}: run?")) {
        true => Ok(()),
        false => Err(Error::refused("not run: the answer was no")),
    }
}

fn needed(summary: &Summary, threshold: Option<u64>, yes: bool) -> Consent {
    match threshold {
        Some(threshold) if !yes && summary.gpu_hours > threshold as f64 => {
            let hours = summary.gpu_hours.ceil() as u64;
            Consent::Asked(format!("about {} GPU-hours, {}", grouped(hours), count(summary.run, "arm")))
        }
        _ => Consent::Given,
    }
}

/// `1,234`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_above_the_threshold_alone_and_yes_answers() {
        let summary = |gpu_hours| Summary { run: 68, gpu_hours, ..Summary::default() };
        let asked = Consent::Asked("about 1,234 GPU-hours, 68 arms".to_owned());
        assert_eq!(needed(&summary(1233.2), Some(8), false), asked);
        assert_eq!(needed(&summary(1233.2), Some(8), true), Consent::Given);
        assert_eq!(needed(&summary(8.0), Some(8), false), Consent::Given);
        assert_eq!(needed(&summary(8.1), Some(8), false), Consent::Asked("about 9 GPU-hours, 68 arms".to_owned()));
        assert_eq!(needed(&summary(8.1), None, false), Consent::Given);
        assert_eq!(needed(&summary(0.0), Some(0), false), Consent::Given);
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(999), "999");
    }
}
