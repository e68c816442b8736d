//! Frames whose every byte follows from their number, and their way from one port to another.

use std::fmt;
use std::time::Duration;

use ringroad::{Interest, Port, PortError};
use ringroad_tests::frames::station;

/// Maximum number of frames under way, fewer than any ring holds.
const UNDER_WAY: usize = 16;
/// Time without a frame after which the missing ones are lost. An emulated card is slow.
const SILENCE: Duration = Duration::from_secs(10);
/// Number of flows, by different source addresses and ports: some cards spread UDP by addresses alone.
const FLOWS: u64 = 32;
/// Length of the headers: Ethernet, IPv4 and UDP, bytes.
const HEADER_BYTES: usize = 42;
/// Shortest frame, bytes without FCS.
pub(crate) const SHORTEST: usize = 60;

/// Reasons why frames did not pass whole, as text.
#[derive(Debug)]
pub(crate) enum PassageError {
    /// Frames are missing.
    Lost(String),
    /// A frame came that nobody sent, twice, or with other bytes; or a port failed.
    Other(String),
}

impl fmt::Display for PassageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Lost(reason) | Self::Other(reason)) = self;
        f.write_str(reason)
    }
}

impl From<PortError> for PassageError {
    fn from(error: PortError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<String> for PassageError {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

/// Frames of one exchange. A station sends them in turn to another station, to a station that does not exist, to a
/// group, and to all, in several flows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassageFrames<'a> {
    /// Number of the sending station: 1 is on the switch, 2 at the far end of the cable.
    pub(crate) source: u8,
    /// Number of the exchange: late frames of an earlier exchange have another one.
    pub(crate) exchange: u32,
    /// Lengths of the frames in turn, bytes without FCS.
    pub(crate) lengths: &'a [usize],
    /// Number of frames.
    pub(crate) count: usize,
}

impl PassageFrames<'_> {
    /// Sends the frames and compares those that arrive.
    fn carry(&self, from: &mut Port, to: &mut Port) -> Result<(), PassageError> {
        let mut arrived = vec![false; self.count];
        let (mut sent, mut came) = (0, 0);
        let mut frame = Vec::new();
        while came < self.count {
            while sent < self.count && sent - came < UNDER_WAY && from.tx().send(&self.frame(sent))? {
                sent += 1;
            }
            from.sync()?;
            if came == sent {
                if !from.wait(Interest::Tx, Some(SILENCE))? {
                    return Err(format!("no slot came back after {sent} frames {}", self.way()).into());
                }
                continue;
            }
            if !to.wait(Interest::Rx, Some(SILENCE))? {
                let lost = format!("{came} of {sent} frames came {}", self.way());
                return Err(PassageError::Lost(lost));
            }
            frame.clear();
            while to.rx().receive(&mut frame).is_some() {
                if let Some(number) = self.judge(&frame)? {
                    if std::mem::replace(&mut arrived[number], true) {
                        return Err(format!("frame {number} came twice {}", self.way()).into());
                    }
                    came += 1;
                }
                frame.clear();
            }
        }
        Ok(())
    }

    /// Carries the frames from `one` to `other`, and those of station 2 back.
    pub(crate) fn carry_both_ways(&self, one: &mut Port, other: &mut Port) -> Result<(), PassageError> {
        self.carry(one, other)?;
        Self { source: 2, ..*self }.carry(other, one)
    }

    /// Sends the frames, which end in the interface.
    pub(crate) fn send(&self, from: &mut Port) -> Result<(), PassageError> {
        for number in 0..self.count {
            while !from.tx().send(&self.frame(number))? {
                if !from.wait(Interest::Tx, Some(SILENCE))? {
                    return Err(format!("no slot came back after {number} frames").into());
                }
            }
            from.sync()?;
        }
        Ok(())
    }

    /// Number of a whole frame of this exchange; `None` for a frame of an earlier one.
    fn judge(&self, frame: &[u8]) -> Result<Option<usize>, PassageError> {
        let unknown = || {
            let start: String = frame.iter().take(24).map(|byte| format!("{byte:02x}")).collect();
            let (bytes, way) = (frame.len(), self.way());
            PassageError::from(format!("a frame of {bytes} bytes that nobody sent ({start}...) came {way}"))
        };
        let number = frame.get(HEADER_BYTES..HEADER_BYTES + 8).ok_or_else(unknown)?;
        let number = u64::from_be_bytes(number.try_into().unwrap());
        if frame[6..12] != station(self.source) {
            return Err(unknown());
        }
        let index = (number & u64::from(u32::MAX)) as usize;
        if number >> 32 != u64::from(self.exchange) {
            return if number >> 32 < u64::from(self.exchange) { Ok(None) } else { Err(unknown()) };
        }
        if index >= self.count {
            return Err(unknown());
        }
        let expected = self.frame(index);
        if frame != expected {
            let differs = frame.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(frame.len());
            return Err(PassageError::from(format!(
                "frame {index} of {} bytes came with {} bytes {}, changed from byte {differs} on",
                expected.len(),
                frame.len(),
                self.way()
            )));
        }
        Ok(Some(index))
    }

    /// Direction of the frames, as text.
    fn way(&self) -> &'static str {
        if self.source == 1 { "from the port" } else { "to the port" }
    }

