//! The OpenAI chat protocol as vLLM speaks it: requests in, replies, chunks and errors out.
//!
//! There is no tokenizer: a prompt is its messages' roles and texts, a token is four bytes of it. A reply is filler of
//! exactly four bytes a token. Both sides of a rehearsal count alike that way.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::counters::Finish;

/// Bytes that make a token.
pub const TOKEN_BYTES: usize = 4;

/// A request body. Fields beyond these are taken and ignored, as vLLM does.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    /// The served model.
    pub model: String,
    messages: Vec<Message>,
    /// Whether the reply comes in chunks.
    #[serde(default)]
    pub stream: bool,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    /// The reply does not end by itself before so many tokens.
    #[serde(default)]
    pub min_tokens: u64,
    /// The reply does not end by itself at all.
    #[serde(default)]
    pub ignore_eos: bool,
    n: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
    tool_calls: Option<Json>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text { text: String },
}

/// A refusal, with its HTTP status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// OpenAI's error type.
    pub kind: &'static str,
    /// For people.
    pub message: String,
}

impl Refusal {
    /// The request is at fault.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { status: 400, kind: "BadRequestError", message: message.into() }
    }

    /// No such model here.
    pub fn no_model(model: &str) -> Self {
        let message = format!("The model `{model}` does not exist.");
        Self { status: 404, kind: "NotFoundError", message }
    }

    /// The engine is at fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { status: 500, kind: "InternalServerError", message: message.into() }
    }

    /// The engine is not there yet.
    pub fn unavailable() -> Self {
        Self { status: 503, kind: "ServiceUnavailableError", message: "the engine is not ready".to_owned() }
    }

    /// The response body.
    pub fn body(&self) -> String {
        json!({"error": {"message": self.message, "type": self.kind, "param": null, "code": self.status}}).to_string()
    }
}

impl ChatRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// It is not such a request, or its values contradict each other.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let request: Self =
            serde_json::from_slice(body).map_err(|error| Refusal::bad_request(format!("invalid body: {error}")))?;
        if request.messages.is_empty() {
            return Err(Refusal::bad_request("messages must not be empty"));
        }
        if request.limit() == Some(0) {
            return Err(Refusal::bad_request("max_tokens must be at least 1, got 0."));
        }
        if let Some(limit) = request.limit()
            && request.min_tokens > limit
        {
            let least = request.min_tokens;
            return Err(Refusal::bad_request(format!(
                "min_tokens must be less than or equal to max_tokens={limit}, got {least}."
            )));
        }
        if request.n.is_some_and(|n| n != 1) {
            return Err(Refusal::bad_request("n must be 1"));
        }
        if request.stream_options.is_some() && !request.stream {
            return Err(Refusal::bad_request("Stream options can only be defined when `stream=True`."));
        }
        Ok(request)
    }

    /// The most tokens of the reply, where the client says so.
    pub fn limit(&self) -> Option<u64> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    /// Whether a last chunk gives the usage.
    pub fn include_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// The prompt as bytes: equal leading messages give equal leading bytes.
    pub fn prompt(&self) -> Vec<u8> {
        let mut prompt = Vec::new();
        for message in &self.messages {
            prompt.extend_from_slice(message.role.as_bytes());
            prompt.push(b'\n');
            match &message.content {
                Some(Content::Text(text)) => prompt.extend_from_slice(text.as_bytes()),
                Some(Content::Parts(parts)) => {
                    for Part::Text { text } in parts {
                        prompt.extend_from_slice(text.as_bytes());
                    }
                }
                None => {}
            }
            if let Some(calls) = &message.tool_calls {
                prompt.extend_from_slice(calls.to_string().as_bytes());
            }
            prompt.push(b'\n');
        }
        prompt
    }
}

/// Tokens of a prompt, at least one.
pub fn token_count(prompt: &[u8]) -> u64 {
    prompt.len().div_ceil(TOKEN_BYTES).max(1) as u64
}

/// Writes the replies to one request.
#[derive(Debug, Clone)]
pub struct ReplyWriter {
    id: String,
    model: String,
    created: u64,
    prompt_tokens: u64,
    sent_tokens: u64,
}

/// What replies consist of; ASCII that needs no escaping in JSON.
const FILLER: &str = "one two, six ten, all set, and so it is now, for all to see. Yes. ";

fn filler(tokens: u64) -> String {
    let length = tokens as usize * TOKEN_BYTES;
    let mut text = FILLER.repeat(length / FILLER.len() + 1);
    text.truncate(length);
    text
}

impl ReplyWriter {
    /// For a request with this id, to this model, at this time (s since 1970), with so long a prompt.
    pub fn new(id: String, model: &str, created: u64, prompt_tokens: u64) -> Self {
        let quoted = Json::from(model).to_string();
        Self { id, model: quoted, created, prompt_tokens, sent_tokens: 0 }
    }

    /// Whether a part of the reply has been written.
    pub fn started(&self) -> bool {
        self.sent_tokens > 0
    }

    fn usage(&self) -> String {
        let (prompt, reply) = (self.prompt_tokens, self.sent_tokens);
        let total = prompt + reply;
        format!(
            r#"{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{reply},"prompt_tokens_details":null}}"#
        )
    }

    fn event(&self, choices: &str, more: &str) -> String {
        let Self { id, model, created, .. } = self;
        format!(
            "data: {{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},\
             \"choices\":[{choices}]{more}}}\n\n"
        )
    }

