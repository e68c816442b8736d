//! A memif ring in shared memory (memif.h, `memif_ring_t`, `memif_desc_t`): location of its parts, and atomic access to
//! them.
//!
//! In a ring to the server the client moves `head` behind the frames that it put in, and the server moves `tail` behind
//! the frames that it has used. In a ring to the client the client moves `head` behind empty buffers, and the server
//! moves `tail` behind the buffers that it has filled. Both indexes count on, modulo 2^16. The peer can write any value
//! at any time: callers check each value before use.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use ringroad_ring::foreign_memory::ForeignMemory;
use ringroad_ring::shared::SharedBytes;

/// Maximum number of descriptors of a ring, as the exponent of a power of two. Head and tail have 16 bits, and must
/// differ by less than half of their range.
pub(super) const MAX_LOG2_SIZE: u8 = 14;
/// `MEMIF_COOKIE`: first word of a ring.
const COOKIE: u32 = 0x03E3_1F20;
/// Bytes in front of the descriptors: one cache line with cookie, flags and head, one with tail.
const HEADER_BYTES: usize = 128;
const DESCRIPTOR_BYTES: usize = 16;
const FLAGS_AT: usize = 4;
const HEAD_AT: usize = 6;
const TAIL_AT: usize = 64;
/// `MEMIF_RING_FLAG_MASK_INT`: the ring's receiver does not want to be woken.
const MASK_INTERRUPT: u16 = 1;
/// `MEMIF_DESC_FLAG_NEXT`: the frame continues in the next descriptor.
const NEXT: u16 = 1;

/// The regions of a connection, in the order of their numbers.
#[derive(Debug)]
pub(super) struct Regions(Vec<ForeignMemory>);

impl Regions {
    pub(super) fn new(regions: Vec<ForeignMemory>) -> Arc<Self> {
        Arc::new(Self(regions))
    }

    /// The `bytes` bytes at `offset` of region `region`; `None` if some are outside of it.
    #[inline]
    pub(super) fn part(&self, region: u16, offset: u32, bytes: usize) -> Option<SharedBytes<'_>> {
        self.0.get(usize::from(region))?.part(offset as usize, bytes)
    }

    /// Whether a peer truncated a region.
    #[inline]
    pub(super) fn are_lost(&self) -> bool {
        self.0.iter().any(ForeignMemory::is_lost)
    }
}

/// Content of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) has_next: bool,
    pub(super) region: u16,
    /// Length of the frame's part in the buffer, bytes; for an empty buffer its size.
    pub(super) bytes: u32,
    pub(super) offset: u32,
}

/// A ring, within its region.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    mask: u16,
    pub(super) regions: Arc<Regions>,
}

// SAFETY: all access to the memory is atomic, and the regions stay mapped while the value lives.
unsafe impl Send for Ring {}

/// Bytes of a ring of 2^`log2_size` descriptors.
pub(super) fn ring_bytes(log2_size: u8) -> usize {
    HEADER_BYTES + (DESCRIPTOR_BYTES << log2_size)
}

impl Ring {
    /// The ring of 2^`log2_size` descriptors at `offset` of `region`.
    ///
    /// # Errors
    /// The reason why there can be no such ring, as text for users.
    pub(super) fn new(
        regions: &Arc<Regions>,
        region: u16,
        offset: u32,
        log2_size: u8,
    ) -> Result<Self, String> {
        if log2_size > MAX_LOG2_SIZE {
            return Err(format!("a ring has 2^{log2_size} descriptors, more than 2^{MAX_LOG2_SIZE}"));
        }
        let part = regions
            .part(region, offset, ring_bytes(log2_size))
            .ok_or_else(|| format!("a ring lies outside region {region}"))?;
        let start = NonNull::new(part.as_ptr()).ok_or("a ring lies nowhere")?;
        if !start.cast::<AtomicU64>().is_aligned() {
            return Err(format!("a ring begins at {offset}, which is not a multiple of 8"));
        }
        Ok(Self { start, mask: ((1u32 << log2_size) - 1) as u16, regions: Arc::clone(regions) })
    }

    /// Writes the header of an empty ring.
    pub(super) fn init(&self) {
        self.cookie().store(COOKIE, Ordering::Relaxed);
        self.flags().store(0, Ordering::Relaxed);
        self.head().store(0, Ordering::Relaxed);
        self.tail().store(0, Ordering::Relaxed);
    }

