//! The one's complement sum of the Internet's checksums (RFC 1071).
//!
//! The sum does not depend on the order of its 16-bit words, so the part of it that never varies is computed once and
//! each frame adds the words that do. A byte counts by its place: as the high half of a word if it lies at an even
//! distance from the start, else as the low half. Everything here counts from the start of the *frame*; where a
//! checksum starts at an odd distance, its sum is the same with both bytes swapped (RFC 1071, section 2, point B).

/// Sum of the big-endian words of `bytes`, which begin at `start` in the frame; not folded.
pub(crate) fn sum_bytes(bytes: &[u8], start: usize) -> u64 {
    let (odd, rest) = match bytes.split_first() {
        Some((first, rest)) if !start.is_multiple_of(2) => (u64::from(*first), rest),
        _ => (0, bytes),
    };
    let words = rest.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    odd + last + words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>()
}

/// Sum of the four words of `value`: 18 bits.
#[inline]
pub(crate) const fn sum_words(value: u64) -> u32 {
    let halves = (value & 0xffff_ffff) + (value >> 32);
    ((halves & 0xffff) + (halves >> 16)) as u32
}

/// `sum` with its carries added to the low 16 bits.
#[inline]
pub(crate) const fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// [`fold`] of any sum.
pub(crate) const fn fold_long(sum: u64) -> u16 {
    fold(sum_words(sum))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071_gives_its_sum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold_long(sum_bytes(&bytes, 0)), 0xddf2);
        assert_eq!(fold_long(sum_bytes(&bytes, 1)), 0xf2dd);
    }

    proptest! {
        #[test]
        fn a_sum_may_be_taken_in_parts(bytes in prop::collection::vec(any::<u8>(), 1..64), cut: prop::sample::Index, start in 0..4usize) {
            let cut = cut.index(bytes.len());
            let parts = sum_bytes(&bytes[..cut], start) + sum_bytes(&bytes[cut..], start + cut);
            prop_assert_eq!(fold_long(parts), fold_long(sum_bytes(&bytes, start)));
        }

        #[test]
        fn words_of_a_value_sum_as_its_bytes_do(value: u64) {
            prop_assert_eq!(fold(sum_words(value)), fold_long(sum_bytes(&value.to_be_bytes(), 0)));
        }
    }
}