    /// The server-sent events for some more tokens; with the end of the reply when that is reached.
    pub fn chunk(&mut self, tokens: u64, finish: Option<Finish>, include_usage: bool) -> String {
        let mut out = String::new();
        if self.sent_tokens == 0 {
            let role = r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}"#;
            out.push_str(&self.event(role, ""));
        }
        self.sent_tokens += tokens;
        let reason = finish.map_or_else(|| "null".to_owned(), |finish| format!("\"{}\"", finish.name()));
        let text = filler(tokens);
        let choice =
            format!(r#"{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":{reason}}}"#);
        out.push_str(&self.event(&choice, ""));
        if finish.is_some() {
            if include_usage {
                out.push_str(&self.event("", &format!(",\"usage\":{}", self.usage())));
            }
            out.push_str("data: [DONE]\n\n");
        }
        out
    }

    /// The whole reply as one JSON document.
    pub fn whole(&mut self, tokens: u64, finish: Finish) -> String {
        self.sent_tokens = tokens;
        let (text, reason, usage) = (filler(tokens), finish.name(), self.usage());
        let Self { id, model, created, .. } = self;
        format!(
            "{{\"id\":\"{id}\",\"object\":\"chat.completion\",\"created\":{created},\"model\":{model},\"choices\":\
             [{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\"tool_calls\":[]}},\
             \"logprobs\":null,\"finish_reason\":\"{reason}\",\"stop_reason\":null}}],\"usage\":{usage}}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: Json) -> Result<ChatRequest, Refusal> {
        ChatRequest::parse(body.to_string().as_bytes())
    }

    fn events(text: &str) -> Vec<Json> {
        text.split_terminator("\n\n")
            .map(|event| event.strip_prefix("data: ").unwrap())
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    #[test]
    fn equal_leading_messages_give_equal_leading_bytes_in_either_form_of_content() {
        let plain = parse(json!({"model": "m", "messages": [{"role": "system", "content": "be brief"}]})).unwrap();
        let longer = parse(json!({"model": "m", "messages": [
            {"role": "system", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
            {"role": "user", "content": "hello"}], "temperature": 1.0}))
        .unwrap();
        assert!(longer.prompt().starts_with(&plain.prompt()));
        assert_eq!(plain.prompt(), b"system\nbe brief\n");
        assert_eq!(token_count(&plain.prompt()), 4);
    }

    #[test]
    fn faulty_requests_are_told_what_is_wrong() {
        let messages = json!([{"role": "user", "content": "x"}]);
        for (body, why) in [
            (json!({"messages": messages}), "missing field `model`"),
            (json!({"model": "m"}), "missing field `messages`"),
            (json!({"model": "m", "messages": []}), "messages must not be empty"),
            (json!({"model": "m", "messages": messages, "max_tokens": 0}), "max_tokens must be at least 1"),
            (json!({"model": "m", "messages": messages, "max_tokens": -1}), "invalid value"),
            (json!({"model": "m", "messages": messages, "max_tokens": 3, "min_tokens": 4}), "min_tokens"),
            (json!({"model": "m", "messages": messages, "n": 2}), "n must be 1"),
            (json!({"model": "m", "messages": messages, "stream_options": {"include_usage": true}}), "Stream options"),
        ] {
            let refusal = parse(body.clone()).unwrap_err();
            assert!(refusal.status == 400 && refusal.message.contains(why), "{body}: {refusal:?}");
        }
    }

    #[test]
    fn the_newer_name_of_the_limit_wins() {
        let messages = json!([{"role": "user", "content": "x"}]);
        let both = json!({"model": "m", "messages": messages, "max_tokens": 3, "max_completion_tokens": 5});
        assert_eq!(parse(both).unwrap().limit(), Some(5));
    }

    #[test]
    fn a_stream_carries_role_text_reason_usage_and_end() {
        let mut writer = ReplyWriter::new("chatcmpl-1".to_owned(), "org/\"m\"", 7, 10);
        let mut text = writer.chunk(3, None, true);
        text.push_str(&writer.chunk(2, Some(Finish::Length), true));
        assert!(text.ends_with("data: [DONE]\n\n"));
        let events = events(&text);
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(events[0]["model"], "org/\"m\"");
        let reply: String =
            events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(reply.len(), 5 * TOKEN_BYTES);
        assert_eq!(events[2]["choices"][0]["finish_reason"], "length");
        let usage =
            json!({"prompt_tokens": 10, "total_tokens": 15, "completion_tokens": 5, "prompt_tokens_details": null});
        assert_eq!(events[3]["usage"], usage);
        assert_eq!(events[3]["choices"], json!([]));
    }

    #[test]
    fn a_whole_reply_is_one_document() {
        let mut writer = ReplyWriter::new("chatcmpl-1".to_owned(), "m", 7, 10);
        let reply: Json = serde_json::from_str(&writer.whole(9, Finish::Stop)).unwrap();
        assert_eq!(reply["choices"][0]["message"]["content"].as_str().unwrap().len(), 9 * TOKEN_BYTES);
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
        assert_eq!(reply["usage"]["completion_tokens"], 9);
    }

    #[test]
    fn errors_have_the_protocols_shape() {
        let body: Json = serde_json::from_str(&Refusal::no_model("x").body()).unwrap();
        let want = json!({"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "param": null, "code": 404}});
        assert_eq!(body, want);
    }
}
