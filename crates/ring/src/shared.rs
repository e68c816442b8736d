//! Access to memory that another process writes at the same time.
//!
//! Slots are pairs of atomic words: one load gives index, length and flags that belong together. Frame bytes have no
//! such protection: a hostile peer may change them while they are copied. So a value that was checked in a shared
//! buffer may not be read from it again. Copies go to private memory or to the only destination.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::copy::copy_bytes;
use crate::layout::slot_flags::MORE_FRAGMENTS;
use crate::layout::{FIRST_BUFFER, Slot};

/// Slot in shared memory.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct SharedSlot {
    word: AtomicU64,
    ptr: AtomicU64,
}

const _: () = assert!(size_of::<SharedSlot>() == size_of::<Slot>());

/// Buffer, length and flags of a slot, as in its first word: read, checked and passed on together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotWord(u64);

impl SlotWord {
    /// Mask of the length, and of the flag that more fragments follow.
    const EXTENT: u64 = (MORE_FRAGMENTS as u64) << 48 | (u16::MAX as u64) << Self::LEN_SHIFT;
    const LEN_SHIFT: u32 = 32;

    /// Word of a slot with these values.
    #[inline]
    #[must_use]
    pub fn new(buffer: u32, len: u16, flags: u16) -> Self {
        Self(u64::from(buffer) | u64::from(len) << 32 | u64::from(flags) << 48)
    }

    /// Index of the slot's buffer.
    #[inline]
    #[must_use]
    pub fn buffer(self) -> u32 {
        self.0 as u32
    }

    /// Length of the fragment, bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Length at its position in the word, and above it the flag that more fragments follow. Extents of slots with
    /// single-slot frames are compared and added in this form. [`Self::extent_bytes`] converts them to bytes.
    #[inline]
    #[must_use]
    pub fn extent(self) -> u64 {
        self.0 & Self::EXTENT
    }

    /// Number of bytes in a sum of extents; it must be less than 2^31.
    #[inline]
    #[must_use]
    pub fn extent_bytes(sum: u64) -> u64 {
        sum >> Self::LEN_SHIFT
    }

