//! Completion of frames that their sender left unfinished: checksums that a card would have filled in, and long frames
//! that a card would have cut. Network stacks leave these tasks to the card, also to a virtual one. So programs and
//! guests that speak virtio send such frames, and the kernel passes them on from virtual interfaces and merges frames
//! that a real card received (GRO). `struct virtio_net_hdr` (linux/virtio_net.h) in front of a frame describes its open
//! tasks.

use std::ops::Range;

use ringroad_wire::checksum::{fold, not_zero, sum_bytes};
use ringroad_wire::headers::{
    ETHERNET_BYTES, EthernetHeader, IPV4_BYTES, IPV6_BYTES, Ip, IpFragment, IpVersion, TAG_BYTES, Tags,
};
use ringroad_wire::ip_protocol;

/// Bytes of `struct virtio_net_hdr`. If receive buffers can be merged, two more bytes follow: the number of buffers
/// that the frame takes.
pub const VIRTIO_HEADER_BYTES: usize = 10;
/// Bytes of the longer form of the header, which ends with the number of buffers that the frame takes.
pub const LONG_VIRTIO_HEADER_BYTES: usize = VIRTIO_HEADER_BYTES + 2;
/// Longest frame that can be unfinished: an IPv6 packet of the greatest length behind Ethernet with two VLAN tags.
pub const LONGEST_UNFINISHED_BYTES: usize = ETHERNET_BYTES + 2 * TAG_BYTES + IPV6_BYTES + u16::MAX as usize;
/// Maximum number of segments of one frame: enough for 64 KiB at the smallest MSS that every IPv4 host must accept. A
/// sender that requests segments of a few bytes would delay other senders while its segments are made.
pub const MAX_SEGMENTS: usize = 256;
/// Number of leading bytes in which [`Unfinished::detect`] searches: Ethernet with two VLAN tags, IPv4 with options,
/// TCP up to its checksum.
pub const DETECTION_BYTES: usize = ETHERNET_BYTES + 2 * TAG_BYTES + 60 + 20;
/// Room for the headers of a segment: Ethernet with two VLAN tags, IPv6 or IPv4 with options, TCP with options.
pub const HEADER_ROOM_BYTES: usize = 192;

/// Number of leading bytes that [`is_plainly_finished`] reads: Ethernet, IPv4, TCP up to its checksum.
pub const PLAIN_HEADER_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + 18;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP_IPV4: u8 = 1;
const GSO_TCP_IPV6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Bit beside the type, set if the sender uses explicit congestion notification.
const GSO_ECN: u8 = 0x80;

