//! Which rows the new entries of a changelog have measured and evaluated.
//!
//! Entries with all-evals go first, else they go in file order. For each, its keys (globs resolve over the masters as
//! they are at head) expand once for every scenario that no entry before has expanded for the key. Throughput and evals
//! keep separate accounts of what was expanded. Keys of one entry with the same new scenarios expand together, so that
//! the eval policy ([`crate::matrix::evals`]) sees all their rows; agentic rows are evaluated too. Append-only entries
//! are [`super::append_only`]'s. Last, `trim_conc` keeps the lowest concurrency of rows alike.
//!
//! Knows no git and no output.

use std::collections::HashMap;

use wildmatch::WildMatchPattern;

use super::append_only::{self, Side};
use crate::config::changelog::{ChangelogEntry, Pattern};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::load::Config;
use crate::config::master::MasterEntry;
use crate::config::similar::{closest, listed};
use crate::config::topology::{ScenarioType, Topology};
use crate::ids::{ConfigKey, RowHash};
use crate::matrix::evals::{self, Evals};
use crate::matrix::expand::{ExpandError, MatrixRow, expand};
use crate::matrix::filter::{Common, Filter, Keys};
use crate::matrix::rows::row_hash;

/// What a selection is asked for besides the entries' own words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Of throughput rows alike but for concurrency, the lowest alone.
    pub trim_conc: bool,
    /// Every row that can be evaluated, and no throughput.
    pub all_evals: bool,
    /// Evals, and no throughput.
    pub evals_only: bool,
}

/// What some entries select.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The entries, in file order.
    pub entries: Vec<ChangelogEntry>,
    /// What they select, in the order of selection.
    pub parts: Vec<Part>,
}

/// What one entry selects of some keys at once.
#[derive(Debug, Clone)]
pub struct Part {
    /// Which entry.
    pub entry: usize,
    /// Whether rows are evaluated; else their speed is measured.
    pub evals: bool,
    /// The keys that were expanded.
    pub keys: Vec<ConfigKey>,
    /// The scenarios that were.
    pub scenarios: Vec<ScenarioType>,
    /// The rows.
    pub rows: Vec<MatrixRow>,
}

/// Why nothing can be selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// Faults in the entries, or between them and the masters.
    #[error(transparent)]
    Faults(#[from] Diagnostics),
    /// A flag that append-only entries do not bear.
    #[error("append-only entries have no evals: --{0} does not go with them")]
    EvalsOfAppended(&'static str),
}

impl Selection {
    /// The rows whose speed is measured, or that are evaluated, in order.
    pub fn rows(&self, evals: bool) -> impl Iterator<Item = &MatrixRow> {
        self.parts.iter().filter(move |part| part.evals == evals).flat_map(|part| &part.rows)
    }
}

/// Selects what new entries ask for. `base` is the masters before them; only append-only entries need it.
///
/// # Errors
/// Keys that no master has, globs that match none, rows that do not fit their runners, append-only entries whose
/// change is not one.
pub fn select(
    entries: Vec<ChangelogEntry>,
    head: &Side,
    base: Option<&Side>,
    options: Options,
) -> Result<Selection, SelectError> {
    let mut faults = Diagnostics::default();
    let keys: Vec<Vec<&MasterEntry>> =
        entries.iter().map(|entry| resolve(&entry.config_keys, &head.config, &mut faults)).collect();
    mixed(&entries, &mut faults);
    faults.or(())?;
    let mut parts = if entries.iter().any(|entry| entry.append_only) {
        for (flag, set) in [("all-evals", options.all_evals), ("evals-only", options.evals_only)] {
            if set {
                return Err(SelectError::EvalsOfAppended(flag));
            }
        }
        let mut account = Account::default();
        let groups: Vec<Vec<Group<'_>>> =
            entries.iter().zip(&keys).map(|(entry, keys)| account.take(entry, keys)).collect();
        append_only::added(&entries, &groups, head, base)?
    } else {
        expanded(&entries, &keys, &head.config, options)?
    };
    if options.trim_conc {
        trim(&mut parts);
    }
    Ok(Selection { entries, parts })
}

/// What entries select that are not append-only.
fn expanded(
    entries: &[ChangelogEntry],
    keys: &[Vec<&MasterEntry>],
    head: &Config,
    options: Options,
) -> Result<Vec<Part>, Diagnostics> {
    let mut faults = Diagnostics::default();
    let mut parts = Vec::new();
    let (mut measured, mut evaluated) = (Account::default(), Account::default());
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|index| !entries[*index].all_evals);
    for index in order {
        let entry = &entries[index];
        let all = entry.all_evals || options.all_evals;
        if !(all || entry.evals_only || options.evals_only) {
            for group in measured.take(entry, &keys[index]) {
                let rows = faults.absorb(rows(&group, head)).unwrap_or_default();
                parts.push(part(index, false, group, rows));
            }
        }
        for group in evaluated.take(entry, &keys[index]) {
            // A fault of these rows is noted already where their speed is measured as well.
            let rows = rows(&group, head).unwrap_or_else(|found| {
                let new = found.0.into_iter().filter(|fault| !faults.0.contains(fault)).collect::<Vec<_>>();
                faults.0.extend(new);
                Vec::new()
            });
            let mut rows = evals::apply(rows, if all { Evals::All } else { Evals::Only });
            let least = entry.eval_min_prefill_ep.unwrap_or(0);
            rows.retain(|line| prefill_ep(line).is_none_or(|ep| ep >= least));
            parts.push(part(index, true, group, rows));
        }
    }
    faults.or(parts)
}

