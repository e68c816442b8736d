//! memif ports: DPDK, VPP, libmemif and other programs that speak memif 2.0 share memory with a port. They connect
//! through a UNIX socket.
//!
//! Untrusted peers write the messages of the socket ([`message`]) and send regions and eventfds with them. In shared
//! memory they write head, tail, flags and descriptors of rings, and frames. Each value is read once and checked. A
//! peer that breaks a rule is sent the reason, and its connection is closed.
//!
//! - `listener`: the sockets of a process, each shared by interfaces with different ids; `channel`: messages of a
//!   connection;
//! - `server`, `client`: set up a connection in either role; `connection`: the thread of a port;
//! - `ring`: a ring in shared memory; `receive_ring`, `transmit_ring`: the two ends of a ring; `own_region`: a client's
//!   memory; `queue`: the part that a worker serves.
//!
//! Server and client are called master and slave in memif.h.

mod channel;
mod client;
mod connection;
mod fault;
mod listener;
pub mod message;
mod own_region;
mod queue;
mod receive_ring;
mod ring;
mod server;
#[cfg(test)]
mod tests;
mod transmit_ring;

use std::path::Path;
use std::sync::Arc;

use ringroad_port::port_queue::{PortCapabilities, PortQueue};

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::catalogue::port_option::{PortOption, ValueKind};
use crate::device::{Device, DeviceError};
use crate::peer::handover::handover;
use crate::peer::options::{ROLE_SERVER, SOCKET_MODE, SocketRole, role, socket_mode};
use crate::peer::peer_thread::PeerThread;
use crate::peer::wake_set::WakeSet;
use crate::peer::watch::PeerWatch;

use client::ClientConfig;
use connection::Connections;
use listener::{ClientSlot, SocketRegistration};
use own_region::RingPlan;
use queue::{Line, MemifQueue, Rings};
use ring::MAX_LOG2_SIZE;

/// Maximum number of queues of a port.
pub const MAX_QUEUES: u16 = 16;
/// Default number of descriptors of a client's ring.
const DEFAULT_LOG2_RING_SIZE: u8 = 10;
/// Default size of a client's buffers, bytes.
const DEFAULT_BUFFER_BYTES: u32 = 2048;

/// Name of this program for peers.
fn program_name() -> String {
    concat!("Ringroad ", env!("CARGO_PKG_VERSION")).to_owned()
}

const ID: PortOption = PortOption::new(
    "id",
    ValueKind::Number { least: 0, most: u32::MAX as u64 },
    "0",
    "which of the interfaces of one socket",
);
/// Length as of MEMIF_SECRET_SIZE in memif.h.
const SECRET: PortOption =
    PortOption::new("secret", ValueKind::Text { most_bytes: 24 }, "none", "what a client has to know");
const RING_SIZE: PortOption = PortOption::new(
    "ring-size",
    ValueKind::PowerOfTwo { least: 64, most: 1 << MAX_LOG2_SIZE },
    "1024; of a server 16384",
    "descriptors of each ring; of a server the most that it takes",
);

/// Memif ports.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "memif",
    spelling: Spelling::Scheme("memif"),
    form: "memif:SOCKET",
    about: "a program that speaks memif (DPDK's `net_memif`, VPP, libmemif); `buf-size` is of a client's buffers",
    page: Some("memif.md"),
    target: NameTarget::Socket,
    options: &[&ROLE_SERVER, &SOCKET_MODE, &ID, &SECRET, &RING_SIZE],
    access: OpenedBy::Program,
    plan: |planning| planning.queues_up_to(MAX_QUEUES, "memif"),
    open,
}];

fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let OpenContext { target, options, plan, .. } = context;
    let (path, queues, device_options) = (Path::new(target), plan.queues, &options.device);
    let id = device_options.number(&ID).unwrap_or(0);
    let secret = device_options.text(&SECRET).unwrap_or_default().as_bytes().to_vec();
    let log2_ring_size = device_options.number(&RING_SIZE).map(|size: u32| size.ilog2() as u8);
    let interface = format!("ringroad/{id}");

    let failed = |source| DeviceError::Connection { name: format!("memif:{}", path.display()), source };
    let line = Arc::new(Line::new().map_err(|error| failed(error.into()))?);
    let watch = Arc::new(PeerWatch::default());
    let mut device_queues: Vec<Box<dyn PortQueue>> = Vec::new();
    let mut mailboxes = Vec::new();
    for number in 0..queues {
        let wake = WakeSet::new().map_err(|error| failed(error.into()))?;
        let (mailbox, held) = handover(Arc::new(wake));
        device_queues.push(Box::new(MemifQueue::new(number, held, Arc::clone(&line))));
        mailboxes.push(mailbox);
    }
    let connections = {
        let (mailboxes, watch, line) = (mailboxes.clone(), Arc::clone(&watch), Arc::clone(&line));
        move |stop| Connections { mailboxes, watch, line, stop }
    };
    let role = role(device_options).unwrap_or(SocketRole::Server);
    let (thread, registration) = match role {
        SocketRole::Server => {
            let max_log2_ring_size = log2_ring_size.unwrap_or(MAX_LOG2_SIZE);
            let door = ClientSlot::new(queues, max_log2_ring_size, secret, line);
            let registration =
                SocketRegistration::take(path, id, socket_mode(device_options), Arc::clone(&door))?;
            let run = move |stop| connections(stop).serve(&door, id, &interface);
            (PeerThread::start("memif", mailboxes, run), Some(registration))
        }
        SocketRole::Client => {
            let log2_ring_size = log2_ring_size.unwrap_or(DEFAULT_LOG2_RING_SIZE);
            let buffer_bytes = options.buffer_bytes.unwrap_or(DEFAULT_BUFFER_BYTES);
            check_memory(queues, log2_ring_size, buffer_bytes)?;
            let config = ClientConfig { id, secret, queues, log2_ring_size, buffer_bytes, interface };
            let path = path.to_owned();
            let run = move |stop| connections(stop).visit(&path, &config);
            (PeerThread::start("memif", mailboxes, run), None)
        }
    };
    let port = MemifPort { _registration: registration, _thread: thread.map_err(failed)? };
    let role = if role == SocketRole::Server { "server" } else { "client" };
    let mode = format!("memif {role}, interface {id} at {}", path.display());
    let capabilities = PortCapabilities { driver: "memif", mode, max_frame_bytes: u32::from(u16::MAX) };
    let keep = Some(Box::new(port) as _);
    Ok(Device { peer: Some(watch), keep, ..Device::new(device_queues, capabilities) })
}

fn check_memory(queues: u16, log2_size: u8, buffer_bytes: u32) -> Result<(), DeviceError> {
    if !(64..=65536).contains(&buffer_bytes) {
        return Err(DeviceError::Refused(format!(
            "buffers of {buffer_bytes} bytes: choose from 64 to 65536"
        )));
    }
    let plan = RingPlan { rings: 2 * queues, log2_size, buffer_bytes };
    let (rings, size) = (plan.rings, 1u32 << log2_size);
    plan.region_bytes().map(|_| ()).ok_or_else(|| {
        DeviceError::Refused(format!(
            "{rings} rings of {size} descriptors with buffers of {buffer_bytes} bytes need more than 4 GiB"
        ))
    })
}

/// Values that must live as long as a port.
#[derive(Debug)]
struct MemifPort {
    /// The first field, so that no more clients are accepted while the others are dropped.
    _registration: Option<SocketRegistration>,
    _thread: PeerThread<Rings>,
}
