//! Hooks of `open` and related calls for `/dev/netmap`.
//!
//! The C library opens first. Only if it finds no file, the path is compared, so that other opens cost nothing. With
//! O_CREAT the path is checked before, because the C library would create a plain file.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use libc::mode_t;
use ringroad_netmap::device::NetmapDevice;
use ringroad_netmap::user_memory;
use rustix::io::{Errno, FdFlags};

use crate::hooks::hooks;
use crate::{errno, tracked};

/// Path of the device.
const DEVICE: &CStr = c"/dev/netmap";

/// Whether a path that the kernel has read is the device's path.
///
/// # Safety
/// `path` must be a NUL-terminated string.
pub(crate) unsafe fn is_device_path(path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    path == DEVICE
}

/// Works as [`is_device_path`], for a pointer that may be invalid.
fn may_be_device_path(path: *const c_char) -> bool {
    let mut read = [0; DEVICE.count_bytes() + 1];
    user_memory::read_bytes(path.addr(), &mut read).is_ok() && read == DEVICE.to_bytes_with_nul()
}

/// Opens the device for a program that gave `flags`.
fn open_device(flags: c_int) -> Result<c_int, Errno> {
    let before = errno::get();
    let (descriptor, device) = NetmapDevice::open()?;
    let descriptor = lowest(descriptor)?;
    let kept = if flags & libc::O_CLOEXEC != 0 { FdFlags::CLOEXEC } else { FdFlags::empty() };
    rustix::io::fcntl_setfd(&descriptor, kept)?;
    if flags & libc::O_NONBLOCK != 0 {
        let status = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, status | rustix::fs::OFlags::NONBLOCK)?;
    }
    tracked::forget(descriptor.as_raw_fd());
    tracked::add_device(descriptor.as_raw_fd(), device)?;
    errno::set(before);
    Ok(descriptor.into_raw_fd())
}

/// Moves a descriptor to the lowest free number, which programs may count on.
fn lowest(descriptor: OwnedFd) -> Result<OwnedFd, Errno> {
    let lower = rustix::io::fcntl_dupfd_cloexec(&descriptor, 0);
    match lower {
        Ok(lower) if lower.as_raw_fd() < descriptor.as_raw_fd() => Ok(lower),
        _ => Ok(descriptor),
    }
}

/// Opens with `open_file`, or opens the device.
///
/// # Safety
/// `path` must be as open(2) requires.
unsafe fn open_either(path: *const c_char, flags: c_int, open_file: impl FnOnce() -> c_int) -> c_int {
    if flags & libc::O_CREAT != 0 && may_be_device_path(path) {
        return errno::returned(open_device(flags));
    }
    let number = open_file();
    if number >= 0 {
        // A descriptor that was closed without a hook may have had the number.
        tracked::forget(number);
        return number;
    }
    if errno::get() != libc::ENOENT || path.is_null() {
        return number;
    }
    // SAFETY: the kernel has read the path and found no file, so it is a string.
    if unsafe { is_device_path(path) } {
        return errno::returned(open_device(flags));
    }
    errno::set(libc::ENOENT);
    number
}

hooks! {
    [unsafe] open(path: *const c_char, flags: c_int; ... mode: mode_t) -> c_int = open64, __open, __open64 {
        // SAFETY: the program's own arguments.
        let open_file = || unsafe { next::open(path, flags, mode) };
        // SAFETY: as above.
        unsafe { open_either(path, flags, open_file) }
    }

    [unsafe] openat(directory: c_int, path: *const c_char, flags: c_int; ... mode: mode_t) -> c_int = openat64 {
        // SAFETY: the program's own arguments.
        let open_file = || unsafe { next::openat(directory, path, flags, mode) };
        // SAFETY: as above.
        unsafe { open_either(path, flags, open_file) }
    }

    [unsafe] __open_2(path: *const c_char, flags: c_int) -> c_int = __open64_2 {
        // SAFETY: the program's own arguments.
        let open_file = || unsafe { next::__open_2(path, flags) };
        // SAFETY: as above.
        unsafe { open_either(path, flags, open_file) }
    }

    [unsafe] __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = __openat64_2 {
        // SAFETY: the program's own arguments.
        let open_file = || unsafe { next::__openat_2(directory, path, flags) };
        // SAFETY: as above.
        unsafe { open_either(path, flags, open_file) }
    }

    [unsafe] creat(path: *const c_char, mode: mode_t) -> c_int = creat64 {
        // SAFETY: the program's own arguments.
        let open_file = || unsafe { next::creat(path, mode) };
        // SAFETY: as above.
        unsafe { open_either(path, libc::O_CREAT, open_file) }
    }
}
