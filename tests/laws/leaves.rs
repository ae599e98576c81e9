//! Every leaf of a spec is in its hash, and in the list of differences that `why` and `diff` print.

use ixbuild::ids::{Digest, JobHash};
use ixbuild::spec::JobSpec;
use ixbuild::spec::diff::{Change, changes};
use serde_json::Value;

use super::tree::{Tree, named, real};

/// Specs that hold every kind of part between them.
fn samples() -> Vec<JobSpec> {
    let locked = Tree::real().locked(|_| true, "").specs("docker");
    vec![
        named(real("docker"), "tp8-resident-c1").clone(),
        named(real("rehearsal"), "tp8-ep8-dpa-mooncake-mtp-c12").clone(),
        named(&locked, "tp8-ep8-dpa-mooncake-mtp-c12").clone(),
        named(&locked, "tp8-ep8-dpa-lmcache-c12-eval").clone(),
    ]
}

/// A step into a document.
#[derive(Clone)]
enum Step {
    Key(String),
    Index(usize),
}

fn show(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Key(key) => key.clone(),
        Step::Index(index) => index.to_string(),
    });
    steps.collect::<Vec<_>>().join(".")
}

/// Every scalar and every empty collection.
fn leaves(value: &Value, path: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                path.push(Step::Key(key.clone()));
                leaves(value, path, found);
                path.pop();
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Index(index));
                leaves(item, path, found);
                path.pop();
            }
        }
        _ => found.push(path.clone()),
    }
}

fn at<'v>(root: &'v mut Value, path: &[Step]) -> &'v mut Value {
    path.iter().fold(root, |value, step| match step {
        Step::Key(key) => &mut value[key.as_str()],
        Step::Index(index) => &mut value[*index],
    })
}

/// Other values that a leaf might have; words that a choice allows among them.
fn others(leaf: &Value) -> Vec<Value> {
    const WORDS: [&str; 12] =
        ["all", "any", "aiperf", "swebench", "closure", "none", "host", "port", "vllm", "sglang", "3.13", "cp313"];
    match leaf {
        Value::Bool(value) => vec![Value::from(!value)],
        Value::Number(number) => vec![Value::from(number.as_i64().unwrap() + 1)],
        Value::String(text) => {
            let digest = Value::from(Digest::of(text.as_bytes()).to_string());
            let words = WORDS.iter().map(|word| Value::from(*word)).filter(|word| word != leaf);
            [Value::from(format!("{text}~")), digest].into_iter().chain(words).collect()
        }
        Value::Array(_) => vec![serde_json::json!(["more"])],
        Value::Object(_) => vec![serde_json::json!({"more": "m"}), serde_json::json!({"more": 1})],
        Value::Null => vec![Value::from("not null")],
    }
}

/// What other lists of the same name hold: an empty list of packages is changed into one of these.
fn lists_named(name: &str, value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get(name).filter(|list| list.as_array().is_some_and(|items| !items.is_empty())).cloned());
            map.values().for_each(|value| lists_named(name, value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| lists_named(name, item, found)),
        _ => {}
    }
}

/// Whether some change shows what a leaf was or has become.
fn shows(found: &[Change], old: &Value, new: &Value) -> bool {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => match items.first() {
            None => "[]".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(item) => {
                item["name"].as_str().or(item["service"].as_str()).or(item["target"].as_str()).unwrap().to_owned()
            }
        },
        Value::Object(map) => if map.is_empty() { "yes" } else { "more" }.to_owned(),
        other => other.to_string(),
    };
    let (old, new) = (text(old), text(new));
    found.iter().any(|change| {
        let Change { stage, what, old: before, new: after } = change;
        // `--flag=value` shows as the change of a flag from `=value`.
        let joined = |value: &Option<String>| value.as_ref().map(|value| format!("{what}{value}"));
        let parts =
            [Some(stage.clone()), Some(what.clone()), before.clone(), after.clone(), joined(before), joined(after)];
        parts.iter().flatten().any(|part| part.contains(&old) || part.contains(&new))
    })
}

/// The spec that a document is, if it is one.
fn read(document: &Value) -> Option<JobSpec> {
    serde_json::from_value(document.clone()).ok()
}

