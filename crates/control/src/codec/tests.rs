use proptest::prelude::*;

use super::*;
use crate::message::PortProperties;

const LIMIT: usize = 300;

fn frame(body: &[u8]) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], body].concat()
}

/// Every body in `stream`, fed in pieces of the given lengths (the last length repeats), and the error that ended the
/// decoder.
fn bodies(stream: &[u8], pieces: &[usize], limit: usize) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut decoder = FrameDecoder::new(limit);
    let mut found = Vec::new();
    let mut sizes = pieces.iter().copied();
    let mut size = usize::MAX;
    let mut left = stream;
    while !left.is_empty() {
        size = sizes.next().unwrap_or(size).max(1);
        let (mut piece, rest) = left.split_at(size.min(left.len()));
        left = rest;
        loop {
            let taken = decoder.take_frame(&mut piece);
            assert!(decoder.held_bytes() <= limit);
            match taken {
                Ok(Some(body)) => found.push(body),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (found, None)
}

#[test]
fn frames_fed_byte_by_byte_are_decoded_whole() {
    let stream = [frame(b"first"), frame(b""), frame(b"third")].concat();
    let expected = vec![b"first".to_vec(), Vec::new(), b"third".to_vec()];
    assert_eq!(bodies(&stream, &[1], LIMIT), (expected, None));
}

#[test]
fn the_longest_body_allowed_passes_and_one_byte_more_is_refused() {
    let (found, error) = bodies(&frame(&vec![7; LIMIT]), &[], LIMIT);
    assert_eq!((found.len(), error), (1, None));
    let (found, error) = bodies(&frame(&vec![7; LIMIT + 1]), &[], LIMIT);
    assert!(found.is_empty());
    assert_eq!(error, Some(FrameError::TooLong { announced_bytes: LIMIT + 1, max_bytes: LIMIT }));
}

#[test]
fn a_refused_length_ends_the_stream() {
    let mut decoder = FrameDecoder::new(LIMIT);
    assert!(decoder.take_frame(&mut &u32::MAX.to_le_bytes()[..]).is_err());
    let good = frame(b"good");
    let mut input = good.as_slice();
    assert!(decoder.take_frame(&mut input).is_err());
    assert_eq!(input.len(), good.len());
}

#[test]
fn a_length_allocates_no_memory_before_its_bytes_come() {
    let mut decoder = FrameDecoder::new(MAX_REPLY_BYTES);
    let prefix = u32::try_from(MAX_REPLY_BYTES).unwrap().to_le_bytes();
    assert_eq!(decoder.take_frame(&mut &prefix[..]), Ok(None));
    assert!(decoder.is_within_frame());
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn a_request_over_the_limit_is_not_encoded() {
    let request =
        Request::Open { name: "x".repeat(MAX_REQUEST_BYTES), properties: PortProperties::default() };
    assert!(matches!(encode_request(&request), Err(EncodeError::TooLong { .. })));
}

#[test]
fn an_invalid_request_is_a_bad_request() {
    let deep = "[".repeat(MAX_REQUEST_BYTES);
    for body in ["", "null", "\"fly\"", "{\"stop\":1}", "{\"detach\":{}}", "\u{0}", &deep] {
        assert_eq!(decode_request(body.as_bytes()).unwrap_err().kind, ErrorKind::BadRequest, "{body:.20}");
    }
    let unknown_field = br#"{"open":{"name":"vale0:a","wish":{"rings":2}}}"#;
    assert_eq!(decode_request(unknown_field).unwrap_err().kind, ErrorKind::BadRequest);
}

#[test]
fn a_refusal_quotes_little_and_no_control_character() {
    let body = format!("\"\\u001b[2J\\n{}\"", "x".repeat(5000));
    let message = decode_request(body.as_bytes()).unwrap_err().message;
    assert!(!message.chars().any(char::is_control), "{message}");
    assert!(message.len() < 2 * QUOTED_CHARS, "{message}");
    assert!(message.contains('x'));
}

#[test]
fn each_property_may_be_omitted() {
    let request = decode_request(br#"{"open":{"name":"vale0:a","wish":{"slots":64}}}"#).unwrap();
    let properties = PortProperties { slots: Some(64), ..PortProperties::default() };
    assert_eq!(request, Request::Open { name: "vale0:a".to_owned(), properties });
}

proptest! {
    #[test]
    fn frames_survive_any_splitting(
        sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..LIMIT), 0..8),
        pieces in prop::collection::vec(1usize..64, 1..32),
    ) {
        let stream = sent.iter().flat_map(|body| frame(body)).collect::<Vec<_>>();
        prop_assert_eq!(bodies(&stream, &pieces, LIMIT), (sent, None));
    }

    #[test]
    fn garbage_decodes_alike_for_any_splitting(
        stream in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..2000),
        pieces in prop::collection::vec(1usize..64, 1..32),
    ) {
        prop_assert_eq!(bodies(&stream, &pieces, LIMIT), bodies(&stream, &[], LIMIT));
    }

    #[test]
    fn no_body_makes_decoding_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_reply(&body);
        if let Err(refusal) = decode_request(&body) {
            prop_assert_eq!(refusal.kind, ErrorKind::BadRequest);
        }
    }

    #[test]
    fn any_open_request_round_trips(
        name: String, queues: Option<u16>, slots: Option<u32>, extra_buffers: u32, tx: bool, rx: bool,
    ) {
        let properties = PortProperties { queues, slots, extra_buffers, tx, rx, ..PortProperties::default() };
        let request = Request::Open { name, properties };
        let encoded = encode_request(&request).unwrap();
        prop_assert_eq!(decode_request(&encoded[PREFIX_BYTES..]), Ok(request));
    }
}
