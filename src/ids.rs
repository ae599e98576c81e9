//! The names of things, each a type of its own: digests, job hashes, row hashes, arm ids, config keys.
//!
//! They are parsed once at the edge; inside, a value of one of these types is well-formed. A row's hash is not a job's.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Text that is not a `sha256:…` digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: `sha256:` and 64 lower-case hex digits")]
pub struct NotADigest(pub String);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// From the raw 32 bytes of a finished hash.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 64 hex digits alone.
    pub fn hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0
            .iter()
            .flat_map(|byte| [DIGITS[usize::from(byte >> 4)] as char, DIGITS[usize::from(byte & 15)] as char])
            .collect()
    }

    /// From 64 lower-case hex digits.
    ///
    /// # Errors
    /// Any other text.
    pub fn from_hex(hex: &str) -> Result<Self, NotADigest> {
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if hex.len() == 64 {
            for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
                let (Some(high), Some(low)) = (nibble(pair[0]), nibble(pair[1])) else {
                    return Err(NotADigest(hex.to_owned()));
                };
                *byte = high << 4 | low;
            }
            return Ok(Self(bytes));
        }
        Err(NotADigest(hex.to_owned()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| NotADigest(text.to_owned()))?;
        Self::from_hex(hex).map_err(|_| NotADigest(text.to_owned()))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The name of a job: the digest of its spec's canonical bytes. Shown `job:` and hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobHash(pub Digest);

impl JobHash {
    /// `job:` and the first 12 hex digits: for people.
    pub fn short(&self) -> String {
        format!("job:{}", &self.0.hex()[..12])
    }

    /// The 64 hex digits.
    pub fn hex(&self) -> String {
        self.0.hex()
    }
}

impl fmt::Display for JobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job:{}", self.0.hex())
    }
}

impl fmt::Debug for JobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Accepts the full hash, as `job:…` or `sha256:…`.
impl FromStr for JobHash {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let hex = text
            .strip_prefix("job:")
            .or_else(|| text.strip_prefix("sha256:"))
            .ok_or_else(|| NotADigest(text.to_owned()))?;
        Digest::from_hex(hex).map(Self).map_err(|_| NotADigest(text.to_owned()))
    }
}

impl Serialize for JobHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The hash of a matrix row, for rows without a recipe. Never a store key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowHash(pub Digest);

/// An arm's label, `KEY/SCENARIO/TOPOLOGY-KV[-SPEC]-cN[-eval]`: for people and globs, not identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArmId(pub Arc<str>);

impl ArmId {
    /// The whole label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key of a master file, such as `dsv4-fp4-b200-vllm-agentic-mtp`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigKey(pub Arc<str>);

impl fmt::Display for ConfigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_as_written() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(format!("job:{}", digest.hex()).parse(), Ok(JobHash(digest)));
    }

    #[test]
    fn a_digest_of_another_shape_is_refused() {
        for text in ["", "sha256:", "sha256:E3B0", "md5:e3b0", &"g".repeat(64), &format!("sha256:{}", "A".repeat(64))] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
