//! A build tool whose artefacts are benchmark results: a matrix row at one concurrency (an *arm*) is compiled into a *job
//! spec*, a complete description of one measurement; its SHA-256 is the job's name, and a result is stored under that name.
//! An arm whose inputs did not change is never run again.
//!
//! # The pipeline
//!
//! ```text
//! configs/*-master.yaml, runners.yaml ─► config ─► matrix ─► arms
//! configs/recipes/, clients.yaml ───────────────► recipe ◄───┤   services, client, files of an arm
//! golden_al_distribution/ ────────────────► speculative ◄────┤   how drafts are accepted
//! ixbuild.lock ──────────────────────────────────► lock ◄────┤   names → digests
//! configs/profiles/ ──────────────────► config::profile ◄────┘   where to run; what a rehearsal substitutes
//!                                                    │
//!                                                 compose ─► spec ─► canonical bytes ─► job hash
//!                                                    │
//!                                                  plan     recorded | run, and why | running | blocked, and by what
//!                                                    │
//!                                       sweep: claim ─► exec ─► result ─► store
//! ```
//!
//! Types along it: [`config::inputs::Inputs`] (every input file, read once) → [`matrix::arm::Arm`] →
//! [`recipe::Composition`] → [`spec::JobSpec`] and [`ids::JobHash`] → [`plan::Plan`] → [`exec::Outcome`] → an attempt in
//! the [`store`]. [`project::Project`] goes from the first to the plan.
//!
//! # The modules, upstream first
//!
//! A module imports only modules above it; a test holds the exact table.
//!
//! | module | does | does not know |
//! |---|---|---|
//! | [`ids`] | digests, job hashes, arm ids, keys: parsed once, at the edge | what they name |
//! | [`spec`] | the job spec, typed bindings, canonical bytes, the difference of two specs | files, arms, hosts |
//! | [`git`] | files and history of a git revision | what is in them |
//! | [`net`] | HTTP clients | hosts |
//! | [`config`] | texts → types, all faults at their places: masters, runners, curves, profiles | how rows expand |
//! | [`matrix`] | entries → rows → arms; filters, evals, DRAM budgets | recipes |
//! | [`lock`] | the lock file, and what `ixbuild lock` asks indexes and hubs | recipes |
//! | [`speculative`] | the policy of acceptance, and how each engine is told | YAML |
//! | [`recipe`] | an arm → services, client, files: fragments, overlays, expressions | digests, acceptance lengths |
//! | [`sim`] | a rehearsal's cast: engine, router, KV stores, replay client, under the real command lines | specs, arms |
//! | [`compose`] | recipe + policy + lock + substitutions → a spec, or what blocks it | the store |
//! | [`store`] | an OCI image layout of attempts and records; claims | plans, profiles, executors |
//! | [`plan`] | specs and a view of the store → what would run, and why: a value | how it is printed or run |
//! | [`whatif`] | inputs of a spec, set by hand under the names that a difference has | arms, the store |
//! | [`memo`] | plans of inputs that did not change | the store |
//! | [`project`] | a project's files → arms, specs, a plan | folders, command lines |
//! | [`changelog`] | what new changelog entries select, and whether that is what changed | the store |
//! | [`since`] | the arms of now against those of an earlier revision | the store |
//! | [`exec`] | a spec and a host → processes → an outcome and raw layers, through typed events | YAML, arms, the store |
//! | [`result`] | raw layers → metrics, gates, verdicts: pure, derived again when formulas change | where layers come from |
//! | [`sweep`] | planned jobs → claimed, executed, derived, recorded | the command line |
//! | [`records`] | what a job's attempts hold, and the value of a job: the median of its records | plans, formulas |
//! | [`recompute`] | stored layers → results under the current formulas, beside the old ones | how to run anything |
//! | [`reproduce`] | whether a job's records reproduce, in one word | YAML, arms |
//! | [`cli`] | one verb a file, the streams, exit codes, the rendering of errors | nothing imports it |
//!
//! # Files on disk
//!
//! In a project (all that decides a job is snapshotted before anything runs):
//!
//! | path | says |
//! |---|---|
//! | `configs/*-master.yaml` | what is measured: keys, rows, concurrencies |
//! | `configs/runners.yaml` | where it can run: labels, nodes, memory |
//! | `configs/recipes/*.yaml`, and the fragments in `lib/` below | how it is served and loaded |
//! | `configs/clients.yaml` | load generators and eval harnesses, with their versions |
//! | `configs/profiles/*.yaml` | executors, hosts, mounts, substitutions (`docker` and `rehearsal` are built in) |
//! | `golden_al_distribution/*.yaml` | acceptance lengths, one file a curve |
//! | `ixbuild.lock` | tag → digest, version → files, model and data set → revision; written by `ixbuild lock` alone |
//! | `perf-changelog.yaml` | what was changed to be measured again |
//!
//! Outside:
//!
//! | place | holds |
//! |---|---|
//! | `$IXBUILD_STORE`, else `$XDG_DATA_HOME/ixbuild`, else `~/.local/share/ixbuild` | the [`store`]: results cost GPU hours, so it is no cache |
//! | `$IXBUILD_CACHE`, else `$XDG_CACHE_HOME/ixbuild`, else `~/.cache/ixbuild` | plans worth remembering ([`memo`]) |
//! | `ixbuild-UID` in the system's temporary folder | a scratch folder a job: its files, logs and artefacts |

pub mod changelog;
pub mod cli;
pub mod compose;
pub mod config;
pub mod exec;
pub mod git;
pub mod ids;
pub mod lock;
pub mod matrix;
pub mod memo;
pub mod net;
pub mod plan;
pub mod project;
pub mod recipe;
pub mod recompute;
pub mod records;
pub mod reproduce;
pub mod result;
pub mod sim;
pub mod since;
pub mod spec;
pub mod speculative;
pub mod store;
pub mod sweep;
pub mod whatif;
