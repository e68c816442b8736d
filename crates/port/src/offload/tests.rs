//! Tests of the cutting of long frames, of completed checksums, and of invalid headers.

use super::*;

const PAYLOAD_BYTES: usize = 4000;

/// A long TCP frame from a stack that leaves checksum and cutting to its card.
fn long_frame(is_ipv6: bool, tagged: bool) -> (Vec<u8>, Unfinished) {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if tagged {
        frame.extend_from_slice(&[0x81, 0, 0, 7]);
    }
    if is_ipv6 {
        frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, ip_protocol::TCP, 64]);
        frame.extend(1..33);
    } else {
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 0, 0x12, 0xff, 0x40, 0, 64, ip_protocol::TCP, 0, 0]);
        frame.extend(1..9);
    }
    let transport = frame.len();
    frame.extend_from_slice(&[0, 80, 0, 81, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9, 0x60, 0x99, 1, 1, 0, 0, 0, 0]);
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
fn segments_carry_the_whole_payload_and_a_parser_accepts_their_headers() {
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
                    assert_eq!(usize::from(ip.total_len()), segment.len() - cut.ip.at);
                    assert_eq!(ip.identification(), 0x12ffu16.wrapping_add(segments));
                    assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
                    tcp.calc_checksum_ipv4(ip.source(), ip.destination()).unwrap()
                }
                etherparse::NetSlice::Ipv6(ip) => {
                    let ip = ip.header();
                    assert_eq!(usize::from(ip.payload_length()), segment.len() - cut.ip.at - 40);
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

/// The segments of `cut`.
fn segments_of(frame: &[u8], mut cut: Cut) -> Vec<Vec<u8>> {
    let mut header = [0; HEADER_ROOM_BYTES];
    let mut segments = Vec::new();
    while let Some((len, range)) = cut.next_segment(frame, &mut header) {
        segments.push([&header[..len], &frame[range]].concat());
    }
    segments
}

#[test]
fn segments_whose_checksums_were_left_open_are_the_same_when_these_are_filled_in() {
    for (is_ipv6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
        let (frame, unfinished) = long_frame(is_ipv6, tagged);
        let finished = Cut::plan(&frame, unfinished).unwrap();
        let mut open = finished.clone();
        let left = open.leave_checksums();
        assert!(left.is_internet_checksum() && !unfinished.is_internet_checksum());
        let mut segments = segments_of(&frame, open);
        for segment in &mut segments {
            assert_eq!(Unfinished::detect(segment, segment.len(), 9000), Some(left));
            left.complete_checksum(segment);
        }
        assert_eq!(segments, segments_of(&frame, finished));
    }
}

#[test]
fn a_checksum_of_sctp_is_no_internet_checksum() {
    let task =
        |offset| Unfinished { flags: NEEDS_CHECKSUM, checksum_offset: offset, ..Unfinished::default() };
    assert!(task(16).is_internet_checksum() && !task(8).is_internet_checksum());
    assert!(!Unfinished::default().is_internet_checksum());
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
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    let mut frame = [b'x'; 40];
    frame[22..26].fill(0);
    let mut expected = frame;
    expected[22..26].copy_from_slice(&crc32c::crc32c(&frame[14..]).to_le_bytes());
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
            if let Some(target) = frame.get_mut(at) {
                *target = byte;
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
    assert!(Cut::plan(&frame, unfinished.shifted(36).unwrap()).is_none());
}

/// A header with these fields, checksum open.
fn header(gso_type: u8, gso_size: u16, start: u16, offset: u16) -> Unfinished {
    let fields = [0, gso_size, start, offset].map(u16::to_ne_bytes).concat();
    Unfinished::from_header(&[&[NEEDS_CHECKSUM, gso_type][..], &fields].concat())
}

#[test]
fn impossible_headers_are_detected() {
    let (frame, unfinished) = long_frame(false, false);
    assert!(unfinished.fits(frame.len()) && Unfinished::default().fits(0));
    // The last byte of the checksum is the last byte of the frame.
    assert!(header(0, 0, 34, 16).fits(52) && !header(0, 0, 34, 16).fits(51));
    assert!(!header(0, 0, u16::MAX, u16::MAX).fits(frame.len()));
    assert!(!header(GSO_TCP_IPV4, 0, 34, 16).fits(frame.len()), "segments of nothing");
    assert!(!header(GSO_TCP_IPV4, 1, 34, 16).fits(frame.len()), "more segments than a sender may request");
    assert!(header(GSO_UDP, 64, 34, 6).fits(34 + 64 * MAX_SEGMENTS));
    assert!(!header(GSO_UDP, 64, 34, 6).fits(35 + 64 * MAX_SEGMENTS));
    for unknown in [2, 3, 6, GSO_ECN] {
        assert!(!header(unknown, 1448, 34, 16).fits(frame.len()), "type {unknown}");
    }
    assert!(
        !Unfinished { flags: 0, ..unfinished }.fits(frame.len()),
        "cut, with checksums that were not requested"
    );
    assert!(header(0, 0, 34, 16).fits(LONGEST_UNFINISHED_BYTES));
    assert!(!header(0, 0, 34, 16).fits(LONGEST_UNFINISHED_BYTES + 1));
}

proptest::proptest! {
    #[test]
    fn a_header_comes_out_as_it_went_in(header in proptest::array::uniform10(0u8..=255)) {
        assert_eq!(Unfinished::from_header(&header).to_header(), header);
    }
}

/// Frame with an open checksum: its field holds the pseudo header's sum, by another implementation, which complements
/// it.
fn with_open_checksum(is_ipv6: bool, tagged: bool, payload_bytes: usize) -> (Vec<u8>, usize) {
    let (mut frame, unfinished) = long_frame(is_ipv6, tagged);
    let transport = usize::from(unfinished.checksum_start);
    frame.truncate(transport + 24 + payload_bytes);
    let (network, length) = (if tagged { 18 } else { 14 }, (24 + payload_bytes) as u16);
    if is_ipv6 {
        put(&mut frame, network + 4, &length.to_be_bytes());
    } else {
        put(&mut frame, network + 2, &(length + 20).to_be_bytes());
    }
    let pseudo = if is_ipv6 {
        let addresses: Vec<_> =
            frame[network + 8..network + 40].chunks(2).map(|two| [two[0], two[1]]).collect();
        addresses.iter().fold(etherparse::checksum::Sum16BitWords::new(), |sum, two| sum.add_2bytes(*two))
    } else {
        let addresses: Vec<_> =
            frame[network + 12..network + 20].chunks(2).map(|two| [two[0], two[1]]).collect();
        addresses.iter().fold(etherparse::checksum::Sum16BitWords::new(), |sum, two| sum.add_2bytes(*two))
    };
    let pseudo = pseudo.add_2bytes([0, ip_protocol::TCP]).add_2bytes(length.to_be_bytes()).ones_complement();
    put(&mut frame, transport + 16, &(!pseudo).to_ne_bytes());
    (frame, transport)
}

fn tcp_checksum_is_right(frame: &[u8]) -> bool {
    let sliced = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
    let expected = match sliced.net.unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())
        }
        etherparse::NetSlice::Ipv6(ip) => {
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination())
        }
        _ => panic!("no IP"),
    };
    tcp.checksum() == expected.unwrap()
}

