//! Wheel file names and tags: which wheels run under a Python on 64-bit x86 Linux with glibc, and which is best.
//!
//! Order, best first, as pip ranks them for CPython 3.12:
//!
//! 1. built for it: `cp312-cp312`, then `cp312-abi3`, `cp312-none`;
//! 2. the stable ABI of earlier ones: `cp311-abi3` … `cp32-abi3`;
//! 3. any Python 3 with a binary part: `py312-none`, `py3-none`, `py311-none` … `py30-none`;
//! 4. pure Python: the same tags on platform `any`, `cp312-none-any` first.
//!
//! Of equal tags pip takes the newest platform that the machine supports. The glibc of an image is not known before it is
//! pulled, so here the oldest `manylinux` wins, which runs on the most; a bare `linux_x86_64` comes last. Then the higher
//! build number wins. Wheels for musl never fit.

use std::cmp::Reverse;

use super::version::Version;
use crate::spec::Python;

/// A name as the index compares it: lower case, runs of `-`, `_` and `.` as one `-` (PEP 503).
pub(super) fn normalize(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if out.ends_with('-') => {}
            '-' | '_' | '.' => out.push('-'),
            c => out.push(c.to_ascii_lowercase()),
        }
    }
    out
}

/// A wheel's file name, taken apart: `NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM.whl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WheelName<'f> {
    name: &'f str,
    version: &'f str,
    build: (u64, &'f str),
    pythons: &'f str,
    abis: &'f str,
    platforms: &'f str,
}

/// How well a wheel fits: smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    tag: u16,
    glibc: (u16, u16),
}

impl<'f> WheelName<'f> {
    /// Takes a file name apart; nothing for other files.
    pub(super) fn parse(file: &'f str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._+!-".contains(c);
        let parts: Vec<&str> = file.strip_suffix(".whl").filter(|f| f.chars().all(plain))?.split('-').collect();
        let (name, version, build, tags) = match parts[..] {
            [name, version, p, a, l] => (name, version, (0, ""), [p, a, l]),
            [name, version, build, p, a, l] => {
                let end = build.find(|c: char| !c.is_ascii_digit()).unwrap_or(build.len());
                (name, version, (build[..end].parse().ok()?, &build[end..]), [p, a, l])
            }
            _ => return None,
        };
        Some(Self { name, version, build, pythons: tags[0], abis: tags[1], platforms: tags[2] })
    }

    /// Whether it is of this package at this version.
    pub(super) fn is(&self, name: &str, version: &str) -> bool {
        normalize(self.name) == normalize(name) && same_version(self.version, version)
    }

