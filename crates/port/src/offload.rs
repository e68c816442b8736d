//! Frames that their sender left unfinished, and how they are finished: checksums that a card would have filled in, and
//! long frames that a card would have cut. Stacks leave that to the card, be it a virtual one: so programs and guests
//! that speak virtio send such frames, and the kernel hands them on from virtual interfaces and merges what a real card
//! received (GRO). What is left to do is described by `struct virtio_net_hdr` (linux/virtio_net.h) in front of the
//! frame.

use std::ops::Range;

/// Bytes of `struct virtio_net_hdr`. Where receive buffers can be merged, two more follow with the number of buffers
/// that the frame takes.
pub const VIRTIO_HEADER_BYTES: usize = 10;
/// Bytes of its longer form, which ends with the number of buffers that the frame takes.
pub const LONG_VIRTIO_HEADER_BYTES: usize = VIRTIO_HEADER_BYTES + 2;
/// Longest frame that can be unfinished: an IPv6 packet of the greatest length behind Ethernet with two VLAN tags.
pub const LONGEST_UNFINISHED_BYTES: usize = 14 + 2 * 4 + IPV6_HEADER_BYTES + u16::MAX as usize;
/// Most segments of one frame: 64 KiB at the least MSS that every IPv4 host must take, and more. A sender that requests
/// segments of a few bytes would make others wait while they are made.
pub const MAX_SEGMENTS: usize = 256;
/// Bytes of a frame's beginning in which [`Unfinished::detect`] finds what it looks for: Ethernet with two VLAN tags,
/// IPv4 with options, TCP up to its checksum.
pub const DETECTION_BYTES: usize = 14 + 2 * 4 + 60 + 20;
/// Room for the headers of a segment: Ethernet with two VLAN tags, IPv6 or IPv4 with options, TCP with options.
pub const HEADER_ROOM_BYTES: usize = 192;

