//! Tests of packets' fields and actions. `etherparse` builds and checks IP packets; other packets are compared with
//! bytes written here.

#![allow(clippy::unwrap_used)]

use etherparse::{IpNumber, PacketBuilder, PacketHeaders, SlicedPacket, TransportHeader, TransportSlice};
use proptest::prelude::*;
use ringroad_flow_tables::packet::{ActionError, HEADER_BYTES, MAX_REWRITE_BYTES, Packet};
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::oxm::{FieldValue, OxmField};

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Transport {
    Tcp,
    Udp,
    Icmp,
}

fn frame(is_ipv6: bool, tag: Option<u16>, transport: Transport, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let (v4, v6) = (([192, 168, 10, 10], [192, 168, 20, 20], 64), ([0x20; 16], [0x30; 16], 64));
    let ip = match (tag, is_ipv6) {
        (None, false) => ethernet.ipv4(v4.0, v4.1, v4.2),
        (None, true) => ethernet.ipv6(v6.0, v6.1, v6.2),
        (Some(vid), false) => ethernet.single_vlan(vid.try_into().unwrap()).ipv4(v4.0, v4.1, v4.2),
        (Some(vid), true) => ethernet.single_vlan(vid.try_into().unwrap()).ipv6(v6.0, v6.1, v6.2),
    };
    let mut bytes = Vec::new();
    match transport {
        Transport::Tcp => ip.tcp(1000, 2000, 7, 1024).write(&mut bytes, payload),
        Transport::Udp => ip.udp(1000, 2000).write(&mut bytes, payload),
        Transport::Icmp if is_ipv6 => ip.icmpv6_echo_request(1, 2).write(&mut bytes, payload),
        Transport::Icmp => ip.icmpv4_echo_request(1, 2).write(&mut bytes, payload),
    }
    .unwrap();
    bytes
}

fn load(frame: &[u8]) -> Packet {
    let mut packet = Packet::default();
    packet.load(PortNo(1), &frame[..frame.len().min(HEADER_BYTES)], frame.len(), false);
    packet
}

/// Returns the frame as it leaves.
fn leaves(packet: &Packet, frame: &[u8]) -> Vec<u8> {
    let (replaces, head) = packet.changed_headers().unwrap_or((0, &[]));
    [head, &frame[replaces..]].concat()
}

fn set(field: OxmField, value: u128) -> Action {
    Action::SetField(FieldValue { field, value })
}

fn after(frame: &[u8], actions: &[Action]) -> Vec<u8> {
    let mut packet = load(frame);
    actions.iter().for_each(|action| packet.apply(action).unwrap());
    let bytes = leaves(&packet, frame);
    assert_eq!(packet.bytes(), bytes.len());
    bytes
}

/// Fails if a checksum is not the one of the whole packet.
fn check_checksums(frame: &[u8]) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let headers = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let payload = headers.payload.slice();
    let net = headers.net.unwrap();
    if let Some((header, _)) = net.ipv4_ref() {
        assert_eq!(header.header_checksum, header.calc_header_checksum());
    }
    let transport = headers.transport.unwrap();
    let expected = match (net.ipv4_ref(), net.ipv6_ref(), &transport) {
        (Some((ip, _)), _, TransportHeader::Tcp(tcp)) => tcp.calc_checksum_ipv4(ip, payload).unwrap(),
        (_, Some((ip, _)), TransportHeader::Tcp(tcp)) => tcp.calc_checksum_ipv6(ip, payload).unwrap(),
        (Some((ip, _)), _, TransportHeader::Udp(udp)) => udp.calc_checksum_ipv4(ip, payload).unwrap(),
        (_, Some((ip, _)), TransportHeader::Udp(udp)) => udp.calc_checksum_ipv6(ip, payload).unwrap(),
        (_, Some((ip, _)), TransportHeader::Icmpv6(icmp)) => {
            icmp.icmp_type.calc_checksum(ip.source, ip.destination, payload).unwrap()
        }
        (_, _, TransportHeader::Icmpv4(icmp)) => icmp.icmp_type.calc_checksum(payload),
        other => panic!("{other:?}"),
    };
    let stored = match packet.transport.unwrap() {
        TransportSlice::Tcp(tcp) => tcp.checksum(),
        TransportSlice::Udp(udp) => udp.checksum(),
        TransportSlice::Icmpv4(icmp) => icmp.checksum(),
        TransportSlice::Icmpv6(icmp) => icmp.checksum(),
        TransportSlice::Igmp(_) => panic!("no test builds IGMP"),
    };
    // Zero has two representations in one's complement.
    assert!(stored == expected || (stored, expected) == (0xffff, 0) || (stored, expected) == (0, 0xffff));
}

