//! A peer's faults in a ring.

/// Why a ring was stopped, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// Head or tail moved where it must not.
    #[error("the peer moved its index to {index} where {from} to {to} is allowed")]
    Index { index: u16, from: u16, to: u16 },
    /// A buffer outside of its region.
    #[error("descriptor {slot}: {bytes} bytes at {offset} of region {region} do not lie in it")]
    Buffer { slot: u16, region: u16, offset: u32, bytes: u32 },
    /// A part of a frame longer than its buffer, or than a frame can be.
    #[error("descriptor {slot} holds {bytes} bytes, more than {most}")]
    Length { slot: u16, bytes: u32, most: u32 },
    /// A buffer for nothing.
    #[error("descriptor {slot} offers an empty buffer of no bytes")]
    NoBuffer { slot: u16 },
    /// Too many parts, or none that is the last.
    #[error("the frame at descriptor {slot} has more than {most} parts")]
    Chain { slot: u16, most: u16 },
    /// Truncated memory.
    #[error("the peer took back memory that it had shared")]
    Lost,
}
