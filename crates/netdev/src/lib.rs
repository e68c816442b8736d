//! Network interfaces in the kernel: requests to read and change links, their statistics, notices of changes, network
//! namespaces, and a driver's reports about ethtool settings and XDP.
//!
//! Each function opens a netlink socket, sends a request, waits for the reply, and closes the socket. This is for the
//! control path. Whether a link carries frames is read from a [`link_watch::LinkWatch`], which follows the kernel's
//! notices. Statistics of a link that are read repeatedly come from a [`link_probe::LinkProbe`]. A function acts in the
//! network namespace of the calling thread; [`namespace::in_namespace`] calls it in another one.

pub mod error;
pub mod ethtool;
mod ethtool_message;
mod ethtool_monitor;
mod generic_message;
pub mod link;
pub mod link_change;
pub mod link_monitor;
pub mod link_probe;
pub mod link_use;
pub mod link_watch;
pub mod namespace;
mod netlink;
mod new_namespace;
#[cfg(test)]
mod test_namespace;
pub mod xdp_features;

pub use error::NetdevError;
pub use link::{LinkInfo, link_by_index, link_by_name};
pub use link_monitor::{LinkEvent, LinkMonitor};
pub use link_probe::LinkProbe;
pub use link_watch::{LinkState, LinkView, LinkWatch};
pub use namespace::{HeldNamespace, Namespace, NamespaceError, NamespaceId, in_namespace};