    /// Whether the ring begins with the cookie.
    pub(super) fn has_cookie(&self) -> bool {
        self.cookie().load(Ordering::Relaxed) == COOKIE
    }

    /// Number of descriptors.
    #[inline]
    pub(super) fn size(&self) -> u16 {
        self.mask + 1
    }

    /// Index of the descriptor at `position`.
    #[inline]
    pub(super) fn slot(&self, position: u16) -> u16 {
        position & self.mask
    }

    fn cookie(&self) -> &AtomicU32 {
        // SAFETY: these are the first 4 bytes of a ring that lies in its region; they are aligned, and mapped while the
        // region is borrowed through `self`.
        unsafe { self.start.cast::<AtomicU32>().as_ref() }
    }

    #[inline]
    fn half_word(&self, at: usize) -> &AtomicU16 {
        // SAFETY: `at` is one of the constants above, within the header of a ring that was checked to lie in its
        // region.
        let address = unsafe { self.start.add(at) };
        // SAFETY: as above; the offsets are even, from an aligned start; the region stays mapped while `self` lives.
        unsafe { address.cast::<AtomicU16>().as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU16 {
        self.half_word(FLAGS_AT)
    }

    /// The index that the client moves.
    #[inline]
    pub(super) fn head(&self) -> &AtomicU16 {
        self.half_word(HEAD_AT)
    }

    /// The index that the server moves.
    #[inline]
    pub(super) fn tail(&self) -> &AtomicU16 {
        self.half_word(TAIL_AT)
    }

    /// Sets whether the sender must wake the receiver, for the receiver. A later read of the ring cannot miss frames
    /// put without a wake-up.
    pub(super) fn want_interrupt(&self, wanted: bool) {
        self.flags().store(if wanted { 0 } else { MASK_INTERRUPT }, Ordering::Relaxed);
        if wanted {
            fence(Ordering::SeqCst);
        }
    }

    /// Whether the receiver wants to be woken, for the sender right after it published frames.
    #[inline]
    pub(super) fn wants_interrupt(&self) -> bool {
        fence(Ordering::SeqCst);
        self.flags().load(Ordering::Relaxed) & MASK_INTERRUPT == 0
    }

    /// The two words of the descriptor at `position`, in the byte order of the host, which is little-endian: flags,
    /// region and length; offset and metadata.
    #[inline]
    fn words(&self, position: u16) -> &[AtomicU64; 2] {
        let at = HEADER_BYTES + usize::from(position & self.mask) * DESCRIPTOR_BYTES;
        // SAFETY: a masked position is below the number of descriptors, all of which were checked to lie in the region.
        let address = unsafe { self.start.add(at) };
        // SAFETY: as above; the offsets are multiples of 16, from an aligned start; the region stays mapped while
        // `self` lives.
        unsafe { address.cast::<[AtomicU64; 2]>().as_ref() }
    }

    /// The descriptor at `position`, each field read once.
    #[inline]
    pub(super) fn descriptor(&self, position: u16) -> Descriptor {
        let [first, second] = self.words(position);
        let (first, second) = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
        Descriptor {
            has_next: first as u16 & NEXT != 0,
            region: (first >> 16) as u16,
            bytes: (first >> 32) as u32,
            offset: second as u32,
        }
    }

    /// Writes flags, region and length of the descriptor at `position`, if they differ; the offset stays.
    #[inline]
    pub(super) fn describe(&self, position: u16, descriptor: Descriptor) {
        let [first, _] = self.words(position);
        let flags = if descriptor.has_next { NEXT } else { 0 };
        let word = u64::from(flags) | u64::from(descriptor.region) << 16 | u64::from(descriptor.bytes) << 32;
        if first.load(Ordering::Relaxed) != word {
            first.store(word, Ordering::Relaxed);
        }
    }

    /// Writes the whole descriptor at `position`, if it differs.
    #[inline]
    pub(super) fn describe_whole(&self, position: u16, descriptor: Descriptor) {
        self.describe(position, descriptor);
        let [_, second] = self.words(position);
        // The metadata is zero.
        let word = u64::from(descriptor.offset);
        if second.load(Ordering::Relaxed) != word {
            second.store(word, Ordering::Relaxed);
        }
    }
}
