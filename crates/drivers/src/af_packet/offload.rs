//! Frames that the kernel left unfinished, finished: checksums that a card would have filled in, and long frames that a card
//! would have cut. A virtual interface hands on what the sender's stack made for its card, and the kernel merges what a
//! real card received (GRO); neither fits a switch. The kernel says what is left to do in `struct virtio_net_hdr`
//! (linux/virtio_net.h).

use std::ops::Range;

/// Bytes of `struct virtio_net_hdr`.
pub(super) const VNET_HEADER_BYTES: usize = 10;
/// Room for the headers of a segment: Ethernet with two VLAN tags, IPv6 or IPv4 with options, TCP with options.
pub(super) const HEADER_ROOM_BYTES: usize = 192;

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
const IPV6_HEADER_BYTES: usize = 40;
const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
/// Where SCTP, alone among the protocols that cards know, has its checksum, and the polynomial of that (RFC 9260, CRC-32C).
const SCTP_CHECKSUM_OFFSET: usize = 8;
const CRC32C: u32 = 0x82f6_3b78;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// What is left to do with a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unfinished {
    flags: u8,
    gso_type: u8,
    /// Payload bytes of each segment.
    gso_size: usize,
    checksum_start: usize,
    checksum_offset: usize,
}

impl Unfinished {
    /// From the kernel's header; fields are in the machine's byte order. A header cut short says that nothing is left.
    pub(super) fn from_header(header: &[u8]) -> Self {
        let &[flags, gso_type, _, _, size0, size1, start0, start1, offset0, offset1] = header else {
            return Self::default();
        };
        Self {
            flags,
            gso_type: gso_type & !GSO_ECN,
            gso_size: usize::from(u16::from_ne_bytes([size0, size1])),
            checksum_start: usize::from(u16::from_ne_bytes([start0, start1])),
            checksum_offset: usize::from(u16::from_ne_bytes([offset0, offset1])),
        }
    }

    /// The same after `bytes` were put in before the network header.
    pub(super) fn shifted(self, bytes: usize) -> Self {
        Self { checksum_start: self.checksum_start + bytes, ..self }
    }

    /// Whether the frame is as it should be on a wire.
    #[inline]
    pub(super) fn is_nothing(self) -> bool {
        self.flags & NEEDS_CHECKSUM == 0 && self.gso_type == 0
    }

    /// Fills in the checksum. Its field holds the sum of the pseudo header already, or zeros for SCTP.
    pub(super) fn complete_checksum(self, frame: &mut [u8]) {
        if self.flags & NEEDS_CHECKSUM == 0 {
            return;
        }
        let Some(covered) = frame.get_mut(self.checksum_start..) else { return };
        if self.checksum_offset == SCTP_CHECKSUM_OFFSET {
            let checksum = crc32c(covered).to_le_bytes();
            return put(covered, self.checksum_offset, &checksum);
        }
        let checksum = closed(sum(covered));
        put(covered, self.checksum_offset, &checksum);
    }
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

/// The checksum of a sum, never 0, which in UDP would mean that there is none.
fn closed(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !(sum as u16);
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
pub(super) struct Cut {
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
    pub(super) fn plan(frame: &[u8], unfinished: Unfinished) -> Option<Self> {
        let Unfinished { flags, gso_type, gso_size, checksum_start: transport, .. } = unfinished;
        if gso_type == 0 || gso_size == 0 || flags & NEEDS_CHECKSUM == 0 {
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
        let (is_tcp, transport_bytes, least) = match (gso_type, protocol) {
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
            segment_bytes: gso_size,
            frame_bytes: frame.len(),
            next: payload,
            segments: 0,
        })
    }

    /// Whether all segments are made.
    pub(super) fn is_done(&self) -> bool {
        self.next >= self.frame_bytes
    }

    /// Writes the headers of the next segment to the start of `header`. Returns their length, and where in `frame` the
    /// payload lies; `None` when all segments are made.
    pub(super) fn next_segment(&mut self, frame: &[u8], header: &mut [u8]) -> Option<(usize, Range<usize>)> {
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
mod tests {
    use super::*;

    const PAYLOAD_BYTES: usize = 4000;

    /// A long TCP frame from a stack that leaves checksum and cutting to its card.
    fn long_frame(is_ipv6: bool, tagged: bool) -> (Vec<u8>, Unfinished) {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if tagged {
            frame.extend_from_slice(&[0x81, 0, 0, 7]);
        }
        if is_ipv6 {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, PROTOCOL_TCP, 64]);
            frame.extend(1..33);
        } else {
            frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 0, 0x12, 0xff, 0x40, 0, 64, PROTOCOL_TCP, 0, 0]);
            frame.extend(1..9);
        }
        let transport = frame.len();
        frame.extend_from_slice(&[
            0, 80, 0, 81, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9, 0x60, 0x99, 1, 1, 0, 0, 0, 0,
        ]);
        frame.extend_from_slice(&[1, 1, 1, 1]);
        frame.extend((0..PAYLOAD_BYTES).map(|at| (at * 7) as u8));
        let gso_type = if is_ipv6 { GSO_TCP_IPV6 } else { GSO_TCP_IPV4 };
        let mut header = vec![NEEDS_CHECKSUM, gso_type | GSO_ECN, 0, 0];
        for field in [1448, transport as u16, 16] {
            header.extend_from_slice(&field.to_ne_bytes());
        }
        (frame, Unfinished::from_header(&header))
    }

