//! The counters of a queue: every frame taken in is given out or dropped by cause.
//!
//! [`counters`] has the table of statistics, and all that follows from it: what a worker counts in, the sums, and the
//! report for users. [`drop_cause`] has the causes of dropped frames.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
pub mod counters;
pub mod drop_cause;
