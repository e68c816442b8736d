//! Regions in the program's own memory (`nmport_extmem*`).
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use ringroad_netmap::abi::{ExternalMemoryOption, ListedOption, PoolsBody, option_type};

use crate::abi::{Cleanup, NmportDesc};
use crate::context::{allocate_value, given, status};
use crate::device;
use crate::failure::{CallError, readable};
use crate::port::{outcome, push_cleanup};
use crate::request::nmreq_push_option;

/// Requests a region in this memory.
///
/// # Errors
///
/// `EINVAL` if the port is bound or has such memory already; `ENOMEM`.
pub fn use_memory(port: &mut NmportDesc, memory: *mut c_void, size: usize) -> Result<(), CallError> {
    let name = readable(port.header.name());
    if port.register_done != 0 {
        return Err(CallError::invalid(format!("{name}: extmem comes before the port is bound")));
    }
    if !port.extmem.is_null() {
        return Err(CallError::invalid(format!("{name}: extmem is given twice")));
    }
    let pools = PoolsBody { memory_bytes: size as u64, ..PoolsBody::default() };
    let body = ExternalMemoryOption { address: memory as u64, pools };
    let option = allocate_value(port.context, ListedOption::new(option_type::EXTMEM, body))?;
    // SAFETY: header and option are valid, and the option is in no list yet.
    unsafe { nmreq_push_option(&raw mut port.header, option.cast()) };
    port.extmem = option;
    push_cleanup(port, Cleanup::Option(option.cast()));
    Ok(())
}

/// Requests a region in a file, which is mapped now.
///
/// # Safety
///
/// `port` is valid, and not borrowed elsewhere.
///
/// # Errors
///
/// Errors of [`use_memory`], `open(2)` and `mmap(2)`.
pub unsafe fn use_file(port: *mut NmportDesc, path: &CStr) -> Result<(), CallError> {
    let (memory, size) = device::map_file(path)?;
    // SAFETY: guaranteed by the caller.
    let port = unsafe { &mut *port };
    if let Err(failure) = use_memory(port, memory, size) {
        // SAFETY: the file was mapped above, and nothing else uses it.
        unsafe { device::unmap(memory, size) };
        return Err(failure);
    }
    push_cleanup(port, Cleanup::Mapping(memory, size));
    Ok(())
}

/// `nmport_extmem`.
///
/// # Safety
///
/// `port` is valid, and the memory stays mapped while it is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_extmem(port: *mut NmportDesc, memory: *mut c_void, size: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { outcome(port, |port| use_memory(port, memory, size)) }
}

/// `nmport_extmem_from_file`.
///
/// # Safety
///
/// `port` is a valid port, and the path is NULL or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_extmem_from_file(port: *mut NmportDesc, path: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { given(path, "the path") }
        // SAFETY: guaranteed by the caller; no borrow of the port is alive.
        .and_then(|path| unsafe { use_file(port, path) });
    // SAFETY: guaranteed by the caller.
    let context = unsafe { (*port).context };
    status(context, result)
}

/// `nmport_extmem_getinfo`.
///
/// # Safety
///
/// `port` is a valid port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_extmem_getinfo(port: *mut NmportDesc) -> *mut PoolsBody {
    // SAFETY: guaranteed by the caller.
    let option = unsafe { (*port).extmem };
    if option.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: an option that the port holds.
    unsafe { &raw mut (*option).body.pools }
}
