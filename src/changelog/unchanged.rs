//! Whether masters differ outside what append-only entries select. Values are compared, not texts: comments, order of
//! keys, quotes and `_` in numbers do not count.

use std::sync::Arc;

use super::append_only::{Selected, Side};
use crate::config::diagnostic::{Diagnostic, Diagnostics, Place, Source};
use crate::config::document::{self, Node, Scalar};
use crate::config::topology::ScenarioType;

/// Makes sure that nothing else changed.
///
/// # Errors
/// Every change outside the selection, at its place.
pub(super) fn unchanged(base: &Side, head: &Side, selected: &Selected) -> Result<(), Diagnostics> {
    let (before, after) = (entries(&base.masters)?, entries(&head.masters)?);
    let mut faults = Diagnostics::default();
    for (key, node) in &after {
        let name = key.scalar_text().unwrap_or_default();
        let of = selected.iter().find(|(known, _)| *known.0 == *name).map(|(_, scenarios)| scenarios);
        match (find(&before, name), of) {
            (Some(earlier), None) if same(earlier, node) => {}
            (Some(_), None) => faults.push(changed(&key.place, format!("`{name}` changed"))),
            // A selected key that is new is said where the entry's points are compared.
            (None, Some(_)) => {}
            (None, None) => faults.push(changed(&key.place, format!("`{name}` is new"))),
            (Some(earlier), Some(scenarios)) => {
                let other = |kind: &ScenarioType| !scenarios.contains(kind);
                for kind in ScenarioType::ALL.iter().filter(|kind| other(kind)) {
                    let (old, new) = (scenario(earlier, *kind), scenario(node, *kind));
                    if old.is_none() && new.is_none() {
                        continue;
                    }
                    if !old.zip(new).is_some_and(|(old, new)| same(old, new)) {
                        let place = new.or(old).map_or(&key.place, |node| &node.place);
                        faults.push(changed(place, format!("`{}` of `{name}` changed", kind.word())));
                    }
                    fields(name, earlier, node, *kind, &mut faults);
                }
            }
        }
    }
    for (key, _) in &before {
        let name = key.scalar_text().unwrap_or_default();
        if find(&after, name).is_none() {
            faults.push(changed(&key.place, format!("`{name}` is gone")));
        }
    }
    faults.0.dedup();
    faults.or(())
}

fn changed(place: &Place, what: String) -> Diagnostic {
    Diagnostic::at(place, format!("beside append-only entries {what}"))
        .label("not selected by them")
        .help("put this change into another commit, or remove `append-only`")
}

/// The fields that all scenarios of an entry share must not differ while one of them is not selected.
fn fields(name: &str, earlier: &Node, node: &Node, kind: ScenarioType, faults: &mut Diagnostics) {
    let (Some(old), Some(new)) = (earlier.as_map(), node.as_map()) else { return };
    for (key, value) in new {
        let field = key.scalar_text().unwrap_or_default();
        if field != "scenarios" && !earlier.get(field).is_some_and(|before| same(before, value)) {
            let what = format!("`{field}` of `{name}` changed, which its {} rows share", kind.word());
            faults.push(changed(&key.place, what));
        }
    }
    for (key, _) in old {
        let field = key.scalar_text().unwrap_or_default();
        if node.get(field).is_none() {
            let what = format!("`{field}` of `{name}` is gone, which its {} rows share", kind.word());
            faults.push(changed(&key.place, what));
        }
    }
}

/// The entries of all masters, with their keys.
fn entries(masters: &[Arc<Source>]) -> Result<Vec<(Node, Node)>, Diagnostics> {
    let mut found = Diagnostics::default();
    let mut entries = Vec::new();
    for source in masters {
        if let Some(root) = found.absorb(document::parse(source)) {
            entries.extend(root.as_map().unwrap_or_default().iter().cloned());
        }
    }
    found.or(entries)
}

fn find<'n>(entries: &'n [(Node, Node)], name: &str) -> Option<&'n Node> {
    entries.iter().find(|(key, _)| key.scalar_text() == Some(name)).map(|(_, node)| node)
}