fn transports() -> impl Strategy<Value = Transport> {
    prop_oneof![Just(Transport::Tcp), Just(Transport::Udp), Just(Transport::Icmp)]
}

/// Fields that can change without a change of the packet's kind.
fn settable(is_ipv6: bool, transport: Transport) -> Vec<OxmField> {
    let mut fields = vec![OxmField::EthDst, OxmField::EthSrc, OxmField::IpDscp, OxmField::IpEcn];
    fields.extend(match is_ipv6 {
        true => vec![OxmField::Ipv6Src, OxmField::Ipv6Dst, OxmField::Ipv6Flabel],
        false => vec![OxmField::Ipv4Src, OxmField::Ipv4Dst],
    });
    fields.extend(match (transport, is_ipv6) {
        (Transport::Tcp, _) => vec![OxmField::TcpSrc, OxmField::TcpDst],
        (Transport::Udp, _) => vec![OxmField::UdpSrc, OxmField::UdpDst],
        (Transport::Icmp, true) => vec![OxmField::Icmpv6Code],
        (Transport::Icmp, false) => vec![OxmField::Icmpv4Code],
    });
    fields
}

proptest! {
    #[test]
    fn a_set_field_is_read_back_and_all_checksums_follow(
        is_ipv6: bool,
        tag in proptest::option::of(1u16..4095),
        transport in transports(),
        payload in proptest::collection::vec(any::<u8>(), 0..400),
        choices in proptest::collection::vec((any::<prop::sample::Index>(), any::<u128>()), 1..6),
        ttl in 2u8..,
    ) {
        let original = frame(is_ipv6, tag, transport, &payload);
        let fields = settable(is_ipv6, transport);
        let mut packet = load(&original);
        for (choice, value) in choices {
            let field = *choice.get(&fields);
            let value = value & field.all_ones();
            packet.apply(&set(field, value)).unwrap();
            prop_assert_eq!(packet.field(field), Some(value));
        }
        packet.apply(&Action::SetNwTtl(ttl)).unwrap();
        packet.apply(&Action::DecNwTtl).unwrap();
        let bytes = leaves(&packet, &original);
        prop_assert_eq!(bytes.len(), original.len());
        // A code of a kind that etherparse does not know is not an echo any more.
        if transport != Transport::Icmp {
            check_checksums(&bytes);
        }
        let mut again = load(&bytes);
        for field in fields {
            prop_assert_eq!(again.field(field), packet.field(field));
        }
        // The reverse changes restore the original.
        let first = load(&original);
        for field in settable(is_ipv6, transport) {
            again.apply(&set(field, first.field(field).unwrap())).unwrap();
        }
        again.apply(&Action::SetNwTtl(64)).unwrap();
        let back = leaves(&again, &bytes);
        check_checksums(&back);
        prop_assert_eq!(&back[..40], &original[..40]);
    }

    #[test]
    fn what_is_pushed_is_popped(is_ipv6: bool, tag in proptest::option::of(1u16..4095), transport in transports(), kind in 0..3) {
        let original = frame(is_ipv6, tag, transport, b"payload");
        let ip = if is_ipv6 { 0x86dd } else { 0x0800 };
        let (push, pop_inner, pop_last) = match kind {
            0 => (Action::PushVlan(0x88a8), Action::PopVlan, Action::PopVlan),
            1 => (Action::PushMpls(0x8847), Action::PopMpls(0x8847), Action::PopMpls(ip)),
            _ => (Action::PushPbb(0x88e7), Action::PopPbb, Action::PopPbb),
        };
        prop_assert_ne!(&after(&original, &[push]), &original);
        prop_assert_eq!(&after(&original, &[push, push, pop_inner, push, pop_inner, pop_last]), &original);
    }

    #[test]
    fn any_bytes_are_a_packet(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in prop::sample::select(&[0x0800u16, 0x0806, 0x86dd, 0x8100, 0x88a8, 0x8847, 0x88e7, 0x0010][..]),
        proto in prop::sample::select(&[1u8, 6, 17, 58, 132, 0, 43, 44, 51, 60][..]),
        actions in proptest::collection::vec((0..14usize, any::<u128>(), 0..40u8), 0..12),
        has_open_checksum: bool,
    ) {
        let mut frame = bytes;
        if frame.len() > 40 {
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            frame[14] = if kind == 0x86dd { 0x60 } else { 0x45 };
            frame[if kind == 0x86dd { 20 } else { 23 }] = proto;
        }
        let mut packet = Packet::default();
        packet.load(PortNo(1), &frame[..frame.len().min(HEADER_BYTES)], frame.len(), has_open_checksum);
        for (kind, value, field) in actions {
            let field = OxmField::from_number(field).unwrap();
            let done = packet.apply(&match kind {
                0 => Action::PushVlan(0x8100),
                1 => Action::PopVlan,
                2 => Action::PushMpls(0x8848),
                3 => Action::PopMpls(value as u16),
                4 => Action::PushPbb(0x88e7),
                5 => Action::PopPbb,
                6 => Action::SetMplsTtl(value as u8),
                7 => Action::DecMplsTtl,
                8 => Action::SetNwTtl(value as u8),
                9 => Action::DecNwTtl,
                10 => Action::CopyTtlIn,
                11 => Action::CopyTtlOut,
                _ => set(field, value & field.all_ones()),
            });
            for field in OxmField::ALL {
                let _ = packet.field(field);
            }
            if done == Err(ActionError::TooLong) {
                break;
            }
        }
        let bytes = leaves(&packet, &frame);
        prop_assert_eq!(bytes.len(), packet.bytes());
        prop_assert!(packet.changed_headers().is_none_or(|(_, head)| head.len() <= MAX_REWRITE_BYTES));
    }
}

