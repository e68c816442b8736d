//! Functions that list, open and close devices.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use libc::{c_char, c_int};

use super::{answers, for_handles};
use crate::abi::{PCAP_ERROR, Pcap, PcapIf};
use crate::device;
use crate::error::{PcapError, contained, write_text};
use crate::handle::{Handle, Settings};
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

/// Returns the result of `system`, a function of the system's libpcap that makes handles; null if there is no libpcap.
///
/// # Safety
/// The conditions of [`write_text`] hold.
unsafe fn made_by_system(error: *mut c_char, system: impl FnOnce() -> *mut Pcap) -> *mut Pcap {
    if is_installed() {
        return system();
    }
    let text = "the system's libpcap is not installed, and this is not a port of Ringroad's";
    // SAFETY: guaranteed by the caller.
    unsafe { write_text(error, text) };
    null_mut()
}

/// Returns the handle that `make` makes, as a program has it; null after a failure.
///
/// # Safety
/// The conditions of [`write_text`] hold.
unsafe fn made(error: *mut c_char, make: impl FnOnce() -> Result<Handle, String>) -> *mut Pcap {
    let full = || format!("{MOST_HANDLES} devices of Ringroad's are open already: close some");
    contained(|| {
        make().and_then(|handle| registry::add(handle).ok_or_else(full)).unwrap_or_else(|text| {
            // SAFETY: guaranteed by the caller.
            unsafe { write_text(error, &text) };
            null_mut()
        })
    })
}

/// `pcap_create(3PCAP)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pcap_create(device: *const c_char, error: *mut c_char) -> *mut Pcap {
    let system = || system_call!(pcap_create(device: *const c_char, error: *mut c_char) -> *mut Pcap);
    // SAFETY: the caller passes null or a string, by libpcap's rules.
    match unsafe { our_name(device) } {
        // SAFETY: the caller's buffer has room for a text, by libpcap's rules.
        Some(name) => unsafe { made(error, || Ok(Handle::new(name))) },
        // SAFETY: as above.
        None => unsafe { made_by_system(error, system) },
    }
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
        let system = || {
            system_call!(pcap_open_live(
                device: *const c_char, snaplen: c_int, promiscuous: c_int, timeout_ms: c_int, error: *mut c_char
            ) -> *mut Pcap)
        };
        // SAFETY: the caller's buffer has room for a text, by libpcap's rules.
        return unsafe { made_by_system(error, system) };
    };
    let open = || {
        let handle = Handle::new(name);
        let promiscuous = promiscuous != 0;
        *handle.settings() = Settings { snaplen, promiscuous, timeout_ms, ..Settings::default() };
        match handle.activate() {
            Ok(_) => Ok(handle),
            Err(failure) => Err(format!("{}: {}", handle.name, failure.text)),
        }
    };
    // SAFETY: as above.
    unsafe { made(error, open) }
}

/// `pcap_geterr(3PCAP)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pcap_geterr(handle: *mut Pcap) -> *mut c_char {
    match registry::owner(handle) {
        Owner::System => system_call!(pcap_geterr(handle: *mut Pcap) -> *mut c_char),
        Owner::Ours(handle) => handle.error_pointer(),
        Owner::Closed => c"this device was closed".as_ptr().cast_mut(),
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

answers! {
    /// `pcap_activate(3PCAP)`.
    pcap_activate(handle): handle.activate();

    /// `pcap_setnonblock(3PCAP)`.
    pcap_setnonblock(handle, nonblocking: c_int, _error: *mut c_char): {
        handle.set_nonblocking(nonblocking != 0);
        Ok(0)
    };

    /// `pcap_getnonblock(3PCAP)`.
    pcap_getnonblock(handle, error: *mut c_char): {
        let mode = handle.active().map(|_| c_int::from(handle.is_nonblocking()));
        if let Err(failure) = &mode {
            // SAFETY: the caller's pointer is null or a text, by libpcap's rules.
            unsafe { write_text(error, &failure.text) };
        }
        mode
    };

    /// `pcap_fileno(3PCAP)`.
    pcap_fileno(handle): descriptor(handle);
}

for_handles! {
    /// `pcap_perror(3PCAP)`.
    fn pcap_perror(handle, prefix: *const c_char) -> () {
        let prefix = if prefix.is_null() { c"" } else {
            // SAFETY: the caller passes a string, by libpcap's rules.
            unsafe { CStr::from_ptr(prefix) }
        };
        eprintln!("{}: {}", prefix.to_string_lossy(), handle.error_text());
    }

    /// `pcap_file(3PCAP)`: returns null, since no device is a file.
    fn pcap_file(handle) -> *mut libc::FILE {
        let _ = handle;
        null_mut()
    }

    /// `pcap_get_selectable_fd(3PCAP)`.
    fn pcap_get_selectable_fd(handle) -> c_int {
        // `PCAP_ERROR` is the only error number of this function.
        handle.answer(descriptor(handle)).max(PCAP_ERROR)
    }

    /// `pcap_get_required_select_timeout(3PCAP)`: returns null, since no timeout is required.
    fn pcap_get_required_select_timeout(handle) -> *const libc::timeval {
        let _ = handle;
        null()
    }
}

fn descriptor(handle: &Handle) -> Result<c_int, PcapError> {
    handle.active()?.selectable_descriptor()
}
