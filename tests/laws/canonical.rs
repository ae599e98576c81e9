//! The canonical bytes are those of RFC 8785, as an independent canonicalizer makes them, and lose nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ixbuild::ids::{Digest, JobHash};
use ixbuild::spec::{Binder, Binding, JobSpec, Key, Part, Segment, Text, Tree, Unbound};
use proptest::prelude::*;
use serde_json::Value;

use super::tree::{named, real};

/// Canonical, lossless, and named by the digest of its bytes.
fn check(spec: &JobSpec) -> Result<(), TestCaseError> {
    let ours = spec.canonical();
    let theirs = serde_json_canonicalizer::to_vec(spec).unwrap();
    prop_assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
    // Also from the parsed document, whose order is another.
    let document: Value = serde_json::from_slice(&ours).unwrap();
    prop_assert_eq!(&serde_json_canonicalizer::to_vec(&document).unwrap(), &ours);
    let back: JobSpec = serde_json::from_slice(&ours).unwrap();
    prop_assert_eq!(&back, spec);
    prop_assert_eq!(back.canonical(), ours.clone());
    prop_assert_eq!(spec.hash(), JobHash(Digest::of(&ours)));
    Ok(())
}

#[test]
fn every_committed_spec_is_canonical() {
    assert_eq!((real("docker").len(), real("rehearsal").len()), (136, 68));
    for (id, spec) in real("docker").iter().chain(real("rehearsal")) {
        check(spec).unwrap_or_else(|error| panic!("{id}: {error}"));
    }
}

/// Names and texts with what canonicalizers get wrong: beyond the basic plane, controls, quotes, the private use area.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z\u{1}\u{7f}\u{80}\u{2028}\u{fb33}\u{e000}\u{ffff}\u{10000}\u{1f600}\"\\\\/]{0,6}",
        Just(r#"{"text":[{"model":{}}]}"#.to_owned()),
    ]
}

fn binding() -> impl Strategy<Value = Binding> {
    prop_oneof![
        (text(), text(), any::<bool>()).prop_map(|(name, service, host)| Binding::Endpoint {
            name,
            service,
            part: if host { Part::Host } else { Part::Port }
        }),
        text().prop_map(|name| Binding::File { name }),
        text().prop_map(|name| Binding::Directory { name }),
        text().prop_map(|name| Binding::Cache { name }),
        text().prop_map(|name| Binding::Host { name }),
        Just(Binding::Model {}),
    ]
}

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let segment = prop_oneof![text().prop_map(Segment::Literal), binding().prop_map(Segment::Bind)];
    proptest::collection::vec(segment, 0..4)
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![-(1_i64 << 53)..=1 << 53, -9_i64..9]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        integer().prop_map(Tree::Integer),
        text().prop_map(Tree::String),
        "-?(0|[1-9][0-9]{0,17})\\.[0-9]{1,17}".prop_map(|decimal| Tree::Decimal { decimal }),
        segments().prop_map(|text| Tree::Segments { text }),
        binding().prop_map(|number| Tree::Number { number }),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let map = proptest::collection::btree_map(text().prop_map(Key), inner.clone(), 0..5);
        prop_oneof![proptest::collection::vec(inner, 0..5).prop_map(Tree::List), map.prop_map(|map| Tree::Map { map }),]
    })
}

fn any_text() -> impl Strategy<Value = Text> {
    prop_oneof![
        text().prop_map(Text::Literal),
        segments().prop_map(|text| Text::Segments { text }),
        tree().prop_map(|json| Text::Json { json }),
    ]
}

