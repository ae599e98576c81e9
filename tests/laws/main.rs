//! The laws that recorded results rest on: what a job's name depends on, what its spec says, who may import whom.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test fails by panicking")]

mod architecture;
mod bad_input;
mod canonical;
mod changes;
mod facts;
mod golden;
mod identity;
mod leaves;
mod restyle;
mod services;
mod stays;
mod tree;
