//! The frames that workers send.

/// Bytes of header that a generator writes into every frame: as much as Ethernet, IPv4 and UDP take, which is what
/// testpmd writes.
pub(super) const HEADER_BYTES: usize = 42;

/// Where the sequence number of a pipe's frames lies: behind the Ethernet header.
const SEQUENCE: std::ops::Range<usize> = 14..22;

/// EtherType "local experimental 1" (IEEE 802, clause 9.2.4).
const ETHERTYPE: [u8; 2] = [0x88, 0xB5];

/// A frame from station `from` to station `to`, filled with a pattern.
pub(super) fn template(from: u8, to: u8, slot_bytes: u32) -> Vec<u8> {
    let length = usize::try_from(slot_bytes).unwrap_or(usize::MAX).max(HEADER_BYTES);
    let mut frame: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
    let header = [2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, ETHERTYPE[0], ETHERTYPE[1]];
    for (byte, value) in frame.iter_mut().zip(header) {
        *byte = value;
    }
    frame
}

/// Writes the sequence number into a frame.
#[inline]
pub(super) fn set_sequence(frame: &mut [u8], sequence: u64) {
    if let Some(field) = frame.get_mut(SEQUENCE) {
        field.copy_from_slice(&sequence.to_le_bytes());
    }
}

/// The sequence number of a frame; `None` if it is too short for one.
#[inline]
pub(super) fn sequence(frame: &[u8]) -> Option<u64> {
    frame.get(SEQUENCE)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_comes_back_and_leaves_the_addresses_alone() {
        let mut frame = template(1, 2, 60);
        assert_eq!(frame.len(), 60);
        set_sequence(&mut frame, u64::MAX - 5);
        assert_eq!(sequence(&frame), Some(u64::MAX - 5));
        assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5]);
        assert_eq!(sequence(&frame[..20]), None);
    }
}
