//! Fuzz target: any bytes as the stream of a control connection. However they are split, the decoder finds the frames
//! that a plain reading of the format finds, stops at the same byte, and holds no more than its limit allows. The
//! messages in frames are the same after they are written and read again.
//!
//! Input: a byte N, N sizes of pieces (the last one repeats; 0 counts as 256), then the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_control::codec::{
    FrameDecoder, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, PREFIX_BYTES, decode_reply, decode_request,
    encode_reply, encode_request,
};

/// Bodies in `stream`, and whether a length over the limit ended the stream.
fn plain_reading(mut stream: &[u8], limit: usize) -> (Vec<&[u8]>, bool) {
    let mut bodies = Vec::new();
    while let Some((head, rest)) = stream.split_first_chunk() {
        let length = u32::from_le_bytes(*head) as usize;
        if length > limit {
            return (bodies, true);
        }
        let Some((body, rest)) = rest.split_at_checked(length) else { break };
        bodies.push(body);
        stream = rest;
    }
    (bodies, false)
}

fn split_reading(mut stream: &[u8], sizes: &[u8], limit: usize) -> (Vec<Vec<u8>>, bool) {
    let mut decoder = FrameDecoder::new(limit);
    let mut bodies = Vec::new();
    let mut sizes = sizes.iter();
    let mut size = usize::MAX;
    while !stream.is_empty() {
        size = sizes.next().map_or(size, |&size| if size == 0 { 256 } else { usize::from(size) });
        let (mut piece, rest) = stream.split_at(size.min(stream.len()));
        stream = rest;
        loop {
            let taken = decoder.take_frame(&mut piece);
            assert!(decoder.held_bytes() <= limit);
            match taken {
                Ok(Some(body)) => bodies.push(body),
                Ok(None) => break,
                Err(_) => return (bodies, true),
            }
        }
        assert!(piece.is_empty());
    }
    (bodies, false)
}

fuzz_target!(|input: &[u8]| {
    let Some((&count, rest)) = input.split_first() else { return };
    let (sizes, stream) = rest.split_at(usize::from(count).min(rest.len()));
    for limit in [64, MAX_REQUEST_BYTES, MAX_REPLY_BYTES] {
        let (bodies, refused) = split_reading(stream, sizes, limit);
        assert_eq!((bodies.iter().map(Vec::as_slice).collect(), refused), plain_reading(stream, limit));
    }
    for body in plain_reading(stream, MAX_REQUEST_BYTES).0 {
        match decode_request(body) {
            // Escapes may lengthen the message past the limit.
            Ok(request) => {
                if let Ok(frame) = encode_request(&request) {
                    assert_eq!(decode_request(&frame[PREFIX_BYTES..]), Ok(request));
                }
            }
            Err(refusal) => assert!(!refusal.message.chars().any(char::is_control)),
        }
        if let Ok(reply) = decode_reply(body) {
            let frame = encode_reply(&reply).unwrap();
            assert_eq!(decode_reply(&frame[PREFIX_BYTES..]), Ok(reply));
        }
    }
});
