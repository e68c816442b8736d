//! Decides the destination of each frame of a batch.
//!
//! A batch comes from one port. All its sources are learned first, then all its destinations are decided: a frame to an
//! address that the same batch shows to be on the source port is dropped, in whatever order the frames are.
//!
//! As in VALE, the addresses that IEEE 802.1Q reserves for bridges (01:80:c2:00:00:0x) are flooded like other
//! multicast.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::forwarding_plane::Outcome;
use ringroad_port::port_index::{BROADCAST_INDEX, PortIndex};
use ringroad_wire::mac::Mac;

use crate::mac_table::{Entry, MacTable, Tick};
use crate::port_set::PortSet;

/// Properties of a frame that the switch needs: 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameHeader {
    /// The destination address.
    pub destination: Mac,
    /// The source address.
    pub source: Mac,
    /// Flags of the frame's first slot, as netmap defines them for a transmit slot (API 14): [`Self::NO_LEARN`]. The
    /// high 8 bits, if they are not zero, are the port to which the frame is forced; 254 means all other ports. So a
    /// frame cannot be forced to port 0. Other bits are ignored.
    pub flags: u16,
}

impl FrameHeader {
    /// Flag `NS_NO_LEARN`: the switch shall not learn this frame's source.
    pub const NO_LEARN: u16 = 0x0008;
    /// Shift of the forced destination in the flags (`NS_PORT_SHIFT`).
    pub const FORCED_PORT_SHIFT: u32 = 8;

    /// Header from two native-endian loads of eight bytes each, at byte 0 and at byte 6 of the frame.
    #[inline]
    #[must_use]
    pub const fn from_words(bytes_0_to_8: u64, bytes_6_to_14: u64, flags: u16) -> Self {
        Self { destination: Mac::from_word(bytes_0_to_8), source: Mac::from_word(bytes_6_to_14), flags }
    }

    /// Header from the 14 bytes of an Ethernet header.
    #[inline]
    #[must_use]
    pub const fn from_bytes(header: &[u8; 14], flags: u16) -> Self {
        let &[a, b, c, d, e, f, g, h, i, j, k, l, _, _] = header;
        Self {
            destination: Mac::from_octets([a, b, c, d, e, f]),
            source: Mac::from_octets([g, h, i, j, k, l]),
            flags,
        }
    }

    /// Port to which the frame is forced; [`BROADCAST_INDEX`] for all other ports.
    #[inline]
    #[must_use]
    pub const fn forced_port(&self) -> Option<PortIndex> {
        match (self.flags >> Self::FORCED_PORT_SHIFT) as u8 {
            0 => None,
            index => Some(PortIndex(index)),
        }
    }
}

/// Learns the sources of `frames`, which came from the port `from`. Learns nothing from an index that cannot be a port.
///
/// The function does not remember earlier sources of a port, because this memory could be wrong. VALE keeps the last
/// source of a port, so an address that went to another port and came back stays on the other port. A memory that is
/// checked against the table each time would save nothing, because learning only reads in steady state. Within a batch,
/// a run of one source is learned once.
pub(crate) fn learn(frames: &[FrameHeader], from: PortIndex, table: &MacTable, now: Tick) {
    if !from.is_port() {
        return;
    }
    let mut last = Entry::EMPTY;
    for frame in frames {
        if frame.source.is_multicast() || frame.flags & FrameHeader::NO_LEARN != 0 {
            continue;
        }
        let entry = Entry::new(frame.source, from, now);
        if entry != last {
            last = entry;
            table.learn_entry(0, frame.source, entry, now);
        }
    }
}

/// Learns the sources of `frames`, all of which come from the port `from`, and writes an outcome for each frame.
///
/// A source is learned unless it is multicast or the frame has [`FrameHeader::NO_LEARN`]. A frame goes to the port to
/// which it is forced, else to the port of its learned destination. If the destination is multicast or was not learned,
/// the frame goes to all other ports. A frame to its own port, or to a port not in `ports`, is dropped. If one slice is
/// longer than the other, its excess is ignored: not learned from, not written. Returns whether a frame is flooded.
pub fn classify(
    frames: &[FrameHeader],
    from: PortIndex,
    table: &MacTable,
    ports: &PortSet,
    now: Tick,
    outcomes: &mut [Outcome],
) -> bool {
    let frames = frames.get(..outcomes.len()).unwrap_or(frames);
    learn(frames, from, table, now);
    decide(frames, from, table, ports, now, outcomes)
}

/// Decides as [`classify()`] does, without learning.
pub(crate) fn decide(
    frames: &[FrameHeader],
    from: PortIndex,
    table: &MacTable,
    ports: &PortSet,
    now: Tick,
    outcomes: &mut [Outcome],
) -> bool {
    let to_port = |port: PortIndex| {
        if port == from {
            Outcome::Drop(DropCause::ToSelf)
        } else if ports.contains(port) {
            Outcome::Port(port)
        } else {
            Outcome::Drop(DropCause::PortGone)
        }
    };
    let mut floods = false;
    // Last destination looked up, and its outcome; the initial pair is correct for any switch.
    let (mut destination, mut outcome) = (Mac::BROADCAST, Outcome::Flood);
    for (frame, result) in frames.iter().zip(outcomes) {
        *result = match frame.forced_port() {
            None if frame.destination == destination => outcome,
            None => {
                destination = frame.destination;
                outcome = table.lookup(destination, now).map_or(Outcome::Flood, to_port);
                outcome
            }
            Some(BROADCAST_INDEX) => Outcome::Flood,
            Some(port) => to_port(port),
        };
        floods |= *result == Outcome::Flood;
    }
    floods
}

#[cfg(test)]
mod tests;
