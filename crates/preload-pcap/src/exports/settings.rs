//! Functions for settings of a device, before and after its activation.
#![allow(unsafe_code)]

use libc::c_int;

use super::answers;
use crate::abi::{DLT_EN10MB, FILE_VERSION, PCAP_D_IN, PCAP_D_INOUT, PCAP_ERROR, PCAP_TSTAMP_HOST};
use crate::error::PcapError;
use crate::handle::{Handle, stamp_type};

/// All protocols, in network order: `ETH_P_ALL` of linux/if_ether.h.
const ALL_PROTOCOLS: c_int = 0x0300;

answers! {
    /// `pcap_set_snaplen(3PCAP)`.
    pcap_set_snaplen(handle, bytes: c_int): handle.set(|settings| settings.snaplen = bytes);

    /// `pcap_set_promisc(3PCAP)`.
    pcap_set_promisc(handle, promiscuous: c_int): handle.set(|settings| settings.promiscuous = promiscuous != 0);

    /// `pcap_can_set_rfmon(3PCAP)`: no device has monitor mode.
    pcap_can_set_rfmon(handle): handle.set(|_| {});

    /// `pcap_set_rfmon(3PCAP)`.
    pcap_set_rfmon(handle, monitor: c_int): handle.set(|settings| settings.monitor = monitor != 0);

    /// `pcap_set_timeout(3PCAP)`.
    pcap_set_timeout(handle, ms: c_int): handle.set(|settings| settings.timeout_ms = ms);

    /// `pcap_set_buffer_size(3PCAP)`.
    pcap_set_buffer_size(handle, bytes: c_int): handle.set(|settings| settings.buffer_bytes = bytes);

    /// `pcap_set_immediate_mode(3PCAP)`.
    pcap_set_immediate_mode(handle, immediate: c_int): handle.set(|settings| settings.immediate = immediate != 0);

    /// `pcap_set_tstamp_type(3PCAP)`.
    pcap_set_tstamp_type(handle, kind: c_int): handle.set(|_| {}).map(|_| stamp_type(kind));

    /// `pcap_set_tstamp_precision(3PCAP)`.
    pcap_set_tstamp_precision(handle, precision: c_int):
        handle.set(|_| {}).and_then(|_| handle.settings().set_precision(precision));

    /// `pcap_get_tstamp_precision(3PCAP)`.
    pcap_get_tstamp_precision(handle): Ok(handle.settings().precision);

    /// `pcap_set_protocol_linux(3PCAP)`: accepts all protocols only, since ports do not select protocols.
    pcap_set_protocol_linux(handle, protocol: c_int): if [0, ALL_PROTOCOLS].contains(&protocol) {
        handle.set(|_| {})
    } else {
        Err(PcapError::new("ports of Ringroad give frames of all protocols: use a filter"))
    };

    /// `pcap_list_tstamp_types(3PCAP)`.
    pcap_list_tstamp_types(handle, types: *mut *mut c_int):
        // SAFETY: the caller's pointer is valid for the list, by libpcap's rules.
        unsafe { list_of_one(PCAP_TSTAMP_HOST, types) };

    /// `pcap_list_datalinks(3PCAP)`.
    pcap_list_datalinks(handle, links: *mut *mut c_int):
        // SAFETY: the caller's pointer is valid for the list, by libpcap's rules.
        handle.active().and_then(|_| unsafe { list_of_one(DLT_EN10MB, links) });

    /// `pcap_datalink(3PCAP)`.
    pcap_datalink(handle): of_active(handle, DLT_EN10MB);

    /// `pcap_datalink_ext`, which differs from `pcap_datalink` for capture files only.
    pcap_datalink_ext(handle): of_active(handle, DLT_EN10MB);

    /// `pcap_set_datalink(3PCAP)`.
    pcap_set_datalink(handle, link: c_int): match link {
        DLT_EN10MB => of_active(handle, 0),
        other => Err(PcapError::new(format!("ports of Ringroad carry Ethernet (EN10MB), not link type {other}"))),
    };

    /// `pcap_snapshot(3PCAP)`.
    pcap_snapshot(handle): of_active(handle, handle.settings().snaplen());

    /// `pcap_bufsize`: returns the bytes of the receive rings' buffers.
    pcap_bufsize(handle): handle.active().map(|active| active.ring_bytes);

    /// `pcap_is_swapped(3PCAP)`: returns false for every device.
    pcap_is_swapped(handle): of_active(handle, 0);

    /// `pcap_major_version(3PCAP)`.
    pcap_major_version(handle): of_active(handle, FILE_VERSION.0);

    /// `pcap_minor_version(3PCAP)`.
    pcap_minor_version(handle): of_active(handle, FILE_VERSION.1);

    /// `pcap_setdirection(3PCAP)`: a port never receives frames that its program sent.
    pcap_setdirection(handle, direction: c_int): match direction {
        PCAP_D_INOUT | PCAP_D_IN => of_active(handle, 0),
        _ => Err(PcapError::new("a port returns only received frames, not those sent on it")),
    };
}

fn of_active(handle: &Handle, value: c_int) -> Result<c_int, PcapError> {
    handle.active().map(|_| value)
}

/// Makes a list with one entry, in memory that libpcap's functions for such lists free.
///
/// # Safety
/// `target` is null or can be written.
unsafe fn list_of_one(entry: c_int, target: *mut *mut c_int) -> Result<c_int, PcapError> {
    if target.is_null() {
        return Err(PcapError::coded(PCAP_ERROR, "there is no place for the list"));
    }
    // SAFETY: any size may be requested.
    let list: *mut c_int = unsafe { libc::malloc(size_of::<c_int>()) }.cast();
    if list.is_null() {
        return Err(PcapError::new("out of memory"));
    }
    // SAFETY: the list was just allocated, with room for one number.
    unsafe { list.write(entry) };
    // SAFETY: guaranteed by the caller.
    unsafe { target.write(list) };
    Ok(1)
}
