//! Record of a frame, which a mirror can report instead of a copy: the frame's number, length, ports and first bytes. A
//! program that samples traffic needs no more, and could not know the ports from the frame.

use crate::port_index::PortIndex;

/// Maximum number of a frame's bytes in its record.
pub const RECORDED_BYTES: usize = 128;
/// Bytes of a record before the frame's bytes.
pub const RECORD_HEADER_BYTES: usize = 16;

/// A record without the frame's first bytes, which follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRecord {
    /// Number of frames of the port `from` that the worker decided on before this frame, sampled or not. The number
    /// restarts at 0 when the mirrors of the switch change.
    pub number: u64,
    /// Length of the frame, bytes, without FCS.
    pub frame_bytes: u32,
    /// Port by which the frame came in.
    pub from: PortIndex,
    /// Number of ports to which the frame goes, without monitoring ports.
    pub destinations: u8,
    /// First of these ports; meaningless if there is none.
    pub to: PortIndex,
    /// Worker that decided on the frame.
    pub worker: u8,
}

impl FrameRecord {
    /// Bytes of the record for a mirror's port: numbers in little-endian order.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD_HEADER_BYTES] {
        let [n0, n1, n2, n3, n4, n5, n6, n7] = self.number.to_le_bytes();
        let [b0, b1, b2, b3] = self.frame_bytes.to_le_bytes();
        let Self { from, destinations, to, worker, .. } = self;
        [n0, n1, n2, n3, n4, n5, n6, n7, b0, b1, b2, b3, from.0, destinations, to.0, worker]
    }

    /// Splits a frame at a mirror's port into its record and the first bytes of the recorded frame. `None`: the frame
    /// has no record.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, start) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let &[n0, n1, n2, n3, n4, n5, n6, n7, b0, b1, b2, b3, from, destinations, to, worker] = header;
        let record = Self {
            number: u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
            frame_bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            from: PortIndex(from),
            destinations,
            to: PortIndex(to),
            worker,
        };
        let is_one = record.from.is_port()
            && (record.destinations == 0 || record.to.is_port())
            && start.len() == RECORDED_BYTES.min(record.frame_bytes as usize);
        is_one.then_some((record, start))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_has_these_bytes() {
        let record = FrameRecord {
            number: 0x0102_0304_0506_0708,
            frame_bytes: 60,
            from: PortIndex(3),
            destinations: 1,
            to: PortIndex(9),
            worker: 2,
        };
        assert_eq!(record.to_bytes(), [8, 7, 6, 5, 4, 3, 2, 1, 60, 0, 0, 0, 3, 1, 9, 2]);
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written_and_no_other_length_is_one(
            number: u64, frame_bytes in 0..70_000u32, from in 0..254u8, destinations in 1..=254u8, to in 0..254u8,
            worker: u8, wrong in 0..200usize,
        ) {
            let record = FrameRecord {
                number, frame_bytes, from: PortIndex(from), destinations, to: PortIndex(to), worker,
            };
            let start = vec![7; RECORDED_BYTES.min(frame_bytes as usize)];
            let bytes = [&record.to_bytes()[..], &start].concat();
            prop_assert_eq!(FrameRecord::read(&bytes), Some((record, &start[..])));
            let mut other = bytes.clone();
            other.resize(wrong, 0);
            prop_assert_eq!(FrameRecord::read(&other).is_some(), wrong == bytes.len());
        }

        #[test]
        fn records_from_any_bytes_name_ports(bytes in proptest::collection::vec(any::<u8>(), 16..150)) {
            if let Some((record, start)) = FrameRecord::read(&bytes) {
                prop_assert!(record.from.is_port() && start.len() <= RECORDED_BYTES);
                prop_assert!(record.destinations == 0 || record.to.is_port());
            }
        }
    }
}
