//! One request and its streamed response: what was sent, when what came, and what went wrong.

use std::borrow::Cow;
use std::time::Instant;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Token counts as the server gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the reply.
    pub completion_tokens: u64,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The HTTP status, or 499 when the client gave up; `None` without any.
    pub code: Option<u16>,
    /// A class of failures.
    pub kind: String,
    /// For people.
    pub message: String,
}

impl Failure {
    fn new(kind: &str, message: impl Into<String>) -> Self {
        Self { code: None, kind: kind.to_owned(), message: message.into() }
    }

    /// The client gave up.
    pub fn cancelled(message: &str) -> Self {
        Self { code: Some(499), ..Self::new("RequestCancellationError", message) }
    }
}

/// A request's course.
#[derive(Debug)]
pub struct Exchange {
    /// When it was sent.
    pub start: Instant,
    /// When the response's head was there.
    pub ack: Option<Instant>,
    /// When each chunk with content came.
    pub chunks: Vec<Instant>,
    /// When it was over.
    pub end: Instant,
    /// The tokens, or what went wrong.
    pub outcome: Result<Usage, Failure>,
}

impl Exchange {
    /// A request that has just been sent.
    pub fn begin() -> Self {
        let now = Instant::now();
        let unfinished = Failure::cancelled("the request was given up");
        Self { start: now, ack: None, chunks: Vec::new(), end: now, outcome: Err(unfinished) }
    }

    /// Follows the request to its end. Dropped before that, the exchange says that the client gave up.
    pub async fn follow(&mut self, request: reqwest::RequestBuilder) {
        self.outcome = self.receive(request).await;
        self.end = Instant::now();
    }

    async fn receive(&mut self, request: reqwest::RequestBuilder) -> Result<Usage, Failure> {
        let mut response = request.send().await.map_err(|error| network(&error))?;
        let status = response.status();
        if !status.is_success() {
            let reason = status.canonical_reason().unwrap_or("HTTP error");
            let message = response.text().await.unwrap_or_default();
            return Err(Failure { code: Some(status.as_u16()), ..Failure::new(reason, message) });
        }
        self.ack = Some(Instant::now());
        let mut events = Events::default();
        while let Some(bytes) = response.chunk().await.map_err(|error| network(&error))? {
            let now = Instant::now();
            for _ in 0..events.take(&bytes)? {
                self.chunks.push(now);
            }
        }
        events.finish()
    }
}

fn network(error: &reqwest::Error) -> Failure {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    Failure::new(if error.is_connect() { "ClientConnectorError" } else { "ClientPayloadError" }, message)
}

/// Reads server-sent events as they trickle in.
#[derive(Debug, Default)]
struct Events {
    rest: Vec<u8>,
    usage: Option<Usage>,
    done: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
}

impl Events {
    /// Takes some bytes; the number of complete chunks with content in them.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        self.rest.extend_from_slice(bytes);
        let mut with_content = 0;
        let mut from = 0;
        while let Some(length) = self.rest[from..].iter().position(|byte| *byte == b'\n') {
            let line = self.rest[from..from + length].trim_ascii();
            from += length + 1;
            let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { continue };
            if data == b"[DONE]" {
                self.done = true;
                continue;
            }
            let text = || String::from_utf8_lossy(data).into_owned();
            let chunk: Chunk<'_> = serde_json::from_slice(data)
                .map_err(|error| Failure::new("InvalidInferenceResultError", format!("{error}: {}", text())))?;
            if chunk.error.is_some() {
                return Err(Failure::new("SSEResponseError", text()));
            }
            self.usage = chunk.usage.or(self.usage);
            let filled = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|text| !text.is_empty());
            let delta = |choice: &Choice<'_>| filled(&choice.delta.content) || filled(&choice.delta.reasoning_content);
            with_content += usize::from(chunk.choices.iter().any(delta));
        }
        self.rest.drain(..from);
        Ok(with_content)
    }

    fn finish(self) -> Result<Usage, Failure> {
        if !self.done {
            return Err(Failure::new("ClientPayloadError", "the stream ended before [DONE]"));
        }
        self.usage
            .filter(|usage| usage.completion_tokens > 0)
            .ok_or_else(|| Failure::new("InvalidInferenceResultError", "the stream gave no usage"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"a\\n\"}}]}\n\n\
        : a comment\n\n\
        data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"b\"}}]}\r\n\r\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\n\
        data: [DONE]\n\n";

    #[test]
    fn events_are_read_however_they_are_cut() {
        for size in [1, 2, 7, 50, STREAM.len()] {
            let mut events = Events::default();
            let chunks: usize = STREAM.as_bytes().chunks(size).map(|part| events.take(part).unwrap()).sum();
            assert_eq!(chunks, 2, "cut every {size} bytes");
            assert_eq!(events.finish(), Ok(Usage { prompt_tokens: 3, completion_tokens: 2 }));
        }
    }

    #[test]
    fn a_stream_that_breaks_off_or_errs_is_a_failure() {
        let read = |text: &str| {
            let mut events = Events::default();
            events.take(text.as_bytes()).and_then(|_| events.finish()).unwrap_err()
        };
        assert!(read(&STREAM.replace("data: [DONE]", "")).message.contains("before [DONE]"));
        assert!(read("data: [DONE]\n").message.contains("no usage"));
        assert_eq!(read("data: {\"error\":{\"message\":\"x\"}}\n").kind, "SSEResponseError");
        assert_eq!(read("data: {oops\n").kind, "InvalidInferenceResultError");
    }
}
