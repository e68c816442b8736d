//! Ports (`nmport_*`): naming, binding and mapping them, and undoing each of these.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::ptr;

use ringroad_netmap::abi::{OptionHeader, RegisterBody, RequestHeader, request_type};

use crate::abi::{Cleanup, Nmctx, NmportDesc};
use crate::binding::split_binding;
use crate::bound_rings::bound_rings;
use crate::context::{allocate_value, given, nmctx_free, nmctx_get, report, status};
use crate::device;
use crate::failure::{CallError, readable};
use crate::option_parser::decode_options;
use crate::port_name::split_port_name;
use crate::port_options::parsers;
use crate::region::{self, MemorySource};
use crate::request::{nmreq_remove_option, option_name};

/// Records a step to undo when the port's name is undone.
pub fn push_cleanup(port: &mut NmportDesc, cleanup: Cleanup) {
    if port.cleanups.is_null() {
        port.cleanups = Box::into_raw(Box::default());
    }
    // SAFETY: the pointer is not NULL, so it is a box of this module, which only the port holds.
    unsafe { &mut *port.cleanups }.push(cleanup);
}

/// Undoes the newest steps until `keep` are left.
fn undo_cleanups(port: &mut NmportDesc, keep: usize) {
    // SAFETY: the pointer is NULL or a box of this module, which only the port holds.
    let Some(cleanups) = (unsafe { port.cleanups.as_mut() }) else { return };
    while cleanups.len() > keep {
        match cleanups.pop() {
            Some(Cleanup::Option(option)) => forget_option(port, option),
            Some(Cleanup::Mapping(memory, size)) => {
                // SAFETY: `extmem::use_file` mapped the file for this port, which is not bound any more.
                unsafe { region::unmap_file(port.context, memory, size) }
            }
            None => {}
        }
    }
    if keep == 0 {
        // SAFETY: the pointer is a box of this module, which only the port holds.
        drop(unsafe { Box::from_raw(mem::replace(&mut port.cleanups, ptr::null_mut())) });
    }
}

fn forget_option(port: &mut NmportDesc, option: *mut OptionHeader) {
    if port.extmem.cast() == option {
        port.extmem = ptr::null_mut();
    }
    // SAFETY: the list is the port's own; the library and the program put options into it.
    unsafe { nmreq_remove_option(&raw mut port.header, option) };
    // SAFETY: the context allocated the option, which is in no list any more.
    unsafe { nmctx_free(port.context, option.cast()) };
}

/// Allocates a port of this context, neither named nor bound.
fn new_port(context: *mut Nmctx) -> Result<*mut NmportDesc, CallError> {
    let port = allocate_value(context, NmportDesc::new(context))?;
    // SAFETY: the port was just made.
    attach_body(unsafe { &mut *port });
    Ok(port)
}

fn attach_body(port: &mut NmportDesc) {
    port.header.body = (&raw mut port.register) as u64;
}

/// Fills the requests from a name. If this fails, the port is as before.
///
/// # Safety
///
/// `port` is valid and not borrowed elsewhere.
unsafe fn parse(port: *mut NmportDesc, spec: &[u8]) -> Result<(), CallError> {
    // SAFETY: guaranteed by the caller.
    let before = unsafe { port.read() };
    // SAFETY: the pointer is NULL or a box of this module.
    let kept = unsafe { before.cleanups.as_ref() }.map_or(0, Vec::len);
    let (name, rest) = split_port_name(spec)?;
    let (binding, options) = split_binding(rest, before.register.mem_id)?;
    {
        // SAFETY: guaranteed by the caller.
        let port = unsafe { &mut *port };
        port.header.request_type = request_type::REGISTER;
        port.header.set_name(name);
        attach_body(port);
        port.register.mode = binding.mode as u32;
        port.register.ring_id = binding.ring;
        port.register.flags = binding.flags;
        port.register.mem_id = binding.region;
    }
    // SAFETY: the parsers are static, and made for ports.
    let result = unsafe { decode_options(options, parsers(), port.cast::<c_void>(), before.context) };
    if result.is_err() {
        // SAFETY: guaranteed by the caller; the options' functions have returned.
        let port = unsafe { &mut *port };
        undo_cleanups(port, kept);
        *port = NmportDesc { cleanups: port.cleanups, ..before };
    }
    result
}

/// Binds the port.
fn register(port: &mut NmportDesc) -> Result<(), CallError> {
    let name = readable(port.header.name());
    if port.register_done != 0 {
        return Err(CallError::invalid(format!("{name}: it is bound already")));
    }
    let fd = device::open_device()?;
    attach_body(port);
    // SAFETY: the body is the port's, and the options are valid, as guaranteed when they were added.
    if let Err(error) = unsafe { device::control(fd, &raw mut port.header) } {
        device::close(fd);
        return Err(CallError::new(
            error.raw_os_error().unwrap_or(libc::EIO),
            format!("{name}: {error}{}", refused_options(&port.header)),
        ));
    }
    // SAFETY: the pointer is NULL or an option that the port holds.
    if let Some(extmem) = unsafe { port.extmem.as_ref() } {
        let source =
            MemorySource::Extmem(extmem.body.address as *mut c_void, extmem.body.pools.memory_bytes as usize);
        match region::acquire(port.context, port.register.mem_id, source) {
            Ok(region) => port.region = region,
            Err(failure) => {
                device::close(fd);
                return Err(failure);
            }
        }
    }
    port.fd = fd;
    port.register_done = 1;
    Ok(())
}

