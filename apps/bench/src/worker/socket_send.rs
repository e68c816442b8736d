//! A system call for each frame, whose way through the kernel ends at growing depths: the steps of a send by a socket.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::fmt;
use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use clap::ValueEnum;
use ringroad::{OpenError, Port, PortError};
use ringroad_netdev::link_by_name;
use ringroad_netdev::link_change::add_address;

use super::frame::{HEADER_BYTES, template};
use super::roles::RoleStep;
use super::{BenchWorkerError, WorkerCounts};
use crate::veth::ENTRANCE;

/// A TAP that nobody reads: once its queue is full, the driver drops each frame.
const FULL_TAP: &str = "bench4";

/// Addresses of the worker, and of a neighbour that does not exist, in the networks of both interfaces.
const VETH: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
const TAP: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 1, 1), Ipv4Addr::new(198, 18, 1, 2)];
const PREFIX_BITS: u8 = 24;

/// UDP port of the discard service (RFC 863).
const DISCARD: u16 = 9;

/// Request to set an entry of the table of neighbours (`linux/sockios.h`), and flags of a complete and permanent entry
/// (`linux/if_arp.h`).
const SIOCSARP: c_ulong = 0x8955;
const COMPLETE_AND_PERMANENT: c_int = 0x2 | 0x4;
/// Hardware type Ethernet (`linux/if_arp.h`).
const ARPHRD_ETHER: u16 = 1;

/// Where the call for a frame ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SocketCall {
    /// No call.
    Loop,
    /// `getppid`, which does nothing in the kernel.
    SystemCall,
    /// `sendto` without a socket.
    NoSocket,
    /// `sendto` on a bound UDP socket, without a route to the address.
    NoRoute,
    /// The same, to a TAP that drops the frame.
    UdpTap,
    /// The same, to the far end of a veth pair.
    UdpVeth,
    /// `sendto` on a packet socket, to a TAP that drops the frame.
    PacketTap,
    /// The same, to the far end of a veth pair.
    PacketVeth,
}

impl fmt::Display for SocketCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// Sender by a call for each frame.
pub(super) struct SocketSend {
    call: SocketCall,
    /// Number of `_socket`, or -1.
    descriptor: RawFd,
    _socket: Option<OwnedFd>,
    _tap: Option<Port>,
    to: Option<libc::sockaddr_in>,
    bytes: Vec<u8>,
    burst_frames: u32,
    /// Error with which each call fails; `None`: it succeeds.
    fails_with: Option<c_int>,
}

