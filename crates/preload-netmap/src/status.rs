//! Status of `/dev/netmap` for programs that query it: a character device that every user may open; the daemon checks
//! the permissions.

use std::ffi::{c_char, c_int, c_uint};

use libc::{stat as stat_buffer, statx as statx_buffer};

use crate::open::is_device_path;
use crate::{errno, next, tracked};

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

/// Fills the status of the device.
///
/// # Safety
/// `to` must be a structure of the caller.
unsafe fn fill(to: *mut stat_buffer) -> c_int {
    // SAFETY: all zeroes is a status.
    let mut status: stat_buffer = unsafe { std::mem::zeroed() };
    status.st_mode = MODE;
    status.st_nlink = 1;
    status.st_rdev = libc::makedev(MAJOR, MINOR);
    status.st_blksize = 4096;
    // SAFETY: the caller's promise.
    unsafe { to.write(status) };
    0
}

/// Defines hooks of calls that give the status of a path.
macro_rules! status_of_path {
    ($($name:ident($($argument:ident: $type:ty),*): $path:ident, $to:ident, $next:ident;)+) => {
        $(
            /// The C function of this name.
            ///
            /// # Safety
            /// The conditions of stat(2).
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the program's own arguments.
                let result = unsafe { next::$next($($argument),*) };
                // SAFETY: the kernel has read the path.
                if unsafe { is_missing_device(result, $path) } {
                    // SAFETY: the program's own argument.
                    return unsafe { fill($to) };
                }
                result
            }
        )+
    };
}

status_of_path! {
    stat(path: *const c_char, to: *mut stat_buffer): path, to, stat;
    stat64(path: *const c_char, to: *mut stat_buffer): path, to, stat;
    lstat(path: *const c_char, to: *mut stat_buffer): path, to, lstat;
    lstat64(path: *const c_char, to: *mut stat_buffer): path, to, lstat;
    fstatat(directory: c_int, path: *const c_char, to: *mut stat_buffer, flags: c_int): path, to, fstatat;
    fstatat64(directory: c_int, path: *const c_char, to: *mut stat_buffer, flags: c_int): path, to, fstatat;
    __xstat(version: c_int, path: *const c_char, to: *mut stat_buffer): path, to, __xstat;
    __xstat64(version: c_int, path: *const c_char, to: *mut stat_buffer): path, to, __xstat;
    __lxstat(version: c_int, path: *const c_char, to: *mut stat_buffer): path, to, __lxstat;
    __lxstat64(version: c_int, path: *const c_char, to: *mut stat_buffer): path, to, __lxstat;
    __fxstatat(version: c_int, directory: c_int, path: *const c_char, to: *mut stat_buffer, flags: c_int): path, to, __fxstatat;
    __fxstatat64(version: c_int, directory: c_int, path: *const c_char, to: *mut stat_buffer, flags: c_int): path, to, __fxstatat;
}

/// Defines hooks of calls that give the status of a descriptor.
macro_rules! status_of_descriptor {
    ($($name:ident($($argument:ident: $type:ty),*): $fd:ident, $to:ident, $next:ident;)+) => {
        $(
            /// The C function of this name.
            ///
            /// # Safety
            /// The conditions of fstat(2).
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                if tracked::device($fd).is_some() {
                    // SAFETY: the program's own argument.
                    return unsafe { fill($to) };
                }
                // SAFETY: the program's own arguments.
                unsafe { next::$next($($argument),*) }
            }
        )+
    };
}

status_of_descriptor! {
    fstat(fd: c_int, to: *mut stat_buffer): fd, to, fstat;
    fstat64(fd: c_int, to: *mut stat_buffer): fd, to, fstat;
    __fxstat(version: c_int, fd: c_int, to: *mut stat_buffer): fd, to, __fxstat;
    __fxstat64(version: c_int, fd: c_int, to: *mut stat_buffer): fd, to, __fxstat;
}

/// The C function of this name.
///
/// # Safety
/// The conditions of statx(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut statx_buffer,
) -> c_int {
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
    // SAFETY: the program's own argument.
    unsafe { to.write(status) };
    0
}

/// Defines hooks of calls that check whether a path may be used.
macro_rules! accesses {
    ($($name:ident($($argument:ident: $type:ty),*): $path:ident, $mode:ident;)+) => {
        $(
            /// The C function of this name.
            ///
            /// # Safety
            /// The conditions of access(2).
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the program's own arguments.
                let result = unsafe { next::$name($($argument),*) };
                // SAFETY: the kernel has read the path.
                if !unsafe { is_missing_device(result, $path) } {
                    return result;
                }
                if $mode & libc::X_OK != 0 {
                    errno::set(libc::EACCES);
                    return -1;
                }
                0
            }
        )+
    };
}

accesses! {
    access(path: *const c_char, mode: c_int): path, mode;
    eaccess(path: *const c_char, mode: c_int): path, mode;
    euidaccess(path: *const c_char, mode: c_int): path, mode;
    faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int): path, mode;
}
