//! One data-parallel rank: its queue, its batch, its caches, and its clock.
//!
//! The rank lives in simulated time. [`Rank::advance`] plays all steps that end by a given instant, however late it is
//! called, so a busy machine delays chunks but not the simulated engine. Steps follow [`super::latency`], drafts
//! [`super::acceptance`]. Replies leave as [`Delta`]s; a reader that went away aborts its request.
//! It knows no HTTP and no real clock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;

use super::acceptance::Acceptance;
use super::counters::{Counters, Finish};
use super::latency::{Law, Nanos};
use super::lock;
use super::prefix_cache::{BlockName, PrefixCache};

/// Part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta {
    /// New tokens, at least one.
    pub tokens: u64,
    /// Set on the last part.
    pub finish: Option<Finish>,
}

/// A request as the engine has planned it.
#[derive(Debug)]
pub struct Job {
    /// When it came in.
    pub arrival: Nanos,
    /// Tokens of its prompt, at least one.
    pub prompt_tokens: u64,
    /// The names of the prompt's full blocks.
    pub blocks: Vec<BlockName>,
    /// Tokens of its reply, at least one.
    pub reply_tokens: u64,
    /// Why the reply will end.
    pub finish: Finish,
    /// Where the reply goes.
    pub reply: UnboundedSender<Delta>,
}

/// Limits of a rank.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Sequences in the batch.
    pub sequences: usize,
    /// Tokens in a KV block.
    pub block_size: u64,
    /// KV blocks.
    pub blocks: usize,
    /// Steps from one chance to prefill to the next while sequences decode.
    pub prefill_interval: u64,
    /// Prompt tokens that one step may prefill.
    pub prefill_chunk: u64,
    /// The least time between two chunks of one stream.
    pub chunk: Nanos,
}

#[derive(Debug)]
struct Sequence {
    job: Job,
    /// Prompt tokens still to compute.
    to_compute: u64,
    /// Prompt tokens still to load from the store.
    to_load: u64,
    produced: u64,
    sent: u64,
    last_sent: Nanos,
    done: bool,
}

impl Sequence {
    fn decodes(&self) -> bool {
        self.produced > 0
    }

    /// Hands a part of the reply on; whoever stopped reading does not need it.
    fn send(&mut self, tokens: u64, finish: Option<Finish>) {
        let _ = self.job.reply.send(Delta { tokens, finish });
        self.sent += tokens;
    }
}

/// A rank.
#[derive(Debug)]
pub struct Rank {
    law: Law,
    limits: Limits,
    now: Nanos,
    steps: u64,
    waiting: VecDeque<Job>,
    running: Vec<Sequence>,
    /// Complete replies whose end is still to be sent.
    leaving: Vec<Sequence>,
    cache: PrefixCache,
    store: Option<Arc<Mutex<PrefixCache>>>,
    drafts: Option<Acceptance>,
    /// What it counted.
    pub counters: Counters,
}

impl Rank {
    /// An idle rank. `store` holds blocks beyond the GPU, perhaps shared with other ranks.
    pub fn new(law: Law, limits: Limits, store: Option<Arc<Mutex<PrefixCache>>>, drafts: Option<Acceptance>) -> Self {
        Self {
            law,
            limits,
            now: 0,
            steps: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            leaving: Vec::new(),
            cache: PrefixCache::new(limits.blocks),
            store,
            counters: Counters::new(drafts.as_ref().map_or(0, Acceptance::drafted)),
            drafts,
        }
    }

    /// Queues a request.
    pub fn submit(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Requests in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The share of KV blocks that the batch holds now, 0 to 1.
    pub fn usage(&self) -> f64 {
        let held: u64 = self.running.iter().map(|one| self.blocks_for(one.job.prompt_tokens + one.produced)).sum();
        (held as f64 / self.limits.blocks as f64).min(1.0)
    }

    fn blocks_for(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.limits.block_size)
    }

