//! The lines that a text has and an earlier one has not, and the other way round.
//!
//! Lines are compared with their ends. What both texts start and end with is set aside; the rest goes through Myers'
//! greedy O(ND) algorithm ("An O(ND) Difference Algorithm and Its Variations", Algorithmica 1, 1986). A run of added
//! lines can often stand in several places, because it ends as the text before it does: it is moved to where a list
//! item starts, as far down as that goes. Knows nothing of entries.

use std::collections::HashMap;
use std::ops::Range;

/// How far the search goes before it takes the differing parts for removed and added as a whole: 2,000 lines.
const MAX_EDITS: usize = 2_000;

/// What became of a text. Lines are counted from 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Runs of lines of the new text that the old one has not, in order.
    pub added: Vec<Range<usize>>,
    /// Lines of the old text that the new one has not, in order.
    pub removed: Vec<usize>,
}

/// The lines of a text, each with its end.
pub fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Compares two texts by lines.
pub fn difference(old: &[&str], new: &[&str]) -> Difference {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (middle_old, middle_new) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let (removed, added) = match (middle_old.is_empty(), middle_new.is_empty()) {
        (true, _) => (Vec::new(), (0..middle_new.len()).collect()),
        (_, true) => ((0..middle_old.len()).collect(), Vec::new()),
        (false, false) => edits(middle_old, middle_new),
    };
    let mut difference = Difference { added: Vec::new(), removed: removed.iter().map(|line| line + head).collect() };
    for line in added {
        let line = line + head;
        match difference.added.last_mut() {
            Some(run) if run.end == line => run.end += 1,
            _ => difference.added.push(line..line + 1),
        }
    }
    for index in 0..difference.added.len() {
        let low = index.checked_sub(1).map_or(0, |before| difference.added[before].end);
        let high = difference.added.get(index + 1).map_or(new.len(), |after| after.start);
        difference.added[index] = settled(new, difference.added[index].clone(), low..high);
    }
    difference
}

/// A run of added lines where it reads best, within some bounds.
fn settled(new: &[&str], run: Range<usize>, bounds: Range<usize>) -> Range<usize> {
    let mut at = run.clone();
    while at.end < bounds.end && new[at.start] == new[at.end] {
        at = at.start + 1..at.end + 1;
    }
    loop {
        let first = new[at.clone()].iter().find(|line| !line.trim().is_empty());
        if first.is_some_and(|line| line.starts_with("- ")) {
            return at;
        }
        if at.start == bounds.start || new[at.start - 1] != new[at.end - 1] {
            return run;
        }
        at = at.start - 1..at.end - 1;
    }
}

/// The lines to remove from `old` and to add to it, fewest first.
fn edits(old: &[&str], new: &[&str]) -> (Vec<usize>, Vec<usize>) {
    // Numbers compare faster than lines.
    let mut names: HashMap<&str, u32> = HashMap::new();
    let (old, new) = (numbers(old, &mut names), numbers(new, &mut names));
    let (n, m) = (old.len(), new.len());
    let limit = (n + m).min(MAX_EDITS);
    // furthest[k]: how far in `old` a path with a given number of edits gets on the diagonal k = x - y (+ offset).
    let offset = limit + 1;
    let mut furthest = vec![0_usize; 2 * limit + 3];
    let mut trace: Vec<Vec<usize>> = Vec::new();
    for d in 0..=limit {
        let window = offset - d..=offset + d;
        trace.push(furthest[offset - d..=offset + d].to_vec());
        for k in window.step_by(2) {
            let down = k == offset - d || (k != offset + d && furthest[k - 1] < furthest[k + 1]);
            let mut x = if down { furthest[k + 1] } else { furthest[k - 1] + 1 };
            let Some(mut y) = (x + offset).checked_sub(k) else { continue };
            while x < n && y < m && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            furthest[k] = x;
            if x >= n && y >= m {
                return backtrack(&trace, n, m);
            }
        }
    }
    ((0..n).collect(), (0..m).collect())
}

/// Equal lines get equal numbers.
fn numbers<'t>(lines: &[&'t str], names: &mut HashMap<&'t str, u32>) -> Vec<u32> {
    let mut number = |line: &'t str| {
        let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
        *names.entry(line).or_insert(next)
    };
    lines.iter().map(|line| number(line)).collect()
}

