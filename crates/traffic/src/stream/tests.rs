use etherparse::{LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;

fn template(fields: &FrameFields, bytes_with_fcs: u32, variation: Variation) -> FrameTemplate {
    FrameTemplate::new(fields, FrameSize::new(bytes_with_fcs).unwrap(), variation).unwrap()
}

/// Asserts that an independent parser finds lengths and checksums right; returns (source, source port, payload).
fn checked(frame: &[u8], fields: &FrameFields) -> ([u8; 6], u16, Vec<u8>) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(LinkSlice::Ethernet2(ethernet)) = packet.link else { panic!("no Ethernet header") };
    let Some(NetSlice::Ipv4(ipv4)) = packet.net else { panic!("no IPv4 header") };
    let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("no UDP header") };
    let header = ipv4.header().to_header();
    assert_eq!(ethernet.destination(), fields.destination.0);
    assert_eq!(header.source, fields.ipv4_source.octets());
    assert_eq!(header.destination, fields.ipv4_destination.octets());
    assert_eq!(usize::from(header.total_len), frame.len() - 14);
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert_eq!(usize::from(udp.length()), frame.len() - 34);
    assert_eq!(udp.destination_port(), fields.udp_destination_port);
    assert_eq!(
        udp.checksum(),
        udp.to_header().calc_checksum_ipv4_raw(header.source, header.destination, udp.payload()).unwrap()
    );
    assert_ne!(udp.checksum(), 0, "RFC 768: 0 says that there is none");
    (ethernet.source(), udp.source_port(), udp.payload().to_vec())
}

fn fields() -> impl Strategy<Value = FrameFields> {
    let addresses = (any::<[u8; 6]>(), any::<[u8; 6]>(), any::<[u8; 4]>(), any::<[u8; 4]>());
    let rest = (any::<u16>(), any::<u16>(), prop::collection::vec(any::<u8>(), 1..20));
    (addresses, rest).prop_map(|((destination, source, from, to), (source_port, port, payload))| {
        FrameFields {
            destination: MacAddress(destination),
            source: MacAddress(source),
            ipv4_source: from.into(),
            ipv4_destination: to.into(),
            udp_source_port: source_port,
            udp_destination_port: port,
            payload: PayloadPattern(payload),
        }
    })
}

fn variation() -> impl Strategy<Value = Variation> {
    (any::<bool>(), prop_oneof![1..5u32, 1..=MAX_FLOWS], any::<bool>()).prop_map(
        |(sequence_numbers, flows, flows_in_source_address)| Variation {
            sequence_numbers,
            flows,
            flows_in_source_address,
        },
    )
}

/// Numbers with all kinds of carries.
fn sequence() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, any::<u64>(), u64::MAX - 100..=u64::MAX]
}

fn frame_bytes() -> impl Strategy<Value = u32> {
    prop_oneof![64..70u32, 64..2000u32, 65530..=65539u32]
}

proptest! {
    #[test]
    fn every_frame_says_what_was_asked_with_right_checksums(
        fields in fields(), size in frame_bytes(), variation in variation(), number in sequence(),
    ) {
        let template = template(&fields, size, variation);
        let mut slot = vec![0xee; size as usize];
        prop_assert_eq!(template.write_into(number, &mut slot), Ok(size as usize - 4));
        prop_assert_eq!(&slot[size as usize - 4..], [0xee; 4]);

        let frame = &slot[..size as usize - 4];
        let (source, source_port, payload) = checked(frame, &fields);
        let flow = (number % u64::from(variation.flows)) as u16;
        prop_assert_eq!(source_port, fields.udp_source_port.wrapping_add(flow));
        let mut expected_source = fields.source.0;
        if variation.flows_in_source_address {
            let low = u16::from_be_bytes([expected_source[4], expected_source[5]]).wrapping_add(flow);
            expected_source[4..].copy_from_slice(&low.to_be_bytes());
        }
        prop_assert_eq!(source, expected_source);

        let mut expected: Vec<u8> = fields.payload.0.iter().copied().cycle().take(payload.len()).collect();
        if variation.sequence_numbers {
            expected[..8].copy_from_slice(&number.to_be_bytes());
            prop_assert_eq!(read_sequence(frame), Some(number));
        }
        prop_assert_eq!(payload, expected);
    }

    #[test]
    fn a_stream_makes_the_frames_that_the_template_writes(
        fields in fields(), size in 64..200u32, variation in variation(), first in sequence(),
    ) {
        let template = template(&fields, size, variation);
        let mut stream = FrameStream::new(template.clone(), first);
        let mut slot = vec![0; template.slot_bytes()];
        let mut slots = FrameStream::new(template.clone(), first);
        let mut next_slot = slot.clone();
        for ahead in 0..150 {
            let number = first.wrapping_add(ahead);
            prop_assert_eq!(stream.next_sequence(), number);
            template.write_into(number, &mut slot).unwrap();
            prop_assert_eq!(stream.frame(), &slot);
            prop_assert_eq!(slots.write_next(&mut next_slot), Ok(slot.len()));
            prop_assert_eq!(&next_slot, &slot);
        }
    }
}