fn scenario(entry: &Node, kind: ScenarioType) -> Option<&Node> {
    entry.get("scenarios")?.get(kind.word())
}

/// Whether two nodes hold the same value.
fn same(a: &Node, b: &Node) -> bool {
    match (a.as_map(), b.as_map(), a.as_list(), b.as_list()) {
        (Some(a_map), Some(b_map), _, _) => {
            a_map.len() == b_map.len()
                && a_map.iter().all(|(key, value)| {
                    key.scalar_text().and_then(|name| b.get(name)).is_some_and(|other| same(value, other))
                })
        }
        (_, _, Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => match (a.resolve(), b.resolve()) {
            (Some(a), Some(b)) => same_scalar(a, b),
            _ => false,
        },
    }
}

fn same_scalar(a: Scalar<'_>, b: Scalar<'_>) -> bool {
    let plain = |text: &str| text.replace('_', "").trim_start_matches('+').to_owned();
    match (a, b) {
        (Scalar::Integer(a), Scalar::Integer(b)) => plain(a) == plain(b),
        (Scalar::Float(a), Scalar::Float(b)) => {
            let number = |text: &str| plain(text).parse::<f64>().ok();
            a == b || number(a).is_some_and(|value| number(b) == Some(value))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(text: &str) -> Side {
        let config = crate::config::load::Config { entries: Vec::new(), runners: Default::default() };
        Side { config, masters: vec![Source::new("m.yaml", text)] }
    }

    fn said(base: &str, head: &str, selected: &[(&str, ScenarioType)]) -> String {
        let mut of = Selected::new();
        for (key, kind) in selected {
            of.entry(crate::ids::ConfigKey((*key).into())).or_default().insert(*kind);
        }
        unchanged(&side(base), &side(head), &of).map_or_else(|faults| faults.to_string(), |()| String::new())
    }

    const BASE: &str = "\
a: {image: i, x: 0.80, scenarios: {fixed-seq-len: [1_000], agentic-coding: [2]}}
b: {image: 'j', scenarios: {agentic-coding: [3]}}
";

    #[test]
    fn values_count_and_texts_do_not() {
        let head = "b: {scenarios: {agentic-coding: [3]}, image: j}\n\na: {image: i, x: 0.8, scenarios: {fixed-seq-len: [1000], agentic-coding: [2]}} # c\n";
        assert_eq!(said(BASE, head, &[]), "");
        assert_eq!(
            said(BASE, &head.replace("0.8,", "0.81,"), &[]),
            "m.yaml:3:1: beside append-only entries `a` changed"
        );
        assert_eq!(
            said(BASE, &head.replace("[3]", "['3']"), &[]),
            "m.yaml:1:1: beside append-only entries `b` changed"
        );
    }

    #[test]
    fn what_is_selected_may_change() {
        use ScenarioType::{AgenticCoding, FixedSeqLen};
        let head = BASE.replace("[2]", "[2, 5]");
        assert_eq!(said(BASE, &head, &[("a", AgenticCoding)]), "");
        assert_eq!(
            said(BASE, &head, &[("a", FixedSeqLen)]),
            "m.yaml:1:76: beside append-only entries `agentic-coding` of `a` changed"
        );
        let image = BASE.replace("image: i", "image: k");
        assert_eq!(
            said(BASE, &image, &[("a", AgenticCoding)]),
            "m.yaml:1:5: beside append-only entries `image` of `a` changed, which its fixed-seq-len rows share"
        );
        assert_eq!(said(BASE, &image, &[("a", AgenticCoding), ("a", FixedSeqLen)]), "");
        let alone = BASE.replace("image: 'j'", "image: k");
        assert_eq!(said(BASE, &alone, &[("b", AgenticCoding)]), "");
    }

    #[test]
    fn keys_neither_come_nor_go() {
        let more = format!("{BASE}c: {{}}\n");
        assert_eq!(said(BASE, &more, &[]), "m.yaml:3:1: beside append-only entries `c` is new");
        assert_eq!(said(&more, BASE, &[]), "m.yaml:3:1: beside append-only entries `c` is gone");
    }
}
