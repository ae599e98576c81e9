//! Versions of Python packages and bounds on them, as the packaging specifications have it (version specifiers, formerly
//! PEP 440). Knows no file names.

/// A version, ordered as the specification orders them. Trailing zeros do not count: 1.0 is 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    epoch: u64,
    release: Vec<u64>,
    pre: Pre,
    post: Option<u64>,
    dev: Dev,
    local: Vec<Local>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Pre {
    /// A development release of the final version comes before its alphas.
    Dev,
    /// 0 is alpha, 1 beta, 2 candidate; its number.
    Numbered(u8, u64),
    Final,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Dev {
    Dev(u64),
    Final,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Local {
    Text(String),
    Number(u64),
}

/// What is left to read of a version.
struct Rest<'t>(&'t str);

impl Rest<'_> {
    fn digits(&mut self) -> Option<u64> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        let number = digits.parse().ok()?;
        self.0 = rest;
        Some(number)
    }

    /// One of the words, after an optional separator; its number, 0 where none stands, after another one.
    fn word(&mut self, words: &[&str]) -> Option<(usize, u64)> {
        let text = self.0.strip_prefix(['.', '-', '_']).unwrap_or(self.0);
        let (index, word) = words.iter().enumerate().find(|(_, word)| text.starts_with(**word))?;
        let mut rest = Rest(&text[word.len()..]);
        let mut after = Rest(rest.0.strip_prefix(['.', '-', '_']).unwrap_or(rest.0));
        let number = match after.digits() {
            Some(number) => {
                rest.0 = after.0;
                number
            }
            None => 0,
        };
        self.0 = &self.0[self.0.len() - rest.0.len()..];
        Some((index, number))
    }
}

impl Version {
    /// Reads a version in any of the accepted spellings; nothing for other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let mut rest = Rest(lower.strip_prefix('v').unwrap_or(&lower));
        let first = rest.digits()?;
        let (epoch, first) = match rest.0.strip_prefix('!') {
            Some(after) => {
                rest.0 = after;
                (first, rest.digits()?)
            }
            None => (0, first),
        };
        let mut release = vec![first];
        while rest.0.strip_prefix('.').is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit())) {
            rest.0 = &rest.0[1..];
            release.push(rest.digits()?);
        }
        while release.len() > 1 && release.last() == Some(&0) {
            release.pop();
        }
        // Longer words first: `a` begins `alpha`.
        const PRE: [(&str, u8); 8] =
            [("alpha", 0), ("beta", 1), ("preview", 2), ("pre", 2), ("rc", 2), ("a", 0), ("b", 1), ("c", 2)];
        let pre = rest.word(&PRE.map(|(word, _)| word)).map(|(index, number)| (PRE[index].1, number));
        let post = match rest.word(&["post", "rev", "r"]) {
            Some((_, number)) => Some(number),
            // 1.0-1 is 1.0.post1.
            None => match rest.0.strip_prefix('-') {
                Some(after) if after.starts_with(|c: char| c.is_ascii_digit()) => {
                    rest.0 = after;
                    rest.digits()
                }
                _ => None,
            },
        };
        let dev = rest.word(&["dev"]).map(|(_, number)| number);
        let local = match rest.0.strip_prefix('+') {
            Some(local) => {
                rest.0 = "";
                let part = |part: &str| match part.parse() {
                    _ if part.is_empty() || !part.bytes().all(|b| b.is_ascii_alphanumeric()) => None,
                    Ok(number) => Some(Local::Number(number)),
                    Err(_) => Some(Local::Text(part.to_owned())),
                };
                local.split(['.', '-', '_']).map(part).collect::<Option<Vec<_>>>()?
            }
            None => Vec::new(),
        };
        let pre = match (pre, post, dev) {
            (Some((phase, number)), _, _) => Pre::Numbered(phase, number),
            (None, None, Some(_)) => Pre::Dev,
            _ => Pre::Final,
        };
        rest.0.is_empty().then_some(Self { epoch, release, pre, post, dev: dev.map_or(Dev::Final, Dev::Dev), local })
    }

    /// Whether it is a final version: no alpha, candidate or development release.
    pub(super) fn is_final(&self) -> bool {
        self.pre == Pre::Final && self.dev == Dev::Final
    }

    fn of_release(release: &[u64]) -> Self {
        Self { epoch: 0, release: release.to_vec(), pre: Pre::Final, post: None, dev: Dev::Final, local: Vec::new() }
    }

    /// Whether the release starts with these numbers, zeros filled in.
    fn starts_with(&self, prefix: &[u64]) -> bool {
        prefix.iter().enumerate().all(|(index, number)| self.release.get(index).copied().unwrap_or(0) == *number)
    }
}

