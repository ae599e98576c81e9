//! Bad input: a clear refusal with the documented exit code, and never half a document on stdout.

use std::process::Command;

use crate::repository::{CHANGELOG, KEY, ONE, Repository, Said};

const SECOND: &str = "
- config-keys:
    - dsv4-fp4-b200-vllm-agentic
  description:
    - \"The second sweep\"
  pr-link: https://example.com/org/repo/pull/2
";

fn select(repository: &Repository) -> Said {
    repository.ixbuild(&["changelog", "select", "--base", "base", "--head", "HEAD"])
}

/// What `select` and `check` say of a changelog.
#[track_caller]
fn both_refuse(text: &[u8], words: &str) {
    let repository = Repository::new();
    repository.write(CHANGELOG, text);
    repository.commit("bad");
    select(&repository).refused(3, words);
    repository.ixbuild(&["changelog", "check", "--base", "base"]).refused(3, words);
    repository.ixbuild(&["changelog", "check", "--base", "base", "--head", "HEAD"]).refused(3, words);
}

#[test]
fn lines_that_went_away() {
    both_refuse(ONE.replace("    - \"The first sweep\"\n", "").as_bytes(), "a removed line: - \"The first sweep\"");
    both_refuse(b"", "a removed line: - config-keys:");
}

#[test]
fn bytes_that_do_not_belong_into_a_changelog() {
    let with = |second: String| format!("{ONE}{second}");
    both_refuse(with(SECOND.replace('\n', "\r\n")).as_bytes(), "a carriage return in the changelog");
    both_refuse(with(SECOND.replace("The second", "The\tsecond")).as_bytes(), "a tab in the changelog");
    both_refuse(with(SECOND.replace("The second", "The\0second")).as_bytes(), "a NUL byte in the changelog");
    both_refuse(with(SECOND.trim_end().to_owned()).as_bytes(), "no line end at the end");
    both_refuse(&[ONE.as_bytes(), b"- \xff\n"].concat(), "not UTF-8");
}

#[test]
fn entries_that_do_not_read() {
    let with = |old: &str, new: &str| format!("{ONE}{}", SECOND.replace(old, new)).into_bytes();
    both_refuse(&with("  description:\n", "  pr-link: x\n  description:\n"), "the key `pr-link` stands twice");
    both_refuse(&with("  description:\n    - \"The second sweep\"\n", ""), "lacks `description`");
    both_refuse(&with("  description", "  scenario-type: [agentic]\n  description"), "cannot be `agentic`");
    both_refuse(&with("- config-keys:\n", "- config-keys: [\n"), "not valid YAML");
    both_refuse(&with("    - dsv4-fp4-b200-vllm-agentic\n", "    - dsv4-fp4-b200-vllm-agentix\n"), "did you mean");
    both_refuse(&with("    - dsv4-fp4-b200-vllm-agentic\n", "    - glm*\n"), "no config key matches `glm*`");
    both_refuse(&with("    - dsv4-fp4-b200-vllm-agentic\n", "    - dsv4-fp4-b200?vllm-agentic\n"), "no config key");
    both_refuse(&with("  pr-link", "  append-only: true\n  pr-link"), "append-only, but no point was added");
}

#[test]
fn a_review_wants_new_entries_at_the_end_and_keys_once() {
    let repository = Repository::new();
    repository.write(CHANGELOG, format!("{}\n{ONE}", SECOND.trim_start()));
    repository.commit("above");
    select(&repository).ok();
    let check = |repository: &Repository| repository.ixbuild(&["changelog", "check", "--base", "base"]);
    check(&repository).refused(3, "an entry above older ones");
    let line = format!("    - {KEY}\n");
    repository.write(CHANGELOG, format!("{ONE}{}", SECOND.replace(&line, &line.repeat(2))));
    select(&repository).ok();
    check(&repository).refused(3, "stands twice in this entry");
}

