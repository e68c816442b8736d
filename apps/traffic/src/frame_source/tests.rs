mod fields;
mod judge;
mod random_streams;

use std::collections::HashSet;

use proptest::prelude::*;

use self::judge::judge;
use super::*;
use crate::definition::{StreamDefinition, StreamList};
use crate::signature::{SignatureForm, SignatureReading, read_signature};

/// The streams of a TOML text.
fn streams(text: &str) -> Vec<StreamDefinition> {
    StreamList::read(toml::Deserializer::parse(text).unwrap()).unwrap().streams
}

/// The source of the only stream in a TOML table with `fields`.
fn source(fields: &str) -> FrameSource {
    streams(&format!("[[stream]]\n{fields}")).remove(0).compile(1).unwrap()
}

#[test]
fn a_stream_without_any_field_makes_signed_64_byte_udp_frames() {
    let mut source = source("");
    for sequence in 0..3 {
        assert_eq!((source.next_size(), source.next_sequence()), (60, sequence));
        let frame = source.next_frame(1000 + sequence).to_vec();
        let judged = judge(&frame);
        assert_eq!(judged.headers, ["ethernet", "ipv4", "udp"]);
        assert_eq!(judged.payload.len(), 18);
        let SignatureReading::Intact(signature) = read_signature(&frame, FormSet::ALL) else {
            panic!("not signed")
        };
        assert_eq!((signature.form, signature.stream), (SignatureForm::Compact, 1));
        assert_eq!((signature.sequence_low, signature.timestamp_low), (sequence, 1000 + sequence));
    }
}

#[test]
fn imix_has_exact_shares_in_every_twelve_frames() {
    let mut source = source("size = 'imix'");
    let order: Vec<_> = (0..12).map(|_| source.next_frame(0).len() + 4).collect();
    assert_eq!(order, [64, 594, 64, 64, 594, 64, 594, 64, 1518, 64, 594, 64]);
    for _ in 0..100 {
        let mut counts = [0; 3];
        for _ in 0..12 {
            let expected = source.next_size();
            let frame = source.next_frame(0);
            assert_eq!(frame.len(), expected);
            judge(frame);
            match frame.len() + 4 {
                64 => counts[0] += 1,
                594 => counts[1] += 1,
                1518 => counts[2] += 1,
                other => panic!("{other} bytes"),
            }
        }
        assert_eq!(counts, [7, 4, 1]);
    }
    let mean = (7 * 64 + 4 * 594 + 1518) as f64 / 12.0;
    assert!((source.mean_bits(BitLayer::L2) - mean * 8.0).abs() < 1e-9);
    assert!((source.mean_bits(BitLayer::L1) - (mean + 20.0) * 8.0).abs() < 1e-9);
}

/// Source address and port of a plain IPv4 or IPv6 frame.
fn flow(frame: &[u8]) -> (Vec<u8>, u16) {
    let (address, port) = if frame[12] == 0x08 { (26..30, 34) } else { (22..38, 54) };
    (frame[address].to_vec(), u16::from_be_bytes([frame[port], frame[port + 1]]))
}

#[test]
fn exactly_the_requested_flows_appear() {
    for (headers, flows) in [
        ("{ipv4 = {}}, {udp = {}}", 1),
        ("{ipv4 = {}}, {udp = {}}", 1000),
        ("{ipv4 = {}}, {udp = {}}", 16_384),
        ("{ipv4 = {}}, {udp = {}}", 16_385),
        ("{ipv4 = {}}, {udp = {source = 0}}", 65_536),
        ("{ipv4 = {}}, {udp = {source = 0}}", 65_537),
        ("{ipv4 = {}}, {tcp = {source = 65535}}", 5_000),
        ("{ipv4 = {}}, {tcp = {source = 65000}}", 100_003),
        ("{ipv6 = {}}, {udp = {}}", 100_003),
    ] {
        let fields = format!(
            "packet = [{{ethernet = {{}}}}, {headers}]\nflows = {flows}\nflow_macs = true\nsize = 128"
        );
        let mut source = source(&fields);
        let first = flow(source.clone().next_frame(0));
        let (mut seen, mut macs) = (HashSet::new(), HashSet::new());
        for _ in 0..flows {
            let frame = source.next_frame(0);
            assert!(seen.insert(flow(frame)), "twice in a round of {flows}");
            macs.insert(frame[6..12].to_vec());
        }
        assert_eq!((seen.len(), macs.len()), (flows, flows));
        assert_eq!(flow(source.next_frame(0)), first, "the round begins again");
    }
}

