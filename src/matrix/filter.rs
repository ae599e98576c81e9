//! Which entries, scenarios, runners and concurrencies of the matrix are asked for.
//!
//! There are two modes. A whole sweep filters entries by their properties and clips concurrencies; a selection by keys
//! names its entries and keeps listed concurrencies. Knows no command line: `cli::filters` builds a [`Filter`].

use wildmatch::WildMatch;

use crate::config::master::MasterEntry;
use crate::config::runners::Runners;
use crate::config::search_row::Concurrency;
use crate::config::similar::{closest, listed};
pub use crate::config::topology::ScenarioType;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// Everything that passes.
    Sweep(Sweep),
    /// The entries that are named.
    Keys(Keys),
}

/// What both modes can restrict. Empty lists restrict nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Common {
    /// Sequence lengths of fixed rows, by name: `1k1k`, `8k1k`. Agentic rows pass.
    pub seq_lens: Vec<String>,
    /// Kinds of scenario.
    pub scenarios: Vec<ScenarioType>,
    /// The runner becomes each of its nodes whose name contains this.
    pub runner_node: Option<String>,
}

/// Filters of a whole sweep. Empty lists and absent bounds restrict nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// What both modes can restrict.
    pub common: Common,
    /// The key starts with one of these.
    pub model_prefix: Vec<String>,
    /// The precision is one of these.
    pub precision: Vec<String>,
    /// The framework is one of these.
    pub framework: Vec<String>,
    /// The runner label is one of these known labels.
    pub runner_type: Vec<String>,
    /// Single-node entries. Neither flag is both.
    pub single_node: bool,
    /// Multi-node entries.
    pub multi_node: bool,
    /// The factor of concurrency ranges, at least 2.
    pub step_size: u32,
    /// The least concurrency. 0 and below skip fixed rows.
    pub min_conc: Option<i64>,
    /// The greatest concurrency. 0 and below skip fixed rows.
    pub max_conc: Option<i64>,
    /// The greatest tp of single-node fixed rows; rows above are skipped.
    pub max_tp: Option<i64>,
    /// The greatest ep of single-node fixed rows; greater ones become it.
    pub max_ep: Option<i64>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            common: Common::default(),
            model_prefix: Vec::new(),
            precision: Vec::new(),
            framework: Vec::new(),
            runner_type: Vec::new(),
            single_node: false,
            multi_node: false,
            step_size: RANGE_FACTOR,
            min_conc: None,
            max_conc: None,
            max_tp: None,
            max_ep: None,
        }
    }
}

/// A selection by keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// What both modes can restrict.
    pub common: Common,
    /// Keys, or globs with `*` and `?`.
    pub keys: Vec<String>,
    /// The concurrencies to keep; absent keeps all.
    pub conc: Option<Vec<i64>>,
}

/// A range doubles unless a sweep says otherwise.
pub const RANGE_FACTOR: u32 = 2;

/// A selection that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A key that is in no master file.
    #[error("no config key `{key}`")]
    NoSuchKey {
        /// As asked for.
        key: String,
        /// The nearest key, or a list.
        hint: String,
    },
    /// A glob that matches no key.
    #[error("no config key matches `{glob}`")]
    NoMatch {
        /// As asked for.
        glob: String,
        /// The keys that there are.
        hint: String,
    },
    /// A runner type that is no label of the runners file.
    #[error("no runner label `{label}`")]
    NoSuchRunner {
        /// As asked for.
        label: String,
        /// The nearest label, or a list.
        hint: String,
    },
}

impl FilterError {
    /// The fix.
    pub fn hint(&self) -> &str {
        match self {
            Self::NoSuchKey { hint, .. } | Self::NoMatch { hint, .. } | Self::NoSuchRunner { hint, .. } => hint,
        }
    }
}

/// The nearest word, and all of them.
fn words<'w>(word: &str, kind: &str, all: impl Iterator<Item = &'w str> + Clone) -> String {
    let near = closest(word, all.clone()).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    format!("{near}the {kind}: {}", listed(all, usize::MAX))
}