pub(super) fn part(entry: usize, evals: bool, group: Group<'_>, rows: Vec<MatrixRow>) -> Part {
    let keys = group.members.iter().map(|member| member.key.clone()).collect();
    Part { entry, evals, keys, scenarios: group.scenarios, rows }
}

/// The entries of the masters that an entry names, in the order of first mention.
///
/// # Errors
/// Keys that no master has, globs that match none.
pub fn known<'m>(entry: &ChangelogEntry, config: &'m Config) -> Result<Vec<&'m MasterEntry>, Diagnostics> {
    let mut faults = Diagnostics::default();
    let found = resolve(&entry.config_keys, config, &mut faults);
    faults.or(found)
}

/// The entries of the masters that patterns name, in the order of first mention.
fn resolve<'m>(patterns: &[Pattern], config: &'m Config, faults: &mut Diagnostics) -> Vec<&'m MasterEntry> {
    let mut chosen: Vec<&MasterEntry> = Vec::new();
    for pattern in patterns {
        // `*` alone is a wildcard here, `?` is not.
        let glob = pattern.text.contains('*').then(|| WildMatchPattern::<'*', '\0'>::new(&pattern.text));
        let matches = |entry: &&MasterEntry| match &glob {
            Some(glob) => glob.matches(&entry.key.0),
            None => *entry.key.0 == *pattern.text,
        };
        let found: Vec<&MasterEntry> = config.entries.iter().filter(matches).collect();
        if found.is_empty() {
            let keys = || config.entries.iter().map(|entry| &*entry.key.0);
            let fault = match glob {
                Some(_) => Diagnostic::at(&pattern.place, format!("no config key matches `{}`", pattern.text)),
                None => Diagnostic::at(&pattern.place, format!("no config key `{}`", pattern.text)),
            };
            faults.push(match closest(&pattern.text.replace('*', ""), keys()) {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => fault.help(format!("the masters have {}", listed(keys(), 12))),
            });
        }
        for entry in found {
            if chosen.iter().all(|known| known.key != entry.key) {
                chosen.push(entry);
            }
        }
    }
    chosen
}

/// Append-only entries stand alone.
fn mixed(entries: &[ChangelogEntry], faults: &mut Diagnostics) {
    let Some(append) = entries.iter().find(|entry| entry.append_only) else { return };
    if let Some(other) = entries.iter().find(|entry| !entry.append_only) {
        faults.push(
            Diagnostic::at(&other.place, "an append-only entry beside another kind of entry")
                .label("not append-only")
                .related(&append.place, "append-only")
                .help("put them into two commits"),
        );
    }
}

/// Keys that expand together, and the scenarios for which they do.
#[derive(Debug, Clone)]
pub(super) struct Group<'m> {
    pub(super) members: Vec<&'m MasterEntry>,
    pub(super) scenarios: Vec<ScenarioType>,
}

/// What was expanded before.
#[derive(Default)]
struct Account(HashMap<ConfigKey, Vec<ScenarioType>>);

impl Account {
    /// The keys of an entry by the scenarios that are new for them; from now on none is.
    fn take<'m>(&mut self, entry: &ChangelogEntry, keys: &[&'m MasterEntry]) -> Vec<Group<'m>> {
        let mut groups: Vec<Group<'m>> = Vec::new();
        for key in keys {
            let seen = self.0.entry(key.key.clone()).or_default();
            let mut new: Vec<ScenarioType> = Vec::new();
            for kind in entry.scenarios() {
                if !seen.contains(kind) {
                    new.push(*kind);
                    seen.push(*kind);
                }
            }
            match groups.iter_mut().find(|group| group.scenarios == new) {
                _ if new.is_empty() => {}
                Some(group) => group.members.push(key),
                None => groups.push(Group { members: vec![key], scenarios: new }),
            }
        }
        groups
    }
}

/// The rows of a group.
pub(super) fn rows(group: &Group<'_>, config: &Config) -> Result<Vec<MatrixRow>, Diagnostics> {
    let entries: Vec<MasterEntry> = group.members.iter().map(|member| (*member).clone()).collect();
    let common = Common { scenarios: group.scenarios.clone(), ..Common::default() };
    let every = Filter::Keys(Keys { common, keys: vec!["*".to_owned()], conc: None });
    expand(&entries, &config.runners, &every).map_err(|error| match error {
        ExpandError::Rows(faults) => faults,
        ExpandError::Filter(error) => Diagnostic::new(error.to_string()).help(error.hint()).into(),
    })
}

fn prefill_ep(line: &MatrixRow) -> Option<u32> {
    match &line.row.topology {
        Topology::Single(_) => None,
        Topology::Multi { prefill, .. } => Some(prefill.parallelism.ep.unwrap_or(1)),
    }
}

/// Of measured rows alike but for concurrency, keeps the one with the lowest, at the place of the first; of a list of
/// concurrencies the lowest.
fn trim(parts: &mut [Part]) {
    let mut lowest: HashMap<RowHash, MatrixRow> = HashMap::new();
    for line in parts.iter().filter(|part| !part.evals).flat_map(|part| &part.rows) {
        let Some(conc) = line.concs.iter().copied().min() else { continue };
        let hash = row_hash(&line.row);
        if lowest.get(&hash).is_none_or(|known| conc < known.exp_conc) {
            lowest.insert(hash, MatrixRow { concs: vec![conc], exp_conc: conc, ..line.clone() });
        }
    }
    for part in parts.iter_mut().filter(|part| !part.evals) {
        let rows = std::mem::take(&mut part.rows);
        part.rows = rows.iter().filter_map(|line| lowest.remove(&row_hash(&line.row))).collect();
    }
}
