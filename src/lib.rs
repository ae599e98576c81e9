//! A build tool whose artefacts are benchmark results.

pub mod changelog;
pub mod cli;
pub mod compose;
pub mod config;
pub mod exec;
pub mod git;
pub mod ids;
pub mod lock;
pub mod matrix;
pub mod memo;
pub mod net;
pub mod plan;
pub mod project;
pub mod recipe;
pub mod recompute;
pub mod records;
pub mod reproduce;
pub mod result;
pub mod sim;
pub mod since;
pub mod spec;
pub mod speculative;
pub mod store;
pub mod sweep;
pub mod whatif;
