//! Golden acceptance lengths: what speculative decoding accepts per step on real load, measured once and committed.
//!
//! One file a curve, `golden_al_distribution/CURVE.yaml`; the file's stem is the curve's name in recipes:
//!
//! ```yaml
//! model: deepseek-v4-pro
//! draft-head: mtp
//! draft-method: plain            # how the head drafts
//! verification: plain            # how drafts are verified
//! measured:                      # optional, and so is each field
//!   source-run: "27180633016"
//!   dataset: SPEED-Bench coding
//!   temperature: 1.0
//!   output-length: 4096          # tokens
//!   reasoning-effort: high
//! acceptance-length:             # N draft tokens → accepted length, 1 ≤ AL ≤ N + 1
//!   thinking-on: {1: 1.79, 2: 2.27}
//!   thinking-off: {1: 1.92, 2: 2.61}
//! ```
//!
//! The values come in three shapes: a thinking matrix as above, a plain map `{3: 2.78}`, or a list of one-entry maps
//! `[2: 2.51, 3: 3.00]`, which may also stand under a thinking mode. The latter two say their mode in a field
//! `thinking: on | off | none` (`none`: the model has no such modes). Lengths stay decimal text: none becomes a float.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rust_decimal::Decimal;

use super::diagnostic::{Diagnostic, Diagnostics, Place, Source};
use super::document::{self, Node, Scalar};
use super::fields::{self, Faults, Fields};
use super::inputs::Inputs;
use super::similar::{closest, listed};

/// Whether the model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thinking {
    /// Thinking on.
    On,
    /// Thinking off.
    Off,
    /// The model has no thinking modes.
    None,
}

impl Thinking {
    /// The word in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Thinking::On => "on",
            Thinking::Off => "off",
            Thinking::None => "none",
        }
    }
}

/// `thinking on`, `thinking off`, `no thinking mode`.
impl fmt::Display for Thinking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Thinking::On => "thinking on",
            Thinking::Off => "thinking off",
            Thinking::None => "no thinking mode",
        })
    }
}

/// One curve: a model with a way to draft and to verify.
#[derive(Debug, Clone)]
pub struct Curve {
    /// The file's stem.
    pub name: String,
    /// The model's short name.
    pub model: String,
    /// What drafts: `mtp`, `eagle3`, ….
    pub draft_head: String,
    /// How it drafts: `plain`, `probabilistic`, ….
    pub draft_method: String,
    /// How drafts are verified: `plain`, `block`, ….
    pub verification: String,
    /// Where the values come from, as written: field → value.
    pub measured: BTreeMap<String, String>,
    cells: BTreeMap<(Thinking, u32), (String, Place)>,
}

/// One golden value.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Its curve's name.
    pub curve: String,
    /// The model's short name.
    pub model: String,
    /// What drafts.
    pub draft_head: String,
    /// How it drafts.
    pub draft_method: String,
    /// How drafts are verified.
    pub verification: String,
    /// The thinking mode.
    pub thinking: Thinking,
    /// Draft tokens a step.
    pub n: u32,
    /// Tokens a step yields on average, the model's own included: decimal text, 1 ≤ AL ≤ N + 1.
    pub acceptance_length: String,
    /// Where it is written.
    pub place: Place,
}

/// A golden value that is not there, with what is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MissingCell {
    /// What was asked for.
    pub message: String,
    /// What exists.
    pub help: String,
}

/// All curves, by name.
#[derive(Debug, Clone, Default)]
pub struct Curves(BTreeMap<String, Curve>);

