//! The raw layers of an attempt, as files in its directory: found, read for derivation, handed to the store. Knows no claim
//! and no executor.

use std::path::{Path, PathBuf};

use super::title;
use crate::exec::Outcome;
use crate::result::{Derived, Raw, derive};
use crate::spec::{ClientOutput, JobSpec};
use crate::store::{self, Layer, Source};

/// The raw layers that an attempt left, as files.
pub struct RawLayers {
    requests: Option<PathBuf>,
    aggregate: Option<PathBuf>,
    counters: Option<PathBuf>,
    report: Option<PathBuf>,
    engine_logs: Vec<PathBuf>,
}

impl RawLayers {
    /// Finds them.
    pub fn read(spec: &JobSpec, outcome: &Outcome) -> Self {
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

    /// Derives the result and the gates.
    ///
    /// # Errors
    /// A file that cannot be read, or used.
    pub fn derive(&self, spec: &JobSpec) -> Result<Derived, String> {
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

    /// As layers to store.
    pub fn layers(&self) -> Vec<Layer> {
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
