//! Ports of this machine's address that are one test's: the kernel gives them to nobody who asks for any free port.
//!
//! Each is bound by a socket that receives nothing, and has `SO_REUSEADDR`: servers that have it too, as all of them do,
//! may bind the port by its number, come and go.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket, sockopt};

/// A TCP port for a server.
#[derive(Debug)]
pub struct ReservedTcpPort {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl ReservedTcpPort {
    /// Reserves one. Without a server connections to it are refused.
    ///
    /// # Panics
    /// If the kernel has none.
    #[must_use]
    pub fn reserve() -> Self {
        let (socket, address) = reserved(SocketType::STREAM);
        Self { _socket: socket, address }
    }

    /// Where the server is to listen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port alone.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

/// A UDP port for a receiver.
#[derive(Debug)]
pub struct ReservedUdpPort {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl ReservedUdpPort {
    /// Reserves one. Without a receiver datagrams to it are refused.
    ///
    /// # Panics
    /// If the kernel has none.
    #[must_use]
    pub fn reserve() -> Self {
        let (socket, address) = reserved(SocketType::DGRAM);
        // It hears only itself, and it says nothing.
        connect(&socket, &address).unwrap();
        Self { _socket: socket, address }
    }

    /// Where the receiver is to be.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A receiver at the place.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn receiver(&self) -> UdpSocket {
        bound(SocketType::DGRAM, self.address).into()
    }
}

fn reserved(kind: SocketType) -> (OwnedFd, SocketAddr) {
    let socket = bound(kind, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let address = getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

fn bound(kind: SocketType, address: SocketAddr) -> OwnedFd {
    let socket = socket(AddressFamily::INET, kind, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &address).unwrap();
    socket
}
