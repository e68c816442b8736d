//! Hooks of `poll` and `ppoll` for arrays with devices in them.

use std::ffi::c_int;

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};
use ringroad_c_face::TimeLimit;
use rustix::io::Errno;

use crate::errno;
use crate::hooks::hooks;
use crate::time_limit::from_timespec;
use crate::tracked::{any_device, device};
use crate::wait::Wait;

/// Whether an array has a device in it.
///
/// # Safety
/// `fds` must be `count` structures.
unsafe fn has_device(fds: *const pollfd, count: nfds_t) -> bool {
    if fds.is_null() || count == 0 || !any_device() {
        return false;
    }
    // SAFETY: the caller's promise; another thread that changes them meanwhile breaks the program with or without this
    // library.
    let fds = unsafe { std::slice::from_raw_parts(fds, count as usize) };
    fds.iter().any(|entry| device(entry.fd).is_some())
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
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
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
        // SAFETY: the program's own arguments.
        if !unsafe { has_device(fds, count) } {
            // SAFETY: the program's own arguments.
            return unsafe { next::poll(fds, count, timeout) };
        }
        let limit = TimeLimit::from_milliseconds(timeout);
        // SAFETY: the program's own arguments.
        errno::returned(unsafe { poll_devices(fds, count, &limit, std::ptr::null()) })
    }

    [unsafe] __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        // The C library ends the program if the array is too small. The hook reads no entry of such an array.
        let fits = room / size_of::<pollfd>() >= count as usize;
        // SAFETY: the program's own arguments.
        if fits && unsafe { has_device(fds, count) } {
            // SAFETY: the program's own arguments.
            return unsafe { poll(fds, count, timeout) };
        }
        // SAFETY: the program's own arguments.
        unsafe { next::__poll_chk(fds, count, timeout, room) }
    }

    [unsafe] ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: the program's own arguments.
        if !unsafe { has_device(fds, count) } {
            // SAFETY: the program's own arguments.
            return unsafe { next::ppoll(fds, count, timeout, mask) };
        }
        // SAFETY: null or a structure, as the program guarantees.
        let limit = from_timespec(unsafe { timeout.as_ref() });
        // SAFETY: the program's own arguments.
        errno::returned(limit.and_then(|limit| unsafe { poll_devices(fds, count, &limit, mask) }))
    }

    [unsafe] __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t
    ) -> c_int {
        let fits = room / size_of::<pollfd>() >= count as usize;
        // SAFETY: the program's own arguments.
        if fits && unsafe { has_device(fds, count) } {
            // SAFETY: the program's own arguments.
            return unsafe { ppoll(fds, count, timeout, mask) };
        }
        // SAFETY: the program's own arguments.
        unsafe { next::__ppoll_chk(fds, count, timeout, mask, room) }
    }
}
