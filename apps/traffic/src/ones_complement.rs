//! The one's complement sum of the Internet's checksums (RFC 1071).
//!
//! The sum does not depend on the order of its 16-bit words, so the part of it that never varies is computed once and
//! each frame adds the words that do. Nor does it depend on the order of bytes, as long as it is the same throughout
//! (section 2, point B): here words are little-endian, as the processor reads them, and count from the start of the
//! *frame*. So a byte at an even position is the low half of a word, else the high half.

/// Sum of `bytes`, which begin at `start` in the frame; not folded.
pub(crate) fn sum_bytes(bytes: &[u8], start: usize) -> u64 {
    let (odd, rest) = match bytes.split_first() {
        Some((first, rest)) if !start.is_multiple_of(2) => (u64::from(*first) << 8, rest),
        _ => (0, bytes),
    };
    let words = rest.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |byte| u64::from(*byte));
    odd + last + words.map(|word| u64::from(u16::from_le_bytes([word[0], word[1]]))).sum::<u64>()
}

/// Contribution of the big-endian word at `at` to the sum; and, inversely, the big-endian word with this contribution.
pub(crate) const fn counted(word: u16, at: usize) -> u16 {
    if at.is_multiple_of(2) { word.swap_bytes() } else { word }
}

/// Contribution of the two halves of `number`: 33 bits.
#[inline]
pub(crate) const fn sum_halves(number: u64) -> u64 {
    (number & 0xffff_ffff) + (number >> 32)
}

/// The 16 bits of a sum: all carries are added again. 0 only for 0.
#[inline]
pub(crate) const fn fold(sum: u64) -> u16 {
    // Each upper half gets the sum of both halves and the carry of the lower.
    let half = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (half.wrapping_add(half.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071_gives_its_sum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(counted(fold(sum_bytes(&bytes, 0)), 0), 0xddf2);
        assert_eq!(counted(fold(sum_bytes(&bytes, 1)), 1), 0xddf2);
    }

    proptest! {
        #[test]
        fn a_sum_can_be_computed_in_parts(
            bytes in prop::collection::vec(any::<u8>(), 1..64), cut: prop::sample::Index, start in 0..4usize,
        ) {
            let cut = cut.index(bytes.len());
            let parts = sum_bytes(&bytes[..cut], start) + sum_bytes(&bytes[cut..], start + cut);
            prop_assert_eq!(fold(parts), fold(sum_bytes(&bytes, start)));
        }

        #[test]
        fn folding_adds_all_carries(sum in prop_oneof![any::<u64>(), 0..0x4_0000u64]) {
            let words: u64 = (0..4).map(|place| sum >> (16 * place) & 0xffff).sum();
            let once = (words & 0xffff) + (words >> 16);
            prop_assert_eq!(u64::from(fold(sum)), (once & 0xffff) + (once >> 16));
            prop_assert_eq!(fold(sum_halves(sum)), fold(sum));
        }
    }
}
