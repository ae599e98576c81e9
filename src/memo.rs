//! Remembers what composition made of a matrix, so that a plan whose inputs did not change parses and composes nothing.
//!
//! The key is a digest of every input file with its path, the profile, the selection, and the program itself; never a time
//! stamp. A memo holds outlines (ids, hashes, what blocks), never what the store knows. It is a cache: a damaged or missing
//! one costs time, not truth (its last line is the digest of the rest). One line an arm:
//! `J HASH GPUS LOAD UNLOCKED ID` or `B BLOCKED ID`, where UNLOCKED and BLOCKED count lines of the tables at the top.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::compose::Blocked;
use crate::config::inputs::Inputs;
use crate::ids::{ArmId, Digest, JobHash};
use crate::plan::{Made, Outline};

/// How many memos are kept; the oldest go.
const KEPT: usize = 16;

/// Where memos lie.
#[derive(Debug, Clone)]
pub struct Memos {
    folder: PathBuf,
}

/// The name of a memo: everything that decides its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(Digest);

impl Key {
    /// The key of a selection of a project under a profile. None when this program's own file cannot be read.
    pub fn of(inputs: &Inputs, profile: &str, selection: &str) -> Option<Self> {
        let program = fs::read(std::env::current_exe().ok()?).ok()?;
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(&program);
        part(profile.as_bytes());
        part(selection.as_bytes());
        for (path, source) in inputs.all() {
            part(path.as_bytes());
            part(source.text.as_bytes());
        }
        Some(Self(Digest::from_bytes(hash.finalize().into())))
    }
}

impl Memos {
    /// Memos in a folder, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Memos in `$IXBUILD_CACHE`, else `$XDG_CACHE_HOME/ixbuild`, else `~/.cache/ixbuild`; none without a home.
    pub fn of_user() -> Option<Self> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = absolute("IXBUILD_CACHE")
            .or_else(|| absolute("XDG_CACHE_HOME").map(|cache| cache.join("ixbuild")))
            .or_else(|| absolute("HOME").map(|home| home.join(".cache/ixbuild")))?;
        Some(Self::at(folder.join("plans")))
    }

    /// The outlines under a key, if they are here and whole.
    pub fn load(&self, key: &Key) -> Option<Vec<Outline>> {
        read(&fs::read_to_string(self.path(key)).ok()?)
    }

    /// Keeps outlines. Failures are silent: the next plan composes again.
    pub fn save(&self, key: &Key, outlines: &[Outline]) {
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            std::io::Write::write_all(&mut file, render(outlines).as_bytes())?;
            file.persist(self.path(key))?;
            Ok(())
        };
        if write().is_ok() {
            self.prune();
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.0.hex())
    }

    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let age = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let mut memos: Vec<_> = entries.flatten().map(|entry| entry.path()).map(|path| (age(&path), path)).collect();
        memos.sort();
        for (_, path) in memos.iter().rev().skip(KEPT) {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
        }
    }
}

fn render(outlines: &[Outline]) -> String {
    let mut unlocked: Vec<&Arc<[String]>> = Vec::new();
    let mut blocked: Vec<&Blocked> = Vec::new();
    let mut lines = String::with_capacity(outlines.len() * 180);
    for outline in outlines {
        // Writing to a string cannot fail.
        let _ = match &outline.made {
            Ok(made) => {
                let index = index_of(&mut unlocked, &made.unlocked, |a, b| a == b);
                let load = made.load_s.map_or_else(|| "-".to_owned(), |s| s.to_string());
                writeln!(lines, "J {} {} {load} {index} {}", made.job.hex(), made.gpus, outline.id)
            }
            Err(reason) => {
                let index = index_of(&mut blocked, reason, |a, b| a == b);
                writeln!(lines, "B {index} {}", outline.id)
            }
        };
    }
    let unlocked: Vec<&[String]> = unlocked.into_iter().map(|names| &names[..]).collect();
    let blocked: Vec<(&str, &str)> = blocked.into_iter().map(|b| (b.why.as_str(), b.unblock.as_str())).collect();
    let tables = (serde_json::to_string(&unlocked), serde_json::to_string(&blocked));
    let body = format!("{}\n{}\n{lines}", tables.0.unwrap_or_default(), tables.1.unwrap_or_default());
    let digest = Digest::of(body.as_bytes());
    format!("{body}{digest}\n")
}