    #[test]
    fn segments_carry_the_whole_payload_under_headers_that_a_foreign_parser_finds_right() {
        for (is_ipv6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
            let (frame, unfinished) = long_frame(is_ipv6, tagged);
            let mut cut = Cut::plan(&frame, unfinished).unwrap();
            let payload_at = cut.payload;
            let mut header = [0; HEADER_ROOM_BYTES];
            let (mut payload, mut segments) = (Vec::new(), 0);
            while let Some((len, range)) = cut.next_segment(&frame, &mut header) {
                let mut segment = header[..len].to_vec();
                segment.extend_from_slice(&frame[range]);
                let sliced = etherparse::SlicedPacket::from_ethernet(&segment).unwrap();
                let Some(etherparse::TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
                let expected = match sliced.net.unwrap() {
                    etherparse::NetSlice::Ipv4(ip) => {
                        let ip = ip.header();
                        assert_eq!(usize::from(ip.total_len()), segment.len() - cut.network);
                        assert_eq!(ip.identification(), 0x12ffu16.wrapping_add(segments));
                        assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
                        tcp.calc_checksum_ipv4(ip.source(), ip.destination()).unwrap()
                    }
                    etherparse::NetSlice::Ipv6(ip) => {
                        let ip = ip.header();
                        assert_eq!(usize::from(ip.payload_length()), segment.len() - cut.network - 40);
                        tcp.calc_checksum_ipv6(ip.source(), ip.destination()).unwrap()
                    }
                    _ => panic!("no IP"),
                };
                assert_eq!(tcp.checksum(), expected);
                assert_eq!(tcp.sequence_number(), 0xffff_ff00u32.wrapping_add(payload.len() as u32));
                payload.extend_from_slice(tcp.payload());
                segments += 1;
                let last = payload.len() == PAYLOAD_BYTES;
                assert_eq!((tcp.fin(), tcp.psh(), tcp.cwr()), (last, last, segments == 1));
            }
            assert_eq!(segments, 3);
            assert_eq!(payload, frame[payload_at..]);
        }
    }

    #[test]
    fn a_frame_cut_off_anywhere_is_left_alone_or_cut_within_its_bounds() {
        for is_ipv6 in [false, true] {
            let (frame, unfinished) = long_frame(is_ipv6, true);
            for len in 0..frame.len() {
                let mut short = frame[..len].to_vec();
                unfinished.complete_checksum(&mut short);
                if let Some(mut cut) = Cut::plan(&short, unfinished) {
                    let mut header = [0; HEADER_ROOM_BYTES];
                    while let Some((_, range)) = cut.next_segment(&short, &mut header) {
                        assert!(range.end <= len && !range.is_empty());
                    }
                    assert!(cut.is_done());
                }
            }
        }
    }

    #[test]
    fn the_checksum_of_sctp_is_that_of_its_specification() {
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut frame = [b'x'; 40];
        frame[22..26].fill(0);
        let mut expected = frame;
        expected[22..26].copy_from_slice(&crc32c(&frame[14..]).to_le_bytes());
        let header = [NEEDS_CHECKSUM, 0, 0, 0, 0, 0];
        let fields = [14u16, 8].map(u16::to_ne_bytes).concat();
        Unfinished::from_header(&[&header[..], &fields].concat()).complete_checksum(&mut frame);
        assert_eq!(frame, expected);
    }

    proptest::proptest! {
        #[test]
        fn any_frame_under_any_header_is_cut_within_its_bounds_and_without_a_gap(
            is_ipv6: bool,
            tagged: bool,
            changes in proptest::collection::vec((0usize..90, 0u8..=255), 0..6),
            header in proptest::array::uniform10(0u8..=255),
            keep_header: bool,
            len in 0usize..300,
        ) {
            let (mut frame, mut unfinished) = long_frame(is_ipv6, tagged);
            frame.truncate(len);
            for (at, byte) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            if !keep_header {
                unfinished = Unfinished::from_header(&header);
            }
            let mut completed = frame.clone();
            unfinished.complete_checksum(&mut completed);
            if let Some(mut cut) = Cut::plan(&frame, unfinished) {
                let mut next = cut.payload;
                let mut room = [0; HEADER_ROOM_BYTES];
                while let Some((len, range)) = cut.next_segment(&frame, &mut room) {
                    assert!(len <= HEADER_ROOM_BYTES && range.start == next && !range.is_empty());
                    next = range.end;
                }
                assert_eq!(next, frame.len());
            }
        }
    }

    #[test]
    fn a_tunnel_is_not_cut() {
        let (frame, unfinished) = long_frame(false, false);
        assert!(Cut::plan(&frame, unfinished.shifted(36)).is_none());
    }
}