#[test]
fn an_open_checksum_is_known_by_its_field_and_a_finished_one_is_left_alone() {
    for (is_ipv6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
        for payload_bytes in [0, 1, 700, 1401] {
            let (mut frame, transport) = with_open_checksum(is_ipv6, tagged, payload_bytes);
            let start = &frame[..frame.len().min(DETECTION_BYTES)];
            let found = Unfinished::detect(start, frame.len(), 1500).unwrap();
            assert_eq!((usize::from(found.checksum_start), found.is_long()), (transport, false));
            assert!(found.fits(frame.len()));
            found.complete_checksum(&mut frame);
            assert!(tcp_checksum_is_right(&frame));
            let start = &frame[..frame.len().min(DETECTION_BYTES)];
            assert_eq!(Unfinished::detect(start, frame.len(), 1500), None);
        }
    }
}

#[test]
fn a_joined_frame_is_cut_into_packets_of_the_mtu() {
    for (is_ipv6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
        let (frame, _) = with_open_checksum(is_ipv6, tagged, PAYLOAD_BYTES);
        let found = Unfinished::detect(&frame[..DETECTION_BYTES], frame.len(), 1500).unwrap();
        assert!(found.is_long() && found.fits(frame.len()));
        let mut cut = Cut::plan(&frame, found).unwrap();
        let (network, mut payload, mut longest) = (cut.ip.at, 0, 0);
        let mut header = [0; HEADER_ROOM_BYTES];
        while let Some((len, range)) = cut.next_segment(&frame, &mut header) {
            (payload, longest) = (payload + range.len(), longest.max(len + range.len() - network));
            assert!(tcp_checksum_is_right(&[&header[..len], &frame[range]].concat()));
        }
        assert_eq!((payload, longest), (PAYLOAD_BYTES, 1500));
    }
}

#[test]
fn a_frame_cut_off_or_of_another_kind_has_no_open_checksum() {
    let (frame, _) = with_open_checksum(false, true, 100);
    for len in 0..frame.len() {
        // An incomplete frame has no open task.
        assert_eq!(Unfinished::detect(&frame[..len.min(DETECTION_BYTES)], len, 1500), None, "{len}");
    }
    let mut fragment = frame.clone();
    fragment[18 + 6] = 0x20;
    assert_eq!(Unfinished::detect(&fragment[..DETECTION_BYTES], fragment.len(), 1500), None);
    let mut sctp = frame.clone();
    sctp[18 + 9] = 132;
    assert_eq!(Unfinished::detect(&sctp[..DETECTION_BYTES], sctp.len(), 1500), None);
    // An MTU shorter than the headers leaves no payload to cut.
    assert_eq!(Unfinished::detect(&frame[..DETECTION_BYTES], frame.len(), 40), None);
}

proptest::proptest! {
    #[test]
    fn no_frame_with_an_open_checksum_is_plainly_finished(
        mut start in proptest::collection::vec(0u8..=255, DETECTION_BYTES),
        transport_bytes in 20..=68_u16,
        is_tcp: bool,
    ) {
        let (protocol, checksum_at) = if is_tcp { (ip_protocol::TCP, 34 + 16) } else { (ip_protocol::UDP, 34 + 6) };
        put(&mut start, 12, &[8, 0, 0x45]);
        put(&mut start, 16, &(20 + transport_bytes).to_be_bytes());
        put(&mut start, 20, &[0; 2]);
        put(&mut start, 23, &[protocol]);
        let pseudo = sum_bytes(&start[26..34], 0)
            + u64::from(u16::from(protocol).to_be())
            + u64::from(transport_bytes.to_be());
        put(&mut start, checksum_at, &fold(pseudo).to_le_bytes());
        proptest::prop_assert!(Unfinished::detect(&start, start.len(), 1500).is_some());
        proptest::prop_assert!(!is_plainly_finished(start.first_chunk().unwrap()));
        // A number that does not stand for the same sum is a finished checksum.
        start[checksum_at] ^= 1;
        proptest::prop_assert_eq!(Unfinished::detect(&start, start.len(), 1500), None);
        proptest::prop_assert!(is_plainly_finished(start.first_chunk().unwrap()));
    }
}
