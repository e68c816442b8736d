//! Violations of a buffer's rules by its other side.

use crate::segment::SegmentError;

/// A broken rule. The buffer is stopped from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelFault {
    /// A pointer that lies where it cannot.
    #[error(
        "the other side's pointer is {pointer:#x}, and may be from {from:#x} to {to:#x} of a buffer of {size:#x} bytes, in steps of 8"
    )]
    Pointer {
        /// The pointer.
        pointer: u64,
        /// Where it was.
        from: u64,
        /// How far it could have come.
        to: u64,
        /// Size of the buffer, bytes.
        size: u64,
    },
    /// A segment that cannot be one.
    #[error("at {at:#x} of the buffer: {error}")]
    Segment {
        /// Where it begins.
        at: u64,
        error: SegmentError,
    },
}
