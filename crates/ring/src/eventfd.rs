//! The eventfds by which the two sides wake each other: non-blocking and close-on-exec, so nobody waits in a read or write.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A new eventfd at zero.
///
/// # Errors
/// What the kernel says (out of descriptors).
pub fn create() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Adds 1. A full counter already says what is to be said.
pub fn ring(event: impl AsFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Sets it to zero. A zero one stays as it is.
pub fn drain(event: impl AsFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(event, &mut count);
}
