//! `dgram:` ports: each frame is a datagram of a UNIX socket, as with QEMU's `-netdev dgram` or a few lines in any
//! language.
//!
//! The port's socket is at the path in its name, and the peer's is beside it, at the same path with the suffix `.peer`.
//! The peer may come and go: frames for it are dropped as `not_bound` meanwhile. Untrusted peers send datagrams; only
//! their length matters here, and the mode of the socket's file decides who may send. Frames go to the socket at the
//! peer's path, so no other user may have write access to that folder.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringroad_control::listening_socket::BoundSocket;
use ringroad_port::port_queue::{PortCapabilities, PortQueue};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::device::{Device, DeviceError};
use crate::peer::options::{SOCKET_MODE, socket_mode};
use queue::DatagramQueue;

mod queue;
#[cfg(test)]
mod tests;

/// Programs with a socket for datagrams.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "dgram",
    spelling: Spelling::Scheme("dgram"),
    form: "dgram:SOCKET",
    about: "a program with a UNIX datagram socket at `SOCKET.peer`, each datagram a frame: QEMU's `-netdev dgram`, or a script",
    page: Some("dgram.md"),
    target: NameTarget::Socket,
    options: &[&SOCKET_MODE],
    access: OpenedBy::Program,
    plan: |planning| planning.queues_up_to(1, "dgram"),
    open,
}];

fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let path = Path::new(context.target);
    let socket = BoundSocket::bind(path, SocketType::DGRAM, socket_mode(&context.options.device))?;
    let peer = peer_of(path);
    let mode = format!("datagrams at {}, to {}", path.display(), peer.display());
    let queue = DatagramQueue::new(socket, peer)?;
    let capabilities =
        PortCapabilities { driver: "dgram", mode, max_frame_bytes: queue::MAX_FRAME_BYTES as u32 };
    Ok(Device::new(vec![Box::new(queue)], capabilities))
}

/// Room for frames that the other end has not taken yet, bytes.
const PAIR_BYTES: usize = 4 << 20;

/// A queue, and the socket at its other end: each packet there is a frame. For ports whose frames this process takes.
///
/// # Errors
/// The kernel has no descriptors left.
pub fn pair() -> rustix::io::Result<(Box<dyn PortQueue>, OwnedFd)> {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for socket in [&near, &far] {
        // More than an unprivileged process may have where the kernel allows it, else what is allowed.
        if sockopt::set_socket_send_buffer_size_force(socket, PAIR_BYTES).is_err() {
            sockopt::set_socket_send_buffer_size(socket, PAIR_BYTES)?;
        }
    }
    Ok((Box::new(DatagramQueue::connected(near)), far))
}

/// Where the peer of the socket at `path` has its own.
fn peer_of(path: &Path) -> PathBuf {
    let mut peer = OsString::from(path);
    peer.push(".peer");
    peer.into()
}
