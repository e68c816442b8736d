//! Fixtures of the end-to-end tests. Every test has its own daemon, socket and folder, so tests run in parallel.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod campus;
pub mod certificates;
pub mod command;
pub mod conservation;
pub mod daemon;
pub mod flow_switch;
pub mod frames;
pub mod netmap_register;
pub mod network;
pub mod open_vswitch;
pub mod passage;
pub mod ping;
pub mod random;
pub mod random_flows;
pub mod raw_port;
pub mod reserved_port;
pub mod service;
pub mod szedata_plugin;
pub mod testbed;
pub mod testpmd;
pub mod transfer;
