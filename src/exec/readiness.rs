//! When a service counts as ready. Whether it is still alive, and how long to wait, is the caller's affair.

use std::time::Duration;

use crate::spec::Probe;

/// How long one question may take: a busy server that accepts and does not answer is asked again.
const ANSWER: Duration = Duration::from_secs(10);

/// A client for questions to services of this job: no proxy stands between.
///
/// # Errors
/// The client cannot be built.
pub fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    crate::net::local().timeout(ANSWER).redirect(reqwest::redirect::Policy::none()).build()
}

/// Resolves when the probe holds. `base` is the URL of the probed endpoint. A probe for the process's own end never
/// resolves here: its end is seen elsewhere.
pub async fn ready(probe: &Probe, base: Option<&str>, http: &reqwest::Client, poll: Duration) {
    match (probe, base) {
        (Probe::AliveAfter { ms }, _) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        (Probe::Http { path, .. }, Some(base)) => {
            let url = format!("{base}/{}", path.trim_start_matches('/'));
            loop {
                let answer = http.get(&url).send().await;
                if answer.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
                tokio::time::sleep(poll).await;
            }
        }
        (Probe::Exit {}, _) | (Probe::Http { .. }, None) => std::future::pending().await,
    }
}