impl Filter {
    /// What both modes can restrict.
    pub fn common(&self) -> &Common {
        match self {
            Filter::Sweep(sweep) => &sweep.common,
            Filter::Keys(keys) => &keys.common,
        }
    }

    /// The factor of concurrency ranges.
    pub(super) fn step_size(&self) -> u32 {
        match self {
            Filter::Sweep(sweep) => sweep.step_size.max(RANGE_FACTOR),
            Filter::Keys(_) => RANGE_FACTOR,
        }
    }

    /// The entries asked for: in file order in a sweep, in the order of first mention by keys.
    pub(super) fn entries<'e>(
        &self,
        entries: &'e [MasterEntry],
        runners: &Runners,
    ) -> Result<Vec<&'e MasterEntry>, FilterError> {
        match self {
            Filter::Sweep(sweep) => {
                if let Some(label) = sweep.runner_type.iter().find(|label| runners.nodes(label).is_none()) {
                    let hint = words(label, "labels", runners.labels().collect::<Vec<_>>().into_iter());
                    return Err(FilterError::NoSuchRunner { label: label.clone(), hint });
                }
                Ok(entries.iter().filter(|entry| sweep.passes(entry)).collect())
            }
            Filter::Keys(keys) => keys.entries(entries),
        }
    }

    /// The values of a row's `runner`: the label, or what the node filter makes of it.
    pub(super) fn runners(&self, label: &str, runners: &Runners) -> Vec<String> {
        let Some(text) = &self.common().runner_node else { return vec![label.to_owned()] };
        let nodes = runners.nodes(label).unwrap_or_default().iter().map(String::as_str);
        let label = matches!(self, Filter::Keys(_)).then_some(label);
        label.into_iter().chain(nodes).filter(|name| name.contains(text.as_str())).map(str::to_owned).collect()
    }
}

impl Sweep {
    fn passes(&self, entry: &MasterEntry) -> bool {
        let one_of = |words: &[String], word: &str| words.is_empty() || words.iter().any(|one| one == word);
        let kind = self.single_node == self.multi_node || self.multi_node == entry.multinode;
        kind && one_of(&self.precision, &entry.precision)
            && one_of(&self.framework, &entry.framework)
            && one_of(&self.runner_type, &entry.runner)
            && (self.model_prefix.is_empty()
                || self.model_prefix.iter().any(|prefix| entry.key.0.starts_with(prefix.as_str())))
    }

    /// True when a bound of 0 or below skips every fixed row.
    fn skips_fixed(&self, multinode: bool) -> bool {
        let conc = [self.min_conc, self.max_conc];
        let degrees = if multinode { [None, None] } else { [self.max_tp, self.max_ep] };
        conc.into_iter().chain(degrees).flatten().any(|bound| bound <= 0)
    }
}

impl Keys {
    fn entries<'e>(&self, entries: &'e [MasterEntry]) -> Result<Vec<&'e MasterEntry>, FilterError> {
        let names = || entries.iter().map(|entry| &*entry.key.0).collect::<Vec<_>>().into_iter();
        let mut chosen = vec![false; entries.len()];
        let mut order = Vec::new();
        for pattern in &self.keys {
            let glob = pattern.contains(['*', '?']).then(|| WildMatch::new(pattern));
            let matches = |entry: &MasterEntry| match &glob {
                Some(glob) => glob.matches(&entry.key.0),
                None => *entry.key.0 == **pattern,
            };
            let mut any = false;
            for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| matches(entry)) {
                any = true;
                if !std::mem::replace(&mut chosen[index], true) {
                    order.push(entry);
                }
            }
            if !any {
                let hint = words(pattern, "keys", names());
                return Err(match glob {
                    Some(_) => FilterError::NoMatch { glob: pattern.clone(), hint },
                    None => FilterError::NoSuchKey { key: pattern.clone(), hint },
                });
            }
        }
        Ok(order)
    }
}

