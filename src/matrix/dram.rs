//! The CPU memory that offloaded KV blocks may take on one node, in exact arithmetic.
//!
//! GB = ⌊min(available MiB, 2,861,022) · 2^20 · utilization · gpus / gpus-per-node / 10^9⌋, with gpus = tp · pp · pcp of
//! the engine (of a prefill worker in a multi-node row). 2,861,022 MiB is 3 TB: the budget of a node with more.

use crate::config::diagnostic::{Diagnostic, Place};
use crate::config::topology::{Parallelism, RunnerHardware, Topology};
use crate::config::utilization::Utilization;

/// No node counts for more MiB than this.
pub const NODE_CAP_MIB: u64 = 2_861_022;

/// The budget of one node, GB (10^9 bytes).
///
/// # Errors
/// A row that does not fit its node: more GPUs than a single node has, or a worker that neither divides a node nor
/// is a whole number of nodes.
pub(super) fn budget_gb(
    topology: &Topology,
    hardware: RunnerHardware,
    utilization: &Utilization,
    runner: &str,
    place: &Place,
) -> Result<u64, Diagnostic> {
    let gpus = match topology {
        Topology::Single(parallelism) => fits(*parallelism, hardware, runner, place)?,
        Topology::Multi { prefill, .. } => share_of_node(prefill.parallelism, hardware, runner, place)?,
    };
    let bytes = u128::from(hardware.available_cpu_dram_mib.min(NODE_CAP_MIB)) << 20;
    let divisor = u128::from(hardware.gpus_per_node) * 1_000_000_000;
    Ok(u64::try_from(utilization.of(bytes * u128::from(gpus), divisor)).unwrap_or(u64::MAX))
}

/// The GPUs of a single-node engine, which has one node.
pub(super) fn fits(
    parallelism: Parallelism,
    hardware: RunnerHardware,
    runner: &str,
    place: &Place,
) -> Result<u64, Diagnostic> {
    let (gpus, node) = (parallelism.gpus(), u64::from(hardware.gpus_per_node));
    if gpus <= node {
        return Ok(gpus);
    }
    Err(Diagnostic::at(place, format!("the row needs {gpus} GPUs and a node of `{runner}` has {node}"))
        .label(format!("tp · pp · pcp-size = {}", product(parallelism)))
        .help(format!("keep tp · pp · pcp-size within {node}, or make it a multi-node entry")))
}

/// The GPUs of a node that a worker takes: its own, or all when it spans nodes.
fn share_of_node(
    parallelism: Parallelism,
    hardware: RunnerHardware,
    runner: &str,
    place: &Place,
) -> Result<u64, Diagnostic> {
    let (gpus, node) = (parallelism.gpus(), u64::from(hardware.gpus_per_node));
    let whole = if gpus > node { gpus.is_multiple_of(node) } else { node.is_multiple_of(gpus) };
    if whole {
        return Ok(gpus.min(node));
    }
    let rule = if gpus > node { "is not a whole number of nodes" } else { "does not divide a node" };
    Err(Diagnostic::at(place, format!("a prefill worker of {gpus} GPUs {rule}: `{runner}` has {node} a node"))
        .label(format!("prefill tp · pp · pcp-size = {}", product(parallelism)))
        .help(format!("choose a worker that divides {node} GPUs, or a multiple of {node}")))
}

fn product(parallelism: Parallelism) -> String {
    format!("{} · {} · {} = {}", parallelism.tp, parallelism.pp, parallelism.pcp, parallelism.gpus())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::Source;

    fn gb(tp: u32, mib: u64, node: u32, share: &str) -> Result<u64, String> {
        let parallelism = Parallelism { tp, pp: 1, dcp: 1, pcp: 1, ep: None, dp_attn: None };
        let hardware = RunnerHardware { available_cpu_dram_mib: mib, gpus_per_node: node };
        let place = Place { source: Source::new("m.yaml", "x"), span: 0..1 };
        let share = Utilization::parse(share).unwrap();
        budget_gb(&Topology::Single(parallelism), hardware, &share, "r", &place).map_err(|fault| fault.message)
    }

    #[test]
    fn budgets_follow_the_formula() {
        assert_eq!(gb(8, 3_095_781, 8, "0.80"), Ok(2399));
        assert_eq!(gb(4, 3_095_781, 8, "0.80"), Ok(1199));
        assert_eq!(gb(3, 3_095_781, 8, "0.8"), Ok(899));
        assert_eq!(gb(8, 3_095_781, 8, "1"), Ok(2999));
        assert_eq!(gb(8, 1_000, 8, "1"), Ok(1));
    }

    #[test]
    fn a_row_stays_within_its_node() {
        assert_eq!(gb(16, 3_095_781, 8, "0.8"), Err("the row needs 16 GPUs and a node of `r` has 8".into()));
    }
}
