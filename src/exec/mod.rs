//! Execution: a job spec and what the host provides become processes, and processes become an outcome.
pub mod descendants;
pub mod exit;
pub mod supervisor;