#[test]
fn ten_million_flows_are_ten_million_five_tuples() {
    let mut source = source("flows = 10000000\nsignature = false");
    // One bit for each combination of address and port.
    let mut seen = vec![0u64; 1024 * 65536 / 64];
    let base = u32::from_be_bytes([198, 18, 0, 1]);
    let mut distinct = 0;
    for _ in 0..10_000_000 {
        let frame = source.next_frame(0);
        let address = u32::from_be_bytes([frame[26], frame[27], frame[28], frame[29]]) - base;
        let port = usize::from(u16::from_be_bytes([frame[34], frame[35]]));
        let bit = address as usize * 65536 + port;
        distinct += usize::from(seen[bit / 64] >> (bit % 64) & 1 == 0);
        seen[bit / 64] |= 1 << (bit % 64);
    }
    assert_eq!(distinct, 10_000_000);
}

#[test]
fn a_template_is_sent_unchanged_but_for_modifiers() {
    // A DNS query with a wrong UDP checksum and a wrong IPv4 length.
    let frame = "0200000000020200000000010800 4500ffff000040004011 0000 0a0000010a000002 0400003500260bad \
                 000001000001000000000000076578616d706c6503636f6d0000010001";
    let mut kept = source(&format!("frame = '{frame}'\nfix_checksums = false\nsignature = false"));
    let bytes: Vec<u8> = frame.parse::<crate::header::HexBytes>().unwrap().0;
    assert_eq!(kept.next_frame(0), bytes);

    let mut fixed = source(&format!(
        "frame = '{frame}'\nsignature = false\nmodify = [{{field = 'ipv4.source', increment = {{count = 9}}}}]"
    ));
    for last in [1, 2, 3] {
        let made = fixed.next_frame(0);
        let judged = judge(made);
        assert_eq!(judged.headers, ["ethernet", "ipv4", "udp"]);
        assert_eq!(judged.payload, &bytes[42..]);
        assert_eq!(made[26..30], [10, 0, 0, last]);
    }
    let mut signed = source(&format!("frame = '{frame}'"));
    let made = signed.next_frame(7);
    judge(made);
    assert!(matches!(read_signature(made, FormSet::ALL), SignatureReading::Intact(_)));
}

#[test]
fn senders_that_share_a_stream_make_each_flow_once_together() {
    let all = source("flows = 70000");
    let mut seen = HashSet::new();
    for sender in 0..7 {
        let mut share = all.clone().share(sender, 7).unwrap();
        for sequence in 0..10_000 {
            assert_eq!(share.next_sequence(), sequence);
            assert!(seen.insert(flow(share.next_frame(0))));
        }
    }
    assert_eq!(seen.len(), 70_000);
    assert_eq!(all.clone().share(7, 7).unwrap_err(), ShareError { index: 7, of: 7 });
    assert_eq!(all.share(0, 0).unwrap_err(), ShareError { index: 0, of: 0 });
}

#[test]
fn a_frame_refused_by_a_short_slot_stays_the_next() {
    let mut source = source("");
    let mut slot = [7; 59];
    assert_eq!(source.of_one_size().unwrap().variation().write_next(0, &mut slot, false), None);
    assert_eq!((slot, source.next_sequence()), ([7; 59], 0));
}

#[test]
fn listed_random_and_nested_fields_take_their_values() {
    let mut source = source(
        "size = 128
         packet = [{ethernet = {}}, {vlan = {}}, {vlan = {}}, {ipv4 = {}}, {tcp = {}}]
         modify = [
            {field = 'vlan[1].id', list = [10, 20, 30]},
            {field = 'ipv4.source', increment = {count = 2, step = 256}, every = 3},
            {field = 'ipv4.destination', list = ['10.0.0.1', '10.0.0.2'], every = 6},
            {field = 'tcp.flags', list = ['S', 'SA']},
            {field = 'payload[1..4]', decrement = {count = 2, start = 0x010000}},
         ]",
    );
    let mut combinations = HashSet::new();
    for number in 0..24usize {
        let frame = source.next_frame(0);
        judge(frame);
        assert_eq!(u16::from_be_bytes([frame[18], frame[19]]), [10, 20, 30][number % 3]);
        assert_eq!(frame[34..38], [198, 18, (number / 3 % 2) as u8, 1]);
        assert_eq!(frame[38..42], [10, 0, 0, 1 + (number / 6 % 2) as u8]);
        assert_eq!(frame[55], [0x02, 0x12][number % 2]);
        assert_eq!(frame[63..66], [[1, 0, 0], [0, 0xff, 0xff]][number % 2]);
        combinations.insert(frame[18..42].to_vec());
    }
    assert_eq!(combinations.len(), 12, "3 tags times 2 sources times 2 destinations");
}

