mod judge;
mod random_streams;

use std::collections::HashSet;

use self::judge::judge;
use super::*;
use crate::definition::{StreamDefinition, StreamList};
use crate::signature::{Reading, SignatureForm, read_signature};

/// The streams of a TOML text.
fn streams(text: &str) -> Vec<StreamDefinition> {
    StreamList::read(toml::Deserializer::parse(text).unwrap()).unwrap().streams
}

/// The source of the only stream, whose table has `fields`.
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
        let Reading::Intact(signature) = read_signature(&frame, FormSet::ALL) else { panic!("not signed") };
        assert_eq!((signature.form, signature.stream), (SignatureForm::Compact, 1));
        assert_eq!((signature.sequence_low, signature.timestamp_low), (sequence, 1000 + sequence));
    }
}

#[test]
fn imix_has_exactly_its_shares_in_every_dozen_of_frames() {
    let mut source = source("size = 'imix'");
    assert_eq!(source.size_genome(), "aAaaAaAagaAa A=594");
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
fn exactly_as_many_flows_appear_as_were_asked_for() {
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
    // One bit for each address and port that there can be.
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
fn a_template_is_sent_as_it_is_but_for_what_is_asked() {
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
    assert!(matches!(read_signature(made, FormSet::ALL), Reading::Intact(_)));
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
fn a_slot_too_short_is_refused_and_the_frame_is_still_the_next() {
    let mut source = source("");
    let mut slot = [7; 59];
    let refused = SlotTooShort { frame_bytes: 60, slot_bytes: 59 };
    assert_eq!(source.write_next(0, &mut slot), Err(refused));
    assert_eq!((slot, source.next_sequence()), ([7; 59], 0));
}
