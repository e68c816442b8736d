//! Where a varying field lies in the frame, and how its value gets there.

use crate::ones_complement::sum_words;

/// Up to 64 bits of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// First of the bytes that are written.
    at: usize,
    /// How many: the field's own, or some more of which only its bits change.
    container: Container,
    /// Bits of the container behind the field.
    shift: u32,
    /// Bits of the container that are not the field's.
    kept: u64,
    /// How far the container's sum must be shifted for the checksums, bits.
    sum_shift: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    One,
    Two,
    Four,
    Six,
    Eight,
}

impl Container {
    const ALL: [Self; 5] = [Self::One, Self::Two, Self::Four, Self::Six, Self::Eight];

    const fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Six => 6,
            Self::Eight => 8,
        }
    }
}

impl Place {
    /// `bits` bits from `bit` of the frame on, of which the first `frame_bytes` bytes are always there. `None` if they
    /// lie in more than 8 bytes, are none, or are not all there.
    pub(crate) fn new(bit: usize, bits: usize, frame_bytes: usize) -> Option<Self> {
        let (first, end) = (bit / 8, (bit + bits).div_ceil(8));
        if bits == 0 || end > frame_bytes {
            return None;
        }
        let container = Container::ALL
            .into_iter()
            .find(|container| (end - first..=frame_bytes).contains(&container.bytes()))?;
        // At the frame's very end a container that is longer than the field reaches back instead.
        let at = first.min(frame_bytes - container.bytes());
        let container_end = at + container.bytes();
        let shift = container_end * 8 - (bit + bits);
        let field = (u64::MAX >> (64 - bits)) << shift;
        let all = u64::MAX >> (64 - container.bytes() * 8);
        Some(Self {
            at,
            container,
            shift: shift as u32,
            kept: all & !field,
            sum_shift: if container_end % 2 == 0 { 0 } else { 8 },
        })
    }

    /// Writes `value`, which is no longer than the field, and returns what it adds to the one's complement sum of the
    /// frame's words, less than 2^26. A frame that is shorter than this place was made for stays as it is.
    #[inline]
    pub(crate) fn put(&self, frame: &mut [u8], value: u64) -> u32 {
        let value = value << self.shift;
        match self.container {
            Container::One => self.put_in::<1>(frame, value),
            Container::Two => self.put_in::<2>(frame, value),
            Container::Four => self.put_in::<4>(frame, value),
            Container::Six => self.put_in::<6>(frame, value),
            Container::Eight => self.put_in::<8>(frame, value),
        }
        sum_words(value) << self.sum_shift
    }

    #[inline]
    fn put_in<const BYTES: usize>(&self, frame: &mut [u8], value: u64) {
        let bytes = frame.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut::<BYTES>);
        let Some(bytes) = bytes else { return };
        let mut word = [0; 8];
        let mut written = value;
        // Not read where it need not be: the bytes were written just before, perhaps in other pieces.
        if self.kept != 0 {
            word[8 - BYTES..].copy_from_slice(bytes);
            written |= u64::from_be_bytes(word) & self.kept;
        }
        bytes.copy_from_slice(&written.to_be_bytes()[8 - BYTES..]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::header::{get_bits, set_bits};
    use crate::ones_complement::{fold, fold_long, sum_bytes};

    proptest! {
        #[test]
        fn a_value_changes_its_bits_alone_and_the_sum_by_what_is_returned(
            frame in prop::collection::vec(any::<u8>(), 8..40), bit in 0..320usize, bits in 1..=64usize, value: u64,
        ) {
            let Some(place) = Place::new(bit, bits, frame.len()) else {
                let bytes = (bit + bits).div_ceil(8) - bit / 8;
                prop_assert!(bytes > 8 || (bit + bits).div_ceil(8) > frame.len());
                return Ok(());
            };
            let value = value >> (64 - bits);
            let mut expected = frame.clone();
            set_bits(&mut expected, bit, bits, 0);
            let rest = sum_bytes(&expected, 0);
            set_bits(&mut expected, bit, bits, value.into());

            let mut written = frame;
            let sum = place.put(&mut written, value);
            prop_assert_eq!(&written, &expected);
            prop_assert_eq!(get_bits(&written, bit, bits), u128::from(value));
            prop_assert!(sum < 1 << 26);
            prop_assert_eq!(fold(sum) % 0xffff, fold_long(sum_bytes(&expected, 0) + 0xffff * 64 - rest) % 0xffff);
        }
    }
}
