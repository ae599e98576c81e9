//! The simulated engine: requests to data-parallel ranks, and the beat that keeps the ranks up with the clock.
//!
//! It plans each request when it comes in (prompt length, reply length, rank), hands it to its [`Rank`] and returns where
//! the reply will come from. Injected faults strike here. It knows the chat protocol's types, but no sockets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::acceptance::Acceptance;
use super::chat::{ChatRequest, Refusal, TOKEN_BYTES, token_count};
use super::counters::{Finish, Page, Snapshot};
use super::kv_transfer::KvTransfer;
use super::latency::{Law, Nanos};
use super::lock;
use super::prefix_cache::{PrefixCache, block_names};
use super::rank::{Delta, Job, Limits, Rank};
use super::settings::Settings;
use super::vllm_args::VllmArgs;

/// The engine.
#[derive(Debug)]
pub struct Engine {
    /// Its command line.
    pub args: VllmArgs,
    settings: Settings,
    started: Instant,
    state: Mutex<State>,
    work: Notify,
    ready: AtomicBool,
    crash: Notify,
}

#[derive(Debug)]
struct State {
    ranks: Vec<Rank>,
    dice: fastrand::Rng,
    received: u64,
    error_carry: f64,
}

/// A reply to come.
#[derive(Debug)]
pub struct Accepted {
    /// The request's number, from 1.
    pub number: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Parts of the reply, the last one with its reason.
    pub reply: UnboundedReceiver<Delta>,
}

impl Engine {
    /// An engine that is not ready yet.
    pub fn new(args: VllmArgs, settings: &Settings) -> Self {
        let law = Law::new(settings, args.tensor_parallel);
        let limits = Limits {
            sequences: args.max_num_seqs,
            block_size: args.block_size,
            blocks: settings.cache_blocks,
            prefill_interval: args.prefill_interval,
            prefill_chunk: settings.prefill_chunk_tokens,
            chunk: settings.chunk_ms * 1_000_000,
        };
        let mut dice = fastrand::Rng::with_seed(settings.seed);
        let shared = Arc::new(Mutex::new(PrefixCache::new(settings.store_blocks)));
        let ranks = (0..args.data_parallel)
            .map(|_| {
                let store = match &args.kv_transfer {
                    None => None,
                    Some(KvTransfer::SimpleCpuOffload { .. }) => {
                        Some(Arc::new(Mutex::new(PrefixCache::new(settings.store_blocks))))
                    }
                    Some(KvTransfer::Mooncake | KvTransfer::LmCache { .. }) => Some(Arc::clone(&shared)),
                };
                let drafts = args.speculative.map(|speculative| match speculative.synthetic_length {
                    Some(length) => Acceptance::synthetic(length + settings.acceptance_bias, speculative.tokens),
                    None => Acceptance::real(settings.real_acceptance, speculative.tokens, dice.u64(..)),
                });
                Rank::new(law, limits, store, drafts)
            })
            .collect();
        Self {
            args,
            settings: settings.clone(),
            started: Instant::now(),
            state: Mutex::new(State { ranks, dice, received: 0, error_carry: 0.0 }),
            work: Notify::new(),
            ready: AtomicBool::new(false),
            crash: Notify::new(),
        }
    }

    fn now(&self) -> Nanos {
        self.started.elapsed().as_nanos() as Nanos
    }

    /// Whether it takes requests.
    pub fn ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Takes requests once the start-up time is over; with the fault `never-ready`, never. Then keeps the ranks up with
    /// the clock. Does not return.
    pub async fn run(&self) {
        tokio::time::sleep(Duration::from_millis(self.settings.startup_ms)).await;
        self.ready.store(!self.settings.never_ready, Ordering::Relaxed);
        let tick = Duration::from_millis(self.settings.tick_ms);
        loop {
            self.work.notified().await;
            while self.advance() {
                tokio::time::sleep(tick).await;
            }
        }
    }

    /// Brings all ranks up to now; whether any has more to do.
    fn advance(&self) -> bool {
        let now = self.now();
        let mut state = lock(&self.state);
        state.ranks.iter_mut().for_each(|rank| rank.advance(now));
        state.ranks.iter().any(Rank::busy)
    }

