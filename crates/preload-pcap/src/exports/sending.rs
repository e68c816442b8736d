//! Functions that send frames.
#![allow(unsafe_code)]

use libc::{c_int, c_void, size_t};

use super::for_handles;
use crate::abi::PCAP_ERROR;
use crate::handle::Handle;
use crate::inject;

for_handles! {
    /// `pcap_inject(3PCAP)`: returns the frame's length, or an error with `errno`, like a socket.
    fn pcap_inject(handle, frame: *const c_void, bytes: size_t) -> c_int {
        // SAFETY: the caller passes a frame of that length, by libpcap's rules.
        unsafe { send(handle, frame, bytes) }
    }

    /// `pcap_sendpacket(3PCAP)`: returns 0, or an error with `errno`.
    fn pcap_sendpacket(handle, frame: *const u8, bytes: c_int) -> c_int {
        // SAFETY: the caller passes a frame of that length, by libpcap's rules.
        let sent = unsafe { send(handle, frame.cast(), usize::try_from(bytes).unwrap_or(0)) };
        sent.min(0)
    }
}

/// # Safety
/// `bytes` bytes from `frame` on can be read.
#[inline]
unsafe fn send(handle: &Handle, frame: *const c_void, bytes: usize) -> c_int {
    let frame = if frame.is_null() {
        &[]
    } else {
        // SAFETY: guaranteed by the caller.
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
