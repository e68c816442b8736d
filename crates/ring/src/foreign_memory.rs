//! Memory that another program made and can take back: of a guest or a peer.
//!
//! Any holder of a mapping's file can shorten the file at any time. So all such mappings are guarded
//! ([`crate::mapping_guard`]): an access without a page reads zeros. The code that uses the memory checks the mark
//! ([`ForeignMemory::is_lost`]), and stops serving the memory's owner.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use crate::mapping_guard::{ChildMemory, GuardError, MappingGuard};
use crate::shared::SharedBytes;

const PAGE_BYTES: u64 = 4096;
/// Largest page that a file of shared memory can have.
const LARGEST_PAGE_BYTES: u64 = 16 << 30;
/// File systems whose files are memory (linux/magic.h). Pages of other file systems come from a disk, or from a program
/// that may never deliver them.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// Reason why foreign memory cannot be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignMemoryError {
    /// The file is not memory.
    #[error(
        "the descriptor of shared memory is a file on a disk or of a FUSE server: give a memfd, or a file below /dev/shm or of a hugetlbfs"
    )]
    NotMemory,
    /// The file is shorter than promised.
    #[error("the descriptor of shared memory holds {has} bytes, and {promised} were promised")]
    TooShort {
        /// Size of the file, bytes.
        has: u64,
        /// End of the part to map, bytes from the start of the file.
        promised: u64,
    },
    /// The requested part is empty, or larger than the address space.
    #[error("shared memory of {bytes} bytes at offset {offset} of its file cannot be mapped")]
    Size {
        /// Offset of the part in its file, bytes.
        offset: u64,
        /// Size of the part, bytes.
        bytes: u64,
    },
    /// The mapping cannot be guarded against its owner.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The kernel refused a step.
    #[error("{step} shared memory: {source}")]
    System {
        /// Step that failed.
        step: &'static str,
        /// Error of the kernel.
        source: std::io::Error,
    },
}

/// A mapping of another program's memory.
#[derive(Debug)]
pub struct ForeignMemory {
    map: NonNull<u8>,
    map_bytes: usize,
    /// Bytes from the first mapped byte to the first requested byte.
    skip: usize,
    bytes: usize,
    /// Guard, which is removed before the memory is unmapped.
    guard: Option<MappingGuard>,
}

// SAFETY: the mapping belongs to the value until drop; every access through it is atomic or a raw copy of foreign
// bytes.
unsafe impl Send for ForeignMemory {}
// SAFETY: as above; shared access is what the mapping is for.
unsafe impl Sync for ForeignMemory {}

impl ForeignMemory {
    /// Maps `bytes` bytes from `offset` of a memfd or a file of shared memory, for reading and writing.
    ///
    /// # Errors
    /// [`ForeignMemoryError`], if the file is not memory or is too short now.
    pub fn map(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<Self, ForeignMemoryError> {
        let failed = |step| {
            move |source: rustix::io::Errno| ForeignMemoryError::System { step, source: source.into() }
        };
        let kind = rustix::fs::fstatfs(file).map_err(failed("looking at"))?;
        if ![TMPFS, HUGETLBFS].contains(&(kind.f_type as u64)) {
            return Err(ForeignMemoryError::NotMemory);
        }
        let wrong = || ForeignMemoryError::Size { offset, bytes };
        let end = offset.checked_add(bytes).filter(|_| bytes != 0).ok_or_else(wrong)?;
        let status = rustix::fs::fstat(file).map_err(failed("looking at"))?;
        let has = u64::try_from(status.st_size).unwrap_or(0);
        if has < end {
            return Err(ForeignMemoryError::TooShort { has, promised: end });
        }
        // Mappings of large pages begin and end at page boundaries; the page size is the block size of such a file.
        let page = u64::try_from(status.st_blksize).unwrap_or(0).max(PAGE_BYTES);
        if !page.is_power_of_two() || page > LARGEST_PAGE_BYTES {
            return Err(wrong());
        }
        let from = offset & !(page - 1);
        let map_bytes = end
            .checked_next_multiple_of(page)
            .and_then(|to| usize::try_from(to - from).ok())
            .ok_or_else(wrong)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let map = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(
                std::ptr::null_mut(),
                map_bytes,
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                from,
            )
        };
        let map = map.map_err(failed("mapping"))?;
        let map =
            NonNull::new(map.cast::<u8>()).ok_or_else(|| failed("mapping")(rustix::io::Errno::NOMEM))?;
        let mut memory =
            Self { map, map_bytes, skip: (offset - from) as usize, bytes: bytes as usize, guard: None };
        // SAFETY: the mapping is the value's own, private to it and nothing but shared bytes, and `drop` takes the
        // guard off before it unmaps.
        memory.guard = Some(unsafe { MappingGuard::new(map, map_bytes, ChildMemory::Zeros) }?);
        Ok(memory)
    }

