//! Small repositories made with git itself.

use std::path::Path;
use std::process::Command;

use super::*;

fn sh(dir: &Path, args: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two commits and a branch beside them.
fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    sh(dir.path(), &["init", "-q", "-b", "main"]);
    write("sub/configs/a.yaml", "a: 1\n");
    write("sub/configs/lib/b c.yaml", "b: 1\n");
    write("sub/configs/.hidden/x.yaml", "x: 1\n");
    sh(dir.path(), &["add", "-A"]);
    sh(dir.path(), &["commit", "-q", "-m", "first: one\n\nbody"]);
    sh(dir.path(), &["branch", "side"]);
    write("sub/configs/a.yaml", "a: 2\n");
    sh(dir.path(), &["commit", "-qam", "second"]);
    sh(dir.path(), &["checkout", "-q", "side"]);
    write("sub/other.yaml", "o: 1\n");
    sh(dir.path(), &["add", "-A"]);
    sh(dir.path(), &["commit", "-q", "-m", "aside"]);
    dir
}

#[test]
fn files_of_a_revision_are_read_below_the_project() {
    let dir = repository();
    let mut repository = Repository::open(&dir.path().join("sub")).unwrap();
    let head = repository.resolve("main").unwrap();
    let first = repository.resolve("main~1").unwrap();
    assert_eq!((head.parents.clone(), first.subject.as_str()), (vec![first.commit.clone()], "first: one"));
    let read = |repository: &mut Repository, revision: &Revision, path: &str| {
        let file = repository.entry(revision, path).unwrap()?;
        Some(String::from_utf8(repository.content(&file).unwrap()).unwrap())
    };
    assert_eq!(read(&mut repository, &head, "configs/a.yaml").as_deref(), Some("a: 2\n"));
    assert_eq!(read(&mut repository, &first, "configs/a.yaml").as_deref(), Some("a: 1\n"));
    assert_eq!(read(&mut repository, &head, "configs/none.yaml"), None);
    assert_eq!(read(&mut repository, &head, "configs"), None);
    let files = repository.files(&head, "configs").unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["configs/a.yaml", "configs/lib/b c.yaml"]);
    assert_eq!(repository.content(&files[1]).unwrap(), b"b: 1\n");
    assert_eq!(repository.files(&head, "nowhere").unwrap(), []);
    assert_eq!(repository.commits_of(&first, &head, "configs/a.yaml").unwrap(), std::slice::from_ref(&head.commit));
    assert_eq!(repository.commits_of(&first, &head, "configs/lib/b c.yaml").unwrap(), []);
    let mut top = Repository::open(&dir.path().join("sub")).unwrap().at_top();
    assert_eq!(read(&mut top, &head, "sub/configs/a.yaml").as_deref(), Some("a: 2\n"));
}

#[test]
fn names_and_ancestry_are_checked() {
    let dir = repository();
    let mut repository = Repository::open(dir.path()).unwrap();
    let (main, side) = (repository.resolve("main").unwrap(), repository.resolve("side").unwrap());
    let first = repository.resolve(&main.parents[0].short()[..8]).unwrap();
    repository.require_ancestor(&first, &side).unwrap();
    repository.require_ancestor(&main, &main).unwrap();
    assert!(matches!(repository.require_ancestor(&main, &side), Err(GitError::NotAnAncestor { .. })));
    for name in ["nope", "", "main:sub", "a b", "main\nside", "--all", "HEAD^7"] {
        let error = repository.resolve(name).unwrap_err();
        assert!(matches!(error, GitError::UnknownRef { shallow: false, .. }), "{name:?}: {error}");
    }
    // A refused name does not disturb the next one.
    assert_eq!(repository.resolve("main").unwrap(), main);
}

#[test]
fn a_shallow_clone_says_so() {
    let dir = repository();
    let clone = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().display());
    sh(clone.path(), &["clone", "-q", "--depth", "1", "--no-single-branch", &url, "."]);
    let mut repository = Repository::open(clone.path()).unwrap();
    assert!(repository.is_shallow());
    let unknown = repository.resolve("origin/main~1").unwrap_err();
    assert!(unknown.hint().contains("--unshallow"), "{unknown}");
    let (main, side) = (repository.resolve("origin/main").unwrap(), repository.resolve("origin/side").unwrap());
    assert!(matches!(repository.require_ancestor(&main, &side), Err(GitError::Shallow { .. })));
}

#[test]
fn no_repository_is_said_with_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let error = Repository::open(dir.path()).unwrap_err();
    assert!(matches!(&error, GitError::NotARepository { dir: at, .. } if at == dir.path()), "{error}");
    let gone = Repository::open(&dir.path().join("gone")).unwrap_err();
    assert!(matches!(gone, GitError::Start { .. }), "{gone}");
}
