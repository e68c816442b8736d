//! `virtio-user:PATH`: a virtio network card without a virtual machine, for a vhost-user back end such as another
//! program's switch.
//!
//! The port is the front end of vhost-user: it owns the memory with split virtqueues and buffers ([`memory`]), and
//! shares it with the program at the other end of the socket ([`connection`]). Sent frames are copied once into a free
//! buffer ([`send_ring`]). Received frames are read where the back end wrote them ([`receive_ring`]).
//!
//! The messages on the socket and the whole memory are foreign. The `vhost` crate checks the messages. In the memory
//! only used rings and the headers of received frames are read, each value once, and checked before use. A back end
//! that breaks a rule loses the connection and may reconnect.

use std::path::Path;
use std::sync::Arc;

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_port::port_queue::{PortCapabilities, PortQueue};
use ringroad_ring::eventfd;
use rustix::net::SocketType;

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::catalogue::port_option::{PortOption, ValueKind};
use crate::device::{Device, DeviceError, DevicePlan};
use crate::peer::handover::handover;
use crate::peer::options::{ROLE_CLIENT, SOCKET_MODE, SocketRole, role, socket_mode};
use crate::peer::peer_thread::PeerThread;
use crate::peer::wake_set::WakeSet;
use crate::peer::watch::PeerWatch;
use connection::{ConnectResult, VirtioUserConnection};
use queue::VirtioUserQueue;

mod connection;
mod driver_ring;
mod memory;
mod queue;
mod receive_ring;
mod send_ring;
#[cfg(test)]
mod tests;

/// Default number of entries of each ring.
const DEFAULT_RING_ENTRIES: u16 = 1024;

const OFFLOADS: PortOption = PortOption::new(
    "offloads",
    ValueKind::Flag,
    "0",
    "accept checksum and segmentation offloads: frames may come unfinished",
);
const RING_SIZE: PortOption = PortOption::new(
    "ring-size",
    ValueKind::PowerOfTwo { least: 64, most: 32768 },
    "1024",
    "entries of each ring",
);
const MAC: PortOption = PortOption::new(
    "mac",
    ValueKind::Mac,
    "none",
    "the card's address, for reports: frames for others are received too",
);

/// Ports that are cards for vhost-user back ends.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "virtio_user",
    spelling: Spelling::Scheme("virtio-user"),
    form: "virtio-user:SOCKET",
    about: "a virtio network card without a machine around it, for a vhost-user switch (OVS-DPDK, testpmd, `vhost-user:` ports); \
            needs no daemon. The back end must have as many queues",
    page: None,
    target: NameTarget::Socket,
    options: &[&ROLE_CLIENT, &SOCKET_MODE, &OFFLOADS, &RING_SIZE, &MAC],
    access: OpenedBy::Program,
    plan: |planning| planning.any_queues(),
    open,
}];

/// Opens a card for the back end at the target. The card connects when the back end exists. Without a connection it has
/// no room for frames, and frames of a switch are dropped as `not_bound`.
fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let OpenContext { target, options, plan: DevicePlan { queues, .. }, .. } = context;
    let (path, options) = (Path::new(target), &options.device);
    let failed = |source: std::io::Error| DeviceError::Connection {
        name: format!("virtio-user:{}", path.display()),
        source,
    };
    let role = role(options).unwrap_or(SocketRole::Client);
    let meeting = match role {
        SocketRole::Client => ConnectResult::Connect(path.to_owned()),
        SocketRole::Server => {
            ConnectResult::Listen(ListeningSocket::bind(path, SocketType::STREAM, socket_mode(options))?)
        }
    };
    let watch = Arc::new(PeerWatch::default());
    let name: Arc<str> = path.display().to_string().into();
    let mut mailboxes = Vec::new();
    let mut ports: Vec<Box<dyn PortQueue>> = Vec::new();
    for _ in 0..queues {
        let wake = WakeSet::new().map_err(|error| failed(error.into()))?;
        let (mailbox, held) = handover(Arc::new(wake));
        mailboxes.push(mailbox);
        ports.push(Box::new(VirtioUserQueue::new(held, Arc::clone(&watch), Arc::clone(&name))));
    }
    let entries = options.number(&RING_SIZE).unwrap_or(DEFAULT_RING_ENTRIES);
    let offloads = options.flag(&OFFLOADS).unwrap_or(false);
    let fault_bell = Arc::new(eventfd::create().map_err(|error| failed(error.into()))?);
    let (to_close, known) = (mailboxes.clone(), Arc::clone(&watch));
    let run = move |stop| {
        VirtioUserConnection { meeting, mailboxes, entries, offloads, watch: known, stop, fault_bell }.run();
    };
    let thread = PeerThread::start("virtio-user", to_close, run).map_err(failed)?;
    let side = if role == SocketRole::Server { "server" } else { "client" };
    let address = options.mac(&MAC).map(|mac| format!(", mac {mac}"));
    let capabilities = PortCapabilities {
        driver: "virtio_user",
        mode: format!(
            "vhost-user front end, {side}, {entries} entries a ring{}",
            address.unwrap_or_default()
        ),
        max_frame_bytes: send_ring::MAX_FRAME_BYTES as u32,
    };
    Ok(Device { peer: Some(watch), keep: Some(Box::new(thread)), ..Device::new(ports, capabilities) })
}
