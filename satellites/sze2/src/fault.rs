//! Violations of a buffer's rules by its other side.

use crate::segment::SegmentError;

/// A broken rule. The buffer is stopped from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelFault {
    /// A pointer is outside of its possible range.
    #[error(
        "the other side's pointer is {pointer:#x}, and may be from {from:#x} to {to:#x} of a buffer of {size:#x} bytes, in steps of 8"
    )]
    Pointer {
        /// The wrong pointer.
        pointer: u64,
        /// Previous pointer.
        from: u64,
        /// Greatest possible pointer.
        to: u64,
        /// Size of the buffer, bytes.
        size: u64,
    },
    /// A segment is invalid.
    #[error("at {at:#x} of the buffer: {error}")]
    Segment {
        /// Offset of the segment in the buffer.
        at: u64,
        error: SegmentError,
    },
}