impl SocketSend {
    /// Prepares the call of this name, in a namespace with a veth pair and without routes.
    pub(super) fn prepare(
        name: &str,
        slot_bytes: u32,
        burst_frames: u32,
        open: &dyn Fn(&str) -> Result<Port, OpenError>,
    ) -> Result<Self, BenchWorkerError> {
        let failed = |told: String| BenchWorkerError::Socket { name: name.into(), told };
        let call = SocketCall::from_str(name, false).map_err(failed)?;
        let tap = match call {
            SocketCall::UdpTap | SocketCall::PacketTap => {
                let port = format!("tap:{FULL_TAP}");
                Some(open(&port).map_err(|source| BenchWorkerError::Open { name: port, source })?)
            }
            _ => None,
        };
        let (interface, [own, neighbour]) = if tap.is_some() { (FULL_TAP, TAP) } else { (ENTRANCE, VETH) };
        let frame = template(1, 2, slot_bytes);
        let payload = frame.get(HEADER_BYTES..).unwrap_or_default();
        let (socket, bytes, to, fails_with) = match call {
            SocketCall::Loop | SocketCall::SystemCall => (None, &[][..], None, None),
            SocketCall::NoSocket => (None, payload, Some(neighbour), Some(libc::EBADF)),
            SocketCall::NoRoute => {
                (Some(udp_socket().map_err(failed)?), payload, Some(neighbour), Some(libc::ENETUNREACH))
            }
            SocketCall::UdpTap | SocketCall::UdpVeth => {
                let socket = udp_socket().map_err(failed)?;
                add_address(interface, own.into(), PREFIX_BITS).map_err(|error| failed(error.to_string()))?;
                add_neighbour(&socket, interface, neighbour)
                    .map_err(|error| failed(format!("adding a neighbour of {interface}: {error}")))?;
                (Some(socket), payload, Some(neighbour), None)
            }
            SocketCall::PacketTap | SocketCall::PacketVeth => {
                let index = link_by_name(interface).map_err(|error| failed(error.to_string()))?.index;
                let socket =
                    packet_socket(index).map_err(|error| failed(format!("packet socket: {error}")))?;
                (Some(socket), frame.as_slice(), None, None)
            }
        };
        Ok(Self {
            call,
            descriptor: socket.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            _socket: socket,
            _tap: tap,
            to: to.map(|address| libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: DISCARD.to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
                sin_zero: [0; 8],
            }),
            bytes: bytes.to_vec(),
            burst_frames,
            fails_with,
        })
    }

    #[inline]
    fn send(&self) -> Result<(), PortError> {
        let (to, to_bytes) = self.to.as_ref().map_or((std::ptr::null(), 0), |to| {
            (std::ptr::from_ref(to).cast::<libc::sockaddr>(), size_of::<libc::sockaddr_in>())
        });
        let bytes = self.bytes.as_ptr().cast::<c_void>();
        let to_bytes = to_bytes as libc::socklen_t;
        // SAFETY: address and bytes are this value's, with their lengths; the kernel only reads them.
        let sent = unsafe { libc::sendto(self.descriptor, bytes, self.bytes.len(), 0, to, to_bytes) };
        let error = (sent < 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or_default());
        // A full queue shows in the result of some kernels.
        if error == self.fails_with || error == Some(libc::ENOBUFS) {
            Ok(())
        } else {
            Err(self.surprise(error))
        }
    }

    #[cold]
    fn surprise(&self, error: Option<c_int>) -> PortError {
        let told = |error: Option<c_int>| {
            error.map_or("success".into(), |error| io::Error::from_raw_os_error(error).to_string())
        };
        PortError::Device(format!(
            "sendto ({}) ended with {}, not {}",
            self.call,
            told(error),
            told(self.fails_with)
        ))
    }
}

impl RoleStep for SocketSend {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        for turn in 0..self.burst_frames {
            match self.call {
                SocketCall::Loop => {
                    let _ = black_box(turn);
                }
                SocketCall::SystemCall => {
                    let _ = black_box(rustix::process::getppid());
                }
                _ => self.send()?,
            }
        }
        let [sent, _] = &mut tally.directions_frames;
        *sent += u64::from(self.burst_frames);
        Ok(())
    }
}

fn udp_socket() -> Result<OwnedFd, String> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DISCARD))
        .map(OwnedFd::from)
        .map_err(|error| format!("UDP socket: {error}"))
}

/// Makes a packet socket that only sends, on one interface.
fn packet_socket(interface: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and is not shared.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: interface as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the structure has this length, and is only read.
    match unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), bytes) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives `address`, behind `interface`, an Ethernet address that no station has: the receiving stack drops the frame as
/// another station's.
fn add_neighbour(socket: &OwnedFd, interface: &str, address: Ipv4Addr) -> io::Result<()> {
    let data = |bytes: &[u8]| {
        let mut data = [0; 14];
        for (to, from) in data.iter_mut().zip(bytes) {
            *to = *from as c_char;
        }
        data
    };
    let [a, b, c, d] = address.octets();
    let empty = libc::sockaddr { sa_family: 0, sa_data: [0; 14] };
    let mut request = libc::arpreq {
        // Behind the family of an IPv4 address: the port, then the address.
        arp_pa: libc::sockaddr {
            sa_family: libc::AF_INET as libc::sa_family_t,
            sa_data: data(&[0, 0, a, b, c, d]),
        },
        arp_ha: libc::sockaddr { sa_family: ARPHRD_ETHER, sa_data: data(&[2, 0, 0, 0, 0, 2]) },
        arp_flags: COMPLETE_AND_PERMANENT,
        arp_netmask: empty,
        arp_dev: [0; 16],
    };
    for (to, from) in request.arp_dev.iter_mut().take(15).zip(interface.bytes()) {
        *to = from as c_char;
    }
    // SAFETY: the request is the structure of this ioctl.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCSARP, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