/// Whether a `requires-python` such as `>=3.10,<3.14` takes Python 3.`minor`, of which the latest patch is assumed. A bound
/// that cannot be read holds nothing back, as with pip.
pub(super) fn takes_python(requires: &str, minor: u8) -> bool {
    let python = Version::of_release(&[3, u64::from(minor), u64::MAX]);
    requires.split(',').map(str::trim).filter(|bound| !bound.is_empty()).all(|bound| holds(bound, &python))
}

fn holds(bound: &str, python: &Version) -> bool {
    let operators = ["~=", "===", "==", "!=", "<=", ">=", "<", ">"];
    let Some(operator) = operators.into_iter().find(|operator| bound.starts_with(operator)) else { return true };
    let text = bound[operator.len()..].trim();
    let numbers = |text: &str| text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>();
    if let (Some(prefix), "==" | "!=") = (text.strip_suffix(".*"), operator) {
        return numbers(prefix).is_none_or(|prefix| python.starts_with(&prefix) == (operator == "=="));
    }
    let Some(version) = Version::parse(text) else { return true };
    match operator {
        "~=" => {
            let series = numbers(text).filter(|numbers| numbers.len() > 1);
            *python >= version && series.is_none_or(|numbers| python.starts_with(&numbers[..numbers.len() - 1]))
        }
        "==" | "===" => *python == version,
        "!=" => *python != version,
        "<=" => *python <= version,
        ">=" => *python >= version,
        "<" => *python < version,
        _ => *python > version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_as_the_specification_orders_them() {
        // The order of the specification's own example, and one version with an epoch.
        let ordered = [
            "1.dev0",
            "1.0.dev456",
            "1.0a1",
            "1.0a2.dev456",
            "1.0a12.dev456",
            "1.0a12",
            "1.0b1.dev456",
            "1.0b2",
            "1.0b2.post345.dev456",
            "1.0b2.post345",
            "1.0rc1.dev456",
            "1.0rc1",
            "1.0",
            "1.0+abc.5",
            "1.0+abc.7",
            "1.0+5",
            "1.0.post456.dev34",
            "1.0.post456",
            "1.0.15",
            "1.1.dev1",
            "1!0.1",
        ];
        let versions: Vec<Version> = ordered.iter().map(|text| Version::parse(text).expect(text)).collect();
        for (pair, texts) in versions.windows(2).zip(ordered.windows(2)) {
            assert!(pair[0] < pair[1], "{texts:?}");
        }
    }

    #[test]
    fn spellings_of_one_version_are_equal() {
        for (one, other) in [
            ("1.0", "1"),
            ("v1.0", "1.0.0"),
            ("1.0-ALPHA.1", "1a1"),
            ("1.0c1", "1.0rc1"),
            ("1.0pre", "1rc0"),
            ("0.3.11.post1", "0.3.11-post1"),
            ("1.0-1", "1.0.post1"),
            ("1.0.rev2", "1.post2"),
            ("1.0_dev3", "1.dev3"),
            ("1+Ubuntu-1", "1+ubuntu.1"),
        ] {
            assert_eq!(Version::parse(one).expect(one), Version::parse(other).expect(other), "{one} {other}");
        }
        for text in ["", "x", "1.0 beta", "1..0", "1.0+", "1.0+a..b", "904e4ecxyz", "1.0.post1.post2"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert!(Version::parse("1.post1").unwrap().is_final() && !Version::parse("1rc1").unwrap().is_final());
    }

    #[test]
    fn bounds_on_python_hold_for_its_latest_patch() {
        for (requires, takes) in [
            ("", true),
            (">=3.8", true),
            ("<3.14,>=3.10", true),
            (">=3.13", false),
            ("<3.12", false),
            ("~=3.10", true),
            ("~=3.11.2", false),
            ("~=3.12.2", true),
            ("==3.*", true),
            ("!=3.12.*,>=3.8", false),
            ("==3.12.*", true),
            ("!=3.0.*,!=3.1.*", true),
            (">=3.12.4", true),
            ("<3.12.4", false),
            (">3.11", true),
            ("<4", true),
            (">= 3.9 , < 4.0", true),
            ("nonsense", true),
            ("==3.1.*", false),
            ("<=3.12", false),
            ("===3.12", false),
        ] {
            assert_eq!(takes_python(requires, 12), takes, "{requires}");
        }
    }
}