#[test]
fn a_tag_begins_as_a_copy_of_the_outermost_one() {
    let tagged = frame(false, Some(100), Transport::Udp, b"");
    let mut packet = load(&after(&tagged, &[set(OxmField::VlanPcp, 5), Action::PushVlan(0x88a8)]));
    assert_eq!(packet.field(OxmField::VlanVid), Some(0x1000 | 100));
    assert_eq!(packet.field(OxmField::VlanPcp), Some(5));
    assert_eq!(packet.field(OxmField::EthType), Some(0x0800), "the type behind all tags");
    packet.apply(&set(OxmField::VlanVid, 0x1000 | 7)).unwrap();
    assert_eq!(packet.field(OxmField::VlanVid), Some(0x1000 | 7));
    packet.apply(&Action::PopVlan).unwrap();
    packet.apply(&Action::PopVlan).unwrap();
    assert_eq!(packet.field(OxmField::VlanVid), Some(0));
    assert_eq!(packet.field(OxmField::VlanPcp), None);
}

#[test]
fn labels_are_pushed_behind_tags_and_hide_what_is_within() {
    let original = frame(false, Some(100), Transport::Tcp, b"");
    let labelled =
        after(&original, &[Action::PushMpls(0x8847), set(OxmField::MplsLabel, 77), set(OxmField::MplsTc, 3)]);
    assert_eq!(labelled[12..22], [0x81, 0, 0, 100, 0x88, 0x47, 0, 4, 0xd7, 64]);
    let packet = load(&labelled);
    assert_eq!(
        (packet.field(OxmField::MplsLabel), packet.field(OxmField::MplsTc), packet.field(OxmField::MplsBos)),
        (Some(77), Some(3), Some(1))
    );
    assert_eq!((packet.field(OxmField::Ipv4Src), packet.field(OxmField::IpProto)), (None, None));
    let twice = load(&after(&labelled, &[Action::PushMpls(0x8847)]));
    assert_eq!((twice.field(OxmField::MplsLabel), twice.field(OxmField::MplsBos)), (Some(77), Some(0)));
}

