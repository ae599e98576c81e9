//! The signal that stops jobs: set once, seen by every holder. It does not know what sets it (Ctrl-C, SIGTERM, a test).

use tokio::sync::watch;

/// Sets the signal. Dropping it without setting it leaves the jobs running.
#[derive(Debug, Clone)]
pub struct Canceller(watch::Sender<bool>);

/// Sees the signal.
#[derive(Debug, Clone)]
pub struct Cancel(watch::Receiver<bool>);

/// A signal, not set.
pub fn cancellation() -> (Canceller, Cancel) {
    let (sender, receiver) = watch::channel(false);
    (Canceller(sender), Cancel(receiver))
}

impl Canceller {
    /// Sets it, for good.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it is set.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }
}

impl Cancel {
    /// Whether it is set.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves once it is set; never if it never is.
    pub async fn cancelled(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|set| *set).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_seen_by_every_holder_before_and_after() {
        let (canceller, cancel) = cancellation();
        let other = cancel.clone();
        assert!(!cancel.is_cancelled());
        let waiting = tokio::spawn(async move { other.cancelled().await });
        canceller.cancel();
        waiting.await.unwrap();
        drop(canceller);
        assert!(cancel.is_cancelled());
        cancel.cancelled().await;
    }
}
