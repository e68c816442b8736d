//! Fuzz target: any bytes as messages of memif's control socket. Reading them ends without a panic, and messages that
//! were read are the same after they are written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_drivers::memif::message::{MESSAGE_BYTES, MemifMessage, NAME_BYTES, REASON_BYTES, SECRET_BYTES};

fuzz_target!(|data: &[u8]| {
    for part in data.chunks(MESSAGE_BYTES) {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..part.len()].copy_from_slice(part);
        let Ok(message) = MemifMessage::parse(&bytes) else { continue };
        match &message {
            MemifMessage::Init(init) => {
                assert!(init.secret.len() <= SECRET_BYTES && !init.secret.contains(&0))
            }
            // An invalid byte becomes a character of three bytes.
            MemifMessage::Connect(name) | MemifMessage::Connected(name) => {
                assert!(name.len() <= 3 * NAME_BYTES)
            }
            MemifMessage::Disconnect { reason, .. } => {
                assert!(reason.len() <= 3 * REASON_BYTES && !reason.chars().any(char::is_control));
            }
            _ => {}
        }
        // A character of three bytes may not fit any more; a text that was cut once is stable.
        let again = MemifMessage::parse(&message.to_bytes());
        let cut = again.clone().map(|message| MemifMessage::parse(&message.to_bytes()));
        assert_eq!(cut, Ok(again));
    }
});
