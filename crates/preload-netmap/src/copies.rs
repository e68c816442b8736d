//! Hooks of calls that close and copy descriptors: they update the tables, and spare the library's own descriptors, of
//! which programs that close all descriptors do not know.

use std::ffi::{c_int, c_uint};

use libc::FILE;
use ringroad_netmap::device::NetmapDevice;
use ringroad_netmap::private_descriptors::owns;
use rustix::io::Errno;

use crate::hooks::hooks;
use crate::{errno, tracked};

/// Limit of the tracked numbers: higher descriptors are neither tracked nor the library's own.
const NUMBERS: c_uint = 65536;

/// Calls `close` for all ranges without the library's own descriptors.
fn between_ours(first: c_uint, last: c_uint, mut close: impl FnMut(c_uint, c_uint) -> c_int) -> c_int {
    let mut begin = first;
    for ours in (first..=last.min(NUMBERS - 1)).filter(|&number| owns(number as c_int)) {
        if begin < ours && close(begin, ours - 1) < 0 {
            return -1;
        }
        begin = ours + 1;
    }
    if begin <= last { close(begin, last) } else { 0 }
}

fn forget_all(first: c_uint, last: c_uint) {
    for number in first..=last.min(NUMBERS - 1) {
        tracked::forget(number as c_int);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn closefrom(lowest: c_int) {
    let before = errno::get();
    let lowest = c_uint::try_from(lowest).unwrap_or(0);
    if close_range(lowest, c_uint::MAX, 0) < 0 {
        // The call does not exist: the kernel is older than 5.9, or a sandbox forbids the call.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let limit = limit.unwrap_or(NUMBERS.into()).min(i32::MAX as u64) as c_int;
        for number in lowest as c_int..limit {
            close(number);
        }
    }
    errno::set(before);
}

/// Reason why a copy cannot be made onto a number, or of it.
fn refusal(old: c_int, new: c_int) -> Option<Errno> {
    if owns(old) {
        Some(Errno::BADF)
    } else if owns(new) {
        // The number is in use, but not by the program; the kernel returns the same error when it is about to assign a
        // number to another file.
        Some(Errno::BUSY)
    } else {
        None
    }
}

hooks! {
    [] close(fd: c_int) -> c_int {
        if owns(fd) {
            return errno::fail(Errno::BADF);
        }
        let was_device = tracked::device(fd).is_some();
        // The number is forgotten before it is closed: afterwards another thread may have got the number.
        tracked::forget(fd);
        let result = next::close(fd);
        if was_device {
            let errno = errno::get();
            NetmapDevice::settle_closed();
            errno::set(errno);
        }
        result
    }

    [unsafe] fclose(file: *mut FILE) -> c_int {
        if !file.is_null() {
            let before = errno::get();
            // SAFETY: the program's own argument.
            tracked::forget(unsafe { libc::fileno(file) });
            errno::set(before);
        }
        // SAFETY: the program's own argument.
        unsafe { next::fclose(file) }
    }

    [] close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if first > last || flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 {
            return next::close_range(first, last, flags);
        }
        between_ours(first, last, |first, last| {
            let result = next::close_range(first, last, flags);
            if result == 0 {
                forget_all(first, last);
            }
            result
        })
    }

    [] dup(fd: c_int) -> c_int {
        let copy = next::dup(fd);
        if copy >= 0 {
            tracked::copied(fd, copy);
        }
        copy
    }

    [] dup2(old: c_int, new: c_int) -> c_int {
        if let Some(errno) = refusal(old, new) {
            return errno::fail(errno);
        }
        let copy = next::dup2(old, new);
        if copy >= 0 && old != new {
            tracked::copied(old, copy);
        }
        copy
    }

    [] dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        if let Some(errno) = refusal(old, new) {
            return errno::fail(errno);
        }
        let copy = next::dup3(old, new, flags);
        if copy >= 0 {
            tracked::copied(old, copy);
        }
        copy
    }

    // The C library replaces the standard descriptors without a call of a hook.
    [] daemon(stays: c_int, keeps: c_int) -> c_int {
        let result = next::daemon(stays, keeps);
        if result == 0 && keeps == 0 {
            forget_all(0, 2);
        }
        result
    }

    [unsafe] fcntl(fd: c_int, command: c_int; ... argument: usize) -> c_int = fcntl64 {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::fcntl(fd, command, argument) };
        if result >= 0 && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            tracked::copied(fd, result);
        }
        result
    }
}
