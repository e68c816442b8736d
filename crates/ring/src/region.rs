//! A region: a sealed memfd that holds the rings and buffers of one or more ports, and its mapping.
//!
//! The maker seals the size, so no holder of the descriptor can truncate the memfd under another holder (whose access
//! would raise SIGBUS). A process that opens a foreign region checks the seals and the size first. No seal prevents
//! holes. Small pages in a hole come back as zeros, but another process may have taken the huge pages. So mappings of
//! huge pages are guarded ([`crate::mapping_guard`]). Children of a process do not inherit its mappings
//! ([`crate::fork`]).
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};

use crate::fork::ProcessMark;
use crate::geometry::{GeometryError, RegionGeometry};
use crate::ledger::{ChargedUser, LimitError, Reservation};
use crate::mapping_guard::{ChildMemory, GuardError, MappingGuard};

const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Whether a region uses 2 MiB pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HugePages {
    /// 2 MiB pages if enough are reserved and free, else 4 KiB pages.
    #[default]
    Auto,
    /// 4 KiB pages in any case.
    Never,
    /// 2 MiB pages, or an error if they are not available.
    Require,
}

/// Reason why a region could not be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The geometry is not possible.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The payer may not hold this much more memory.
    #[error("a region of {bytes} bytes: {source}")]
    Limit {
        /// Size of the region, bytes.
        bytes: u64,
        /// Limit that would be exceeded.
        source: LimitError,
    },
    /// The kernel refused a step.
    #[error("{step} a region of {bytes} bytes: {source}")]
    System {
        /// Step that failed.
        step: &'static str,
        /// Size of the region, bytes.
        bytes: u64,
        /// Error of the kernel.
        source: rustix::io::Errno,
    },
    /// The mapping cannot be guarded against holes.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// Huge pages are required, and not enough are free.
    #[error(
        "no {needed} free huge pages of 2 MiB for a region of {bytes} bytes: reserve them with `sysctl vm.nr_hugepages=N`, \
         or do not require huge pages"
    )]
    NoHugePages {
        /// Number of pages needed.
        needed: u64,
        /// Size of the region, bytes.
        bytes: u64,
    },
    /// The descriptor does not match its geometry.
    #[error("the descriptor is not a sealed region of {bytes} bytes: {what}")]
    NotARegion {
        /// Expected size, bytes.
        bytes: u64,
        /// Difference that was found.
        what: &'static str,
    },
}

/// Number that distinguishes the regions of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(u64);

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A mapped region.
#[derive(Debug)]
pub struct Region {
    id: RegionId,
    geometry: RegionGeometry,
    descriptor: OwnedFd,
    base: NonNull<u8>,
    mapped_bytes: usize,
    is_huge: bool,
    /// Guard of the mapping; removed before the memory is unmapped.
    guard: Option<MappingGuard>,
    process: ProcessMark,
    discard: AtomicBool,
    /// Reservation that counts the memory while it is mapped in this process.
    _reservation: Option<Reservation>,
}

// SAFETY: the mapping belongs to the value until drop; every access through it is atomic or a raw copy of foreign
// bytes.
unsafe impl Send for Region {}
// SAFETY: as above; shared access is what the mapping is for.
unsafe impl Sync for Region {}

impl Region {
    /// Makes, seals and maps a new region, all zero, as memory of this process: no ledger counts it.
    ///
    /// # Errors
    /// [`RegionError`]; [`RegionError::NoHugePages`] only if they are required.
    pub fn create(geometry: RegionGeometry, huge_pages: HugePages) -> Result<Self, RegionError> {
        Self::create_for(None, geometry, huge_pages)
    }

