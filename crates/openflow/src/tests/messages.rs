//! Tests that written messages are read alike.

use proptest::prelude::*;

use super::sample::Sample;
use crate::message::{MAX_BYTES, MultipartReply, MultipartReplyMessage, PortStats};
use crate::{ControllerMessage, SwitchMessage, TooLong, first_message};

fn messages(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Some(message) = first_message(stream).unwrap() {
        stream = &stream[message.len()..];
        messages.push(message);
    }
    assert!(stream.is_empty());
    messages
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_read_as_it_was_written(request in ControllerMessage::sample(), xid: u32) {
        let mut bytes = Vec::new();
        request.encode(xid, &mut bytes).unwrap();
        prop_assert_eq!(first_message(&bytes), Ok(Some(&bytes[..])));
        prop_assert_eq!(ControllerMessage::decode(&bytes), Ok((xid, request)));
    }

    #[test]
    fn a_reply_is_read_as_it_was_written(reply in SwitchMessage::sample(), xid: u32) {
        let mut bytes = Vec::new();
        reply.encode(xid, &mut bytes).unwrap();
        prop_assert_eq!(SwitchMessage::decode(&bytes), Ok((xid, reply)));
    }

    /// A message that was cut is refused. A damaged message is refused or decoded, and a decoded message can be encoded.
    #[test]
    fn a_cut_message_ends_in_an_error_and_a_damaged_one_in_an_error_or_a_message(
        request in ControllerMessage::sample(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let mut bytes = Vec::new();
        request.encode(1, &mut bytes).unwrap();
        prop_assert!(ControllerMessage::decode(&bytes[..cut.index(bytes.len())]).is_err());
        *at.get_mut(&mut bytes) = byte;
        if let Ok((xid, read)) = ControllerMessage::decode(&bytes) {
            let mut again = Vec::new();
            read.encode(xid, &mut again).unwrap();
            prop_assert_eq!(ControllerMessage::decode(&again), Ok((xid, read)));
        }
        let _ = SwitchMessage::decode(&bytes);
    }

    #[test]
    fn any_bytes_end_in_an_error_or_a_message(kind in 0u8..32, body: Vec<u8>) {
        let mut bytes = vec![4, kind, 0, 0, 0, 0, 0, 0];
        bytes.extend(body);
        let length = (bytes.len() as u16).to_be_bytes();
        bytes[2..4].copy_from_slice(&length);
        let _ = ControllerMessage::decode(&bytes);
        let _ = SwitchMessage::decode(&bytes);
    }
}

fn ports(count: u32) -> Vec<PortStats> {
    let port = |number| PortStats {
        port: crate::PortNo(number),
        rx_packets: number.into(),
        tx_packets: 0,
        rx_bytes: 0,
        tx_bytes: 0,
        rx_dropped: 0,
        tx_dropped: 0,
        rx_errors: 0,
        tx_errors: 0,
        rx_frame_errors: 0,
        rx_overruns: 0,
        rx_crc_errors: 0,
        collisions: 0,
        duration_s: 0,
        duration_ns: 0,
    };
    (1..=count).map(port).collect()
}

#[test]
fn a_list_that_is_too_long_for_one_message_goes_into_several_and_only_the_last_ends_it() {
    // A message has room for 584 ports: (65535 - 16) / 112.
    for (count, expected) in
        [(0, vec![0]), (584, vec![584]), (585, vec![584, 1]), (2000, vec![584, 584, 584, 248])]
    {
        for more in [false, true] {
            let all = ports(count);
            let reply = SwitchMessage::Multipart(MultipartReplyMessage {
                more,
                reply: MultipartReply::Ports(all.clone()),
            });
            let mut bytes = b"before".to_vec();
            reply.encode(9, &mut bytes).unwrap();
            let mut found = Vec::new();
            let mut counts = Vec::new();
            let messages = messages(&bytes[6..]);
            for (at, message) in messages.iter().enumerate() {
                assert!(message.len() <= MAX_BYTES);
                let (9, SwitchMessage::Multipart(part)) = SwitchMessage::decode(message).unwrap() else {
                    panic!("{message:?}")
                };
                assert_eq!(part.more, more || at + 1 < messages.len());
                let MultipartReply::Ports(ports) = part.reply else { panic!("{part:?}") };
                counts.push(ports.len());
                found.extend(ports);
            }
            assert_eq!(counts, expected);
            assert_eq!(found, all);
        }
    }
}

#[test]
fn what_is_too_long_is_refused_and_nothing_of_it_is_left() {
    let mut bytes = b"before".to_vec();
    let echo = |length: usize| ControllerMessage::EchoRequest(vec![0; length]);
    assert_eq!(echo(65_528).encode(1, &mut bytes), Err(TooLong));
    assert_eq!(bytes, b"before");
    echo(65_527).encode(1, &mut bytes).unwrap();
    assert_eq!(ControllerMessage::decode(&bytes[6..]), Ok((1, echo(65_527))));

    let data = crate::message::Experimenter { experimenter: 1, kind: 2, data: vec![0; 65_512] };
    let reply = MultipartReplyMessage { more: false, reply: MultipartReply::Experimenter(data) };
    bytes.truncate(6);
    assert_eq!(SwitchMessage::Multipart(reply).encode(1, &mut bytes), Err(TooLong));
    assert_eq!(bytes, b"before");
}

#[test]
fn a_stream_is_cut_by_the_lengths_in_it() {
    assert_eq!(first_message(&[4, 0, 0]), Ok(None));
    assert_eq!(first_message(&[4, 0, 0, 8, 0, 0, 0]), Ok(None));
    assert_eq!(first_message(&[4, 0, 0, 8, 0, 0, 0, 1, 4]), Ok(Some(&[4, 0, 0, 8, 0, 0, 0, 1][..])));
    assert_eq!(first_message(&[4, 0, 0, 7, 0, 0, 0, 1]), Err(crate::ErrorCode::REQUEST_BAD_LEN));
}
