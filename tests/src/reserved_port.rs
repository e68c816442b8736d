//! TCP and UDP ports that belong to one test: the kernel gives them to no program that requests any free port.
//!
//! Each port is bound by a socket that receives nothing and has `SO_REUSEADDR`. All servers in the tests set this
//! option, too, so they can bind the port by its number, any number of times.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket, sockopt};

/// A reserved TCP port for a server.
#[derive(Debug)]
pub struct ReservedTcpPort {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl ReservedTcpPort {
    /// Reserves a port. Connections to the port are refused while no server listens.
    ///
    /// # Panics
    /// If the kernel has no free port.
    #[must_use]
    pub fn reserve() -> Self {
        let (socket, address) = reserved(SocketType::STREAM);
        Self { _socket: socket, address }
    }

    /// Address for the server to listen at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

/// A reserved UDP port for a receiver.
#[derive(Debug)]
pub struct ReservedUdpPort {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl ReservedUdpPort {
    /// Reserves a port. Datagrams to the port are refused while it has no receiver.
    ///
    /// # Panics
    /// If the kernel has no free port.
    #[must_use]
    pub fn reserve() -> Self {
        let (socket, address) = reserved(SocketType::DGRAM);
        // A connection to its own address limits the socket to datagrams from itself, and it sends none.
        connect(&socket, &address).unwrap();
        Self { _socket: socket, address }
    }

    /// Address for the receiver to bind.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a receiver at this address.
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
