//! Eventfds that wake the other side of a ring, or the sleepers on it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringroad_ring::eventfd;

use crate::private_descriptors::PrivateDescriptor;

/// An eventfd of a port.
#[derive(Debug)]
pub(crate) struct Bell {
    event: PrivateDescriptor,
    is_single_user: bool,
}

impl Bell {
    /// Hides `event`. `is_single_user`: see [`ringroad_control::netmap::Bound`].
    pub(crate) fn new(event: OwnedFd, is_single_user: bool) -> Self {
        Self { event: PrivateDescriptor::new(event), is_single_user }
    }

    /// Wakes the sleepers on the eventfd.
    ///
    /// A plain write suffices among programs of one user, who could stop this process in any case. The other way never
    /// waits, but a process that has used it takes some 50 ms to exit: the kernel then waits for the end of its context
    /// for asynchronous I/O.
    pub(crate) fn ring(&self) {
        match self.is_single_user {
            true => eventfd::ring_own(self),
            false => eventfd::ring(self),
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