#[test]
fn ttls_are_copied_between_headers() {
    for is_ipv6 in [false, true] {
        let original = frame(is_ipv6, None, Transport::Tcp, b"data");
        let ip = if is_ipv6 { 0x86dd } else { 0x0800 };
        let inwards = after(
            &original,
            &[Action::PushMpls(0x8847), Action::SetMplsTtl(9), Action::CopyTtlIn, Action::PopMpls(ip)],
        );
        let expected = after(&original, &[Action::SetNwTtl(9)]);
        assert_eq!(inwards, expected);
        check_checksums(&inwards);
        let outwards = [Action::PushMpls(0x8847), Action::SetMplsTtl(9), Action::CopyTtlOut];
        assert_eq!(after(&original, &outwards), after(&original, &[Action::PushMpls(0x8847)]));
    }
    let stack = after(
        &frame(false, None, Transport::Tcp, b""),
        &[Action::PushMpls(0x8847), Action::PushMpls(0x8847), Action::SetMplsTtl(9), Action::CopyTtlIn],
    );
    assert_eq!(stack[21], 9);
}

#[test]
fn a_ttl_that_would_become_zero_stops_the_packet() {
    let mut packet = load(&frame(false, None, Transport::Tcp, b""));
    packet.apply(&Action::SetNwTtl(1)).unwrap();
    assert_eq!(packet.apply(&Action::DecNwTtl), Err(ActionError::TtlInvalid));
    packet.apply(&Action::PushMpls(0x8847)).unwrap();
    assert_eq!(packet.apply(&Action::DecMplsTtl), Err(ActionError::TtlInvalid));
}

#[test]
fn too_many_tags_stop_the_packet() {
    let mut packet = load(&frame(true, None, Transport::Tcp, &[0; 300]));
    let pushed = (0..).find(|_| packet.apply(&Action::PushPbb(0x88e7)).is_err()).unwrap();
    assert_eq!(pushed, (MAX_REWRITE_BYTES - HEADER_BYTES) / 18);
}

#[test]
fn a_service_tag_is_pushed_around_the_whole_frame() {
    let original = frame(false, Some(5), Transport::Udp, b"");
    let pushed = after(&original, &[Action::PushPbb(0x88e7), set(OxmField::PbbIsid, 0x010203)]);
    assert_eq!(pushed[..18], [&MACS[..], &[0x88, 0xe7, 0, 1, 2, 3]].concat());
    assert_eq!(pushed[18..], original);
    let packet = load(&pushed);
    assert_eq!((packet.field(OxmField::PbbIsid), packet.field(OxmField::VlanVid)), (Some(0x010203), Some(0)));
}

#[test]
fn a_protocol_that_is_set_counts_in_the_checksum_of_the_transport() {
    let udp = frame(false, None, Transport::Udp, b"data");
    let there_and_back = after(&udp, &[set(OxmField::IpProto, 200)]);
    assert_ne!(there_and_back[40..42], udp[40..42]);
    let sum = |bytes: &[u8]| u16::from_be_bytes([bytes[40], bytes[41]]);
    assert_eq!(u32::from(sum(&udp)), (u32::from(sum(&there_and_back)) + 200 - 17) % 0xffff);
}

