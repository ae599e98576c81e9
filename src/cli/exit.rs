//! Exit codes, documented in the README: part of the contract with scripts.

/// Everything asked for is done.
pub const OK: u8 = 0;
/// At least one arm failed, or its result is invalid.
pub const ARM_FAILED: u8 = 1;
/// The command line does not make sense.
pub const USAGE: u8 = 2;
/// A config, recipe, golden curve, profile or lock is faulty.
pub const BAD_INPUT: u8 = 3;
/// Blocked or refused: the message says what unblocks it.
pub const REFUSED: u8 = 4;
/// The store cannot be read or written, or is damaged.
pub const STORE: u8 = 5;
/// Anything else of the environment: a file, a socket, a missing program.
pub const ENVIRONMENT: u8 = 6;
/// `reproduce`: the new runs agree with the records.
pub const REPRODUCED: u8 = OK;
/// `reproduce`: they differ by more than the tolerance.
pub const DRIFTED: u8 = 10;
/// `reproduce`: too few runs to tell; it says how many more would decide.
pub const INCONCLUSIVE: u8 = 11;
/// `reproduce`: there is nothing to compare, or it is not the same thing; nothing was run.
pub const NOT_COMPARABLE: u8 = 12;
/// `reproduce`: a new run failed its gates.
pub const INVALID: u8 = 13;
/// Stopped by Ctrl-C or SIGTERM.
pub const INTERRUPTED: u8 = 130;
