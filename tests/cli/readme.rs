//! Every command of the README runs.