/// The parts of a row that a filter acts on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowKind {
    pub(super) agentic: bool,
    pub(super) multinode: bool,
}

/// A row's concurrencies after the filter; nothing when the row is skipped.
pub(super) fn concurrencies(filter: &Filter, kind: RowKind, written: &Concurrency) -> Option<Vec<u32>> {
    let all = || steps(written, filter.step_size());
    let kept: Vec<u32> = match filter {
        Filter::Keys(Keys { conc: None, .. }) => all(),
        Filter::Keys(Keys { conc: Some(keep), .. }) => {
            all().into_iter().filter(|conc| keep.contains(&i64::from(*conc))).collect()
        }
        Filter::Sweep(sweep) => {
            let at_least = |conc: &u32| sweep.min_conc.is_none_or(|min| i64::from(*conc) >= min);
            let at_most = |conc: &u32| sweep.max_conc.is_none_or(|max| i64::from(*conc) <= max);
            if kind.agentic {
                all().into_iter().filter(|conc| at_least(conc) && at_most(conc)).collect()
            } else if sweep.skips_fixed(kind.multinode) {
                Vec::new()
            } else {
                let max = sweep.max_conc.map(|max| u32::try_from(max).unwrap_or(u32::MAX));
                match (written, kind.multinode) {
                    (Concurrency::Range { start, end }, false) => clipped(*start, *end, sweep, max)?,
                    _ => {
                        let enough: Vec<u32> = all().into_iter().filter(at_least).collect();
                        let kept: Vec<u32> = enough.iter().copied().filter(|conc| at_most(conc)).collect();
                        match (enough.is_empty(), kept.is_empty(), max) {
                            (false, true, Some(max)) => vec![max],
                            _ => kept,
                        }
                    }
                }
            }
        }
    };
    (!kept.is_empty()).then_some(kept)
}

/// A single-node range moves its ends into the bounds before it expands.
fn clipped(start: u32, end: u32, sweep: &Sweep, max: Option<u32>) -> Option<Vec<u32>> {
    let min = sweep.min_conc.map_or(0, |min| u32::try_from(min).unwrap_or(u32::MAX));
    if end < min {
        return None;
    }
    let start = start.max(min);
    let (start, end) = match max {
        Some(max) if start > max => (max, max),
        Some(max) => (start, end.min(max)),
        None => (start, end),
    };
    Some(steps(&Concurrency::Range { start, end }, sweep.step_size.max(RANGE_FACTOR)))
}

/// The values of a list or a range. A range multiplies from its start; its end is always the last value.
pub(super) fn steps(written: &Concurrency, factor: u32) -> Vec<u32> {
    match written {
        Concurrency::List(list) => list.clone(),
        Concurrency::Range { start, end } => {
            let mut values = Vec::new();
            let mut next = u64::from(*start);
            while next < u64::from(*end) {
                values.push(u32::try_from(next).unwrap_or(*end));
                next = (next * u64::from(factor)).max(next + 1);
            }
            values.push(*end);
            values
        }
    }
}