/// Bytes of a frame's beginning that [`is_plainly_finished`] reads: Ethernet, IPv4, TCP up to its checksum.
pub const PLAIN_HEADER_BYTES: usize = 14 + 20 + 18;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP_IPV4: u8 = 1;
const GSO_TCP_IPV6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set beside the type where the sender uses explicit congestion notification.
const GSO_ECN: u8 = 0x80;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
const IPV4_HEADER_BYTES: usize = 20;
/// More fragments, or not the first: neither has a checksum of its own.
const IPV4_FRAGMENT: u16 = 0x3fff;
const IPV6_HEADER_BYTES: usize = 40;
const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
/// Where SCTP, alone among the protocols that cards know, has its checksum, and the polynomial of that (RFC 9260,
/// CRC-32C).
const SCTP_CHECKSUM_OFFSET: usize = 8;
const CRC32C: u32 = 0x82f6_3b78;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// What is left to do with a frame: `struct virtio_net_hdr`, as its sender wrote it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfinished {
    flags: u8,
    gso_type: u8,
    /// The sender's guess at where the payload begins: it is not reliable.
    header_bytes: u16,
    /// Payload bytes of each segment.
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Unfinished {
    /// What is left to do with a frame that comes without such a header, of `frame_bytes` bytes and beginning with
    /// `start`; `None` if nothing is. A checksum left to a card is recognizable: its field holds the sum of the pseudo
    /// header, which is what a card builds on. A finished frame can have the same number there by chance, and finishing
    /// does not change it then. Such an unfinished TCP packet that is longer than `mtu` must be cut, too: only its
    /// sender knew the lengths, so the longest are taken.
    ///
    /// What lies in a tunnel is not seen.
    #[must_use]
    pub fn detect(start: &[u8], frame_bytes: usize, mtu: usize) -> Option<Self> {
        let mut network = 14;
        let mut ethertype = word(start, 12)?;
        while ETHERTYPE_VLAN.contains(&ethertype) && network <= 18 {
            ethertype = word(start, network + 2)?;
            network += 4;
        }
        let (transport, protocol, addresses, gso_type) = match ethertype {
            ETHERTYPE_IPV4 => {
                let header_bytes = usize::from(*start.get(network)? & 0xf) * 4;
                let is_fragment = word(start, network + 6)? & IPV4_FRAGMENT != 0;
                if header_bytes < IPV4_HEADER_BYTES || is_fragment {
                    return None;
                }
                let protocol = *start.get(network + 9)?;
                (network + header_bytes, protocol, network + 12..network + 20, GSO_TCP_IPV4)
            }
            ETHERTYPE_IPV6 => {
                let protocol = *start.get(network + 6)?;
                (network + IPV6_HEADER_BYTES, protocol, network + 8..network + 40, GSO_TCP_IPV6)
            }
            _ => return None,
        };
        // A short frame is padded: the network header gives the packet's end.
        let packet_end = match ethertype {
            ETHERTYPE_IPV4 => network + usize::from(word(start, network + 2)?),
            _ => network + IPV6_HEADER_BYTES + usize::from(word(start, network + 4)?),
        };
        let transport_bytes = packet_end.checked_sub(transport)?;
        if packet_end > frame_bytes {
            return None;
        }
        let checksum_offset = match protocol {
            PROTOCOL_TCP => 16,
            PROTOCOL_UDP => 6,
            _ => return None,
        };
        let field: [u8; 2] =
            start.get(transport + checksum_offset..transport + checksum_offset + 2)?.try_into().ok()?;
        let pseudo = sum(start.get(addresses)?)
            + u64::from(u16::from(protocol).to_be())
            + u64::from((transport_bytes as u16).to_be());
        if u16::from_ne_bytes(field) != folded(pseudo) {
            return None;
        }
        let mut unfinished = Self {
            flags: NEEDS_CHECKSUM,
            checksum_start: transport as u16,
            checksum_offset: checksum_offset as u16,
            ..Self::default()
        };
        if packet_end - network > mtu && protocol == PROTOCOL_TCP {
            let header_bytes = transport - network + usize::from(*start.get(transport + 12)? >> 4) * 4;
            unfinished.gso_type = gso_type;
            unfinished.gso_size = u16::try_from(mtu.checked_sub(header_bytes)?).ok()?;
        }
        Some(unfinished)
    }

    /// From the header; fields are in the machine's byte order. A truncated header means that nothing is left to do.
    #[must_use]
    pub fn from_header(header: &[u8]) -> Self {
        let &[flags, gso_type, header0, header1, size0, size1, start0, start1, offset0, offset1] = header
        else {
            return Self::default();
        };
        Self {
            flags,
            gso_type,
            header_bytes: u16::from_ne_bytes([header0, header1]),
            gso_size: u16::from_ne_bytes([size0, size1]),
            checksum_start: u16::from_ne_bytes([start0, start1]),
            checksum_offset: u16::from_ne_bytes([offset0, offset1]),
        }
    }

    /// Whether a header that begins with these bytes leaves nothing to do.
    #[inline]
    #[must_use]
    pub fn is_nothing_behind(flags_and_gso_type: [u8; 2]) -> bool {
        // As `is_nothing`, in one comparison.
        const SOMETHING: u16 = u16::from_ne_bytes([NEEDS_CHECKSUM, u8::MAX]);
        u16::from_ne_bytes(flags_and_gso_type) & SOMETHING == 0
    }

    /// The header that [`Unfinished::from_header`] made it of.
    #[must_use]
    pub fn to_header(self) -> [u8; VIRTIO_HEADER_BYTES] {
        let [header0, header1] = self.header_bytes.to_ne_bytes();
        let [size0, size1] = self.gso_size.to_ne_bytes();
        let [start0, start1] = self.checksum_start.to_ne_bytes();
        let [offset0, offset1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.gso_type, header0, header1, size0, size1, start0, start1, offset0, offset1]
    }

    /// The header in its longer form, of a frame that takes `buffers` buffers with it.
    #[inline]
    #[must_use]
    pub fn to_long_header(self, buffers: u16) -> [u8; LONG_VIRTIO_HEADER_BYTES] {
        let mut header = [0; LONG_VIRTIO_HEADER_BYTES];
        let (said, count) = header.split_at_mut(VIRTIO_HEADER_BYTES);
        said.copy_from_slice(&self.to_header());
        count.copy_from_slice(&buffers.to_ne_bytes());
        header
    }

    /// The same after the frame grew by `bytes` before the header that the checksum belongs to, or shrank there. `None`
    /// where that header cannot be there any more.
    #[must_use]
    pub fn shifted(self, bytes: isize) -> Option<Self> {
        if self.is_nothing() {
            return Some(self);
        }
        let checksum_start = usize::from(self.checksum_start).checked_add_signed(bytes)?;
        Some(Self { checksum_start: checksum_start.try_into().ok()?, ..self })
    }

    /// Whether the frame is as it should be on a wire.
    #[inline]
    #[must_use]
    pub fn is_nothing(self) -> bool {
        !self.has_open_checksum() && self.gso_type == 0
    }

    /// Whether the frame must be cut into segments.
    #[inline]
    #[must_use]
    pub fn is_long(self) -> bool {
        self.gso_type != 0
    }

    /// Whether a checksum is left to do.
    #[inline]
    #[must_use]
    pub fn has_open_checksum(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    /// Whether this is possible for a frame of `frame_bytes` bytes, as far as can be checked without reading the frame.
    #[must_use]
    pub fn fits(self, frame_bytes: usize) -> bool {
        if self.is_nothing() {
            return true;
        }
        let start = usize::from(self.checksum_start);
        let checksum_end = start + usize::from(self.checksum_offset) + 2;
        if !self.has_open_checksum() || checksum_end > frame_bytes || frame_bytes > LONGEST_UNFINISHED_BYTES {
            return false;
        }
        match self.gso_type & !GSO_ECN {
            0 => self.gso_type == 0,
            GSO_TCP_IPV4 | GSO_TCP_IPV6 | GSO_UDP => {
                (frame_bytes - start).div_ceil(usize::from(self.gso_size).max(1)) <= MAX_SEGMENTS
                    && self.gso_size != 0
            }
            _ => false,
        }
    }

    /// Fills in the checksum. Its field holds the sum of the pseudo header already, or zeros for SCTP.
    pub fn complete_checksum(self, frame: &mut [u8]) {
        if !self.has_open_checksum() {
            return;
        }
        let Some(covered) = frame.get_mut(usize::from(self.checksum_start)..) else { return };
        let offset = usize::from(self.checksum_offset);
        if offset == SCTP_CHECKSUM_OFFSET {
            let checksum = crc32c(covered).to_le_bytes();
            return put(covered, offset, &checksum);
        }
        let checksum = closed(sum(covered));
        put(covered, offset, &checksum);
    }
}

/// Whether [`Unfinished::detect`] finds nothing in a frame that begins with `start`, as far as that is seen at once. Of
/// most frames it is: IPv4 without options, in no VLAN, with a checksum that is not the sum of the pseudo header.
#[inline]
#[must_use]
pub fn is_plainly_finished(start: &[u8; PLAIN_HEADER_BYTES]) -> bool {
    let half = |at: usize| u16::from_ne_bytes([start[at], start[at + 1]]);
    let whole = |at: usize| u32::from_ne_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    if whole(12) & u32::from_ne_bytes([0xff, 0xff, 0xf, 0]) != u32::from_ne_bytes([8, 0, 5, 0]) {
        return false;
    }
    // What the pseudo header has beside addresses and length, less the checksum that closes it. Sums are of 16-bit words,
    // where 65535 counts as nothing: to add the complement is to subtract.
    let less = |protocol: u8, checksum: u16| {
        let without_header = u64::from(!(IPV4_HEADER_BYTES as u16).to_be());
        without_header + u64::from(u16::from(protocol).to_be()) + 0xffff - u64::from(checksum)
    };
    let rest = match start[23] {
        PROTOCOL_TCP => less(PROTOCOL_TCP, half(34 + 16)),
        PROTOCOL_UDP => less(PROTOCOL_UDP, half(34 + 6)),
        _ => return true,
    };
    let pseudo = u64::from(half(16)) + u64::from(whole(26)) + u64::from(whole(30));
    // Two numbers have the same sum if their difference is a multiple of 65535: checked without a loop that folds.
    !(pseudo + rest).is_multiple_of(0xffff)
}

/// Sum of `bytes` as 16-bit words for the Internet checksum (RFC 1071), in the machine's byte order.
fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    let mut sum = 0;
    for word in &mut words {
        let &[a, b, c, d] = word else { continue };
        sum += u64::from(u32::from_ne_bytes([a, b, c, d]));
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(words.remainder()) {
        *to = *from;
    }
    sum + u64::from(u32::from_ne_bytes(last))
}

/// A sum in 16 bits.
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of a sum, never 0, which in UDP would mean "no checksum".
fn closed(sum: u64) -> [u8; 2] {
    let checksum = !folded(sum);
    (if checksum == 0 { 0xffff } else { checksum }).to_ne_bytes()
}

/// SCTP's checksum of `bytes`: bit by bit, since only virtual interfaces leave it open.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { CRC32C } else { 0 })
    })
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + value.len()) {
        field.copy_from_slice(value);
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// A long frame that is being cut into segments.
#[derive(Debug, Clone)]
pub struct Cut {
    network: usize,
    transport: usize,
    /// Where the payload begins.
    payload: usize,
    is_ipv6: bool,
    is_tcp: bool,
    segment_bytes: usize,
    frame_bytes: usize,
    /// Where the next segment's payload begins.
    next: usize,
    segments: u16,
}

impl Cut {
    /// How `frame` is cut; `None` where it needs none or is of a kind that cannot be (a tunnel's).
    #[must_use]
    pub fn plan(frame: &[u8], unfinished: Unfinished) -> Option<Self> {
        let transport = usize::from(unfinished.checksum_start);
        if !unfinished.is_long() || unfinished.gso_size == 0 || !unfinished.has_open_checksum() {
            return None;
        }
        let mut network = 14;
        while ETHERTYPE_VLAN.contains(&word(frame, network - 2)?) {
            network += 4;
        }
        let is_ipv6 = match word(frame, network - 2)? {
            ETHERTYPE_IPV4 => false,
            ETHERTYPE_IPV6 => true,
            _ => return None,
        };
        // The header that the checksum belongs to must be the one right behind the outermost network header.
        let (header_bytes, protocol) = if is_ipv6 {
            (IPV6_HEADER_BYTES, *frame.get(network + 6)?)
        } else {
            (usize::from(*frame.get(network)? & 0xf) * 4, *frame.get(network + 9)?)
        };
        if header_bytes < IPV4_HEADER_BYTES || network + header_bytes != transport {
            return None;
        }
        let (is_tcp, transport_bytes, least) = match (unfinished.gso_type & !GSO_ECN, protocol) {
            (GSO_TCP_IPV4 | GSO_TCP_IPV6, PROTOCOL_TCP) => {
                (true, usize::from(*frame.get(transport + 12)? >> 4) * 4, TCP_HEADER_BYTES)
            }
            (GSO_UDP, PROTOCOL_UDP) => (false, UDP_HEADER_BYTES, UDP_HEADER_BYTES),
            _ => return None,
        };
        let payload = transport + transport_bytes;
        let fits = transport_bytes >= least && payload <= HEADER_ROOM_BYTES && payload < frame.len();
        fits.then_some(Self {
            network,
            transport,
            payload,
            is_ipv6,
            is_tcp,
            segment_bytes: usize::from(unfinished.gso_size),
            frame_bytes: frame.len(),
            next: payload,
            segments: 0,
        })
    }

    /// Whether all segments are made.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next >= self.frame_bytes
    }

    /// Writes the headers of the next segment to the start of `header`. Returns their length, and where in `frame` the
    /// payload lies; `None` when all segments are made.
    pub fn next_segment(&mut self, frame: &[u8], header: &mut [u8]) -> Option<(usize, Range<usize>)> {
        if self.is_done() {
            return None;
        }
        let (network, transport) = (self.network, self.transport);
        let range = self.next..(self.next + self.segment_bytes).min(self.frame_bytes);
        let data = frame.get(range.clone())?;
        let header = header.get_mut(..self.payload)?;
        header.copy_from_slice(frame.get(..self.payload)?);
        let transport_bytes = self.payload - transport + data.len();

        let addresses = if self.is_ipv6 {
            put(header, network + 4, &(transport_bytes as u16).to_be_bytes());
            network + 8..network + 40
        } else {
            put(header, network + 2, &((transport - network + transport_bytes) as u16).to_be_bytes());
            let identification = word(header, network + 4)?.wrapping_add(self.segments);
            put(header, network + 4, &identification.to_be_bytes());
            put(header, network + 10, &[0; 2]);
            let checksum = closed(sum(header.get(network..transport)?));
            put(header, network + 10, &checksum);
            network + 12..network + 20
        };
        let (protocol, checksum_at) = if self.is_tcp {
            let offset = (self.next - self.payload) as u32;
            let sequence: [u8; 4] = header.get(transport + 4..transport + 8)?.try_into().ok()?;
            let sequence = u32::from_be_bytes(sequence).wrapping_add(offset);
            put(header, transport + 4, &sequence.to_be_bytes());
            let flags = header.get_mut(transport + 13)?;
            if range.end < self.frame_bytes {
                *flags &= !TCP_FIN_PSH;
            }
            if self.segments != 0 {
                *flags &= !TCP_CWR;
            }
            (PROTOCOL_TCP, transport + 16)
        } else {
            put(header, transport + 4, &(transport_bytes as u16).to_be_bytes());
            (PROTOCOL_UDP, transport + 6)
        };
        put(header, checksum_at, &[0; 2]);
        let pseudo = sum(header.get(addresses)?)
            + u64::from(u16::from(protocol).to_be())
            + u64::from((transport_bytes as u16).to_be());
        let checksum = closed(pseudo + sum(header.get(transport..)?) + sum(data));
        put(header, checksum_at, &checksum);

        self.next = range.end;
        self.segments = self.segments.wrapping_add(1);
        Some((self.payload, range))
    }
}

#[cfg(test)]
mod tests;
