//! Private descriptors of the library, of which its process does not know.
//!
//! They have high numbers, because programs may count on low ones. The library remembers them, so that its replacement
//! of `close` can spare them. If a program closes one nevertheless, the next use detects that and reopens it.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// Number of descriptor numbers that can be remembered.
const NUMBERS: usize = 65536;
/// Distance below the limit of open files at which the search for a free number begins.
const DISTANCE: u64 = 256;

/// Bit for each number. Static and atomic: `close` is called in signal handlers.
static OWNED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// Numbers of [`OWNED`] that a child must not keep, because some state ends with the last copy of the descriptor.
static NOT_FOR_CHILDREN: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

fn word_and_bit(set: &[AtomicU64], number: RawFd) -> Option<(&AtomicU64, u64)> {
    let number = usize::try_from(number).ok()?;
    Some((set.get(number / 64)?, 1 << (number % 64)))
}

/// Whether `number` is a private descriptor of the library.
#[inline]
#[must_use]
pub fn owns(number: RawFd) -> bool {
    word_and_bit(&OWNED, number).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Moves `descriptor` to a high number, and remembers it; if no high number is free, it keeps its number. Call
/// [`forget`] before it is closed.
#[must_use]
pub fn hide(descriptor: OwnedFd) -> OwnedFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    let lowest = limit.min(NUMBERS as u64).saturating_sub(DISTANCE) as RawFd;
    let descriptor = rustix::io::fcntl_dupfd_cloexec(&descriptor, lowest).unwrap_or(descriptor);
    mark(&OWNED, &descriptor);
    descriptor
}

/// Forgets a number that is about to be closed.
pub fn forget(descriptor: BorrowedFd<'_>) {
    for set in [&NOT_FOR_CHILDREN, &OWNED] {
        if let Some((word, bit)) = word_and_bit(set, descriptor.as_raw_fd()) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

fn mark(set: &[AtomicU64], descriptor: &OwnedFd) {
    if let Some((word, bit)) = word_and_bit(set, descriptor.as_raw_fd()) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// To be called in a child that was just forked: closes the descriptors that only the parent may have. Their owners
/// must not close them again.
pub(crate) fn close_those_of_parent() {
    for (index, (of_parent, owned)) in NOT_FOR_CHILDREN.iter().zip(&OWNED).enumerate() {
        let mut bits = of_parent.swap(0, Ordering::Relaxed);
        owned.fetch_and(!bits, Ordering::Relaxed);
        while bits != 0 {
            let number = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // A descriptor that another thread made during the fork may be marked without having been copied: that is
            // not an error.
            // SAFETY: it was this library's, whose owner forgets it.
            unsafe { libc::close(number as RawFd) };
        }
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

    /// Hides `descriptor`; children of this process close it after the fork.
    pub(crate) fn not_for_children(descriptor: OwnedFd) -> Self {
        let private = Self::new(descriptor);
        mark(&NOT_FOR_CHILDREN, &private.descriptor);
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
