//! Execution: a job spec and what the host provides become processes, and processes become an outcome.
//!
//! ```text
//! Job ─ check ─ graph ─┐
//! Host ─ bind ─ launch ┴─ run ──► Executor (local | memory | …) ──► Outcome
//!                          └────► events
//! ```
//!
//! `run` owns the one job graph: start order, readiness, the client, counter samples, teardown. An [`Executor`] allocates,
//! starts an instance, sees it exit and stops it; nothing else differs between executors. `scheduler` runs many jobs.
//! This module knows no YAML, no arm and no store: a job has a label for messages, and its spec.
//!
//! # What a process gets
//!
//! Its command, environment and files are those of the spec, rendered by [`crate::spec::Text::render`], and nothing else
//! but what an executor must add. The local executor starts from an empty environment and sets `PATH` (the host's),
//! `HOME` and `TMPDIR` (in the scratch directory, shared by the job's processes), then the secrets that the host names,
//! then the spec's variables, which win. Its working directory is in the scratch directory, its stdin is empty, and its
//! stdout and stderr are its log.
//!
//! # The scratch directory
//!
//! ```text
//! files/SERVICE/NAME   the spec's files (files/SERVICE@1/NAME for a second instance)
//! logs/SERVICE.log     one a process (SERVICE@1.log for a second instance)
//! out/NAME             what the client writes
//! counters.jsonl       the engines' counters over time
//! home/ tmp/ work/     HOME, TMPDIR and the working directory
//! ```

pub mod actor;
pub mod bind;
pub mod cancel;
pub mod check;
pub mod counters;
pub mod descendants;
pub mod event;
pub mod executor;
pub mod exit;
pub mod graph;
pub mod host;
pub mod launch;
pub mod local;
pub mod machine;
pub mod memory;
pub mod outcome;
pub mod ports;
pub mod provenance;
pub mod readiness;
pub mod run;
pub mod scheduler;
pub mod stage;
pub mod supervisor;

pub use cancel::{Cancel, Canceller, cancellation};
pub use event::{EndKind, Event, EventSender, What, Who};
pub use executor::{Allocation, Executor, Instance, Left, StartError};
pub use exit::Exit;
pub use host::{Host, Job, Limits, Timing};
pub use local::Local;
pub use outcome::{End, Failure, FailureKind, Outcome};
pub use provenance::Provenance;
pub use run::run;
