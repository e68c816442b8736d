//! The daemon's counters, for Prometheus and for probes.
//!
//! - [`mod@exposition`]: a status report in the text format of OpenMetrics 1.0.
//! - [`endpoint`]: an HTTP server for it, and for the daemon's health.
//!
//! The endpoint queries the daemon over the control socket, like any program. So untrusted peers of the endpoint cannot
//! reach the daemon's ports and threads.

#![forbid(unsafe_code)]

pub mod endpoint;
pub mod exposition;

pub use endpoint::{Endpoint, EndpointError};
pub use exposition::exposition;