/// What `--max-tp` and `--max-ep` make of a single-node fixed row's tp and ep; nothing skips it.
pub(super) fn degrees(filter: &Filter, kind: RowKind, tp: u32, ep: Option<u32>) -> Option<Option<u32>> {
    let Filter::Sweep(sweep) = filter else { return Some(ep) };
    if kind.agentic || kind.multinode {
        return Some(ep);
    }
    if sweep.max_tp.is_some_and(|max| i64::from(tp) > max) {
        return None;
    }
    let max = sweep.max_ep.and_then(|max| u32::try_from(max).ok());
    Some(ep.map(|ep| max.map_or(ep, |max| ep.min(max))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIXED: RowKind = RowKind { agentic: false, multinode: false };
    const MULTI: RowKind = RowKind { agentic: false, multinode: true };
    const AGENTIC: RowKind = RowKind { agentic: true, multinode: false };

    fn bounds(min: Option<i64>, max: Option<i64>) -> Filter {
        Filter::Sweep(Sweep { min_conc: min, max_conc: max, ..Sweep::default() })
    }

    #[test]
    fn a_range_ends_with_its_end() {
        assert_eq!(steps(&Concurrency::Range { start: 4, end: 64 }, 2), [4, 8, 16, 32, 64]);
        assert_eq!(steps(&Concurrency::Range { start: 4, end: 50 }, 2), [4, 8, 16, 32, 50]);
        assert_eq!(steps(&Concurrency::Range { start: 7, end: 7 }, 2), [7]);
        assert_eq!(steps(&Concurrency::Range { start: 1, end: 100 }, 10), [1, 10, 100]);
    }

    #[test]
    fn fixed_lists_fall_back_to_the_greatest_allowed() {
        let list = Concurrency::List(vec![32, 64]);
        assert_eq!(concurrencies(&bounds(None, Some(16)), FIXED, &list), Some(vec![16]));
        assert_eq!(concurrencies(&bounds(Some(64), Some(64)), FIXED, &list), Some(vec![64]));
        assert_eq!(concurrencies(&bounds(Some(65), None), FIXED, &list), None);
        assert_eq!(concurrencies(&bounds(Some(0), None), FIXED, &list), None);
        assert_eq!(concurrencies(&bounds(None, Some(16)), AGENTIC, &list), None);
        assert_eq!(concurrencies(&bounds(Some(0), None), AGENTIC, &list), Some(vec![32, 64]));
    }

    #[test]
    fn single_node_ranges_move_their_ends() {
        let range = Concurrency::Range { start: 4, end: 64 };
        assert_eq!(concurrencies(&bounds(Some(5), None), FIXED, &range), Some(vec![5, 10, 20, 40, 64]));
        assert_eq!(concurrencies(&bounds(None, Some(20)), FIXED, &range), Some(vec![4, 8, 16, 20]));
        assert_eq!(concurrencies(&bounds(None, Some(2)), FIXED, &range), Some(vec![2]));
        assert_eq!(concurrencies(&bounds(Some(65), None), FIXED, &range), None);
        assert_eq!(concurrencies(&bounds(None, Some(20)), MULTI, &range), Some(vec![4, 8, 16]));
        assert_eq!(concurrencies(&bounds(Some(5), None), MULTI, &range), Some(vec![8, 16, 32, 64]));
    }

    #[test]
    fn degrees_skip_and_clip_single_node_fixed_rows_alone() {
        let filter = Filter::Sweep(Sweep { max_tp: Some(4), max_ep: Some(2), ..Sweep::default() });
        assert_eq!(degrees(&filter, FIXED, 8, None), None);
        assert_eq!(degrees(&filter, FIXED, 4, Some(8)), Some(Some(2)));
        assert_eq!(degrees(&filter, AGENTIC, 8, Some(8)), Some(Some(8)));
    }

    proptest! {
        #[test]
        fn ranges_grow_within_their_ends(start in 1_u32..5_000, length in 0_u32..100_000, factor in 2_u32..12) {
            let end = start + length;
            let values = steps(&Concurrency::Range { start, end }, factor);
            prop_assert_eq!((values[0], *values.last().unwrap()), (start, end));
            prop_assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(values.windows(2).rev().skip(1).all(|pair| pair[1] == pair[0] * factor));
        }

        #[test]
        fn bounds_hold(list in proptest::collection::vec(1_u32..200, 1..8), min in 1_i64..200, max in 1_i64..200) {
            prop_assume!(min <= max);
            for kind in [FIXED, MULTI, AGENTIC] {
                for conc in concurrencies(&bounds(Some(min), Some(max)), kind, &Concurrency::List(list.clone())).unwrap_or_default() {
                    prop_assert!((min..=max).contains(&i64::from(conc)));
                }
            }
        }
    }
}
