//! Counters of a queue: every received frame is delivered or dropped by cause.
//!
//! [`counters`] has the table of statistics, and all that follows from it: a worker's counters, the sums, and the
//! report for users. [`drop_cause`] has the causes of dropped frames.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
pub mod counters;
pub mod drop_cause;
