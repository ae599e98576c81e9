//! A claim while its job runs: kept up to date, and watched for a request to stop.
//!
//! Writing a claim waits for the disk, so a task of its own does that, and of several updates only the last.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::exec::{Cancel, Canceller, What, cancellation};
use crate::store::{ClaimGuard, StoreError, Work};

/// How often a request to stop is looked for.
const LOOK: Duration = Duration::from_millis(250);

/// A claim in the care of a task.
pub struct Hold {
    work: watch::Sender<Work>,
    cancel: Cancel,
    keeper: JoinHandle<Kept>,
}

/// What the task gives back: the claim, unless writing it failed badly, and whether the job was asked to stop.
struct Kept {
    guard: Option<ClaimGuard>,
    asked: bool,
}

/// Tells the claim how far its job is.
#[derive(Debug, Clone)]
pub struct Progress(watch::Sender<Work>);

impl Hold {
    /// Takes a claim that is on file as `work`. The job's own signal is set with `cancel`, and when the job is asked to stop.
    pub fn begin(guard: ClaimGuard, work: Work, cancel: &Cancel) -> Self {
        let (sender, receiver) = watch::channel(work);
        let (canceller, own) = cancellation();
        let keeper = tokio::spawn(keep(guard, receiver, cancel.clone(), canceller));
        Self { work: sender, cancel: own, keeper }
    }

    /// The signal for this job.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// For events of the job.
    pub fn progress(&self) -> Progress {
        Progress(self.work.clone())
    }

    /// Lets go of the claim; whether its job was asked to stop.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub async fn end(self) -> Result<bool, StoreError> {
        drop(self.work);
        let Ok(kept) = self.keeper.await else { return Ok(false) };
        if let Some(guard) = kept.guard {
            guard.release()?;
        }
        Ok(kept.asked)
    }
}

impl Progress {
    /// Notes what an event changes of what is on file.
    pub fn note(&self, what: &What) {
        let phase = match what {
            What::Began { .. } => "starting".to_owned(),
            What::Starting(who) => format!("starting {who}"),
            What::ClientStarted => "measuring".to_owned(),
            What::Holding { .. } => "failed, services are kept".to_owned(),
            What::Stopping => "stopping".to_owned(),
            What::Ended { .. } => "recording".to_owned(),
            What::Started { handle, .. } => {
                self.0.send_modify(|work| work.handles.push(handle.clone()));
                return;
            }
            _ => return,
        };
        self.0.send_modify(|work| work.phase = Some(phase));
    }
}

async fn keep(mut guard: ClaimGuard, mut work: watch::Receiver<Work>, cancel: Cancel, canceller: Canceller) -> Kept {
    let request = guard.stop_request();
    let mut asked = false;
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled(), if !canceller.is_cancelled() => canceller.cancel(),
            changed = work.changed() => {
                if changed.is_err() {
                    return Kept { guard: Some(guard), asked };
                }
                let now = work.borrow_and_update().clone();
                let written = tokio::task::spawn_blocking(move || {
                    let result = guard.set_work(now);
                    (guard, result)
                });
                let Ok((back, result)) = written.await else { return Kept { guard: None, asked } };
                guard = back;
                // Somebody ended our claim: another process may run the job by now. Any other failure costs but the view
                // of `ps`; should the store stay like that, recording says so.
                asked |= matches!(result, Err(StoreError::ClaimLost { .. }));
            }
            () = tokio::time::sleep(LOOK), if !asked => asked = request.is_made(),
        }
        if asked {
            canceller.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::{Exit, Who};
    use crate::ids::{Digest, JobHash};
    use crate::store::{Claim, Store};

    fn held(store: &Store, cancel: &Cancel) -> Hold {
        let Claim::Claimed(claimed) = store.claim(&JobHash(Digest::of(b"{}")), vec![]).unwrap() else {
            panic!("not free")
        };
        Hold::begin(claimed.guard, Work::default(), cancel)
    }

    async fn until(what: &str, mut holds: impl FnMut() -> bool) {
        for _ in 0..1000 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }

    #[tokio::test]
    async fn a_claim_follows_its_job_and_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (_canceller, cancel) = cancellation();
        let hold = held(&store, &cancel);
        let progress = hold.progress();
        let who = Who { service: "server".into(), instance: 0 };
        progress.note(&What::Starting(who.clone()));
        progress.note(&What::Started { who: who.clone(), handle: "pid:1:2".into() });
        progress.note(&What::ClientStarted);
        progress.note(&What::ClientEnded { exit: Exit::Code(0), after: Duration::ZERO });
        let on_file = || store.claims().unwrap()[0].record.clone().unwrap().work;
        until("handles and phase on file", || {
            (on_file().handles, on_file().phase.as_deref()) == (vec!["pid:1:2".to_owned()], Some("measuring"))
        })
        .await;
        drop(progress);
        assert!(!hold.cancel().is_cancelled());
        assert!(!hold.end().await.unwrap());
        assert_eq!(store.claims().unwrap(), []);
    }

    #[tokio::test]
    async fn a_request_a_lost_claim_and_the_end_of_the_sweep_stop_the_job() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (canceller, cancel) = cancellation();

        let hold = held(&store, &cancel);
        store.ask_to_stop(store.claims().unwrap()[0].record.as_ref().unwrap()).unwrap();
        hold.cancel().cancelled().await;
        assert!(hold.end().await.unwrap());

        let hold = held(&store, &cancel);
        let path = dir.path().join("claims").join(format!("{}.json", Digest::of(b"{}").hex()));
        std::fs::remove_file(&path).unwrap();
        hold.progress().note(&What::ClientStarted);
        hold.cancel().cancelled().await;
        assert!(hold.end().await.unwrap());
        assert!(!path.exists(), "a lost claim is not written again");

        let hold = held(&store, &cancel);
        canceller.cancel();
        hold.cancel().cancelled().await;
        assert!(!hold.end().await.unwrap());
    }
}
