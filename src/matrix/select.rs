//! Arms by name: an exact id, a config key, a glob over ids (`*` crosses `/`), or a unique suffix of one.

use std::collections::BTreeSet;

use wildmatch::WildMatch;

use super::arm::Arm;
use crate::config::similar::{closest, listed};

/// How many ids an error lists.
const SHOWN: usize = 8;

/// A pattern that selects no arm, or too many.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// Nothing has this name.
    #[error("no arm or config key `{pattern}`")]
    NoSuchArm {
        /// As asked for.
        pattern: String,
        /// What comes near.
        hint: String,
    },
    /// A glob without a match.
    #[error("no arm matches `{glob}`")]
    NoMatch {
        /// As asked for.
        glob: String,
        /// What there is.
        hint: String,
    },
    /// A name of several arms where one is needed; a suffix of several ids anywhere.
    #[error("`{suffix}` names {count} arms")]
    Ambiguous {
        /// As asked for.
        suffix: String,
        /// How many.
        count: usize,
        /// Which.
        hint: String,
    },
}

impl SelectError {
    /// The fix.
    pub fn hint(&self) -> &str {
        match self {
            Self::NoSuchArm { hint, .. } | Self::NoMatch { hint, .. } | Self::Ambiguous { hint, .. } => hint,
        }
    }
}

/// The arms that the patterns name, each once, in the order of `arms`.
///
/// # Errors
/// The first pattern that names none, or that is the end of several ids.
pub fn select<'a>(arms: &'a [Arm], patterns: &[String]) -> Result<Vec<&'a Arm>, SelectError> {
    let mut chosen = vec![false; arms.len()];
    for pattern in patterns {
        for index in matches(arms, pattern)? {
            chosen[index] = true;
        }
    }
    Ok(arms.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(arm, _)| arm).collect())
}

/// The one arm that a pattern names.
///
/// # Errors
/// A pattern that names none or several.
pub fn select_one<'a>(arms: &'a [Arm], pattern: &str) -> Result<&'a Arm, SelectError> {
    let found = matches(arms, pattern)?;
    match found[..] {
        [index] => Ok(&arms[index]),
        _ => Err(ambiguous(arms, pattern, &found)),
    }
}

/// Whether an id is what a pattern names: as a whole, by its config key, by a glob, or by its end.
pub fn is_named(id: &str, pattern: &str) -> bool {
    id == pattern
        || id.split_once('/').is_some_and(|(key, _)| key == pattern)
        || (is_glob(pattern) && WildMatch::new(pattern).matches(id))
        || is_suffix(id, pattern)
}

/// Whether a pattern is a glob, which may name several arms.
pub fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// Exact ids win over keys, keys over globs, globs over suffixes.
fn matches(arms: &[Arm], pattern: &str) -> Result<Vec<usize>, SelectError> {
    let indices = |test: &dyn Fn(&Arm) -> bool| -> Vec<usize> {
        arms.iter().enumerate().filter(|(_, arm)| test(arm)).map(|(index, _)| index).collect()
    };
    let exact = indices(&|arm| arm.id.as_str() == pattern);
    if !exact.is_empty() {
        return Ok(exact);
    }
    let key = indices(&|arm| *arm.row.entry.key.0 == *pattern);
    if !key.is_empty() {
        return Ok(key);
    }
    if is_glob(pattern) {
        let glob = WildMatch::new(pattern);
        let found = indices(&|arm| glob.matches(arm.id.as_str()));
        return if found.is_empty() { Err(no_match(arms, pattern)) } else { Ok(found) };
    }
    let suffix = indices(&|arm| is_suffix(arm.id.as_str(), pattern));
    match suffix.len() {
        0 => Err(no_such(arms, pattern)),
        1 => Ok(suffix),
        _ => Err(ambiguous(arms, pattern, &suffix)),
    }
}

/// A suffix starts at a whole part of the id: `c1` is no end of `…-c11`, nor `1` of `…-c1`.
fn is_suffix(id: &str, pattern: &str) -> bool {
    let before = id.strip_suffix(pattern).filter(|_| !pattern.is_empty());
    before.is_some_and(|before| pattern.starts_with(['-', '/', '@']) || before.ends_with(['-', '/', '@']))
}

