//! Children of fork(2). A child gets a copy of every object of its parent, but the rings and connections behind them
//! stay the parent's.
//!
//! - An object keeps a [`ProcessMark`], which tells whether the process that uses the object made it.
//! - Guarded mappings ([`crate::mapping_guard`]) become pages of the child. So nothing that the child does with its
//!   copies reaches the parent's rings, and views of frames stay mapped.
//! - Withheld descriptors ([`WithheldFd`]) become an eventfd of the child, with the same number. So what ends with the
//!   last copy of such a descriptor ends with the parent.
//!
//! This happens before fork(2) returns in the child. It does not happen after vfork(2) or posix_spawn(3), whose
//! children borrow the parent's memory until they run another program, nor after clone(2) without the C library.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{eventfd, mapping_guard};

/// Number of descriptor numbers that can be withheld.
const NUMBERS: usize = 65536;

/// Number of forks between the first process that watched them and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Bit for each number of a withheld descriptor. Static and atomic: the child handler may neither allocate nor lock.
static WITHHELD: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// Mark of the process that made an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMark(u32);

impl ProcessMark {
    /// Mark of this process.
    #[must_use]
    pub fn here() -> Self {
        watch();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// The mark as a number, for atomic variables.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The mark with this number.
    #[inline]
    #[must_use]
    pub fn of(number: u32) -> Self {
        Self(number)
    }

    /// Whether this is the mark of this process. Else a parent of this process made the object.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// Makes sure that children are treated as the module describes.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // Miri has no processes.
        #[cfg(not(miri))]
        // SAFETY: the handler only makes system calls, and changes atomics and memory of this crate. The C library
        // forgets it when it unloads the object that contains it.
        unsafe {
            libc::pthread_atfork(None, None, Some(begin_child));
        }
    });
}

#[cfg_attr(miri, expect(dead_code))]
extern "C" fn begin_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    mapping_guard::replace_in_child();
    replace_withheld();
}

fn replace_withheld() {
    for (index, word) in WITHHELD.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let number = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            replace(number as RawFd);
        }
    }
}

/// Puts an eventfd in place of a withheld descriptor, so that its owner can close the number once.
fn replace(number: RawFd) {
    let stand_in = eventfd::create().or_else(|_| {
        // The number may be the only free one.
        // SAFETY: the number is that of a descriptor whose owner marked it, and in use again after the call.
        unsafe { libc::close(number) };
        eventfd::create()
    });
    let Ok(stand_in) = stand_in else { return };
    if stand_in.as_raw_fd() == number {
        std::mem::forget(stand_in);
    } else {
        // SAFETY: the number is that of a descriptor whose owner marked it, and stays in use.
        unsafe { libc::dup3(stand_in.as_raw_fd(), number, libc::O_CLOEXEC) };
    }
}

fn word_and_bit(descriptor: BorrowedFd<'_>) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor.as_raw_fd()).ok()?;
    Some((WITHHELD.get(number / 64)?, 1 << (number % 64)))
}

/// Withholds a descriptor from children. Call [`stop_withholding`] before it is closed. Numbers from 65536 on are not
/// withheld.
pub fn withhold(descriptor: BorrowedFd<'_>) {
    watch();
    if let Some((word, bit)) = word_and_bit(descriptor) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Undoes [`withhold`]. A descriptor that is not withheld stays as it is.
pub fn stop_withholding(descriptor: BorrowedFd<'_>) {
    if let Some((word, bit)) = word_and_bit(descriptor) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// A descriptor that is withheld from children while the value lives.
#[derive(Debug)]
pub struct WithheldFd {
    descriptor: OwnedFd,
    process: ProcessMark,
}

impl WithheldFd {
    /// Whether this process has the descriptor itself, not a stand-in for its parent's.
    #[must_use]
    #[inline]
    pub fn is_own_process(&self) -> bool {
        self.process.is_here()
    }
}

impl From<OwnedFd> for WithheldFd {
    fn from(descriptor: OwnedFd) -> Self {
        withhold(descriptor.as_fd());
        Self { descriptor, process: ProcessMark::here() }
    }
}

impl From<WithheldFd> for OwnedFd {
    /// The descriptor, which children get from now on.
    fn from(withheld: WithheldFd) -> Self {
        stop_withholding(withheld.as_fd());
        let withheld = ManuallyDrop::new(withheld);
        // SAFETY: the value is not used or dropped after this.
        unsafe { std::ptr::read(&raw const withheld.descriptor) }
    }
}

impl AsFd for WithheldFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for WithheldFd {
    fn drop(&mut self) {
        stop_withholding(self.as_fd());
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Runs `act` in a child; returns whether it returned true.
    fn holds_in_child(act: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child works on its own copies, and ends without running anything else of the parent's.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let holds = act();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!holds)) };
        }
        let child = rustix::process::Pid::from_raw(child).unwrap();
        let (_, status) =
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        status.exit_status() == Some(0)
    }

    #[test]
    fn a_child_did_not_make_its_parents_objects() {
        let made_by = ProcessMark::here();
        assert!(holds_in_child(|| {
            let own = ProcessMark::here();
            !made_by.is_here() && own.is_here() && holds_in_child(|| !made_by.is_here() && !own.is_here())
        }));
        assert!(made_by.is_here());
    }

    #[test]
    fn a_child_without_a_free_descriptor_loses_its_parents_too() {
        assert!(holds_in_child(|| {
            let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            let end = WithheldFd::from(OwnedFd::from(end));
            let limit = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
            // No number is free, not even the closed one.
            let is_lost = holds_in_child(|| rustix::fs::fstat(&end).is_err());
            std::mem::forget(end);
            is_lost
        }));
    }

    #[test]
    fn a_withheld_descriptor_ends_with_the_parent_and_another_one_does_not() {
        for is_withheld in [true, false] {
            let (end, other) = std::os::unix::net::UnixStream::pair().unwrap();
            let (go, wait) = std::os::unix::net::UnixStream::pair().unwrap();
            let end = WithheldFd::from(OwnedFd::from(end));
            let (end, kept) = if is_withheld { (Some(end), None) } else { (None, Some(OwnedFd::from(end))) };
            // SAFETY: as in `holds_in_child`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                drop(go);
                let _ = rustix::io::read(&wait, &mut [0]);
                // The copy has its number until the child drops it.
                let is_open = end.as_ref().is_none_or(|end| rustix::fs::fstat(end).is_ok());
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!is_open)) };
            }
            drop((end, kept));
            let mut set = [PollFd::new(&other, PollFlags::RDHUP)];
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
            let ended = poll(&mut set, Some(if is_withheld { &minute } else { &none })).unwrap();
            drop((go, wait));
            let child = rustix::process::Pid::from_raw(child).unwrap();
            let (_, status) = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
                .unwrap()
                .unwrap();
            assert_eq!((ended == 1, status.exit_status()), (is_withheld, Some(0)));
        }
    }
}
