//! A prefix cache of KV blocks: which leading blocks of a prompt are there already.
//!
//! A prompt is cut into blocks; a block's name is a hash of its content and of the block before it, so that equal names
//! mean equal prefixes. A trailing part that fills no block has no name. The least recently used blocks go first; within
//! one prompt the later block goes before the earlier, since it is of no use without it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};

/// The name of a block within all prompts of one process.
pub type BlockName = u64;

/// The names of the full blocks of a prompt.
pub fn block_names(prompt: &[u8], block_bytes: usize) -> Vec<BlockName> {
    let mut before: BlockName = 0;
    prompt
        .chunks_exact(block_bytes.max(1))
        .map(|block| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(before);
            hasher.write(block);
            before = hasher.finish();
            before
        })
        .collect()
}

/// Blocks by last use.
#[derive(Debug)]
pub struct PrefixCache {
    capacity: usize,
    clock: u64,
    used: HashMap<BlockName, u64>,
    by_use: BTreeMap<u64, BlockName>,
}

impl PrefixCache {
    /// An empty cache of so many blocks.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, clock: 0, used: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// How many leading blocks are there. Counts as a use of them.
    pub fn matched(&mut self, names: &[BlockName]) -> usize {
        let count = names.iter().take_while(|name| self.used.contains_key(name)).count();
        self.touch(&names[..count]);
        count
    }

    /// Puts all blocks of a prompt in.
    pub fn insert(&mut self, names: &[BlockName]) {
        self.touch(names);
        while self.used.len() > self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used.remove(&oldest);
        }
    }

    /// Last block first, so that a prefix outlives what hangs on it.
    fn touch(&mut self, names: &[BlockName]) {
        for name in names.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used.insert(*name, self.clock) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.clock, *name);
        }
    }

    /// Blocks in it.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_depend_on_everything_before_and_a_partial_block_has_none() {
        let a = block_names(b"aaaabbbbcc", 4);
        let b = block_names(b"xaaabbbbcc", 4);
        assert_eq!(a.len(), 2);
        assert_eq!(a, block_names(b"aaaabbbb", 4));
        assert_ne!(a[1], b[1], "the second block is equal, its prefix is not");
    }

    #[test]
    fn a_longer_prompt_hits_the_blocks_of_its_prefix_only() {
        let mut cache = PrefixCache::new(100);
        let first = block_names(b"aaaabbbb", 4);
        assert_eq!(cache.matched(&first), 0);
        cache.insert(&first);
        assert_eq!(cache.matched(&block_names(b"aaaabbbbccccdddd", 4)), 2);
        assert_eq!(cache.matched(&block_names(b"aaaaccccbbbb", 4)), 1);
        assert_eq!(cache.matched(&block_names(b"bbbbaaaa", 4)), 0);
    }

    #[test]
    fn the_least_recently_used_prompt_is_evicted_from_its_end() {
        let mut cache = PrefixCache::new(4);
        let (old, new) = (block_names(b"aabbcc", 2), block_names(b"ddeeff", 2));
        cache.insert(&old);
        cache.insert(&new);
        assert_eq!(cache.len(), 4);
        assert_eq!(cache.matched(&old), 1, "the head of the old prompt is the last to go");
        assert_eq!(cache.matched(&new), 3);
    }

    proptest! {
        /// Never more than the capacity, and what was just put in and fits is there.
        #[test]
        fn capacity_holds(prompts in proptest::collection::vec("[ab]{0,24}", 1..40), capacity in 1_usize..20) {
            let mut cache = PrefixCache::new(capacity);
            for prompt in &prompts {
                let names = block_names(prompt.as_bytes(), 2);
                cache.insert(&names);
                prop_assert!(cache.len() <= capacity);
                prop_assert_eq!(cache.matched(&names), names.len().min(capacity));
                prop_assert_eq!(cache.used.len(), cache.by_use.len());
            }
        }
    }
}
