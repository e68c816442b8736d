//! `pcap_findalldevs`: lists the system's devices, and then the ports of a running daemon.
//!
//! Each half of a list is freed by its maker. The address of the first device identifies the list when it is freed.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use libc::{c_char, c_int};
use ringroad::control::report::PortReport;

use crate::abi::{PCAP_IF_CONNECTION_STATUS_NOT_APPLICABLE, PCAP_IF_RUNNING, PCAP_IF_UP, PcapIf};
use crate::error::{PcapError, write_text};
use crate::statistics::daemon;
use crate::system::{is_installed, system_call};

/// A listed port, with the texts that its device points to.
#[derive(Debug)]
struct Listed {
    device: PcapIf,
    _name: CString,
    _description: CString,
}

/// Ringroad's half of a list that a program holds.
#[derive(Debug)]
struct Half {
    /// First device of the whole list.
    list: *mut PcapIf,
    /// Last of the system's devices, if there are any.
    last_of_system: *mut PcapIf,
    /// Listed ports; the vector never grows, since devices point to each other.
    ports: Vec<Listed>,
}

// SAFETY: the pointers are between devices of one list, which its one owner, the program, frees.
unsafe impl Send for Half {}

static HALVES: Mutex<Vec<Half>> = Mutex::new(Vec::new());

/// Ports of the daemon; none if no daemon runs, because a listing starts none.
fn ports() -> Vec<PortReport> {
    daemon().and_then(|mut connection| connection.list()).map(|list| list.ports).unwrap_or_default()
}

fn listed(port: &PortReport) -> Option<Listed> {
    let mut name = CString::new(port.name.as_str()).ok()?;
    let description = format!("Ringroad port ({}{})", port.kind, if port.bound { ", in use" } else { "" });
    let mut description = CString::new(description).ok()?;
    let running = if port.bound { PCAP_IF_RUNNING } else { 0 };
    // The addresses stay valid when the `CString`s are moved.
    let texts = [&mut name, &mut description].map(|text| text.as_ptr().cast_mut());
    let device = PcapIf {
        next: null_mut(),
        name: texts[0],
        description: texts[1],
        addresses: null_mut(),
        flags: PCAP_IF_UP | running | PCAP_IF_CONNECTION_STATUS_NOT_APPLICABLE,
    };
    Some(Listed { device, _name: name, _description: description })
}

/// `pcap_findalldevs`.
///
/// # Safety
/// `list` can be written, and `error` is null or has room for a text.
pub(crate) unsafe fn find_all(list: *mut *mut PcapIf, error: *mut c_char) -> c_int {
    let mut first: *mut PcapIf = null_mut();
    if is_installed() {
        let into = &raw mut first;
        let status = system_call!(pcap_findalldevs(into: *mut *mut PcapIf, error: *mut c_char) -> c_int);
        if status != 0 {
            return status;
        }
    }
    let ports = ports().iter().filter_map(listed).collect();
    let joined = join(first, ports);
    if list.is_null() {
        let failure = PcapError::new("there is no place for the list");
        // SAFETY: guaranteed by the caller.
        unsafe { write_text(error, &failure.text) };
        free_all(joined);
        return failure.code;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { list.write(joined) };
    0
}

/// Appends Ringroad's half to the system's half, and records where it begins.
fn join(first: *mut PcapIf, mut ports: Vec<Listed>) -> *mut PcapIf {
    if ports.is_empty() {
        return first;
    }
    let mut next: *mut PcapIf = null_mut();
    for port in ports.iter_mut().rev() {
        port.device.next = next;
        next = &raw mut port.device;
    }
    let mut last: *mut PcapIf = null_mut();
    let mut at = first;
    // SAFETY: the list is libpcap's: all devices are valid, and the last one's `next` is null.
    while let Some(device) = unsafe { at.as_mut() } {
        last = at;
        at = device.next;
    }
    // SAFETY: the pointer is null, or the last device of that list.
    if let Some(device) = unsafe { last.as_mut() } {
        device.next = next;
    }
    let list = if first.is_null() { next } else { first };
    let half = Half { list, last_of_system: last, ports };
    HALVES.lock().unwrap_or_else(PoisonError::into_inner).push(half);
    list
}

/// `pcap_freealldevs`.
pub(crate) fn free_all(list: *mut PcapIf) {
    let half = {
        let mut halves = HALVES.lock().unwrap_or_else(PoisonError::into_inner);
        halves.iter().position(|half| half.list == list).map(|at| halves.swap_remove(at))
    };
    let ours_alone = half.as_ref().is_some_and(|half| half.last_of_system.is_null());
    if let Some(half) = half {
        // SAFETY: the pointer is null, or a device of a list that the program has not freed until now.
        if let Some(last) = unsafe { half.last_of_system.as_mut() } {
            last.next = null_mut();
        }
        drop(half.ports);
    }
    if !ours_alone && is_installed() {
        system_call!(pcap_freealldevs(list: *mut PcapIf) -> ());
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn names(mut list: *const PcapIf) -> Vec<String> {
        let mut names = Vec::new();
        // SAFETY: the list was just made.
        while let Some(device) = unsafe { list.as_ref() } {
            // SAFETY: every device has a name with a NUL.
            names.push(unsafe { CStr::from_ptr(device.name) }.to_string_lossy().into_owned());
            list = device.next;
        }
        names
    }

    fn port(name: &str) -> Listed {
        let report = PortReport {
            name: name.into(),
            kind: "shm".into(),
            persistent: false,
            bound: true,
            owner: None,
            queues: 1,
            slots: 4,
            buffer_bytes: 64,
            ..PortReport::default()
        };
        listed(&report).unwrap()
    }

    #[test]
    fn ports_follow_system_devices_and_both_lists_are_freed() {
        if ringroad_test_needs::installed_libpcap().is_none() {
            return;
        }
        let mut system: *mut PcapIf = null_mut();
        let (into, mut error) = (&raw mut system, [0 as c_char; 256]);
        let error = error.as_mut_ptr();
        assert_eq!(system_call!(pcap_findalldevs(into: *mut *mut PcapIf, error: *mut c_char) -> c_int), 0);
        let before = names(system);
        let list = join(system, vec![port("vale0:a"), port("vale0:b")]);
        let expected: Vec<_> = before.into_iter().chain(["vale0:a".into(), "vale0:b".into()]).collect();
        assert_eq!(names(list), expected);
        free_all(list);
        assert!(!HALVES.lock().unwrap().iter().any(|half| half.list == list));
    }

    #[test]
    fn a_list_can_hold_ports_alone() {
        let list = join(null_mut(), vec![port("vale0:c")]);
        assert_eq!(names(list), ["vale0:c"]);
        free_all(list);
        free_all(null_mut());
    }
}
