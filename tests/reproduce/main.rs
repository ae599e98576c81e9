//! What is recorded can be run again, judged, taken out of the count and derived anew; each by its verb, as a user calls it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod attempts;
mod env;
mod verdicts;