/// Makes an SCTP packet in IPv4 or IPv6, with padding after it.
fn sctp(is_ipv6: bool, ports: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut packet = [&ports[..], &[0; 8], payload].concat();
    let checksum = crc32c::crc32c(&packet);
    packet[8..12].copy_from_slice(&checksum.to_le_bytes());
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    match is_ipv6 {
        true => builder.ipv6([1; 16], [2; 16], 9).write(&mut frame, IpNumber::SCTP, &packet),
        false => builder.ipv4([1; 4], [2; 4], 9).write(&mut frame, IpNumber::SCTP, &packet),
    }
    .unwrap();
    frame.extend_from_slice(b"padding");
    frame
}

proptest! {
    #[test]
    fn the_checksum_of_sctp_follows(is_ipv6: bool, from: u16, to: u16, payload in proptest::collection::vec(any::<u8>(), 0..500)) {
        let changed = after(&sctp(is_ipv6, [0, 1, 0, 2], &payload), &[set(OxmField::SctpSrc, from.into()), set(OxmField::SctpDst, to.into())]);
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        prop_assert_eq!(changed, sctp(is_ipv6, ports.try_into().unwrap(), &payload));
    }
}

#[test]
fn an_open_checksum_holds_the_addresses_alone() {
    let finished = frame(false, None, Transport::Udp, b"data");
    let mut open = finished.clone();
    // Sum over addresses, protocol and length (RFC 768), not complemented: the part that a sender computes for its
    // card.
    let pseudo = |frame: &[u8]| {
        let words = frame[26..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum = words.sum::<u32>() + 17 + u32::from(u16::from_be_bytes([frame[38], frame[39]]));
        ((sum & 0xffff) + (sum >> 16)) as u16
    };
    open[40..42].copy_from_slice(&pseudo(&finished).to_be_bytes());
    let mut packet = Packet::default();
    packet.load(PortNo(1), &open, open.len(), true);
    packet.apply(&set(OxmField::Ipv4Dst, 0x0a0b_0c0d)).unwrap();
    packet.apply(&set(OxmField::UdpDst, 4711)).unwrap();
    let changed = leaves(&packet, &open);
    assert_eq!(changed[40..42], pseudo(&changed).to_be_bytes());
}

#[test]
fn a_checksum_that_the_sender_left_out_stays_out() {
    let mut udp = frame(false, None, Transport::Udp, b"data");
    udp[40..42].fill(0);
    assert_eq!(after(&udp, &[set(OxmField::UdpDst, 1)])[40..42], [0, 0]);
}

#[test]
fn later_fragments_have_no_ports() {
    let mut fragment = frame(false, None, Transport::Udp, b"data");
    assert!(!load(&fragment).is_fragment());
    fragment[20] = 0x20;
    assert_eq!((load(&fragment).is_fragment(), load(&fragment).field(OxmField::UdpDst)), (true, Some(2000)));
    fragment[20..22].copy_from_slice(&[0, 5]);
    assert_eq!((load(&fragment).is_fragment(), load(&fragment).field(OxmField::UdpDst)), (true, None));
    assert_eq!(load(&fragment).field(OxmField::IpProto), Some(17));
}

#[test]
fn extension_headers_are_seen_and_passed() {
    let ipv6 = |next: u8, extensions: &[u8]| {
        let mut header = [0; 40];
        header[0] = 0x60;
        header[6] = next;
        [&MACS[..], &[0x86, 0xdd], &header, extensions, &[0x03, 0xe8, 0x07, 0xd0, 0, 8, 0, 0]].concat()
    };
    // Headers: hop-by-hop options, then authentication (24 bytes), then UDP.
    let both = [&[51, 0][..], &[0; 6], &[17, 4], &[0; 22]].concat();
    let packet = load(&ipv6(0, &both));
    assert_eq!(packet.field(OxmField::Ipv6Exthdr), Some(64 | 4));
    assert_eq!((packet.field(OxmField::IpProto), packet.field(OxmField::UdpSrc)), (Some(17), Some(1000)));
    // Headers in the wrong order, and one of them twice.
    let order = load(&ipv6(51, &[&[0, 4][..], &[0; 22], &[0, 0], &[0; 6], &[17, 0], &[0; 6]].concat()));
    assert_eq!(order.field(OxmField::Ipv6Exthdr), Some(64 | 4 | 128 | 256));
    assert_eq!(load(&ipv6(17, &[])).field(OxmField::Ipv6Exthdr), Some(0));
    assert_eq!(load(&ipv6(59, &[])).field(OxmField::Ipv6Exthdr), Some(1));
}

#[test]
fn before_a_routing_header_the_checksum_has_the_final_destination() {
    let (source, waypoint, last) = ([0x11; 16], [0x22; 16], [0x33; 16]);
    // A TCP segment behind hop-by-hop options and a routing header with one address.
    let packet = |source: [u8; 16], destination: [u8; 16], segments_left: u8| {
        let mut tcp = etherparse::TcpHeader::new(1000, 2000, 7, 1024);
        let counted = if segments_left > 0 { last } else { destination };
        tcp.checksum = tcp.calc_checksum_ipv6_raw(source, counted, b"data").unwrap();
        let extensions = [&[43, 0][..], &[0; 6], &[6, 2, 0, segments_left], &[0; 4], &last].concat();
        let header = [&[0x60, 0, 0, 0, 0, 56, 0, 64][..], &source, &destination].concat();
        [&MACS[..], &[0x86, 0xdd], &header, &extensions, &tcp.to_bytes(), b"data"].concat()
    };
    let (new_source, new_destination) = ([0x44; 16], [0x55; 16]);
    let number = |address: [u8; 16]| u128::from_be_bytes(address);
    for segments_left in [0, 1] {
        let before = packet(source, waypoint, segments_left);
        let to = set(OxmField::Ipv6Dst, number(new_destination));
        assert_eq!(after(&before, &[to]), packet(source, new_destination, segments_left), "{segments_left}");
        let both = [to, set(OxmField::Ipv6Src, number(new_source))];
        assert_eq!(after(&before, &both), packet(new_source, new_destination, segments_left));
    }
}

#[test]
fn options_of_neighbour_discovery_are_found() {
    let mut frame = [&MACS[..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 58, 255], &[1; 32]].concat();
    frame.extend_from_slice(
        &[&[135, 0, 0, 0, 0, 0, 0, 0][..], &[7; 16], &[14, 1, 0, 0, 0, 0, 0, 0], &[1, 1, 2, 3, 4, 5, 6, 7]]
            .concat(),
    );
    let packet = load(&frame);
    assert_eq!(packet.field(OxmField::Ipv6NdTarget), Some(u128::from_be_bytes([7; 16])));
    assert_eq!(packet.field(OxmField::Ipv6NdSll), Some(0x0203_0405_0607));
    assert_eq!(packet.field(OxmField::Ipv6NdTll), None);
    frame[79] = 0;
    assert_eq!(load(&frame).field(OxmField::Ipv6NdSll), None, "an option without a length");
}

#[test]
fn a_length_is_no_type() {
    let llc = [&MACS[..], &[0, 30, 0x42, 0x42, 3]].concat();
    assert_eq!(load(&llc).field(OxmField::EthType), Some(0x05ff));
    let snap = [&MACS[..], &[0, 30, 0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0]].concat();
    assert_eq!(load(&snap).field(OxmField::EthType), Some(0x0800));
}

#[test]
fn a_band_raises_the_drop_precedence_of_assured_forwarding_alone() {
    for (dscp, levels, expected) in
        [(10, 1, 12), (10, 2, 14), (10, 9, 14), (34, 1, 36), (0, 1, 0), (46, 1, 46), (8, 1, 8)]
    {
        let mut packet = load(&frame(false, None, Transport::Tcp, b""));
        packet.apply(&set(OxmField::IpDscp, dscp)).unwrap();
        packet.remark(levels);
        assert_eq!(packet.field(OxmField::IpDscp), Some(expected), "{dscp} by {levels}");
    }
}
