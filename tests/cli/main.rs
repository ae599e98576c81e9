//! Whole commands, as a user calls them: in a project of their own, with a store of their own, and nothing inherited.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test fails by panicking")]

mod env;
mod errors;
mod failures;
mod help;
mod plan;
mod readme;
mod run;
mod script;
mod selection;
mod show;
mod signals;
mod store;
mod streams;
mod why_diff;
