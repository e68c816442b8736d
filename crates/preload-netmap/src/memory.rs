//! Hooks of `mmap` of a device, and of calls that change such mappings.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use libc::{off_t, size_t};
use ringroad_netmap::device::NetmapDevice;
use ringroad_netmap::private_descriptors::PrivateDescriptor;
use rustix::io::Errno;

use crate::hooks::hooks;
use crate::mapping_ledger::LEDGER;
use crate::tracked::DeviceReference;
use crate::{errno, mapping_ledger, tracked};

/// Maps a device; the mapping holds its descriptor.
///
/// # Safety
/// The conditions of mmap(2).
unsafe fn map_device(
    device: &DeviceReference,
    fd: c_int,
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<*mut c_void, Errno> {
    // SAFETY: the number of a device that this call uses; if it is closed meanwhile, the kernel reports that.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    let holder = Arc::new(PrivateDescriptor::duplicate(descriptor)?);
    // SAFETY: the program's own arguments.
    let mapped = unsafe { device.map(address, bytes, protection, flags, offset) }?;
    drop(mapping_ledger::remove(mapped.addr(), bytes));
    mapping_ledger::add(mapped.addr(), bytes, holder);
    Ok(mapped)
}

hooks! {
    [unsafe] mmap(
        address: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void = mmap64 {
        let is_file = flags & libc::MAP_ANONYMOUS == 0;
        let mut device = if is_file { tracked::device(fd) } else { None };
        if device.is_none() {
            // SAFETY: the program's own arguments.
            let mapped = unsafe { next::mmap(address, bytes, protection, flags, fd, offset) };
            if mapped != libc::MAP_FAILED {
                if flags & libc::MAP_FIXED != 0 && !LEDGER.is_empty() {
                    drop(mapping_ledger::remove(mapped.addr(), bytes));
                }
                return mapped;
            }
            // A socket cannot be mapped, and a device that is not known yet is a socket.
            let errno = errno::get();
            if is_file && matches!(errno, libc::ENODEV | libc::EACCES) {
                device = tracked::recognise(fd);
            }
            errno::set(errno);
        }
        let Some(device) = device else { return libc::MAP_FAILED };
        // SAFETY: the program's own arguments.
        match unsafe { map_device(&device, fd, address, bytes, protection, flags, offset) } {
            Ok(mapped) => mapped,
            Err(errno) => {
                errno::fail(errno);
                libc::MAP_FAILED
            }
        }
    }

    [unsafe] munmap(address: *mut c_void, bytes: size_t) -> c_int {
        if LEDGER.is_empty() {
            // SAFETY: the program's own arguments.
            return unsafe { next::munmap(address, bytes) };
        }
        // The range is removed before it is unmapped: afterwards another thread may have mapped a device there.
        let removed = mapping_ledger::remove(address.addr(), bytes);
        // SAFETY: the program's own arguments.
        let result = unsafe { next::munmap(address, bytes) };
        if result < 0 {
            mapping_ledger::put_back(removed);
        } else if !removed.is_empty() {
            drop(removed);
            NetmapDevice::settle_closed();
        }
        result
    }

    [unsafe] mremap(
        old: *mut c_void, old_bytes: size_t, new_bytes: size_t, flags: c_int; ... new: *mut c_void
    ) -> *mut c_void {
        let holder = match LEDGER.is_empty() {
            true => None,
            false => mapping_ledger::holder(old.addr(), old_bytes.max(1)),
        };
        if holder.is_some() && new_bytes > old_bytes {
            // A device's mapping does not grow.
            errno::set(libc::EFAULT);
            return libc::MAP_FAILED;
        }
        // SAFETY: the program's own arguments.
        let moved = unsafe { next::mremap(old, old_bytes, new_bytes, flags, new) };
        if moved == libc::MAP_FAILED || LEDGER.is_empty() {
            return moved;
        }
        if flags & libc::MREMAP_DONTUNMAP == 0 {
            drop(mapping_ledger::remove(old.addr(), old_bytes));
        }
        drop(mapping_ledger::remove(moved.addr(), new_bytes));
        if let Some(holder) = holder {
            mapping_ledger::add(moved.addr(), new_bytes, holder);
        }
        moved
    }
}
