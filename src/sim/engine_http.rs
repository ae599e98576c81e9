//! The engine's sockets: `/v1/chat/completions`, `/v1/models`, `/health`, `/metrics`, as vLLM serves them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use super::chat::{ChatRequest, Refusal, ReplyWriter};
use super::counters::Finish;
use super::engine::Engine;
use super::rank::Delta;
use super::settings::Settings;
use super::vllm_args::VllmArgs;
use super::{Environment, Log, SimError, Stop, http};

/// The header by which a router names the data-parallel rank.
pub(super) const RANK_HEADER: &str = "x-data-parallel-rank";

/// Plays `vllm serve` until it is stopped.
pub(super) async fn serve(
    args: VllmArgs,
    settings: &Settings,
    environment: Environment<'_>,
    stop: Stop,
    log: Log,
) -> Result<(), SimError> {
    // Held while the engine runs: the store sees its client.
    let _store = match &args.kv_transfer {
        Some(transfer) => transfer.connect(environment).await?,
        None => None,
    };
    let listener = http::bind(&args.host, args.port).await?;
    let address = http::address(&listener);
    for rank in 0..args.data_parallel {
        let tokens = settings.cache_blocks as u64 * args.block_size;
        log.line(&format!("(EngineCore_DP{rank}) INFO GPU KV cache size: {} tokens", thousands(tokens)));
    }
    log.line(&format!("(APIServer) INFO serving {} from {} on {address}", args.served_model_name, args.model_path));
    let engine = Arc::new(Engine::new(args, settings));
    let router = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(&engine));
    let drain = Duration::from_millis(settings.drain_ms);
    tokio::select! {
        served = http::serve(listener, router, stop, drain) => {
            log.line("(APIServer) INFO stopped");
            served.map_err(|source| SimError::Bind { address, source })
        }
        requests = engine.crashed() => Err(SimError::Crashed(requests)),
        () = engine.run() => Ok(()),
    }
}

/// `1,048,576`, as vLLM logs it.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(header::CONTENT_TYPE, "application/json")], self.body()).into_response()
    }
}

async fn chat(State(engine): State<Arc<Engine>>, headers: HeaderMap, body: Bytes) -> Result<Response, Refusal> {
    let request = ChatRequest::parse(&body)?;
    let rank = headers
        .get(RANK_HEADER)
        .map(|value| value.to_str().ok().and_then(|text| text.parse::<usize>().ok()))
        .map(|rank| rank.ok_or_else(|| Refusal::bad_request(format!("{RANK_HEADER} is not a number"))))
        .transpose()?;
    let accepted = engine.submit(&request, rank)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let id = format!("chatcmpl-{:032x}", accepted.number);
    let writer = ReplyWriter::new(id, &request.model, now, accepted.prompt_tokens);
    if request.stream {
        let body = streamed(accepted.reply, writer, request.include_usage());
        return Ok(([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response());
    }
    let (tokens, finish) = whole(accepted.reply).await?;
    let mut writer = writer;
    Ok(([(header::CONTENT_TYPE, "application/json")], writer.whole(tokens, finish)).into_response())
}

/// Waits for the end of a reply.
async fn whole(mut reply: UnboundedReceiver<Delta>) -> Result<(u64, Finish), Refusal> {
    let mut tokens = 0;
    while let Some(delta) = reply.recv().await {
        tokens += delta.tokens;
        if let Some(finish) = delta.finish {
            return Ok((tokens, finish));
        }
    }
    Err(Refusal::internal("the engine dropped the request"))
}

/// A body of server-sent events. After the first, parts that wait together leave together.
fn streamed(reply: UnboundedReceiver<Delta>, writer: ReplyWriter, include_usage: bool) -> Body {
    Body::from_stream(stream::unfold(Some((reply, writer)), move |state| async move {
        let (mut reply, mut writer) = state?;
        let Delta { mut tokens, mut finish } = reply.recv().await?;
        while writer.started()
            && finish.is_none()
            && let Ok(more) = reply.try_recv()
        {
            tokens += more.tokens;
            finish = more.finish;
        }
        let text = writer.chunk(tokens, finish, include_usage);
        let rest = finish.is_none().then_some((reply, writer));
        Some((Ok::<_, Infallible>(Bytes::from(text)), rest))
    }))
}

async fn models(State(engine): State<Arc<Engine>>) -> Response {
    let args = &engine.args;
    let model = json!({
        "id": args.served_model_name, "object": "model", "created": 0, "owned_by": "vllm", "root": args.model_path,
        "parent": null, "max_model_len": args.max_model_len,
    });
    axum::Json(json!({"object": "list", "data": [model]})).into_response()
}

async fn health(State(engine): State<Arc<Engine>>) -> StatusCode {
    if engine.ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn metrics(State(engine): State<Arc<Engine>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], engine.metrics()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, want) in [(7, "7"), (131_072, "131,072"), (1_048_576, "1,048,576")] {
            assert_eq!(thousands(number), want);
        }
    }
}
