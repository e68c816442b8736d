//! Hooks of `ioctl` on a device, and of `read` and `write`, which a device refuses.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{iovec, size_t, ssize_t};
use ringroad_netmap::abi::{NIOCRXSYNC, NIOCTXSYNC, is_device_request};
use ringroad_netmap::control_call::control;
use ringroad_netmap::descriptor::NetmapFile;
use rustix::io::Errno;

use crate::{errno, next, tracked};

/// Requests that the kernel serves for descriptors of any kind.
fn is_for_descriptors(request: c_ulong) -> bool {
    matches!(request, libc::FIOCLEX | libc::FIONCLEX | libc::FIONBIO | libc::FIOASYNC)
}

/// The C function of this name.
///
/// # Safety
/// The conditions of ioctl(2). Programs pass `argument` as a variadic argument, which the supported platforms pass like
/// any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if let Some(device) = tracked::device(fd) {
        match request as u32 {
            NIOCTXSYNC => return done(device.tx_sync()),
            NIOCRXSYNC => return done(device.rx_sync()),
            _ => {}
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { other_ioctl(fd, request, argument) }
}

fn done(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => errno::fail(errno),
    }
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
        Some(device) if !is_for_descriptors(request) => done(control(&*device, request, argument)),
        // SAFETY: the program's own arguments.
        _ => unsafe { next::ioctl(fd, request, argument) },
    }
}

/// Defines hooks of calls that a device refuses.
macro_rules! refused {
    ($($name:ident(fd: c_int, $($argument:ident: $type:ty),*);)+) => {
        $(
            /// The C function of this name.
            ///
            /// # Safety
            /// The conditions on its manual page.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(fd: c_int, $($argument: $type),*) -> ssize_t {
                if tracked::device(fd).is_some() {
                    errno::set(libc::EINVAL);
                    return -1;
                }
                // SAFETY: the program's own arguments.
                unsafe { next::$name(fd, $($argument),*) }
            }
        )+
    };
}

refused! {
    read(fd: c_int, to: *mut c_void, bytes: size_t);
    write(fd: c_int, from: *const c_void, bytes: size_t);
    readv(fd: c_int, to: *const iovec, count: c_int);
    writev(fd: c_int, from: *const iovec, count: c_int);
}
