//! What is recorded can be run again, judged, taken out of the count and derived anew; each by its verb, as a user calls it.

mod attempts;
mod env;
mod verdicts;