/// Walks the trace back from the end. `trace[d]` holds the diagonals -d..=d as they were before round d.
fn backtrack(trace: &[Vec<usize>], n: usize, m: usize) -> (Vec<usize>, Vec<usize>) {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let (mut x, mut y) = (n, m);
    for (d, before) in trace.iter().enumerate().skip(1).rev() {
        // The diagonal, counted from -d.
        let k = x + d - y;
        let down = k == 0 || (k != 2 * d && before[k - 1] < before[k + 1]);
        let previous = if down { before[k + 1] } else { before[k - 1] };
        if down {
            let line = previous + d - (k + 1);
            added.push(line);
            (x, y) = (previous, line);
        } else {
            removed.push(previous);
            (x, y) = (previous, previous + d - (k - 1));
        }
    }
    removed.reverse();
    added.reverse();
    (removed, added)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(old: &str, new: &str) -> (Vec<Range<usize>>, Vec<usize>) {
        let found = difference(&lines(old), &lines(new));
        (found.added, found.removed)
    }

    const A: &str = "- k:\n  - a\n  pr: 1\n";
    const B: &str = "- k:\n  - b\n  pr: 1\n";
    const C: &str = "- k:\n  - c\n  pr: 1\n";

    #[test]
    fn what_is_appended_is_added() {
        assert_eq!(of(A, &format!("{A}\n{B}")), (vec![3..7], vec![]));
        assert_eq!(of(A, A), (vec![], vec![]));
        assert_eq!(of("", A), (vec![0..3], vec![]));
    }

    #[test]
    fn an_entry_in_the_middle_is_added_whole() {
        assert_eq!(of(&format!("{A}{C}"), &format!("{A}{B}{C}")), (vec![3..6], vec![]));
        assert_eq!(of(&format!("{A}\n{C}"), &format!("{A}\n{B}\n{C}")), (vec![4..8], vec![]));
        // The same entry again is the later one of the two.
        assert_eq!(of(A, &format!("{A}{A}")), (vec![3..6], vec![]));
        assert_eq!(of(&format!("{A}{C}"), &format!("{B}{A}{B}{C}")), (vec![0..3, 6..9], vec![]));
    }

    #[test]
    fn removed_lines_are_named() {
        assert_eq!(of(&format!("{A}{B}"), A), (vec![], vec![3, 4, 5]));
        assert_eq!(of(&format!("{A}\n"), &format!("{A}{B}")), (vec![3..6], vec![3]));
        assert_eq!(of("a\nb\nc\n", "a\nB\nc\nd\n"), (vec![1..2, 3..4], vec![1]));
        // A missing line end makes another line.
        assert_eq!(of("a\nb", "a\nb\nc\n"), (vec![1..3], vec![1]));
    }

    #[test]
    fn texts_that_have_nothing_in_common_end_quickly() {
        let text = |word: &str| (0..3_000).map(|line| format!("{word}{line}\n")).collect::<String>();
        let (added, removed) = of(&text("a"), &text("b"));
        assert_eq!((added, removed.len()), (vec![0..3_000], 3_000));
    }

    proptest! {
        /// Taking what was removed out of the old text, and what was added out of the new one, leaves the same.
        #[test]
        fn what_is_left_is_common(
            old in proptest::collection::vec("[ab-]", 0..12),
            new in proptest::collection::vec("[ab-]", 0..12),
        ) {
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            let found = difference(&old, &new);
            let kept_old: Vec<&str> = (0..old.len()).filter(|line| !found.removed.contains(line)).map(|line| old[line]).collect();
            let is_added = |line: &usize| found.added.iter().any(|run| run.contains(line));
            let kept_new: Vec<&str> = (0..new.len()).filter(|line| !is_added(line)).map(|line| new[line]).collect();
            prop_assert_eq!(&kept_old, &kept_new);
            prop_assert_eq!(kept_old.len(), longest_common(&old, &new));
        }
    }

    fn longest_common(a: &[&str], b: &[&str]) -> usize {
        let mut row = vec![0; b.len() + 1];
        for x in a {
            let mut diagonal = 0;
            for (index, y) in b.iter().enumerate() {
                let above = row[index + 1];
                row[index + 1] = if x == y { diagonal + 1 } else { above.max(row[index]) };
                diagonal = above;
            }
        }
        row[b.len()]
    }
}
