//! The only calls of bpf(2). Layouts as in `linux/bpf.h`, `union bpf_attr`.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::Errno;

/// Commands of bpf(2) that this crate uses.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgramLoad = 5,
    InfoByDescriptor = 15,
    LinkCreate = 28,
    LinkDescriptorById = 30,
    LinkNextId = 31,
    LinkDetach = 34,
}

/// A part of `union bpf_attr`.
///
/// # Safety
/// The type is `repr(C)` and every bit pattern, padding included, is initialised: the kernel reads its bytes, and may
/// write them. Addresses in the type are valid for the command's accesses while it runs.
pub(crate) unsafe trait Attribute {}

/// Calls bpf(2); returns its result.
pub(crate) fn bpf<A: Attribute>(command: Command, attribute: &mut A) -> Result<i64, Errno> {
    let size = size_of::<A>();
    // SAFETY: `attribute` is `size` initialised bytes that this call may change; the implementation of `Attribute`
    // vouches for the addresses in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as u32, std::ptr::from_mut(attribute), size) };
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(result)
}

/// Calls a command that returns a descriptor. The kernel sets close-on-exec on all of them.
pub(crate) fn bpf_descriptor<A: Attribute>(command: Command, attribute: &mut A) -> Result<OwnedFd, Errno> {
    let descriptor = i32::try_from(bpf(command, attribute)?).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just created this descriptor for this call, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
