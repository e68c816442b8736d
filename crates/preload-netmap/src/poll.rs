//! Hooks of `poll` and `ppoll` for arrays with devices in them.

use std::cell::Cell;
use std::ffi::c_int;
use std::ops::Range;

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};
use ringroad_c_face::TimeLimit;
use rustix::io::Errno;

use crate::errno;
use crate::hooks::hooks;
use crate::time_limit::from_timespec;
use crate::tracked::{any_device, device};
use crate::wait::Wait;

/// Number of structures: the kernel uses 32 bits of it.
fn length(count: nfds_t) -> usize {
    count as u32 as usize
}

/// Maximum distance of an array from the top of the stack that counts as on the stack, bytes.
const STACK_BYTES: usize = 64 << 10;
/// Maximum number of structures in an array on the stack that is not checked again.
const FEW: usize = 64;
const PAGE_BYTES: usize = 4096;

thread_local! {
    /// Pages of the thread's stack in which the last array was checked.
    static CHECKED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Addresses of an array of few structures, if it can be in a caller's frame.
#[inline]
fn on_stack(fds: *mut pollfd, count: usize) -> Option<Range<usize>> {
    let own = 0u8;
    let (top, start) = ((&raw const own).addr(), fds.addr());
    let is_near = start > top && start - top < STACK_BYTES;
    (is_near && count <= FEW).then(|| start..start + count * size_of::<pollfd>())
}

/// Checks as poll(2) does that the kernel can read and write `count` structures at `fds`: a program may pass any
/// pointer.
///
/// The callers' part of a stack stays mapped. So most programs, whose array is a variable, pay for one check.
#[inline]
fn check_array(fds: *mut pollfd, count: nfds_t) -> Result<(), Errno> {
    let stack = on_stack(fds, length(count));
    let (first, end) = CHECKED.get();
    if let Some(array) = &stack
        && first <= array.start
        && array.end <= end
    {
        return Ok(());
    }
    poll_array(fds, count)?;
    if let Some(array) = stack {
        CHECKED.set((array.start & !(PAGE_BYTES - 1), array.end.next_multiple_of(PAGE_BYTES)));
    }
    Ok(())
}

/// Lets the kernel poll `count` structures at `fds` once, without waiting: it reads and writes all of them.
fn poll_array(fds: *mut pollfd, count: nfds_t) -> Result<(), Errno> {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    let (limit, no_mask) = (&raw mut now, std::ptr::null::<sigset_t>());
    let before = errno::get();
    // The C library's function would be a cancellation point.
    // SAFETY: the kernel checks the array, and `now` outlives the call.
    let polled = unsafe { libc::syscall(libc::SYS_ppoll, fds, count, limit, no_mask, 0) };
    match polled {
        0.. => Ok(()),
        _ => match errno::last() {
            // A signal interrupts the call after the array was used. The wait that follows begins after the signal.
            Errno::INTR => {
                errno::set(before);
                Ok(())
            }
            errno => Err(errno),
        },
    }
}

/// Whether an array has a device in it.
///
/// # Errors
/// EFAULT and EINVAL, as poll(2).
fn has_device(fds: *mut pollfd, count: nfds_t) -> Result<bool, Errno> {
    if length(count) == 0 || !any_device() {
        return Ok(false);
    }
    check_array(fds, count)?;
    // SAFETY: checked above; another thread that unmaps or changes them meanwhile breaks the program with or without
    // this library.
    let fds = unsafe { std::slice::from_raw_parts(fds, length(count)) };
    Ok(fds.iter().any(|entry| device(entry.fd).is_some()))
}

/// Polls an array with devices in it.
///
/// # Safety
/// `fds` must be `count` structures.
unsafe fn poll_devices(
    fds: *mut pollfd,
    count: nfds_t,
    limit: &TimeLimit,
    mask: *const sigset_t,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, length(count)) };
    let mut wait = Wait::new();
    for entry in &*fds {
        // Every entry has the same index in the list of other descriptors, so that results are found; a device's entry
        // is ignored there.
        if let Some(device) = device(entry.fd) {
            wait.watch(device, entry.events);
            wait.add(-1, 0);
        } else {
            wait.add(entry.fd, entry.events);
        }
    }
    wait.run(limit, mask)?;
    let mut ready = 0;
    for (index, entry) in fds.iter_mut().enumerate() {
        entry.revents = match wait.others.get(index) {
            Some(other) if other.fd >= 0 || entry.fd < 0 => other.revents,
            // The descriptor was closed meanwhile: the table no longer has the device that was watched under this
            // number.
            _ => device(entry.fd).map_or(libc::POLLNVAL, |device| wait.found_at(&device, entry.events)),
        };
        ready += c_int::from(entry.revents != 0);
    }
    Ok(ready)
}

hooks! {
    [unsafe] poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        match has_device(fds, count) {
            Ok(true) => {}
            // SAFETY: the program's own arguments.
            Ok(false) => return unsafe { next::poll(fds, count, timeout) },
            Err(errno) => return errno::fail(errno),
        }
        let limit = TimeLimit::from_milliseconds(timeout);
        // SAFETY: the program's own arguments.
        errno::returned(unsafe { poll_devices(fds, count, &limit, std::ptr::null()) })
    }

    [unsafe] __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        // The C library ends the program if the array is too small. The hook reads no entry of such an array.
        let fits = room / size_of::<pollfd>() >= count as usize;
        if fits {
            // SAFETY: the program's own arguments.
            return unsafe { poll(fds, count, timeout) };
        }
        // SAFETY: the program's own arguments.
        unsafe { next::__poll_chk(fds, count, timeout, room) }
    }

    [unsafe] ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        match has_device(fds, count) {
            Ok(true) => {}
            // SAFETY: the program's own arguments.
            Ok(false) => return unsafe { next::ppoll(fds, count, timeout, mask) },
            Err(errno) => return errno::fail(errno),
        }
        let limit = from_timespec(timeout);
        // SAFETY: the program's own arguments.
        errno::returned(limit.and_then(|limit| unsafe { poll_devices(fds, count, &limit, mask) }))
    }

    [unsafe] __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t
    ) -> c_int {
        let fits = room / size_of::<pollfd>() >= count as usize;
        if fits {
            // SAFETY: the program's own arguments.
            return unsafe { ppoll(fds, count, timeout, mask) };
        }
        // SAFETY: the program's own arguments.
        unsafe { next::__ppoll_chk(fds, count, timeout, mask, room) }
    }
}
