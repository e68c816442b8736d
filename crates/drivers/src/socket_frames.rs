//! Common part of ports that send each frame through a UNIX socket of the kernel, from where the frame lies.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use rustix::io::Errno;
use rustix::net::sockopt;

/// Maximum length of a frame that a slot can describe, bytes.
pub(crate) const MAX_FRAME_BYTES: usize = 65535;
/// Length of an Ethernet frame of MTU 1500 with a VLAN tag, bytes.
pub(crate) const USUAL_FRAME_BYTES: usize = 1518;

/// The bytes of a fragment, for a system call that sends them.
pub(crate) fn part(fragment: &Fragment) -> IoSlice<'_> {
    // SAFETY: the bytes stay mapped while the fragment is borrowed. Others may write them meanwhile, but only the
    // kernel reads them.
    let bytes = unsafe { std::slice::from_raw_parts(fragment.bytes().as_ptr(), fragment.len()) };
    IoSlice::new(bytes)
}

/// Cause of the drop of a frame that a socket refused with `errno`.
pub(crate) fn drop_cause(errno: Errno) -> DropCause {
    match errno {
        Errno::NOENT | Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE => DropCause::NotBound,
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => DropCause::NoSpace,
        Errno::MSGSIZE => DropCause::TooLong,
        _ => DropCause::WriteFailed,
    }
}

/// Sets the number of bytes that may wait at a socket until its peer reads them. The forced size is above the limit for
/// unprivileged processes. If the kernel refuses it, the allowed size is used.
///
/// # Errors
/// The kernel's.
pub(crate) fn set_send_room(socket: impl AsFd, bytes: usize) -> rustix::io::Result<()> {
    sockopt::set_socket_send_buffer_size_force(&socket, bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, bytes))
}

/// Option of a UNIX socket whether its peers may send it descriptors (asm-generic/socket.h, Linux 6.16).
const SO_PASSRIGHTS: libc::c_int = 83;

/// Makes the kernel refuse frames that come with descriptors. The worker that receives a frame would have to close
/// them, and the close of an untrusted peer's descriptor can take any time. A kernel without the option lets them in.
pub(crate) fn refuse_descriptors(socket: BorrowedFd<'_>) {
    let no: libc::c_int = 0;
    // SAFETY: the kernel reads an integer from the stack.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            std::ptr::from_ref(&no).cast(),
            size_of_val(&no) as libc::socklen_t,
        )
    };
}
