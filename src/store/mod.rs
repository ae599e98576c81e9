//! Results under their hash, as an OCI image layout.