impl Curves {
    /// Reads the project's curves.
    ///
    /// # Errors
    /// Every fault of every file.
    pub fn load(inputs: &Inputs) -> Result<Self, Diagnostics> {
        let named = |(path, source): (&str, &Arc<Source>)| {
            let name = path.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".yaml")?;
            Some((name.to_owned(), Arc::clone(source)))
        };
        Self::parse(&inputs.in_folder(FOLDER, ".yaml").filter_map(named).collect::<Vec<_>>())
    }

    /// Reads curves from their names and texts.
    ///
    /// # Errors
    /// Every fault of every file, and two curves for the same model, head and methods.
    pub fn parse(sources: &[(String, Arc<Source>)]) -> Result<Self, Diagnostics> {
        let mut found = Diagnostics::default();
        let mut curves = BTreeMap::new();
        let mut identities: BTreeMap<[String; 4], Place> = BTreeMap::new();
        for (name, source) in sources {
            let Some((curve, place)) = found.absorb(curve(name, source)) else { continue };
            let identity =
                [&curve.model, &curve.draft_head, &curve.draft_method, &curve.verification].map(String::clone);
            if let Some(first) = identities.get(&identity) {
                let fault = Diagnostic::at(&place, format!("a second curve for {}", identity.join(", ")));
                found.push(fault.related(first, "the first").help("put the values into one file"));
            }
            identities.insert(identity, place);
            curves.insert(name.clone(), curve);
        }
        found.or(Self(curves))
    }

    /// A curve by its name.
    pub fn get(&self, name: &str) -> Option<&Curve> {
        self.0.get(name)
    }

    /// Every curve, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Curve> {
        self.0.values()
    }

    /// One value.
    ///
    /// # Errors
    /// [`MissingCell`], which lists what exists.
    pub fn cell(&self, curve: &str, thinking: Thinking, n: u32) -> Result<Cell, MissingCell> {
        let names = || self.0.keys().map(String::as_str);
        let Some(found) = self.0.get(curve) else {
            let help = match closest(curve, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if self.0.is_empty() => "there are no curves; add one under golden_al_distribution/".to_owned(),
                None => format!("the curves: {}", listed(names(), 24)),
            };
            return Err(MissingCell { message: format!("no golden curve `{curve}`"), help });
        };
        found.cell(thinking, n).ok_or_else(|| MissingCell {
            message: format!("no golden acceptance length in `{curve}` for {thinking}, N = {n}"),
            help: format!("`{curve}` has {}", found.inventory()),
        })
    }
}

impl Curve {
    /// One value.
    pub fn cell(&self, thinking: Thinking, n: u32) -> Option<Cell> {
        let (acceptance_length, place) = self.cells.get(&(thinking, n))?;
        Some(Cell {
            curve: self.name.clone(),
            model: self.model.clone(),
            draft_head: self.draft_head.clone(),
            draft_method: self.draft_method.clone(),
            verification: self.verification.clone(),
            thinking,
            n,
            acceptance_length: acceptance_length.clone(),
            place: place.clone(),
        })
    }

    /// Every value.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        self.cells.keys().filter_map(|(thinking, n)| self.cell(*thinking, *n))
    }

    /// `thinking on: N = 1, 2, 3; thinking off: N = 1`.
    fn inventory(&self) -> String {
        let modes = [Thinking::On, Thinking::Off, Thinking::None].into_iter().filter_map(|mode| {
            let ns: Vec<String> =
                self.cells.keys().filter(|(thinking, _)| *thinking == mode).map(|(_, n)| n.to_string()).collect();
            (!ns.is_empty()).then(|| format!("{mode}: N = {}", ns.join(", ")))
        });
        modes.collect::<Vec<_>>().join("; ")
    }
}

/// Where a project's curves stand.
const FOLDER: &str = "golden_al_distribution";

const FIELDS: &[&str] =
    &["model", "draft-head", "draft-method", "verification", "thinking", "measured", "acceptance-length"];
const MEASURED: &[&str] = &["source-run", "dataset", "temperature", "output-length", "reasoning-effort", "note"];
const MODES: &[&str] = &["thinking-on", "thinking-off"];

fn curve(name: &str, source: &Arc<Source>) -> Result<(Curve, Place), Diagnostics> {
    let root = document::parse(source)?;
    let faults = Faults::default();
    let curve = read(name, &root, &faults);
    match faults.or(curve)? {
        Some(curve) => Ok(curve),
        None => Err(Diagnostic::at(&root.place, "not a golden curve").into()),
    }
}

fn read(name: &str, root: &Node, faults: &Faults) -> Option<(Curve, Place)> {
    let file = Fields::open(root, "a golden curve", FIELDS, faults)?;
    let texts = ["model", "draft-head", "draft-method", "verification"].map(|field| file.string(field));
    let measured = file.optional("measured").map(|node| measured(node, faults)).unwrap_or_default();
    let values = file.required("acceptance-length");
    let mut cells = BTreeMap::new();
    let matrix = values.is_some_and(|node| MODES.iter().any(|mode| node.get(mode).is_some()));
    match (values, file.entry("thinking")) {
        (None, _) => {}
        (Some(node), thinking) if matrix => {
            if let Some((key, _)) = thinking {
                faults.push(
                    Diagnostic::at(&key.place, "`thinking` beside values that name their modes")
                        .help("remove it; `thinking-on` and `thinking-off` say it"),
                );
            }
            let modes = Fields::open(node, "a thinking matrix", MODES, faults)?;
            for (mode, thinking) in [("thinking-on", Thinking::On), ("thinking-off", Thinking::Off)] {
                if let Some(node) = modes.optional(mode) {
                    lengths(node, thinking, &mut cells, faults);
                }
            }
        }
        (Some(node), _) => {
            if let Some(mode) = thinking_mode(&file, faults) {
                lengths(node, mode, &mut cells, faults);
            }
        }
    }
    let [model, draft_head, draft_method, verification] = texts;
    let curve = Curve {
        name: name.to_owned(),
        model: model?.to_owned(),
        draft_head: draft_head?.to_owned(),
        draft_method: draft_method?.to_owned(),
        verification: verification?.to_owned(),
        measured,
        cells,
    };
    Some((curve, file.entry("model")?.0.place.clone()))
}