    /// Whether the length is 0.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The slot's flags.
    #[inline]
    #[must_use]
    pub fn flags(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Word with the same length and flags, and with buffer `buffer`.
    #[inline]
    #[must_use]
    pub fn in_buffer(self, buffer: u32) -> Self {
        // The XOR of both indexes changes only the buffer's bits: the other bits need no mask.
        Self(self.0 ^ u64::from(self.buffer() ^ buffer))
    }

    /// Word with the same length, no flags, and buffer `buffer`. The flag that more fragments follow must not be set.
    #[inline]
    #[must_use]
    pub(crate) fn alone_in(self, buffer: u32) -> Self {
        Self(self.extent() | u64::from(buffer))
    }

    /// Word with the same buffer and length, and with these flags.
    #[inline]
    #[must_use]
    pub fn with_flags(self, flags: u16) -> Self {
        Self(self.0 & u64::MAX >> 16 | u64::from(flags) << 48)
    }

    /// Whether the slot has exactly these flags, and a length of at least `least` bytes.
    #[inline]
    #[must_use]
    pub fn has_flags_and(self, flags: u16, least: u16) -> bool {
        // The XOR clears equal flags and leaves the length unchanged.
        let len = (self.0 >> 32) as u32 ^ u32::from(flags) << 16;
        len.wrapping_sub(least.into()) <= u32::from(u16::MAX - least)
    }

    /// Union of the bits of both words.
    #[inline]
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl From<Slot> for SlotWord {
    #[inline]
    fn from(slot: Slot) -> Self {
        Self::new(slot.buffer, slot.len, slot.flags)
    }
}

impl Slot {
    #[inline]
    fn of(word: SlotWord, ptr: u64) -> Self {
        Self { buffer: word.buffer(), len: word.len(), flags: word.flags(), ptr }
    }
}

impl SharedSlot {
    /// Reads index, length and flags at once; `ptr` is 0.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Slot {
        Slot::of(self.load_word(), 0)
    }

    /// Reads the whole slot.
    #[inline]
    #[must_use]
    pub fn load_with_ptr(&self) -> Slot {
        Slot::of(self.load_word(), self.ptr.load(Ordering::Relaxed))
    }

    /// Writes index, length and flags; `ptr` stays. A slot that already has these values is not written, so its cache
    /// line stays shared: with frames of one size, the slots of a ring never move between cores.
    #[inline]
    pub fn store(&self, slot: Slot) {
        self.replace(self.load_word(), slot.into());
    }

    /// Reads index, length and flags at once, as one word.
    #[inline]
    #[must_use]
    pub fn load_word(&self) -> SlotWord {
        SlotWord(self.word.load(Ordering::Relaxed))
    }

    /// Writes length and flags if they differ from `old`, which [`Self::load_word`] returned; the buffer stays.
    #[inline]
    pub(crate) fn describe(&self, old: SlotWord, len: u16, flags: u16) {
        self.replace(old, SlotWord::new(old.buffer(), len, flags));
    }

    /// Writes `new` if it differs from `old`, which was read before.
    #[inline]
    pub(crate) fn replace(&self, old: SlotWord, new: SlotWord) {
        if old != new {
            self.word.store(new.0, Ordering::Relaxed);
        }
    }

    /// Writes `new` unconditionally.
    #[inline]
    pub(crate) fn overwrite(&self, new: SlotWord) {
        self.word.store(new.0, Ordering::Relaxed);
    }

    /// Writes only `ptr`, unconditionally.
    #[inline]
    pub(crate) fn overwrite_ptr(&self, ptr: u64) {
        self.ptr.store(ptr, Ordering::Relaxed);
    }

    /// Reads only `ptr`.
    #[inline]
    pub(crate) fn load_ptr(&self) -> u64 {
        self.ptr.load(Ordering::Relaxed)
    }

    /// Writes the whole slot, each word only if it differs.
    #[inline]
    pub fn store_with_ptr(&self, slot: Slot) {
        self.store(slot);
        self.store_ptr(slot.ptr);
    }

    /// Writes only `ptr`, if it differs.
    #[inline]
    pub fn store_ptr(&self, ptr: u64) {
        if self.ptr.load(Ordering::Relaxed) != ptr {
            self.ptr.store(ptr, Ordering::Relaxed);
        }
    }
}

/// Buffer pool of a region, as a base address and bounds.
#[derive(Debug, Clone, Copy)]
pub struct BufferPool {
    base: NonNull<u8>,
    count: u32,
    bytes: u32,
}

impl BufferPool {
    /// # Safety
    /// `count * bytes` bytes from `base` stay mapped and writable while the pool is in use.
    pub(crate) unsafe fn from_trusted_parts(base: NonNull<u8>, count: u32, bytes: u32) -> Self {
        Self { base, count, bytes }
    }

    /// Size of every buffer, bytes.
    #[inline]
    #[must_use]
    pub fn buffer_bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether `index` is valid in a slot.
    #[inline]
    #[must_use]
    pub fn has(&self, index: u32) -> bool {
        index.wrapping_sub(FIRST_BUFFER) < self.count.saturating_sub(FIRST_BUFFER)
    }

    /// The first `len` bytes (at most a buffer) of buffer `index`; an index outside the pool gives no bytes, as netmap
    /// reads such slots as empty.
    #[inline]
    #[must_use]
    pub(crate) fn bytes<'ring>(&self, index: u32, len: usize) -> SharedBytes<'ring> {
        match self.address(index) {
            // SAFETY: a whole buffer lies there, and the constructor's caller guaranteed its mapping.
            Some(start) => unsafe { SharedBytes::from_trusted_parts(start, len.min(self.bytes as usize)) },
            // SAFETY: the range is empty.
            None => unsafe { SharedBytes::from_trusted_parts(NonNull::dangling(), 0) },
        }
    }

    /// The single-slot frame of a slot, if the slot names a valid buffer with enough bytes.
    #[inline]
    #[must_use]
    pub(crate) fn single<'ring>(&self, slot: SlotWord) -> Option<SharedBytes<'ring>> {
        self.single_within(slot, self.longest_extent())
    }

    /// Extent ([`SlotWord::extent`]) of the longest frame that fits into a buffer.
    #[inline]
    fn longest_extent(&self) -> u64 {
        u64::from(self.bytes.min(u16::MAX.into())) << SlotWord::LEN_SHIFT
    }

