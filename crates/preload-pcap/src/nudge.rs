//! A nudge from one thread of the program to another, which polls for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd of the process: readable from a nudge until it is taken.
#[derive(Debug)]
pub(crate) struct Nudge(OwnedFd);

impl Nudge {
    /// Makes one that is not readable.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Wakes the thread that polls. A full counter is readable anyway.
    pub(crate) fn give(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes all nudges.
    pub(crate) fn take(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Nudge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
