//! Frame offsets: frames that begin at a chosen offset in their buffers (`nmport_offset`).
#![allow(unsafe_code)]

use std::ffi::c_int;

use ringroad_netmap::abi::{ListedOption, OffsetsOption, option_type};

use crate::abi::{Cleanup, NmportDesc};
use crate::context::{allocate_value, status};
use crate::failure::{CallError, readable};
use crate::port::push_cleanup;
use crate::request::{nmreq_find_option, nmreq_push_option};

/// Requests offsets in bytes: `initial` at first and `max` at most, in the low `bits` bits (0: all).
///
/// # Safety
///
/// `port` is valid with a sound list of options, and not borrowed elsewhere.
///
/// # Errors
///
/// `EINVAL` if the port is bound, has offsets already, or `bits` is too large; `ENOMEM`.
pub unsafe fn use_offsets(
    port: *mut NmportDesc,
    initial: u64,
    max: u64,
    bits: u64,
    min_gap: u64,
) -> Result<(), CallError> {
    // SAFETY: guaranteed by the caller.
    let port = unsafe { &mut *port };
    let name = readable(port.header.name());
    if port.register_done != 0 {
        return Err(CallError::invalid(format!("{name}: offsets come before the port is bound")));
    }
    let bits = match u32::try_from(bits) {
        Ok(bits @ 0..=64) => bits,
        _ => {
            return Err(CallError::invalid(format!(
                "{name}: offsets of {bits} bits, 64 at most are possible"
            )));
        }
    };
    // SAFETY: the caller guarantees that the list is sound.
    if !unsafe { nmreq_find_option(&raw mut port.header, option_type::OFFSETS) }.is_null() {
        return Err(CallError::invalid(format!("{name}: offsets are given twice")));
    }
    let body = OffsetsOption { max, initial, bits, min_gap, ..OffsetsOption::default() };
    let option = allocate_value(port.context, ListedOption::new(option_type::OFFSETS, body))?;
    // SAFETY: header and option are valid, and the option is in no list yet.
    unsafe { nmreq_push_option(&raw mut port.header, option.cast()) };
    push_cleanup(port, Cleanup::Option(option.cast()));
    Ok(())
}

/// `nmport_offset`.
///
/// # Safety
///
/// `port` is a valid port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_offset(
    port: *mut NmportDesc,
    initial: u64,
    max: u64,
    bits: u64,
    min_gap: u64,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { use_offsets(port, initial, max, bits, min_gap) };
    // SAFETY: guaranteed by the caller.
    let context = unsafe { (*port).context };
    status(context, result)
}
