//! The rehearsal's cast: engine, router, KV store and replay client.
