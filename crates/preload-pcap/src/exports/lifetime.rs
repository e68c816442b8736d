//! Functions that list, open and close devices.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use libc::{c_char, c_int};

use super::{closed, for_handles};
use crate::abi::{PCAP_ERROR, Pcap, PcapIf};
use crate::device;
use crate::error::{PcapError, contained, write_text};
use crate::handle::Handle;
use crate::inject;
use crate::registry::{self, MOST_HANDLES, Owner};
use crate::system::{is_installed, system_call};

/// Name of a device of Ringroad; `None` for all others.
///
/// # Safety
/// `name` is null or a text with a NUL at its end.
unsafe fn our_name(name: *const c_char) -> Option<String> {
    if name.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    device::is_ours(name).then(|| name.to_owned())
}

/// Reports that there is no system libpcap to call.
///
/// # Safety
/// The conditions of [`write_text`] hold.
unsafe fn say_missing(error: *mut c_char) {
    let text = "the system's libpcap is not installed, and this is not a port of Ringroad's";
    // SAFETY: guaranteed by the caller.
    unsafe { write_text(error, text) };
}

/// `pcap_create(3PCAP)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pcap_create(device: *const c_char, error: *mut c_char) -> *mut Pcap {
    // SAFETY: the caller passes null or a string, by libpcap's rules.
    let Some(name) = (unsafe { our_name(device) }) else {
        if !is_installed() {
            // SAFETY: the caller's buffer has room for a text, by libpcap's rules.
            unsafe { say_missing(error) };
            return null_mut();
        }
        return system_call!(pcap_create(device: *const c_char, error: *mut c_char) -> *mut Pcap);
    };
    contained(|| {
        registry::add(Handle::new(name)).unwrap_or_else(|| {
            let text = format!("{MOST_HANDLES} devices of Ringroad's are open already: close some");
            // SAFETY: the caller's buffer has room for a text, by libpcap's rules.
            unsafe { write_text(error, &text) };
            null_mut()
        })
    })
}

/// `pcap_open_live(3PCAP)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pcap_open_live(
    device: *const c_char,
    snaplen: c_int,
    promiscuous: c_int,
    timeout_ms: c_int,
    error: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the caller passes null or a string, by libpcap's rules.
    let Some(name) = (unsafe { our_name(device) }) else {
        if !is_installed() {
            // SAFETY: the caller's buffer has room for a text, by libpcap's rules.
            unsafe { say_missing(error) };
            return null_mut();
        }
        return system_call!(pcap_open_live(
            device: *const c_char, snaplen: c_int, promiscuous: c_int, timeout_ms: c_int, error: *mut c_char
        ) -> *mut Pcap);
    };
    contained(|| {
        let handle = Handle::new(name);
        let opened = handle
            .set(|settings| {
                settings.snaplen = snaplen;
                settings.promiscuous = promiscuous != 0;
                settings.timeout_ms = timeout_ms;
            })
            .and_then(|_| handle.activate())
            .map_err(|failure| format!("{}: {}", handle.name(), failure.text));
        let added = opened.and_then(|_| {
            registry::add(handle)
                .ok_or_else(|| format!("{MOST_HANDLES} devices of Ringroad's are open already: close some"))
        });
        added.unwrap_or_else(|text| {
            // SAFETY: the caller's buffer has room for a text, by libpcap's rules.
            unsafe { write_text(error, &text) };
            null_mut()
        })
    })
}

for_handles! {
    /// `pcap_activate(3PCAP)`.
    fn pcap_activate(handle) -> c_int, closed closed().code, {
        handle.answer(handle.activate())
    }
}

/// `pcap_close(3PCAP)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pcap_close(handle: *mut Pcap) {
    match registry::owner(handle) {
        Owner::System => system_call!(pcap_close(handle: *mut Pcap) -> ()),
        Owner::Ours(_) => contained(|| {
            if let Some(handle) = registry::close(handle) {
                // Ends the loop, if its own callback closes the device. The loop then releases the device.
                handle.break_loop();
                if let Ok(active) = handle.active() {
                    inject::finish(active);
                }
            }
        }),
        Owner::Closed => {}
    }
}