    /// Plays all steps that end by `until`.
    pub fn advance(&mut self, until: Nanos) {
        loop {
            if self.running.is_empty() {
                match self.waiting.front() {
                    // An idle rank starts with the request, not when it fell idle.
                    Some(first) if first.arrival < until => self.now = self.now.max(first.arrival),
                    _ => break,
                }
            }
            self.admit();
            if self.running.is_empty() {
                continue;
            }
            let (decoding, share) = self.plan();
            let (computed, loaded) = share.iter().fold((0, 0), |sum, part| (sum.0 + part.1, sum.1 + part.2));
            let end = self.now + self.law.step(decoding, computed, loaded);
            if end > until {
                break;
            }
            self.now = end;
            self.steps += 1;
            self.apply(&share);
        }
        self.send_parts();
    }

    /// Takes requests from the queue into the batch, in order, while there is room. A request larger than all blocks
    /// runs alone.
    fn admit(&mut self) {
        let mut reserved: u64 =
            self.running.iter().map(|one| self.blocks_for(one.job.prompt_tokens + one.job.reply_tokens)).sum();
        while self.running.len() < self.limits.sequences
            && let Some(job) = self.waiting.pop_front_if(|job| job.arrival <= self.now)
        {
            if job.reply.is_closed() {
                self.counters.finished(Finish::Abort);
                continue;
            }
            let need = self.blocks_for(job.prompt_tokens + job.reply_tokens);
            if reserved + need > self.limits.blocks as u64 && !self.running.is_empty() {
                self.waiting.push_front(job);
                break;
            }
            reserved += need;
            self.start(job);
        }
    }

    /// Looks the prompt up: in the GPU's blocks, and what is not there in the store. The last token is always computed.
    fn start(&mut self, job: Job) {
        let usable = ((job.prompt_tokens - 1) / self.limits.block_size) as usize;
        let names = &job.blocks[..usable.min(job.blocks.len())];
        let on_gpu = self.cache.matched(names);
        let hits = on_gpu as u64 * self.limits.block_size;
        let mut loaded = 0;
        self.counters.looked_up(job.prompt_tokens, hits);
        if let Some(store) = &self.store {
            let mut store = lock(store);
            loaded = store.matched(names).saturating_sub(on_gpu) as u64 * self.limits.block_size;
            self.counters.store_looked_up(job.prompt_tokens - hits, loaded);
        }
        self.counters.queued(self.now - job.arrival);
        self.running.push(Sequence {
            to_compute: job.prompt_tokens - hits - loaded,
            to_load: loaded,
            produced: 0,
            sent: 0,
            last_sent: 0,
            done: false,
            job,
        });
    }

    /// What the next step does: how many sequences decode, and (index, computed, loaded) of the prompts it works on.
    fn plan(&self) -> (usize, Vec<(usize, u64, u64)>) {
        let decoding = self.running.iter().filter(|one| one.decodes()).count();
        let mut share = Vec::new();
        if decoding == 0 || self.steps.is_multiple_of(self.limits.prefill_interval) {
            let mut left = self.limits.prefill_chunk;
            for (index, one) in self.running.iter().enumerate().filter(|(_, one)| !one.decodes()) {
                if left == 0 {
                    break;
                }
                let computed = one.to_compute.min(left);
                left -= computed;
                share.push((index, computed, one.to_load));
            }
        }
        (decoding, share)
    }

    /// The end of a step: tokens for the decoding, progress for the prompts.
    fn apply(&mut self, share: &[(usize, u64, u64)]) {
        for index in 0..self.running.len() {
            if !self.running[index].decodes() {
                continue;
            }
            let mut tokens = 1;
            if let Some(drafts) = &mut self.drafts {
                let accepted = drafts.draft();
                self.counters.drafted(drafts.drafted(), accepted);
                tokens += accepted;
            }
            self.produce(index, tokens);
        }
        for &(index, computed, loaded) in share {
            let one = &mut self.running[index];
            one.to_compute -= computed;
            one.to_load -= loaded;
            if one.to_compute == 0 {
                self.cache.insert(&one.job.blocks);
                if let Some(store) = &self.store {
                    lock(store).insert(&one.job.blocks);
                }
                self.counters.first_token(one.job.prompt_tokens, self.now - one.job.arrival);
                self.produce(index, 1);
            }
        }
        self.leaving.extend(self.running.extract_if(.., |one| one.done));
    }