    /// Works as [`Self::create`]. `charged` reserves all memory that the descriptor makes accessible, as long as the
    /// region is mapped in this process.
    ///
    /// # Errors
    /// The errors of [`Self::create`], and [`RegionError::Limit`].
    pub fn create_for(
        charged: Option<&ChargedUser>,
        geometry: RegionGeometry,
        huge_pages: HugePages,
    ) -> Result<Self, RegionError> {
        geometry.check()?;
        if huge_pages != HugePages::Never {
            let huge_bytes = geometry.total_bytes().next_multiple_of(HUGE_PAGE_BYTES);
            match Self::create_with(charged, geometry, huge_bytes, true) {
                Ok(region) => return Ok(region),
                Err(error @ RegionError::Limit { .. }) if huge_pages == HugePages::Require => {
                    return Err(error);
                }
                Err(_) if huge_pages == HugePages::Require => {
                    return Err(RegionError::NoHugePages {
                        needed: huge_bytes / HUGE_PAGE_BYTES,
                        bytes: geometry.total_bytes(),
                    });
                }
                Err(_) => {}
            }
        }
        Self::create_with(charged, geometry, geometry.total_bytes(), false)
    }

    fn create_with(
        charged: Option<&ChargedUser>,
        geometry: RegionGeometry,
        bytes: u64,
        huge: bool,
    ) -> Result<Self, RegionError> {
        let failed = |step| move |source| RegionError::System { step, bytes, source };
        let reservation = charged
            .map(|charged| charged.reserve(bytes))
            .transpose()
            .map_err(|source| RegionError::Limit { bytes, source })?;
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let descriptor =
            rustix::fs::memfd_create("ringroad-region", flags).map_err(failed("making the memfd of"))?;
        rustix::fs::ftruncate(&descriptor, bytes).map_err(failed("sizing"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&descriptor, seals).map_err(failed("sealing"))?;
        Self::map(geometry, descriptor, bytes, huge, reservation, false)
    }

    /// Maps a region that another process made and leaves to this process. From now on this process counts it:
    /// `charged` reserves all of it.
    ///
    /// # Errors
    /// The errors of [`Self::open`], and [`RegionError::Limit`].
    pub fn inherit(
        charged: Option<&ChargedUser>,
        geometry: RegionGeometry,
        descriptor: OwnedFd,
    ) -> Result<Self, RegionError> {
        let mut region = Self::open(geometry, descriptor)?;
        let bytes = region.mapped_bytes as u64;
        region._reservation = charged
            .map(|charged| charged.reserve(bytes))
            .transpose()
            .map_err(|source| RegionError::Limit { bytes, source })?;
        Ok(region)
    }

    /// Maps a region of another maker, after a check of its size and seals.
    ///
    /// # Errors
    /// [`RegionError::NotARegion`] if the descriptor does not match the geometry.
    pub fn open(geometry: RegionGeometry, descriptor: OwnedFd) -> Result<Self, RegionError> {
        Self::open_as(geometry, descriptor, false)
    }

    /// Works as [`Self::open`], but children of this process inherit the mapping.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_inheritable(geometry: RegionGeometry, descriptor: OwnedFd) -> Result<Self, RegionError> {
        Self::open_as(geometry, descriptor, true)
    }

