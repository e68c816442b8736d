//! A network interface through AF_XDP: the region is the socket's UMEM, so frames arrive in the region and leave from
//! it (kernel documentation, "AF_XDP").
//!
//! Each queue has a socket with its own registration of the same memory. One XDP program steers the frames of each
//! queue to its socket. Frames of queues without a socket go to the host stack. The program is attached as long as a
//! queue lives, even if the process is killed.
//!
//! Modes, best first: zero-copy (the driver itself uses the region's memory), copy in native mode (the kernel copies
//! once, in the driver), copy in generic mode (any interface).

mod error;
mod ledger;
mod obstacles;
mod queue;
mod rings;
mod socket;
mod umem;

#[cfg(test)]
mod tests;

use std::os::fd::AsFd;
use std::sync::Arc;

use ringroad_bpf::attached::detach_xdp;
use ringroad_bpf::link::{BpfLink, XdpAttachMode as Attach};
use ringroad_bpf::map::XskMap;
use ringroad_bpf::program::XdpProgram;
use ringroad_netdev::LinkWatch;
use ringroad_ring::region::Region;

pub use error::XdpError;
pub use obstacles::Obstacle;
pub(crate) use obstacles::{native_defect, obstacles};
pub use queue::XdpQueue;

use socket::XdpSocket;
use umem::{Umem, uncut_bytes};

/// Mode of AF_XDP to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AfXdpMode {
    /// The best mode that the interface supports: zero-copy, else copy in native mode, else generic.
    #[default]
    Auto,
    /// The driver uses the region as its memory. Opening fails if it cannot.
    ZeroCopy,
    /// The kernel copies once, in the driver.
    Native,
    /// The kernel copies once, after the driver. This works with every interface.
    Generic,
}

/// Size of a chunk of UMEM if the kernel copies frames, bytes. It is a power of two, as AF_XDP requires.
pub const COPY_CHUNK_BYTES: u32 = 2048;
/// Size of a chunk of UMEM if a card may write frames, bytes. No driver cuts a frame of a usual MTU in it.
pub const ZERO_COPY_CHUNK_BYTES: u32 = 4096;
/// Default number of descriptors of each ring.
pub const DEFAULT_RING_SIZE: u32 = 2048;
/// Bytes of a frame besides its payload: Ethernet header and one VLAN tag.
const FRAME_OVERHEAD_BYTES: u32 = 18;
/// Metadata of frames that a port can use, as the kernel's specification names it (`netdev.yaml`).
const TX_CHECKSUM: &str = "tx-checksum";
const VLAN_TAG: &str = "vlan-tag";
/// Bytes in front of the longest packet on the wire: Ethernet header and two VLAN tags.
const WIRE_HEADER_BYTES: usize = 14 + 2 * 4;
/// Bytes beside the frame that a card may write into its buffer: the FCS, and a timestamp in front (igb, igc).
const CARD_BYTES: usize = 4 + 16;

/// Properties of an interface to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpConfig {
    /// Name of the interface, for messages.
    pub interface: String,
    /// Index of the interface in the network namespace of the calling thread.
    pub ifindex: u32,
    /// MTU of the interface, bytes.
    pub mtu: u32,
    /// Number of queues, from the first on.
    pub queues: u16,
    /// Requested mode.
    pub mode: AfXdpMode,
    /// Number of descriptors of each ring: a power of two from 64 to 32768.
    pub ring_size: u32,
    /// Whether the kernel signals when it must be called.
    pub need_wakeup: bool,
    /// Time for which the kernel polls the interface when it is called, microseconds; 0: it does not poll.
    pub busy_poll_us: u32,
    /// Whether to replace an XDP program of another program.
    pub force: bool,
    /// Whether the driver may support zero copy. A card can then cut frames.
    pub may_zero_copy: bool,
    /// Reason why native mode would not give whole frames, if one is known.
    pub native_defect: Option<&'static str>,
    /// Whether frames longer than a buffer may lie in several buffers (Linux 6.6).
    pub multi_buffer: bool,
    /// Whether frames may leave with open checksums, as those of the host's stack do, if the kernel copies them (Linux
    /// 6.11): it fills the checksums in, or the receiver knows that they are open.
    pub leaves_checksums: bool,
    /// Whether the driver can be asked for VLAN tags beside received frames. They are put back into the frames in every
    /// mode but generic (Linux 6.8).
    pub has_vlan_tags: bool,
}

