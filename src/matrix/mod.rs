//! From the master files to arms: every point that can be measured, in file order.

pub mod arm;
pub mod arms;
mod dram;
pub mod evals;
pub mod expand;
pub mod filter;
mod label;
pub mod rows;
pub mod select;
