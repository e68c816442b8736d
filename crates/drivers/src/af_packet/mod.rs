//! Network interfaces through packet sockets (AF_PACKET, packet(7)). They work with every driver, without special
//! support. The price is the kernel's work for each frame and one copy in each direction.
//!
//! The host's stack still receives from the interface too; frames that it sends are not received here. Frames come as
//! they were on the wire: VLAN tags that the card took out are put back, and checksums left to a card are filled in.
//! Frames longer than the MTU, from GRO and virtual interfaces, are segmented as a card would have done. Long frames
//! inside a tunnel cannot be segmented and are passed on unchanged; they are too long for most destinations.
//!
//! There are two kinds of receive ring. A ring of slots hands over each frame at once (TPACKET_V2). A ring of blocks
//! holds many more short frames in the same memory, and hands them over some milliseconds later (TPACKET_V3).
//!
//! Trust: frames are foreign, and are read only for segmentation, within their bounds. Their positions from the kernel
//! are checked against the ring.

mod blocks;
mod queue;
mod receiver;
mod ring;
mod sender;
mod slots;
pub(crate) mod socket;

use std::io::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringroad_netdev::{LinkWatch, NetdevError, ethtool, link_by_index};

use blocks::BlockRing;
use queue::PacketQueue;
use receiver::Receiver;
use ring::PacketRing;
use sender::Sender;
use slots::SlotRing;

use crate::device::{Device, DriverError};

/// Bytes of an Ethernet header and two VLAN tags.
const LINK_HEADER_BYTES: usize = 22;

/// Rule by which AF_PACKET spreads frames over several queues (`PACKET_FANOUT`, packet(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fanout {
    /// Frames of one flow go to one queue.
    #[default]
    Hash,
    /// The processor that received the frame selects the queue.
    Cpu,
    /// The queues receive frames in turn.
    RoundRobin,
    /// The interface's receive queue selects the queue.
    Queue,
}

impl Fanout {
    /// The kernel's number of the rule, and the rule as text for users.
    fn in_kernel(self) -> (u32, &'static str) {
        match self {
            Self::Hash => (libc::PACKET_FANOUT_HASH, " by flow"),
            Self::Cpu => (libc::PACKET_FANOUT_CPU, " by processor"),
            Self::RoundRobin => (libc::PACKET_FANOUT_LB, " in turn"),
            Self::Queue => (libc::PACKET_FANOUT_QM, " by the card's queue"),
        }
    }
}

/// Source of the timestamps of received frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampSource {
    /// The kernel stamps the frame when it first sees it.
    #[default]
    Kernel,
    /// The interface stamps the frame if it can; otherwise the kernel does.
    Hardware,
}

/// Properties of an interface to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketConfig {
    /// Name of the interface, for messages and for queries that need a name.
    pub interface: String,
    /// Index of the interface in the namespace of the calling thread.
    pub ifindex: u32,
    /// MTU of the interface, bytes. Slots have room for such frames. Each longer frame costs a system call.
    pub mtu: u32,
    /// Number of queues, from 1.
    pub queues: u16,
    /// Slots of each queue's ring, 1 to 65536. A slot takes 2 KiB at MTU 1500. Its memory cannot be swapped out.
    pub slots: u32,
    /// Whether each frame is handed over at once (TPACKET_V2). If not, the kernel packs frames densely into blocks of
    /// the same memory, and hands over a block when it is full or some milliseconds old (TPACKET_V3).
    pub immediate: bool,
    /// Source of arrival times. `None`: frames have no times.
    pub timestamps: Option<TimestampSource>,
    /// Rule by which frames are spread over several queues.
    pub fanout: Fanout,
    /// Frames with this mark (`SO_MARK`) are not received.
    pub ignore_marked: Option<u32>,
}

