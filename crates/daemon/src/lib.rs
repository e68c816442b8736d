//! The daemon: owns switches and devices, hands rings to programs, and keeps every program from harming another.
//!
//! - [`config`]: the TOML file; [`permissions`]: who may do what.
//! - [`ports`]: what exists, and the changes to it; [`status`]: what is told about it.
//! - [`netmap`]: what programs written for netmap have, and their requests.
//! - [`devices`]: ports with a device behind them; [`whereabouts`]: in which network namespace an interface is meant.
//! - [`server`]: the control socket's loop; [`admission`]: who gets in; [`turns`]: who is served next; [`reload`]: a new configuration while traffic runs.
//! - [`service_manager`]: what systemd is told.
//! - [`listen`]: taking the socket, alone; [`logging`]: where log lines go; [`log_limit`]: how many a stranger can cause.
//!
//! Packets never pass through this crate: they are moved by the workers of [`ringroad_datapath`].

pub mod admission;
mod claims;
pub mod config;
pub mod devices;
pub mod listen;
pub mod log_limit;
pub mod logging;
pub mod netmap;
pub mod permissions;
pub mod port_entries;
pub mod ports;
pub mod quotas;
pub mod refusal;
pub mod reload;
pub mod server;
pub mod service_manager;
pub mod status;
pub mod turns;
pub mod whereabouts;
