//! sFlow version 5: samples of a switch's frames and the counters of its ports, for a collector.
//!
//! - [`datagram`]: samples in datagrams, byte by byte.
//! - [`exporter`]: what the datapath and the daemon report, as samples.
//! - [`collector`]: where datagrams go.
//!
//! Sections are those of "sFlow Version 5" (sFlow.org, July 2004).
//!
//! A record comes from the datapath, a report from the daemon: both are checked, and neither makes the exporter hold
//! more than the state of 254 ports and one datagram. Nothing that a collector sends is read.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod collector;
pub mod datagram;
pub mod exporter;

pub use collector::{Collector, CollectorAddress};
pub use exporter::{Counts, Exporter, Options};
