//! The Internet checksum: the complement of a one's complement sum of 16-bit words (RFC 1071).
//!
//! The sum does not depend on the order of its words, so the part of it that never varies can be computed once, and a
//! change of a header changes it by a difference (RFC 1624). The sum does not depend on the byte order either, if the
//! order is the same throughout (RFC 1071, section 2, point B): here words are little-endian, as the processor reads
//! them. Checksums go to and come from a header by `to_le_bytes` and `from_le_bytes`.

/// Sum of `bytes`, which begin at offset `start` of the summed data: a byte at an even offset is the low half of a
/// word, else the high half. Not folded: less than 2^32 for each four bytes.
#[inline]
#[must_use]
pub fn sum_bytes(bytes: &[u8], start: usize) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let whole = |word: &[u8; 4]| u64::from(u32::from_le_bytes(*word));
    let sum = words.iter().map(whole).sum::<u64>() + whole(&last);
    if start.is_multiple_of(2) { sum } else { fold(sum).swap_bytes().into() }
}

/// Contribution of the big-endian word at `at` to the sum; and, inversely, the big-endian word with this contribution.
#[inline]
#[must_use]
pub const fn counted(word: u16, at: usize) -> u16 {
    if at.is_multiple_of(2) { word.swap_bytes() } else { word }
}

/// Contribution of the two halves of `number`: 33 bits.
#[inline]
#[must_use]
pub const fn sum_halves(number: u64) -> u64 {
    (number & 0xffff_ffff) + (number >> 32)
}

/// Folds a sum to 16 bits: all carries are added again. 0 only for 0.
#[inline]
#[must_use]
pub const fn fold(sum: u64) -> u16 {
    // Each upper half gets the sum of both halves and the carry of the lower.
    let half = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (half.wrapping_add(half.rotate_left(16)) >> 16) as u16
}

/// Contribution of a change of bytes to a sum (RFC 1624): less than 2^33 for each four bytes. Both slices have the same
/// length, and begin at an even offset of the summed data.
#[inline]
#[must_use]
pub fn difference(old: &[u8], new: &[u8]) -> u64 {
    // The complement of each old word, which is its distance from all ones, replaces the old word.
    let all_ones = u64::from(u32::MAX) * old.len().div_ceil(4) as u64;
    all_ones - sum_bytes(old, 0) + sum_bytes(new, 0)
}

/// A checksum after its sum has changed by a [`difference`] (RFC 1624, equation 3). A wrong checksum stays wrong by the
/// same difference.
#[inline]
#[must_use]
pub const fn updated(checksum: u16, difference: u64) -> u16 {
    !fold((!checksum) as u64 + difference)
}

/// A checksum as UDP writes it: 0 would mean that there is none, and all ones have the same sum (RFC 768).
#[inline]
#[must_use]
pub const fn not_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
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

    #[test]
    fn only_zero_is_replaced() {
        assert_eq!([0, 1, 0xffff].map(not_zero), [0xffff, 1, 0xffff]);
    }

    proptest! {
        #[test]
        fn a_sum_is_that_of_its_words(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let words = bytes.chunks(2).map(|word| u64::from(word[0]) | u64::from(*word.get(1).unwrap_or(&0)) << 8);
            prop_assert_eq!(fold(sum_bytes(&bytes, 0)), fold(words.sum()));
        }

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
            let words: u64 = (0..4).map(|index| sum >> (16 * index) & 0xffff).sum();
            let once = (words & 0xffff) + (words >> 16);
            prop_assert_eq!(u64::from(fold(sum)), (once & 0xffff) + (once >> 16));
            prop_assert_eq!(fold(sum_halves(sum)), fold(sum));
        }

        #[test]
        fn an_updated_checksum_is_that_of_the_new_bytes(
            bytes in prop::collection::vec(any::<u8>(), 2..64),
            change in prop::collection::vec(any::<u8>(), 1..20), at: prop::sample::Index,
        ) {
            let at = at.index(bytes.len() / 2) * 2;
            let change = &change[..change.len().min(bytes.len() - at)];
            let mut changed = bytes.clone();
            changed[at..at + change.len()].copy_from_slice(change);
            let checksum = |bytes: &[u8]| !fold(sum_bytes(bytes, 0));
            let old = &bytes[at..at + change.len()];
            let found = updated(checksum(&bytes), difference(old, change));
            // A sum of zeros may come out as all ones.
            prop_assert_eq!(u32::from(found) % 0xffff, u32::from(checksum(&changed)) % 0xffff);
        }
    }
}