    fn open_as(
        geometry: RegionGeometry,
        descriptor: OwnedFd,
        is_inheritable: bool,
    ) -> Result<Self, RegionError> {
        geometry.check()?;
        let bytes = geometry.total_bytes();
        let failed = |step| move |source| RegionError::System { step, bytes, source };
        let status = rustix::fs::fstat(&descriptor).map_err(failed("looking at"))?;
        let file_bytes = u64::try_from(status.st_size).unwrap_or(0);
        if file_bytes < bytes {
            return Err(RegionError::NotARegion { bytes, what: "it is too short" });
        }
        let seals = rustix::fs::fcntl_get_seals(&descriptor)
            .map_err(|_| RegionError::NotARegion { bytes, what: "it is not a memfd" })?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(RegionError::NotARegion { bytes, what: "its size is not sealed" });
        }
        let huge = u64::try_from(status.st_blksize).unwrap_or(0) == HUGE_PAGE_BYTES;
        Self::map(geometry, descriptor, file_bytes, huge, None, is_inheritable)
    }

    fn map(
        geometry: RegionGeometry,
        descriptor: OwnedFd,
        bytes: u64,
        is_huge: bool,
        reservation: Option<Reservation>,
        is_inheritable: bool,
    ) -> Result<Self, RegionError> {
        let failed = |step| move |source| RegionError::System { step, bytes, source };
        let mapped_bytes = usize::try_from(bytes)
            .map_err(|_| RegionError::NotARegion { bytes, what: "it is larger than the address space" })?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), mapped_bytes, protection, MapFlags::SHARED, &descriptor, 0)
        }
        .map_err(failed("mapping"))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(RegionError::System {
            step: "mapping",
            bytes,
            source: rustix::io::Errno::NOMEM,
        })?;
        // The advice is a hint: large pages, if the kernel offers them for shared memory.
        // SAFETY: the range is exactly the mapping made above.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), mapped_bytes, Advice::LinuxHugepage) };
        let id = RegionId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let mut region = Self {
            id,
            geometry,
            descriptor,
            base,
            mapped_bytes,
            is_huge,
            guard: None,
            process: ProcessMark::here(),
            discard: AtomicBool::new(false),
            _reservation: reservation,
        };
        let children = match usize::try_from(geometry.control_offset(0)) {
            _ if is_inheritable => ChildMemory::Shared,
            // Ones in the control blocks stop the child's copies of the rings (`RingViolation::OtherProcess`).
            Ok(control) => ChildMemory::OnesFrom(control),
            Err(_) => ChildMemory::Zeros,
        };
        region.guard = match is_huge {
            // SAFETY: the mapping is the value's own and nothing but shared bytes, and `drop` takes the guard off
            // before it unmaps.
            true => Some(unsafe { MappingGuard::new(base, mapped_bytes, children) }?),
            false if is_inheritable => None,
            // SAFETY: as above.
            false => Some(unsafe { MappingGuard::for_children(base, mapped_bytes, children) }?),
        };
        Ok(region)
    }

    /// Geometry of this region.
    #[must_use]
    pub fn geometry(&self) -> &RegionGeometry {
        &self.geometry
    }

    /// Identifier of this mapping within the process.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// The buffer area ([`RegionGeometry::area_offset`]), page-aligned: its first byte and its size in bytes. It stays
    /// mapped while the region lives.
    #[must_use]
    pub fn buffer_area(&self) -> Option<(NonNull<u8>, usize)> {
        let bytes = usize::try_from(self.geometry.area_bytes()).ok()?;
        Some((self.at(self.geometry.area_offset(), bytes)?, bytes))
    }

    /// Whether the region uses 2 MiB pages.
    #[must_use]
    pub fn is_huge(&self) -> bool {
        self.is_huge
    }

    /// Whether an access found a hole that another process punched: the mapping reads as zeros since then, and is no
    /// longer shared.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_huge && self.guard.as_ref().is_some_and(MappingGuard::is_lost)
    }

    /// Whether this process mapped the region, not a process that forked it.
    #[must_use]
    pub fn is_own_process(&self) -> bool {
        self.process.is_here()
    }

    /// Size of the mapping, bytes.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.mapped_bytes
    }

    /// Returns all memory to the kernel when this mapping ends, even if other processes have the descriptor: the memory
    /// then reads as zeros. The maker calls this when the region's programs are gone: a copy of the descriptor must not
    /// keep uncounted memory.
    pub fn discard_at_end(&self) {
        self.discard.store(true, Ordering::Relaxed);
    }

    /// Pointer to `bytes` bytes at `offset`, or `None` if they do not lie in the mapping.
    #[must_use]
    pub(crate) fn at(&self, offset: u64, bytes: usize) -> Option<NonNull<u8>> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(bytes)? > self.mapped_bytes {
            return None;
        }
        // SAFETY: offset is within the mapping, checked above.
        Some(unsafe { self.base.add(offset) })
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.guard = None;
        // The memory is still in use by the parent of a child that drops its copy.
        if *self.discard.get_mut() && self.process.is_here() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Memory that cannot be given back is freed with the last descriptor.
            let _ = rustix::fs::fallocate(&self.descriptor, flags, 0, self.mapped_bytes as u64);
        }
        // SAFETY: no views are left: views keep an `Arc` of this value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ledger::{Ledger, LedgerLimits};
    use crate::ring_view::RingView;

    fn small() -> RegionGeometry {
        RegionGeometry::for_ports(1, 1, 8, 128, 0).unwrap()
    }

    #[test]
    fn the_size_of_a_region_cannot_be_changed() {
        let region = Region::create(small(), HugePages::Never).unwrap();
        assert!(rustix::fs::ftruncate(&region, 0).is_err());
        assert!(rustix::fs::ftruncate(&region, 1 << 30).is_err());
        assert!(rustix::fs::fcntl_add_seals(&region, SealFlags::WRITE).is_err());
    }

    #[test]
    fn a_descriptor_that_can_shrink_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let unsealed = rustix::fs::memfd_create("x", flags).unwrap();
        rustix::fs::ftruncate(&unsealed, small().total_bytes()).unwrap();
        assert!(matches!(Region::open(small(), unsealed), Err(RegionError::NotARegion { .. })));
    }

    #[test]
    fn a_region_shorter_than_its_geometry_is_refused() {
        let region = Region::create(small(), HugePages::Never).unwrap();
        let larger = RegionGeometry { buffers: 4096, ..small() };
        let descriptor = region.as_fd().try_clone_to_owned().unwrap();
        assert!(matches!(Region::open(larger, descriptor), Err(RegionError::NotARegion { .. })));
    }

    #[test]
    fn the_ledger_counts_the_whole_region_while_it_is_mapped() {
        let ledger = Ledger::new(LedgerLimits { total: small().total_bytes(), user: u64::MAX, reserve: 0 });
        let charged = ChargedUser::new(&ledger, 7, false);
        let region = Arc::new(Region::create_for(Some(&charged), small(), HugePages::Never).unwrap());
        assert_eq!(ledger.total(), rustix::fs::fstat(&*region).unwrap().st_size as u64);
        let refused = Region::create_for(Some(&charged), small(), HugePages::Never);
        assert!(matches!(refused, Err(RegionError::Limit { .. })));
        let view = RingView::new(&region, 0, 8).unwrap();
        drop(region);
        assert_eq!(ledger.total(), small().total_bytes());
        drop(view);
        assert_eq!(ledger.total(), 0);
    }

    #[test]
    fn a_region_that_could_not_be_made_is_not_counted() {
        let ledger = Ledger::new(LedgerLimits { total: 1 << 50, user: 1 << 50, reserve: 0 });
        let charged = ChargedUser::new(&ledger, 7, false);
        let largest = RegionGeometry { buffers: 1_000_000, buffer_bytes: 65_536, ..small() };
        // The region needs more huge pages than any test machine has reserved.
        assert!(Region::create_for(Some(&charged), largest, HugePages::Require).is_err());
        assert_eq!(ledger.total(), 0);
    }

    #[test]
    fn discarded_memory_is_gone_for_every_holder_of_the_descriptor() {
        let region = Region::create(small(), HugePages::Never).unwrap();
        let kept = region.as_fd().try_clone_to_owned().unwrap();
        let blocks = || rustix::fs::fstat(&kept).unwrap().st_blocks;
        rustix::io::pwrite(&kept, &[7; 5000], 0).unwrap();
        region.discard_at_end();
        assert!(blocks() > 0);
        drop(region);
        assert_eq!(blocks(), 0);
    }

    #[test]
    fn auto_falls_back_to_small_pages() {
        let huge_geometry = RegionGeometry::for_ports(1, 16, 4096, 2048, 0).unwrap();
        let region = Region::create(huge_geometry, HugePages::Auto).unwrap();
        assert!(region.mapped_bytes() as u64 >= huge_geometry.total_bytes());
    }
}
