//! Tests of the walk: frames of known layout, arbitrary bytes, and a comparison with another parser.

use etherparse::{LinkExtSlice, NetSlice, SlicedPacket};
use proptest::prelude::*;

use super::*;
use crate::ip_protocol::{AUTHENTICATION, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING, TCP, UDP};

const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// A frame with these tags before a type, and the bytes after the type.
fn frame(tags: &[u16], ether_type: u16, behind: &[u8]) -> Vec<u8> {
    let mut frame = ADDRESSES.to_vec();
    for (number, tag) in tags.iter().enumerate() {
        frame.extend(tag.to_be_bytes());
        frame.extend([0x20, number as u8]);
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(behind);
    frame
}

fn ipv4(option_words: u8, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header_bytes = 20 + usize::from(option_words) * 4;
    let mut packet = vec![0x45 + option_words, 0];
    packet.extend(((header_bytes + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.resize(header_bytes, 1);
    packet.extend(payload);
    packet
}

/// IPv6 packet. `extensions`: the kind of each extension header, and its bytes beyond its least length, in its own
/// unit.
fn ipv6(extensions: &[(u8, u8)], fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let kinds = extensions.iter().map(|(kind, _)| *kind).chain([protocol]);
    let mut behind = Vec::new();
    for ((kind, more), next) in extensions.iter().zip(kinds.clone().skip(1)) {
        let more = usize::from(*more);
        let bytes = match *kind {
            FRAGMENT => 8,
            AUTHENTICATION => 12 + more * 4,
            _ => 8 + more * 8,
        };
        let mut header = vec![0; bytes];
        header[0] = next;
        match *kind {
            FRAGMENT => header[2..4].copy_from_slice(&fragment.to_be_bytes()),
            AUTHENTICATION => header[1] = 1 + more as u8,
            _ => header[1] = more as u8,
        }
        behind.extend(header);
    }
    behind.extend(payload);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((behind.len() as u16).to_be_bytes());
    packet.extend([kinds.clone().next().unwrap_or(protocol), 64]);
    packet.extend([0x20; 32]);
    packet.extend(behind);
    packet
}

fn walk(bytes: &[u8], tags: Tags) -> (Option<EthernetHeader>, Option<Ip>) {
    let ethernet = EthernetHeader::read(bytes, tags);
    (ethernet, ethernet.and_then(|ethernet| Ip::read(bytes, &ethernet)))
}

#[test]
fn the_old_tag_is_one_only_where_it_is_asked_for() {
    let frame = frame(&[0x9100, 0x8100], ether_type::ARP, &[]);
    let with_old = EthernetHeader::read(&frame, Tags::WithOld).unwrap();
    assert_eq!(with_old, EthernetHeader { tag: Some(14), type_at: 20, ether_type: ether_type::ARP });
    assert_eq!(with_old.end(), 22);
    let standard = EthernetHeader::read(&frame, Tags::Standard).unwrap();
    assert_eq!(standard, EthernetHeader { tag: None, type_at: 12, ether_type: 0x9100 });
}

#[test]
fn a_tag_that_is_cut_off_is_none() {
    let whole = frame(&[0x88a8, 0x8100], ether_type::IPV4, &[]);
    let types = [(13, None), (14, Some(0x88a8)), (17, Some(0x88a8)), (18, Some(0x8100)), (22, Some(0x0800))];
    for (len, expected) in types {
        let found = EthernetHeader::read(&whole[..len], Tags::Standard);
        assert_eq!(found.map(|ethernet| ethernet.ether_type), expected, "{len}");
        assert_eq!(found.and_then(|ethernet| ethernet.tag), (len >= 18).then_some(14), "{len}");
    }
}

#[test]
fn tags_and_extension_headers_end_the_walk_where_there_are_too_many() {
    let packet = ipv4(0, 0, UDP, &[0; 8]);
    let most = frame(&[0x8100; MAX_TAGS], ether_type::IPV4, &packet);
    assert_eq!(walk(&most, Tags::Standard).1.unwrap().at, 14 + 4 * MAX_TAGS);
    let more = frame(&[0x8100; MAX_TAGS + 1], ether_type::IPV4, &packet);
    let (ethernet, ip) = walk(&more, Tags::Standard);
    assert_eq!((ethernet.unwrap().ether_type, ip), (ether_type::VLAN, None));

    let extensions = [(DESTINATION_OPTIONS, 0); MAX_EXTENSIONS + 1];
    for (count, expected) in [(MAX_EXTENSIONS, TCP), (MAX_EXTENSIONS + 1, DESTINATION_OPTIONS)] {
        let frame = frame(&[], ether_type::IPV6, &ipv6(&extensions[..count], 0, TCP, &[0; 20]));
        let ip = walk(&frame, Tags::Standard).1.unwrap();
        assert_eq!((ip.protocol, ip.payload_at), (expected, 54 + 8 * MAX_EXTENSIONS));
        assert!(ip.has_extensions());
    }
}

#[test]
fn fragments_are_told_apart() {
    use IpFragment::{First, Later, No};
    let packets = [
        (ipv4(1, 0x4000, TCP, &[]), No),
        (ipv4(1, 0x2000, TCP, &[]), First),
        (ipv4(1, 0x2001, TCP, &[]), Later),
        (ipv4(1, 0x0001, TCP, &[]), Later),
    ];
    for (packet, expected) in packets {
        let ip = walk(&frame(&[], ether_type::IPV4, &packet), Tags::Standard).1.unwrap();
        assert_eq!((ip.fragment, ip.payload_at, ip.header_bytes()), (expected, 38, 24));
        assert!(!ip.has_extensions());
    }
    // The data of a later fragment are no extension headers, whatever its own header says about them.
    let extensions = [(HOP_BY_HOP, 1), (FRAGMENT, 0), (DESTINATION_OPTIONS, 0)];
    for (next_header, expected) in [(0, First), (1, First), (8, Later), (9, Later)] {
        let frame = frame(&[], ether_type::IPV6, &ipv6(&extensions, next_header, UDP, &[0; 8]));
        let ip = walk(&frame, Tags::Standard).1.unwrap();
        let behind = if expected == First { (UDP, 54 + 32) } else { (DESTINATION_OPTIONS, 54 + 24) };
        assert_eq!((ip.fragment, (ip.protocol, ip.payload_at)), (expected, behind));
    }
}

#[test]
fn what_is_no_ip_header_is_not_found() {
    let good = ipv4(0, 0, UDP, &[0; 8]);
    for (at, byte) in [(0, 0x44), (0, 0x65), (0, 0x05)] {
        let mut packet = good.clone();
        packet[at] = byte;
        assert_eq!(walk(&frame(&[], ether_type::IPV4, &packet), Tags::Standard).1, None, "{byte:#x}");
    }
    assert_eq!(walk(&frame(&[], ether_type::IPV4, &good[..19]), Tags::Standard).1, None);
    let six = ipv6(&[], 0, UDP, &[]);
    assert_eq!(walk(&frame(&[], ether_type::IPV6, &six[..39]), Tags::Standard).1, None);
    assert_eq!(walk(&frame(&[], ether_type::IPV6, &good), Tags::Standard).1, None);
    assert_eq!(walk(&frame(&[], ether_type::ARP, &good), Tags::Standard).1, None);
}

#[test]
fn extension_headers_are_seen_in_their_order() {
    for last in [ip_protocol::ESP, ip_protocol::NO_NEXT] {
        let extensions = [(HOP_BY_HOP, 0), (ROUTING, 2), (AUTHENTICATION, 3)];
        let frame = frame(&[0x8100], ether_type::IPV6, &ipv6(&extensions, 0, last, &[0; 8]));
        let ethernet = EthernetHeader::read(&frame, Tags::Standard).unwrap();
        let mut seen = Vec::new();
        let ip = Ip::read_with(&frame, &ethernet, |kind| seen.push(kind)).unwrap();
        assert_eq!(seen, [HOP_BY_HOP, ROUTING, AUTHENTICATION, last]);
        assert_eq!((ip.protocol, ip.payload_at), (last, 58 + 8 + 24 + 24));
    }
}

#[test]
fn an_ipv6_packet_of_length_zero_ends_with_its_header() {
    let mut packet = ipv6(&[], 0, UDP, &[0; 8]);
    packet[4..6].fill(0);
    let frame = frame(&[], ether_type::IPV6, &packet);
    let ip = Ip::read(&frame, &EthernetHeader::read(&frame, Tags::Standard).unwrap()).unwrap();
    assert_eq!((ip.payload_at, ip.end), (14 + IPV6_BYTES, 14 + IPV6_BYTES));
}

/// Frames of all layouts, complete and consistent.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let extension = prop_oneof![
        Just(ROUTING),
        Just(DESTINATION_OPTIONS),
        Just(FRAGMENT),
        Just(AUTHENTICATION),
        Just(HOP_BY_HOP)
    ];
    (
        prop::collection::vec(prop::sample::select(vec![0x8100u16, 0x88a8, 0x9100]), 0..4),
        any::<bool>(),
        (0..=10u8, prop::collection::vec((extension, 0..4u8), 0..5)),
        prop_oneof![3 => Just(0u16), 1 => Just(0x2000), 1 => any::<u16>()],
        prop_oneof![Just(TCP), Just(UDP), Just(253)],
        prop::collection::vec(any::<u8>(), 0..60),
        0..8usize,
    )
        .prop_map(|(tags, is_ipv6, (option_words, extensions), fragment, protocol, payload, padding)| {
            let packet = match is_ipv6 {
                true => ipv6(&extensions, fragment, protocol, &payload),
                false => ipv4(option_words, fragment, protocol, &payload),
            };
            let ether_type = if is_ipv6 { ether_type::IPV6 } else { ether_type::IPV4 };
            let mut frame = frame(&tags, ether_type, &packet);
            frame.resize(frame.len() + padding, 0);
            frame
        })
}

/// Frames of all layouts with some bytes changed, cut off somewhere.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let hostile =
        (any_frame(), changes, any::<prop::sample::Index>()).prop_map(|(mut frame, changes, end)| {
            for (at, byte) in changes {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            frame.truncate(end.index(frame.len() + 1));
            frame
        });
    prop_oneof![3 => hostile, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

/// Offset of a part of `frame`.
fn offset_of(frame: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - frame.as_ptr() as usize
}

proptest! {
    #[test]
    fn nothing_behind_the_headers_is_read(bytes in any_bytes(), with_old: bool, other: u8) {
        let tags = if with_old { Tags::WithOld } else { Tags::Standard };
        let (ethernet, ip) = walk(&bytes, tags);
        let Some(ethernet) = ethernet else { return prop_assert_eq_short(&bytes) };
        prop_assert!(ethernet.end() <= bytes.len() && ethernet.end() <= 14 + 4 * MAX_TAGS);
        prop_assert!(ethernet.tag.is_none_or(|tag| tag == 14 && ethernet.type_at >= 16));
        if let Some(ip) = ip {
            prop_assert!(ip.addresses().end <= bytes.len() && ip.at == ethernet.end());
            let end = ip.payload_at.min(bytes.len());
            prop_assert_eq!(walk(&bytes[..end], tags).1, Some(ip));
            // Bytes after the headers may be anything, unless the walk ended at a cut-off header.
            let mut changed = bytes.clone();
            changed[end..].fill(other);
            let again = walk(&changed, tags).1.unwrap();
            prop_assert!(again == ip || again.payload_at > ip.payload_at);
        }
    }

    #[test]
    fn another_parser_finds_the_same(bytes in prop_oneof![any_frame(), any_bytes()]) {
        let Ok(packet) = SlicedPacket::from_ethernet(&bytes) else { return Ok(()) };
        let is_vlan = |extension: &LinkExtSlice| matches!(extension, LinkExtSlice::Vlan(_));
        let has_room = packet.link_exts.len() < SlicedPacket::LINK_EXTS_CAP;
        prop_assume!(packet.link_exts.iter().all(is_vlan) && (has_room || packet.net.is_some()));
        let (ethernet, ip) = walk(&bytes, Tags::WithOld);
        let ethernet = ethernet.unwrap();
        prop_assert_eq!(ethernet.type_at, 12 + 4 * packet.link_exts.len());
        prop_assert_eq!(ethernet.tag.is_some(), !packet.link_exts.is_empty());
        let (payload, header, version) = match &packet.net {
            Some(NetSlice::Ipv4(ipv4)) => (ipv4.payload(), ipv4.header().slice(), IpVersion::Four),
            Some(NetSlice::Ipv6(ipv6)) => (ipv6.payload(), ipv6.header().slice(), IpVersion::Six),
            _ => return Ok(()),
        };
        let ip = ip.unwrap();
        prop_assert_eq!((ip.version, ip.at), (version, offset_of(&bytes, header)));
        // The other parser reads an authentication header after IPv4, and supposed extension headers after a later
        // fragment's.
        prop_assume!(version == IpVersion::Six || ip.protocol != AUTHENTICATION);
        prop_assert_eq!(ip.fragment != IpFragment::No && payload.fragmented, payload.fragmented);
        if ip.fragment != IpFragment::Later {
            prop_assert_eq!((ip.protocol, ip.payload_at), (payload.ip_number.0, offset_of(&bytes, payload.payload)));
            // The other parser takes a length of 0 in an IPv6 header as the length up to the frame's end.
            let has_length = version == IpVersion::Four || bytes[ip.at + 4..ip.at + 6] != [0, 0];
            prop_assert!(!has_length || ip.end == ip.payload_at + payload.payload.len());
        }
    }
}

/// Checks that only a frame without a whole Ethernet header has none.
fn prop_assert_eq_short(bytes: &[u8]) -> Result<(), TestCaseError> {
    prop_assert!(bytes.len() < ETHERNET_BYTES);
    Ok(())
}
