//! A consistent-hash ring: which target a key goes to.
//!
//! Every target stands at many points of the ring; a key goes to the first target at or after its own point. So a session
//! keeps its target, and a target that comes or goes moves only its own share of the keys.

use std::hash::{DefaultHasher, Hasher};

/// Points of one target: the shares of eight targets then differ by some ten percent.
const POINTS: u64 = 160;

/// A ring over targets, which are known by their index.
#[derive(Debug, Clone)]
pub struct Ring {
    points: Vec<(u64, usize)>,
}

fn point(bytes: &[u8], salt: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.write_u64(salt);
    hasher.finish()
}

impl Ring {
    /// A ring over targets with these names.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut points: Vec<(u64, usize)> = names
            .into_iter()
            .enumerate()
            .flat_map(|(index, name)| (0..POINTS).map(move |salt| (point(name.as_bytes(), salt), index)))
            .collect();
        points.sort_unstable();
        Self { points }
    }

    /// The target of a key; `None` without targets.
    pub fn target(&self, key: &[u8]) -> Option<usize> {
        let at = self.points.partition_point(|(point, _)| *point < self::point(key, u64::MAX));
        self.points.get(at).or_else(|| self.points.first()).map(|(_, index)| *index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("http://w@{index}")).collect()
    }

    fn ring(count: usize) -> Ring {
        Ring::new(names(count).iter().map(String::as_str))
    }

    #[test]
    fn keys_spread_over_all_targets() {
        let ring = ring(8);
        let mut counts = [0; 8];
        (0..8000).for_each(|key: u32| counts[ring.target(&key.to_le_bytes()).unwrap()] += 1);
        assert!(counts.iter().all(|count| (500..1600).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_new_target_takes_keys_but_moves_none_between_the_others() {
        let (before, after) = (ring(7), ring(8));
        let moved = (0..8000_u32).filter(|key| {
            let (old, new) = (before.target(&key.to_le_bytes()), after.target(&key.to_le_bytes()));
            assert!(new == old || new == Some(7));
            new != old
        });
        assert!((500..1600).contains(&moved.count()));
    }

    #[test]
    fn an_empty_ring_has_no_target() {
        assert_eq!(ring(0).target(b"x"), None);
    }
}
