//! A guest's memory: the regions that its front end has shared, and the lookup of addresses in them.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use ringroad_ring::foreign_memory::{ForeignMemory, ForeignMemoryError};

use crate::chain::MAX_CHAIN_BYTES;

/// Location of a region in the guest, in its front end and in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionLayout {
    /// Guest's address of the first byte. Descriptors hold such addresses.
    pub guest: u64,
    /// Front end's address of the first byte. Messages name the parts of rings by such addresses.
    pub user: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Offset of the region in its file, bytes.
    pub file_offset: u64,
}

impl RegionLayout {
    /// Whether address `guest` lies in the region. The caller has checked that it is not below the first address.
    fn reaches(&self, guest: u64) -> bool {
        guest - self.guest < self.bytes
    }
}

/// A mapped region.
#[derive(Debug)]
pub struct GuestRegion {
    layout: RegionLayout,
    memory: ForeignMemory,
}

/// Reason why a guest's memory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestMemoryError {
    /// A region cannot be mapped.
    #[error("the guest's memory at {guest:#x}, {bytes} bytes: {source}")]
    Map {
        /// Guest's address of the region's first byte.
        guest: u64,
        /// Size of the region, bytes.
        bytes: u64,
        source: ForeignMemoryError,
    },
    /// Two regions share addresses.
    #[error("two regions of the guest's memory overlap at {guest:#x}")]
    Overlap {
        /// Guest's address of the first byte of the later region.
        guest: u64,
    },
}

impl GuestRegion {
    /// Maps a region.
    ///
    /// # Errors
    /// [`GuestMemoryError::Map`].
    pub fn map(layout: RegionLayout, file: BorrowedFd<'_>) -> Result<Self, GuestMemoryError> {
        let memory = ForeignMemory::map(file, layout.file_offset, layout.bytes)
            .map_err(|source| GuestMemoryError::Map { guest: layout.guest, bytes: layout.bytes, source })?;
        Ok(Self { layout, memory })
    }

    /// Location of the region.
    #[must_use]
    pub fn layout(&self) -> RegionLayout {
        self.layout
    }
}

/// All regions of a guest, sorted by the guest's addresses. A value never changes: a change of regions makes a new
/// value, which shares the unchanged regions with the old one.
#[derive(Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Arc<GuestRegion>>,
}

impl GuestMemory {
    /// Memory of these regions.
    ///
    /// # Errors
    /// [`GuestMemoryError::Overlap`].
    pub fn new(mut regions: Vec<Arc<GuestRegion>>) -> Result<Self, GuestMemoryError> {
        regions.sort_by_key(|region| region.layout.guest);
        match regions.windows(2).find(|pair| pair[0].layout.reaches(pair[1].layout.guest)) {
            Some(pair) => Err(GuestMemoryError::Overlap { guest: pair[1].layout.guest }),
            None => Ok(Self { regions }),
        }
    }

    /// Pointer to the guest's address `address` in the mapping, and how many of the `bytes` bytes from there are
    /// contiguous. `None` if the address is not mapped. The bytes stay mapped as long as the memory lives.
    #[inline]
    #[must_use]
    pub fn at(&self, address: u64, bytes: u32) -> Option<(NonNull<u8>, u32)> {
        let region = self.region_of(address)?;
        let offset = address - region.layout.guest;
        let together = (region.layout.bytes - offset).min(u64::from(bytes));
        // SAFETY: the offset is within the mapping of `layout.bytes` bytes.
        let start = unsafe { region.memory.start().add(offset as usize) };
        Some((start, together as u32))
    }

    /// Region with the guest's address `address`.
    #[inline]
    fn region_of(&self, address: u64) -> Option<&GuestRegion> {
        // Binary search: a guest may have hundreds of regions, and the worker's other queues wait meanwhile.
        let behind = self.regions.partition_point(|region| region.layout.guest <= address);
        let region = self.regions.get(behind.checked_sub(1)?)?;
        region.layout.reaches(address).then_some(region)
    }

    /// Pointer to the `bytes` bytes at the front end's address `address` in the mapping, and the guest's address of the
    /// first byte. `None` if they do not all lie in one region.
    #[must_use]
    pub fn at_user(&self, address: u64, bytes: usize) -> Option<(NonNull<u8>, u64)> {
        for region in &self.regions {
            let offset = address.wrapping_sub(region.layout.user);
            if offset < region.layout.bytes && region.layout.bytes - offset >= bytes as u64 {
                // SAFETY: the offset is within the mapping of `layout.bytes` bytes.
                let start = unsafe { region.memory.start().add(offset as usize) };
                return Some((start, region.layout.guest + offset));
            }
        }
        None
    }

    /// Whether the front end truncated a region's file: that part reads as zeros.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.memory.is_lost())
    }
}

/// The region in which the last buffer was found. Nearly all buffers lie in one region, and so need no search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastRegion {
    guest: u64,
    bytes: u64,
    /// Last address at which a buffer of [`MAX_CHAIN_BYTES`] may begin, plus one.
    short_end: u64,
    start: NonNull<u8>,
}

impl LastRegion {
    /// State before the first search: no region.
    pub(crate) const NONE: Self = Self { guest: 0, bytes: 0, short_end: 0, start: NonNull::dangling() };

    /// Pointer to the `bytes` bytes at the guest's address `address` in the mapping. `None` if they do not all lie in
    /// this region.
    #[inline]
    fn at(&self, address: u64, bytes: u32) -> Option<NonNull<u8>> {
        let offset = address.wrapping_sub(self.guest);
        // The first comparison decides nearly all cases.
        let is_short = offset < self.short_end && bytes <= MAX_CHAIN_BYTES;
        if !is_short && self.bytes.checked_sub(offset)? < u64::from(bytes) {
            return None;
        }
        // SAFETY: the offset is within the mapping. It lasts as long as the memory, and a ring keeps the memory beside
        // this value.
        Some(unsafe { self.start.add(offset as usize) })
    }

    /// Finds what [`Self::at`] does, and searches `memory` if the bytes lie in another region. `memory` is the same in
    /// each call.
    #[inline]
    pub(crate) fn find(
        &mut self,
        memory: &Arc<GuestMemory>,
        address: u64,
        bytes: u32,
    ) -> Option<NonNull<u8>> {
        match self.at(address, bytes) {
            Some(start) => Some(start),
            None => self.search(memory, address, bytes),
        }
    }

    /// A separate function, so that the loop over buffers in one region stays short.
    #[cold]
    #[inline(never)]
    fn search(&mut self, memory: &Arc<GuestMemory>, address: u64, bytes: u32) -> Option<NonNull<u8>> {
        let region = memory.region_of(address)?;
        let (layout, start) = (region.layout, region.memory.start());
        let short_end = layout.bytes.saturating_sub(MAX_CHAIN_BYTES.into());
        *self = Self { guest: layout.guest, bytes: layout.bytes, short_end, start };
        self.at(address, bytes)
    }
}
