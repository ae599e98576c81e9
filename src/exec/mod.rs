//! Runs a job spec: start order, readiness, teardown, typed events. Knows no YAML and no arm.
