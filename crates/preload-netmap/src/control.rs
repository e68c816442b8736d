//! Hooks of `ioctl` on a device, and of `read` and `write`, which a device refuses.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{iovec, size_t, ssize_t};
use ringroad_netmap::abi::{NIOCRXSYNC, NIOCTXSYNC, is_device_request};
use ringroad_netmap::control_call::control;
use ringroad_netmap::descriptor::NetmapFile;
use rustix::io::Errno;

use crate::hooks::hooks;
use crate::{errno, tracked};

/// Requests that the kernel serves for descriptors of any kind.
fn is_for_descriptors(request: c_ulong) -> bool {
    matches!(request, libc::FIOCLEX | libc::FIONCLEX | libc::FIONBIO | libc::FIOASYNC)
}

/// Carries out an ioctl other than a sync of a known device.
///
/// # Safety
/// The conditions of ioctl(2).
#[cold]
unsafe fn other_ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let device = match tracked::device(fd) {
        None if is_device_request(request) => tracked::recognise(fd),
        known => known,
    };
    match device {
        Some(device) if !is_for_descriptors(request) => {
            errno::returned(control(&*device, request, argument).map(|()| 0))
        }
        // SAFETY: the program's own arguments.
        _ => unsafe { next::ioctl(fd, request, argument) },
    }
}

/// Result of a call that a device refuses; `None` if the descriptor is no device.
fn refusal(fd: c_int) -> Option<ssize_t> {
    tracked::device(fd).map(|_| errno::fail(Errno::INVAL) as ssize_t)
}

hooks! {
    [unsafe] ioctl(fd: c_int, request: c_ulong; ... argument: usize) -> c_int {
        if let Some(device) = tracked::device(fd) {
            match request as u32 {
                NIOCTXSYNC => return errno::returned(device.tx_sync().map(|()| 0)),
                NIOCRXSYNC => return errno::returned(device.rx_sync().map(|()| 0)),
                _ => {}
            }
        }
        // SAFETY: the program's own arguments.
        unsafe { other_ioctl(fd, request, argument) }
    }

    [unsafe] read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t {
        // SAFETY: the program's own arguments.
        refusal(fd).unwrap_or_else(|| unsafe { next::read(fd, to, bytes) })
    }

    [unsafe] write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
        // SAFETY: the program's own arguments.
        refusal(fd).unwrap_or_else(|| unsafe { next::write(fd, from, bytes) })
    }

    [unsafe] readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the program's own arguments.
        refusal(fd).unwrap_or_else(|| unsafe { next::readv(fd, to, count) })
    }

    [unsafe] writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the program's own arguments.
        refusal(fd).unwrap_or_else(|| unsafe { next::writev(fd, from, count) })
    }
}
