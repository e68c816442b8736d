//! The OpenFlow 1.3 agent of a switch.
//!
//! [`agent::Agent`] answers controllers and tools, and owns the switch's flow tables; it does no input or output.
//! [`service::OpenFlowService`] is the thread around it, with the connections, plain or by TLS.

#![forbid(unsafe_code)]

pub mod address;
pub mod agent;
mod agent_thread;
pub mod connection_limit;
mod dialing;
mod features;
mod link;
pub mod service;
pub mod session;
mod stream;
pub mod tls;
