//! Claims by name: what `ps`, `stop` and `logs` are about. Knows no project: a claim says itself which arms it is for.

use super::error::Error;
use super::selection::is_hash;
use crate::config::similar::listed;
use crate::matrix::select::{is_glob, is_named};
use crate::store::{HeldClaim, Presence};

/// How many a message lists.
const SHOWN: usize = 8;

/// The claims that a word names: a job by `job:` or `sha256:` and the first digits of its hash, else arms.
///
/// # Errors
/// The end of several arm ids. A glob or a config key may name several.
pub fn named<'c>(claims: &'c [HeldClaim], word: &str) -> Result<Vec<&'c HeldClaim>, Error> {
    if is_hash(word) {
        let digits = word.split_once(':').map_or("", |(_, digits)| digits);
        return Ok(claims.iter().filter(|claim| claim.job.hex().starts_with(digits)).collect());
    }
    let by = |test: &dyn Fn(&str) -> bool| -> Vec<&'c HeldClaim> {
        claims.iter().filter(|claim| arms(claim).any(test)).collect()
    };
    let exact = by(&|id| id == word);
    if !exact.is_empty() {
        return Ok(exact);
    }
    let found = by(&|id| is_named(id, word));
    let of_a_key = found.iter().flat_map(|claim| arms(claim)).any(|id| id.split_once('/').is_some_and(|k| k.0 == word));
    if found.len() > 1 && !is_glob(word) && !of_a_key {
        let ids = listed(found.iter().flat_map(|claim| arms(claim)), SHOWN);
        return Err(Error::usage(format!("`{word}` is the end of {} running arms", found.len()))
            .hint(format!("write more of one of {ids}; a glob names all")));
    }
    Ok(found)
}

/// The arms that a claim is for.
pub fn arms(claim: &HeldClaim) -> impl Iterator<Item = &str> {
    claim.record.iter().flat_map(|record| record.work.arms.iter().map(|arm| arm.as_str()))
}

/// What to call a claim's job: its first arm, else its hash.
pub fn name(claim: &HeldClaim) -> String {
    arms(claim).next().map_or_else(|| claim.job.short(), str::to_owned)
}

/// The word for its owner's presence.
pub fn word(presence: Presence) -> &'static str {
    match presence {
        Presence::Alive => "alive",
        Presence::Dead => "dead",
        Presence::Elsewhere => "elsewhere",
    }
}
