//! A driver's violations of a ring's rules. Such a ring is stopped, because its content cannot be trusted any more.

/// Which rule was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingFault {
    /// More entries were made available than the ring has.
    #[error("the index of available entries moved beyond the size of the ring")]
    AvailableIndex,
    /// A chain begins or continues at a descriptor that does not exist.
    #[error("a chain leads to descriptor {0}, which the ring does not have")]
    NoSuchDescriptor(u16),
    /// A chain with more descriptors than the ring has: a loop, or as good as one.
    #[error("a chain of descriptors has no end")]
    Endless,
    /// A buffer in too many pieces.
    #[error("a buffer is in more than {} pieces", crate::chain::MAX_SEGMENTS)]
    TooManyPieces,
    /// A frame longer than can be.
    #[error("a frame is longer than {} bytes", crate::chain::MAX_CHAIN_BYTES)]
    TooLong,
    /// A buffer outside of the memory that was shared.
    #[error("a descriptor names {bytes} bytes at {address:#x}, which is not memory of the guest")]
    NoMemory {
        /// Address as the guest counts.
        address: u64,
        /// Length, bytes.
        bytes: u32,
    },
    /// A buffer to be read where one to be written is due, or the other way round.
    #[error("a buffer is for the other direction")]
    Direction,
    /// A table that was not agreed, within a table, in a chain, or of an odd size.
    #[error("a table of descriptors in a wrong place, or of {0} bytes")]
    Table(u32),
    /// The memory went away.
    #[error("the guest's memory was taken back while in use")]
    MemoryLost,
}

/// Why a ring cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingSetupError {
    /// Entries.
    #[error(
        "a ring of {0} entries: their number is a power of two up to 32768, and of a packed ring any up to that"
    )]
    Entries(u32),
    /// A part is not in the memory shared, or not aligned.
    #[error("the {part} of a ring at {address:#x} does not lie in the guest's memory, or not where it may")]
    PartAddress {
        /// Which part.
        part: &'static str,
        /// Its address as the front end counts.
        address: u64,
    },
    /// The memory for buffers in flight is too small for it.
    #[error("the memory for buffers in flight has no place for ring {0}")]
    Inflight(u16),
}
