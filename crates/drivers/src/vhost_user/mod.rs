//! A guest behind vhost-user: QEMU, user-mode Linux, or a DPDK program with `net_virtio_user`. This side is the back
//! end, which serves the guest's virtio-net card. For front ends that emulate no card it is the whole card: it has the
//! control queue, too.
//!
//! [`back_end`] has the setup by the front end, and the control queue; [`connection`] the thread that receives the front
//! end's messages, one for each port; [`messages`] those that the `vhost` crate does not receive; [`queue`] the part
//! that a worker serves; [`vring`] the transfer of frames between the guest's memory and their source or destination,
//! with one copy; [`receive_filter`] the frames that the guest wants. Either side can come and go at any time, and the
//! other waits.

use std::path::Path;
use std::sync::Arc;

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_port::port_queue::{PortCapabilities, PortQueue};
use rustix::net::SocketType;

use self::back_end::BackEnd;
use self::connection::{Card, VhostUserConnection};
use self::queue::VhostQueue;
use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::catalogue::port_option::{PortOption, ValueKind};
use crate::device::{Device, DeviceError};
use crate::peer::handover::handover;
use crate::peer::inheritance::Inheritance;
use crate::peer::options::{ROLE_SERVER, SOCKET_MODE, SocketRole, role, socket_mode};
use crate::peer::wake_set::WakeSet;
use crate::peer::watch::PeerWatch;

mod back_end;
mod call;
mod connection;
mod features;
mod messages;
pub mod queue;
mod receive_filter;
#[cfg(test)]
mod tests;
mod vring;

/// Maximum length of a frame that a guest's card accepts, bytes: that of the longest frame for segmentation.
const MAX_FRAME_BYTES: u32 = 65535 + 14;

const OFFLOADS: PortOption = PortOption::new(
    "offloads",
    ValueKind::Flag,
    "1",
    "offer checksum and segmentation offloads: frames may come unfinished",
);
const PACKED: PortOption = PortOption::new("packed", ValueKind::Flag, "1", "offer packed rings");
const ADDRESS: PortOption = PortOption::new(
    "mac",
    ValueKind::Mac,
    "the guest's choice",
    "the card's address, where the front end emulates no card: user-mode Linux",
);

/// Ports of guests' cards.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "vhost_user",
    spelling: Spelling::Scheme("vhost-user"),
    form: "vhost-user:SOCKET",
    about: "the virtio network card of a guest (QEMU, user-mode Linux, DPDK's `net_virtio_user`)",
    page: Some("vhost-user.md"),
    target: NameTarget::Socket,
    options: &[&ROLE_SERVER, &SOCKET_MODE, &OFFLOADS, &PACKED, &ADDRESS],
    access: OpenedBy::Program,
    plan: |planning| planning.any_queues(),
    open,
}];

/// Opens the port of a guest whose front end is or will be at the target, with up to the planned number of queue pairs.
fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let OpenContext { target, options, plan, inherited, .. } = context;
    let (path, options, queues) = (Path::new(target), &options.device, plan.queues);
    let name = format!("vhost-user:{}", path.display());
    let failed = |source: std::io::Error| DeviceError::Connection { name: name.clone(), source };
    let mut pairs = Vec::new();
    let mut mailboxes = Vec::new();
    for _ in 0..queues {
        let wake = Arc::new(WakeSet::new().map_err(|errno| failed(errno.into()))?);
        let (to_mailbox, to_guest) = handover(Arc::clone(&wake));
        let (from_mailbox, from_guest) = handover(wake);
        mailboxes.extend([to_mailbox, from_mailbox]);
        pairs.push([to_guest, from_guest]);
    }
    let address = options.mac(&ADDRESS);
    let offered = features::offered(
        queues,
        options.flag(&OFFLOADS).unwrap_or(true),
        options.flag(&PACKED).unwrap_or(true),
        address.is_some(),
    );
    let watch = Arc::<PeerWatch>::default();
    let back_end = BackEnd::new((offered, address), mailboxes.clone(), Arc::clone(&watch));
    let mut back_end = back_end.map_err(|errno| failed(errno.into()))?;
    let role = role(options).unwrap_or(SocketRole::Server);
    let mut left: Vec<Inheritance> = inherited.into_iter().map(Inheritance::from).collect();
    let is_shared = !left.is_empty();
    let (listener, current) = match left.first_mut() {
        Some(left) => Card::sockets_of(left, path)?,
        None if role == SocketRole::Client => (None, None),
        None => (Some(ListeningSocket::bind(path, SocketType::STREAM, socket_mode(options))?), None),
    };
    // A guest of another process that cannot be served here is disconnected: it notices this when that process ends.
    let current = current.filter(|_| match back_end.resume(&mut left) {
        Ok(rings) => {
            pairs.iter_mut().flatten().zip(rings).for_each(|(held, vring)| held.begin_with(vring));
            true
        }
        Err(error) => {
            back_end.reset();
            watch.disconnected(Some(error.to_string()));
            false
        }
    });
    let card = Card::new(listener, back_end, current, !is_shared).map(Arc::new).map_err(failed)?;
    let queue = |(number, rings)| -> Box<dyn PortQueue> {
        Box::new(VhostQueue::new((&card, number), rings, is_shared))
    };
    let ports = pairs.into_iter().enumerate().map(queue).collect();
    let connection = VhostUserConnection::start(path, card, mailboxes, Arc::clone(&watch)).map_err(failed)?;
    let side = match role {
        SocketRole::Server => "listens at",
        SocketRole::Client => "connects to",
    };
    let mode = format!("{side} {}, {queues} queue(s)", path.display());
    let capabilities = PortCapabilities { driver: "vhost_user", mode, max_frame_bytes: MAX_FRAME_BYTES };
    Ok(Device { peer: Some(watch), keep: Some(Box::new(connection)), ..Device::new(ports, capabilities) })
}
