//! What is known of a frame before it is made.

use crate::ones_complement::fold;
use crate::signature::{SignatureForm, Signer};

/// Most checksums that are computed in one frame.
pub(crate) const MAX_CHECKSUMS: usize = 8;

/// A number for each checksum of the frame: a sum so far, or all ones where something counts in it and 0 where not.
pub(super) type Sums = [u32; MAX_CHECKSUMS];

/// Adds `sum` to those `sums` that it `counts_in`. No branch, and a few vector instructions.
#[inline]
pub(super) fn add(sums: &mut Sums, sum: u32, counts_in: &Sums) {
    for (total, counted) in sums.iter_mut().zip(counts_in) {
        *total += sum & counted;
    }
}

/// Frames of one size.
#[derive(Debug, Clone)]
pub(super) struct SizePlan {
    pub(super) slot_bytes: usize,
    /// Sums of all that does not vary, for the checksums that do.
    pub(super) sums: Sums,
    /// Lengths and checksums that do not vary but with the size: where, and what.
    pub(super) words: Box<[(u16, u16)]>,
    pub(super) signer: Option<Signer>,
    /// Where the signature begins; the frame's end if there is none.
    pub(super) signature_at: usize,
    /// How far the sum of the signature's words must be shifted for the checksums, bits.
    pub(super) signature_sum_shift: u32,
}

impl SizePlan {
    pub(super) fn write_words(&self, frame: &mut [u8]) {
        for &(at, word) in &self.words {
            put_word(frame, at.into(), word);
        }
    }
}

/// A checksum that varies.
#[derive(Debug, Clone)]
pub(super) struct LiveChecksum {
    /// Which of the sums is its own.
    pub(super) index: usize,
    /// Where it lies.
    pub(super) at: usize,
    /// Whether 0 says "none", so that the other zero is sent (RFC 768).
    pub(super) zero_is_none: bool,
    /// The checksums further out that it counts in.
    pub(super) counts_in: Sums,
}

impl LiveChecksum {
    #[inline]
    pub(super) fn write(&self, sums: &mut Sums, frame: &mut [u8]) {
        let Some(sum) = sums.get(self.index) else { return };
        let checksum = checksum(*sum, self.zero_is_none);
        add(sums, checksum.into(), &self.counts_in);
        put_word(frame, self.at, in_place(checksum, self.at));
    }
}

/// The checksum for a sum of all it covers, as it counts in the frame's words.
#[inline]
pub(super) fn checksum(sum: u32, zero_is_none: bool) -> u16 {
    match !fold(sum) {
        0 if zero_is_none => 0xffff,
        checksum => checksum,
    }
}

/// A word of the frame's sums as it stands at `at`, and the other way round: at odd places the bytes are in the halves
/// of two words.
#[inline]
pub(super) const fn in_place(word: u16, at: usize) -> u16 {
    if at.is_multiple_of(2) { word } else { word.swap_bytes() }
}

#[inline]
pub(super) fn put_word(frame: &mut [u8], at: usize, word: u16) {
    if let Some(bytes) = frame.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = word.to_be_bytes();
    }
}

/// Signs `frame`, whose last bytes are the signature, and returns the sum of the signature's words: less than 2^20.
#[inline]
pub(super) fn sign(signer: &Signer, sequence: u64, timestamp_ns: u64, frame: &mut [u8]) -> u32 {
    const FULL: usize = SignatureForm::Full.bytes();
    const COMPACT: usize = SignatureForm::Compact.bytes();
    const SHORT: usize = SignatureForm::Short.bytes();
    const TINY: usize = SignatureForm::Tiny.bytes();
    match signer.form() {
        SignatureForm::Full => sign_form::<FULL>(signer, sequence, timestamp_ns, frame),
        SignatureForm::Compact => sign_form::<COMPACT>(signer, sequence, timestamp_ns, frame),
        SignatureForm::Short => sign_form::<SHORT>(signer, sequence, timestamp_ns, frame),
        SignatureForm::Tiny => sign_form::<TINY>(signer, sequence, timestamp_ns, frame),
    }
}

/// With the length known the sum is taken from registers, not from memory that was just written.
#[inline]
fn sign_form<const BYTES: usize>(signer: &Signer, sequence: u64, timestamp_ns: u64, frame: &mut [u8]) -> u32 {
    let Some(out) = frame.last_chunk_mut::<BYTES>() else { return 0 };
    let mut signature = [0; BYTES];
    signer.sign(sequence, timestamp_ns, &mut signature);
    *out = signature;
    let (words, _) = signature.as_chunks::<2>();
    words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum()
}
