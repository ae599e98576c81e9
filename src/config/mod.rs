//! Input files as typed values, every fault at its place: masters, runners, golden curves, changelog, profiles.

mod builder;
pub mod changelog;
pub mod diagnostic;
pub mod document;
pub mod fields;
pub mod golden;
pub mod inputs;
pub mod load;
pub mod master;
pub mod profile;
pub mod runners;
pub mod search_row;
pub mod similar;
pub mod topology;
pub mod utilization;