impl XdpConfig {
    /// Number of buffers that each queue needs: one half for receiving, one half for sending.
    #[must_use]
    pub fn buffers_per_queue(&self) -> usize {
        2 * self.ring_size as usize
    }

    /// Whether no card can cut a frame of the interface's MTU in the buffers of `umem`. Drivers could pass the pieces
    /// of a cut frame on as frames: igb and igc do not check whether a frame ends in its first buffer.
    fn is_uncut(&self, umem: &Umem) -> bool {
        self.mtu <= most_uncut_mtu(umem.chunk_bytes)
    }

    /// Maximum length of a frame that the interface sends, bytes without FCS.
    fn max_frame_bytes(&self) -> usize {
        self.mtu.saturating_add(FRAME_OVERHEAD_BYTES).min(u32::from(u16::MAX)) as usize
    }
}

/// An interface opened through AF_XDP.
#[derive(Debug)]
pub struct XdpDevice {
    /// Queues, in the interface's order.
    pub queues: Vec<XdpQueue>,
    /// Mechanism in use, as text for users, with the reason why no better one is.
    pub mode: String,
    /// Refused attempts, for the log.
    pub notes: Vec<String>,
}

/// State that all queues of an interface share. The end of the last queue detaches the program.
#[derive(Debug)]
struct Attachment {
    interface: String,
    ring_size: u32,
    zero_copy: bool,
    multi_buffer: bool,
    busy_poll: bool,
    leaves_checksums: bool,
    puts_tags_back: bool,
    mtu: usize,
    max_frame_bytes: usize,
    longest_rx_bytes: usize,
    /// Length of a piece that fills a card's buffer, if the driver does not mark pieces; otherwise a length that does
    /// not occur.
    full_piece_bytes: usize,
    link: LinkWatch,
    _steering: Option<Steering>,
}

/// A way to open an interface.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    attach: Attach,
    zero_copy: bool,
    multi_buffer: bool,
}

impl Attempt {
    fn name(self) -> &'static str {
        match (self.attach, self.zero_copy) {
            (Attach::Native, true) => "zero-copy",
            (Attach::Native, false) => "copy, native",
            (Attach::Generic, _) => "copy, generic",
        }
    }

    /// The attempts that `mode` allows, best first. Frames in several buffers matter more than the mode: without them,
    /// long frames are lost. In generic mode frames can be longer than any on the wire: the program runs after the
    /// kernel has joined them. In zero-copy mode a card can cut frames (`may_cut`) that would fit: a driver that
    /// supports frames in several buffers then marks the pieces.
    fn all(mode: AfXdpMode, long_frames: bool, may_cut: bool, multi_buffer: bool) -> Vec<Self> {
        let zero_copy = (Attach::Native, true);
        let native = (Attach::Native, false);
        let generic = (Attach::Generic, false);
        let modes = match mode {
            AfXdpMode::Auto => vec![zero_copy, native, generic],
            AfXdpMode::ZeroCopy => vec![zero_copy],
            AfXdpMode::Native => vec![native],
            AfXdpMode::Generic => vec![generic],
        };
        let with = |multi_buffer| {
            let attempt =
                move |&(attach, zero_copy): &(Attach, bool)| Self { attach, zero_copy, multi_buffer };
            modes.iter().map(attempt).collect::<Vec<_>>()
        };
        if multi_buffer && long_frames {
            return [with(true), with(false)].concat();
        }
        let ways = |attempt: Self| match attempt.attach == Attach::Generic || (attempt.zero_copy && may_cut) {
            true if multi_buffer => vec![Self { multi_buffer: true, ..attempt }, attempt],
            _ => vec![attempt],
        };
        with(false).into_iter().flat_map(ways).collect()
    }
}

/// The XDP program on an interface, and its map.
#[derive(Debug)]
struct Steering {
    attach: Attach,
    multi_buffer: bool,
    puts_tags_back: bool,
    map: XskMap,
    /// The link that holds the attachment: without it the program is detached.
    _link: BpfLink,
}

