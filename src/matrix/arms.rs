//! Matrix rows → arms: one a point, with its id. A point listed twice is one arm.

use std::collections::HashSet;
use std::sync::Arc;

use super::arm::{Arm, Row};
use super::expand::MatrixRow;
use crate::config::diagnostic::Place;
use crate::ids::ArmId;

/// The arms of some matrix rows, in their order.
#[derive(Debug, Clone, Default)]
pub struct Arms {
    /// Each point once.
    pub arms: Vec<Arm>,
    /// The points that were listed more than once.
    pub repeats: Vec<Repeat>,
}

/// A point that stands in the matrix again.
#[derive(Debug, Clone)]
pub struct Repeat {
    /// The arm that it already is.
    pub id: ArmId,
    /// The row that lists it again.
    pub place: Place,
}

/// The arms of matrix rows: throughput arms unless a row is for evaluation alone, and eval arms where it is marked.
pub fn arms(rows: &[MatrixRow]) -> Arms {
    let mut found = Arms::default();
    let mut seen: HashSet<ArmId> = HashSet::with_capacity(rows.len());
    for line in rows {
        let throughput: &[u32] = if line.mark.eval_only { &[] } else { &line.concs };
        let at_one;
        let evals: &[u32] = match (line.mark.run_eval, line.mark.eval_conc) {
            (Some(true), Some(conc)) => {
                at_one = [conc];
                &at_one
            }
            (Some(true), None) => &line.concs,
            (Some(false) | None, _) => &[],
        };
        let points = throughput.iter().map(|conc| (*conc, false)).chain(evals.iter().map(|conc| (*conc, true)));
        for (conc, eval) in points {
            let id = id(&line.row, conc, eval);
            if seen.insert(id.clone()) {
                found.arms.push(Arm { id, row: Arc::clone(&line.row), conc, eval });
            } else {
                found.repeats.push(Repeat { id, place: line.row.place.clone() });
            }
        }
    }
    found
}

/// The arm that scores answers where this one measures speed.
pub fn eval_twin(arm: &Arm) -> Arm {
    Arm { id: id(&arm.row, arm.conc, true), row: Arc::clone(&arm.row), conc: arm.conc, eval: true }
}

/// `LABEL-cN[-eval][@NODE]`.
fn id(row: &Row, conc: u32, eval: bool) -> ArmId {
    let eval = if eval { "-eval" } else { "" };
    let (at, node) = if row.runner == row.entry.runner { ("", "") } else { ("@", row.runner.as_str()) };
    ArmId(format!("{}-c{conc}{eval}{at}{node}", row.label).into())
}
