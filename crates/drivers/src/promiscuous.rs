//! An interface that takes frames for all stations, as long as somebody wants it (`PACKET_MR_PROMISC`, packet(7)).
#![allow(unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::interface::{checked, owned};

/// A membership that keeps an interface promiscuous. The kernel counts these, and ends this one with its socket.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

/// Why an interface cannot be made promiscuous.
#[derive(Debug, thiserror::Error)]
#[error("{interface}: making it promiscuous: {source}; this needs CAP_NET_RAW, or say promisc=0")]
pub struct PromiscuousError {
    /// Which interface.
    pub interface: String,
    /// The kernel's answer.
    pub source: Error,
}

impl Promiscuous {
    /// Makes the interface with index `ifindex`, in the network namespace of the calling thread, promiscuous.
    ///
    /// # Errors
    /// [`PromiscuousError`].
    pub fn set(interface: &str, ifindex: u32) -> Result<Self, PromiscuousError> {
        let failed = |source| PromiscuousError { interface: interface.to_owned(), source };
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointer is passed; protocol 0 receives nothing.
        let socket = owned(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }).map_err(failed)?;
        let request = libc::packet_mreq {
            mr_ifindex: ifindex as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let bytes = size_of_val(&request) as libc::socklen_t;
        // SAFETY: the kernel reads `bytes` bytes of a structure that lives across the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const request).cast(),
                bytes,
            )
        };
        checked(result).map_err(failed)?;
        Ok(Self { _socket: socket })
    }
}
