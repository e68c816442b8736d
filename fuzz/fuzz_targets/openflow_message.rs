//! Any bytes as a stream of OpenFlow messages, to a switch and from one. Reading them ends without a panic, and what
//! was understood is written and read alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_openflow::{ErrorMessage, Reply, Request, first_message};

fuzz_target!(|data: &[u8]| {
    let mut stream = data;
    while let Ok(Some(message)) = first_message(stream) {
        stream = &stream[message.len()..];
        let mut out = Vec::new();
        match Request::decode(message) {
            Ok((xid, request)) => {
                request.encode(xid, &mut out).expect("no longer than what was read");
                assert_eq!(Request::decode(&out), Ok((xid, request)));
            }
            Err(code) => {
                Reply::Error(ErrorMessage::about(message, code))
                    .encode(1, &mut out)
                    .expect("an error is short");
            }
        }
        out.clear();
        if let Ok((xid, reply)) = Reply::decode(message) {
            reply.encode(xid, &mut out).expect("no longer than what was read");
            assert_eq!(Reply::decode(&out), Ok((xid, reply)));
        }
    }
});
