//! Running, stopping and looking on as a user does it: sweeps that are killed, jobs that are stopped, logs, failures that
//! are kept, what-ifs, and stores that fail under way. Each test has a project, a store and a scratch directory of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod crash;
mod env;
mod failure;
mod odd;
mod verbs;
mod whatif;
