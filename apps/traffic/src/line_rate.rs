//! Length of a frame on an Ethernet line, and the resulting conversion between rates in frames and in bits.
//!
//! Two counts of bits are in use. *L2* counts the frame from destination address to FCS. *L1* adds the overhead of each
//! frame on the line: preamble, start-of-frame delimiter and the gap to the next frame (IEEE 802.3, clauses 3.2.1,
//! 3.2.2 and 4.4.2). A link's nominal speed is an L1 rate.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Preamble before each frame, bytes.
pub const PREAMBLE_BYTES: u32 = 7;
/// Start-of-frame delimiter, bytes.
pub const SFD_BYTES: u32 = 1;
/// Frame check sequence at the frame's end, bytes. Part of a frame size, and never present in a slot.
pub const FCS_BYTES: u32 = 4;
/// Least gap between frames (96 bit times), bytes.
pub const GAP_BYTES: u32 = 12;
/// Overhead of each frame with its FCS on the line, bytes.
pub const L1_OVERHEAD_BYTES: u32 = PREAMBLE_BYTES + SFD_BYTES + GAP_BYTES;

/// Length of a frame *with* its FCS, as RFC 2544 and RFC 2889 count it: 64 to 65539 bytes. Its slot holds
/// [`FCS_BYTES`] fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct FrameSize(u32);

/// The number is not a frame size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not a frame size: give {} to {} bytes, the 4 bytes of FCS included",
    FrameSize::MIN.0,
    FrameSize::MAX.0
)]
#[non_exhaustive]
pub struct FrameSizeError {
    pub text: String,
}

impl FrameSize {
    /// The shortest Ethernet frame, 64 bytes.
    pub const MIN: Self = Self(64);
    /// The longest frame: 65535 bytes in the slot and the FCS.
    pub const MAX: Self = Self(65535 + FCS_BYTES);

    /// The size of a frame of `bytes_with_fcs` bytes.
    ///
    /// # Errors
    /// [`FrameSizeError`] if it is outside [`Self::MIN`] to [`Self::MAX`].
    pub fn new(bytes_with_fcs: u32) -> Result<Self, FrameSizeError> {
        if (Self::MIN.0..=Self::MAX.0).contains(&bytes_with_fcs) {
            Ok(Self(bytes_with_fcs))
        } else {
            Err(FrameSizeError { text: bytes_with_fcs.to_string() })
        }
    }

    /// Bytes from destination address to FCS.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// Bytes in the slot: without FCS.
    #[must_use]
    pub const fn slot_bytes(self) -> usize {
        (self.0 - FCS_BYTES) as usize
    }
}

impl FromStr for FrameSize {
    type Err = FrameSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.parse().map_err(|_| FrameSizeError { text: text.to_owned() })?;
        Self::new(bytes)
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u32> for FrameSize {
    type Error = FrameSizeError;

    fn try_from(bytes_with_fcs: u32) -> Result<Self, Self::Error> {
        Self::new(bytes_with_fcs)
    }
}

impl From<FrameSize> for u32 {
    fn from(size: FrameSize) -> Self {
        size.0
    }
}

/// Selection of the bits that a bit rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BitLayer {
    /// All bits on the line: 20 bytes more than the frame with FCS, 24 more than in the slot.
    L1,
    /// The frame with FCS: 4 bytes more than in the slot.
    L2,
}

impl BitLayer {
    /// Bytes that each frame counts in addition to its bytes in the slot.
    #[must_use]
    pub const fn bytes_over_slot(self) -> u32 {
        match self {
            Self::L1 => FCS_BYTES + L1_OVERHEAD_BYTES,
            Self::L2 => FCS_BYTES,
        }
    }

    /// Bits that a frame of `size` counts.
    #[must_use]
    pub const fn bits_per_frame(self, size: FrameSize) -> u32 {
        (size.0 - FCS_BYTES + self.bytes_over_slot()) * 8
    }
}

/// Bit rate (bit/s) of `rate_fps` frames/s of `size`.
#[must_use]
pub fn bit_rate_bps(rate_fps: f64, size: FrameSize, layer: BitLayer) -> f64 {
    rate_fps * f64::from(layer.bits_per_frame(size))
}

/// Frames/s of `size` that make `rate_bps` bit/s.
#[must_use]
pub fn frame_rate_fps(rate_bps: f64, size: FrameSize, layer: BitLayer) -> f64 {
    rate_bps / f64::from(layer.bits_per_frame(size))
}

/// Greatest rate of frames of `size` on a link of nominally `link_bps` bit/s, frames/s.
#[must_use]
pub fn max_frame_rate_fps(link_bps: f64, size: FrameSize) -> f64 {
    frame_rate_fps(link_bps, size, BitLayer::L1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u32) -> FrameSize {
        FrameSize::new(bytes).unwrap()
    }

    #[test]
    fn ten_gigabit_carries_the_well_known_frame_rates() {
        for (bytes, rate_fps) in [(64, 14_880_952.38), (512, 2_349_624.06), (1518, 812_743.82)] {
            let rate = max_frame_rate_fps(10e9, size(bytes));
            assert!((rate - rate_fps).abs() < 0.01, "{bytes} bytes: {rate}");
        }
    }

    #[test]
    fn a_64_byte_frame_counts_84_bytes_on_the_line_and_60_in_the_slot() {
        assert_eq!(BitLayer::L1.bits_per_frame(size(64)), 84 * 8);
        assert_eq!(BitLayer::L2.bits_per_frame(size(64)), 64 * 8);
        assert_eq!(size(64).slot_bytes(), 60);
    }

    #[test]
    fn frames_to_bits_and_back_is_the_same_rate() {
        for layer in [BitLayer::L1, BitLayer::L2] {
            let rate_bps = bit_rate_bps(1e6, size(1518), layer);
            assert!((frame_rate_fps(rate_bps, size(1518), layer) - 1e6).abs() < 1e-6);
        }
        assert_eq!(bit_rate_bps(1e6, size(64), BitLayer::L1), 672e6);
        assert_eq!(bit_rate_bps(1e6, size(64), BitLayer::L2), 512e6);
    }

    #[test]
    fn sizes_outside_64_to_65539_and_other_text_are_refused() {
        for text in ["63", "65540", "0", "-64", "64B", "", "4294967360"] {
            assert_eq!(text.parse::<FrameSize>(), Err(FrameSizeError { text: text.to_owned() }));
        }
        assert_eq!("64".parse(), Ok(FrameSize::MIN));
        assert_eq!("65539".parse(), Ok(FrameSize::MAX));
        assert_eq!(FrameSize::MAX.slot_bytes(), 65535);
    }
}