#[test]
fn every_leaf_is_hashed_and_explained() {
    let samples: Vec<(JobSpec, Value)> =
        samples().into_iter().map(|spec| (spec.clone(), serde_json::to_value(&spec).unwrap())).collect();
    let mut fixed = std::collections::BTreeSet::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut count = 0;
    for (spec, document) in &samples {
        let hash = spec.hash();
        let mut paths = Vec::new();
        leaves(document, &mut Vec::new(), &mut paths);
        for path in paths {
            let old = at(&mut document.clone(), &path).clone();
            // Most of what specs say they say alike.
            let keys: Vec<Step> = path.iter().filter(|step| matches!(step, Step::Key(_))).cloned().collect();
            if !seen.insert((show(&keys), old.to_string())) {
                continue;
            }
            let mut candidates = others(&old);
            if let (Value::Array(_), Some(Step::Key(name))) = (&old, path.last()) {
                samples.iter().for_each(|(_, document)| lists_named(name, document, &mut candidates));
            }
            let changed = candidates.into_iter().find_map(|new| {
                let mut changed = document.clone();
                *at(&mut changed, &path) = new.clone();
                Some((read(&changed)?, changed, new))
            });
            let Some((other, changed, new)) = changed else {
                fixed.insert(show(&path));
                continue;
            };
            count += 1;
            let name = show(&path);
            assert_eq!(serde_json::to_value(&other).unwrap(), changed, "{name} is read as something else");
            assert_ne!(other.hash(), hash, "{name} is not hashed");
            let found = changes(document, &changed);
            assert!(shows(&found, &old, &new), "{name}: {old} → {new} shows as {found:?}");
            assert!(
                found.iter().all(|change| !change.what.is_empty() && change.old != change.new),
                "{name}: {found:?}"
            );
        }
    }
    assert!(count > 250, "only {count} leaves were changed");
    // Words with one choice so far, and objects that stay empty.
    let expected =
        ["deployment.speculative.acceptance.real", "measurement.client.probe.exit", "measurement.server", "schema"];
    let is_unit = |path: &str| path.ends_with(".model") || path.ends_with(".probe.exit");
    let fixed: Vec<&String> =
        fixed.iter().filter(|path| !is_unit(path) && !expected.contains(&path.as_str())).collect();
    assert!(fixed.is_empty(), "leaves that cannot be changed: {fixed:?}");
}

