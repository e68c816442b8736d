//! sFlow version 5: samples of a switch's frames and the counters of its ports, for a collector.
//!
//! - [`datagram`]: samples in datagrams, byte by byte.
//! - [`exporter`]: makes samples from the reports of datapath and daemon.
//! - [`collector`]: sends the datagrams.
//!
//! Section numbers refer to "sFlow Version 5" (sFlow.org, July 2004).
//!
//! A record comes from the datapath, a report from the daemon: both are checked, and neither makes the exporter store
//! more than the state of 254 ports and one datagram. The exporter reads nothing from a collector.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod collector;
pub mod datagram;
pub mod exporter;

pub use collector::{Collector, CollectorAddress};
pub use exporter::{Exporter, ExporterCounters, Options};
