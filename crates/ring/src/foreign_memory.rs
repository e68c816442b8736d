//! Memory that another program made and can take back: a guest's, a peer's.
//!
//! Whoever holds the file of a mapping can shorten it at any time, and the next access beyond its end is a SIGBUS, which would end the
//! process. So all such mappings are in a table. On a SIGBUS in one of them the whole mapping is replaced, where it lies, by zero pages of our own,
//! and marked as lost ([`ForeignMemory::is_lost`]): the access goes on and reads zeros; whoever uses the memory looks at the mark and lets go of its
//! owner. A SIGBUS anywhere else goes to whoever was there before.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::shared::SharedBytes;

/// Most foreign mappings of a process at a time.
pub const MAX_FOREIGN_MAPPINGS: usize = 4096;
const PAGE_BYTES: u64 = 4096;
/// Largest page that a file of shared memory can have.
const LARGEST_PAGE_BYTES: u64 = 16 << 30;
/// File systems whose files are memory (linux/magic.h). Pages of others come from a disk, or from a program that may never give them.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// Why foreign memory cannot be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignMemoryError {
    /// The file is no memory.
    #[error(
        "the descriptor of shared memory is a file on a disk or of a FUSE server: give a memfd, or a file below /dev/shm or of a hugetlbfs"
    )]
    NotMemory,
    /// The file is shorter than promised.
    #[error("the descriptor of shared memory holds {has} bytes, and {promised} were promised")]
    TooShort {
        /// Bytes that it has.
        has: u64,
        /// Bytes up to which it was to be mapped.
        promised: u64,
    },
    /// Nothing to map, or more than there are addresses.
    #[error("shared memory of {bytes} bytes at offset {offset} of its file cannot be mapped")]
    Size {
        /// Where it begins in its file, bytes.
        offset: u64,
        /// Its size, bytes.
        bytes: u64,
    },
    /// The table is full.
    #[error("{MAX_FOREIGN_MAPPINGS} pieces of other programs' memory are mapped, which is all there can be")]
    TooMany,
    /// The kernel refused.
    #[error("{step} shared memory: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// A line of the table; `start` 0 is free, 1 being filled.
struct Place {
    start: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicBool,
}

static PLACES: [Place; MAX_FOREIGN_MAPPINGS] = [const {
    Place { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), lost: AtomicBool::new(false) }
}; MAX_FOREIGN_MAPPINGS];
/// Lines that were ever in use.
static USED_PLACES: AtomicUsize = AtomicUsize::new(0);
/// Who got SIGBUS before; set once, before the first line is in use.
static PREVIOUS: OnceLock<Result<libc::sigaction, i32>> = OnceLock::new();

/// A mapping of another program's memory.
#[derive(Debug)]
pub struct ForeignMemory {
    map: NonNull<u8>,
    map_bytes: usize,
    /// From the first byte mapped to the first that was asked for.
    skip: usize,
    bytes: usize,
    place: usize,
}

// SAFETY: the mapping belongs to the value until drop; every access through it is atomic or a raw copy of foreign bytes.
unsafe impl Send for ForeignMemory {}
// SAFETY: as above; shared access is what the mapping is for.
unsafe impl Sync for ForeignMemory {}

