//! Known specs with their known names: the same on every machine, in every folder, for every build.
//!
//! A digest that moves here moves in every store: each recorded result of such an arm stops being one. Change these lines
//! with the change of a recipe, a row or the spec's form that is meant to do that, and with nothing else.

use ixbuild::ids::Digest;
use ixbuild::spec::JobSpec;

use super::tree::{named, real};

const KNOWN: [(&str, &str, &str); 8] = [
    ("docker", "tp8-resident-c1", "9030de46d7e935c7c053e341d1e21b998075f5e4ad00076057b7539d7f17a2b7"),
    ("docker", "tp8-vllm-simple-c16", "a0cc36903cdc8d56eea3ce9c10fccf9ec17065d5eda2c0cbf605f02b3397bca8"),
    ("docker", "tp8-ep8-dpa-vllm-simple-c80", "25288633a808ed1985f39862c536811d7a737e1510ff4413edac91d118638abc"),
    ("docker", "tp8-ep8-dpa-mooncake-mtp-c12", "02ce2928959672f68ca6dc6250a29c12b946173b5bcad89e68058f148b7fe269"),
    ("docker", "tp8-lmcache-c8", "875d37da3c0e50869118309f2634c78103d57e5ed3ad4b8b651503f3bd591d2b"),
    ("docker", "tp8-ep8-dpa-mooncake-mtp-c12-eval", "8cf1096c8c179dc9c57436cfa321bb31fc46d312f275afdc6b7c5740a41602d0"),
    ("rehearsal", "tp8-resident-c1", "0ad138674a09151a71a405eabd23af4f19e5134763c1dd873b3c4af9ad1ea1d7"),
    ("rehearsal", "tp8-ep8-dpa-mooncake-mtp-c12", "383fb606f98668641c5f8594c542af2e17711ea95c1940e8ed70f406eb7e12ed"),
];

#[test]
fn known_specs_have_their_known_names() {
    let mut now = Vec::new();
    for (profile, arm, _) in KNOWN {
        now.push((profile, arm, named(real(profile), arm).hash().hex()));
    }
    let known: Vec<_> = KNOWN.iter().map(|(profile, arm, hash)| (*profile, *arm, (*hash).to_owned())).collect();
    assert_eq!(now, known);
}

/// The whole document, so that a digest that moves can be read.
#[test]
fn a_known_document() {
    let spec = named(real("docker"), "tp8-ep8-dpa-mooncake-mtp-c12");
    let text = serde_json::to_string_pretty(&serde_json::to_value(spec).unwrap()).unwrap();
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!("document", text) });
}

/// A spec as it was written by the first version of the format, byte for byte: later programs read and name it alike.
#[test]
fn a_stored_spec_reads_as_itself() {
    let bytes = include_bytes!("stored-spec.json").trim_ascii_end();
    let spec: JobSpec = serde_json::from_slice(bytes).unwrap();
    assert_eq!(String::from_utf8(spec.canonical()).unwrap(), String::from_utf8(bytes.to_vec()).unwrap());
    assert_eq!(spec.hash().0, Digest::of(bytes));
    assert_eq!(spec.hash().hex(), STORED);
}

const STORED: &str = "383fb606f98668641c5f8594c542af2e17711ea95c1940e8ed70f406eb7e12ed";
