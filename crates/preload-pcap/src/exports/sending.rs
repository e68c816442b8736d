//! Sending frames.
#![allow(unsafe_code)]

use libc::{c_int, c_void, size_t};

use super::{closed, for_handles};
use crate::abi::PCAP_ERROR;
use crate::handle::Handle;
use crate::inject;

for_handles! {
    /// `pcap_inject(3PCAP)`: the frame's length, or an error with `errno`, as for a socket.
    fn pcap_inject(handle, frame: *const c_void, bytes: size_t) -> c_int, closed closed().code, {
        // SAFETY: libpcap's caller gives a frame of that length.
        unsafe { send(handle, frame, bytes) }
    }

    /// `pcap_sendpacket(3PCAP)`: 0, or an error with `errno`.
    fn pcap_sendpacket(handle, frame: *const u8, bytes: c_int) -> c_int, closed closed().code, {
        // SAFETY: libpcap's caller gives a frame of that length.
        let sent = unsafe { send(handle, frame.cast(), usize::try_from(bytes).unwrap_or(0)) };
        sent.min(0)
    }
}

/// # Safety
/// `bytes` bytes from `frame` can be read.
#[inline]
unsafe fn send(handle: &Handle, frame: *const c_void, bytes: usize) -> c_int {
    let frame = if frame.is_null() {
        &[]
    } else {
        // SAFETY: as the caller vouches.
        unsafe { std::slice::from_raw_parts(frame.cast::<u8>(), bytes) }
    };
    match inject::inject(handle, frame) {
        Ok(sent) => sent,
        Err(failure) => {
            handle.fail(&failure.error);
            ringroad_c_face::set_errno(failure.errno.raw_os_error());
            PCAP_ERROR
        }
    }
}
