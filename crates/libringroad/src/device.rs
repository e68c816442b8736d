//! System calls on the device, through libc's functions, so that a preloaded library sees them like all others of the
//! program.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::io;
use std::ptr;

use ringroad_netmap::abi::{NIOCCTRL, PortInfoBody, RequestHeader, request_type};

use crate::failure::{CallError, readable};

/// `NETMAP_DEVICE_NAME`.
const DEVICE: &CStr = c"/dev/netmap";

/// Opens the device.
///
/// # Errors
///
/// Errors of `open(2)`.
pub fn open_device() -> Result<c_int, CallError> {
    // SAFETY: the path ends with NUL.
    let fd = unsafe { libc::open(DEVICE.as_ptr(), libc::O_RDWR) };
    if fd >= 0 {
        return Ok(fd);
    }
    let mut failure = CallError::of_system("/dev/netmap");
    if failure.errno == libc::ENOENT {
        failure.message =
            Some("/dev/netmap: nothing answers there; does the program run with Ringroad's library?".into());
    }
    Err(failure)
}

/// Closes a descriptor.
pub fn close(fd: c_int) {
    // SAFETY: any number may be given; this one is the port's own.
    unsafe { libc::close(fd) };
}

/// Sends a request.
///
/// # Safety
/// The header's body and options match its type, and are valid.
///
/// # Errors
///
/// Errors of the device.
pub unsafe fn control(fd: c_int, header: *mut RequestHeader) -> io::Result<()> {
    // SAFETY: the caller guarantees that the header is valid, with all that it points to.
    let result = unsafe { libc::ioctl(fd, c_ulong::from(NIOCCTRL), header) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Queries the region of a port from the device.
///
/// # Errors
///
/// Errors of the device.
pub fn region_of_port(name: &[u8]) -> Result<u16, CallError> {
    let mut info = PortInfoBody::default();
    let mut header = RequestHeader::new(request_type::PORT_INFO_GET);
    header.set_name(name);
    header.body = (&raw mut info) as u64;
    let fd = open_device()?;
    // SAFETY: the body is of this request's type and lives during the call; there are no options.
    let result = unsafe { control(fd, &raw mut header) };
    close(fd);
    match result {
        Ok(()) => Ok(info.mem_id),
        Err(error) => Err(CallError::new(
            error.raw_os_error().unwrap_or(libc::EIO),
            format!("requesting the region of {}: {error}", readable(name)),
        )),
    }
}

/// Maps the first `size` bytes of a descriptor, shared, to read and write.
///
/// # Errors
///
/// Errors of `mmap(2)`.
pub fn map(fd: c_int, size: usize) -> Result<*mut c_void, CallError> {
    // SAFETY: the kernel chooses the address, so existing mappings do not change.
    let memory = unsafe {
        libc::mmap(ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
    };
    if memory == libc::MAP_FAILED {
        return Err(CallError::of_system(&format!("mapping {size} bytes")));
    }
    Ok(memory)
}

/// Removes a mapping.
///
/// # Safety
///
/// [`map`] made it, and it is no longer used.
pub unsafe fn unmap(memory: *mut c_void, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { libc::munmap(memory, size) };
}

/// Maps a file of the program.
///
/// # Errors
///
/// Errors of `open(2)` and `mmap(2)`; `EINVAL` for an empty file.
pub fn map_file(path: &CStr) -> Result<(*mut c_void, usize), CallError> {
    let name = readable(path.to_bytes());
    // SAFETY: the path ends with NUL.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(CallError::of_system(&name));
    }
    let mapped = file_size(fd).and_then(|size| match size {
        0 => Err(CallError::invalid(format!("{name}: the file is empty"))),
        size => map(fd, size).map(|memory| (memory, size)),
    });
    close(fd);
    mapped
}

fn file_size(fd: c_int) -> Result<usize, CallError> {
    // SAFETY: the call only moves the descriptor's position, which nothing else uses.
    let end = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    usize::try_from(end).map_err(|_| CallError::of_system("the size of the file"))
}