/// Reason why packet sockets could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The number of queues is not possible.
    #[error("{interface}: packet sockets take 1 to 256 queues, not {queues}")]
    Queues { interface: String, queues: u16 },
    /// The number of slots is not possible.
    #[error("{interface}: a ring has 1 to 65536 slots, not {slots}")]
    Slots { interface: String, slots: u32 },
    /// A privilege is missing.
    #[error("{0}: a packet socket needs CAP_NET_RAW: run as root, or give the program this capability")]
    Privilege(String),
    /// The interface does not exist, or no longer exists.
    #[error("{0}: there is no such interface in this network namespace (`ip link` lists them)")]
    NoInterface(String),
    /// The interface cannot be queried.
    #[error(transparent)]
    Netdev(#[from] NetdevError),
    /// The interface does not carry Ethernet.
    #[error("{0} carries no Ethernet frames; use an Ethernet interface")]
    NotEthernet(String),
    /// The kernel has no memory for the rings.
    #[error("{interface}: no memory for a ring of {slots} slots; request fewer (slots=) or fewer queues")]
    Memory { interface: String, slots: u32 },
    /// The kernel refused another step.
    #[error("{interface}: {step}: {source}")]
    Kernel { interface: String, step: &'static str, source: Error },
}

impl DriverError for PacketError {}

/// Opens the interface, which is in the network namespace of the calling thread. Its state and settings stay
/// unchanged: the caller decides whether it receives frames for other stations.
///
/// # Errors
/// [`PacketError`].
pub fn open(config: &PacketConfig) -> Result<Device, PacketError> {
    let interface = || config.interface.clone();
    if !(1..=256).contains(&config.queues) {
        return Err(PacketError::Queues { interface: interface(), queues: config.queues });
    }
    if !(1..=ring::MAX_SLOTS).contains(&config.slots) {
        return Err(PacketError::Slots { interface: interface(), slots: config.slots });
    }
    let link = match LinkWatch::open(config.ifindex) {
        Ok(link) => Arc::new(link),
        Err(error) if error.is_no_interface() => return Err(PacketError::NoInterface(interface())),
        Err(error) => return Err(error.into()),
    };
    if !link_by_index(config.ifindex)?.ethernet {
        return Err(PacketError::NotEthernet(interface()));
    }
    let mut device = match config.immediate {
        true => open_queues(config, &link, "TPACKET_V2 (immediate)", SlotRing::new),
        false => open_queues(config, &link, "TPACKET_V3", BlockRing::new),
    }?;
    if config.timestamps == Some(TimestampSource::Hardware) {
        let name = &config.interface;
        device.notes.push(match ethtool::stamp_all_frames(name) {
            Ok(()) => format!("{name}: timestamps by the card's own clock (`phc2sys` keeps it in step)"),
            Err(error) => format!("{name}: timestamps by the kernel, the card makes none: {error}"),
        });
    }
    Ok(device)
}

/// Opens the queues, each with a ring from `make_ring`, which is of the kernel's `version`.
fn open_queues<R: PacketRing + Send + 'static>(
    config: &PacketConfig,
    link: &Arc<LinkWatch>,
    version: &str,
    make_ring: impl Fn(OwnedFd, u32, usize) -> Result<R, Error>,
) -> Result<Device, PacketError> {
    let failed = |step: &'static str| move |source: Error| failure(config, step, source);
    let frame_bytes = config.mtu as usize + LINK_HEADER_BYTES;
    let mut receivers = Vec::new();
    let mut group = None;
    for _ in 0..config.queues {
        let socket = socket::open().map_err(failed("opening a packet socket"))?;
        // Frames would be received twice before all sockets have joined.
        socket::hear_nothing(&socket).map_err(failed("setting a filter"))?;
        if config.timestamps == Some(TimestampSource::Hardware) {
            socket::use_hardware_time(&socket).map_err(failed("enabling hardware timestamps"))?;
        }
        let ring = make_ring(socket, config.slots, frame_bytes).map_err(failed("making the ring"))?;
        socket::bind(ring.socket(), config.ifindex, libc::ETH_P_ALL).map_err(failed("binding"))?;
        if config.queues > 1 {
            let joined = socket::join_fanout(ring.socket(), group, config.fanout.in_kernel().0);
            group = Some(joined.map_err(failed("sharing frames out to queues"))?);
        }
        receivers.push(Receiver::new(ring, frame_bytes, config.timestamps.is_some()));
    }
    let ring_bytes: usize = receivers.iter().map(Receiver::ring_bytes).sum();
    let mut queues = Vec::new();
    for receiver in receivers {
        socket::hear(receiver.socket(), config.ignore_marked).map_err(failed("setting a filter"))?;
        let sender =
            Sender::open(config.ifindex, frame_bytes).map_err(failed("opening a packet socket to send"))?;
        let queue = PacketQueue::new(receiver, sender, Arc::clone(link), config.interface.clone());
        queues.push(queue.map_err(|errno| failed("watching a packet socket")(errno.into()))?);
    }
    let shared = if config.queues > 1 { config.fanout.in_kernel().1 } else { "" };
    let (count, kib) = (config.queues, ring_bytes / 1024);
    let mode = format!("AF_PACKET, {version}, {count} queue(s){shared}, {kib} KiB of rings");
    Ok(Device::of_interface("af_packet", queues, mode, config.mtu, Vec::new()))
}

/// Error for the kernel's refusal of `step`.
fn failure(config: &PacketConfig, step: &'static str, source: Error) -> PacketError {
    let interface = config.interface.clone();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => PacketError::Privilege(interface),
        Some(libc::ENODEV | libc::ENXIO) => PacketError::NoInterface(interface),
        Some(libc::ENOMEM) => PacketError::Memory { interface, slots: config.slots },
        _ => PacketError::Kernel { interface, step, source },
    }
}

#[cfg(test)]
mod tests;
