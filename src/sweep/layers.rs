//! What an attempt leaves in its scratch folder, as layers of a record: found, derived from, masked. Knows no store but its
//! layer types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::title;
use crate::exec::{Outcome, host};
use crate::result::{Derived, Raw, derive};
use crate::spec::{ClientOutput, JobSpec};
use crate::store::{self, Layer, Source};

/// Puts the names of secrets in the place of their values in every log, before it is stored.
pub(super) fn mask_logs(logs: &Path, secrets: &BTreeMap<String, host::Secret>) {
    let Ok(entries) = std::fs::read_dir(logs) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|_| !secrets.is_empty()) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let masked = host::mask(&text, secrets);
        // A log that cannot be written masked must not be stored open.
        if masked != text && std::fs::write(&path, masked).is_err() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The raw layers that an attempt left, as files.
pub(super) struct RawLayers {
    requests: Option<PathBuf>,
    aggregate: Option<PathBuf>,
    counters: Option<PathBuf>,
    report: Option<PathBuf>,
    engine_logs: Vec<PathBuf>,
}

impl RawLayers {
    /// Finds them.
    pub(super) fn read(spec: &JobSpec, outcome: &Outcome) -> Self {
        let there = |path: PathBuf| path.is_file().then_some(path);
        let output = |name: &str| there(outcome.client_output.join(name));
        let engines = spec.deployment.services.iter().filter(|service| service.engine.is_some());
        let logs = engines.flat_map(|service| {
            outcome
                .processes
                .iter()
                .filter(|process| process.service == service.name)
                .map(|process| process.log.clone())
        });
        let report = match spec.measurement.output {
            ClientOutput::Aiperf => None,
            ClientOutput::Swebench => find_report(&outcome.client_output),
        };
        Self {
            requests: output(title::REQUESTS),
            aggregate: output(title::AGGREGATE),
            counters: there(outcome.counters.clone()),
            report,
            engine_logs: logs.collect(),
        }
    }

    /// Metrics and gates.
    ///
    /// # Errors
    /// Layers that cannot be read, or make no result.
    pub(super) fn derive(&self, spec: &JobSpec) -> Result<Derived, String> {
        let read = |path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            Some(std::fs::read(path).map_err(|error| format!("{}: {error}", path.display())))
        };
        let (requests, aggregate) = (read(&self.requests).transpose()?, read(&self.aggregate).transpose()?);
        let (counters, report) = (read(&self.counters).transpose()?, read(&self.report).transpose()?);
        let logs: Vec<Vec<u8>> = self.engine_logs.iter().filter_map(|path| std::fs::read(path).ok()).collect();
        let logs: Vec<&[u8]> = logs.iter().map(Vec::as_slice).collect();
        let raw = Raw {
            requests: requests.as_deref(),
            aggregate: aggregate.as_deref(),
            counters: counters.as_deref(),
            eval_report: report.as_deref(),
            engine_logs: &logs,
        };
        derive(spec, &raw).map_err(|error| error.to_string())
    }

    /// As the store takes them.
    pub(super) fn layers(&self) -> Vec<Layer> {
        let file = |kind: &str, title: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| Layer::new(kind, title, Source::File(path.clone())))
        };
        [
            file(store::REQUESTS_TYPE, title::REQUESTS, &self.requests),
            file("application/json", title::AGGREGATE, &self.aggregate),
            file(store::COUNTERS_TYPE, title::COUNTERS, &self.counters),
            file("application/json", title::REPORT, &self.report),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The harness names its report after model and run: the only JSON file beside the predictions.
fn find_report(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let mut reports = files.filter(|path| {
        path.extension().is_some_and(|extension| extension == "json")
            && path.file_name().is_some_and(|name| name != "preds.json")
    });
    reports.next().filter(|_| reports.next().is_none())
}