impl Steering {
    fn attach(config: &XdpConfig, attempt: Attempt) -> Result<Self, XdpError> {
        let failed = |source| XdpError::Program { interface: config.interface.clone(), source };
        let map = XskMap::create(u32::from(config.queues)).map_err(failed)?;
        let Attempt { attach, multi_buffer, .. } = attempt;
        let tags_of = (config.has_vlan_tags && attach == Attach::Native).then_some(config.ifindex);
        let program = XdpProgram::to_sockets(&map, multi_buffer, tags_of).map_err(failed)?;
        let link = BpfLink::attach_xdp(&program, config.ifindex, attach).map_err(failed)?;
        Ok(Self { attach, multi_buffer, puts_tags_back: program.puts_tags_back(), map, _link: link })
    }

    fn serves(&self, attempt: Attempt) -> bool {
        self.attach == attempt.attach && self.multi_buffer == attempt.multi_buffer
    }
}

impl XdpDevice {
    /// Opens an interface of the calling thread's network namespace. `buffers` has a list of
    /// [`XdpConfig::buffers_per_queue`] free buffers of `region` for each queue. They belong to the device until its
    /// queues are dropped.
    ///
    /// # Errors
    /// [`XdpError`]; if several modes were tried, the error of the last one.
    pub fn open(config: &XdpConfig, region: &Arc<Region>, buffers: Vec<Vec<u32>>) -> Result<Self, XdpError> {
        let umem = Umem::new(region)?;
        check(config, &umem, &buffers)?;
        let long_frames = config.max_frame_bytes() > umem.capacity();
        let mut notes = Vec::new();
        if config.force {
            let failed = |source| XdpError::Program { interface: config.interface.clone(), source };
            detach_xdp(config.ifindex).map_err(failed)?;
        }
        let may_cut = config.may_zero_copy && !config.is_uncut(&umem);
        let attempts = Attempt::all(config.mode, long_frames, may_cut, config.multi_buffer);
        let mut refused: Vec<String> = Vec::new();
        let mut steering = None;
        for (number, attempt) in attempts.iter().enumerate() {
            let opened = match (attempt.name(), config.native_defect) {
                ("zero-copy", _) if !attempt.multi_buffer && may_cut => Err(may_be_cut(config, &umem)),
                ("copy, native", Some(reason)) => {
                    Err(XdpError::NativeDefect { interface: config.interface.clone(), reason })
                }
                _ => open_as(config, &umem, *attempt, &buffers, &mut steering),
            };
            match opened {
                Ok(queues) => {
                    let reasons =
                        if refused.is_empty() { String::new() } else { format!(" ({})", refused.join("; ")) };
                    if config.max_frame_bytes() > umem.capacity() && !attempt.multi_buffer {
                        notes.push(format!(
                            "frames longer than {} bytes are lost: choose buf-size=4096 or an MTU up to {}",
                            umem.capacity(),
                            umem.capacity() - FRAME_OVERHEAD_BYTES as usize,
                        ));
                    }
                    if attempt.attach == Attach::Generic && !attempt.multi_buffer {
                        notes.push(format!(
                            "frames that the kernel or a virtual peer joined are lost: `ethtool -K {} gro off`, at a veth's peer `tso off gso off`",
                            config.interface
                        ));
                    }
                    let metadata = queues.first().map(XdpQueue::metadata).unwrap_or_default();
                    if config.has_vlan_tags && !metadata.contains(&VLAN_TAG) {
                        notes.push(format!(
                            "VLAN tags that lie beside frames are lost: `ethtool -K {} rx-vlan-hw-parse off`, at a veth's peer \
                             `tx-vlan-hw-insert off`",
                            config.interface
                        ));
                    }
                    let with = if metadata.is_empty() { "" } else { "; with " };
                    let mode = format!("AF_XDP {}{reasons}{with}{}", attempt.name(), metadata.join(", "));
                    return Ok(Self { queues, mode, notes });
                }
                Err(error) => {
                    let Some(reason) = error.refusal().filter(|_| number + 1 < attempts.len()) else {
                        return Err(error);
                    };
                    let several = if attempt.multi_buffer { " with several buffers per frame" } else { "" };
                    refused.push(format!("{}{several}: {reason}", attempt.name()));
                    notes.push(format!("{} is not available{several}: {error}", attempt.name()));
                }
            }
        }
        Err(XdpError::NoQueues { interface: config.interface.clone() })
    }
}

