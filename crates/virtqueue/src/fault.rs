//! A driver's violations of a ring's rules. Such a ring is stopped, because its content cannot be trusted any more.

/// Rule that a driver broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingFault {
    /// More entries were made available than the ring has.
    #[error("the index of available entries moved beyond the size of the ring")]
    AvailableIndex,
    /// A chain begins or continues at a descriptor that does not exist.
    #[error("a chain leads to descriptor {0}, which the ring does not have")]
    NoSuchDescriptor(u16),
    /// A chain has more descriptors than the ring, so it may be a loop.
    #[error("a chain of descriptors has no end")]
    Endless,
    /// A buffer has too many segments.
    #[error("a buffer is in more than {} pieces", crate::chain::MAX_SEGMENTS)]
    TooManyPieces,
    /// A buffer to be read is longer than any frame.
    #[error("a frame is longer than {} bytes", crate::chain::MAX_CHAIN_BYTES)]
    TooLong,
    /// A buffer lies outside of the shared memory.
    #[error("a descriptor names {bytes} bytes at {address:#x}, which is not memory of the guest")]
    NoMemory {
        /// Guest's address of the buffer.
        address: u64,
        /// Length of the buffer, bytes.
        bytes: u32,
    },
    /// A buffer that the device writes is for reading only, or the parts of a request are in the wrong order.
    #[error("a buffer is for the other direction")]
    Direction,
    /// A table was not negotiated, is within a table or in a chain, or has an invalid size.
    #[error("a table of descriptors in a wrong place, or of {0} bytes")]
    Table(u32),
    /// The shared memory is gone.
    #[error("the guest's memory was taken back while in use")]
    MemoryLost,
}

/// Reason why a ring cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingSetupError {
    /// Invalid number of entries.
    #[error(
        "a ring of {0} entries: their number is a power of two up to 32768, and of a packed ring any up to that"
    )]
    Entries(u32),
    /// A part of the ring is not in the shared memory, or not aligned.
    #[error("the {part} of a ring at {address:#x} does not lie in the guest's memory, or not where it may")]
    PartAddress {
        /// Name of the part.
        part: &'static str,
        /// Front end's address of the part.
        address: u64,
    },
    /// The memory for buffers in flight is too small for the ring with this index.
    #[error("the memory for buffers in flight has no place for ring {0}")]
    Inflight(u16),
}
