//! Sends frames through a forwarder and compares them with the frames that come out.

use std::time::{Duration, Instant};

use ringroad::{Interest, Queue};

use crate::daemon::PATIENCE;
use crate::frames::{number_of, numbered, station};

/// Frames under way at most: what passes them on drops where a ring is full, and the smallest ring of a test has 64
/// entries.
const UNDER_WAY: usize = 50;
/// How long a frame may take before another is sent after it, while the receiver may not be ready yet.
const PROBE: Duration = Duration::from_millis(20);

/// Carries frames from `a` to `b`, with `seed` as their sender, and back, with the next.
///
/// # Panics
/// If a frame is lost or comes changed.
pub fn both_ways(a: &mut Queue, b: &mut Queue, lengths: &[usize], seed: u8, frames: usize) {
    carry(a, b, lengths, seed, frames);
    carry(b, a, lengths, seed + 1, frames);
}

/// Repeats a frame from one queue to the other until it arrives; `seed` is the station that sends it. False if
/// `goes_on` returns false, or if nothing arrives for long.
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

/// Sends `frames` frames, of `lengths` in turn, from one queue to the other and compares what comes; `seed` is the
/// station that sends them. Frames are lost while a component on the way still starts, so a first frame is repeated
/// until it arrives.
///
/// # Panics
/// If a frame is lost or comes changed.
pub fn carry(from: &mut Queue, to: &mut Queue, lengths: &[usize], seed: u8, frames: usize) {
    let source = station(seed);
    let make = |number: usize| {
        let mut frame = numbered([0xFF; 6], source, number as u64, lengths[number % lengths.len()]);
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
            // Frames arrive before all slots come back: another worker may still have copies of them to make.
            assert!(from.wait(Interest::Tx, PATIENCE).unwrap(), "no slot came back after {sent} frames");
            continue;
        }
        // What is under way wakes us.
        assert!(to.wait(Interest::Rx, PATIENCE).unwrap(), "{came} of {sent} frames came through");
        frame.clear();
        while to.rx().receive(&mut frame).is_some() {
            if number_of(&frame, source).is_some_and(|number| number != u64::MAX) {
                assert!(frame == make(came), "frame {came} of {} bytes came changed", frame.len());
                came += 1;
            }
            frame.clear();
        }
    }
}
