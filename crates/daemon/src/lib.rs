//! The daemon: owns switches and devices, hands rings to programs, and keeps every program from harming another.
//!
//! - [`config`]: the TOML file; [`permissions`]: who may do what; [`port_rules`]: port settings that the configuration
//!   fixes.
//! - [`ports`]: all ports, and the changes to them; [`attaching`]: ports that outlive programs, from description to
//!   port; `provisional_ports`: those that end with the requesting connection; `switch_settings`: static addresses,
//!   mirrors and OpenFlow of switches; `mirrors`: ports that get copies of frames; [`status`]: reports about ports;
//!   `tracing_report`: reports about single frames.
//! - [`netmap`]: devices, ports and requests of programs written for netmap.
//! - [`devices`]: ports of devices; `shortcuts`: frames between some of them that pass within the kernel;
//!   [`namespace_scope`]: the network namespace of an interface's name.
//! - [`server`]: the control socket's loop; [`admission`]: limits of connections; [`request_scheduler`]: the order of
//!   requests; [`reload`]: a new configuration while traffic runs; [`restore`]: attached ports after a daemon that was
//!   killed; `saving`: writes settings of operators to the configuration file; [`upgrade`]: a new daemon takes over
//!   everything from this one.
//! - [`service_manager`]: notifications to systemd.
//! - [`real_time`]: the priority of the workers.
//! - [`listen`]: takes the socket, for one daemon; [`logging`]: the target of log lines; [`log_limit`]: a limit on
//!   lines that untrusted peers cause.
//!
//! Packets never pass through this crate: the workers of [`ringroad_datapath`] move them.

pub mod admission;
pub mod attaching;
pub mod claims;
pub mod config;
pub mod devices;
mod explaining;
mod link_following;
pub mod listen;
pub mod log_limit;
pub mod logging;
mod mirrors;
pub mod namespace_scope;
pub mod netmap;
pub mod openflow;
pub mod permissions;
pub mod port_entries;
pub mod port_rules;
pub mod ports;
mod provisional_ports;
pub mod quotas;
pub mod real_time;
pub mod refusal;
pub mod reload;
pub mod request_scheduler;
pub mod restore;
mod saving;
pub mod server;
pub mod service_manager;
mod shortcuts;
pub mod status;
mod switch_settings;
mod tracing_report;
pub mod upgrade;
