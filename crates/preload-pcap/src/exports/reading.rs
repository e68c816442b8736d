//! Functions for filters, reading, counters, and writing of received frames to files.
#![allow(unsafe_code)]

use std::ptr::null;

use libc::{FILE, c_char, c_int};

use super::{answers, for_handles};
use crate::abi::{BpfProgram, Callback, Dumper, PacketHeader, Pcap, Statistics};
use crate::error::PcapError;
use crate::filter::Filter;
use crate::handle::Handle;
use crate::registry;
use crate::system::system_call;
use crate::{receive, savefile, statistics};

answers! {
    /// `pcap_compile(3PCAP)`.
    pcap_compile(handle, program: *mut BpfProgram, text: *const c_char, optimize: c_int, netmask: u32):
        savefile::compile(handle, program, text, optimize, netmask);

    /// `pcap_setfilter(3PCAP)`.
    pcap_setfilter(handle, program: *mut BpfProgram): handle.active().and_then(|active| {
        // SAFETY: the caller's program has all its instructions, by libpcap's rules.
        let filter = unsafe { Filter::copy(program) }?;
        active.session().filter = Some(filter);
        Ok(0)
    });

    /// `pcap_next_ex(3PCAP)`.
    pcap_next_ex(handle, header: *mut *mut PacketHeader, packet: *mut *const u8):
        receive::next(handle).map(|found| match found {
            Some((found, bytes)) => {
                // SAFETY: the caller's pointer is valid for the header's address, by libpcap's rules.
                unsafe { header.write(found.cast_mut()) };
                // SAFETY: the caller's pointer is valid for the packet's address, by libpcap's rules.
                unsafe { packet.write(bytes) };
                1
            }
            None => 0,
        });

    /// `pcap_stats(3PCAP)`.
    pcap_stats(handle, into: *mut Statistics): statistics::statistics(handle).and_then(|counts| {
        // SAFETY: the caller's pointer is null or valid for the counts, by libpcap's rules.
        let into = unsafe { into.as_mut() };
        *into.ok_or_else(|| PcapError::new("there is no place for the counts"))? = counts;
        Ok(0)
    });
}

for_handles! {
    /// `pcap_loop(3PCAP)`.
    fn pcap_loop(handle, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int {
        // SAFETY: the caller passes a callback and its argument, by libpcap's rules.
        unsafe { dispatch(handle, count, callback, user, true) }
    }

    /// `pcap_dispatch(3PCAP)`.
    fn pcap_dispatch(handle, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int {
        // SAFETY: the caller passes a callback and its argument, by libpcap's rules.
        unsafe { dispatch(handle, count, callback, user, false) }
    }

    /// `pcap_next(3PCAP)`.
    fn pcap_next(handle, header: *mut PacketHeader) -> *const u8 {
        match receive::next(handle) {
            Ok(Some((found, packet))) if !header.is_null() => {
                // SAFETY: the caller's pointer is valid for a header, by libpcap's rules, and `found` lives until the
                // next call.
                unsafe { header.copy_from_nonoverlapping(found, 1) };
                packet
            }
            Ok(_) => null(),
            Err(error) => {
                handle.fail(&error);
                null()
            }
        }
    }

    /// `pcap_breakloop(3PCAP)`, which signal handlers may call too.
    fn pcap_breakloop(handle) -> () {
        handle.break_loop();
    }

    /// `pcap_dump_open(3PCAP)`.
    fn pcap_dump_open(handle, file: *const c_char) -> *mut Dumper {
        savefile::dump_open(handle, |dead| {
            system_call!(pcap_dump_open(dead: *mut Pcap, file: *const c_char) -> *mut Dumper)
        })
    }

    /// `pcap_dump_open_append(3PCAP)`.
    fn pcap_dump_open_append(handle, file: *const c_char) -> *mut Dumper {
        savefile::dump_open(handle, |dead| {
            system_call!(pcap_dump_open_append(dead: *mut Pcap, file: *const c_char) -> *mut Dumper)
        })
    }

    /// `pcap_dump_fopen(3PCAP)`.
    fn pcap_dump_fopen(handle, file: *mut FILE) -> *mut Dumper {
        savefile::dump_open(handle, |dead| {
            system_call!(pcap_dump_fopen(dead: *mut Pcap, file: *mut FILE) -> *mut Dumper)
        })
    }
}

/// # Safety
/// `callback` may be called with `user`.
unsafe fn dispatch(
    handle: &Handle,
    count: c_int,
    callback: Option<Callback>,
    user: *mut u8,
    endless: bool,
) -> c_int {
    let Some(callback) = callback else { return handle.fail(&PcapError::new("there is no callback")) };
    // The share keeps the device alive, because a callback may close it.
    let handle = registry::share(handle);
    // SAFETY: guaranteed by the caller.
    handle.answer(unsafe { receive::dispatch(&handle, count, callback, user, endless) })
}
