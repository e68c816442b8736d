//! The frames of a stream, one after the other.
//!
//! A frame differs from the one before it in few bytes: modified fields, signature, checksums. So one frame in memory
//! has these bytes rewritten each time, and a *pristine* one restores bytes when a frame is longer or shorter.
//! Checksums are sums (RFC 1071) of a part that is computed in advance, for each size, and of the words just written;
//! unlike updates of the last frame's checksum (RFC 1624), errors cannot accumulate.

mod compile;
mod plan;

use std::array;

use self::plan::{LiveChecksum, MAX_LIVE_CHECKSUMS, SizePlan, Sums};
use crate::line_rate::{BitLayer, FrameSize};
use crate::modifier::{BitField, Progress};
use crate::rotation::Rotation;
use crate::signature::{COMPACT_BYTES, FULL_BYTES, FormSet, SignatureForm, Signer};

/// Makes the frames of one stream for one sender. From [`crate::definition::StreamDefinition::compile`].
#[derive(Debug, Clone)]
pub struct FrameSource {
    /// The longest frame, without anything that varies.
    pristine: Box<[u8]>,
    /// The frame that was made last.
    frame: Box<[u8]>,
    /// Which of `plans` the next frame has.
    next: usize,
    /// Which of `plans` `frame` has the length and constant words of.
    shown: usize,
    plans: Box<[SizePlan]>,
    /// With FCS, as `plans`.
    sizes: Vec<FrameSize>,
    rotation: Rotation,
    writer: Writer,
}

/// Several senders cannot share a stream this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sender {index} of {of}: give a sender below the number of senders, which is at least 1")]
#[non_exhaustive]
pub struct ShareError {
    /// The sender, from 0.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

impl FrameSource {
    /// Bytes in the slot, without FCS, of the next frame.
    #[inline]
    #[must_use]
    pub fn next_size(&self) -> usize {
        self.plans.get(self.next).map_or(0, |plan| plan.slot_bytes)
    }

    /// The sequence number of the next frame: how many were made before it.
    #[inline]
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.writer.sequence
    }

    /// The next frame, without FCS. `timestamp_ns` goes into its signature.
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

    /// The frames, if all have one size.
    #[inline]
    #[must_use]
    pub fn of_one_size(&mut self) -> Option<OneSize<'_>> {
        let [plan] = &*self.plans else { return None };
        let pristine = self.pristine.get(..plan.slot_bytes)?;
        Some(OneSize { plan, pristine, writer: &mut self.writer })
    }

    /// Makes `frame` one of the next size.
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

    /// Makes this the source of sender `index` of `of` senders of one stream: it starts anew, with frame `index` of the
    /// stream, and each next frame is `of` frames later. So all senders together make each combination of modified
    /// fields as often as a single sender would. Sizes and sequence numbers are each sender's own.
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

    /// Bytes in the slot, without FCS, of the longest frame.
    #[inline]
    #[must_use]
    pub fn longest_slot_bytes(&self) -> usize {
        self.pristine.len()
    }

    /// Bits that a frame counts in the mean of all sizes.
    #[must_use]
    pub fn mean_bits(&self, layer: BitLayer) -> f64 {
        let order = self.rotation.order();
        let plans = order.iter().filter_map(|index| self.plans.get(usize::from(*index)));
        let bytes: f64 = plans.map(|plan| plan.slot_bytes as f64 + f64::from(layer.bytes_over_slot())).sum();
        bytes * 8.0 / order.len() as f64
    }

    /// The sizes, with FCS, in the order of the definition.
    #[must_use]
    pub fn sizes(&self) -> &[FrameSize] {
        &self.sizes
    }

    /// The sizes in the notation of RFC 6985, for example `aAaaAaAagaAa A=594`; capital letters are sizes without a
    /// letter there. In words if that would be too long, or the order is random.
    #[must_use]
    pub fn size_genome(&self) -> String {
        self.rotation.genome(&self.sizes)
    }

    /// The forms of signature that the frames carry.
    #[must_use]
    pub fn forms(&self) -> FormSet {
        self.plans.iter().filter_map(|plan| plan.signer.as_ref()).map(|signer| signer.form()).collect()
    }
}

/// The frames of a stream, one after the other, written in place for sending.
pub trait WriteFrames {
    /// Writes the next frame to the start of `slot` and returns its length, bytes without FCS. `timestamp_ns` goes into
    /// its signature. `holds_frame`: an earlier frame of this stream is there, so only the varying bytes are written.
    ///
    /// `None` if `slot` is too short: it is unchanged, and the frame is still the next.
    fn write_next(&mut self, timestamp_ns: u64, slot: &mut [u8], holds_frame: bool) -> Option<usize>;
}

