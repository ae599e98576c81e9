//! A model or data set of the hub → the commit that its main branch points at. Pure; `resolve` does the asking.

use reqwest::Url;
use serde::Deserialize;

use super::names::HubKey;

/// The hub, unless `HF_ENDPOINT` names another one.
pub const DEFAULT: &str = "https://huggingface.co";

/// Why an answer gives no revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The body is something else.
    #[error("the hub's answer has no commit: {0}")]
    NoCommit(String),
}

/// `{endpoint}/api/models/{id}/revision/main`, or the same below `datasets`.
///
/// # Errors
/// An endpoint that is no http URL.
pub fn address(endpoint: &str, key: &HubKey) -> Result<Url, String> {
    let words = ["api", key.kind()].into_iter().chain(key.id.split('/')).chain(["revision", "main"]);
    below(endpoint, words)
}

/// A URL below a base, its last slash or none.
pub(super) fn below<'w>(base: &str, words: impl IntoIterator<Item = &'w str>) -> Result<Url, String> {
    let mut url = Url::parse(base).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("its scheme is `{}`, not https or http", url.scheme()));
    }
    match url.path_segments_mut() {
        Ok(mut path) => path.pop_if_empty().extend(words),
        Err(()) => return Err("it takes no path".to_owned()),
    };
    Ok(url)
}

/// The commit in an answer.
///
/// # Errors
/// None stands there.
pub fn revision(body: &[u8]) -> Result<String, Refusal> {
    #[derive(Deserialize)]
    struct Answer {
        sha: String,
    }
    let answer: Answer = serde_json::from_slice(body).map_err(|error| Refusal::NoCommit(error.to_string()))?;
    let digits = answer.sha.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match answer.sha.len() {
        40 | 64 if digits => Ok(answer.sha),
        _ => Err(Refusal::NoCommit(format!("`sha` is `{}`", answer.sha))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_hubs_api() {
        let model = HubKey::model("deepseek-ai/DeepSeek-V4-Pro");
        let url = |endpoint: &str, key: &HubKey| address(endpoint, key).map(|url| url.to_string());
        let want = "http://127.0.0.1:1/mirror/api/models/deepseek-ai/DeepSeek-V4-Pro/revision/main";
        assert_eq!(url("http://127.0.0.1:1/mirror", &model).as_deref(), Ok(want));
        assert_eq!(url("http://127.0.0.1:1/mirror/", &model).as_deref(), Ok(want));
        let old = url("http://h", &HubKey::dataset("squad?a"));
        assert_eq!(old.as_deref(), Ok("http://h/api/datasets/squad%3Fa/revision/main"));
        assert!(url("ftp://h", &model).is_err() && url("hub", &model).is_err());
    }

    #[test]
    fn only_a_commit_is_a_revision() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(revision(format!("{{\"id\": \"a\", \"sha\": \"{sha}\"}}").as_bytes()).as_deref(), Ok(sha));
        for body in ["", "{}", "{\"sha\": null}", "{\"sha\": \"main\"}", "<html>"] {
            assert!(revision(body.as_bytes()).is_err(), "{body}");
        }
    }
}
