//! Assignment of a capture's stations to programs, and the frames that each program must receive.

use std::collections::BTreeMap;
use std::path::Path;

use ringroad_capture::CaptureReader;
use ringroad_wire::mac::Mac;
use serde::Serialize;

use crate::failure::Failure;

/// An Ethernet address as in a frame.
pub(super) type Address = [u8; 6];

/// Assignment of the capture's stations to ports.
#[derive(Debug)]
pub(super) struct StationPlan {
    pub(super) frames: u64,
    pub(super) first_ns: u64,
    last_ns: u64,
    /// Letter of the program for each station.
    pub(super) stations: BTreeMap<Address, char>,
}

/// Comparison of the frames that a program should have received with its recording.
#[derive(Debug, Serialize)]
pub(super) struct Expectation {
    /// Letter of the program.
    pub(super) program: char,
    /// Number of frames that the program should have received.
    pub(super) expected_frames: u64,
    /// Number of frames addressed to the program's stations.
    pub(super) own_frames: u64,
    /// Number of frames in the program's recording.
    pub(super) recorded_frames: u64,
    /// Whether the recording holds exactly the expected frames, in order.
    pub(super) identical: bool,
}

fn address(frame: &[u8], at: usize) -> Option<Address> {
    frame.get(at..at + 6)?.try_into().ok()
}

impl StationPlan {
    /// Reads the capture, and assigns the sending stations to the programs b and c in turn.
    pub(super) fn read(capture: &Path) -> Result<Self, Failure> {
        let mut reader = CaptureReader::open(capture)?;
        let mut plan = Self { frames: 0, first_ns: u64::MAX, last_ns: 0, stations: BTreeMap::new() };
        while let Some(frame) = reader.next_frame()? {
            plan.frames += 1;
            plan.first_ns = plan.first_ns.min(frame.timestamp_ns);
            plan.last_ns = plan.last_ns.max(frame.timestamp_ns);
            if let Some(source) = address(frame.bytes, 6)
                && source[0] & 1 == 0
            {
                let letter = if plan.stations.len().is_multiple_of(2) { 'b' } else { 'c' };
                plan.stations.entry(source).or_insert(letter);
            }
        }
        if plan.stations.len() < 2 {
            return Err(Failure::new("the capture has fewer than two stations", "choose one with more"));
        }
        Ok(plan)
    }

    /// Returns the length of the capture, seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9
    }

    /// Returns the stations of a program.
    pub(super) fn of(&self, letter: char) -> Vec<String> {
        let own = self.stations.iter().filter(|(_, home)| **home == letter);
        own.map(|(station, _)| Mac::from(*station).to_string()).collect()
    }

    /// Compares a program's recording with the frames that it must have received according to the capture: frames to
    /// its stations, broadcasts, and frames to stations that never sent.
    pub(super) fn compare(
        &self,
        letter: char,
        capture: &Path,
        record: &Path,
    ) -> Result<Expectation, Failure> {
        let mut reader = CaptureReader::open(capture)?;
        let mut recorded = CaptureReader::open(record)?;
        let mut result = Expectation {
            program: letter,
            expected_frames: 0,
            own_frames: 0,
            recorded_frames: 0,
            identical: true,
        };
        while let Some(frame) = reader.next_frame()? {
            // The switch drops a frame without a complete Ethernet header, and counts it as too_short.
            let Some(destination) = address(frame.bytes, 0).filter(|_| frame.bytes.len() >= 14) else {
                continue;
            };
            let home = self.stations.get(&destination);
            if home.is_some_and(|home| *home != letter) {
                continue;
            }
            result.expected_frames += 1;
            result.own_frames += u64::from(home.is_some());
            match recorded.next_frame()? {
                Some(got) => {
                    result.recorded_frames += 1;
                    result.identical &= got.bytes == frame.bytes;
                }
                None => result.identical = false,
            }
        }
        while recorded.next_frame()?.is_some() {
            result.recorded_frames += 1;
            result.identical = false;
        }
        Ok(result)
    }
}
