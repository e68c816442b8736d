//! Hooks of calls that receive descriptors in messages. Devices are recognised on arrival, because the program's first
//! call on a device may be a wait.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, ssize_t, timespec};

use crate::hooks::hooks;
use crate::{errno, tracked};

/// Checks the descriptors in a message's control data.
///
/// # Safety
/// `message` must be as the kernel has filled it.
unsafe fn inspect_message(message: &msghdr) {
    if message.msg_controllen == 0 {
        return;
    }
    let before = errno::get();
    // SAFETY: the caller's promise.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !control.is_null() {
        // SAFETY: a header within the control data, as the kernel guarantees.
        let header = unsafe { control.read() };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: the macro only computes.
            let header_bytes = unsafe { libc::CMSG_LEN(0) } as usize;
            // SAFETY: as above.
            let data: *const c_int = unsafe { libc::CMSG_DATA(control) }.cast();
            for index in 0..header.cmsg_len.saturating_sub(header_bytes) / size_of::<c_int>() {
                // SAFETY: within the data of this header.
                let source = unsafe { data.add(index) };
                // SAFETY: as above.
                let fd = unsafe { source.read_unaligned() };
                tracked::forget(fd);
                tracked::recognise(fd);
            }
        }
        // SAFETY: as for the first header.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
    errno::set(before);
}

hooks! {
    [unsafe] recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the program's own arguments.
        let received = unsafe { next::recvmsg(fd, message, flags) };
        if received >= 0 {
            // SAFETY: the kernel has filled the message.
            let message = unsafe { &*message };
            // SAFETY: as above.
            unsafe { inspect_message(message) };
        }
        received
    }

    [unsafe] recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        // SAFETY: the program's own arguments.
        let received = unsafe { next::recvmmsg(fd, messages, count, flags, timeout) };
        for index in 0..usize::try_from(received).unwrap_or(0) {
            // SAFETY: the kernel has filled that many messages.
            let message = unsafe { messages.add(index) };
            // SAFETY: as above.
            let message = unsafe { &*message };
            // SAFETY: as above.
            unsafe { inspect_message(&message.msg_hdr) };
        }
        received
    }
}
