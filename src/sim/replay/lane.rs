//! One of the concurrent sessions' places: it plays session after session, one turn at a time.
//!
//! Lane l of C plays the sessions l, l + C, l + 2C, …; so who plays what does not depend on speed. A lane survives the
//! change of phase with its session, whose cached prefix is what the warm-up is for.

use std::time::Duration;

use serde_json::Value as Json;

use super::args::ReplayArgs;
use super::record::Identity;
use super::script::{Conversation, Script, Turn};

/// A lane.
#[derive(Debug)]
pub struct Lane {
    index: usize,
    lanes: usize,
    session: u64,
    conversation: Conversation,
    turn: usize,
    correlation_id: String,
    /// The messages so far, JSON, without the closing bracket.
    messages: String,
}

/// The next thing that a lane says.
#[derive(Debug)]
pub struct Prompt {
    /// The time from the response before.
    pub think: Duration,
    /// The request's body.
    pub body: String,
    /// Which request it is.
    pub identity: Identity,
}

impl Lane {
    /// A lane at a random turn of its first session, as the command line bounds it.
    pub fn new(index: usize, args: &ReplayArgs, script: &Script) -> Self {
        let session = index as u64;
        let mut lane = Self {
            index,
            lanes: args.concurrency,
            session,
            conversation: script.conversation(session),
            turn: 0,
            correlation_id: String::new(),
            messages: String::new(),
        };
        lane.begin(session, script);
        for _ in 0..script.first_turn(session, lane.conversation.turns.len(), args.start) {
            lane.pass();
        }
        lane
    }

    fn begin(&mut self, session: u64, script: &Script) {
        self.session = session;
        self.conversation = script.conversation(session);
        self.turn = 0;
        // Turns are numbered from 0; this number is none of them.
        self.correlation_id = script.uuid(session, usize::from(u16::MAX));
        self.messages = format!("[{}", message("system", &script.system));
    }

    fn current(&self) -> Option<&Turn> {
        self.conversation.turns.get(self.turn)
    }

    /// The next request of the session.
    pub fn prompt(&self, model: &str, script: &Script) -> Option<Prompt> {
        let turn = self.current()?;
        let (tokens, model) = (turn.reply_tokens, Json::from(model));
        let body = format!(
            "{{\"messages\":{},{}],\"model\":{model},\"stream\":true,\"max_completion_tokens\":{tokens},\
             \"ignore_eos\":true,\"stream_options\":{{\"include_usage\":true}}}}",
            self.messages,
            message("user", &turn.user),
        );
        let identity = Identity {
            session: self.session,
            request_id: script.uuid(self.session, self.turn),
            correlation_id: self.correlation_id.clone(),
            conversation: self.conversation.id.clone(),
            turn: self.turn,
            lane: self.index,
            requested_tokens: tokens,
        };
        Some(Prompt { think: turn.think, body, identity })
    }

    /// The turn is over. True when the session was, too, and the next one has begun.
    pub fn advance(&mut self, script: &Script) -> bool {
        self.pass();
        if self.current().is_some() {
            return false;
        }
        self.begin(self.session + self.lanes as u64, script);
        true
    }

    /// Adds the turn to the history.
    fn pass(&mut self) {
        if let Some(turn) = self.conversation.turns.get(self.turn) {
            let (user, reply) = (message("user", &turn.user), message("assistant", &turn.reply));
            self.messages.push_str(&format!(",{user},{reply}"));
            self.turn += 1;
        }
    }
}

fn message(role: &str, text: &str) -> String {
    format!("{{\"role\":\"{role}\",\"content\":{}}}", Json::from(text))
}

#[cfg(test)]
mod tests {
    use super::super::args::tests::line;
    use super::super::settings::ReplaySettings;
    use super::*;
    use crate::sim::chat::ChatRequest;

    fn setting() -> (ReplayArgs, Script) {
        let args = ReplayArgs::parse(&line(&[])).unwrap();
        let script = Script::new(args.seed, args.entries, &ReplaySettings::default());
        (args, script)
    }

    fn prompt_bytes(lane: &Lane, script: &Script) -> Vec<u8> {
        ChatRequest::parse(lane.prompt("org/m", script).unwrap().body.as_bytes()).unwrap().prompt()
    }

    #[test]
    fn each_turn_extends_the_prompt_of_the_one_before() {
        let (args, script) = setting();
        let mut lane = Lane::new(3, &args, &script);
        let mut before = prompt_bytes(&lane, &script);
        while !lane.advance(&script) {
            let now = prompt_bytes(&lane, &script);
            assert!(now.starts_with(&before) && now.len() > before.len());
            before = now;
        }
        let system = script.system.len();
        assert!(prompt_bytes(&lane, &script).starts_with(&before[..system]), "sessions share the system prompt");
    }

    #[test]
    fn lanes_share_out_the_sessions() {
        let (args, script) = setting();
        let mut lane = Lane::new(5, &args, &script);
        let first = lane.prompt("m", &script).unwrap().identity;
        assert_eq!((first.session, first.lane), (5, 5));
        while !lane.advance(&script) {}
        let next = lane.prompt("m", &script).unwrap().identity;
        assert_eq!((next.session, next.turn), (17, 0));
        assert_ne!(next.correlation_id, first.correlation_id);
    }

    #[test]
    fn requests_ask_for_the_recorded_length_whatever_the_model_would_do() {
        let (args, script) = setting();
        let prompt = Lane::new(0, &args, &script).prompt("org/\"m\"", &script).unwrap();
        let request = ChatRequest::parse(prompt.body.as_bytes()).unwrap();
        assert_eq!(request.model, "org/\"m\"");
        assert!(request.stream && request.include_usage() && request.ignore_eos);
        assert_eq!(request.limit(), Some(prompt.identity.requested_tokens));
    }
}