fn index_of<'t, T: ?Sized>(table: &mut Vec<&'t T>, value: &'t T, same: impl Fn(&T, &T) -> bool) -> usize {
    // Neighbours mostly share their entry.
    table.iter().rposition(|known| same(known, value)).unwrap_or_else(|| {
        table.push(value);
        table.len() - 1
    })
}

fn read(text: &str) -> Option<Vec<Outline>> {
    let (body, digest) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let body = &text[..=body.len()];
    if digest.parse() != Ok(Digest::of(body.as_bytes())) {
        return None;
    }
    let mut lines = body.lines();
    let unlocked: Vec<Vec<String>> = serde_json::from_str(lines.next()?).ok()?;
    let unlocked: Vec<Arc<[String]>> = unlocked.into_iter().map(Arc::from).collect();
    let blocked: Vec<(String, String)> = serde_json::from_str(lines.next()?).ok()?;
    lines.map(|line| outline(line, &unlocked, &blocked)).collect()
}

fn outline(line: &str, unlocked: &[Arc<[String]>], blocked: &[(String, String)]) -> Option<Outline> {
    let mut words = line.split(' ');
    let made = match words.next()? {
        "J" => Ok(Made {
            job: JobHash(Digest::from_hex(words.next()?).ok()?),
            gpus: words.next()?.parse().ok()?,
            load_s: match words.next()? {
                "-" => None,
                seconds => Some(seconds.parse().ok()?),
            },
            unlocked: Arc::clone(unlocked.get(words.next()?.parse::<usize>().ok()?)?),
        }),
        "B" => {
            let (why, unblock) = blocked.get(words.next()?.parse::<usize>().ok()?)?;
            Err(Blocked { why: why.clone(), unblock: unblock.clone() })
        }
        _ => return None,
    };
    Some(Outline { id: ArmId(Arc::from(words.next()?)), made })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlines() -> Vec<Outline> {
        let made = |text: &str, unlocked: &[&str], load_s| Made {
            job: JobHash(Digest::of(text.as_bytes())),
            gpus: 8,
            load_s,
            unlocked: unlocked.iter().map(|name| (*name).to_owned()).collect(),
        };
        let id = |text: &str| ArmId(Arc::from(text));
        vec![
            Outline { id: id("k/agentic/a-c1"), made: Ok(made("a", &["image x:1", "model m"], Some(3600))) },
            Outline { id: id("k/agentic/b-c2"), made: Ok(made("b", &[], None)) },
            Outline {
                id: id("k/agentic/c-c3"),
                made: Err(Blocked { why: "no \"golden\" value\nhere".into(), unblock: "measure it".into() }),
            },
        ]
    }

    #[test]
    fn a_memo_gives_back_what_was_kept_and_a_damaged_one_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let memos = Memos::at(folder.path().join("plans"));
        let key = Key(Digest::of(b"key"));
        assert_eq!(memos.load(&key), None);
        memos.save(&key, &outlines());
        assert_eq!(memos.load(&key), Some(outlines()));
        let text = render(&outlines());
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(String::from_utf8(bytes).ok().and_then(|text| read(&text)).is_none(), "byte {at}");
            assert!(read(&text[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn the_key_knows_every_input() {
        let inputs = |pairs: &[(&str, &str)]| {
            Inputs::from_texts(pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
        };
        let base = Key::of(&inputs(&[("configs/a.yaml", "x: 1")]), "rehearsal", "");
        assert!(base.is_some());
        assert_eq!(base, Key::of(&inputs(&[("configs/a.yaml", "x: 1")]), "rehearsal", ""));
        for (files, profile, selection) in [
            (&[("configs/a.yaml", "x: 2")][..], "rehearsal", ""),
            (&[("configs/b.yaml", "x: 1")][..], "rehearsal", ""),
            (&[("configs/a.yaml", "x: 1"), ("configs/c.yaml", "")][..], "rehearsal", ""),
            (&[("configs/a.yaml", "x: 1")][..], "docker", ""),
            (&[("configs/a.yaml", "x: 1")][..], "rehearsal", "*-c1"),
        ] {
            assert_ne!(base, Key::of(&inputs(files), profile, selection));
        }
    }

    #[test]
    fn only_the_newest_memos_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let memos = Memos::at(folder.path());
        for n in 0..KEPT + 5 {
            memos.save(&Key(Digest::of(&[u8::try_from(n).unwrap()])), &outlines());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), KEPT);
    }
}
