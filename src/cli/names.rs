//! Arm ids where room is short: what they share stands once, as a heading. The rest still selects the arm.

use std::collections::HashSet;

/// An id as what it shares with its neighbours, `KEY/SCENARIO`, and the rest.
pub fn split(id: &str) -> (&str, &str) {
    id.rsplit_once('/').unwrap_or(("", id))
}

/// The ends of ids, `tp8-resident-c1`; whole ids where two ends are the same.
pub fn short<'i>(ids: impl Iterator<Item = &'i str> + Clone) -> Vec<&'i str> {
    let mut seen = HashSet::new();
    if ids.clone().all(|id| seen.insert(split(id).1)) { ids.map(|id| split(id).1).collect() } else { ids.collect() }
}

/// Lines of arms under a heading a group, indented.
#[derive(Debug, Default)]
pub struct Grouped {
    group: Option<String>,
    lines: Vec<String>,
}

impl Grouped {
    /// Adds the line of an arm.
    pub fn push(&mut self, id: &str, line: &str) {
        let (group, _) = split(id);
        if self.group.as_deref() != Some(group) {
            self.group = Some(group.to_owned());
            self.lines.push(group.to_owned());
        }
        self.lines.push(format!("  {line}").trim_end().to_owned());
    }

    /// All lines.
    pub fn lines(self) -> Vec<String> {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_name_arms_unless_two_are_the_same() {
        assert_eq!(short(["k/agentic/a-c1", "k-mtp/agentic/a-mtp-c1"].into_iter()), ["a-c1", "a-mtp-c1"]);
        assert_eq!(short(["k/agentic/a-c1", "l/agentic/a-c1"].into_iter()), ["k/agentic/a-c1", "l/agentic/a-c1"]);
    }

    #[test]
    fn a_heading_stands_once_a_group() {
        let mut grouped = Grouped::default();
        for id in ["k/agentic/a", "k/agentic/b", "l/8k1k/a"] {
            grouped.push(id, split(id).1);
        }
        assert_eq!(grouped.lines(), ["k/agentic", "  a", "  b", "l/8k1k", "  a"]);
    }
}