/// A committed spec with everything that is free text, number or document made anew.
fn spec() -> impl Strategy<Value = JobSpec> {
    let texts = || proptest::collection::btree_map(text().prop_map(Key), any_text(), 0..5);
    let words = || proptest::collection::btree_set(text(), 0..4);
    let parts = (
        (proptest::collection::vec(any_text(), 0..6), texts(), texts(), words(), words()),
        (proptest::collection::btree_map(text().prop_map(Key), integer(), 0..4), text(), text()),
        (proptest::collection::btree_map(text().prop_map(Key), tree(), 0..4), proptest::option::of(text())),
        (0_u64..=1 << 53, proptest::collection::btree_map(text().prop_map(Key), text(), 0..4)),
    );
    parts.prop_map(|((argv, env, files, endpoints, devices), (ulimits, word, id), (settings, split), (count, cell))| {
        let mut spec = named(real("rehearsal"), "tp8-ep8-dpa-mooncake-mtp-c12").clone();
        let service = &mut spec.deployment.services[0];
        (service.argv, service.env, service.files, service.endpoints) = (argv, env, files, endpoints);
        (service.resources.devices, service.resources.ulimits) = (devices, ulimits);
        (service.name, service.resources.gpus, service.resources.shm_mib) = (word.clone(), count, Some(count));
        service.entrypoint = vec![word.clone(), id.clone()];
        (spec.deployment.model.id, spec.deployment.model.revision) = (id, Some(word.clone()));
        spec.deployment.substitutions.as_mut().unwrap().engine = settings;
        let acceptance = ixbuild::spec::Acceptance::Synthetic { cell: cell.into_iter().collect(), length: word };
        spec.deployment.speculative.as_mut().unwrap().acceptance = acceptance;
        (spec.measurement.workload.split, spec.measurement.workload.seed) = (split, Some(count));
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_spec_is_canonical(spec in spec()) {
        check(&spec)?;
    }

    #[test]
    fn keys_sort_by_utf_16(keys in proptest::collection::vec(text(), 0..8)) {
        let mut ours: Vec<Key> = keys.iter().map(|key| Key(key.clone())).collect();
        ours.sort();
        let mut units: Vec<Vec<u16>> = keys.iter().map(|key| key.encode_utf16().collect()).collect();
        units.sort();
        let ours: Vec<Vec<u16>> = ours.iter().map(|key| key.0.encode_utf16().collect()).collect();
        prop_assert_eq!(ours, units);
    }

    /// A document with bindings reaches the process as JSON, with every value where it was.
    #[test]
    fn a_document_is_printed_as_json(tree in tree()) {
        let printed = Text::Json { json: tree.clone() }.render(&Digits).unwrap();
        let read: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
        prop_assert!(same(&tree, &read), "{:?} was printed as {}", tree, printed);
    }
}

/// Gives every binding the same digits.
struct Digits;

impl Binder for Digits {
    fn bind(&self, _: &Binding) -> Result<Cow<'_, str>, Unbound> {
        Ok(Cow::Borrowed("8000"))
    }
}

fn same(tree: &Tree, json: &Value) -> bool {
    let joined = |segments: &[Segment]| -> String {
        segments.iter().map(|segment| if let Segment::Literal(text) = segment { text } else { "8000" }).collect()
    };
    match tree {
        Tree::Null => json.is_null(),
        Tree::Bool(value) => json.as_bool() == Some(*value),
        Tree::Integer(value) => json.as_i64() == Some(*value),
        Tree::String(text) => json.as_str() == Some(text),
        Tree::Decimal { decimal } => json.is_number() && json.as_f64() == decimal.parse().ok(),
        Tree::Segments { text } => json.as_str() == Some(&joined(text)),
        Tree::Number { .. } => json.as_i64() == Some(8000),
        Tree::List(items) => json.as_array().is_some_and(|found| {
            found.len() == items.len() && items.iter().zip(found).all(|(item, found)| same(item, found))
        }),
        Tree::Map { map } => json.as_object().is_some_and(|found| {
            found.len() == map.len() && map.iter().all(|(key, value)| found.get(&key.0).is_some_and(|f| same(value, f)))
        }),
    }
}

#[test]
fn decimals_keep_their_digits() {
    let tree = |digits: &str| Tree::Decimal { decimal: digits.into() };
    let map = BTreeMap::from([(Key::from("a"), tree("0.80")), (Key::from("b"), tree("2.490"))]);
    assert_eq!(Text::Json { json: Tree::Map { map } }.render(&Digits).unwrap(), r#"{"a":0.80,"b":2.490}"#);
}
