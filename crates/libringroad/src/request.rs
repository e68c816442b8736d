//! Requests (`nmreq_*`): conversion of names into headers and bodies, and the list of options.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

use ringroad_netmap::abi::{OptionHeader, OptionType, RegisterBody, RequestHeader};

use crate::abi::Nmctx;
use crate::binding::split_binding;
use crate::context::{given, nmctx_free, nmctx_get, report, status};
use crate::device;
use crate::failure::CallError;
use crate::port_name::split_port_name;

/// Returns the text at a cursor of the caller.
///
/// # Safety
///
/// The cursor points to NULL or to a string that lives for `'a`.
unsafe fn text_at<'a>(cursor: *mut *const c_char) -> Result<(&'a mut *const c_char, &'a [u8]), CallError> {
    // SAFETY: the caller guarantees that the pointer is NULL or valid.
    let cursor = unsafe { cursor.as_mut() }.ok_or_else(|| CallError::null("the pointer to the name"))?;
    // SAFETY: the pointer is not NULL, so it is a string.
    let text = unsafe { given(*cursor, "the name") }?;
    Ok((cursor, text.to_bytes()))
}

/// `nmreq_header_init`.
///
/// # Safety
///
/// `header` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_header_init(header: *mut RequestHeader, request_type: u16, body: *mut c_void) {
    let mut fresh = RequestHeader::new(request_type);
    fresh.body = body as u64;
    // SAFETY: the caller guarantees that the pointer is valid.
    unsafe { header.write(fresh) };
}

/// `nmreq_header_decode`.
///
/// # Safety
///
/// The pointers are NULL or valid, and the text ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_header_decode(
    spec: *mut *const c_char,
    header: *mut RequestHeader,
    context: *mut Nmctx,
) -> c_int {
    let decode = || {
        // SAFETY: guaranteed by the caller.
        let (cursor, text) = unsafe { text_at(spec) }?;
        // SAFETY: the caller guarantees that the pointer is NULL or valid.
        let header = unsafe { header.as_mut() }.ok_or_else(|| CallError::null("the header"))?;
        let (name, rest) = split_port_name(text)?;
        header.set_name(name);
        *cursor = rest.as_ptr().cast();
        Ok(())
    };
    status(context, decode())
}

/// `nmreq_register_decode`.
///
/// # Safety
///
/// The pointers are NULL or valid, and the text ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_register_decode(
    mode: *mut *const c_char,
    register: *mut RegisterBody,
    context: *mut Nmctx,
) -> c_int {
    let decode = || {
        // SAFETY: guaranteed by the caller.
        let (cursor, text) = unsafe { text_at(mode) }?;
        // SAFETY: the caller guarantees that the pointer is NULL or valid.
        let register = unsafe { register.as_mut() }.ok_or_else(|| CallError::null("the request's body"))?;
        let (binding, rest) = split_binding(text, register.mem_id)?;
        register.mode = binding.mode as u32;
        register.ring_id = binding.ring;
        register.flags = binding.flags;
        register.mem_id = binding.region;
        *cursor = rest.as_ptr().cast();
        Ok(())
    };
    status(context, decode())
}

/// `nmreq_get_mem_id`.
///
/// # Safety
///
/// The pointers are NULL or valid, and the text ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_get_mem_id(name: *mut *const c_char, context: *mut Nmctx) -> i32 {
    let ask = || {
        // SAFETY: guaranteed by the caller.
        let (cursor, text) = unsafe { text_at(name) }?;
        let (name, rest) = split_port_name(text)?;
        let region = device::region_of_port(name)?;
        *cursor = rest.as_ptr().cast();
        Ok(region)
    };
    match ask() {
        Ok(region) => region.into(),
        Err(failure) => {
            report(context, failure);
            -1
        }
    }
}

/// Finds the field that has the address of the first option for which `wanted` is true, or the field with the 0 that
/// ends the list.
///
/// # Safety
///
/// The list is sound, and is not changed meanwhile.
unsafe fn link_to(
    header: *mut RequestHeader,
    wanted: impl Fn(*mut OptionHeader, &OptionHeader) -> bool,
) -> *mut u64 {
    // SAFETY: all callers pass a valid header.
    let mut link = unsafe { &raw mut (*header).options };
    loop {
        // SAFETY: the field is in the header, or in an option of a sound list.
        let option = unsafe { link.read() } as *mut OptionHeader;
        // SAFETY: the pointer is NULL or an option of a sound list.
        let Some(seen) = (unsafe { option.as_ref() }) else { return link };
        if wanted(option, seen) {
            return link;
        }
        // SAFETY: the pointer is not NULL, so it is an option of a sound list.
        link = unsafe { &raw mut (*option).next };
    }
}

/// `nmreq_push_option`.
///
/// # Safety
///
/// Both are valid, and the option is in no list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_push_option(header: *mut RequestHeader, option: *mut OptionHeader) {
    // SAFETY: the caller guarantees that the header is valid.
    let header = unsafe { &mut *header };
    // SAFETY: the caller guarantees that the option is valid.
    unsafe { (*option).next = header.options };
    header.options = option as u64;
}

/// `nmreq_remove_option`.
///
/// # Safety
///
/// The header and its list are sound; `option` need not be in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_remove_option(header: *mut RequestHeader, option: *mut OptionHeader) {
    // SAFETY: guaranteed by the caller.
    let link = unsafe { link_to(header, |this, _| this == option) };
    // SAFETY: the field is in the header or one of its options.
    let found = unsafe { link.read() } as *mut OptionHeader;
    // SAFETY: the pointer is NULL or an option of the list.
    if let Some(found) = unsafe { found.as_mut() } {
        // SAFETY: the field is valid, since it was just read.
        unsafe { link.write(found.next) };
        found.next = 0;
    }
}

/// `nmreq_find_option`.
///
/// # Safety
///
/// The header and its list are sound.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_find_option(
    header: *mut RequestHeader,
    option_type: u32,
) -> *mut OptionHeader {
    // SAFETY: guaranteed by the caller.
    let link = unsafe { link_to(header, |_, option| option.option_type == option_type) };
    // SAFETY: the field is in the header or one of its options.
    unsafe { link.read() as *mut OptionHeader }
}

/// `nmreq_free_options`.
///
/// # Safety
///
/// The header and its list are sound, and the options came from `nmctx_malloc` of the default context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmreq_free_options(header: *mut RequestHeader) {
    // SAFETY: the caller guarantees that the header is valid.
    let header = unsafe { &mut *header };
    while header.options != 0 {
        let option = header.options as *mut OptionHeader;
        // SAFETY: the pointer is an option of a sound list.
        header.options = unsafe { (*option).next };
        // SAFETY: the option came from this context, and no list has it any more.
        unsafe { nmctx_free(nmctx_get(), option.cast()) };
    }
}

/// `nmreq_option_name`.
#[unsafe(no_mangle)]
pub extern "C" fn nmreq_option_name(option_type: u32) -> *const c_char {
    option_name(option_type).as_ptr()
}

/// Name of an option type in messages.
#[must_use]
pub fn option_name(option_type: u32) -> &'static CStr {
    OptionType::of(option_type).map_or(c"unknown", |known| known.name)
}