fn ambiguous(arms: &[Arm], pattern: &str, found: &[usize]) -> SelectError {
    let ids = listed(found.iter().map(|index| arms[*index].id.as_str()), SHOWN);
    let (suffix, count) = (pattern.to_owned(), found.len());
    SelectError::Ambiguous { suffix, count, hint: format!("write more of one of {ids}") }
}

fn no_match(arms: &[Arm], glob: &str) -> SelectError {
    SelectError::NoMatch { glob: glob.to_owned(), hint: format!("`*` crosses `/`; {}", keys(arms)) }
}

fn no_such(arms: &[Arm], pattern: &str) -> SelectError {
    // A slip in the part that was written: compare with the ends of ids that have as many parts.
    let parts = pattern.matches(['-', '/']).count();
    let end = |id: &'_ str| id.rmatch_indices(['-', '/']).nth(parts).map_or(0, |(at, _)| at + 1);
    let ends: BTreeSet<&str> =
        arms.iter().flat_map(|arm| [&arm.id.as_str()[end(arm.id.as_str())..], &*arm.row.entry.key.0]).collect();
    let hint = match closest(pattern, ends) {
        Some(near) => format!("did you mean `{near}`?"),
        None => keys(arms),
    };
    SelectError::NoSuchArm { pattern: pattern.to_owned(), hint }
}

fn keys(arms: &[Arm]) -> String {
    let mut keys: Vec<&str> = Vec::new();
    for arm in arms {
        if keys.last() != Some(&&*arm.row.entry.key.0) {
            keys.push(&arm.row.entry.key.0);
        }
    }
    keys.dedup();
    format!("the config keys: {}", listed(keys, SHOWN))
}

#[cfg(test)]
mod tests {
    use super::super::tests::committed_arms;
    use super::*;

    fn ids(patterns: &[&str]) -> Result<Vec<String>, String> {
        let arms = committed_arms();
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        match select(&arms, &patterns) {
            Ok(arms) => Ok(arms.iter().map(|arm| arm.id.to_string()).collect()),
            Err(error) => Err(format!("{error} ({})", error.hint())),
        }
    }

    #[test]
    fn names_select_in_matrix_order() {
        let all = |pattern| ids(&[pattern]).unwrap().len();
        assert_eq!(all("dsv4-fp4-b200-vllm-agentic"), 40);
        assert_eq!(all("dsv4-fp4-b200-vllm-agentic-mtp"), 28);
        assert_eq!(all("*mooncake*"), 18);
        assert_eq!(all("*-c1"), 2);
        assert_eq!(
            ids(&["tp8-ep8-dpa-mooncake-mtp-c12", "dsv4-fp4-b200-vllm-agentic/agentic/tp8-lmcache-c8"]).unwrap(),
            [
                "dsv4-fp4-b200-vllm-agentic/agentic/tp8-lmcache-c8",
                "dsv4-fp4-b200-vllm-agentic-mtp/agentic/tp8-ep8-dpa-mooncake-mtp-c12"
            ]
        );
    }

    #[test]
    fn slips_get_the_near_name() {
        for (pattern, said) in [
            ("tp8-lmcache-c9", "no arm or config key `tp8-lmcache-c9` (did you mean `tp8-lmcache-c8`?)"),
            (
                "dsv4-fp4-b200-vllm-agentic-mpt",
                "no arm or config key `dsv4-fp4-b200-vllm-agentic-mpt` (did you mean `dsv4-fp4-b200-vllm-agentic-mtp`?)",
            ),
            (
                "zzz*",
                "no arm matches `zzz*` (`*` crosses `/`; the config keys: `dsv4-fp4-b200-vllm-agentic`, `dsv4-fp4-b200-vllm-agentic-mtp`)",
            ),
            (
                "",
                "no arm or config key `` (the config keys: `dsv4-fp4-b200-vllm-agentic`, `dsv4-fp4-b200-vllm-agentic-mtp`)",
            ),
        ] {
            assert_eq!(ids(&[pattern]).unwrap_err(), said);
        }
        let said = ids(&["c1"]).unwrap_err();
        assert!(said.starts_with("`c1` names 2 arms (write more of one of `dsv4"), "{said}");
    }

    #[test]
    fn one_is_one() {
        let arms = committed_arms();
        assert_eq!(select_one(&arms, "tp8-resident-mtp-c1").unwrap().conc, 1);
        assert!(matches!(select_one(&arms, "*-c1"), Err(SelectError::Ambiguous { count: 2, .. })));
    }
}
