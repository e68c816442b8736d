//! Descriptors of the program, known only by number: any code may close them at any time.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

/// Returns EBADF if `number` is not open.
pub(crate) fn is_open(number: RawFd) -> Result<(), Errno> {
    // SAFETY: F_GETFD takes no argument and changes nothing.
    match unsafe { libc::fcntl(number, libc::F_GETFD) } {
        -1 => Err(Errno::BADF),
        _ => Ok(()),
    }
}

/// Adds 1 to an eventfd.
pub(crate) fn ring(number: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes are readable. If the number is no longer an eventfd, that is the program's fault, as with a
    // system call.
    unsafe { libc::write(number, one.as_ptr().cast(), one.len()) };
}

/// Resets an eventfd to zero, without waiting.
pub(crate) fn drain(number: RawFd) {
    let mut count = [0u8; 8];
    let mut set = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: the set has one entry.
    if unsafe { libc::poll(&raw mut set, 1, 0) } == 1 && set.revents & libc::POLLIN != 0 {
        // SAFETY: eight bytes are writable; the eventfd is readable, so the read does not block.
        unsafe { libc::read(number, count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Waits until a descriptor is readable, a signal comes, or the time `most` is over.
pub(crate) fn wait_readable(numbers: impl Iterator<Item = RawFd>, most: Duration) {
    let mut set: Vec<libc::pollfd> =
        numbers.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the set has as many entries as stated.
    unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, most.as_millis() as libc::c_int) };
}