/// Names the options that report an error.
fn refused_options(header: &RequestHeader) -> String {
    let mut text = String::new();
    let mut option = header.options as *const OptionHeader;
    // SAFETY: the pointer is NULL or an option of the port's list.
    while let Some(seen) = unsafe { option.as_ref() } {
        if seen.status != 0 {
            let error = std::io::Error::from_raw_os_error(seen.status as i32);
            let name = option_name(seen.option_type).to_string_lossy();
            text.push_str(&format!("; option {name}: {error}"));
        }
        option = seen.next as *const OptionHeader;
    }
    text
}

/// Maps the region of a bound port, and finds its rings.
fn map(port: &mut NmportDesc) -> Result<(), CallError> {
    let name = readable(port.header.name());
    if port.register_done == 0 || port.mmap_done != 0 {
        let what = if port.mmap_done != 0 { "it is mapped already" } else { "it is not bound yet" };
        return Err(CallError::invalid(format!("{name}: {what}")));
    }
    if port.extmem.is_null() {
        let source = MemorySource::Descriptor(port.fd, port.register.memory_bytes as usize);
        port.region = region::acquire(port.context, port.register.mem_id, source)?;
    }
    // SAFETY: this port has acquired the region, and not released it.
    let region = unsafe { &*port.region };
    let Some(bound) = bound_rings(region.memory, region.size, port.register.offset) else {
        unmap(port);
        return Err(CallError::new(
            libc::EIO,
            format!("{name}: its rings do not lie in its region, or not aligned as they must be"),
        ));
    };
    port.interface = bound.interface;
    (port.tx_ring, port.rx_ring) = (bound.tx_ring, bound.rx_ring);
    (port.current_tx_ring, port.current_rx_ring) = (bound.tx_ring[0], bound.rx_ring[0]);
    port.mmap_done = 1;
    Ok(())
}

/// Undoes [`map`]. A region in the program's memory stays acquired until the port is unbound.
fn unmap(port: &mut NmportDesc) {
    if port.extmem.is_null() {
        release_region(port);
    }
    port.interface = ptr::null_mut();
    (port.tx_ring, port.rx_ring) = ([0; 2], [0; 2]);
    (port.current_tx_ring, port.current_rx_ring) = (0, 0);
    port.mmap_done = 0;
}

fn release_region(port: &mut NmportDesc) {
    let region = mem::replace(&mut port.region, ptr::null_mut());
    if !region.is_null() {
        // SAFETY: this port acquired the region in this context, and the region was in the port until now.
        unsafe { region::release(port.context, region) };
    }
}

/// Undoes [`register`].
fn unregister(port: &mut NmportDesc) {
    if port.register_done == 0 {
        return;
    }
    if !port.extmem.is_null() {
        release_region(port);
    }
    device::close(port.fd);
    port.fd = -1;
    port.register_done = 0;
}

/// Binds and maps the port.
fn open_port(port: &mut NmportDesc) -> Result<(), CallError> {
    register(port)?;
    map(port).inspect_err(|_| unregister(port))
}

/// Makes a port that is named, but not open.
///
/// # Safety
///
/// `spec` is NULL or ends with NUL.
unsafe fn prepare(context: *mut Nmctx, spec: *const c_char) -> Result<*mut NmportDesc, CallError> {
    // SAFETY: guaranteed by the caller.
    let spec = unsafe { given(spec, "the name") }?;
    let port = new_port(context)?;
    // SAFETY: the port was just made.
    if let Err(failure) = unsafe { parse(port, spec.to_bytes()) } {
        // SAFETY: the port was just made, and is not shared.
        unsafe { nmport_delete(port) };
        return Err(failure);
    }
    Ok(port)
}

/// Returns the pointer, or NULL after reporting the failure.
fn pointer(context: *mut Nmctx, result: Result<*mut NmportDesc, CallError>) -> *mut NmportDesc {
    result.unwrap_or_else(|failure| {
        report(context, failure);
        ptr::null_mut()
    })
}

/// Runs `act` on a port; returns 0, or -1 after reporting the failure.
///
/// # Safety
///
/// `port` is valid and not borrowed elsewhere.
pub unsafe fn outcome(
    port: *mut NmportDesc,
    act: impl FnOnce(&mut NmportDesc) -> Result<(), CallError>,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let port = unsafe { &mut *port };
    let result = act(port);
    status(port.context, result)
}

/// `nmport_new`.
#[unsafe(no_mangle)]
pub extern "C" fn nmport_new() -> *mut NmportDesc {
    let context = nmctx_get();
    pointer(context, new_port(context))
}

