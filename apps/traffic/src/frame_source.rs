//! The frames of a stream, one after the other.
//!
//! A frame differs from the previous frame in few bytes: modified fields, signature, checksums. So the source keeps one
//! frame in memory and rewrites these bytes each time. A *pristine* frame restores bytes when a frame is longer or
//! shorter. A checksum (RFC 1071) is the sum of a part that is computed in advance for each size, and of the words just
//! written. Errors cannot accumulate, as they could if the last frame's checksum was updated (RFC 1624).

mod compile;
mod plan;

use std::array;

use self::plan::{LiveChecksum, MAX_LIVE_CHECKSUMS, SizePlan, Sums};
use crate::line_rate::BitLayer;
use crate::modifier::{BitField, Progress};
use crate::rotation::Rotation;
use crate::signature::{COMPACT_BYTES, FULL_BYTES, FormSet, SignatureForm, Signer};

/// Source of the frames of one stream for one sender, made by [`crate::definition::StreamDefinition::compile`].
#[derive(Debug, Clone)]
pub struct FrameSource {
    /// The longest frame, with zeros in the varying bytes.
    pristine: Box<[u8]>,
    /// The frame that was made last.
    frame: Box<[u8]>,
    /// Index in `plans` of the next frame's size.
    next: usize,
    /// Index in `plans` of the size of `frame`, which has the length and the constant words of that size.
    shown: usize,
    plans: Box<[SizePlan]>,
    rotation: Rotation,
    writer: Writer,
}

/// Several senders cannot share a stream this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sender {index} of {of}: give a sender below the number of senders, which is at least 1")]
#[non_exhaustive]
pub struct ShareError {
    /// Index of the sender, from 0.
    pub index: u32,
    /// Number of senders.
    pub of: u32,
}

impl FrameSource {
    /// Length of the next frame in its slot, bytes without FCS.
    #[inline]
    #[must_use]
    pub fn next_size(&self) -> usize {
        self.plans.get(self.next).map_or(0, |plan| plan.slot_bytes)
    }

    /// Sequence number of the next frame, which is the number of frames made so far.
    #[inline]
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.writer.sequence
    }

    /// Makes the next frame and returns it, without FCS. `timestamp_ns` goes into its signature.
    #[inline]
    pub fn next_frame(&mut self, timestamp_ns: u64) -> &[u8] {
        if self.next != self.shown {
            self.reshape();
        }
        let Some(plan) = self.plans.get(self.next) else { return &[] };
        let Some(frame) = self.frame.get_mut(..plan.slot_bytes) else { return &[] };
        self.writer.write(plan, timestamp_ns, frame);
        if self.plans.len() > 1 {
            self.next = self.rotation.advance();
        }
        frame
    }

    /// The frames, if all frames have one size.
    #[inline]
    #[must_use]
    pub fn of_one_size(&mut self) -> Option<OneSize<'_>> {
        let [plan] = &*self.plans else { return None };
        let pristine = self.pristine.get(..plan.slot_bytes)?;
        Some(OneSize { plan, pristine, writer: &mut self.writer })
    }

    /// Changes `frame` to the next size.
    fn reshape(&mut self) {
        if let Some(shown) = self.plans.get(self.shown)
            && let Some(written) = self.frame.get_mut(shown.signature_at..shown.slot_bytes)
            && let Some(before) = self.pristine.get(shown.signature_at..shown.slot_bytes)
        {
            written.copy_from_slice(before);
        }
        if let Some(plan) = self.plans.get(self.next) {
            plan.write_words(&mut self.frame);
        }
        self.shown = self.next;
    }

    /// Makes this the source of sender `index` of `of` senders of one stream. The sender begins with frame `index` of
    /// the stream, and each further frame is `of` frames later. So all senders together make each combination of
    /// modified fields as often as a single sender would. Each sender has sizes and sequence numbers of its own.
    ///
    /// # Errors
    /// [`ShareError`] if there is no such sender.
    pub fn share(mut self, index: u32, of: u32) -> Result<Self, ShareError> {
        if index >= of {
            return Err(ShareError { index, of });
        }
        for modifier in &mut self.writer.modifiers {
            modifier.progress.start(index.into(), of.into());
        }
        self.writer.sequence = 0;
        self.next = self.rotation.restart(index);
        Ok(self)
    }

    /// Length of the longest frame in its slot, bytes without FCS.
    #[inline]
    #[must_use]
    pub fn longest_slot_bytes(&self) -> usize {
        self.pristine.len()
    }

    /// Mean number of bits of a frame over all sizes, as `layer` counts them.
    #[must_use]
    pub fn mean_bits(&self, layer: BitLayer) -> f64 {
        let order = self.rotation.order();
        let plans = order.iter().filter_map(|index| self.plans.get(usize::from(*index)));
        let bytes: f64 = plans.map(|plan| plan.slot_bytes as f64 + f64::from(layer.bytes_over_slot())).sum();
        bytes * 8.0 / order.len() as f64
    }

    /// The forms of signature that the frames carry.
    #[must_use]
    pub fn forms(&self) -> FormSet {
        self.plans.iter().filter_map(|plan| plan.signer.as_ref()).map(|signer| signer.form()).collect()
    }
}