const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
/// Offset of the checksum in an SCTP header. Among the protocols that cards know, only SCTP has a CRC-32C checksum (RFC
/// 9260, appendix A).
const SCTP_CHECKSUM_OFFSET: usize = 8;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// Open tasks of a frame: `struct virtio_net_hdr`, as its sender wrote it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfinished {
    flags: u8,
    gso_type: u8,
    /// Offset of the payload, as the sender estimates it: it is not reliable.
    header_bytes: u16,
    /// Payload bytes of each segment.
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Unfinished {
    /// Open tasks of a frame that comes without such a header, has `frame_bytes` bytes, and begins with `start`; `None`
    /// if the frame is finished. A checksum left to a card is recognizable: its field holds the sum of the pseudo
    /// header, to which a card adds. A finished frame can have the same number there by chance; finishing does not
    /// change it then. If a TCP packet with such a checksum is longer than `mtu`, it must be cut, too. Only its sender
    /// knew the segments' lengths, so the longest possible ones are taken.
    ///
    /// Headers in a tunnel are not examined.
    #[must_use]
    pub fn detect(start: &[u8], frame_bytes: usize, mtu: usize) -> Option<Self> {
        let ip = Ip::read(start, &EthernetHeader::read(start, Tags::Standard)?)?;
        if ip.fragment != IpFragment::No || ip.has_extensions() || ip.end > frame_bytes {
            return None;
        }
        let (protocol, transport) = (ip.protocol, ip.payload_at);
        if !matches!(protocol, ip_protocol::TCP | ip_protocol::UDP) {
            return None;
        }
        let checksum_offset = ip_protocol::checksum_offset(protocol)?;
        // A short frame is padded: the network header gives the packet's end.
        let transport_bytes = ip.end.checked_sub(transport)?;
        let field: [u8; 2] =
            start.get(transport + checksum_offset..transport + checksum_offset + 2)?.try_into().ok()?;
        if u16::from_le_bytes(field) != fold(ip.pseudo_header_sum(start, transport_bytes)?) {
            return None;
        }
        let mut unfinished = Self {
            flags: NEEDS_CHECKSUM,
            checksum_start: transport as u16,
            checksum_offset: checksum_offset as u16,
            ..Self::default()
        };
        if ip.end - ip.at > mtu && protocol == ip_protocol::TCP {
            let header_bytes = transport - ip.at + usize::from(*start.get(transport + 12)? >> 4) * 4;
            unfinished.gso_type = match ip.version {
                IpVersion::Four => GSO_TCP_IPV4,
                IpVersion::Six => GSO_TCP_IPV6,
            };
            unfinished.gso_size = u16::try_from(mtu.checked_sub(header_bytes)?).ok()?;
        }
        Some(unfinished)
    }

    /// Reads a header whose fields are in the machine's byte order. A truncated header counts as a header without open
    /// tasks.
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

    /// Whether a header that begins with these bytes has no open task.
    #[inline]
    #[must_use]
    pub fn is_nothing_behind(flags_and_gso_type: [u8; 2]) -> bool {
        // Mask for the check of `is_nothing` in one comparison.
        const SOMETHING: u16 = u16::from_ne_bytes([NEEDS_CHECKSUM, u8::MAX]);
        u16::from_ne_bytes(flags_and_gso_type) & SOMETHING == 0
    }

    /// Header from which [`Unfinished::from_header`] made this value.
    #[must_use]
    pub fn to_header(self) -> [u8; VIRTIO_HEADER_BYTES] {
        let [header0, header1] = self.header_bytes.to_ne_bytes();
        let [size0, size1] = self.gso_size.to_ne_bytes();
        let [start0, start1] = self.checksum_start.to_ne_bytes();
        let [offset0, offset1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.gso_type, header0, header1, size0, size1, start0, start1, offset0, offset1]
    }

    /// Longer form of the header, for a frame that takes `buffers` buffers with the header.
    #[inline]
    #[must_use]
    pub fn to_long_header(self, buffers: u16) -> [u8; LONG_VIRTIO_HEADER_BYTES] {
        let mut header = [0; LONG_VIRTIO_HEADER_BYTES];
        let (said, count) = header.split_at_mut(VIRTIO_HEADER_BYTES);
        said.copy_from_slice(&self.to_header());
        count.copy_from_slice(&buffers.to_ne_bytes());
        header
    }

    /// Tasks after the frame grew by `bytes` before the header that the checksum belongs to; it shrank if `bytes` is
    /// negative. `None` if the header's offset would be out of range.
    #[must_use]
    pub fn shifted(self, bytes: isize) -> Option<Self> {
        if self.is_nothing() {
            return Some(self);
        }
        let checksum_start = usize::from(self.checksum_start).checked_add_signed(bytes)?;
        Some(Self { checksum_start: checksum_start.try_into().ok()?, ..self })
    }

    /// Whether the frame is finished: it has no open task.
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

    /// Whether the only open task is an Internet checksum.
    #[inline]
    #[must_use]
    pub fn is_internet_checksum(self) -> bool {
        self.has_open_checksum()
            && self.gso_type == 0
            && usize::from(self.checksum_offset) != SCTP_CHECKSUM_OFFSET
    }

    /// Offset of the first byte that the open checksum covers, and of the checksum from there.
    #[inline]
    #[must_use]
    pub fn checksum_position(self) -> (u16, u16) {
        (self.checksum_start, self.checksum_offset)
    }

    /// Whether the frame's checksum is open.
    #[inline]
    #[must_use]
    pub fn has_open_checksum(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    /// Whether the tasks are possible for a frame of `frame_bytes` bytes, as far as this can be checked without reading
    /// the frame.
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

    /// Fills in the checksum. Its field already holds the sum of the pseudo header, or zeros for SCTP.
    pub fn complete_checksum(self, frame: &mut [u8]) {
        if !self.has_open_checksum() {
            return;
        }
        let Some(covered) = frame.get_mut(usize::from(self.checksum_start)..) else { return };
        let offset = usize::from(self.checksum_offset);
        if offset == SCTP_CHECKSUM_OFFSET {
            let checksum = crc32c::crc32c(covered).to_le_bytes();
            return put(covered, offset, &checksum);
        }
        // The protocol is not known, and UDP must not have a checksum of 0.
        let checksum = not_zero(!fold(sum_bytes(covered, 0)));
        put(covered, offset, &checksum.to_le_bytes());
    }
}

/// Whether a quick check shows that [`Unfinished::detect`] finds no task in a frame that begins with `start`. The check
/// succeeds for most frames: IPv4 without options, in no VLAN, with a checksum that is not the sum of the pseudo
/// header.
#[inline]
#[must_use]
pub fn is_plainly_finished(start: &[u8; PLAIN_HEADER_BYTES]) -> bool {
    let half = |at: usize| u16::from_ne_bytes([start[at], start[at + 1]]);
    let whole = |at: usize| u32::from_ne_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    if whole(12) & u32::from_ne_bytes([0xff, 0xff, 0xf, 0]) != u32::from_ne_bytes([8, 0, 5, 0]) {
        return false;
    }
    // Terms of the pseudo header, except the addresses and the total length, minus the checksum field. In sums of
    // 16-bit words, 65535 counts as 0, so the addition of a complement is a subtraction.
    let less = |protocol: u8, checksum: u16| {
        let without_header = u64::from(!(IPV4_BYTES as u16).to_be());
        without_header + u64::from(u16::from(protocol).to_be()) + 0xffff - u64::from(checksum)
    };
    let rest = match start[23] {
        ip_protocol::TCP => less(ip_protocol::TCP, half(34 + 16)),
        ip_protocol::UDP => less(ip_protocol::UDP, half(34 + 6)),
        _ => return true,
    };
    let pseudo = u64::from(half(16)) + u64::from(whole(26)) + u64::from(whole(30));
    // Two numbers have the same sum if their difference is a multiple of 65535: this check needs no loop that folds.
    !(pseudo + rest).is_multiple_of(0xffff)
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
    ip: Ip,
    /// Offset of the payload in the frame.
    payload: usize,
    is_tcp: bool,
    /// Task that is left open in each segment.
    left: Unfinished,
    segment_bytes: usize,
    frame_bytes: usize,
    /// Offset of the next segment's payload in the frame.
    next: usize,
    segments: u16,
}

impl Cut {
    /// Plan for cutting `frame`; `None` if the frame need not be cut, or is of a kind that cannot be cut (a tunnel's).
    #[must_use]
    pub fn plan(frame: &[u8], unfinished: Unfinished) -> Option<Self> {
        let transport = usize::from(unfinished.checksum_start);
        if !unfinished.is_long() || unfinished.gso_size == 0 || !unfinished.has_open_checksum() {
            return None;
        }
        let ip = Ip::read(frame, &EthernetHeader::read(frame, Tags::Standard)?)?;
        // The checksum must belong to the header directly after the outermost network header.
        if ip.has_extensions() || ip.payload_at != transport {
            return None;
        }
        let (is_tcp, transport_bytes, least) = match (unfinished.gso_type & !GSO_ECN, ip.protocol) {
            (GSO_TCP_IPV4 | GSO_TCP_IPV6, ip_protocol::TCP) => {
                (true, usize::from(*frame.get(transport + 12)? >> 4) * 4, TCP_HEADER_BYTES)
            }
            (GSO_UDP, ip_protocol::UDP) => (false, UDP_HEADER_BYTES, UDP_HEADER_BYTES),
            _ => return None,
        };
        let payload = transport + transport_bytes;
        let fits = transport_bytes >= least && payload <= HEADER_ROOM_BYTES && payload < frame.len();
        fits.then_some(Self {
            ip,
            payload,
            is_tcp,
            left: Unfinished::default(),
            segment_bytes: usize::from(unfinished.gso_size),
            frame_bytes: frame.len(),
            next: payload,
            segments: 0,
        })
    }

    /// Leaves the checksums of the segments open. Returns the task that is then open in each.
    pub fn leave_checksums(&mut self) -> Unfinished {
        self.left = Unfinished {
            flags: NEEDS_CHECKSUM,
            checksum_start: self.ip.payload_at as u16,
            checksum_offset: ip_protocol::checksum_offset(self.ip.protocol).unwrap_or_default() as u16,
            ..Unfinished::default()
        };
        self.left
    }

    /// Whether all segments are made.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next >= self.frame_bytes
    }

    /// Writes the headers of the next segment to the start of `header`. Returns their length, and the range of the
    /// segment's payload in `frame`; `None` after the last segment.
    pub fn next_segment(&mut self, frame: &[u8], header: &mut [u8]) -> Option<(usize, Range<usize>)> {
        if self.is_done() {
            return None;
        }
        let (network, transport) = (self.ip.at, self.ip.payload_at);
        let range = self.next..(self.next + self.segment_bytes).min(self.frame_bytes);
        let data = frame.get(range.clone())?;
        let header = header.get_mut(..self.payload)?;
        header.copy_from_slice(frame.get(..self.payload)?);
        let transport_bytes = self.payload - transport + data.len();

        match self.ip.version {
            IpVersion::Six => put(header, network + 4, &(transport_bytes as u16).to_be_bytes()),
            IpVersion::Four => {
                put(header, network + 2, &((transport - network + transport_bytes) as u16).to_be_bytes());
                let identification = word(header, network + 4)?.wrapping_add(self.segments);
                put(header, network + 4, &identification.to_be_bytes());
                put(header, network + 10, &[0; 2]);
                let checksum = !fold(sum_bytes(header.get(network..transport)?, 0));
                put(header, network + 10, &checksum.to_le_bytes());
            }
        }
        if self.is_tcp {
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
        } else {
            put(header, transport + 4, &(transport_bytes as u16).to_be_bytes());
        }
        let checksum_at = transport + ip_protocol::checksum_offset(self.ip.protocol)?;
        put(header, checksum_at, &[0; 2]);
        let pseudo = self.ip.pseudo_header_sum(header, transport_bytes)?;
        let sum = || Some(pseudo + sum_bytes(header.get(transport..)?, 0) + sum_bytes(data, 0));
        let checksum = match self.left.has_open_checksum() {
            true => fold(pseudo),
            false if self.is_tcp => !fold(sum()?),
            false => not_zero(!fold(sum()?)),
        };
        put(header, checksum_at, &checksum.to_le_bytes());

        self.next = range.end;
        self.segments = self.segments.wrapping_add(1);
        Some((self.payload, range))
    }
}

#[cfg(test)]
mod tests;