impl ForeignMemory {
    /// Maps `bytes` bytes from `offset` of a memfd or a file of shared memory, for reading and writing.
    ///
    /// # Errors
    /// [`ForeignMemoryError`], where the file is no memory or does not reach so far now.
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
        // Mappings of large pages begin and end at their borders; the size of the page is the block size of such a file.
        let page = u64::try_from(status.st_blksize).unwrap_or(0).max(PAGE_BYTES);
        if !page.is_power_of_two() || page > LARGEST_PAGE_BYTES {
            return Err(wrong());
        }
        let from = offset & !(page - 1);
        let map_bytes = end
            .checked_next_multiple_of(page)
            .and_then(|to| usize::try_from(to - from).ok())
            .ok_or_else(wrong)?;
        watch_for_loss()?;
        let place = take_place()?;
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
        let map = match map.map(|map| NonNull::new(map.cast::<u8>())) {
            Ok(Some(map)) => map,
            failure => {
                PLACES[place].start.store(0, Ordering::Release);
                let source = failure.err().unwrap_or(rustix::io::Errno::NOMEM);
                return Err(failed("mapping")(source));
            }
        };
        PLACES[place].bytes.store(map_bytes, Ordering::Relaxed);
        PLACES[place].lost.store(false, Ordering::Relaxed);
        PLACES[place].start.store(map.as_ptr() as usize, Ordering::Release);
        // A child of this process has no use for it. It is a wish.
        // SAFETY: the range is exactly the mapping; the advice changes nothing in this process.
        let _ = unsafe { rustix::mm::madvise(map.as_ptr().cast(), map_bytes, Advice::LinuxDontFork) };
        Ok(Self { map, map_bytes, skip: (offset - from) as usize, bytes: bytes as usize, place })
    }

    /// Its size, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first byte. All [`Self::bytes`] stay mapped as long as the value lives.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: `skip` is less than a page, and the mapping reaches beyond it.
        unsafe { self.map.add(self.skip) }
    }

    /// The `bytes` bytes at `offset`; `None` where they do not all lie in it.
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

    /// Whether an access found that its owner took it back: it reads as zeros since.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        PLACES[self.place].lost.load(Ordering::Relaxed)
    }
}

impl Drop for ForeignMemory {
    fn drop(&mut self) {
        PLACES[self.place].start.store(1, Ordering::Release);
        // SAFETY: the mapping is the value's own, and nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.map_bytes) };
        PLACES[self.place].start.store(0, Ordering::Release);
    }
}

fn take_place() -> Result<usize, ForeignMemoryError> {
    for (index, place) in PLACES.iter().enumerate() {
        if place.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            USED_PLACES.fetch_max(index + 1, Ordering::AcqRel);
            return Ok(index);
        }
    }
    Err(ForeignMemoryError::TooMany)
}

fn watch_for_loss() -> Result<(), ForeignMemoryError> {
    let installed = PREVIOUS.get_or_init(|| {
        // SAFETY: all zeros are a valid sigaction.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: reads the present action into memory of our own. It must be known before ours can run.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) } != 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        Ok(previous)
    });
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let mut outcome = installed.as_ref().map(|_| ()).map_err(|&errno| errno);
    if outcome.is_ok() {
        INSTALLED.get_or_init(|| {
            // SAFETY: all zeros are a valid sigaction.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the action is whole; the handler calls only what is safe in one.
            if unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } != 0 {
                outcome = Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
            }
        });
    }
    outcome.map_err(|errno| ForeignMemoryError::System {
        step: "guarding",
        source: std::io::Error::from_raw_os_error(errno),
    })
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a siginfo of its own.
    let info_of_fault = unsafe { &*info };
    // SAFETY: a SIGBUS has an address.
    let address = unsafe { info_of_fault.si_addr() } as usize;
    for place in PLACES.iter().take(USED_PLACES.load(Ordering::Acquire)) {
        let start = place.start.load(Ordering::Acquire);
        let bytes = place.bytes.load(Ordering::Relaxed);
        if start > 1 && (start..start + bytes).contains(&address) {
            place.lost.store(true, Ordering::Relaxed);
            // SAFETY: replaces exactly a mapping of the table, in use by the thread that the signal interrupted, so that nobody unmaps it now.
            let fresh = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
                libc::mmap(
                    start as *mut libc::c_void,
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    flags,
                    -1,
                    0,
                )
            };
            if fresh != libc::MAP_FAILED {
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// To whoever had the signal before; where that was nobody, the access is repeated and ends the process as it would have.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type WithInfo = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
    type Plain = extern "C" fn(i32);
    match PREVIOUS.get() {
        Some(Ok(previous)) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&previous.sa_sigaction) => {
            if previous.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: whoever set the action vouched for a function of this type.
                let handler = unsafe { std::mem::transmute::<usize, WithInfo>(previous.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: as above.
                let handler = unsafe { std::mem::transmute::<usize, Plain>(previous.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // SAFETY: setting a signal's default action is safe in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn a_part_of_a_file_is_shared_and_nothing_beyond_it_is_given() {
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
    fn what_is_no_memory_or_too_short_is_refused() {
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
    fn memory_that_is_taken_back_reads_as_zeros_and_others_stay() {
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
