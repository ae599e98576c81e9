//! `changelog add`.

use std::fs;

use crate::repository::{CHANGELOG, KEY, MTP, ONE, Repository};

#[test]
fn an_entry_is_appended_and_what_was_there_stays() {
    let repository = Repository::new();
    let said = repository
        .ixbuild(&[
            "changelog",
            "add",
            KEY,
            "*-mtp",
            "-m",
            "Bump: \"it\"",
            "-m",
            "More",
            "--pr",
            "7",
            "--scenario-type",
            "agentic-coding",
        ])
        .ok();
    let text = repository.read(CHANGELOG);
    let entry = "
- config-keys:
    - dsv4-fp4-b200-vllm-agentic
    - \"*-mtp\"
  scenario-type:
    - agentic-coding
  description:
    - \"Bump: \\\"it\\\"\"
    - \"More\"
  pr-link: https://example.com/org/repo/pull/7
";
    assert_eq!(text, format!("{ONE}{entry}"));
    assert_eq!(
        (said.out.as_str(), said.err.as_str()),
        (entry.trim_start_matches('\n'), "appended at perf-changelog.yaml:7\n")
    );
    // It selects what it names.
    repository.commit("entry");
    let selection = repository.ixbuild(&["changelog", "select", "--base", "base"]).ok().json();
    assert_eq!(selection["single_node"]["agentic"].as_array().unwrap().len(), 68);
    assert_eq!(
        fs::read_dir(repository.dir.path())
            .unwrap()
            .filter(|file| { file.as_ref().unwrap().file_name().to_string_lossy().contains("lock-") })
            .count(),
        0
    );
}

#[test]
fn the_first_entry_takes_the_place_of_an_empty_list() {
    let repository = Repository::new();
    repository.write(CHANGELOG, "# None yet.\n[]\n");
    repository.commit("empty");
    repository.git(&["tag", "-f", "base"]);
    let add = |pr: &str| repository.ixbuild(&["changelog", "add", MTP, "-m", "First", "--pr", pr, "--json"]);
    let said = add("1");
    assert_eq!((said.code, said.json()["error"]["code"].as_i64()), (Some(2), Some(2)), "{said:?}");
    let said = add("https://example.com/o/r/pull/1").ok().json();
    assert_eq!((&said["line"], &said["written"], &said["path"]), (&3.into(), &true.into(), &CHANGELOG.into()));
    assert!(repository.read(CHANGELOG).starts_with("# None yet.\n\n- config-keys:\n"));
    repository.check().ok();
}

#[test]
fn nothing_is_written_when_something_is_wrong() {
    let repository = Repository::new();
    let add = |args: &[&str]| repository.ixbuild(&[&["changelog", "add"], args].concat());
    add(&["dsv4-fp4-b200-vllm-agentik", "-m", "x", "--pr", "1"])
        .refused(2, "no config key `dsv4-fp4-b200-vllm-agentik`");
    add(&["glm*", "-m", "x", "--pr", "1"]).refused(2, "no config key matches `glm*`");
    assert_eq!(add(&[KEY, "--pr", "1"]).code, Some(2), "no message");
    assert_eq!(add(&[KEY, "-m", "x", "--pr", "1", "--append-only", "--all-evals"]).code, Some(2));
    add(&[KEY, "-m", "", "--pr", "1"]).refused(3, "an item of `description` is empty");
    add(&[KEY, "-m", "x", "--pr", "1", "--dry-run"]).ok();
    assert_eq!(repository.read(CHANGELOG), ONE);
    repository.write(CHANGELOG, ONE.trim_end());
    add(&[KEY, "-m", "x", "--pr", "1"]).refused(3, "did not end with a line end");
    assert_eq!(repository.read(CHANGELOG), ONE.trim_end());
}
