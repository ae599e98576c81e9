//! One spec is one job, one id is one spec, and no text can pass for a binding.

use ixbuild::plan::{Outline, PlanError, Policy, plan};
use ixbuild::spec::{Binding, Key, Text, Tree as Json};
use ixbuild::store::memory::MemoryStore;
use serde_json::json;

use super::tree::{KEY, MASTER, RECIPE, Tree, every_arm, named, real};

#[test]
fn equal_rows_under_two_keys_share_a_job() {
    let text = Tree::real().text(MASTER).to_owned();
    let (_, first) = text.split_once(&format!("{KEY}:")).unwrap();
    let first = first.split("\n# The same").next().unwrap();
    let tree = Tree::real().with(MASTER, format!("{text}\nsecond-key:{first}\n"));
    let project = tree.project("docker").unwrap();
    let arms: Vec<_> = every_arm(&project).unwrap().into_iter().filter(|arm| !arm.eval).collect();
    assert_eq!(arms.len(), 68 + 40);
    let jobs = tree.jobs("docker");
    for (id, job) in jobs.iter().filter(|(id, _)| id.starts_with("second-key/")) {
        assert_eq!(jobs[&id.replace("second-key/", &format!("{KEY}/"))], *job);
    }
    let project = tree.project("rehearsal").unwrap();
    let plan = project.plan(&arms.iter().collect::<Vec<_>>(), &MemoryStore::default(), false).unwrap();
    let summary = plan.summary(1);
    assert_eq!((summary.run, summary.jobs), (108, 68));
}

#[test]
fn one_id_with_two_specs_is_an_error() {
    let project = Tree::real().project("rehearsal").unwrap();
    let arms: Vec<_> = every_arm(&project).unwrap().into_iter().filter(|arm| !arm.eval).take(2).collect();
    let outlines = |same: bool| {
        let mut outlines = project.outlines(&arms.iter().collect::<Vec<_>>()).unwrap();
        outlines[1].id = outlines[0].id.clone();
        if same {
            outlines[1].made = outlines[0].made.clone();
        }
        outlines
    };
    let spec = |_: usize| Ok(Vec::new());
    let plan =
        |outlines: Vec<Outline>| plan(outlines, &spec, &MemoryStore::default(), &Policy::of(&project.profile, false));
    assert!(plan(outlines(true)).is_ok());
    let Err(PlanError::Ambiguous { id }) = plan(outlines(false)) else { panic!("two specs under one id were planned") };
    assert_eq!(id, arms[0].id);
}

/// Rows that differ in what their label does not show get different ids.
#[test]
fn rows_that_differ_never_share_an_id() {
    let row = "      - { tp: 8, kv-offloading: none, conc-list: [1, 2, 4, 6, 8] }\n";
    let offloads = |version: &str| {
        format!(
            "      - {{ tp: 8, kv-offloading: dram, kv-offload-backend: {{ name: lmcache, version: \"{version}\" }}, conc-list: [9] }}\n"
        )
    };
    let both = Tree::real().edit(MASTER, row, &format!("{row}{}{}", offloads("0.5.1"), offloads("0.5.2")));
    let specs = both.specs("docker");
    let new: Vec<_> = specs.iter().filter(|(id, _)| id.ends_with("-c9")).collect();
    assert_eq!(new.len(), 2);
    assert_ne!(new[0].1.hash(), new[1].1.hash());

    // The same row in two items of a scenario, with another share of the memory.
    let item = format!("    - dram-utilization: 0.70\n      search-space:\n{}", offloads("0.5.1"));
    let text = Tree::real().text(MASTER).to_owned();
    let first = format!("    agentic-coding:\n{item}");
    let tree = Tree::real().with(
        MASTER,
        text.replacen("    agentic-coding:\n", &first, 1).replacen(row, &format!("{row}{}", offloads("0.5.1")), 1),
    );
    let specs = tree.specs("docker");
    let new: Vec<_> = specs.iter().filter(|(id, _)| id.ends_with("-c9")).collect();
    assert_eq!(new.len(), 2, "{:?}", new.iter().map(|(id, _)| id).collect::<Vec<_>>());
    assert_ne!(new[0].1.deployment.groups[0].dram_gb, new[1].1.deployment.groups[0].dram_gb);
}

/// Text of a recipe that spells a binding's JSON is text all the way to the process.
#[test]
fn no_literal_can_spell_a_binding() {
    let bound = json!({"text": [{"endpoint": {"name": "http", "part": "port", "service": "server"}}]});
    let as_text = bound.to_string();
    let with = |value: &str| {
        let tree = Tree::real().edit(RECIPE, "      block-size: 256\n", &format!("      block-size: {value}\n"));
        let specs = tree.specs("docker");
        let server = named(&specs, "tp8-resident-c1").deployment.services[0].clone();
        let at = server.argv.iter().position(|item| *item == Text::Literal("--block-size".into())).unwrap();
        (server.argv[at + 1].clone(), named(&specs, "tp8-resident-c1").hash())
    };
    let (binding, binding_hash) = with("${{ endpoint(\"server\", \"http\").port }}");
    assert_eq!(serde_json::to_value(&binding).unwrap(), bound);
    let quoted = format!("'{as_text}'");
    let (text, text_hash) = with(&quoted);
    assert_eq!(text, Text::Literal(as_text.clone()));
    assert_eq!(serde_json::to_value(&text).unwrap(), json!(as_text));
    assert_ne!(text_hash, binding_hash);
    // As a map it is a JSON document that holds those words.
    let (map, map_hash) = with(&as_text);
    assert_eq!(map.bindings(), Vec::<&Binding>::new());
    assert_eq!(map.render(&Nothing).unwrap(), as_text);
    assert!(map_hash != text_hash && map_hash != binding_hash);
    // And what `show` prints of a binding is text as well.
    let (shown, shown_hash) = with("<server.http.port>");
    assert_eq!(shown, Text::Literal("<server.http.port>".into()));
    assert_ne!(shown_hash, binding_hash);
}

#[test]
fn documents_that_look_like_bindings_stay_documents() {
    for look_alike in ["text", "number", "decimal", "map", "json", "endpoint", "model"] {
        let tree = Json::Map { map: [(Key::from(look_alike), Json::List(vec![Json::String("x".into())]))].into() };
        let text = Text::Json { json: tree };
        let written = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<Text>(&written).unwrap(), text);
        assert_eq!(text.render(&Nothing).unwrap(), format!(r#"{{"{look_alike}":["x"]}}"#));
    }
}

/// A binder that is never asked.
struct Nothing;

impl ixbuild::spec::Binder for Nothing {
    fn bind(&self, binding: &Binding) -> Result<std::borrow::Cow<'_, str>, ixbuild::spec::Unbound> {
        panic!("{binding} was bound");
    }
}

/// Evals never see a forced acceptance, throughput arms always do.
#[test]
fn synthetic_acceptance_is_for_throughput_alone() {
    for (id, spec) in real("docker").iter().chain(real("rehearsal")) {
        let text = String::from_utf8(spec.canonical()).unwrap();
        let forced = id.contains("-mtp-c") && !id.ends_with("-eval");
        assert_eq!(text.contains("synthetic_acceptance_length"), forced, "{id}");
        assert_eq!(text.contains("rejection_sample_method"), forced, "{id}");
        assert_eq!(text.contains("\"acceptance-tolerance\":\"0.02\""), forced, "{id}");
        assert_eq!(spec.deployment.speculative.is_some(), id.contains("-mtp-c"), "{id}");
    }
}
