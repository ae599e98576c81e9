//! The Python that packages are installed for: which wheels fit, and what a wheel's tag calls it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A CPython 3, known by its minor version. Specs and locks write its tag (`cp312`), recipes its version (`3.12`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Python {
    /// 12 in 3.12.
    pub minor: u8,
}

/// Text that names no CPython 3.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a Python: write `3.` and its minor version, such as 3.12")]
pub struct NotAPython(pub String);

impl Python {
    /// From a tag such as `cp312`.
    ///
    /// # Errors
    /// Any other text.
    pub fn from_tag(tag: &str) -> Result<Self, NotAPython> {
        tag.strip_prefix("cp3").and_then(minor).ok_or_else(|| NotAPython(tag.to_owned()))
    }
}

/// Digits without a leading zero.
fn minor(digits: &str) -> Option<Python> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| plain).map(|minor| Python { minor })
}

/// As a wheel's tag.
impl fmt::Display for Python {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cp3{}", self.minor)
    }
}

/// From a version such as `3.12`.
impl FromStr for Python {
    type Err = NotAPython;

    fn from_str(text: &str) -> Result<Self, NotAPython> {
        text.strip_prefix("3.").and_then(minor).ok_or_else(|| NotAPython(text.to_owned()))
    }
}

impl Serialize for Python {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Python {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_tag(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_write_versions_and_specs_write_tags() {
        let python: Python = "3.12".parse().unwrap();
        assert_eq!(python.to_string(), "cp312");
        assert_eq!(Python::from_tag("cp312"), Ok(python));
        for text in ["", "3", "3.", "3.012", "3.12.1", "2.7", "cp312", "3.x", "3.+1"] {
            assert!(text.parse::<Python>().is_err(), "{text}");
        }
        assert!(Python::from_tag("cp27").is_err() && Python::from_tag("cp313t").is_err());
    }
}
