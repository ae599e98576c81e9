//! Running jobs: one suite for every executor, and what only real processes can show.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod bench;
mod local;
mod suite;
mod supervise;
