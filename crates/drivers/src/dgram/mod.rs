//! `dgram:` ports: each frame is a datagram of a UNIX socket. QEMU's `-netdev dgram` and short programs in any language
//! can be the peer.
//!
//! The port's socket is at the path in its name. The peer's socket has the same path with the suffix `.peer`. The peer
//! may come and go: without it, frames for it are dropped as `not_bound`. Datagrams come from untrusted peers, but the
//! port depends only on their length. The mode of the socket's file decides who may send. Frames go to the socket at
//! the peer's path, so no other user may have write access to that folder.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringroad_control::listening_socket::BoundSocket;
use ringroad_port::port_queue::{PortCapabilities, PortQueue};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::device::{Device, DeviceError};
use crate::peer::options::{SOCKET_MODE, socket_mode};
use crate::socket_frames::{MAX_FRAME_BYTES, refuse_descriptors, set_send_room};
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
    refuse_descriptors(socket.as_fd());
    let peer = peer_of(path);
    let mode = format!("datagrams at {}, to {}", path.display(), peer.display());
    let queue = DatagramQueue::new(socket, peer)?;
    let capabilities = PortCapabilities { driver: "dgram", mode, max_frame_bytes: MAX_FRAME_BYTES as u32 };
    Ok(Device::new(vec![Box::new(queue)], capabilities))
}

/// Size of the buffer for frames that the other end has not taken yet, bytes.
const PAIR_BYTES: usize = 4 << 20;

/// Makes a queue, and the socket at its other end, where each packet is a frame. This is for ports whose frames this
/// process takes.
///
/// # Errors
/// The kernel has no descriptors left.
pub fn pair() -> rustix::io::Result<(Box<dyn PortQueue>, OwnedFd)> {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for socket in [&near, &far] {
        set_send_room(socket, PAIR_BYTES)?;
    }
    Ok((Box::new(DatagramQueue::connected(near)), far))
}

/// Path of the socket of the peer of the socket at `path`.
fn peer_of(path: &Path) -> PathBuf {
    let mut peer = OsString::from(path);
    peer.push(".peer");
    peer.into()
}
