//! The runners file: labels with their nodes, and the hardware facts of some labels.

use std::sync::Arc;

use super::diagnostic::{Diagnostics, Source};
use super::document;
use super::fields::{self, Faults, Fields};
use super::topology::RunnerHardware;

/// Labels and hardware, in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runners {
    labels: Vec<(String, Vec<String>)>,
    hardware: Vec<(String, RunnerHardware)>,
}

impl Runners {
    /// Reads a runners file.
    ///
    /// # Errors
    /// Every fault of the file.
    pub fn parse(source: &Arc<Source>) -> Result<Self, Diagnostics> {
        let root = document::parse(source)?;
        let faults = Faults::default();
        let mut runners = Self::default();
        if let Some(file) = Fields::open(&root, "a runners file", &["labels", "hardware"], &faults) {
            if let Some(labels) = file.required("labels").and_then(|l| Fields::open_any(l, "`labels`", &faults)) {
                runners.labels = labels.entries().iter().filter_map(|(k, v)| label(k, v, &faults)).collect();
            }
            if let Some(facts) = file.optional("hardware").and_then(|h| Fields::open_any(h, "`hardware`", &faults)) {
                runners.hardware = facts.entries().iter().filter_map(|(k, v)| hardware(k, v, &faults)).collect();
            }
        }
        faults.or(runners)
    }

    /// The nodes of a label, in file order.
    pub fn nodes(&self, label: &str) -> Option<&[String]> {
        self.labels.iter().find(|(name, _)| name == label).map(|(_, nodes)| nodes.as_slice())
    }

    /// The hardware facts of a label.
    pub fn hardware(&self, label: &str) -> Option<RunnerHardware> {
        self.hardware.iter().find(|(name, _)| name == label).map(|(_, facts)| *facts)
    }

    /// Every label, in file order.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|(name, _)| name.as_str())
    }

    /// Every label with hardware facts, in file order.
    pub fn with_hardware(&self) -> impl Iterator<Item = &str> {
        self.hardware.iter().map(|(name, _)| name.as_str())
    }
}

fn label(key: &document::Node, value: &document::Node, faults: &Faults) -> Option<(String, Vec<String>)> {
    let name = fields::string(key, "a runner label", faults)?;
    let items = fields::list(value, &format!("the nodes of `{name}`"), faults)?;
    if items.is_empty() {
        let fault = super::diagnostic::Diagnostic::at(&value.place, format!("the label `{name}` has no nodes"));
        faults.push(fault.help("list its nodes, or remove the label"));
        return None;
    }
    let nodes = items.iter().filter_map(|item| fields::string(item, "a node name", faults));
    Some((name.to_owned(), nodes.map(str::to_owned).collect()))
}

fn hardware(key: &document::Node, value: &document::Node, faults: &Faults) -> Option<(String, RunnerHardware)> {
    let name = fields::string(key, "a runner label", faults)?;
    let known = ["available-cpu-dram-mib", "gpus-per-node"];
    let block = Fields::open(value, "a hardware block", &known, faults)?.at(&key.place);
    // Above any machine, and small enough that the budget's products stay exact.
    let dram = block.integer("available-cpu-dram-mib", 1..=1 << 40);
    let gpus = block.integer("gpus-per-node", 1..=1 << 16);
    let gpus_per_node = u32::try_from(gpus?).ok()?;
    Some((name.to_owned(), RunnerHardware { available_cpu_dram_mib: dram?, gpus_per_node }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Runners, String> {
        Runners::parse(&Source::new("runners.yaml", text)).map_err(|faults| faults.to_string())
    }

    #[test]
    fn labels_and_hardware_read() {
        let text = "labels:\n  cluster:a:\n  - a_0\n  - a_1\nhardware:\n  cluster:a:\n    available-cpu-dram-mib: 3_095_781\n    gpus-per-node: 8\n";
        let runners = read(text).unwrap();
        assert_eq!(runners.nodes("cluster:a"), Some(&["a_0".to_owned(), "a_1".to_owned()][..]));
        let facts = RunnerHardware { available_cpu_dram_mib: 3_095_781, gpus_per_node: 8 };
        assert_eq!(runners.hardware("cluster:a"), Some(facts));
        assert_eq!((runners.nodes("b"), runners.hardware("b")), (None, None));
    }

    #[test]
    fn all_faults_come_at_once() {
        let text = "labels: {a: [], b: [1], c: x}\nhardware: {a: {gpus-per-node: 0}}\nmore: 1\n";
        let said = read(text).unwrap_err();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "runners.yaml:1:13: the label `a` has no nodes",
                "runners.yaml:1:21: a node name must be a string, not an integer: `1`",
                "runners.yaml:1:28: the nodes of `c` must be a list, not a string: `x`",
                "runners.yaml:2:12: a hardware block lacks `available-cpu-dram-mib`",
                "runners.yaml:2:31: `gpus-per-node` must be greater than 0, not 0",
                "runners.yaml:3:1: unknown field `more` in a runners file",
            ]
        );
    }
}
