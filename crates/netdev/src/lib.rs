//! What the kernel says of network interfaces, and how it is asked to change them: links, their statistics and their
//! changes as they happen, network namespaces, and what a driver tells through ethtool.
//!
//! Each function opens a netlink socket, asks, waits for the answer, and closes it: for the control path. Drivers ask again and
//! again, through a [`link_probe::LinkProbe`]. A function asks about the network namespace of the thread that calls; [`namespace::in_namespace`] calls it in another one.

pub mod error;
pub mod ethtool;
mod ethtool_message;
pub mod link;
pub mod link_change;
pub mod link_monitor;
pub mod link_probe;
pub mod link_use;
pub mod namespace;
mod netlink;
pub mod offload;
#[cfg(test)]
mod test_namespace;

pub use error::NetdevError;
pub use link::{LinkInfo, link_by_name};
pub use link_monitor::{LinkEvent, LinkMonitor};
pub use link_probe::{LinkProbe, LinkState};
pub use namespace::{HeldNamespace, Namespace, NamespaceError, NamespaceId, in_namespace};
