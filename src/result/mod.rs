//! Raw per-request rows and counters to metrics, gates and verdicts.
