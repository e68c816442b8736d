//! Private descriptors of the library, of which its process does not know.
//!
//! They have high numbers, because programs may count on low ones. The library remembers them, so that its replacement
//! of `close` can spare them. If a program closes one nevertheless, the next use detects that and reopens it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use ringroad_ring::fork;
use rustix::io::Errno;

/// Number of descriptor numbers that can be remembered.
const NUMBERS: usize = 65536;
/// Distance below the limit of open files at which the search for a free number begins.
const DISTANCE: u64 = 256;

/// Bit for each number. Static and atomic: `close` is called in signal handlers.
static OWNED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

fn word_and_bit(number: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(number).ok()?;
    Some((OWNED.get(number / 64)?, 1 << (number % 64)))
}

/// Whether `number` is a private descriptor of the library.
#[inline]
#[must_use]
pub fn owns(number: RawFd) -> bool {
    word_and_bit(number).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Moves `descriptor` to a high number, and remembers it; if no high number is free, it keeps its number. Call
/// [`forget`] before it is closed.
#[must_use]
pub fn hide(descriptor: OwnedFd) -> OwnedFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    let lowest = limit.min(NUMBERS as u64).saturating_sub(DISTANCE) as RawFd;
    let descriptor = rustix::io::fcntl_dupfd_cloexec(&descriptor, lowest).unwrap_or(descriptor);
    if let Some((word, bit)) = word_and_bit(descriptor.as_raw_fd()) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    descriptor
}

/// Forgets a number that is about to be closed.
pub fn forget(descriptor: BorrowedFd<'_>) {
    fork::stop_withholding(descriptor);
    if let Some((word, bit)) = word_and_bit(descriptor.as_raw_fd()) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Descriptor of which the program does not know.
#[derive(Debug)]
pub struct PrivateDescriptor {
    descriptor: OwnedFd,
}

impl PrivateDescriptor {
    /// Hides `descriptor`.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor: hide(descriptor) }
    }

    /// Hides `descriptor`, and withholds it from children of this process.
    pub(crate) fn not_for_children(descriptor: OwnedFd) -> Self {
        let private = Self::new(descriptor);
        fork::withhold(private.as_fd());
        private
    }

    /// Returns another private descriptor of the same open file.
    ///
    /// # Errors
    /// The kernel's error (no free descriptor).
    pub fn duplicate(descriptor: BorrowedFd<'_>) -> Result<Self, Errno> {
        Ok(Self::new(rustix::io::fcntl_dupfd_cloexec(descriptor, 0)?))
    }
}

impl AsFd for PrivateDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for PrivateDescriptor {
    fn drop(&mut self) {
        forget(self.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_descriptor_is_known_while_open() {
        let pair = rustix::pipe::pipe().unwrap();
        let before = pair.0.as_raw_fd();
        let private = PrivateDescriptor::new(pair.0);
        let number = private.as_fd().as_raw_fd();
        assert!(owns(number) && number > before);
        assert!(!owns(pair.1.as_raw_fd()) && !owns(-1));
        drop(private);
        assert!(!owns(number));
    }
}
