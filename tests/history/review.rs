//! `changelog check`, `changelog audit` and `plan --since` on a project with recipes.

use serde_json::Value;

use crate::repository::{CHANGELOG, KEY, MASTER, MTP, Repository};

/// A line of the recipes that only the mooncake overlay holds.
const LEASE: &str = "default_kv_lease_ttl=: 60s";
const KV: &str = "configs/recipes/lib/kv-offload.yaml";

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|arm| arm["id"].as_str().unwrap_or_default()).collect()
}

#[test]
fn what_changes_no_spec_asks_for_no_entry() {
    let repository = Repository::new();
    repository.edit(MASTER, "[1, 2, 4, 6, 8]", "[1,  2, 4, 6, 8]");
    repository.edit(MASTER, &format!("{KEY}:\n"), "renamed:\n");
    let said = repository.check().ok().json();
    assert_eq!((&said["arms"], &said["changed"], &said["by_row"]), (&68.into(), &0.into(), &0.into()));
    let text = repository.ixbuild(&["changelog", "check", "--base", "base"]).ok();
    assert!(text.out.ends_with("no new entry, and no arm needs one\n"), "{text:?}");
}

#[test]
fn arms_that_changed_without_an_entry_are_found_and_the_printed_entry_covers_them() {
    let repository = Repository::new();
    repository.edit(KV, LEASE, "default_kv_lease_ttl=: 90s");
    let said = repository.check();
    assert_eq!(said.code, Some(4), "{said:?}");
    let found = said.json();
    let uncovered = ids(&found["uncovered"]);
    let mooncake = uncovered.iter().filter(|id| !id.ends_with("-eval")).count();
    assert_eq!(found["changed"], mooncake);
    assert!(mooncake > 9 && uncovered.iter().all(|id| id.contains("-mooncake-")), "{uncovered:?}");
    let append = found["append"].as_str().unwrap();
    assert!(append.contains("=60s to =90s"), "{append}");
    // The suggestion stands in the text as well, ready to be pasted, and does what it promises.
    let text = repository.ixbuild(&["changelog", "check", "--base", "base"]);
    assert!(text.out.contains(append) && text.out.contains("never to be swept"), "{text:?}");
    repository.append(CHANGELOG, append);
    let after = repository.check().ok().json();
    assert_eq!(after["uncovered"], Value::Array(Vec::new()));
    assert_eq!(after["entries"][0]["changed"], uncovered.len());
    let hours = after["entries"][0]["gpu_hours"].as_f64().unwrap();
    assert!(after["entries"][0]["idle_gpu_hours"].as_f64().unwrap() < hours);
}

#[test]
fn an_entry_that_selects_nothing_new_is_said_to_run_for_nothing() {
    let repository = Repository::new();
    repository.ixbuild(&["changelog", "add", MTP, "-m", "Again", "--pr", "2"]).ok();
    let text = repository.ixbuild(&["changelog", "check", "--base", "base"]).ok();
    assert!(text.out.contains("none changed: would re-run"), "{text:?}");
    let found = repository.check().ok().json();
    // 28 points of 8 GPUs for an hour and 20 minutes, and one evaluation of 15 minutes (assumed).
    let expected = 28.0 * 8.0 * (3600.0 + 1200.0) / 3600.0;
    let idle = found["entries"][0]["idle_gpu_hours"].as_f64().unwrap();
    assert!((idle - expected - 8.0 * (900.0 + 1200.0) / 3600.0).abs() < 1e-6, "{idle}, {expected}");
    let strict = repository.ixbuild(&["changelog", "check", "--base", "base", "--strict"]);
    assert_eq!(strict.code, Some(4), "{strict:?}");
    let cheaper = repository.ixbuild(&[
        "changelog",
        "check",
        "--base",
        "base",
        "--json",
        "--start-up",
        "0",
        "--assume-load",
        "0",
    ]);
    assert_eq!(cheaper.ok().json()["entries"][0]["idle_gpu_hours"], 28.0 * 8.0);
}

