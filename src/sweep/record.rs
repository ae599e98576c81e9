//! What an attempt came to becomes what is stored of it: derived, judged, recorded. Knows no claim.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::raw::RawLayers;
use super::{Finish, One, title};
use crate::exec::provenance::Provenance;
use crate::exec::scheduler::Verdict;
use crate::exec::{self, End, Failure, FailureKind, Outcome};
use crate::spec::JobSpec;
use crate::store::{self, AttemptInput, Layer, Outcome as Recorded, Source, StoreError};

impl One<'_> {
    /// Derives and stores what an attempt came to. Files of successes are removed, the others are kept.
    ///
    /// # Errors
    /// A store that cannot be written; the files stay.
    pub(super) async fn record(
        &self,
        job: &exec::Job,
        spec: Arc<JobSpec>,
        outcome: &Outcome,
        scratch: &Path,
    ) -> Result<(Verdict, Finish), StoreError> {
        let context = self.context;
        let provenance = Provenance::of(
            job,
            outcome,
            context.host,
            context.executor.name(),
            self.machine.clone(),
            context.git.clone(),
        );
        let store = context.store.clone();
        let (arms, hash) = (self.task.arms.clone(), self.task.hash);
        let reasons = serde_json::to_value(&self.task.reasons).unwrap_or_default();
        let outcome = outcome.clone();
        let folder = scratch.to_owned();
        let verdict = outcome.verdict();
        let secrets = context.host.secret_values();
        let stored = tokio::task::spawn_blocking(move || {
            let real = spec.deployment.substitutions.is_none();
            let raw = RawLayers::read(&spec, &outcome);
            let (end, derived) = match &outcome.end {
                End::Cancelled => (Recorded::Cancelled, None),
                End::Failed(failure) => (failed(failure), None),
                End::Completed => match raw.derive(&spec) {
                    Err(error) => {
                        let failure = Failure::new(
                            FailureKind::Client,
                            Some("client"),
                            format!("its output cannot be used: {error}"),
                        );
                        (failed(&failure), Some(Err(failure)))
                    }
                    Ok(derived) if derived.valid(real) => (Recorded::Valid, Some(Ok(derived))),
                    Ok(derived) => {
                        let gates = derived.gates.iter().filter(|gate| !gate.lets_through(real));
                        (
                            Recorded::Invalid { gates: gates.map(|gate| gate.name.to_string()).collect() },
                            Some(Ok(derived)),
                        )
                    }
                },
            };
            mask_logs(&outcome.logs, &secrets);
            let mut layers = raw.layers();
            if let Some(Ok(derived)) = &derived {
                let json = |value: Result<Vec<u8>, serde_json::Error>| Source::Bytes(value.unwrap_or_default());
                layers.push(Layer::new(store::RESULT_TYPE, title::RESULT, json(serde_json::to_vec(&derived.result))));
                layers.push(Layer::new(store::GATES_TYPE, title::GATES, json(serde_json::to_vec(&derived.gates))));
            }
            let provenance = serde_json::to_vec(&provenance).unwrap_or_default();
            layers.push(Layer::new(store::PROVENANCE_TYPE, title::PROVENANCE, Source::Bytes(provenance)));
            if outcome.logs.is_dir() {
                layers.push(Layer::new(store::LOGS_TYPE, title::LOGS, Source::Directory(outcome.logs.clone())));
            }
            let attempt = store.record(AttemptInput {
                job: hash,
                spec: &spec.canonical(),
                arms: &arms,
                started: outcome.started,
                ended: outcome.ended,
                outcome: end.clone(),
                rehearsal: !real,
                reasons,
                layers,
            })?;
            let finish = match (end, derived) {
                (Recorded::Valid, Some(Ok(derived))) => Finish::Recorded { attempt, derived: Box::new(derived) },
                (_, Some(Ok(derived))) => Finish::Invalid { attempt, derived: Box::new(derived), scratch: folder },
                (_, Some(Err(failure))) => Finish::Failed { failure },
                (Recorded::Cancelled, None) => Finish::Cancelled,
                (_, None) => Finish::Failed {
                    failure: outcome
                        .failure()
                        .cloned()
                        .unwrap_or_else(|| Failure::new(FailureKind::Client, None, "it ended without a result")),
                },
            };
            Ok::<Finish, StoreError>(finish)
        })
        .await;
        let finish = match stored {
            Ok(finish) => finish?,
            Err(panic) => Finish::Failed { failure: Failure::new(FailureKind::Client, None, panic.to_string()) },
        };
        if finish.is_valid() {
            // What it leaves is stored; a folder that cannot be removed costs disk, not a result.
            let _ = std::fs::remove_dir_all(scratch);
            return Ok((verdict, finish));
        }
        Ok((if verdict == Verdict::Done { Verdict::Failed } else { verdict }, finish))
    }
}

/// Puts the names of secrets in the place of their values in every log, before it is stored.
fn mask_logs(logs: &Path, secrets: &BTreeMap<String, exec::host::Secret>) {
    let Ok(entries) = std::fs::read_dir(logs) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|_| !secrets.is_empty()) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let masked = exec::host::mask(&text, secrets);
        // A log that cannot be written masked must not be stored open.
        if masked != text && std::fs::write(&path, masked).is_err() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn failed(failure: &Failure) -> Recorded {
    let kind = serde_json::to_value(failure.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    Recorded::Failed { kind: kind.unwrap_or_default(), message: failure.message.clone() }
}
