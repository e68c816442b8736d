//! Position of a varying field in the frame, and the code that writes the field.

use ringroad_wire::checksum::sum_halves;

/// Position of a field of up to 64 bits in a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BitField {
    /// Offset of the first byte that is written.
    at: u16,
    /// Number of bytes that are written: the field's own, or a few more in which only the field's bits change.
    container: Container,
    /// Number of bits of the container after the field.
    shift: u32,
    /// Mask of the container's bits outside of the field, as a little-endian number.
    kept: u64,
    /// Shift of the container's contribution to checksums: 8 bits at odd positions, else 0.
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

impl BitField {
    /// Position of `bits` bits from bit `bit` of the frame on. The first `frame_bytes` bytes are present in every
    /// frame. `None` if the field has no bits, spans more than 8 bytes, or is not within `frame_bytes`.
    pub(crate) fn new(bit: usize, bits: usize, frame_bytes: usize) -> Option<Self> {
        let (first, end) = (bit / 8, (bit + bits).div_ceil(8));
        if bits == 0 || end > frame_bytes {
            return None;
        }
        let container = Container::ALL
            .into_iter()
            .find(|container| (end - first..=frame_bytes).contains(&container.bytes()))?;
        // At the end of the frame, a container that is longer than the field begins before the field.
        let at = first.min(frame_bytes - container.bytes());
        let container_end = at + container.bytes();
        let shift = container_end * 8 - (bit + bits);
        let field = (u64::MAX >> (64 - bits)) << shift;
        let all = u64::MAX >> (64 - container.bytes() * 8);
        Some(Self {
            at: u16::try_from(at).ok()?,
            container,
            shift: shift as u32,
            kept: (all & !field).swap_bytes() >> (64 - container.bytes() * 8),
            sum_shift: if at.is_multiple_of(2) { 0 } else { 8 },
        })
    }

    /// Writes `value`, which is no longer than the field. Returns the value's contribution to the sum of the frame's
    /// words, less than 2^56. A frame too short for this position stays unchanged.
    #[inline(always)]
    pub(crate) fn put(&self, frame: &mut [u8], value: u64) -> u64 {
        let value = value << self.shift;
        let counts = match self.container {
            Container::One => self.put_in::<1>(frame, value),
            Container::Two => self.put_in::<2>(frame, value),
            Container::Four => self.put_in::<4>(frame, value),
            Container::Six => self.put_in::<6>(frame, value),
            Container::Eight => sum_halves(self.put_in::<8>(frame, value)),
        };
        counts << self.sum_shift
    }

    #[inline(always)]
    fn put_in<const BYTES: usize>(&self, frame: &mut [u8], value: u64) -> u64 {
        let at = usize::from(self.at);
        let Some(bytes) = frame.get_mut(at..at + BYTES) else { return 0 };
        let value = value.swap_bytes() >> (64 - 8 * BYTES);
        let mut written = value;
        // The bytes are read only if necessary: they were written just before, perhaps in other pieces.
        if self.kept != 0 {
            let mut before = [0; 8];
            before[..BYTES].copy_from_slice(bytes);
            written |= u64::from_le_bytes(before) & self.kept;
        }
        bytes.copy_from_slice(&written.to_le_bytes()[..BYTES]);
        value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::header::{get_bits, set_bits};
    use ringroad_wire::checksum::{fold, sum_bytes};

    proptest! {
        #[test]
        fn a_value_changes_only_its_bits_and_reports_the_sum(
            frame in prop::collection::vec(any::<u8>(), 8..40), bit in 0..320usize, bits in 1..=64usize, value: u64,
        ) {
            let Some(field) = BitField::new(bit, bits, frame.len()) else {
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
            let sum = field.put(&mut written, value);
            prop_assert_eq!(&written, &expected);
            prop_assert_eq!(get_bits(&written, bit, bits), u128::from(value));
            prop_assert!(sum < 1 << 56);
            prop_assert_eq!(fold(rest + sum), fold(sum_bytes(&expected, 0)));
        }
    }
}