#[test]
fn added_points_get_an_append_only_entry() {
    let repository = Repository::new();
    repository.edit(MASTER, "[1, 2, 4, 6, 8]", "[1, 2, 3, 4, 6, 8]");
    let said = repository.check();
    assert_eq!(said.code, Some(4), "{said:?}");
    let found = said.json();
    let append = found["append"].as_str().unwrap();
    assert!(append.contains("append-only: true"), "{append}");
    repository.append(CHANGELOG, append);
    let after = repository.check().ok().json();
    let uncovered = ids(&found["uncovered"]).iter().filter(|id| !id.ends_with("-eval")).count();
    assert_eq!(
        (&after["entries"][0]["selected"].as_array().unwrap().len(), &after["entries"][0]["changed"]),
        (&uncovered, &uncovered.into())
    );
    assert_eq!(after["entries"][0]["idle_gpu_hours"], 0.0);
    // With the recipe changed as well, points that were there need a run too: the entry no longer covers everything.
    repository.edit(KV, LEASE, "default_kv_lease_ttl=: 90s");
    let more = repository.check();
    assert_eq!(more.code, Some(4), "{more:?}");
    assert!(ids(&more.json()["uncovered"]).iter().all(|id| id.contains("-mooncake-")), "{more:?}");
}

#[test]
fn arms_without_a_recipe_are_compared_by_row_and_said_so() {
    let repository = Repository::new();
    std::fs::remove_dir_all(repository.path("configs/recipes")).unwrap();
    repository.commit("no recipes");
    repository.git(&["tag", "-f", "base"]);
    repository.edit(MASTER, "cu13.0.1-904e4ec", "cu13.0.1-a04e4ec");
    let said = repository.check();
    let found = said.json();
    assert_eq!((said.code, &found["by_row"], &found["changed"]), (Some(4), &68.into(), &68.into()));
    assert!(found["append"].as_str().unwrap().contains("image: "), "{found}");
    let text = repository.ixbuild(&["changelog", "check", "--base", "base"]);
    assert!(text.out.contains("68 arms without a recipe (or a job) here: compared by row"), "{text:?}");
}

#[test]
fn an_audit_counts_what_a_history_ran_for_nothing() {
    let repository = Repository::new();
    let add = |key: &str, message: &str| {
        repository.ixbuild(&["changelog", "add", key, "-m", message, "--pr", "2"]).ok();
        repository.commit(message);
    };
    let image = |old: &str, new: &str| repository.edit(MASTER, old, new);
    add(MTP, "Nothing changed");
    image("cu13.0.1-904e4ec", "cu13.0.1-904e4ec1");
    repository.commit("An edit that waits for its entry");
    add(MTP, "Now it comes");
    image("cu13.0.1-904e4ec1", "cu13.0.1-904e4ec");
    add(KEY, "Back to what was measured at the start");
    repository.edit(CHANGELOG, "Nothing changed", "Something changed");
    repository.commit("History is not rewritten");
    let json = repository.ixbuild(&["changelog", "audit", "--range", "base..HEAD", "--json"]).ok().json();
    let commits = json["commits"].as_array().unwrap();
    let counts: Vec<(u64, u64)> = commits
        .iter()
        .filter_map(|commit| {
            let entry = &commit["entries"][0];
            Some((entry["selected"].as_u64()?, entry["changed"].as_u64()?))
        })
        .collect();
    let (mtp, key) = (counts[0].0, counts[2].0);
    assert!(mtp > 28 && key > 40, "throughput and evals: {counts:?}");
    assert_eq!(counts, [(mtp, 0), (mtp, mtp), (key, 0)]);
    assert!(commits[3]["skipped"].as_str().unwrap().contains("a removed line"), "{json}");
    assert_eq!(json["total"]["selected"], mtp + mtp + key);
    assert_eq!(json["total"]["changed"], mtp);
    let text = repository.ixbuild(&["changelog", "audit", "--range", "base..", "--threads", "1"]).ok();
    assert!(text.out.contains("3 commits with 3 entries selected") && text.err.contains("passed over: "), "{text:?}");
}