/// Maximum MTU at which a card cuts no frame in chunks of this size.
fn most_uncut_mtu(chunk_bytes: u32) -> u32 {
    uncut_bytes(chunk_bytes).saturating_sub(WIRE_HEADER_BYTES + CARD_BYTES) as u32
}

/// Error of an interface that is not opened in zero-copy mode without frames in several buffers, because a card could
/// cut frames.
fn may_be_cut(config: &XdpConfig, umem: &Umem) -> XdpError {
    let best = most_uncut_mtu(ZERO_COPY_CHUNK_BYTES);
    let remedy = match config.mtu <= best {
        true => {
            format!("choose buf-size={ZERO_COPY_CHUNK_BYTES} (where a region is shared, for its first port)")
        }
        false => format!("choose an MTU up to {best} with buf-size={ZERO_COPY_CHUNK_BYTES}, or mode=native"),
    };
    XdpError::MayCut {
        interface: config.interface.clone(),
        buffer_bytes: umem.chunk_bytes,
        whole_bytes: uncut_bytes(umem.chunk_bytes) - CARD_BYTES,
        remedy,
    }
}

fn check(config: &XdpConfig, umem: &Umem, buffers: &[Vec<u32>]) -> Result<(), XdpError> {
    if !config.ring_size.is_power_of_two() || !(64..=32768).contains(&config.ring_size) {
        return Err(XdpError::RingSize(config.ring_size));
    }
    if config.queues == 0 {
        return Err(XdpError::NoQueues { interface: config.interface.clone() });
    }
    let needed = config.buffers_per_queue();
    for queue in 0..config.queues {
        let list = buffers.get(usize::from(queue)).map_or(&[][..], Vec::as_slice);
        let given = list.iter().filter(|&&buffer| umem.has(buffer)).count();
        if given != needed || list.len() != needed {
            return Err(XdpError::Buffers { interface: config.interface.clone(), queue, given, needed });
        }
    }
    Ok(())
}

/// Opens all queues by one attempt. The program of the attempt before, in `steering`, stays if it serves this one, too.
fn open_as(
    config: &XdpConfig,
    umem: &Umem,
    attempt: Attempt,
    buffers: &[Vec<u32>],
    steering: &mut Option<Steering>,
) -> Result<Vec<XdpQueue>, XdpError> {
    let failed = |source| XdpError::Program { interface: config.interface.clone(), source };
    let current = match steering.take().filter(|steering| steering.serves(attempt)) {
        Some(current) => current,
        None => Steering::attach(config, attempt)?,
    };
    let Steering { map, puts_tags_back, .. } = &*steering.insert(current);
    let puts_tags_back = *puts_tags_back;
    let sockets = (0..config.queues).map(|queue| XdpSocket::open(umem, queue, config, attempt));
    let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
    for (queue, socket) in (0..).zip(&sockets) {
        map.set(queue, socket.as_fd()).map_err(failed)?;
    }
    let longest_rx_bytes = match (attempt.multi_buffer, attempt.attach) {
        (false, _) => umem.capacity(),
        (true, Attach::Native) => config.max_frame_bytes(),
        // The program receives frames after the kernel has merged them (GRO).
        (true, Attach::Generic) => usize::from(u16::MAX),
    };
    let attachment = Arc::new(Attachment {
        interface: config.interface.clone(),
        ring_size: config.ring_size,
        zero_copy: attempt.zero_copy,
        multi_buffer: attempt.multi_buffer,
        busy_poll: config.busy_poll_us > 0,
        leaves_checksums: sockets.iter().all(|socket| socket.takes_requests),
        puts_tags_back,
        mtu: config.mtu as usize,
        max_frame_bytes: config.max_frame_bytes(),
        longest_rx_bytes,
        full_piece_bytes: match attempt.zero_copy && !attempt.multi_buffer {
            true => uncut_bytes(umem.chunk_bytes),
            false => usize::MAX,
        },
        link: LinkWatch::open(config.ifindex)?,
        _steering: steering.take(),
    });
    let queues = (0..).zip(sockets).zip(buffers).map(|((number, socket), list)| {
        let (rx, tx) = list.split_at(config.ring_size as usize);
        XdpQueue::new(socket, umem.clone(), Arc::clone(&attachment), rx, tx.to_vec())
            .map_err(|errno| XdpError::socket(&config.interface, number, "watching the socket", errno))
    });
    queues.collect()
}
