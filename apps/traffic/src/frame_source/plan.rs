//! Data of frames that are known before the frames are made.

use crate::signature::Signer;
use ringroad_wire::checksum::fold;

/// Greatest number of varying checksums in one frame.
pub(super) const MAX_LIVE_CHECKSUMS: usize = 8;

/// A number for each varying checksum, in the order in which the checksums are written. It is a sum so far, or a mask:
/// all ones for checksums that cover an item, else 0.
pub(super) type Sums = [u64; MAX_LIVE_CHECKSUMS];

/// The mask with all ones for checksums that cover an item, and 0 for the others.
pub(super) fn counting(counts: impl IntoIterator<Item = bool>) -> Sums {
    let mut sums = Sums::default();
    for (sum, counts) in sums.iter_mut().zip(counts) {
        *sum = if counts { u64::MAX } else { 0 };
    }
    sums
}

/// Plan for frames of one size.
#[derive(Debug, Clone)]
pub(super) struct SizePlan {
    pub(super) slot_bytes: usize,
    /// Sums of all constant words, for the varying checksums.
    pub(super) sums: Sums,
    /// Lengths and checksums that vary only with the size, as positions and values.
    pub(super) words: Box<[(u16, u16)]>,
    pub(super) signer: Option<Signer>,
    /// Start of the signature; the frame's end if there is none.
    pub(super) signature_at: usize,
    /// Bits by which the sum of the signature's words must be shifted for the checksums.
    pub(super) signature_sum_shift: u32,
}

impl SizePlan {
    pub(super) fn write_words(&self, frame: &mut [u8]) {
        for &(at, word) in &self.words {
            put_word(frame, at, word);
        }
    }
}

/// A checksum that varies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LiveChecksum {
    /// Position of the checksum.
    at: u16,
    /// Value sent instead of a checksum of 0.
    zero: u16,
    /// Bits by which the checksum's bytes are rotated before they are written.
    rotation: u32,
    /// The other checksums that cover this one.
    pub(super) counts_in: Sums,
}

impl LiveChecksum {
    pub(super) fn new(at: usize, zero_is_none: bool, counts_in: Sums) -> Self {
        let rotation = if at.is_multiple_of(2) { 0 } else { 8 };
        Self { at: at as u16, zero: zero(zero_is_none), rotation, counts_in }
    }

    /// Writes the checksum for `sum`, and returns its contribution to other sums.
    #[inline]
    pub(super) fn write(&self, sum: u64, frame: &mut [u8]) -> u64 {
        let checksum = checksum(sum, self.zero);
        let at = usize::from(self.at);
        if let Some(bytes) = frame.get_mut(at..at + 2) {
            bytes.copy_from_slice(&checksum.rotate_left(self.rotation).to_le_bytes());
        }
        checksum.into()
    }
}

/// Value sent instead of a checksum of 0: all ones where 0 means "none" (RFC 768).
pub(super) const fn zero(zero_is_none: bool) -> u16 {
    if zero_is_none { 0xffff } else { 0 }
}

/// The checksum for the sum of all covered words. The result has the form in which it counts in other sums.
#[inline]
pub(super) const fn checksum(sum: u64, zero: u16) -> u16 {
    match !fold(sum) {
        0 => zero,
        checksum => checksum,
    }
}

pub(super) fn put_word(frame: &mut [u8], at: u16, word: u16) {
    let at = usize::from(at);
    if let Some(bytes) = frame.get_mut(at..at + 2) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
}
