//! Any bytes as messages of memif's control socket. Reading them ends without a panic, and what was understood is
//! written and read alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_drivers::memif::message::{MESSAGE_BYTES, Message, NAME_BYTES, REASON_BYTES, SECRET_BYTES};

fuzz_target!(|data: &[u8]| {
    for part in data.chunks(MESSAGE_BYTES) {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..part.len()].copy_from_slice(part);
        let Ok(message) = Message::parse(&bytes) else { continue };
        match &message {
            Message::Init(init) => assert!(init.secret.len() <= SECRET_BYTES && !init.secret.contains(&0)),
            // An invalid byte becomes a character of three bytes.
            Message::Connect(name) | Message::Connected(name) => assert!(name.len() <= 3 * NAME_BYTES),
            Message::Disconnect { reason, .. } => {
                assert!(reason.len() <= 3 * REASON_BYTES && !reason.chars().any(char::is_control));
            }
            _ => {}
        }
        // Such a character may not fit any more: what was cut once is stable.
        let again = Message::parse(&message.to_bytes());
        let cut = again.clone().map(|message| Message::parse(&message.to_bytes()));
        assert_eq!(cut, Ok(again));
    }
});