/// `pcap_findalldevs(3PCAP)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pcap_findalldevs(list: *mut *mut PcapIf, error: *mut c_char) -> c_int {
    // SAFETY: the caller's pointers are valid for a list and a text, by libpcap's rules.
    contained(|| unsafe { crate::listing::find_all(list, error) })
}

/// `pcap_freealldevs(3PCAP)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pcap_freealldevs(list: *mut PcapIf) {
    contained(|| crate::listing::free_all(list));
}

/// `pcap_lookupnet(3PCAP)`: a port has the network of its interface, or none.
#[unsafe(no_mangle)]
unsafe extern "C" fn pcap_lookupnet(
    device: *const c_char,
    network: *mut u32,
    netmask: *mut u32,
    error: *mut c_char,
) -> c_int {
    let pass = |device: *const c_char| {
        system_call!(pcap_lookupnet(
            device: *const c_char, network: *mut u32, netmask: *mut u32, error: *mut c_char
        ) -> c_int)
    };
    // SAFETY: the caller passes null or a string, by libpcap's rules.
    let Some(name) = (unsafe { our_name(device) }) else { return pass(device) };
    contained(|| {
        if let Some(interface) = device::interface(&name)
            && is_installed()
            && let Ok(interface) = std::ffi::CString::new(interface)
            && pass(interface.as_ptr()) == 0
        {
            return 0;
        }
        for target in [network, netmask] {
            // SAFETY: the pointer is null or valid for a number, by libpcap's rules.
            if let Some(target) = unsafe { target.as_mut() } {
                *target = 0;
            }
        }
        0
    })
}

for_handles! {
    /// `pcap_geterr(3PCAP)`.
    fn pcap_geterr(handle) -> *mut c_char, closed c"this device was closed".as_ptr().cast_mut(), {
        handle.error_pointer()
    }

    /// `pcap_perror(3PCAP)`.
    fn pcap_perror(handle, prefix: *const c_char) -> (), closed (), {
        let prefix = if prefix.is_null() { c"" } else {
            // SAFETY: the caller passes a string, by libpcap's rules.
            unsafe { CStr::from_ptr(prefix) }
        };
        eprintln!("{}: {}", prefix.to_string_lossy(), handle.error_text());
    }

    /// `pcap_setnonblock(3PCAP)`.
    fn pcap_setnonblock(handle, nonblocking: c_int, _error: *mut c_char) -> c_int, closed closed().code, {
        handle.set_nonblocking(nonblocking != 0);
        0
    }

    /// `pcap_getnonblock(3PCAP)`.
    fn pcap_getnonblock(handle, _error: *mut c_char) -> c_int, closed closed().code, {
        c_int::from(handle.is_nonblocking())
    }

    /// `pcap_file(3PCAP)`: returns null, since no device is a file.
    fn pcap_file(handle) -> *mut crate::abi::File, closed null_mut(), {
        let _ = handle;
        null_mut()
    }

    /// `pcap_fileno(3PCAP)`.
    fn pcap_fileno(handle) -> c_int, closed PCAP_ERROR, {
        handle.answer(descriptor(handle))
    }

    /// `pcap_get_selectable_fd(3PCAP)`.
    fn pcap_get_selectable_fd(handle) -> c_int, closed PCAP_ERROR, {
        // `PCAP_ERROR` is the only error number of this function.
        handle.answer(descriptor(handle)).max(PCAP_ERROR)
    }

    /// `pcap_get_required_select_timeout(3PCAP)`: returns null, since no timeout is required.
    fn pcap_get_required_select_timeout(handle) -> *const libc::timeval, closed null(), {
        let _ = handle;
        null()
    }
}

fn descriptor(handle: &Handle) -> Result<c_int, PcapError> {
    handle.active()?.session().selectable_descriptor()
}
