//! The changelog and git as sources: the field's own history, and small repositories made for the purpose.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test that cannot go on may end")]

mod bad;
mod oracle;
mod repository;
mod review;
mod write;
