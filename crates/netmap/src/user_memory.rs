//! Reads and writes of the program's memory, at addresses from the program that may be invalid: EFAULT instead of a
//! crash.
//!
//! The kernel copies between this process and itself, and reports inaccessible memory. No function borrows the
//! program's memory.
#![allow(unsafe_code)]

use std::ffi::c_void;

use ringroad_ring::shared::SharedBytes;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Common type of `process_vm_readv` and `process_vm_writev`.
type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

fn transfer(call: Transfer, ours: *mut c_void, address: usize, bytes: usize) -> Result<(), Errno> {
    let ours = libc::iovec { iov_base: ours, iov_len: bytes };
    let theirs = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: `ours` is memory of the caller, `bytes` long and writable where `call` writes it; the kernel checks
    // `theirs` itself. If a program names memory that Rust code uses, it could overwrite it just as well without this
    // call.
    let moved = unsafe { call(own, &raw const ours, 1, &raw const theirs, 1, 0) };
    // The rest was not accessible if only a part was moved.
    if moved == bytes as isize { Ok(()) } else { Err(Errno::FAULT) }
}

/// Fills `to` from `address`.
///
/// # Errors
/// EFAULT if a part of the memory cannot be read.
pub fn read_bytes(address: usize, to: &mut [u8]) -> Result<(), Errno> {
    transfer(libc::process_vm_readv, to.as_mut_ptr().cast(), address, to.len())
}

/// Fills a part of a region from `address`. No reference to the bytes exists: other processes may write them meanwhile.
///
/// # Errors
/// The error of [`read_bytes`].
pub fn read_shared(address: usize, to: &SharedBytes<'_>) -> Result<(), Errno> {
    transfer(libc::process_vm_readv, to.as_ptr().cast(), address, to.len())
}

/// Writes `from` to `address`.
///
/// # Errors
/// EFAULT if a part of the memory cannot be written; the first bytes may have been written.
pub fn write_bytes(address: usize, from: &[u8]) -> Result<(), Errno> {
    transfer(libc::process_vm_writev, from.as_ptr().cast_mut().cast(), address, from.len())
}

/// Reads a structure.
///
/// # Errors
/// EFAULT if the memory cannot be read.
pub fn read<T: FromBytes + IntoBytes>(address: usize) -> Result<T, Errno> {
    let mut value = T::new_zeroed();
    read_bytes(address, value.as_mut_bytes())?;
    Ok(value)
}

/// Writes a structure.
///
/// # Errors
/// EFAULT if the memory cannot be written.
pub fn write<T: IntoBytes + Immutable>(address: usize, value: &T) -> Result<(), Errno> {
    write_bytes(address, value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages of which only the first may be touched.
    fn edge() -> (usize, usize) {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let pages = unsafe { mmap_anonymous(core::ptr::null_mut(), 8192, protection, MapFlags::PRIVATE) };
        let start = pages.unwrap() as usize;
        // SAFETY: the second page is part of the mapping made above; no reference points into it.
        unsafe { mprotect((start + 4096) as *mut c_void, 4096, MprotectFlags::empty()) }.unwrap();
        (start, start + 4096)
    }

    #[test]
    fn written_values_are_read_back() {
        let (start, end) = edge();
        write(start + 3, &0x1122_3344_5566_7788_u64).unwrap();
        assert_eq!(read(start + 3), Ok(0x1122_3344_5566_7788_u64));
        write(end - 8, &7_u64).unwrap();
        assert_eq!(read(end - 8), Ok(7_u64));
    }

    #[test]
    fn missing_pages_are_a_fault() {
        let (_, end) = edge();
        for address in [0, 8, end - 4, end, usize::MAX - 3] {
            assert_eq!(read::<u64>(address), Err(Errno::FAULT), "{address:#x}");
            assert_eq!(write(address, &1_u64), Err(Errno::FAULT), "{address:#x}");
        }
        // The constant lies in memory that cannot be written.
        static CONSTANT: u64 = 5;
        assert_eq!(read(&raw const CONSTANT as usize), Ok(5_u64));
        assert_eq!(write(&raw const CONSTANT as usize, &1_u64), Err(Errno::FAULT));
    }

    #[test]
    fn an_empty_copy_accepts_any_address() {
        assert_eq!(read_bytes(1, &mut []), Ok(()));
    }
}
