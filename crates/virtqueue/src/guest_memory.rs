//! A guest's memory: the regions that its front end has shared, and addresses in them.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use ringroad_ring::foreign_memory::{ForeignMemory, ForeignMemoryError};

use crate::chain::MAX_CHAIN_BYTES;

/// Where a region lies in the guest, in its front end and in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionLayout {
    /// First address as the guest counts, which is what descriptors hold.
    pub guest: u64,
    /// First address as the front end counts, which is how rings are named.
    pub user: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Where it begins in its file, bytes.
    pub file_offset: u64,
}

impl RegionLayout {
    /// Whether `guest`, which is not below its first address, lies in it.
    fn reaches(&self, guest: u64) -> bool {
        guest - self.guest < self.bytes
    }
}

/// A region, mapped.
#[derive(Debug)]
pub struct GuestRegion {
    layout: RegionLayout,
    memory: ForeignMemory,
}

/// Why a guest's memory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestMemoryError {
    /// It cannot be mapped.
    #[error("the guest's memory at {guest:#x}, {bytes} bytes: {source}")]
    Map {
        /// First address as the guest counts.
        guest: u64,
        /// Size, bytes.
        bytes: u64,
        source: ForeignMemoryError,
    },
    /// Two regions share addresses.
    #[error("two regions of the guest's memory overlap at {guest:#x}")]
    Overlap {
        /// First address of the later one.
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

    /// Where it lies.
    #[must_use]
    pub fn layout(&self) -> RegionLayout {
        self.layout
    }
}

/// All regions of a guest, in the order of the guest's addresses. They stay as they are: a change makes a new one of
/// these, with those regions that stay shared between both.
#[derive(Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Arc<GuestRegion>>,
}

impl GuestMemory {
    /// Of these regions.
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

    /// The regions.
    #[must_use]
    pub fn regions(&self) -> &[Arc<GuestRegion>] {
        &self.regions
    }

    /// Where `address`, as the guest counts, is mapped here, and how many of the `bytes` bytes from there lie together;
    /// `None` where none is mapped. They stay mapped as long as the memory lives.
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

    /// The region that `address`, as the guest counts, lies in.
    #[inline]
    fn region_of(&self, address: u64) -> Option<&GuestRegion> {
        // A guest may have hundreds of regions, and others wait while one is looked for.
        let behind = self.regions.partition_point(|region| region.layout.guest <= address);
        let region = self.regions.get(behind.checked_sub(1)?)?;
        region.layout.reaches(address).then_some(region)
    }

    /// Where the `bytes` bytes at `address`, as the front end counts, are mapped here, and what the guest calls the
    /// first; `None` where they do not all lie in one region.
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

    /// Whether the front end took some of it back: that part reads as zeros.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.memory.is_lost())
    }
}

/// The region of a memory in which a buffer was found last: nearly all lie in the same one, and need no search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastRegion {
    guest: u64,
    bytes: u64,
    /// Where a buffer of [`MAX_CHAIN_BYTES`] may begin at the latest, and one behind.
    short_end: u64,
    start: NonNull<u8>,
}

impl LastRegion {
    /// Before the first search.
    pub(crate) const NONE: Self = Self { guest: 0, bytes: 0, short_end: 0, start: NonNull::dangling() };

    /// Where the `bytes` bytes at `address`, as the guest counts, are mapped; `None` where they do not all lie in this
    /// region.
    #[inline]
    fn at(&self, address: u64, bytes: u32) -> Option<NonNull<u8>> {
        let offset = address.wrapping_sub(self.guest);
        // The first comparison decides nearly all cases.
        let is_short = offset < self.short_end && bytes <= MAX_CHAIN_BYTES;
        if !is_short && self.bytes.checked_sub(offset)? < u64::from(bytes) {
            return None;
        }
        // SAFETY: the offset is within the mapping, which lasts as long as the memory, beside which a ring keeps this.
        Some(unsafe { self.start.add(offset as usize) })
    }

    /// As [`Self::at`], with a search of `memory`, always the same, where this is another region.
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

    /// Apart, so that the loop over buffers in one region stays short.
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