#[test]
fn a_plan_since_a_revision_lists_what_changed_there() {
    let repository = Repository::new();
    let plan = |args: &[&str]| {
        let args: Vec<&str> = [&["plan", "--since", "base", "-P", "rehearsal"], args].concat();
        repository.ixbuild(&args).ok()
    };
    assert!(plan(&[]).out.starts_with("68 arms: 0 changed, 0 new, 0 removed, 68 unchanged, 0 blocked"));
    repository.edit(KV, LEASE, "default_kv_lease_ttl=: 90s");
    repository.edit(MASTER, "[1, 2, 4, 6, 8]", "[1, 2, 4, 6, 7]");
    let found = plan(&["--json"]).json();
    let state = |word: &str| {
        let arms = found["arms"].as_array().unwrap();
        arms.iter().filter(|arm| arm["state"] == word).map(|arm| arm["id"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert!(state("changed").len() > 9 && state("changed").iter().all(|id| id.contains("-mooncake-")));
    assert!(!state("new").is_empty() && state("new").iter().all(|id| id.ends_with("-c7")), "{:?}", state("new"));
    assert_eq!(found["removed"].as_array().unwrap().len(), state("new").len());
    let summary = &found["summary"];
    assert_eq!(summary["changed"], state("changed").len());
    let arm = found["arms"].as_array().unwrap().iter().find(|arm| arm["state"] == "changed").unwrap();
    assert_eq!((&arm["reasons"][0]["kind"], &arm["reasons"][0]["new"]), (&"changed".into(), &"=90s".into()), "{arm}");
    let table = plan(&["--format", "markdown"]).out;
    assert!(table.starts_with("### ixbuild plan since `") && table.contains("\n| changed | "), "{table}");
    assert!(table.contains("`=60s` → `=90s`") && table.contains("\n| removed | "), "{table}");
    assert!(plan(&[]).out.contains("=60s → =90s"));
    // A selection narrows the comparison, and then nothing is said to be gone.
    let one = plan(&["*-c7", "--json"]).json();
    assert_eq!(
        (one["arms"].as_array().unwrap().len(), &one["removed"]),
        (state("new").len(), &Value::Array(Vec::new()))
    );
}

#[test]
fn a_plan_since_with_the_changelog_is_what_changed_and_is_selected() {
    let repository = Repository::new();
    repository.edit(KV, LEASE, "default_kv_lease_ttl=: 90s");
    repository.ixbuild(&["changelog", "add", MTP, "-m", "Longer leases", "--pr", "2"]).ok();
    let args = ["plan", "--since", "base", "--changelog", "-P", "rehearsal", "--format", "json"];
    let found = repository.ixbuild(&args).ok().json();
    let all = ids(&found["arms"]);
    assert!(all.len() >= 28 && all.iter().all(|id| id.starts_with(MTP)), "{all:?}");
    let changed: Vec<&Value> =
        found["arms"].as_array().unwrap().iter().filter(|arm| arm["state"] == "changed").collect();
    assert!(changed.iter().all(|arm| arm["id"].as_str().unwrap().contains("-mooncake-")));
    assert_eq!(found["summary"]["changed"], changed.len());
    // The other key's mooncake arms changed, and no entry selects them.
    assert_eq!(found["changed_unselected"], 9);
}

#[test]
fn a_plan_against_the_store_prints_as_a_table_too() {
    let repository = Repository::new();
    let said = repository.ixbuild(&["plan", "-P", "rehearsal", "--format", "markdown"]).ok();
    assert!(said.out.starts_with("### ixbuild plan\n\n68 arms: 0 recorded, 68 to run"), "{said:?}");
    assert!(said.out.contains(&format!("| run | 40 of `{KEY}/agentic`: `tp8-resident-c1`, ")), "{said:?}");
}