    /// Adds tokens to a reply, up to its end.
    fn produce(&mut self, index: usize, tokens: u64) {
        let one = &mut self.running[index];
        let tokens = tokens.min(one.job.reply_tokens - one.produced);
        one.produced += tokens;
        self.counters.generated(tokens);
        if one.produced == one.job.reply_tokens {
            one.done = true;
            // Counted before the reader can see the end, so that a scrape after it includes it.
            let gone = one.job.reply.is_closed();
            self.counters.ended(if gone { Finish::Abort } else { one.job.finish }, self.now - one.job.arrival);
        }
    }

    /// Sends the tokens that are due, and drops the requests that nobody reads any more. A first token and an end never
    /// leave in one call: however late it comes, the reader sees them apart.
    fn send_parts(&mut self) {
        self.leaving.retain_mut(|one| {
            if one.sent == 0 && one.produced > 1 {
                one.send(1, None);
                return true;
            }
            one.send(one.produced - one.sent, Some(one.job.finish));
            false
        });
        let (now, chunk) = (self.now, self.limits.chunk);
        self.running.retain_mut(|one| {
            if one.job.reply.is_closed() {
                self.counters.finished(Finish::Abort);
                return false;
            }
            let due = one.sent == 0 || now - one.last_sent >= chunk;
            if one.produced > one.sent && due {
                one.send(one.produced - one.sent, None);
                one.last_sent = now;
            }
            true
        });
    }

