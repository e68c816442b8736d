//! The log of pages that a device wrote, kept for a guest that is moved while it runs (vhost-user, "Migration"). It has
//! one bit for each 4 KiB.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use ringroad_ring::foreign_memory::{ForeignMemory, ForeignMemoryError};

const LOGGED_PAGE_BYTES: u64 = 4096;

/// A dirty log, in memory that the front end shares.
#[derive(Debug)]
pub struct DirtyLog {
    memory: ForeignMemory,
}

impl DirtyLog {
    /// Maps the log of `bytes` bytes at `offset` of its file.
    ///
    /// # Errors
    /// [`ForeignMemoryError`].
    pub fn map(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<Self, ForeignMemoryError> {
        Ok(Self { memory: ForeignMemory::map(file, offset, bytes)? })
    }

    /// Notes that `bytes` bytes at `guest` were written. Pages beyond the log are ignored: its owner does not ask for
    /// them.
    pub fn wrote(&self, guest: u64, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let last = guest.saturating_add(u64::from(bytes) - 1) / LOGGED_PAGE_BYTES;
        for page in guest / LOGGED_PAGE_BYTES..=last {
            let Some(part) = usize::try_from(page / 8).ok().and_then(|byte| self.memory.part(byte, 1)) else {
                return;
            };
            // SAFETY: the byte is mapped as long as `self` lives, and the front end accesses it atomically from its own
            // process.
            let byte = unsafe { AtomicU8::from_ptr(part.as_ptr()) };
            // The front end copies a page after it has seen the mark, so what was written is visible before.
            byte.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn each_page_touched_is_marked_and_no_other() {
        let file = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let log = DirtyLog::map(file.as_fd(), 0, 2).unwrap();
        log.wrote(4096 * 3 + 4000, 200);
        log.wrote(4096 * 9, 1);
        log.wrote(0, 0);
        log.wrote(u64::MAX, u32::MAX);
        let mut bits = [0; 3];
        rustix::io::pread(&file, &mut bits, 0).unwrap();
        assert_eq!(bits, [0b11000, 0b10, 0]);
    }
}
