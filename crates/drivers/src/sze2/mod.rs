//! `sze2:` ports: a capture card in software. Frames delivered to the port arrive at the card's network side, and the
//! port receives the frames that the card's programs transmit.
//!
//! - `card`: the card's settings and counters, which all parts share; `channel`: a channel, between a session and a
//!   queue;
//! - `server`: the thread at the card's socket, and its sessions with programs; `queue`: the part that a worker serves.
//!
//! Each subscription has its own memory, so a program that still writes to memory of an old subscription disturbs no
//! other subscription.

mod card;
mod channel;
mod queue;
mod server;
#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_port::port_queue::{PortCapabilities, PortQueue};
use ringroad_sze2::card::design::{DESIGN_NAMES, DESIGNS};
use ringroad_sze2::card::settings::MAX_CHANNELS;
use ringroad_sze2::memory::{ChannelGeometry, MemoryError};
use ringroad_sze2::segment::MAX_FRAME_BYTES;
use ringroad_wire::mac::Mac;
use rustix::net::SocketType;

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::catalogue::port_option::{PortOption, ValueKind};
use crate::device::{Device, DeviceError, DriverError};
use crate::peer::options::{SOCKET_MODE, socket_mode};
use crate::peer::peer_thread::PeerThread;
use crate::peer::wake_set::WakeSet;
use card::Card;
use queue::CardQueue;
use server::CardServer;

/// Default number of channels of a direction, as the cards of the published measurements have.
const DEFAULT_CHANNELS: u16 = 8;
/// Default buffer of each channel, bytes.
const DEFAULT_BUFFER_BYTES: u64 = 32 << 20;
/// Default size of a buffer's blocks, bytes: the maximum that the cards' driver requests from the kernel.
const DEFAULT_BLOCK_BYTES: u64 = 4 << 20;
/// Prefix of the cards' hardware addresses (Liberouter).
const ADDRESS_PREFIX: [u8; 3] = [0x00, 0x11, 0x17];

impl DriverError for MemoryError {}

const DESIGN: PortOption = PortOption::new(
    "design",
    ValueKind::Word(&DESIGN_NAMES),
    DESIGN_NAMES[0],
    "design that the card boots with: its channels and what can be set",
);
const CHANNELS: PortOption = PortOption::new(
    "channels",
    ValueKind::Number { least: 1, most: MAX_CHANNELS as u64 },
    "8",
    "channels in each direction",
);
const BUFFER: PortOption = PortOption::new("buffer", ValueKind::Size, "32M", "buffer of each channel, bytes");
const BLOCK: PortOption =
    PortOption::new("block", ValueKind::Size, "4M", "blocks of which such a buffer consists, bytes");
const METADATA: PortOption =
    PortOption::new("metadata", ValueKind::Flag, "0", "note for each frame when it came, and where");
const MAC: PortOption = PortOption::new("mac", ValueKind::Mac, "from the path", "the card's address");

/// Ports of capture cards in software.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "sze2",
    spelling: Spelling::Scheme("sze2"),
    form: "sze2:SOCKET",
    about: "an SZE2 capture card in software, which programs open at a UNIX socket",
    page: Some("sze2.md"),
    target: NameTarget::Socket,
    options: &[&SOCKET_MODE, &DESIGN, &CHANNELS, &BUFFER, &BLOCK, &METADATA, &MAC],
    access: OpenedBy::Program,
    plan: |planning| planning.any_queues(),
    open,
}];

fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let OpenContext { target, options, plan, .. } = context;
    let (path, queues, device_options) = (Path::new(target), plan.queues, &options.device);
    let channels = device_options.number(&CHANNELS).unwrap_or(DEFAULT_CHANNELS);
    let buffer_bytes = device_options.number(&BUFFER).unwrap_or(DEFAULT_BUFFER_BYTES);
    let block_bytes = device_options.number(&BLOCK).unwrap_or(DEFAULT_BLOCK_BYTES.min(buffer_bytes));
    let geometry = ChannelGeometry { buffer_bytes, block_bytes };
    geometry.check()?;
    let failed = |source| DeviceError::Connection { name: format!("sze2:{}", path.display()), source };

    let design = device_options.word(&DESIGN, &DESIGNS.each_ref()).unwrap_or(&DESIGNS[0]);
    let address = device_options.mac(&MAC).map_or_else(|| address_of(path), Mac::octets);
    let card = Card::new(
        path.display().to_string(),
        design,
        channels,
        geometry,
        address,
        device_options.flag(&METADATA).unwrap_or(false),
    );
    let card = Arc::new(card);
    let listener = ListeningSocket::bind(path, SocketType::SEQPACKET, socket_mode(device_options))?;
    let mut device_queues: Vec<Box<dyn PortQueue>> = Vec::new();
    let mut wakes = Vec::new();
    for number in 0..queues {
        let wake = Arc::new(WakeSet::new().map_err(|error| failed(error.into()))?);
        device_queues.push(Box::new(CardQueue::new(Arc::clone(&card), number, queues, Arc::clone(&wake))));
        wakes.push(wake);
    }
    let serve = move |stop| CardServer { listener, card, wakes, stop }.serve();
    let thread: PeerThread<()> = PeerThread::start("sze2", Vec::new(), serve).map_err(failed)?;
    let size = if buffer_bytes < 1 << 20 {
        format!("{} KiB", buffer_bytes >> 10)
    } else {
        format!("{} MiB", buffer_bytes >> 20)
    };
    let mode = format!(
        "SZE2 card at {}, {} channel(s) each way, buffers of {size}",
        path.display(),
        channels.min(design.channels)
    );
    let capabilities = PortCapabilities { driver: "sze2", mode, max_frame_bytes: MAX_FRAME_BYTES as u32 };
    let mut device = Device::new(device_queues, capabilities);
    device.keep = Some(Box::new(thread));
    Ok(device)
}

/// Address with the prefix of the cards' maker. It is the same for the same path.
fn address_of(path: &Path) -> [u8; 6] {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let [a, b, c, ..] = hasher.finish().to_le_bytes();
    let [x, y, z] = ADDRESS_PREFIX;
    [x, y, z, a, b, c]
}
