//! Joining of network namespaces to a switch, for the command line and for the CNI plugin.
//!
//! [`veth_pair`] makes the pair whose outer end the daemon serves; [`container_name`] finds the namespace of a
//! container by its name in its engine; [`device_text`] makes names of devices from parts that others chose;
//! [`address_use`] finds addresses that are in use already.

pub mod address_use;
pub mod container_name;
pub mod device_text;
pub mod veth_pair;
