//! Filters are compiled, and capture files written, by the system's libpcap, with a handle that has no device.
#![allow(unsafe_code)]

use libc::{c_char, c_int};

use crate::abi::{BpfProgram, Dumper, Pcap};
use crate::error::PcapError;
use crate::handle::Handle;
use crate::system::{DeadHandle, system_call};

/// Calls `f` with a handle of the system's libpcap that has the device's link type, snapshot length and precision.
/// Returns the result of `f`, and libpcap's error text in case of a failure.
fn with_dead<T>(handle: &Handle, f: impl FnOnce(*mut Pcap) -> T) -> Result<(T, String), PcapError> {
    let active = handle.active()?;
    let (snaplen, precision) = {
        let settings = handle.settings();
        (settings.snaplen(), settings.precision)
    };
    let mut session = active.session();
    let dead = match session.dead.take() {
        Some(dead) => dead,
        None => DeadHandle::new(snaplen, precision)
            .ok_or_else(|| PcapError::new("this needs the system's libpcap, which is not installed"))?,
    };
    let result = f(dead.pointer());
    let error = dead.error();
    session.dead = Some(dead);
    Ok((result, error))
}

/// `pcap_compile`.
pub(crate) fn compile(
    handle: &Handle,
    program: *mut BpfProgram,
    text: *const c_char,
    optimize: c_int,
    netmask: u32,
) -> Result<c_int, PcapError> {
    let (status, error) = with_dead(handle, |dead| {
        system_call!(pcap_compile(
            dead: *mut Pcap, program: *mut BpfProgram, text: *const c_char, optimize: c_int, netmask: u32
        ) -> c_int)
    })?;
    if status < 0 { Err(PcapError::coded(status, error)) } else { Ok(status) }
}

/// Opens a capture file for writing by `open`, a function of libpcap that gets the system's handle; returns null after a
/// failure.
pub(crate) fn dump_open(handle: &Handle, open: impl FnOnce(*mut Pcap) -> *mut Dumper) -> *mut Dumper {
    let failure = match with_dead(handle, open) {
        Ok((dumper, _)) if !dumper.is_null() => return dumper,
        Ok((_, error)) => PcapError::new(error),
        Err(error) => error,
    };
    handle.fail(&failure);
    std::ptr::null_mut()
}
