//! Sends frames through a forwarder and compares them with the frames that arrive.

use std::time::{Duration, Instant};

use ringroad::{Interest, Queue};

use crate::daemon::PATIENCE;
use crate::frames::{number_of, numbered, station};

/// Maximum number of frames in flight. The forwarder drops frames if a ring is full, and the smallest ring of a test
/// has 64 entries.
const UNDER_WAY: usize = 50;
/// Time after which an unanswered probe frame is sent again, since the receiver may not be ready yet.
const PROBE: Duration = Duration::from_millis(20);

/// Carries frames from `a` to `b` and back. Station `seed` sends the first frames, and station `seed + 1` those on the
/// way back.
///
/// # Panics
/// If a frame is lost or arrives changed.
pub fn both_ways(a: &mut Queue, b: &mut Queue, lengths: &[usize], seed: u8, frames: usize) {
    carry(a, b, lengths, seed, frames);
    carry(b, a, lengths, seed + 1, frames);
}

/// Sends the same frame from one queue to the other until it arrives. Station `seed` is its sender. Returns false if
/// `goes_on` returns false, or if nothing arrives within the time limit.
///
/// # Panics
/// If a queue cannot be used.
pub fn reaches(from: &mut Queue, to: &mut Queue, seed: u8, mut goes_on: impl FnMut() -> bool) -> bool {
    let probe = numbered([0xFF; 6], station(seed), u64::MAX, 60);
    let deadline = Instant::now() + PATIENCE.unwrap();
    let mut frame = Vec::new();
    while frame != probe {
        if !goes_on() || Instant::now() >= deadline {
            return false;
        }
        from.tx().send(&probe).unwrap();
        from.sync().unwrap();
        to.wait(Interest::Rx, Some(PROBE)).unwrap();
        while frame != probe {
            frame.clear();
            if to.rx().receive(&mut frame).is_none() {
                break;
            }
        }
    }
    true
}

/// Sends `frames` frames from one queue to the other and compares those that arrive. Their lengths are `lengths` in
/// turn, and station `seed` is their sender. Frames are lost while a component of the path still starts, so a first
/// frame is repeated until it arrives.
///
/// # Panics
/// If a frame is lost or arrives changed.
pub fn carry(from: &mut Queue, to: &mut Queue, lengths: &[usize], seed: u8, frames: usize) {
    carry_to([0xFF; 6], from, to, lengths, seed, frames);
}

/// Carries frames as [`carry`] does, to one station.
///
/// # Panics
/// If a frame is lost or arrives changed.
pub fn carry_to(
    destination: [u8; 6],
    from: &mut Queue,
    to: &mut Queue,
    lengths: &[usize],
    seed: u8,
    frames: usize,
) {
    let source = station(seed);
    let make = |number: usize| {
        let mut frame = numbered(destination, source, number as u64, lengths[number % lengths.len()]);
        for (offset, byte) in frame.iter_mut().enumerate().skip(22) {
            *byte = (number * 31 + offset * 7) as u8;
        }
        frame
    };
    assert!(reaches(from, to, seed, || true), "nothing comes through");
    let mut frame = Vec::new();
    let (mut sent, mut came) = (0, 0);
    while came < frames {
        while sent < frames && sent - came < UNDER_WAY && from.tx().send(&make(sent)).unwrap() {
            sent += 1;
        }
        from.sync().unwrap();
        if came == sent {
            // Slots may come back after their frames have arrived: another worker may still have to copy the frames.
            assert!(from.wait(Interest::Tx, PATIENCE).unwrap(), "no slot came back after {sent} frames");
            continue;
        }
        // Frames in flight end this wait when they arrive.
        assert!(to.wait(Interest::Rx, PATIENCE).unwrap(), "{came} of {sent} frames came through");
        frame.clear();
        while to.rx().receive(&mut frame).is_some() {
            if number_of(&frame, source).is_some_and(|number| number != u64::MAX) {
                let sent = make(came);
                let changed = sent.iter().zip(&frame).position(|(sent, received)| sent != received);
                assert!(
                    frame == sent,
                    "frame {came} of {} bytes came with {} bytes, changed from byte {changed:?} on: {:?}",
                    sent.len(),
                    frame.len(),
                    frame.iter().skip(changed.unwrap_or(0)).take(24).collect::<Vec<_>>()
                );
                came += 1;
            }
            frame.clear();
        }
    }
}