    /// Returns when the injected crash strikes; the number of requests that came before it.
    pub async fn crashed(&self) -> u64 {
        self.crash.notified().await;
        lock(&self.state).received
    }

    /// Takes a request, for a given rank or the least loaded.
    ///
    /// # Errors
    /// The engine is not ready, has no such model or rank, the prompt is too long, or a fault is injected.
    pub fn submit(&self, request: &ChatRequest, rank: Option<usize>) -> Result<Accepted, Refusal> {
        if !self.ready() {
            return Err(Refusal::unavailable());
        }
        if request.model != self.args.served_model_name {
            return Err(Refusal::no_model(&request.model));
        }
        let prompt = request.prompt();
        let prompt_tokens = token_count(&prompt);
        let room = self.room(prompt_tokens, request.limit())?;
        let blocks = block_names(&prompt, self.args.block_size as usize * TOKEN_BYTES);
        let mut state = lock(&self.state);
        if let Some(rank) = rank.filter(|rank| *rank >= state.ranks.len()) {
            let ranks = state.ranks.len();
            return Err(Refusal::bad_request(format!("data parallel rank {rank} is out of range [0, {ranks})")));
        }
        self.strike(&mut state)?;
        let (reply_tokens, finish) = self.plan_reply(request, room, &mut state.dice);
        let (sender, reply) = unbounded_channel();
        let job = Job { arrival: self.now(), prompt_tokens, blocks, reply_tokens, finish, reply: sender };
        let index = rank.unwrap_or_else(|| least_loaded(&state));
        if let Some(rank) = state.ranks.get_mut(index) {
            rank.submit(job);
        }
        self.work.notify_one();
        Ok(Accepted { number: state.received, prompt_tokens, reply })
    }

    /// The most tokens that the reply may have.
    fn room(&self, prompt_tokens: u64, limit: Option<u64>) -> Result<u64, Refusal> {
        let most = self.args.max_model_len;
        let wanted = prompt_tokens.saturating_add(limit.unwrap_or(1));
        if wanted > most {
            return Err(Refusal::bad_request(format!(
                "This model's maximum context length is {most} tokens. However, you requested {wanted} tokens \
                 ({prompt_tokens} in the messages, {} in the completion). Please reduce the length of the messages or \
                 completion.",
                limit.unwrap_or(1)
            )));
        }
        Ok(limit.unwrap_or(most - prompt_tokens))
    }

    /// Counts a request and injects the faults that are due.
    fn strike(&self, state: &mut State) -> Result<(), Refusal> {
        if self.settings.crash_after_requests.is_some_and(|most| state.received >= most) {
            self.crash.notify_one();
            return Err(Refusal::unavailable());
        }
        state.received += 1;
        state.error_carry += self.settings.error_rate;
        if state.error_carry >= 1.0 {
            state.error_carry -= 1.0;
            if let Some(rank) = state.ranks.first_mut() {
                rank.counters.finished(Finish::Error);
            }
            return Err(Refusal::internal("injected by the setting error-rate"));
        }
        Ok(())
    }

    /// The length of the reply and what ends it: the limit, or the model, between half and one and a half of the mean.
    fn plan_reply(&self, request: &ChatRequest, room: u64, dice: &mut fastrand::Rng) -> (u64, Finish) {
        if request.ignore_eos {
            return (room, Finish::Length);
        }
        let mean = self.settings.reply_tokens;
        let natural = dice.u64(mean.div_ceil(2)..=mean + mean / 2).max(request.min_tokens);
        if natural < room { (natural, Finish::Stop) } else { (room, Finish::Length) }
    }

    /// The `/metrics` page.
    pub fn metrics(&self) -> String {
        let state = lock(&self.state);
        let snapshot = |rank| {
            let rank: &Rank = rank;
            Snapshot { counters: &rank.counters, running: rank.running(), waiting: rank.waiting(), usage: rank.usage() }
        };
        Page {
            model: &self.args.served_model_name,
            block_size: self.args.block_size,
            blocks: self.settings.cache_blocks,
            ranks: state.ranks.iter().map(snapshot).collect(),
        }
        .render()
    }
}

