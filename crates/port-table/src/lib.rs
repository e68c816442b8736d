//! Ports of one datapath: ports of switches, devices that programs have open, and pipes. The daemon and embedded mode
//! have one [`table::PortTable`] each. Only the table adds and removes ports.
//!
//! The table lays ports out, joins them to the [`Fabric`](ringroad_datapath::fabric::Fabric) and takes them away. Its
//! callers check permissions and quotas first.
//!
//! [`table`]: opening, attaching, closing; [`entry`]: the entry of each port; [`opening`]: the parts of a new port, for
//! its program and for the datapath; [`error`].

pub mod entry;
pub mod error;
pub mod opening;
pub mod table;
#[cfg(test)]
mod tests;