/// Nothing that a document holds beyond a spec is dropped in silence.
#[test]
fn unknown_keys_are_refused_at_every_level() {
    fn objects(value: &Value, path: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
        if value.is_object() {
            found.push(path.clone());
        }
        let steps: Vec<(Step, &Value)> = match value {
            Value::Object(map) => map.iter().map(|(key, value)| (Step::Key(key.clone()), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(index, item)| (Step::Index(index), item)).collect(),
            _ => Vec::new(),
        };
        for (step, value) in steps {
            path.push(step);
            objects(value, path, found);
            path.pop();
        }
    }
    for spec in samples() {
        let document = serde_json::to_value(&spec).unwrap();
        let mut paths = Vec::new();
        objects(&document, &mut Vec::new(), &mut paths);
        for path in paths {
            for extra in [Value::from("x"), Value::from(1), serde_json::json!({"a": []})] {
                let mut more = document.clone();
                at(&mut more, &path)["zz-unknown"] = extra;
                if let Some(read) = read(&more) {
                    // Maps whose keys are data take it in.
                    assert_eq!(serde_json::to_value(&read).unwrap(), more, "dropped at {}", show(&path));
                    assert_ne!(read.hash(), spec.hash());
                }
            }
        }
    }
}

/// The table in the module's documentation names every field.
#[test]
fn the_table_of_the_hash_is_complete() {
    /// Fields whose maps have keys of the recipe's choice.
    const DATA: [&str; 9] = ["env", "files", "argv", "ulimits", "cell", "programs", "engine", "closure", "source"];
    fn fields(value: &Value, found: &mut std::collections::BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    found.insert(name.clone());
                    if !DATA.contains(&name.as_str()) {
                        fields(value, found);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
            _ => {}
        }
    }
    let mut found = std::collections::BTreeSet::new();
    let some = real("docker").values().step_by(7).chain(real("rehearsal").values().step_by(7));
    for spec in some.chain(&samples()) {
        let mut document = serde_json::to_value(spec).unwrap();
        if let Some(substitutions) = document["deployment"].get_mut("substitutions") {
            substitutions["client"] = Value::Null;
        }
        fields(&document, &mut found);
    }
    assert!(found.len() > 60, "{found:?}");
    let docs = include_str!("../../src/spec/mod.rs").split("What is not:").next().unwrap();
    let missing: Vec<_> = found.iter().filter(|name| !docs.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "the table lacks {missing:?}");
}

/// Two changes at once are both listed, even where the texts that people read agree.
#[test]
fn no_difference_hides_behind_another() {
    let spec = named(real("docker"), "tp8-ep8-dpa-mooncake-mtp-c12");
    let document = serde_json::to_value(spec).unwrap();
    let server =
        document["deployment"]["services"].as_array().unwrap().iter().position(|s| s["name"] == "server").unwrap();
    let set = |pointer: &str, value: Value| {
        let mut changed = document.clone();
        changed["measurement"]["concurrency"] = Value::from(13);
        *changed["deployment"]["services"][server].pointer_mut(pointer).unwrap() = value;
        assert!(read(&changed).is_some(), "{pointer}");
        changes(&document, &changed)
    };
    // A literal that reads like the binding it replaces, and a string that reads like the number it replaces.
    let bound = set("/env/MOONCAKE_CONFIG_PATH", Value::from("<file(mooncake.json)>"));
    assert!(bound.len() == 2 && bound.iter().any(|change| change.what == "env MOONCAKE_CONFIG_PATH"), "{bound:?}");
    let quoted = set("/files/mooncake.json/json/map/global_segment_size", serde_json::json!({"decimal": "299.5"}));
    assert!(quoted.len() == 2, "{quoted:?}");
    let argv = document["deployment"]["services"][server]["argv"].as_array().unwrap();
    let json = argv.iter().position(|item| item.get("json").is_some()).unwrap();
    let text = set(&format!("/argv/{json}"), Value::from("{}"));
    assert!(text.len() >= 2, "{text:?}");
    // A flag's value that reads like the absence of one.
    let bare = argv.iter().position(|item| item == "--numa-bind").unwrap();
    let mut changed = document.clone();
    changed["measurement"]["concurrency"] = Value::from(13);
    changed["deployment"]["services"][server]["argv"].as_array_mut().unwrap().insert(bare + 1, Value::from("set"));
    let found = changes(&document, &changed);
    assert!(found.len() == 2 && found.iter().any(|change| change.what == "--numa-bind"), "{found:?}");
}

/// Services whose names are those of other parts keep their own differences.
#[test]
fn stages_do_not_share_names() {
    let mut spec = named(real("docker"), "tp8-resident-c1").clone();
    spec.deployment.services[0].name = "client".into();
    let document = serde_json::to_value(&spec).unwrap();
    let mut changed = spec.clone();
    changed.deployment.services[0].replicas = 2;
    changed.measurement.client.replicas = 3;
    let found = changes(&document, &serde_json::to_value(&changed).unwrap());
    assert_eq!(found.len(), 2, "{found:?}");
}

/// What is no arm of the matrix has another name, and says what it is.
#[test]
fn what_ifs_and_explorations_are_other_jobs() {
    let spec = named(real("docker"), "tp8-resident-mtp-c1");
    let document = serde_json::to_value(spec).unwrap();
    let explored = JobSpec { exploratory: true, ..spec.clone() };
    let what_if = JobSpec { what_if: vec!["server.args.block-size=128".into()], ..spec.clone() };
    for (other, what) in [(explored, "exploratory"), (what_if, "what-if")] {
        assert_ne!(other.hash(), spec.hash());
        let bytes = other.canonical();
        assert_eq!(serde_json_canonicalizer::to_vec(&other).unwrap(), bytes);
        assert_eq!(serde_json::from_slice::<JobSpec>(&bytes).unwrap(), other);
        let found = changes(&document, &serde_json::to_value(&other).unwrap());
        assert!(found.len() == 1 && found[0].what == what, "{found:?}");
    }
    assert!(!String::from_utf8(spec.canonical()).unwrap().contains("what-if"));
}

#[test]
fn a_moved_flag_is_one_change_of_order() {
    let spec = named(real("docker"), "tp8-resident-c1");
    let mut swapped = spec.clone();
    swapped.deployment.services[0].argv.swap(7, 8);
    // --tensor-parallel-size 8 --data-parallel-size 1: a value and a flag changed places, so both pairs move.
    assert_ne!(swapped.hash(), spec.hash());
    let mut moved = spec.clone();
    let pair: Vec<_> = moved.deployment.services[0].argv.drain(3..5).collect();
    moved.deployment.services[0].argv.extend(pair);
    let found = changes(&serde_json::to_value(spec).unwrap(), &serde_json::to_value(&moved).unwrap());
    assert_eq!(found.iter().map(|change| change.what.as_str()).collect::<Vec<_>>(), ["order of flags"], "{found:?}");
    let same: JobHash = spec.clone().hash();
    assert_eq!(same, spec.hash());
}
