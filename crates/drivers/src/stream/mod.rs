//! `stream:` ports: a UNIX stream socket that carries frames, each behind its length in 4 bytes, big endian. QEMU's
//! `-netdev stream` and `-netdev socket`, passt, libkrun and vmnet-helper can be the peer.
//!
//! The peer may come and go: without it, frames for it are dropped as `not_bound`. All that it sends is foreign, but
//! the port depends only on the lengths. A length that no frame can have ends the connection, and the port takes the
//! next peer.
//!
//! - [`connector`]: connects to a server again and again;
//! - [`receive_buffer`]: what has arrived, and the frames in it; [`send_buffer`]: what the kernel has not taken yet;
//! - [`queue`]: the part that a worker serves. In the role of a server it also accepts the peers.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use ringroad_control::listening_socket::{BoundSocket, ListeningSocket};
use ringroad_port::port_queue::PortCapabilities;
use rustix::net::SocketType;

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::device::{Device, DeviceError};
use crate::peer::inheritance::Inheritance;
use crate::peer::options::{ROLE_CLIENT, SOCKET_MODE, SocketRole, role, socket_mode};
use crate::peer::wake_set::WakeSet;
use crate::peer::watch::PeerWatch;
use crate::socket_frames::{MAX_FRAME_BYTES, refuse_descriptors};
use connector::Connector;
use queue::{PeerSource, StreamQueue};

mod connector;
mod queue;
mod receive_buffer;
mod send_buffer;
#[cfg(test)]
mod tests;

/// Number of bytes of the length in front of each frame.
const LENGTH_BYTES: usize = 4;
/// Number of peers that may wait for the end of the present one.
const BACKLOG: i32 = 16;

/// Programs with a stream socket.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "stream",
    spelling: Spelling::Scheme("stream"),
    form: "stream:SOCKET",
    about: "a program with a UNIX stream socket that carries frames behind their lengths: QEMU's `-netdev stream`, passt",
    page: Some("stream.md"),
    target: NameTarget::Socket,
    options: &[&ROLE_CLIENT, &SOCKET_MODE],
    access: OpenedBy::Program,
    plan: |planning| planning.queues_up_to(1, "stream"),
    open,
}];

fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let OpenContext { target, options, inherited, .. } = context;
    let (path, options) = (Path::new(target), &options.device);
    let failed = |source| DeviceError::Connection { name: format!("stream:{}", path.display()), source };
    let mut left = inherited.into_iter().next().map(Inheritance::from);
    let watch = Arc::<PeerWatch>::default();
    let wake = Arc::new(WakeSet::new().map_err(|errno| failed(errno.into()))?);
    let (peers, thread, side) = match role(options).unwrap_or(SocketRole::Client) {
        SocketRole::Client => {
            let (connector, thread) =
                Connector::start(path, Arc::clone(&wake), Arc::clone(&watch)).map_err(failed)?;
            (PeerSource::Connect(connector), Some(thread), "connects to")
        }
        SocketRole::Server => {
            let listener = match &mut left {
                Some(left) => ListeningSocket::resume(path, left.descriptor().map_err(failed)?)?,
                None => {
                    let socket = BoundSocket::bind(path, SocketType::STREAM, socket_mode(options))?;
                    refuse_descriptors(socket.as_fd());
                    socket.listen(BACKLOG)?
                }
            };
            (PeerSource::Listen(listener), None, "listens at")
        }
    };
    let mut queue =
        StreamQueue::new(peers, wake, Arc::clone(&watch)).map_err(|errno| failed(errno.into()))?;
    if let Some(left) = &mut left {
        queue.take_over(left).map_err(failed)?;
    }
    let capabilities = PortCapabilities {
        driver: "stream",
        mode: format!("{side} {}", path.display()),
        max_frame_bytes: MAX_FRAME_BYTES as u32,
    };
    let keep = thread.map(|thread| Box::new(thread) as _);
    Ok(Device { peer: Some(watch), keep, ..Device::new(vec![Box::new(queue)], capabilities) })
}
