//! Input files as typed values, every fault at its place: masters, runners, golden curves, changelog, profiles.

mod builder;
pub mod diagnostic;
pub mod document;
pub mod fields;
pub mod similar;
