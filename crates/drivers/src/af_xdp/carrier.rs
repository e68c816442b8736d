//! Whether an interface can pass frames (netdevice(7), `SIOCGIFFLAGS`).
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Asks for an interface of the network namespace it was made in.
#[derive(Debug)]
pub(super) struct CarrierProbe {
    socket: OwnedFd,
    request: [u8; libc::IFNAMSIZ],
}

impl CarrierProbe {
    /// A probe for `interface` in the calling thread's network namespace.
    pub(super) fn new(interface: &str) -> Result<Self, Errno> {
        let family = AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let mut request = [0; libc::IFNAMSIZ];
        for (to, from) in request.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
            *to = from;
        }
        Ok(Self { socket, request })
    }

    /// Whether it is up and has a carrier; the kernel may say so up to a second late. An interface that does not answer (renamed) passes for one that has.
    pub(super) fn is_running(&self) -> bool {
        let mut answer = libc::ifreq {
            ifr_name: self.request.map(|byte| byte as libc::c_char),
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: 0 },
        };
        // SAFETY: the kernel reads and writes an ifreq, which lives during the call.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut answer) };
        if result != 0 {
            return true;
        }
        // SAFETY: the kernel wrote this member.
        let flags = i32::from(unsafe { answer.ifr_ifru.ifru_flags });
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        flags & wanted == wanted
    }
}