#[test]
fn headers_of_a_template_are_recognised_from_its_bytes() {
    for packet in [
        "{ethernet = {}}, {vlan = {}}, {vlan = {}}, {ipv4 = {}}, {udp = {}}",
        "{ethernet = {}}, {mpls = {}}, {mpls = {}}, {ipv6 = {}}, {tcp = {}}",
        "{ethernet = {}}, {ipv4 = {}}, {ipv6 = {}}, {icmpv6 = {}}",
        "{ethernet = {}}, {ipv4 = {}}, {udp = {}}, {vxlan = {}}, {ethernet = {}}, {ipv4 = {}}, {icmp = {}}",
        "{ethernet = {}}, {arp = {}}",
    ] {
        let made = source(&format!("size = 256\npacket = [{packet}]")).next_frame(0).to_vec();
        let mut broken = made.clone();
        // Lengths and checksums of an outermost IPv4 header are broken on purpose.
        if made[12..14] == [8, 0] {
            broken[16..18].fill(0xee);
            broken[24..26].fill(0xee);
        }
        let template = StreamDefinition::default().with_template(broken);
        assert_eq!(template.compile(1).unwrap().next_frame(0), made, "{packet}");
    }
    // IPv6 with a hop-by-hop header. The bytes after that header vary, and the checksum follows them.
    let mut frame =
        source("size = 128\npacket = [{ethernet = {}}, {ipv6 = {}}, {raw = '1100010400000000'}, {udp = {}}]");
    let mut bytes = frame.next_frame(0).to_vec();
    bytes[20] = 0;
    let mut template = StreamDefinition { flows: 3, ..StreamDefinition::default() }.with_template(bytes);
    template.signature = false;
    let mut source = template.compile(1).unwrap();
    for port in [49152u16, 49153, 49154] {
        let frame = source.next_frame(0);
        let packet = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
        let (Some(etherparse::NetSlice::Ipv6(ip)), Some(etherparse::TransportSlice::Udp(udp))) =
            (packet.net, packet.transport)
        else {
            panic!("not UDP over IPv6")
        };
        let (from, to) = (ip.header().source(), ip.header().destination());
        assert_eq!(udp.source_port(), port);
        assert_eq!(udp.checksum(), udp.to_header().calc_checksum_ipv6_raw(from, to, udp.payload()).unwrap());
    }
}

proptest! {
    #[test]
    fn any_bytes_can_be_a_template(bytes in prop::collection::vec(any::<u8>(), 1..200), kind in 0..6usize, fix: bool) {
        let mut frame = bytes;
        let ether_type = [0x0800u16, 0x86dd, 0x8100, 0x8847, 0x0806, 0x88a8][kind];
        if let Some(at) = frame.get_mut(12..14) {
            at.copy_from_slice(&ether_type.to_be_bytes());
        }
        // Version and header length are set correctly, so that the rest of the header is read.
        if let (true, Some(first)) = (kind < 2, frame.get_mut(14)) {
            *first = [0x45, 0x60][kind];
        }
        let mut template = StreamDefinition::default().with_template(frame.clone());
        template.fix_checksums = Some(fix);
        template.signature = false;
        let mut source = template.compile(1).unwrap();
        let made = source.next_frame(0);
        prop_assert_eq!(made.len(), frame.len().max(60));
        if !fix {
            prop_assert_eq!(&made[..frame.len()], &frame);
        }
    }
}

#[test]
fn random_sizes_differ_by_sender_and_are_repeatable() {
    let all = source("size = {range = [64, 1518], random_seed = 1}");
    let sizes = |sender| {
        let mut share = all.clone().share(sender, 2).unwrap();
        (0..100).map(|_| share.next_frame(0).len()).collect::<Vec<_>>()
    };
    assert_eq!(sizes(0), sizes(0));
    assert_ne!(sizes(0), sizes(1));
}
