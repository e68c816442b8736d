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
}

#[cfg(test)]
mod tests {
    use super::*;

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
