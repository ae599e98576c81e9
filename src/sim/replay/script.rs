//! What the replay client says: generated conversations that look like an agent's, a few hundred times smaller.
//!
//! All conversations begin with one system prompt; every turn adds a message of the user and waits for a reply, which the
//! next turn repeats as recorded, not as received. Lengths, texts and think times follow from the seed and the
//! conversation's number alone, whatever the server does.
//!
//! | | uniform in |
//! |---|---|
//! | turns of a conversation | 3 – 8 |
//! | system prompt | 1024 tokens |
//! | user's message | 48 – 208 tokens |
//! | reply | 128 – 384 tokens |
//! | time from a response to the next request | 5 – 20 ms |

use std::time::Duration;

use super::settings::ReplaySettings;
use crate::sim::chat::TOKEN_BYTES;

const TURNS: std::ops::RangeInclusive<usize> = 3..=8;
const SYSTEM_TOKENS: u64 = 1024;
const USER_TOKENS: std::ops::RangeInclusive<u64> = 48..=208;
const REPLY_TOKENS: std::ops::RangeInclusive<u64> = 128..=384;
const THINK_US: std::ops::RangeInclusive<u64> = 5_000..=20_000;

/// One exchange of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The time from the response before to this request.
    pub think: Duration,
    /// What the user says.
    pub user: String,
    /// How long the reply is to be, tokens.
    pub reply_tokens: u64,
    /// The recorded reply.
    pub reply: String,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its name in the output.
    pub id: String,
    /// At least one.
    pub turns: Vec<Turn>,
}

/// Generates conversations.
#[derive(Debug, Clone)]
pub struct Script {
    seed: u64,
    entries: u64,
    prompt_scale: f64,
    reply_scale: f64,
    think_scale: f64,
    /// The system prompt of all conversations.
    pub system: String,
}

impl Script {
    /// A script of so many different conversations.
    pub fn new(seed: u64, entries: u64, settings: &ReplaySettings) -> Self {
        let system_tokens = scaled(SYSTEM_TOKENS, settings.prompt_token_scale);
        Self {
            seed,
            entries: entries.max(1),
            prompt_scale: settings.prompt_token_scale,
            reply_scale: settings.output_token_scale,
            think_scale: settings.think_time_scale,
            system: text(&mut dice(seed, u64::MAX), system_tokens),
        }
    }

    /// The conversation that a session plays; sessions beyond the entries repeat them.
    pub fn conversation(&self, session: u64) -> Conversation {
        let entry = session % self.entries;
        let mut dice = dice(self.seed, entry);
        let turns = (0..dice.usize(TURNS))
            .map(|_| {
                let think = dice.u64(THINK_US) as f64 * self.think_scale;
                let user_tokens = scaled(dice.u64(USER_TOKENS), self.prompt_scale);
                let reply_tokens = scaled(dice.u64(REPLY_TOKENS), self.reply_scale);
                Turn {
                    think: Duration::from_micros(think as u64),
                    user: text(&mut dice, user_tokens),
                    reply_tokens,
                    reply: text(&mut dice, reply_tokens),
                }
            })
            .collect();
        Conversation { id: format!("conversation_{entry:06}"), turns }
    }

    /// The turn with which one of the first sessions starts: within the given shares of its turns.
    pub fn first_turn(&self, session: u64, turns: usize, (low, high): (f64, f64)) -> usize {
        let share = low + dice(self.seed, !session).f64() * (high - low);
        ((share * turns as f64) as usize).min(turns.saturating_sub(1))
    }

    /// A stable identifier in the form of a random UUID.
    pub fn uuid(&self, session: u64, turn: usize) -> String {
        let mut dice = dice(self.seed ^ 0x5bd1_e995, session.wrapping_mul(1 << 16).wrapping_add(turn as u64));
        let bits = dice.u128(..) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}

fn scaled(tokens: u64, scale: f64) -> u64 {
    ((tokens as f64 * scale).round() as u64).max(1)
}

/// Independent dice for a part of the script.
fn dice(seed: u64, part: u64) -> fastrand::Rng {
    let mut mix = fastrand::Rng::with_seed(seed);
    fastrand::Rng::with_seed(mix.u64(..) ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Random words of three letters and a space: one token each.
fn text(dice: &mut fastrand::Rng, tokens: u64) -> String {
    let mut text = String::with_capacity(tokens as usize * TOKEN_BYTES);
    for _ in 0..tokens {
        let bits = dice.u32(..);
        text.extend([0, 8, 16].map(|shift| char::from(b'a' + (bits >> shift & 0xff) as u8 % 26)));
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(seed: u64) -> Script {
        Script::new(seed, 10, &ReplaySettings::default())
    }

    #[test]
    fn a_script_follows_from_its_seed() {
        assert_eq!(script(42).conversation(3), script(42).conversation(3));
        assert_eq!(script(42).system, script(42).system);
        assert_ne!(script(42).conversation(3), script(43).conversation(3));
        assert_ne!(script(42).conversation(3).turns, script(42).conversation(4).turns);
        assert_eq!(script(42).conversation(3), script(42).conversation(13), "ten entries repeat");
    }

    #[test]
    fn lengths_keep_the_stated_ranges_and_scale() {
        let scaled = Script::new(1, 100, &ReplaySettings { output_token_scale: 2.0, ..ReplaySettings::default() });
        for session in 0..100 {
            let conversation = script(1).conversation(session);
            assert!(TURNS.contains(&conversation.turns.len()));
            for turn in &conversation.turns {
                assert!(USER_TOKENS.contains(&(turn.user.len() as u64 / 4)) && turn.user.len() % 4 == 0);
                assert!(REPLY_TOKENS.contains(&turn.reply_tokens));
                assert_eq!(turn.reply.len() as u64, turn.reply_tokens * 4);
                assert!((5..=20).contains(&(turn.think.as_millis() as u64)));
            }
            assert!(scaled.conversation(session).turns.iter().all(|turn| (256..=768).contains(&turn.reply_tokens)));
        }
    }

    #[test]
    fn first_turns_lie_within_their_shares() {
        let turns: Vec<usize> = (0..200).map(|session| script(7).first_turn(session, 8, (0.25, 0.75))).collect();
        assert!(turns.iter().all(|turn| (2..6).contains(turn)), "{turns:?}");
        assert!((2..6).all(|turn| turns.contains(&turn)));
        assert_eq!(script(7).first_turn(0, 3, (1.0, 1.0)), 2, "there is no turn after the last");
    }

    #[test]
    fn identifiers_are_distinct_version_4_uuids() {
        let all: std::collections::BTreeSet<String> =
            (0..100).flat_map(|session| (0..8).map(move |turn| script(42).uuid(session, turn))).collect();
        assert_eq!(all.len(), 800);
        for id in all {
            assert_eq!(id.len(), 36);
            assert_eq!(&id[14..15], "4");
            assert!("89ab".contains(&id[19..20]), "{id}");
        }
    }
}
