//! "Did you mean": the known word nearest to one that is not known. Knows words only, no schema.

/// The candidate nearest to `word`, if it is near enough to be a slip: the same but for case and `-`/`_`/`.`, or within
/// a third of the word's length in single-character edits.
pub fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let folded = fold(word);
    let limit = (folded.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let other = fold(candidate);
            // The difference in length is a lower bound: most candidates need no matrix.
            (other.chars().count().abs_diff(folded.chars().count()) <= limit)
                .then(|| (distance(&folded, &other), candidate))
        })
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// `` `a`, `b`, `c` `` with at most `limit` words and the number of the rest.
pub fn listed<'w>(words: impl IntoIterator<Item = &'w str>, limit: usize) -> String {
    let mut words = words.into_iter();
    let mut shown: Vec<String> = words.by_ref().take(limit).map(|word| format!("`{word}`")).collect();
    let rest = words.count();
    if rest > 0 {
        shown.push(format!("and {rest} more"));
    }
    shown.join(", ")
}

fn fold(word: &str) -> String {
    word.chars().map(|c| if matches!(c, '_' | '.') { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Edits (insert, delete, replace, swap of neighbours) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_word() {
        let words = ["model-prefix", "conc-list", "conc-start", "tp", "ep"];
        assert_eq!(closest("model_prefix", words), Some("model-prefix"));
        assert_eq!(closest("cocn-list", words), Some("conc-list"));
        assert_eq!(closest("TP", words), Some("tp"));
        assert_eq!(closest("seq-len-configs", words), None);
    }

    #[test]
    fn a_swap_is_one_edit() {
        assert_eq!(distance("tp", "pt"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn long_lists_end_with_a_count() {
        assert_eq!(listed(["a", "b", "c"], 2), "`a`, `b`, and 1 more");
        assert_eq!(listed([], 2), "");
    }
}
