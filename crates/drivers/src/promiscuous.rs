//! Promiscuous mode of an interface while any port needs it (`PACKET_MR_PROMISC`, packet(7)).

use std::io::Error;
use std::os::fd::OwnedFd;

use crate::af_packet::socket;
use crate::device::DriverError;

/// A membership that keeps an interface promiscuous. The kernel counts memberships, and ends this one when its socket
/// is closed.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

/// Reason why an interface cannot be made promiscuous.
#[derive(Debug, thiserror::Error)]
#[error("{interface}: making it promiscuous: {source}; this needs CAP_NET_RAW, or set promisc=0")]
pub struct PromiscuousError {
    pub interface: String,
    pub source: Error,
}

impl DriverError for PromiscuousError {}

impl Promiscuous {
    /// Makes the interface with index `ifindex`, in the network namespace of the calling thread, promiscuous.
    ///
    /// # Errors
    /// [`PromiscuousError`].
    pub fn set(interface: &str, ifindex: u32) -> Result<Self, PromiscuousError> {
        let failed = |source| PromiscuousError { interface: interface.to_owned(), source };
        let socket = socket::open().map_err(failed)?;
        let request = libc::packet_mreq {
            mr_ifindex: ifindex as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        socket::set(&socket, libc::PACKET_ADD_MEMBERSHIP, &request).map_err(failed)?;
        Ok(Self { _socket: socket })
    }
}