/// YAML 1.1 reads `on` and `off` as booleans; quoted they are words. Both say the same here.
fn thinking_mode(file: &Fields<'_, '_>, faults: &Faults) -> Option<Thinking> {
    let node = file.required("thinking")?;
    let mode = match node.resolve() {
        Some(Scalar::Bool(on)) => Some(if on { Thinking::On } else { Thinking::Off }),
        Some(Scalar::Text(word)) => {
            [Thinking::On, Thinking::Off, Thinking::None].into_iter().find(|mode| mode.as_str() == word)
        }
        _ => None,
    };
    if mode.is_none() {
        let fault = Diagnostic::at(&node.place, "`thinking` is none of its words").label("`on`, `off` or `none`");
        faults.push(fault.help("write `thinking: on`, `thinking: off` or `thinking: none`"));
    }
    mode
}

fn measured(node: &Node, faults: &Faults) -> BTreeMap<String, String> {
    let Some(block) = Fields::open(node, "`measured`", MEASURED, faults) else { return BTreeMap::new() };
    let texts = MEASURED.iter().filter_map(|field| {
        let node = block.optional(field)?;
        match node.scalar_text() {
            Some(text) => Some(((*field).to_owned(), text.to_owned())),
            None => {
                fields::wrong_kind(node, &format!("`{field}`"), "a string", faults);
                None
            }
        }
    });
    texts.collect()
}

/// A map of N → length, or a list of maps with one entry each.
fn lengths(node: &Node, thinking: Thinking, cells: &mut BTreeMap<(Thinking, u32), (String, Place)>, faults: &Faults) {
    let mut entries: Vec<&(Node, Node)> = Vec::new();
    match (node.as_map(), node.as_list()) {
        (Some(map), _) => entries.extend(map),
        (None, Some(items)) => {
            for item in items {
                match item.as_map() {
                    Some([entry]) => entries.push(entry),
                    _ => faults.push(
                        Diagnostic::at(&item.place, "an item of a curve must be a mapping of one N to one length")
                            .help("write `- 3: 2.49`"),
                    ),
                }
            }
        }
        (None, None) => fields::wrong_kind(node, "a curve", "a mapping of N to lengths", faults),
    }
    if entries.is_empty() && (node.as_map().is_some() || node.as_list().is_some_and(<[Node]>::is_empty)) {
        faults.push(Diagnostic::at(&node.place, "a curve without values").help("add `3: 2.49`: N and its length"));
    }
    for (key, value) in entries {
        let n = fields::integer(key, "N, the draft tokens a step,", 1..=1_000, faults);
        let Some(text) = fields::decimal(value, "an acceptance length", faults) else { continue };
        let Some(n) = n.and_then(|n| u32::try_from(n).ok()) else { continue };
        if !within(text, n) {
            faults.push(
                Diagnostic::at(&value.place, format!("an acceptance length of {text} at N = {n}"))
                    .label(format!("not from 1 to {}", n + 1))
                    .help("a step yields the model's own token and at most N drafted ones"),
            );
        } else if let Some((_, first)) = cells.get(&(thinking, n)) {
            faults.push(
                Diagnostic::at(&key.place, format!("N = {n} stands twice"))
                    .related(first, "first here")
                    .help("keep one of them"),
            );
        } else {
            cells.insert((thinking, n), (text.to_owned(), value.place.clone()));
        }
    }
}

