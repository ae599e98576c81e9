//! The rehearsal's cast: engine, router, KV store and replay client.
/// x
pub const SIMULATOR_VERSION: u64 = 1;
/// x
pub const REPLAY_VERSION: u64 = 1;