    /// Whether there is anything to do.
    pub fn busy(&self) -> bool {
        !(self.running.is_empty() && self.waiting.is_empty() && self.leaving.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::super::prefix_cache::block_names;
    use super::super::settings::Settings;
    use super::*;

    const MS: Nanos = 1_000_000;

    fn limits() -> Limits {
        Limits { sequences: 4, block_size: 4, blocks: 64, prefill_interval: 1, prefill_chunk: 100, chunk: 0 }
    }

    /// A rank whose step is 1 ms + 0.1 ms a sequence + 1 ms a computed prompt token.
    fn rank(limits: Limits, drafts: Option<Acceptance>) -> Rank {
        let settings = Settings {
            step_us: 1000,
            sequence_us: 100,
            prefill_tokens_per_s: 1000,
            load_tokens_per_s: 10_000,
            ..Settings::default()
        };
        Rank::new(Law::new(&settings, 1), limits, None, drafts)
    }

    fn job(arrival: Nanos, prompt: &str, reply_tokens: u64) -> (Job, UnboundedReceiver<Delta>) {
        let (reply, receiver) = unbounded_channel();
        let blocks = block_names(prompt.as_bytes(), 4);
        let prompt_tokens = prompt.len() as u64;
        (Job { arrival, prompt_tokens, blocks, reply_tokens, finish: Finish::Length, reply }, receiver)
    }

    fn drain(receiver: &mut UnboundedReceiver<Delta>) -> (u64, Option<Finish>) {
        let mut sum = (0, None);
        while let Ok(delta) = receiver.try_recv() {
            sum = (sum.0 + delta.tokens, delta.finish);
        }
        sum
    }

    #[test]
    fn a_lone_request_takes_what_the_law_says() {
        let mut rank = rank(limits(), None);
        let (job, mut reply) = job(5 * MS, "aaaabbbbcc", 3);
        rank.submit(job);
        // Prefill: 1 ms + 10 tokens of 1 ms; then two steps of 1.1 ms.
        rank.advance(16 * MS - 1);
        assert_eq!(drain(&mut reply), (0, None));
        rank.advance(16 * MS);
        assert_eq!(drain(&mut reply), (1, None));
        rank.advance(16 * MS + 2_200_000 - 1);
        assert_eq!(drain(&mut reply), (1, None));
        rank.advance(16 * MS + 2_200_000);
        assert_eq!(drain(&mut reply), (1, Some(Finish::Length)));
        assert!(!rank.busy());
    }

    #[test]
    fn one_late_call_plays_the_same_as_many_early_ones() {
        let totals = |instants: &[Nanos]| {
            let mut rank = rank(limits(), Some(Acceptance::synthetic(2.49, 3)));
            let (jobs, mut replies): (Vec<_>, Vec<_>) =
                (0..9).map(|index| job(index * 3 * MS, &"ab".repeat(index as usize % 5 + 1), 7 + index)).unzip();
            jobs.into_iter().for_each(|job| rank.submit(job));
            instants.iter().for_each(|instant| rank.advance(*instant));
            rank.advance(399 * MS);
            let got: Vec<_> = replies.iter_mut().map(drain).collect();
            (got, rank.now, rank.steps, rank.counters.drafts)
        };
        let often: Vec<Nanos> = (0..400).map(|tick| tick * MS).collect();
        assert_eq!(totals(&often), totals(&[399 * MS]));
    }

    #[test]
    fn a_second_request_with_the_same_prefix_prefills_only_the_rest() {
        let mut rank = rank(limits(), None);
        let (first, _reply) = job(0, "aaaabbbbcc", 1);
        rank.submit(first);
        rank.advance(100 * MS);
        let (second, mut reply) = job(100 * MS, "aaaabbbbdd", 1);
        rank.submit(second);
        rank.advance(103 * MS);
        assert_eq!(drain(&mut reply), (1, Some(Finish::Length)), "two tokens of ten are new: 3 ms");
        assert_eq!((rank.counters.prefix_queries, rank.counters.prefix_hits), (20, 8));
        // Even a prompt that is cached whole computes its last token, that is, its last block.
        let (third, mut reply) = job(200 * MS, "aaaabbbb", 1);
        rank.submit(third);
        rank.advance(205 * MS);
        assert_eq!(drain(&mut reply).0, 1);
        assert_eq!(rank.counters.prefix_hits, 12);
    }

    #[test]
    fn the_store_serves_what_another_rank_computed() {
        let store = Arc::new(Mutex::new(PrefixCache::new(100)));
        let settings =
            Settings { step_us: 1000, prefill_tokens_per_s: 1000, load_tokens_per_s: 8000, ..Settings::default() };
        let build = || Rank::new(Law::new(&settings, 1), limits(), Some(Arc::clone(&store)), None);
        let (mut one, mut other) = (build(), build());
        let (first, _reply) = job(0, "aaaabbbbcc", 1);
        one.submit(first);
        one.advance(100 * MS);
        let (second, mut reply) = job(0, "aaaabbbbcc", 1);
        other.submit(second);
        other.advance(4 * MS);
        assert_eq!(drain(&mut reply).0, 1, "1 ms + 2 computed + 8 loaded in 1 ms");
        assert_eq!((other.counters.store_queries, other.counters.store_hits), (10, 8));
        assert_eq!((one.counters.store_queries, one.counters.store_hits), (10, 0));
    }

    #[test]
    fn beyond_the_batch_limit_requests_wait_their_turn() {
        let mut rank = rank(Limits { sequences: 2, ..limits() }, None);
        let (jobs, mut replies): (Vec<_>, Vec<_>) = (0..3).map(|_| job(0, "a", 10)).unzip();
        jobs.into_iter().for_each(|job| rank.submit(job));
        rank.advance(8 * MS);
        assert_eq!((rank.running(), rank.waiting()), (2, 1));
        assert_eq!(drain(&mut replies[2]).0, 0);
        rank.advance(100 * MS);
        rank.advance(100 * MS);
        assert!(replies.iter_mut().skip(2).all(|reply| drain(reply) == (10, Some(Finish::Length))));
    }

    #[test]
    fn blocks_limit_the_batch_too_but_a_giant_runs_alone() {
        let mut rank = rank(Limits { blocks: 4, ..limits() }, None);
        let (jobs, _replies): (Vec<_>, Vec<_>) = [8, 8, 40].map(|reply| job(0, "aaaa", reply)).into_iter().unzip();
        jobs.into_iter().for_each(|job| rank.submit(job));
        rank.advance(6 * MS);
        assert_eq!((rank.running(), rank.waiting()), (1, 2));
        assert!(rank.usage() > 0.0 && rank.usage() <= 1.0);
        rank.advance(200 * MS);
        assert_eq!((rank.running(), rank.waiting()), (0, 0));
    }

    #[test]
    fn while_others_decode_prefill_waits_for_its_interval() {
        let first_token = |prefill_interval| {
            let mut rank = rank(Limits { prefill_interval, blocks: 1000, ..limits() }, None);
            let (long, _keep) = job(0, "a", 1000);
            rank.submit(long);
            rank.advance(3 * MS);
            let (late, mut reply) = job(3 * MS, "a", 1);
            rank.submit(late);
            (3..200).find(|ms| {
                rank.advance(ms * MS);
                drain(&mut reply).0 > 0
            })
        };
        // Of steps 0, 1, 2 … the late one may join step 2, or step 16.
        assert!(first_token(1).unwrap() <= 7);
        assert!((18..=22).contains(&first_token(16).unwrap()), "{:?}", first_token(16));
    }

    #[test]
    fn drafts_multiply_tokens_and_count_even_past_the_end_of_a_reply() {
        let mut rank = rank(limits(), Some(Acceptance::synthetic(3.0, 3)));
        let (job, mut reply) = job(0, "a", 6);
        rank.submit(job);
        rank.advance(100 * MS);
        assert_eq!(drain(&mut reply), (1, None), "the first token stands alone even when all is late");
        rank.advance(100 * MS);
        // 1 from the prefill, then 3 and 2 of 3.
        assert_eq!(drain(&mut reply), (5, Some(Finish::Length)));
        assert!(!rank.busy());
        let counters = &rank.counters;
        assert_eq!((counters.drafts, counters.draft_tokens, counters.accepted), (2, 6, 4));
        assert_eq!(counters.accepted_at, [2, 2, 0]);
        assert_eq!(counters.generation_tokens, 6);
    }

    #[test]
    fn chunks_keep_their_distance_but_the_first_and_last_are_sent_at_once() {
        let mut rank = rank(Limits { chunk: 20 * MS, ..limits() }, None);
        let (job, mut reply) = job(0, "a", 31);
        rank.submit(job);
        let mut instants = Vec::new();
        for ms in 0..50 {
            rank.advance(ms * MS);
            if drain(&mut reply).0 > 0 {
                instants.push(ms);
            }
        }
        assert_eq!(instants, [2, 23, 35]);
    }

    #[test]
    fn a_request_that_nobody_reads_is_aborted_and_frees_its_place() {
        let mut rank = rank(Limits { sequences: 1, ..limits() }, None);
        let (gone, reply) = job(0, "a", 1000);
        let (next, mut next_reply) = job(0, "a", 1);
        rank.submit(gone);
        rank.submit(next);
        rank.advance(10 * MS);
        drop(reply);
        rank.advance(20 * MS);
        rank.advance(30 * MS);
        assert_eq!(drain(&mut next_reply).0, 1);
        assert_eq!(rank.counters.finish_count(Finish::Abort), 1);
        assert_eq!(rank.counters.finish_count(Finish::Length), 1);
    }
}