    /// Works as [`Self::single`], for slots with an extent of at most `longest`, which is at most the longest frame's
    /// extent.
    #[inline]
    fn single_within<'ring>(&self, slot: SlotWord, longest: u64) -> Option<SharedBytes<'ring>> {
        let start = self.address(slot.buffer())?;
        // One comparison checks length and flag: with the flag, the extent is larger than any length.
        if slot.extent() > longest {
            return None;
        }
        // SAFETY: the buffer has this many bytes, and the constructor's caller guaranteed the mapping of all of them.
        Some(unsafe { SharedBytes::from_trusted_parts(start, slot.len().into()) })
    }

    /// Copier of frames of one slot, from buffers of this pool to buffers of `to`.
    #[inline]
    pub(crate) fn copying_to(self, to: Self) -> SlotCopy {
        SlotCopy { from: self, to, longest: self.longest_extent().min(to.longest_extent()) }
    }

    /// Prefetches, for writing, the first line of the buffer that lies `count` buffers after the buffer at `start`: a
    /// ring that was just laid out names its buffers in order. A wrong guess only costs the loading of a line.
    #[inline]
    pub(crate) fn prefetch_write_behind(&self, start: NonNull<u8>, count: usize) {
        prefetch_write(start.as_ptr().wrapping_add(count.wrapping_mul(self.bytes as usize)));
    }

    /// Works as [`Self::prefetch_write_behind`], for reading.
    #[inline]
    pub(crate) fn prefetch_read_behind(&self, start: NonNull<u8>, count: usize) {
        prefetch_read(start.as_ptr().wrapping_add(count.wrapping_mul(self.bytes as usize)));
    }

    /// Copies `frame` into buffer `index`, and returns the address of the copy. Returns `None`, and copies nothing, if
    /// there is no such buffer or it is too short.
    #[inline]
    #[must_use]
    pub(crate) fn fill(&self, index: u32, frame: &SharedBytes<'_>) -> Option<NonNull<u8>> {
        if frame.len > self.bytes as usize {
            return None;
        }
        let start = self.address(index)?;
        // SAFETY: both ranges are mapped for `len` bytes; the copy handles overlap.
        unsafe { copy_bytes(frame.start.as_ptr(), start.as_ptr(), frame.len) };
        Some(start)
    }

    /// Address of the reserved buffer 0, which netmap uses for invalid indexes. No slot's frame is taken from it.
    #[inline]
    #[must_use]
    pub fn reserved(&self) -> NonNull<u8> {
        self.base
    }

    /// Address of buffer `index`, or `None` if there is no such buffer.
    #[inline]
    #[must_use]
    pub fn address(&self, index: u32) -> Option<NonNull<u8>> {
        if !self.has(index) {
            return None;
        }
        // SAFETY: index < count, and the constructor's caller guaranteed count * bytes mapped bytes.
        Some(unsafe { self.base.add(index as usize * self.bytes as usize) })
    }
}

/// Source and target pool, and the extent of the longest frame that fits into buffers of both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotCopy {
    from: BufferPool,
    to: BufferPool,
    longest: u64,
}

impl SlotCopy {
    /// Copies the single-slot frame of `source` into the buffer of `target`, and prefetches the frame that lies `ahead`
    /// buffers after it. Returns the word for the target's slot, without flags. Returns `None`, and copies nothing, if
    /// a slot is invalid, the source has several slots, or the frame is too long.
    #[inline]
    pub(crate) fn copy(&self, source: SlotWord, target: SlotWord, ahead: usize) -> Option<SlotWord> {
        let frame = self.from.single_within(source, self.longest)?;
        self.from.prefetch_read_behind(frame.start, ahead);
        let start = self.to.address(target.buffer())?;
        // SAFETY: both ranges are mapped for `len` bytes: neither pool's buffers are shorter than `longest`. The copy
        // handles overlap.
        unsafe { copy_bytes(frame.start.as_ptr(), start.as_ptr(), frame.len) };
        Some(source.alone_in(target.buffer()))
    }
}

/// Bytes of a shared buffer that the ring lends.
#[derive(Debug)]
pub struct SharedBytes<'ring> {
    start: NonNull<u8>,
    len: usize,
    ring: PhantomData<&'ring ()>,
}