    /// How well it fits, and its build number, of which the highest is best; nothing when it does not run.
    pub(super) fn rank(&self, python: Python) -> Option<(Rank, Reverse<(u64, &'f str)>)> {
        let mut best: Option<Rank> = None;
        for platform in self.platforms.split('.') {
            let Some(glibc) = glibc(platform) else { continue };
            for (interpreter, abi) in self.pythons.split('.').flat_map(|p| self.abis.split('.').map(move |a| (p, a))) {
                let tag = tag_rank(interpreter, abi, platform == "any", python.minor);
                let rank = tag.map(|tag| Rank { tag, glibc });
                best = [best, rank].into_iter().flatten().min();
            }
        }
        best.map(|rank| (rank, Reverse(self.build)))
    }
}

/// Whether two spellings are one version.
pub(super) fn same_version(one: &str, other: &str) -> bool {
    match (Version::parse(one), Version::parse(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    }
}

/// The glibc that a platform tag asks for; `any` asks for none. Nothing for platforms that are not ours.
fn glibc(platform: &str) -> Option<(u16, u16)> {
    match platform {
        "any" => Some((0, 0)),
        // The aliases of PEP 513, 571 and 599.
        "manylinux1_x86_64" => Some((2, 5)),
        "manylinux2010_x86_64" => Some((2, 12)),
        "manylinux2014_x86_64" => Some((2, 17)),
        // It does not say.
        "linux_x86_64" => Some((u16::MAX, 0)),
        _ => {
            let (major, minor) = platform.strip_prefix("manylinux_")?.strip_suffix("_x86_64")?.split_once('_')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        }
    }
}

fn tag_rank(interpreter: &str, abi: &str, any: bool, minor: u8) -> Option<u16> {
    let minor = u16::from(minor);
    let of = |prefix: &str| interpreter.strip_prefix(prefix).and_then(|digits| digits.parse::<u16>().ok());
    let own = of("cp3") == Some(minor);
    let native = match (of("cp3"), abi) {
        _ if any => None,
        (Some(built), abi) if built == minor && abi == interpreter => Some(0),
        (Some(built), "abi3") if built == minor => Some(1),
        (Some(built), "none") if built == minor => Some(2),
        (Some(built), "abi3") if (2..minor).contains(&built) => Some(3 + minor - built),
        _ => None,
    };
    let generic = match (interpreter, of("py3")) {
        _ if abi != "none" => None,
        _ if own && any => Some(0),
        ("py3", _) => Some(2),
        (_, Some(written)) if written == minor => Some(1),
        (_, Some(written)) if written < minor => Some(2 + minor - written),
        _ => None,
    };
    native.or(generic.map(|rank| rank + if any { 2000 } else { 1000 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYTHON: Python = Python { minor: 12 };

    #[test]
    fn names_compare_normalized() {
        assert_eq!(normalize("Mooncake.Transfer_-Engine"), "mooncake-transfer-engine");
        let wheel =
            WheelName::parse("mooncake_transfer_engine_cuda13-0.3.11.post1-cp312-cp312-manylinux_2_35_x86_64.whl");
        let wheel = wheel.unwrap();
        assert!(wheel.is("mooncake-transfer-engine-cuda13", "0.3.11.post1"));
        assert!(wheel.is("Mooncake_Transfer.Engine-CUDA13", "0.3.11-1"));
        assert!(!wheel.is("mooncake-transfer-engine-cuda13", "0.3.11"));
        assert!(!wheel.is("mooncake-transfer-engine", "0.3.11.post1"));
    }

    #[test]
    fn wheels_rank_in_the_documented_order() {
        let ordered = [
            "x-1-2-cp312-cp312-manylinux2014_x86_64.whl",
            "x-1-1-cp312-cp312-manylinux2014_x86_64.whl",
            "x-1-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
            "x-1-cp312-cp312-manylinux_2_35_x86_64.whl",
            "x-1-cp312-cp312-linux_x86_64.whl",
            "x-1-cp312-abi3-manylinux_2_17_x86_64.whl",
            "x-1-cp312-none-manylinux_2_17_x86_64.whl",
            "x-1-cp311-abi3-manylinux_2_17_x86_64.whl",
            "x-1-cp38-abi3-manylinux_2_28_x86_64.whl",
            "x-1-cp32-abi3-manylinux1_x86_64.whl",
            "x-1-py312-none-manylinux_2_17_x86_64.whl",
            "x-1-py2.py3-none-manylinux_2_17_x86_64.whl",
            "x-1-py311-none-manylinux2010_x86_64.whl",
            "x-1-cp312-none-any.whl",
            "x-1-py312-none-any.whl",
            "x-1-py3-none-any.whl",
            "x-1-py311-none-any.whl",
            "x-1-py30-none-any.whl",
        ];
        let ranks: Vec<_> = ordered.iter().map(|f| WheelName::parse(f).unwrap().rank(PYTHON).expect(f)).collect();
        for (pair, files) in ranks.windows(2).zip(ordered.windows(2)) {
            assert!(pair[0] < pair[1], "{files:?}");
        }
    }

    #[test]
    fn wheels_for_other_machines_and_pythons_do_not_fit() {
        for file in [
            "x-1-cp311-cp311-manylinux_2_17_x86_64.whl",
            "x-1-cp313-abi3-manylinux_2_17_x86_64.whl",
            "x-1-cp312-cp312t-manylinux_2_17_x86_64.whl",
            "x-1-cp312-cp312-manylinux_2_17_aarch64.whl",
            "x-1-cp312-cp312-musllinux_1_2_x86_64.whl",
            "x-1-cp312-cp312-macosx_11_0_arm64.whl",
            "x-1-cp312-cp312-win_amd64.whl",
            "x-1-cp31-abi3-manylinux_2_17_x86_64.whl",
            "x-1-pp310-pypy310_pp73-manylinux_2_17_x86_64.whl",
            "x-1-py2-none-any.whl",
            "x-1-py313-none-any.whl",
            "x-1-cp311-none-any.whl",
        ] {
            assert_eq!(WheelName::parse(file).unwrap().rank(PYTHON), None, "{file}");
        }
        for file in [
            "x-1.tar.gz",
            "x.whl",
            "x-1-py3-none-any.whl.metadata",
            "../x-1-py3-none-any.whl",
            "x-1-b-py3-none-any.whl",
        ] {
            assert_eq!(WheelName::parse(file), None, "{file}");
        }
    }
}
