//! Makes, sends and reads the frames of the tests.

use std::path::Path;

use ringroad::{Interest, Port};
use ringroad_capture::CaptureReader;

use crate::daemon::PATIENCE;

/// A locally administered station address.
#[must_use]
pub fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0x77, number]
}

/// A frame with a type for local experiments and a number in its first payload bytes.
#[must_use]
pub fn numbered(destination: [u8; 6], source: [u8; 6], number: u64, len: usize) -> Vec<u8> {
    let mut frame = vec![0x5A; len.max(22)];
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Returns the number of a frame from `source`; `None` for frames from other sources.
#[must_use]
pub fn number_of(frame: &[u8], source: [u8; 6]) -> Option<u64> {
    if frame.get(6..12)? != source || frame.get(12..14)? != [0x88, 0xB5] {
        return None;
    }
    Some(u64::from_be_bytes(frame.get(14..22)?.try_into().ok()?))
}

/// Sends one frame; waits for room in the ring if necessary.
///
/// # Panics
/// If the port fails.
pub fn send(port: &mut Port, frame: &[u8]) {
    while !port.tx().send(frame).unwrap() {
        assert!(port.wait(Interest::Tx, PATIENCE).unwrap(), "no room for a frame");
    }
}

/// Waits for the next frame.
///
/// # Panics
/// If no frame comes within the time limit.
#[must_use]
pub fn receive(port: &mut Port) -> Vec<u8> {
    let mut frame = Vec::new();
    while port.rx().receive(&mut frame).is_none() {
        assert!(port.wait(Interest::Rx, PATIENCE).unwrap(), "no frame came");
    }
    frame
}

/// Waits for the next frame from `source`, and skips the frames of other senders.
///
/// # Panics
/// If no frame comes within the time limit.
#[must_use]
pub fn receive_from(port: &mut Port, source: [u8; 6]) -> Vec<u8> {
    loop {
        let frame = receive(port);
        if number_of(&frame, source).is_some() {
            return frame;
        }
    }
}

/// Returns the frames of a capture file.
///
/// # Panics
/// If the file cannot be read to its end.
#[must_use]
pub fn read_capture(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        frames.push(frame.bytes.to_vec());
    }
    frames
}
