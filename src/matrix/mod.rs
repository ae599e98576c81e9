//! From the master files to arms: every point that can be measured, in file order.

pub mod arm;
pub mod arms;
mod dram;
pub mod evals;
pub mod expand;
pub mod filter;
mod label;
pub mod revision;
pub mod rows;
pub mod select;

#[cfg(test)]
mod tests {
    //! What the unit tests of this module share, and the laws of the committed matrix.

    use super::arm::Arm;
    use super::expand::{MatrixRow, expand};
    use super::filter::{Filter, Keys, Sweep};
    use crate::config::diagnostic::Source;
    use crate::config::{master, runners::Runners};

    pub(super) fn runners() -> Runners {
        Runners::parse(&Source::new("runners.yaml", include_str!("../../configs/runners.yaml"))).unwrap()
    }

    pub(super) fn filtered(text: &str, filter: &Filter) -> Vec<MatrixRow> {
        let entries = master::parse(&Source::new("m.yaml", text)).unwrap_or_else(|faults| panic!("{faults}"));
        expand(&entries, &runners(), filter).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn rows(text: &str) -> Vec<MatrixRow> {
        filtered(text, &Filter::Sweep(Sweep::default()))
    }

    pub(super) fn committed_arms() -> Vec<Arm> {
        super::arms::arms(&rows(include_str!("../../configs/nvidia-master.yaml"))).arms
    }

    #[test]
    fn the_committed_matrix_is_40_and_28_arms() {
        let arms = committed_arms();
        let of = |key: &str| arms.iter().filter(|arm| &*arm.row.entry.key.0 == key).count();
        assert_eq!((of("dsv4-fp4-b200-vllm-agentic"), of("dsv4-fp4-b200-vllm-agentic-mtp")), (40, 28));
        for id in [
            "dsv4-fp4-b200-vllm-agentic-mtp/agentic/tp8-ep8-dpa-mooncake-mtp-c12",
            "dsv4-fp4-b200-vllm-agentic-mtp/agentic/tp8-resident-mtp-c1",
            "dsv4-fp4-b200-vllm-agentic/agentic/tp8-lmcache-c8",
        ] {
            let arm = arms.iter().find(|arm| arm.id.as_str() == id).unwrap_or_else(|| panic!("{id}"));
            assert_eq!((arm.row.gpu(), arm.row.gpus(), arm.eval), ("b200", 8, false));
        }
    }

    #[test]
    fn a_point_listed_twice_is_one_arm_and_said_so() {
        let text = include_str!("../../configs/nvidia-master.yaml").replace("[1, 2, 4, 6, 8]", "[1, 2, 1, 4, 6, 8]");
        let rows = rows(&text);
        let found = super::arms::arms(&rows);
        assert_eq!((rows.len(), found.arms.len(), found.repeats.len()), (70, 68, 2));
        assert_eq!(found.repeats[0].id.as_str(), "dsv4-fp4-b200-vllm-agentic/agentic/tp8-resident-c1");
        assert!(found.repeats[0].place.to_string().starts_with("m.yaml:17:9"), "{}", found.repeats[0].place);
    }

    /// Two pools with the same degrees and another launcher setting; the third row says the same as the first.
    pub(super) const MULTI: &str = "
m-multi:
  image: org/engine:1
  model: org/m
  model-prefix: m
  precision: fp4
  framework: dynamo-vllm
  runner: cluster:b200-dgxc
  multinode: true
  disagg: true
  kv-p2p-transfer: nixl
  scenarios:
    fixed-seq-len:
    - isl: 8192
      osl: 1024
      search-space:
      - conc-list: [16, 32]
        prefill: { num-worker: 1, tp: 4, ep: 4, dp-attn: true, additional-settings: [A=1] }
        decode: { num-worker: 2, tp: 8, ep: 1, dp-attn: false, pp: 2 }
      - conc-list: [16, 64]
        prefill: { num-worker: 1, tp: 4, ep: 4, dp-attn: true, additional-settings: [A=2] }
        decode: { num-worker: 2, tp: 8, ep: 1, dp-attn: false, pp: 2 }
      - conc-list: [32, 128]
        prefill: { tp: 4, num-worker: 1, dp-attn: true, ep: 4, additional-settings: [A=1] }
        decode: { num-worker: 2, tp: 8, ep: 1, dp-attn: false, pp: 2 }
    agentic-coding:
    - search-space:
      - conc-list: [4, 32]
        prefill: { num-worker: 1, tp: 4, ep: 4, dp-attn: true }
        decode: { num-worker: 0, tp: 4, ep: 4, dp-attn: true }
";

    #[test]
    fn different_rows_of_one_shape_are_told_apart_and_equal_ones_are_not() {
        let found = super::arms::arms(&rows(MULTI));
        let ids: Vec<&str> = found.arms.iter().map(|arm| arm.id.as_str()).collect();
        let (a, b) = ("m-multi/8k1k/p1x4ep4dpa-d2x8pp2-resident-r", "m-multi/agentic/p1x4ep4dpa-d0x4ep4dpa-resident");
        assert_eq!(ids.len(), 7, "{ids:?}");
        assert!(ids[..5].iter().all(|id| id.starts_with(a)), "{ids:?}");
        assert_eq!(ids[5..], [format!("{b}-c4"), format!("{b}-c32")]);
        let stem = |index: usize| ids[index].rsplit_once("-c").map(|(stem, _)| stem);
        assert_eq!((stem(0), stem(2)), (stem(4), stem(3)));
        assert_ne!(stem(0), stem(2));
        assert_eq!(found.repeats.len(), 1, "concurrency 32 of the third row is the first row's");
    }

    #[test]
    fn a_node_filter_names_the_node() {
        let text = include_str!("../../configs/nvidia-master.yaml");
        let common = super::filter::Common { runner_node: Some("_03".into()), ..Default::default() };
        let arms = super::arms::arms(&filtered(text, &Filter::Sweep(Sweep { common, ..Sweep::default() }))).arms;
        assert_eq!(arms[0].id.as_str(), "dsv4-fp4-b200-vllm-agentic/agentic/tp8-resident-c1@b200-dgxc_03");
        assert_eq!((arms.len(), arms[0].row.gpu()), (68, "b200"));
    }

    #[test]
    fn filters_do_not_change_labels() {
        let text = include_str!("../../configs/nvidia-master.yaml");
        let all: std::collections::HashSet<String> = committed_arms().iter().map(|arm| arm.id.to_string()).collect();
        let keys = Keys { keys: vec!["*-mtp".into()], conc: Some(vec![8, 12]), ..Keys::default() };
        let some = super::arms::arms(&filtered(text, &Filter::Keys(keys))).arms;
        assert_eq!(some.len(), 5);
        assert!(some.iter().all(|arm| all.contains(arm.id.as_str())));
    }
}
