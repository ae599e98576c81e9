//! Asks the package index and the hub for what is not pinned: one request a package, at most eight at a time.
//!
//! Knows addresses and statuses. What an answer means is `python`'s and `hub`'s business; nothing is written here.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use reqwest::{StatusCode, Url};

use super::apply::{Failure, Found};
use super::fetch::{Answer, FetchError, Fetcher, host};
use super::hub::{self, below};
use super::names::{HubKey, PackageKey};
use super::pip::Index;
use super::python::{self, Page, Refusal};
use super::update::{Name, Step, Then};
use super::wheel::normalize;

/// Requests at a time.
const AT_A_TIME: usize = 8;

/// Whom to ask, and how.
pub struct Sources {
    /// The package index.
    pub index: Index,
    /// The hub's URL.
    pub hub: String,
    /// The hub's access token; sent to the hub alone and shown nowhere.
    pub token: Option<String>,
    /// Whether files that were yanked are taken.
    pub allow_yanked: bool,
}

/// Answers by name.
pub type Answers = BTreeMap<Name, Result<Found, Failure>>;

/// A request and the names that its answer is for.
enum Ask<'s> {
    Package(String, Vec<&'s PackageKey>),
    Hub(&'s HubKey),
}

/// How many requests some steps take.
pub fn requests(steps: &[Step]) -> usize {
    asks(steps).len()
}

fn asks(steps: &[Step]) -> Vec<Ask<'_>> {
    let mut packages: BTreeMap<String, Vec<&PackageKey>> = BTreeMap::new();
    let mut asks = Vec::new();
    for step in steps.iter().filter(|step| step.then == Then::Ask) {
        match &step.name {
            Name::Package(key) => packages.entry(normalize(&key.name)).or_default().push(key),
            Name::Hub(key) => asks.push(Ask::Hub(key)),
            _ => {}
        }
    }
    asks.extend(packages.into_iter().map(|(name, keys)| Ask::Package(name, keys)));
    asks
}

/// Asks for everything that the steps ask for; `done` is called after each request. Opens no connection when nothing is
/// to be asked.
///
/// # Errors
/// No client can be made, such as on a machine without certificates. What is asked has its own failures.
pub async fn resolve(steps: &[Step], sources: &Sources, done: &dyn Fn()) -> Result<Answers, String> {
    let asks = asks(steps);
    if asks.is_empty() {
        return Ok(Answers::new());
    }
    let fetcher = Fetcher::new().map_err(crate::net::causes)?;
    let mut answers = Answers::new();
    let mut running = futures_util::stream::iter(asks)
        .map(|ask| async {
            match ask {
                Ask::Package(name, keys) => package(&fetcher, sources, &name, &keys).await,
                Ask::Hub(key) => vec![(Name::Hub(key.clone()), revision(&fetcher, sources, key).await)],
            }
        })
        .buffer_unordered(AT_A_TIME);
    while let Some(found) = running.next().await {
        answers.extend(found);
        done();
    }
    Ok(answers)
}

async fn package(
    fetcher: &Fetcher,
    sources: &Sources,
    name: &str,
    keys: &[&PackageKey],
) -> Vec<(Name, Result<Found, Failure>)> {
    let page = page(fetcher, sources, name).await;
    let wheel = |key: &PackageKey| {
        let page = page.as_ref().map_err(Clone::clone)?;
        match page.wheel(key, sources.allow_yanked) {
            Ok(wheel) => Ok(Found::Wheel(wheel)),
            Err(refusal) => {
                let fix = matches!(refusal, Refusal::Yanked { .. })
                    .then(|| "name another version, or pass --allow-yanked to lock it all the same".to_owned());
                Err(Failure { why: refusal.to_string(), fix, refused: true })
            }
        }
    };
    keys.iter().map(|key| (Name::Package((*key).clone()), wheel(key))).collect()
}

async fn page(fetcher: &Fetcher, sources: &Sources, name: &str) -> Result<Page, Failure> {
    let url = below(&sources.index.url, [name, ""])
        .map_err(|why| refused(format!("the index that {} names is no URL: {why}", sources.index.source)))?;
    let answer = fetcher.get(&url, python::ACCEPT, None).await.map_err(lost)?;
    match answer.status {
        StatusCode::OK if answer.kind.contains("json") => {
            Page::read(&answer.body).map_err(|refusal| refused(refusal.to_string()))
        }
        StatusCode::OK => Err(refused(format!(
            "{} answers with {}, not with the JSON form of the simple API (PEP 691)",
            host(&url),
            if answer.kind.is_empty() { "an unnamed type" } else { &answer.kind }
        ))),
        StatusCode::NOT_FOUND => Err(refused(format!("{} has no package {name}", host(&url)))),
        status => Err(denied(&url, status, "the index wants other credentials in its URL")),
    }
}

async fn revision(fetcher: &Fetcher, sources: &Sources, key: &HubKey) -> Result<Found, Failure> {
    let url = hub::address(&sources.hub, key).map_err(|why| refused(format!("HF_ENDPOINT is no URL: {why}")))?;
    let Answer { status, body, .. } =
        fetcher.get(&url, "application/json", sources.token.as_deref()).await.map_err(lost)?;
    match status {
        StatusCode::OK => hub::revision(&body).map(Found::Revision).map_err(|refusal| refused(refusal.to_string())),
        StatusCode::NOT_FOUND => Err(refused(format!("{} has no {key} with a branch main", host(&url)))),
        status => Err(denied(&url, status, "gated and private ones need HF_TOKEN, with access granted on the hub")),
    }
}

fn denied(url: &Url, status: StatusCode, fix: &str) -> Failure {
    let fix = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN).then(|| fix.to_owned());
    Failure { why: format!("{} answers {status}", host(url)), fix, refused: true }
}

fn refused(why: String) -> Failure {
    Failure { why, fix: None, refused: true }
}

fn lost(error: FetchError) -> Failure {
    let refused = matches!(error, FetchError::TooLarge { .. });
    Failure { why: error.to_string(), fix: None, refused }
}
