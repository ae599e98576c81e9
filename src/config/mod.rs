//! Input files as typed values, every fault at its place: masters, runners, golden curves, changelog, profiles.

pub mod diagnostic;
pub mod document;
