//! The changelog at work: what its new entries select, and whether that is what changed.
//!
//! ```text
//! git: two revisions ─► added (what is new, byte rules) ─► entries ─► select ─► rows, as JSON
//!                                                            │
//!            masters, recipes, lock of both ─► hashes ───────┴─► check, audit: selected against changed
//! ```
//!
//! [`diff`] compares texts, [`added`] reads what is new and refuses what an addition must not do, [`select`] and
//! [`append_only`] choose rows, [`json`] prints them as the field's own tools do.

pub mod added;
pub mod append_only;
pub mod audit;
pub mod check;
pub mod diff;
pub mod draft;
pub mod json;
pub mod measure;
pub mod revision;
pub mod select;
pub mod suggest;
mod unchanged;