/// A waiting request weighs four running ones, as in vLLM's own balancing; ties go round.
fn least_loaded(state: &State) -> usize {
    let count = state.ranks.len();
    let first = state.received as usize % count.max(1);
    (0..count)
        .map(|offset| (first + offset) % count)
        .min_by_key(|index| state.ranks.get(*index).map_or(0, |rank| rank.waiting() * 4 + rank.running()))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn engine(more: &[&str], settings: &Settings) -> Engine {
        let words = "m --served-model-name m --host h --port 1 --max-num-seqs 4 --max-model-len 1000 --block-size 16 \
                     --tensor-parallel-size 1 --data-parallel-size 4";
        let argv: Vec<String> = words.split_whitespace().chain(more.iter().copied()).map(str::to_owned).collect();
        let engine = Engine::new(VllmArgs::parse(&argv).unwrap(), settings);
        engine.ready.store(true, Ordering::Relaxed);
        engine
    }

    fn request(more: &serde_json::Value) -> ChatRequest {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hello there"}]});
        more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        ChatRequest::parse(body.to_string().as_bytes()).unwrap()
    }

    fn loads(engine: &Engine) -> Vec<usize> {
        lock(&engine.state).ranks.iter().map(Rank::waiting).collect()
    }

    #[test]
    fn a_named_rank_gets_its_requests_and_others_spread_evenly() {
        let engine = engine(&[], &Settings::default());
        let request = request(&json!({}));
        let mut keep: Vec<_> = (0..3).map(|_| engine.submit(&request, Some(2)).unwrap()).collect();
        assert_eq!(loads(&engine), [0, 0, 3, 0]);
        keep.extend((0..9).map(|_| engine.submit(&request, None).unwrap()));
        assert_eq!(loads(&engine), [3, 3, 3, 3]);
        assert_eq!(engine.submit(&request, Some(4)).unwrap_err().status, 400);
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_the_protocols_status() {
        let engine = engine(&[], &Settings::default());
        assert_eq!(engine.submit(&request(&json!({"model": "other"})), None).unwrap_err().status, 404);
        let long = request(&json!({"messages": [{"role": "user", "content": "x".repeat(4000)}]}));
        let refusal = engine.submit(&long, None).unwrap_err();
        assert!(refusal.status == 400 && refusal.message.contains("maximum context length is 1000"), "{refusal:?}");
        let greedy = request(&json!({"max_tokens": 996}));
        assert_eq!(engine.submit(&greedy, None).unwrap_err().status, 400);
        engine.ready.store(false, Ordering::Relaxed);
        assert_eq!(engine.submit(&request(&json!({})), None).unwrap_err().status, 503);
    }

    #[test]
    fn replies_end_where_the_request_says() {
        let engine = engine(&[], &Settings { reply_tokens: 100, ..Settings::default() });
        let mut dice = fastrand::Rng::with_seed(1);
        let mut plan = |more, room| engine.plan_reply(&request(&more), room, &mut dice);
        assert_eq!(plan(json!({"ignore_eos": true, "max_tokens": 70}), 70), (70, Finish::Length));
        for _ in 0..50 {
            let (tokens, finish) = plan(json!({}), 900);
            assert!((50..=150).contains(&tokens) && finish == Finish::Stop, "{tokens}");
            assert_eq!(plan(json!({"max_tokens": 40}), 40), (40, Finish::Length));
            assert_eq!(plan(json!({"min_tokens": 200}), 900), (200, Finish::Stop));
        }
    }

    #[test]
    fn errors_are_injected_at_exactly_the_rate() {
        let engine = engine(&[], &Settings { error_rate: 0.25, ..Settings::default() });
        let request = request(&json!({}));
        let failed = (0..40).filter(|_| engine.submit(&request, None).is_err()).count();
        assert_eq!(failed, 10);
        assert!(engine.metrics().contains("finished_reason=\"error\"} 10"));
    }

    #[tokio::test]
    async fn the_crash_comes_with_the_request_after_so_many() {
        let engine = engine(&[], &Settings { crash_after_requests: Some(2), ..Settings::default() });
        let request = request(&json!({}));
        let _keep = [engine.submit(&request, None).unwrap(), engine.submit(&request, None).unwrap()];
        assert!(engine.submit(&request, None).is_err());
        assert_eq!(tokio::time::timeout(Duration::from_secs(5), engine.crashed()).await, Ok(2));
    }
}
