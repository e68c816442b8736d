//! Status of `/dev/netmap` for programs that query it: a character device that every user may open; the daemon checks
//! the permissions.

use std::ffi::{c_char, c_int, c_uint};

use libc::{stat as stat_buffer, statx as statx_buffer};
use ringroad_netmap::user_memory;
use rustix::io::Errno;

use crate::hooks::hooks;
use crate::open::is_device_path;
use crate::{errno, tracked};

/// Type and permissions of the device.
const MODE: libc::mode_t = libc::S_IFCHR | 0o666;
/// Device number: the major number of drivers without their own, and a minor number that the kernel leaves to them.
const MAJOR: c_uint = 10;
const MINOR: c_uint = 255;

/// Whether a call that failed was about the device.
///
/// # Safety
/// The kernel must have read `path`, and returned ENOENT only if it is a string.
unsafe fn is_missing_device(result: c_int, path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    result < 0 && errno::get() == libc::ENOENT && !path.is_null() && unsafe { is_device_path(path) }
}

/// Copies a status to the program's memory at `to`: the return value of the call.
///
/// # Safety
/// All bytes of `status` must be initialised.
unsafe fn give<T>(status: &T, to: *mut T) -> c_int {
    let first = std::ptr::from_ref(status).cast();
    // SAFETY: the caller's promise, for the bytes of a value.
    let bytes = unsafe { std::slice::from_raw_parts(first, size_of::<T>()) };
    errno::returned(user_memory::write_bytes(to.addr(), bytes).map(|()| 0))
}

/// Fills the status of the device.
fn fill(to: *mut stat_buffer) -> c_int {
    // SAFETY: all zeroes is a status.
    let mut status: stat_buffer = unsafe { std::mem::zeroed() };
    status.st_mode = MODE;
    status.st_nlink = 1;
    status.st_rdev = libc::makedev(MAJOR, MINOR);
    status.st_blksize = 4096;
    // SAFETY: the status was zeroed.
    unsafe { give(&status, to) }
}

/// Return value of a call that gave `result` for the status of a path. Fills `to` if the path is the device's.
///
/// # Safety
/// The conditions of stat(2).
unsafe fn status_of_path(path: *const c_char, to: *mut stat_buffer, result: c_int) -> c_int {
    // SAFETY: the kernel has read the path.
    if !unsafe { is_missing_device(result, path) } {
        return result;
    }
    fill(to)
}

/// Return value of a call for the status of a descriptor, which is `other` unless the descriptor is a device.
fn status_of_descriptor(fd: c_int, to: *mut stat_buffer, other: impl FnOnce() -> c_int) -> c_int {
    if tracked::device(fd).is_some() { fill(to) } else { other() }
}

/// Return value of a call that gave `result` for the permission to use a path. The device can be used, but not
/// executed.
///
/// # Safety
/// The conditions of access(2).
unsafe fn access_to(path: *const c_char, mode: c_int, result: c_int) -> c_int {
    // SAFETY: the kernel has read the path.
    match unsafe { is_missing_device(result, path) } {
        true if mode & libc::X_OK != 0 => errno::fail(Errno::ACCESS),
        true => 0,
        false => result,
    }
}

hooks! {
    [unsafe] stat(path: *const c_char, to: *mut stat_buffer) -> c_int = stat64 {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::stat(path, to) };
        // SAFETY: as above.
        unsafe { status_of_path(path, to, result) }
    }

    [unsafe] lstat(path: *const c_char, to: *mut stat_buffer) -> c_int = lstat64 {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::lstat(path, to) };
        // SAFETY: as above.
        unsafe { status_of_path(path, to, result) }
    }

    [unsafe] fstatat(directory: c_int, path: *const c_char, to: *mut stat_buffer, flags: c_int) -> c_int = fstatat64 {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::fstatat(directory, path, to, flags) };
        // SAFETY: as above.
        unsafe { status_of_path(path, to, result) }
    }

    [unsafe] __xstat(version: c_int, path: *const c_char, to: *mut stat_buffer) -> c_int = __xstat64 {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::__xstat(version, path, to) };
        // SAFETY: as above.
        unsafe { status_of_path(path, to, result) }
    }

    [unsafe] __lxstat(version: c_int, path: *const c_char, to: *mut stat_buffer) -> c_int = __lxstat64 {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::__lxstat(version, path, to) };
        // SAFETY: as above.
        unsafe { status_of_path(path, to, result) }
    }

    [unsafe] __fxstatat(
        version: c_int, directory: c_int, path: *const c_char, to: *mut stat_buffer, flags: c_int
    ) -> c_int = __fxstatat64 {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::__fxstatat(version, directory, path, to, flags) };
        // SAFETY: as above.
        unsafe { status_of_path(path, to, result) }
    }

    [unsafe] fstat(fd: c_int, to: *mut stat_buffer) -> c_int = fstat64 {
        // SAFETY: the program's own arguments.
        let other = || unsafe { next::fstat(fd, to) };
        status_of_descriptor(fd, to, other)
    }

    [unsafe] __fxstat(version: c_int, fd: c_int, to: *mut stat_buffer) -> c_int = __fxstat64 {
        // SAFETY: the program's own arguments.
        let other = || unsafe { next::__fxstat(version, fd, to) };
        status_of_descriptor(fd, to, other)
    }

    [unsafe] statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut statx_buffer) -> c_int {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::statx(directory, path, flags, mask, to) };
        // SAFETY: the kernel has read the path.
        if !unsafe { is_missing_device(result, path) } {
            return result;
        }
        // SAFETY: all zeroes is a status.
        let mut status: statx_buffer = unsafe { std::mem::zeroed() };
        status.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK;
        status.stx_mode = MODE as u16;
        status.stx_nlink = 1;
        status.stx_blksize = 4096;
        status.stx_rdev_major = MAJOR;
        status.stx_rdev_minor = MINOR;
        // SAFETY: the status was zeroed.
        unsafe { give(&status, to) }
    }

    [unsafe] access(path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::access(path, mode) };
        // SAFETY: as above.
        unsafe { access_to(path, mode, result) }
    }

    [unsafe] eaccess(path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::eaccess(path, mode) };
        // SAFETY: as above.
        unsafe { access_to(path, mode, result) }
    }

    [unsafe] euidaccess(path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::euidaccess(path, mode) };
        // SAFETY: as above.
        unsafe { access_to(path, mode, result) }
    }

    [unsafe] faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        // SAFETY: the program's own arguments.
        let result = unsafe { next::faccessat(directory, path, mode, flags) };
        // SAFETY: as above.
        unsafe { access_to(path, mode, result) }
    }
}