/// The frames of a stream that all have one size. From [`FrameSource::of_one_size`].
#[derive(Debug)]
pub struct OneSize<'source> {
    plan: &'source SizePlan,
    pristine: &'source [u8],
    writer: &'source mut Writer,
}

/// The varying parts of a stream's frames that all have one size.
#[derive(Debug)]
pub enum Variation<'source> {
    /// Nothing.
    Constant(ConstantFrames<'source>),
    /// A full signature, and at most one checksum over it.
    Full(SignedFrames<'source, FULL_BYTES>),
    /// A compact signature, and at most one checksum over it.
    Compact(SignedFrames<'source, COMPACT_BYTES>),
    /// Anything.
    Any(OneSize<'source>),
}

impl<'source> OneSize<'source> {
    /// The varying parts, so that a caller writes a burst without a check for each frame.
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

/// The start of `slot` that the next frame takes, with `pristine` in it.
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

/// Frames that are all the same, to the byte.
#[derive(Debug)]
pub struct ConstantFrames<'source> {
    pristine: &'source [u8],
    sequence: &'source mut u64,
}

impl ConstantFrames<'_> {
    /// Counts `frames` frames as written: they are already in place.
    #[inline]
    pub fn skip(&mut self, frames: u64) {
        *self.sequence = self.sequence.wrapping_add(frames);
    }

    /// Bytes in the slot, without FCS, of each frame.
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

/// Frames that are the same but for a signature of `BYTES` bytes, and at most one checksum over it.
#[derive(Debug)]
pub struct SignedFrames<'source, const BYTES: usize> {
    pristine: &'source [u8],
    signer: Signer,
    checksum: Option<SignedChecksum>,
    /// The stream's sequence number, set to the next frame's number at the end.
    sequence: &'source mut u64,
    next: u64,
}

impl<const BYTES: usize> Drop for SignedFrames<'_, BYTES> {
    fn drop(&mut self) {
        *self.sequence = self.next;
    }
}

/// The only checksum that varies, with the signature.
#[derive(Debug)]
struct SignedChecksum {
    checksum: LiveChecksum,
    /// Of all that does not vary.
    sum: u64,
    /// All ones if it covers the signature.
    counted: u64,
    /// How far the sum of the signature's words must be shifted, bits.
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
        let signed = plan::sign_as::<BYTES>(&self.signer, self.next, timestamp_ns, frame);
        if let Some(SignedChecksum { checksum, sum, counted, shift }) = &self.checksum {
            checksum.write(sum + (signed << shift & counted), frame);
        }
        self.next = self.next.wrapping_add(1);
        Some(self.pristine.len())
    }
}

/// Writes the varying parts.
#[derive(Debug, Clone)]
struct Writer {
    modifiers: Box<[Modifier]>,
    /// The first `live` of these.
    checksums: Box<[LiveChecksum; MAX_LIVE_CHECKSUMS]>,
    live: usize,
    /// Whether there are at most two, and neither covers the other.
    plain: bool,
    /// The checksums that the signature counts in.
    signature_counts_in: Sums,
    sequence: u64,
}

#[derive(Debug, Clone)]
struct Modifier {
    field: BitField,
    progress: Progress,
    /// The checksums that the field counts in.
    counts_in: Sums,
}

impl Writer {
    #[inline]
    fn write(&mut self, plan: &SizePlan, timestamp_ns: u64, frame: &mut [u8]) {
        // With their number known the sums are in registers.
        match (self.plain, self.live) {
            (true, 0) => self.write_with::<0, false>(plan, timestamp_ns, frame),
            (true, 1) => self.write_with::<1, false>(plan, timestamp_ns, frame),
            (true, _) => self.write_with::<2, false>(plan, timestamp_ns, frame),
            (false, ..=4) => self.write_with::<4, true>(plan, timestamp_ns, frame),
            (false, _) => self.write_with::<MAX_LIVE_CHECKSUMS, true>(plan, timestamp_ns, frame),
        }
    }

    // Separate, so that none saves the registers that another needs.
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
            let sum = plan::sign(signer, self.sequence, timestamp_ns, frame);
            add(&mut sums, sum << plan.signature_sum_shift, &self.signature_counts_in);
        }
        for index in 0..LIVE {
            // If fewer vary, the last are not used.
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