/// Frames of a stream that are written one after the other into slots.
pub trait WriteFrames {
    /// Writes the next frame to the start of `slot` and returns its length, bytes without FCS. `timestamp_ns` goes into
    /// its signature. If `holds_frame`, the slot holds an earlier frame of this stream, and only the varying bytes are
    /// written.
    ///
    /// Returns `None` if `slot` is too short. The slot is then unchanged, and the frame is still the next.
    fn write_next(&mut self, timestamp_ns: u64, slot: &mut [u8], holds_frame: bool) -> Option<usize>;
}

/// The frames of a stream that all have one size, made by [`FrameSource::of_one_size`].
#[derive(Debug)]
pub struct OneSize<'source> {
    plan: &'source SizePlan,
    pristine: &'source [u8],
    writer: &'source mut Writer,
}

/// The varying parts of a stream's frames that all have one size.
#[derive(Debug)]
pub enum Variation<'source> {
    /// Frames without varying bytes.
    Constant(ConstantFrames<'source>),
    /// A full signature, and at most one checksum over it.
    Full(SignedFrames<'source, FULL_BYTES>),
    /// A compact signature, and at most one checksum over it.
    Compact(SignedFrames<'source, COMPACT_BYTES>),
    /// All other combinations.
    Any(OneSize<'source>),
}

impl<'source> OneSize<'source> {
    /// The varying parts, so that a caller checks once for a burst which parts vary.
    #[inline]
    #[must_use]
    pub fn variation(self) -> Variation<'source> {
        let Self { plan, pristine, writer } = self;
        if !writer.modifiers.is_empty() || !writer.plain || writer.live > 1 {
            return Variation::Any(Self { plan, pristine, writer });
        }
        let checksum = (writer.live == 1).then_some(SignedChecksum {
            checksum: writer.checksums[0],
            sum: plan.sums[0],
            counted: writer.signature_counts_in[0],
            shift: plan.signature_sum_shift,
        });
        match &plan.signer {
            None if writer.live == 0 => {
                Variation::Constant(ConstantFrames { pristine, sequence: &mut writer.sequence })
            }
            Some(signer) if signer.form() == SignatureForm::Compact => {
                Variation::Compact(SignedFrames::new(pristine, *signer, checksum, &mut writer.sequence))
            }
            Some(signer) if signer.form() == SignatureForm::Full => {
                Variation::Full(SignedFrames::new(pristine, *signer, checksum, &mut writer.sequence))
            }
            _ => Variation::Any(Self { plan, pristine, writer }),
        }
    }
}

impl WriteFrames for Variation<'_> {
    fn write_next(&mut self, timestamp_ns: u64, slot: &mut [u8], holds_frame: bool) -> Option<usize> {
        match self {
            Self::Constant(frames) => frames.write_next(timestamp_ns, slot, holds_frame),
            Self::Full(frames) => frames.write_next(timestamp_ns, slot, holds_frame),
            Self::Compact(frames) => frames.write_next(timestamp_ns, slot, holds_frame),
            Self::Any(frames) => frames.write_next(timestamp_ns, slot, holds_frame),
        }
    }
}

/// The bytes of `slot` for the next frame. They are filled with `pristine` unless `holds_frame`.
#[inline]
fn prepared<'slot>(slot: &'slot mut [u8], pristine: &[u8], holds_frame: bool) -> Option<&'slot mut [u8]> {
    let frame = slot.get_mut(..pristine.len())?;
    if !holds_frame {
        frame.copy_from_slice(pristine);
    }
    Some(frame)
}

impl WriteFrames for OneSize<'_> {
    #[inline]
    fn write_next(&mut self, timestamp_ns: u64, slot: &mut [u8], holds_frame: bool) -> Option<usize> {
        let frame = prepared(slot, self.pristine, holds_frame)?;
        self.writer.write(self.plan, timestamp_ns, frame);
        Some(self.pristine.len())
    }
}

/// Frames that are all identical.
#[derive(Debug)]
pub struct ConstantFrames<'source> {
    pristine: &'source [u8],
    sequence: &'source mut u64,
}

impl ConstantFrames<'_> {
    /// Counts `frames` frames as written without writing them: their bytes are already in the slots.
    #[inline]
    pub fn skip(&mut self, frames: u64) {
        *self.sequence = self.sequence.wrapping_add(frames);
    }

    /// Length of each frame in its slot, bytes without FCS.
    #[inline]
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.pristine.len()
    }
}

