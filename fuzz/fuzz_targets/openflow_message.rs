//! Fuzz target: any bytes as a stream of OpenFlow messages, to a switch and from one. Reading them ends without a
//! panic, and messages that were read are the same after they are written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_openflow::{ControllerMessage, ErrorMessage, SwitchMessage, first_message};

fuzz_target!(|data: &[u8]| {
    let mut stream = data;
    while let Ok(Some(message)) = first_message(stream) {
        stream = &stream[message.len()..];
        let mut out = Vec::new();
        match ControllerMessage::decode(message) {
            Ok((xid, request)) => {
                request.encode(xid, &mut out).expect("no longer than what was read");
                assert_eq!(ControllerMessage::decode(&out), Ok((xid, request)));
            }
            Err(code) => {
                SwitchMessage::Error(ErrorMessage::about(message, code))
                    .encode(1, &mut out)
                    .expect("an error is short");
            }
        }
        out.clear();
        if let Ok((xid, reply)) = SwitchMessage::decode(message) {
            reply.encode(xid, &mut out).expect("no longer than what was read");
            assert_eq!(SwitchMessage::decode(&out), Ok((xid, reply)));
        }
    }
});
