//! From the master files to arms: every point that can be measured, in file order.

pub mod arm;