impl<'ring> SharedBytes<'ring> {
    /// # Safety
    /// `len` bytes from `start` stay mapped, and writable if they are ever written through this, for `'ring`.
    #[inline]
    #[must_use]
    pub unsafe fn from_trusted_parts(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, ring: PhantomData }
    }

    /// Private bytes, as a source of copies.
    #[inline]
    pub(crate) fn of(bytes: &'ring [u8]) -> Self {
        Self { start: NonNull::from(bytes).cast(), len: bytes.len(), ring: PhantomData }
    }

    /// Number of bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies as many bytes as fit from the start into `into`; returns the number of copied bytes.
    #[inline]
    pub fn read(&self, into: &mut [u8]) -> usize {
        let len = self.len.min(into.len());
        // SAFETY: both ranges hold `len` bytes and cannot overlap: one is borrowed private memory.
        unsafe { copy_bytes(self.start.as_ptr(), into.as_mut_ptr(), len) };
        len
    }

    /// Reads the first `N` bytes once; `None` if there are fewer.
    #[inline]
    #[must_use]
    pub fn read_array<const N: usize>(&self) -> Option<[u8; N]> {
        // SAFETY: mapped for `N` bytes, checked before; an array has no alignment.
        (self.len >= N).then(|| unsafe { self.start.cast::<[u8; N]>().read() })
    }

    /// Writes `from` to the start; returns whether it fits.
    #[inline]
    pub fn write_array<const N: usize>(&mut self, from: [u8; N]) -> bool {
        if self.len < N {
            return false;
        }
        // SAFETY: mapped for `N` bytes, just checked; an array has no alignment.
        unsafe { self.start.cast::<[u8; N]>().write(from) };
        true
    }

    /// Copies `from` to the start, as much as fits; returns the number of bytes written.
    #[inline]
    pub fn write(&mut self, from: &[u8]) -> usize {
        let len = self.len.min(from.len());
        // SAFETY: both ranges hold `len` bytes and cannot overlap: one is borrowed private memory.
        unsafe { copy_bytes(from.as_ptr(), self.start.as_ptr(), len) };
        len
    }

    /// Copies from another shared range, as much as fits; returns the number of bytes copied.
    #[inline]
    pub fn copy_from(&mut self, from: &SharedBytes<'_>) -> usize {
        let len = self.len.min(from.len);
        // SAFETY: both ranges are mapped for `len` bytes; the copy handles overlap.
        unsafe { copy_bytes(from.start.as_ptr(), self.start.as_ptr(), len) };
        len
    }

    /// Part from `offset` on; empty if `offset` is beyond the end.
    #[inline]
    #[must_use]
    pub fn skip(self, offset: usize) -> Self {
        let offset = offset.min(self.len);
        // SAFETY: offset is at most len, so the pointer stays within the mapped range or at its end.
        let start = unsafe { self.start.add(offset) };
        Self { start, len: self.len - offset, ring: PhantomData }
    }

    /// Address of the first byte; meaningless for an empty range.
    #[inline]
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Pointer to the first byte, for callers that order their own accesses.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes as a slice, without a copy.
    ///
    /// # Safety
    /// No other code may write these bytes while the slice lives: the other side of the ring must be trusted not to use
    /// slots that it does not own, and no other slot may name the same buffer.
    #[inline]
    #[must_use]
    pub unsafe fn as_slice(&self) -> &'ring [u8] {
        // SAFETY: mapped for 'ring; the caller guarantees that no other code writes.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes as a mutable slice.
    ///
    /// # Safety
    /// The conditions of [`Self::as_slice`], and no other code may read the bytes either.
    #[inline]
    #[must_use]
    pub unsafe fn as_mut_slice(&mut self) -> &'ring mut [u8] {
        // SAFETY: mapped for 'ring; the caller guarantees exclusive use.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Starts loading the first line of a buffer that will be read soon.
#[inline]
pub fn prefetch_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, for any address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Starts loading the first line of a buffer that will be written soon, for ownership.
#[inline]
pub fn prefetch_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, for any address; PREFETCHW is a no-op where it is unknown.
    unsafe {
        core::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
