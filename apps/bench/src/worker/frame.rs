//! The frames that workers send: Ethernet, IPv4, UDP, like testpmd's, so that receivers have the same work.

use ringroad_wire::checksum::{fold, sum_bytes};

/// Length of the headers that a generator writes into every frame, bytes: Ethernet 14, IPv4 20, UDP 8.
pub(super) const HEADER_BYTES: usize = 42;

/// Position of the sequence number in a pipe's frames: after the headers.
const SEQUENCE: std::ops::Range<usize> = HEADER_BYTES..HEADER_BYTES + 8;

/// EtherType of IPv4 (IEEE 802 numbers).
const ETHERTYPE: [u8; 2] = [0x08, 0x00];

/// IPv4 header (RFC 791) with length and checksum still zero: no options, do not fragment, 64 hops, UDP, from
/// 198.18.0.1 to 198.18.0.2, which RFC 2544 reserves for benchmarks.
const IPV4: [u8; 20] = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];

/// The UDP header (RFC 768) with length still zero and no checksum: port 9, discard, at both ends.
const UDP: [u8; 8] = [0, 9, 0, 9, 0, 0, 0, 0];

/// Makes a frame from station `from` to station `to`, filled with a pattern.
#[must_use]
pub fn template(from: u8, to: u8, slot_bytes: u32) -> Vec<u8> {
    let length = usize::try_from(slot_bytes).unwrap_or(usize::MAX).max(SEQUENCE.end);
    let mut frame: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
    let below = |header_bytes: usize| u16::try_from(length - header_bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut ipv4 = IPV4;
    let [_, _, high, low, ..] = &mut ipv4;
    [*high, *low] = below(14);
    let checksum = (!fold(sum_bytes(&ipv4, 0))).to_le_bytes();
    let [_, _, _, _, _, _, _, _, _, _, high, low, ..] = &mut ipv4;
    [*high, *low] = checksum;
    let mut udp = UDP;
    let [_, _, _, _, high, low, ..] = &mut udp;
    [*high, *low] = below(34);
    let ethernet = [2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, ETHERTYPE[0], ETHERTYPE[1]];
    for (byte, value) in frame.iter_mut().zip(ethernet.into_iter().chain(ipv4).chain(udp)) {
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

/// Returns the sequence number of a frame; `None` if the frame is too short.
#[inline]
pub(super) fn sequence(frame: &[u8]) -> Option<u64> {
    frame.get(SEQUENCE)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_can_be_read_back_and_does_not_change_the_headers() {
        let plain = template(1, 2, 60);
        let mut frame = plain.clone();
        assert_eq!(frame.len(), 60);
        set_sequence(&mut frame, u64::MAX - 5);
        assert_eq!(sequence(&frame), Some(u64::MAX - 5));
        assert_eq!(frame[..HEADER_BYTES], plain[..HEADER_BYTES]);
        assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
        assert_eq!(sequence(&frame[..45]), None);
    }

    #[test]
    fn the_headers_have_the_frame_s_lengths_and_a_right_checksum() {
        let frame = template(1, 2, 1514);
        assert_eq!(frame[16..18], 1500u16.to_be_bytes());
        assert_eq!(frame[38..40], 1480u16.to_be_bytes());
        // A header that contains its checksum has a sum of ones.
        assert_eq!(fold(sum_bytes(&frame[14..34], 0)), u16::MAX);
        // Manual calculation: 4500 + 05dc + 0 + 4000 + 4011 + c612 + 1 + c612 + 2 = 25714, folded 5716, complemented.
        assert_eq!(frame[24..26], [0xA8, 0xE9]);
    }
}
