//! The lock file: names to digests.