/// `nmport_delete`.
///
/// # Safety
///
/// `port` is NULL or a port that is neither bound nor mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_delete(port: *mut NmportDesc) {
    // SAFETY: guaranteed by the caller.
    let Some(held) = (unsafe { port.as_mut() }) else { return };
    undo_cleanups(held, 0);
    let context = held.context;
    // SAFETY: this context allocated the port; the caller does not use it any more.
    unsafe { nmctx_free(context, port.cast()) };
}

/// `nmport_parse`.
///
/// # Safety
///
/// `port` is a valid port, and `spec` is NULL or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_parse(port: *mut NmportDesc, spec: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { given(spec, "the name") }
        // SAFETY: guaranteed by the caller; no borrow of the port is alive.
        .and_then(|spec| unsafe { parse(port, spec.to_bytes()) });
    // SAFETY: guaranteed by the caller.
    let context = unsafe { (*port).context };
    status(context, result)
}

/// `nmport_undo_parse`.
///
/// # Safety
///
/// `port` is NULL or a port that is neither bound nor mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_undo_parse(port: *mut NmportDesc) {
    // SAFETY: guaranteed by the caller.
    let Some(port) = (unsafe { port.as_mut() }) else { return };
    undo_cleanups(port, 0);
    port.header = RequestHeader::new(request_type::REGISTER);
    port.register = RegisterBody::default();
    attach_body(port);
}

/// `nmport_register`.
///
/// # Safety
///
/// `port` is a valid port, with a sound list of options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_register(port: *mut NmportDesc) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { outcome(port, register) }
}

/// `nmport_undo_register`.
///
/// # Safety
///
/// `port` is NULL or a valid port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_undo_register(port: *mut NmportDesc) {
    // SAFETY: guaranteed by the caller.
    if let Some(port) = unsafe { port.as_mut() } {
        unregister(port);
    }
}

/// `nmport_mmap`.
///
/// # Safety
///
/// `port` is a valid port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_mmap(port: *mut NmportDesc) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { outcome(port, map) }
}

/// `nmport_undo_mmap`.
///
/// # Safety
///
/// `port` is NULL or a port whose rings and buffers are no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_undo_mmap(port: *mut NmportDesc) {
    // SAFETY: guaranteed by the caller.
    if let Some(port) = unsafe { port.as_mut() }
        && port.mmap_done != 0
    {
        unmap(port);
    }
}

/// `nmport_prepare`.
///
/// # Safety
///
/// `spec` is NULL or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_prepare(spec: *const c_char) -> *mut NmportDesc {
    let context = nmctx_get();
    // SAFETY: guaranteed by the caller.
    pointer(context, unsafe { prepare(context, spec) })
}

/// `nmport_undo_prepare`.
///
/// # Safety
///
/// The conditions of [`nmport_delete`] hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_undo_prepare(port: *mut NmportDesc) {
    // SAFETY: guaranteed by the caller.
    unsafe { nmport_delete(port) };
}

/// `nmport_open_desc`.
///
/// # Safety
///
/// `port` is a valid port, with a sound list of options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_open_desc(port: *mut NmportDesc) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { outcome(port, open_port) }
}

/// `nmport_undo_open_desc`.
///
/// # Safety
///
/// The conditions of [`nmport_undo_mmap`] hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_undo_open_desc(port: *mut NmportDesc) {
    // SAFETY: guaranteed by the caller.
    unsafe { nmport_undo_mmap(port) };
    // SAFETY: guaranteed by the caller.
    unsafe { nmport_undo_register(port) };
}

/// `nmport_open`.
///
/// # Safety
///
/// `spec` is NULL or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_open(spec: *const c_char) -> *mut NmportDesc {
    let context = nmctx_get();
    let open = || {
        // SAFETY: guaranteed by the caller.
        let port = unsafe { prepare(context, spec) }?;
        // SAFETY: the port was just made.
        if let Err(failure) = open_port(unsafe { &mut *port }) {
            // SAFETY: the port was just made, is not shared, and is neither bound nor mapped.
            unsafe { nmport_delete(port) };
            return Err(failure);
        }
        Ok(port)
    };
    pointer(context, open())
}

/// `nmport_close`.
///
/// # Safety
///
/// `port` is NULL or a port whose rings and buffers are no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_close(port: *mut NmportDesc) {
    // SAFETY: guaranteed by the caller.
    unsafe { nmport_undo_open_desc(port) };
    // SAFETY: guaranteed by the caller; the port is neither bound nor mapped any more.
    unsafe { nmport_undo_prepare(port) };
}

/// `nmport_clone`.
///
/// # Safety
///
/// `port` is a valid port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nmport_clone(port: *mut NmportDesc) -> *mut NmportDesc {
    // SAFETY: guaranteed by the caller.
    let port = unsafe { &*port };
    let copy = || {
        if !port.extmem.is_null() && port.register_done == 0 {
            return Err(CallError::invalid(format!(
                "{}: a port with extmem is bound before it is copied",
                readable(port.header.name())
            )));
        }
        let copy = new_port(port.context)?;
        // SAFETY: the port was just made.
        let held = unsafe { &mut *copy };
        held.header = RequestHeader { options: 0, ..port.header };
        held.register = port.register;
        attach_body(held);
        Ok(copy)
    };
    pointer(port.context, copy())
}