impl WriteFrames for ConstantFrames<'_> {
    #[inline]
    fn write_next(&mut self, _timestamp_ns: u64, slot: &mut [u8], holds_frame: bool) -> Option<usize> {
        prepared(slot, self.pristine, holds_frame)?;
        self.skip(1);
        Some(self.pristine.len())
    }
}

/// Frames that differ only in a signature of `BYTES` bytes and at most one checksum over it.
#[derive(Debug)]
pub struct SignedFrames<'source, const BYTES: usize> {
    pristine: &'source [u8],
    signer: Signer,
    checksum: Option<SignedChecksum>,
    /// The stream's sequence number, which is updated when this value is dropped.
    sequence: &'source mut u64,
    next: u64,
}

impl<const BYTES: usize> Drop for SignedFrames<'_, BYTES> {
    fn drop(&mut self) {
        *self.sequence = self.next;
    }
}

/// The only varying checksum, which varies with the signature.
#[derive(Debug)]
struct SignedChecksum {
    checksum: LiveChecksum,
    /// Sum of all constant words.
    sum: u64,
    /// All ones if the checksum covers the signature, else 0.
    counted: u64,
    /// Bits by which the sum of the signature's words must be shifted.
    shift: u32,
}

impl<'source, const BYTES: usize> SignedFrames<'source, BYTES> {
    #[inline]
    fn new(
        pristine: &'source [u8],
        signer: Signer,
        checksum: Option<SignedChecksum>,
        sequence: &'source mut u64,
    ) -> Self {
        Self { pristine, signer, checksum, next: *sequence, sequence }
    }
}

impl<const BYTES: usize> WriteFrames for SignedFrames<'_, BYTES> {
    #[inline(always)]
    fn write_next(&mut self, timestamp_ns: u64, slot: &mut [u8], holds_frame: bool) -> Option<usize> {
        let frame = prepared(slot, self.pristine, holds_frame)?;
        let signed = self.signer.sign_as::<BYTES>(self.next, timestamp_ns, frame);
        if let Some(SignedChecksum { checksum, sum, counted, shift }) = &self.checksum {
            checksum.write(sum + (signed << shift & counted), frame);
        }
        self.next = self.next.wrapping_add(1);
        Some(self.pristine.len())
    }
}

/// Writer of the varying parts of frames.
#[derive(Debug, Clone)]
struct Writer {
    modifiers: Box<[Modifier]>,
    /// The varying checksums: the first `live` entries.
    checksums: Box<[LiveChecksum; MAX_LIVE_CHECKSUMS]>,
    live: usize,
    /// Whether there are at most two varying checksums, and neither covers the other.
    plain: bool,
    /// The checksums that cover the signature.
    signature_counts_in: Sums,
    sequence: u64,
}

#[derive(Debug, Clone)]
struct Modifier {
    field: BitField,
    progress: Progress,
    /// The checksums that cover the field.
    counts_in: Sums,
}

impl Writer {
    #[inline]
    fn write(&mut self, plan: &SizePlan, timestamp_ns: u64, frame: &mut [u8]) {
        // The sums are in registers if their number is known at compile time.
        match (self.plain, self.live) {
            (true, 0) => self.write_with::<0, false>(plan, timestamp_ns, frame),
            (true, 1) => self.write_with::<1, false>(plan, timestamp_ns, frame),
            (true, _) => self.write_with::<2, false>(plan, timestamp_ns, frame),
            (false, ..=4) => self.write_with::<4, true>(plan, timestamp_ns, frame),
            (false, _) => self.write_with::<MAX_LIVE_CHECKSUMS, true>(plan, timestamp_ns, frame),
        }
    }

    // A function of its own for each case, so that no case saves registers that only another case needs.
    #[inline(never)]
    fn write_with<const LIVE: usize, const NESTED: bool>(
        &mut self,
        plan: &SizePlan,
        timestamp_ns: u64,
        frame: &mut [u8],
    ) {
        let mut sums: [u64; LIVE] = array::from_fn(|index| plan.sums[index]);
        let add = |sums: &mut [u64; LIVE], sum: u64, counts_in: &Sums| {
            for (total, counted) in sums.iter_mut().zip(counts_in) {
                *total += sum & counted;
            }
        };
        for Modifier { field, progress, counts_in } in &mut self.modifiers {
            add(&mut sums, field.put(frame, progress.current()), counts_in);
            progress.advance();
        }
        if let Some(signer) = &plan.signer {
            let sum = signer.sign(self.sequence, timestamp_ns, frame);
            add(&mut sums, sum << plan.signature_sum_shift, &self.signature_counts_in);
        }
        for index in 0..LIVE {
            // If fewer checksums vary, the last entries are unused.
            if NESTED && index >= self.live {
                break;
            }
            let checksum = &self.checksums[index];
            let sum = checksum.write(sums[index], frame);
            if NESTED {
                add(&mut sums, sum, &checksum.counts_in);
            }
        }
        self.sequence = self.sequence.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests;