    /// Size of the memory, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// First byte of the memory. All [`Self::bytes`] stay mapped while the value lives.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: `skip` is less than a page, and the mapping reaches beyond it.
        unsafe { self.map.add(self.skip) }
    }

    /// Part of `bytes` bytes at `offset`; `None` if it does not lie in the memory as a whole.
    #[inline]
    #[must_use]
    pub fn part(&self, offset: usize, bytes: usize) -> Option<SharedBytes<'_>> {
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: the end of the part was checked to lie in the mapping.
        let start = unsafe { self.start().add(offset) };
        // SAFETY: as above; the mapping lives as long as the borrow.
        Some(unsafe { SharedBytes::from_trusted_parts(start, bytes) })
    }

    /// Whether an access found that the owner took the memory back: it reads as zeros since then.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(MappingGuard::is_lost)
    }
}

impl Drop for ForeignMemory {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: the mapping is the value's own, and nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn a_mapped_part_of_a_file_gives_no_bytes_beyond_its_end() {
        let file = memfd_create("foreign", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 3 * PAGE_BYTES).unwrap();
        rustix::io::pwrite(&file, b"here", PAGE_BYTES + 10).unwrap();
        let memory = ForeignMemory::map(file.as_fd(), PAGE_BYTES + 10, 100).unwrap();
        let mut read = [0; 4];
        memory.part(0, 4).unwrap().read(&mut read);
        assert_eq!(&read, b"here");
        assert!(
            memory.part(96, 4).is_some()
                && memory.part(97, 4).is_none()
                && memory.part(usize::MAX, 2).is_none()
        );
        assert!(!memory.is_lost());
    }

    #[test]
    fn files_without_memory_or_too_short_are_refused() {
        let file = memfd_create("foreign", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, PAGE_BYTES).unwrap();
        let refused = |offset, bytes| ForeignMemory::map(file.as_fd(), offset, bytes).unwrap_err();
        assert!(matches!(refused(0, PAGE_BYTES + 1), ForeignMemoryError::TooShort { has: PAGE_BYTES, .. }));
        assert!(matches!(refused(u64::MAX, 2), ForeignMemoryError::Size { .. }));
        assert!(matches!(refused(0, 0), ForeignMemoryError::Size { .. }));
        let proc = std::fs::File::open("/proc/self/status").unwrap();
        assert!(matches!(ForeignMemory::map(proc.as_fd(), 0, 1), Err(ForeignMemoryError::NotMemory)));
    }

    #[test]
    fn truncated_memory_reads_as_zeros_and_other_memory_stays() {
        let make = || {
            let file = memfd_create("foreign", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, 2 * PAGE_BYTES).unwrap();
            rustix::io::pwrite(&file, &[7], PAGE_BYTES).unwrap();
            let memory = ForeignMemory::map(file.as_fd(), 0, 2 * PAGE_BYTES).unwrap();
            (file, memory)
        };
        let ((file, memory), (_other_file, other)) = (make(), make());
        let at = |memory: &ForeignMemory| {
            let mut read = [1];
            memory.part(PAGE_BYTES as usize, 1).unwrap().read(&mut read);
            read[0]
        };
        assert_eq!((at(&memory), at(&other)), (7, 7));
        ftruncate(&file, 0).unwrap();
        assert!(!memory.is_lost());
        assert_eq!((at(&memory), at(&other)), (0, 7));
        assert!(memory.is_lost() && !other.is_lost());
        memory.part(PAGE_BYTES as usize, 1).unwrap().write(&[9]);
        assert_eq!(at(&memory), 9);
    }
}
