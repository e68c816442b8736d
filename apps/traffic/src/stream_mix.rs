//! The frames of several streams by one sender.

use crate::frame_source::{FrameSource, OneSize};
use crate::line_rate::BitLayer;
use crate::rotation::{MAX_CHOICES, MAX_ROTATION, Rotation};

/// Streams that share a load by their weights.
///
/// The order is fixed and spread: after any number of frames each stream has sent less than one frame more or less than
/// its exact share.
#[derive(Debug, Clone)]
pub struct StreamMix {
    sources: Vec<FrameSource>,
    rotation: Rotation,
}

/// The streams cannot share a load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{streams} streams with weights of {sum} in sum cannot share a load: give 1 to {MAX_CHOICES} streams with weights of \
     at least 1, of which the sum, over their greatest common divisor, is at most {MAX_ROTATION}"
)]
#[non_exhaustive]
pub struct MixError {
    /// Number of streams.
    pub streams: usize,
    /// Sum of the weights.
    pub sum: u64,
}

impl StreamMix {
    /// Combines streams with their weights.
    ///
    /// # Errors
    /// [`MixError`] if there are no streams, too many, or their weights do not fit.
    pub fn new(streams: Vec<(FrameSource, u32)>) -> Result<Self, MixError> {
        let (sources, weights): (Vec<FrameSource>, Vec<u32>) = streams.into_iter().unzip();
        let rotation = Rotation::weighted(&weights).ok_or_else(|| MixError {
            streams: weights.len(),
            sum: weights.iter().map(|weight| u64::from(*weight)).sum(),
        })?;
        Ok(Self { sources, rotation })
    }

    /// Length of the next frame in its slot, bytes without FCS.
    #[inline]
    #[must_use]
    pub fn next_size(&self) -> usize {
        self.sources.get(self.rotation.current()).map_or(0, FrameSource::next_size)
    }

    /// Makes the next frame. Returns the frame, without FCS, and the index of its stream. `timestamp_ns` goes into its
    /// signature.
    #[inline]
    pub fn next_frame(&mut self, timestamp_ns: u64) -> (&[u8], usize) {
        let stream = self.rotation.current();
        self.rotation.advance();
        let frame = self.sources.get_mut(stream).map(|source| source.next_frame(timestamp_ns));
        (frame.unwrap_or_default(), stream)
    }

    /// The frames, if there is one stream and all frames have one size.
    #[inline]
    #[must_use]
    pub fn of_one_size(&mut self) -> Option<OneSize<'_>> {
        let [source] = self.sources.as_mut_slice() else { return None };
        source.of_one_size()
    }

    /// The streams in the given order. The [`FrameSource::next_sequence`] of each is the number of frames that it has
    /// sent.
    #[must_use]
    pub fn sources(&self) -> &[FrameSource] {
        &self.sources
    }

    /// Length of the longest frame in its slot, bytes without FCS.
    #[inline]
    #[must_use]
    pub fn longest_slot_bytes(&self) -> usize {
        self.sources.iter().map(FrameSource::longest_slot_bytes).max().unwrap_or(0)
    }

    /// Mean number of bits of a frame over all streams and sizes, as `layer` counts them.
    #[must_use]
    pub fn mean_bits(&self, layer: BitLayer) -> f64 {
        let order = self.rotation.order();
        let sources = order.iter().filter_map(|stream| self.sources.get(usize::from(*stream)));
        sources.map(|source| source.mean_bits(layer)).sum::<f64>() / order.len() as f64
    }
}

#[cfg(test)]
mod tests;