/// Plain decimal digits with 1 ≤ AL ≤ N + 1.
fn within(text: &str, n: u32) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain && Decimal::from_str_exact(text).is_ok_and(|al| al >= Decimal::ONE && al <= Decimal::from(n + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "model: m\ndraft-head: mtp\ndraft-method: plain\nverification: plain\n";

    fn curves(tail: &str) -> Result<Curves, String> {
        let source = Source::new("m_mtp.yaml", format!("{HEAD}{tail}"));
        Curves::parse(&[("m_mtp".to_owned(), source)]).map_err(|faults| faults.to_string())
    }

    #[test]
    fn three_shapes_say_the_same() {
        for tail in [
            "thinking: on\nacceptance-length: {2: 2.27, 3: 2.49}\n",
            "thinking: \"on\"\nacceptance-length:\n- 2: 2.27\n- 3: 2.49\n",
            "acceptance-length:\n  thinking-on: {2: 2.27, 3: 2.49}\n",
            "acceptance-length:\n  thinking-on:\n  - 2: 2.27\n  - 3: 2.49\n",
        ] {
            let cell = curves(tail).unwrap().cell("m_mtp", Thinking::On, 3).unwrap();
            assert_eq!((cell.acceptance_length.as_str(), cell.n), ("2.49", 3), "{tail}");
            assert_eq!(&cell.place.source.text[cell.place.span.clone()], "2.49");
        }
    }

    #[test]
    fn lengths_stay_as_written() {
        let curves = curves("thinking: none\nacceptance-length: {4: 3.00}\n").unwrap();
        assert_eq!(curves.cell("m_mtp", Thinking::None, 4).unwrap().acceptance_length, "3.00");
    }

    #[test]
    fn a_missing_cell_lists_what_exists() {
        let curves =
            curves("acceptance-length:\n  thinking-on: {2: 2.27, 3: 2.49}\n  thinking-off: {3: 2.97}\n").unwrap();
        let missing = curves.cell("m_mtp", Thinking::Off, 2).unwrap_err();
        assert_eq!(missing.message, "no golden acceptance length in `m_mtp` for thinking off, N = 2");
        assert_eq!(missing.help, "`m_mtp` has thinking on: N = 2, 3; thinking off: N = 3");
        assert_eq!(curves.cell("m-mtp", Thinking::On, 2).unwrap_err().help, "did you mean `m_mtp`?");
        assert_eq!(curves.cell("other", Thinking::On, 2).unwrap_err().help, "the curves: `m_mtp`");
    }

    #[test]
    fn bad_values_have_places() {
        let said = curves("thinking: maybe\nmeasured: {run: 1}\nacceptance-length: {2: 2.27}\n").unwrap_err();
        assert!(said.contains("m_mtp.yaml:5:11: `thinking` is none of its words"), "{said}");
        assert!(said.contains("m_mtp.yaml:6:12: unknown field `run` in `measured`"), "{said}");
        let said = curves(
            "thinking: on\nacceptance-length:\n- 1: 2.01\n- 2: 0.9\n- 3: \"2.4\"\n- 0: 1\n- x: 1\n- 4: .inf\n- 5: 1e0\n- 6: 1\n- 6: 2\n- {7: 1, 8: 1}\n",
        )
        .unwrap_err();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "m_mtp.yaml:7:6: an acceptance length of 2.01 at N = 1",
                "m_mtp.yaml:8:6: an acceptance length of 0.9 at N = 2",
                "m_mtp.yaml:9:6: an acceptance length must be a decimal number, not a string: `2.4`",
                "m_mtp.yaml:10:3: N, the draft tokens a step, must be greater than 0, not 0",
                "m_mtp.yaml:11:3: N, the draft tokens a step, must be an integer, not a string: `x`",
                "m_mtp.yaml:12:6: an acceptance length must be a decimal number, not a float: `.inf`",
                "m_mtp.yaml:13:6: an acceptance length of 1e0 at N = 5",
                "m_mtp.yaml:15:3: N = 6 stands twice",
                "m_mtp.yaml:16:3: an item of a curve must be a mapping of one N to one length",
            ]
        );
        assert!(curves("thinking: on\nacceptance-length: {}\n").unwrap_err().contains("a curve without values"));
        assert!(curves("acceptance-length: {1: 1.5}\n").unwrap_err().contains("lacks `thinking`"));
    }

    #[test]
    fn one_identity_has_one_file() {
        let source = |name: &str| Source::new(name, format!("{HEAD}thinking: on\nacceptance-length: {{1: 1.5}}\n"));
        let files = [("a".to_owned(), source("a.yaml")), ("b".to_owned(), source("b.yaml"))];
        let said = Curves::parse(&files).unwrap_err().to_string();
        assert_eq!(said, "b.yaml:1:1: a second curve for m, mtp, plain, plain");
    }

    #[test]
    fn the_committed_curves_read() {
        let inputs = Inputs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")), "").unwrap();
        let curves = Curves::load(&inputs).unwrap();
        let al = |curve: &str, thinking, n| curves.cell(curve, thinking, n).unwrap().acceptance_length;
        assert_eq!(al("dsv4_mtp", Thinking::On, 3), "2.49");
        assert_eq!(al("dsv4_mtp", Thinking::Off, 8), "3.11");
        assert_eq!(al("minimax-m3_eagle3", Thinking::On, 3), "2.83");
        assert_eq!(al("minimax-m3_eagle3-gqa", Thinking::On, 3), "2.78");
        assert_eq!(
            (al("kimi-k3_dspark", Thinking::On, 3), al("kimi-k3_dspark-block", Thinking::On, 3)),
            ("2.87".into(), "3.00".into())
        );
        assert_eq!(curves.iter().map(|curve| curve.cells().count()).sum::<usize>(), 16 + 5 + 3 + 2 + 1 + 1 + 1 + 5);
    }
}