#[test]
fn every_possible_checksum_is_right_the_one_that_would_be_zero_included() {
    let fields = FrameFields::default();
    let template = template(&fields, 64, Variation::default());
    let mut slot = [0; 60];
    let mut all_ones = 0;
    for number in 0..=u64::from(u16::MAX) {
        template.write_into(number, &mut slot).unwrap();
        checked(&slot, &fields);
        all_ones += u32::from(slot[40..42] == [0xff, 0xff]);
    }
    assert!(all_ones >= 1, "the case was not met");
}

#[test]
fn all_flows_are_met_in_turn_and_every_port_at_most_once_in_a_round() {
    let variation = Variation { flows: MAX_FLOWS, ..Variation::default() };
    let mut stream = FrameStream::new(template(&FrameFields::default(), 64, variation), 0);
    let mut port = || {
        let frame = stream.frame();
        u16::from_be_bytes([frame[34], frame[35]])
    };
    let mut seen = vec![false; 65536];
    for _ in 0..MAX_FLOWS {
        assert!(!std::mem::replace(&mut seen[usize::from(port())], true));
    }
    assert_eq!(port(), FrameFields::default().udp_source_port);
}

#[test]
fn no_flow_or_more_flows_than_ports_are_refused() {
    for flows in [0, MAX_FLOWS + 1] {
        let variation = Variation { flows, ..Variation::default() };
        let refused = FrameTemplate::new(&FrameFields::default(), FrameSize::MIN, variation).unwrap_err();
        assert_eq!(refused, StreamError::Flows { flows });
    }
}

#[test]
fn a_slot_too_short_is_refused_and_left_alone() {
    let mut slot = [7; 59];
    let template = template(&FrameFields::default(), 64, Variation::default());
    let refused = Err(StreamError::SlotTooShort { frame_bytes: 60, slot_bytes: 59 });
    assert_eq!(template.write_into(1, &mut slot), refused);
    let mut stream = FrameStream::new(template, 1);
    assert_eq!(stream.write_next(&mut slot), refused);
    assert_eq!(slot, [7; 59]);
    assert_eq!(stream.next_sequence(), 1);
}

#[test]
fn fragments_tags_options_and_other_protocols_carry_no_sequence_number() {
    let mut stream = FrameStream::new(template(&FrameFields::default(), 64, Variation::default()), 77);
    let frame = stream.frame().to_vec();
    assert_eq!(read_sequence(&frame), Some(77));
    assert_eq!(read_sequence(&frame[..49]), None);
    // Tag, options, more fragments, fragment offset, TCP, no room for the number.
    for (offset, byte) in [(12, 0x81), (14, 0x46), (20, 0x20), (21, 1), (23, 6), (39, 15)] {
        let mut other = frame.clone();
        other[offset] = byte;
        assert_eq!(read_sequence(&other), None, "byte {offset}");
    }
}

#[test]
fn payload_patterns_are_pairs_of_hexadecimal_digits() {
    assert_eq!("0x55AA".parse(), Ok(PayloadPattern(vec![0x55, 0xaa])));
    assert_eq!(PayloadPattern(vec![0, 0x5a]).to_string(), "005a");
    for text in ["", "0x", "5", "555", "+5", "zz", "é"] {
        assert_eq!(
            text.parse::<PayloadPattern>(),
            Err(StreamError::PayloadPattern { text: text.to_owned() })
        );
    }
}

#[test]
fn fields_are_read_from_text_with_defaults_for_what_is_left_out() {
    let text = r#"{"destination": "0a:00:00:00:00:01", "ipv4_source": "10.0.0.1", "payload": "ff"}"#;
    let expected = FrameFields {
        destination: MacAddress([10, 0, 0, 0, 0, 1]),
        ipv4_source: Ipv4Addr::new(10, 0, 0, 1),
        payload: PayloadPattern(vec![0xff]),
        ..FrameFields::default()
    };
    assert_eq!(serde_json::from_str::<FrameFields>(text).unwrap(), expected);
    let back = serde_json::to_string(&expected).unwrap();
    assert_eq!(serde_json::from_str::<FrameFields>(&back).unwrap(), expected);
    assert!(serde_json::from_str::<FrameFields>(r#"{"destination": "0a"}"#).is_err());
    assert!(serde_json::from_str::<FrameFields>(r#"{"vlan": 1}"#).is_err());
}
