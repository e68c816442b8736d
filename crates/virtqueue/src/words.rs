//! Access to the words of a ring that the other side writes at the same time. Each word is read and written once, as a
//! whole.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// The bytes of one part of a ring. The creator keeps them mapped.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    start: NonNull<u8>,
    bytes: usize,
}

impl Words {
    /// Words of the `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The `bytes` bytes at `start` stay mapped, for reading and writing, as long as the value is used; `start` is
    /// aligned to 4, or to 8 where [`Self::word64`] is used. All other code accesses them atomically or from another
    /// process. The holder names only words that lie within the bytes, at multiples of their size.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// The 16-bit word at `offset`, which is even and within the bytes.
    #[inline]
    #[must_use]
    pub fn word16(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: any bits are a number, and the size is that of the type.
        unsafe { self.word(offset) }
    }

    /// The 32-bit word at `offset`, a multiple of 4 and within the bytes.
    #[inline]
    #[must_use]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.word(offset) }
    }

    /// The 64-bit word at `offset`, a multiple of 8 and within the bytes.
    #[inline]
    #[must_use]
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.word(offset) }
    }

    /// The word at `offset`.
    ///
    /// # Safety
    /// `T` is an atomic number.
    #[inline]
    unsafe fn word<T>(&self, offset: usize) -> &T {
        debug_assert!(offset.is_multiple_of(size_of::<T>()) && offset + size_of::<T>() <= self.bytes);
        // SAFETY: the creator vouched for the bytes. Callers vouch for the offset, which they derive from the checked
        // size.
        let word = unsafe { self.start.byte_add(offset) }.cast::<T>();
        // SAFETY: as above. The alignment is that of the creator's contract.
        unsafe { word.as_ref() }
    }
}

/// Reads 8 bytes once, at any alignment, from memory that the peer writes.
///
/// # Safety
/// 8 bytes are mapped at `from`.
#[inline]
pub(crate) unsafe fn read_u64(from: NonNull<u8>) -> u64 {
    /// A word without an alignment.
    #[repr(C, packed)]
    struct AlignedWord(u64);
    // The read is volatile because the peer may write at the same time: a plain read would be a data race, and the
    // compiler could repeat it.
    // SAFETY: the caller's contract; any bits are a number.
    let AlignedWord(bits) = unsafe { from.cast::<AlignedWord>().read_volatile() };
    u64::from_le(bits)
}
