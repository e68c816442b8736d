//! A peer's faults in a ring.

/// Reason why a ring was stopped, as text for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// Head or tail has an invalid value.
    #[error("the peer moved its index to {index} where {from} to {to} is allowed")]
    Index { index: u16, from: u16, to: u16 },
    /// A buffer lies outside of its region.
    #[error("descriptor {slot}: {bytes} bytes at {offset} of region {region} do not lie in it")]
    Buffer { slot: u16, region: u16, offset: u32, bytes: u32 },
    /// A part of a frame is longer than its buffer or than the longest frame.
    #[error("descriptor {slot} holds {bytes} bytes, more than {most}")]
    Length { slot: u16, bytes: u32, most: u32 },
    /// A buffer has no bytes.
    #[error("descriptor {slot} offers an empty buffer of no bytes")]
    NoBuffer { slot: u16 },
    /// A frame has too many parts, or no last one.
    #[error("the frame at descriptor {slot} has more than {most} parts")]
    Chain { slot: u16, most: u16 },
    /// The memory was truncated.
    #[error("the peer took back memory that it had shared")]
    Lost,
}