#[test]
fn revisions_that_do_not_fit() {
    let repository = Repository::new();
    repository.git(&["checkout", "-q", "--orphan", "other"]);
    repository.commit("unrelated");
    select(&repository).refused(2, "is not an ancestor of");
    repository.ixbuild(&["changelog", "check", "--base", "base"]).refused(2, "is not an ancestor of");
    repository.ixbuild(&["changelog", "audit", "--range", "base..HEAD"]).refused(2, "is not an ancestor of");
    repository.ixbuild(&["changelog", "select", "--base", "nope"]).refused(2, "git knows no commit `nope`");
    repository.ixbuild(&["plan", "--since", "nope"]).refused(2, "git knows no commit `nope`");
    repository.ixbuild(&["changelog", "audit", "--range", "base"]).refused(2, "is no range");
    repository.git(&["rm", "-q", CHANGELOG]);
    repository.commit("gone");
    repository
        .ixbuild(&["changelog", "select", "--base", "HEAD", "--head", "HEAD"])
        .refused(3, "there is no perf-changelog.yaml");
}

#[test]
fn a_shallow_clone() {
    let repository = Repository::new();
    repository.append(CHANGELOG, SECOND);
    repository.commit("second");
    let clone = Repository::empty();
    let url = format!("file://{}", repository.dir.path().display());
    clone.git(&["fetch", "-q", "--depth", "1", &url, "main"]);
    clone.git(&["checkout", "-q", "-b", "work", "FETCH_HEAD"]);
    let base = repository.git(&["rev-parse", "base"]);
    let said = clone.ixbuild(&["changelog", "select", "--base", base.trim()]);
    said.refused(6, "git fetch --unshallow");
    clone.ixbuild(&["plan", "--since", base.trim()]).refused(6, "git fetch --unshallow");
}

#[test]
fn no_git_and_no_repository() {
    let repository = Repository::new();
    let empty = tempfile::tempdir().unwrap();
    for args in [
        &["changelog", "select", "--base", "base"][..],
        &["changelog", "check", "--base", "base"],
        &["changelog", "audit", "--range", "base..HEAD"],
        &["plan", "--since", "base"],
    ] {
        let said: Said = repository.command(args).env("PATH", empty.path()).output().unwrap().into();
        said.refused(6, "git is not installed");
    }
    std::fs::remove_dir_all(repository.path(".git")).unwrap();
    let said: Said = repository
        .command(&["changelog", "select", "--base", "base"])
        .env("GIT_CEILING_DIRECTORIES", repository.dir.path().parent().unwrap())
        .output()
        .unwrap()
        .into();
    said.refused(6, "is in no git repository");
}

#[test]
fn with_json_an_error_is_one_object() {
    let repository = Repository::new();
    for args in [
        &["changelog", "check", "--base", "nope", "--json"][..],
        &["changelog", "audit", "--range", "nope..HEAD", "--json"],
        &["changelog", "select", "--base", "nope", "--json"],
        &["plan", "--since", "nope", "--format", "json"],
    ] {
        let said = repository.ixbuild(args);
        assert_eq!((said.code, &said.json()["error"]["code"]), (Some(2), &2.into()), "{args:?}");
    }
}

#[test]
fn a_bare_repository_and_a_project_below_the_top_are_read() {
    let repository = Repository::new();
    repository.append(CHANGELOG, SECOND);
    repository.commit("second");
    let expected = select(&repository).ok().json();
    let bare = Repository::empty();
    bare.git(&["fetch", "-q", repository.dir.path().to_str().unwrap(), "main", "base"]);
    let base = repository.git(&["rev-parse", "base"]);
    let args = ["changelog", "select", "--base", base.trim(), "--head", "FETCH_HEAD"];
    assert_eq!(bare.ixbuild(&args).ok().json(), expected);
    // The same project in a folder of a larger repository.
    let large = Repository::empty();
    std::fs::create_dir(large.path("bench")).unwrap();
    let move_in = |revision: &str| {
        let tar = Command::new("git").args(["archive", revision]).current_dir(repository.dir.path()).output().unwrap();
        let mut unpack = Command::new("tar")
            .args(["x", "-C"])
            .arg(large.path("bench"))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut unpack.stdin.take().unwrap(), &tar.stdout).unwrap();
        assert!(unpack.wait().unwrap().success());
        large.commit(revision);
    };
    move_in("base");
    move_in("main");
    let said: Said = large
        .command(&["changelog", "select", "--base", "HEAD~1"])
        .current_dir(large.path("bench"))
        .output()
        .unwrap()
        .into();
    let got = said.ok().json();
    assert_eq!(got["single_node"], expected["single_node"]);
}
