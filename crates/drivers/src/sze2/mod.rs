//! `sze2:` ports: a capture card in software. What is delivered to the port comes to the card's network side, and what its programs transmit is received from the port.
//!
//! - `card`: the card's settings and counters, which all have a part in; `channel`: a channel, between a session and a queue;
//! - `server`: the thread at the card's socket, and its sessions with programs; `queue`: what a worker serves.
//!
//! Each subscription has memory of its own, so a program that goes on writing to what it had disturbs nobody.

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
use ringroad_port::device_options::DeviceOptions;
use ringroad_port::port_queue::{Capabilities, PortQueue};
use ringroad_sze2::card::settings::MAX_CHANNELS;
use ringroad_sze2::memory::{ChannelGeometry, MemoryError};
use ringroad_sze2::segment::MAX_FRAME_BYTES;
use rustix::net::SocketType;

use crate::device::{Device, DeviceError};
use crate::peer::peer_thread::PeerThread;
use crate::peer::socket::StopBell;
use crate::peer::wake_set::WakeSet;
use card::Card;
use queue::CardQueue;
use server::Server;

/// Channels of a direction where the name does not say: as many as the cards of the published measurements have.
const DEFAULT_CHANNELS: u16 = 8;
/// Buffer of each channel where the name does not say, bytes.
const DEFAULT_BUFFER_BYTES: u64 = 32 << 20;
/// Its blocks: what the cards' driver asks the kernel for at most.
const DEFAULT_BLOCK_BYTES: u64 = 4 << 20;
/// What the cards' addresses begin with (Liberouter).
const ADDRESS_PREFIX: [u8; 3] = [0x00, 0x11, 0x17];

/// Why a card cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Sze2Error {
    /// Its buffers.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A number of channels that it cannot have.
    #[error("{0} channels: a card has 1 to {MAX_CHANNELS}")]
    Channels(u16),
}

/// Makes a card with the socket `path`, served by `queues` queues.
///
/// # Errors
/// [`DeviceError`]: the socket cannot be had, the options make no sense, or the kernel has no descriptors or threads left.
pub fn open(path: &Path, wishes: &DeviceOptions, queues: u16) -> Result<Device, DeviceError> {
    let channels = wishes.channels.unwrap_or(DEFAULT_CHANNELS);
    if !(1..=MAX_CHANNELS).contains(&channels) {
        return Err(Sze2Error::Channels(channels).into());
    }
    let buffer_bytes = wishes.buffer_bytes.unwrap_or(DEFAULT_BUFFER_BYTES);
    let block_bytes = wishes.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES.min(buffer_bytes));
    let geometry = ChannelGeometry { buffer_bytes, block_bytes };
    geometry.check().map_err(Sze2Error::from)?;
    let failed = |source| DeviceError::Connection { name: format!("sze2:{}", path.display()), source };

    let address = wishes.mac.unwrap_or_else(|| address_of(path));
    let card =
        Card::new(path.display().to_string(), channels, geometry, address, wishes.metadata.unwrap_or(false));
    let card = Arc::new(card);
    let stop = StopBell::new().map_err(|error| failed(error.into()))?;
    let listener = ListeningSocket::bind(path, SocketType::SEQPACKET, wishes.socket_mode)?;
    let mut device_queues: Vec<Box<dyn PortQueue>> = Vec::new();
    let mut wakes = Vec::new();
    for number in 0..queues {
        let wake = Arc::new(WakeSet::new().map_err(|error| failed(error.into()))?);
        device_queues.push(Box::new(CardQueue::new(Arc::clone(&card), number, queues, Arc::clone(&wake))));
        wakes.push(wake);
    }
    let server = Server::new(listener, Arc::clone(&card), wakes, stop.clone());
    let thread: PeerThread<()> =
        PeerThread::start("sze2", stop, Vec::new(), move || server.serve()).map_err(failed)?;
    let size = if buffer_bytes < 1 << 20 {
        format!("{} KiB", buffer_bytes >> 10)
    } else {
        format!("{} MiB", buffer_bytes >> 20)
    };
    let mode = format!("SZE2 card at {}, {channels} channel(s) each way, buffers of {size}", path.display());
    let capabilities = Capabilities { driver: "sze2", mode, max_frame_bytes: MAX_FRAME_BYTES as u32 };
    let mut device = Device::new(device_queues, capabilities);
    device.keep = Some(Box::new(thread));
    Ok(device)
}

/// An address of the cards' maker that stays the same for a path.
fn address_of(path: &Path) -> [u8; 6] {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let [a, b, c, ..] = hasher.finish().to_le_bytes();
    let [x, y, z] = ADDRESS_PREFIX;
    [x, y, z, a, b, c]
}