    /// The frame with this index.
    fn frame(&self, index: usize) -> Vec<u8> {
        let len = self.lengths[index % self.lengths.len()].max(SHORTEST);
        let number = u64::from(self.exchange) << 32 | index as u64;
        let other = 3 - self.source;
        let mut frame = Vec::with_capacity(len);
        let destinations = [station(other), station(9), [1, 0, 0x5e, 0, 0, 9], [0xff; 6]];
        frame.extend(destinations[index % destinations.len()]);
        frame.extend(station(self.source));
        frame.extend([8, 0]);
        let flow = (number % FLOWS) as u8;
        frame.extend(ipv4_header((len - 14) as u16, [flow, self.source], [0, other]));
        frame.extend((49152 + u16::from(flow)).to_be_bytes());
        frame.extend(9_u16.to_be_bytes());
        frame.extend(((len - 34) as u16).to_be_bytes());
        // UDP without a checksum.
        frame.extend([0, 0]);
        frame.extend(number.to_be_bytes());
        // Each byte depends on number and offset, so neither a shifted nor an exchanged piece is as expected.
        frame.extend((frame.len()..len).map(|offset| {
            let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (offset as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
            (mixed >> 32) as u8
        }));
        frame
    }
}

/// Header of a UDP packet between two hosts of 198.18.0.0/16, with its checksum.
fn ipv4_header(packet_bytes: u16, source: [u8; 2], destination: [u8; 2]) -> [u8; 20] {
    let [high, low] = packet_bytes.to_be_bytes();
    let ([a, b], [c, d]) = (source, destination);
    let mut header = [0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, a, b, 198, 18, c, d];
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lengths: &[usize]) -> PassageFrames<'_> {
        PassageFrames { source: 1, exchange: 7, lengths, count: 8 }
    }

    #[test]
    fn a_whole_frame_is_known_by_its_number_and_any_other_is_reported() {
        let frames = frames(&[60, 1514, 9014]);
        for index in 0..8 {
            assert_eq!(frames.judge(&frames.frame(index)).unwrap(), Some(index));
        }
        let long = frames.frame(1);
        assert_eq!(long.len(), 1514);
        let (mut shifted, mut damaged) = (long.clone(), long.clone());
        shifted.remove(1000);
        shifted.push(0);
        damaged[1513] ^= 1;
        for wrong in [&shifted, &damaged, &long[..1024].to_vec(), &long[1024..].to_vec(), &vec![0; 10]] {
            assert!(matches!(frames.judge(wrong), Err(PassageError::Other(_))), "{} bytes", wrong.len());
        }
        let earlier = PassageFrames { exchange: 6, ..frames };
        assert_eq!(frames.judge(&earlier.frame(3)).unwrap(), None);
    }

    #[test]
    fn headers_have_a_checksum_that_receivers_accept() {
        let header = ipv4_header(1500, [31, 1], [0, 2]);
        let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
