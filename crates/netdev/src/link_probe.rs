//! Repeated queries of one link, from any thread, in the network namespace where the probe was created.
#![allow(unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::NetdevError;
use crate::link::{LinkInfo, NAME_BYTES_MAX, query};
use crate::netlink::Requests;

/// Queries one link by its index, which stays the same when the link is renamed.
#[derive(Debug)]
pub struct LinkProbe {
    index: u32,
    requests: Mutex<Requests>,
}

impl LinkProbe {
    /// Creates a probe for the link with index `index` of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetdevError::Socket`].
    pub fn open(index: u32) -> Result<Self, NetdevError> {
        Ok(Self { index, requests: Mutex::new(Requests::open(NETLINK_ROUTE)?) })
    }

    /// Queries the present state of the link.
    ///
    /// # Errors
    /// [`NetdevError`], for example if the link is gone.
    pub fn query(&self) -> Result<LinkInfo, NetdevError> {
        query(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner), self.index)
    }
}

/// Opens a socket for ioctls on interfaces of the calling thread's network namespace.
pub(crate) fn interface_socket() -> Result<OwnedFd, NetdevError> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| NetdevError::Socket { operation: "open", source: errno.into() })
}

/// Calls ioctl `code` of netdevice(7) for an interface.
pub(crate) fn interface_ioctl(
    socket: &OwnedFd,
    code: libc::Ioctl,
    request: &mut libc::ifreq,
) -> Result<(), Errno> {
    // SAFETY: the requests of netdevice(7) read and write one ifreq, and the memory to which a caller of this crate
    // made it point.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), code, std::ptr::from_mut(request)) };
    if result < 0 { Err(Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(()) }
}

/// Argument of an ioctl for the interface `name`. A name longer than the maximum is truncated.
#[must_use]
pub fn interface_request(name: &str, value: libc::__c_anonymous_ifr_ifru) -> libc::ifreq {
    let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: value };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(NAME_BYTES_MAX)) {
        *to = from as libc::c_char;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::link_by_name;
    use crate::link_change::{VethEnd, create_veth, delete_link};
    use crate::test_namespace::in_new_namespace;

    #[test]
    fn a_probe_follows_its_link_across_names_and_namespaces() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let probe = LinkProbe::open(link_by_name("va").unwrap().index).unwrap();
            let seen = || {
                std::thread::scope(|scope| {
                    let elsewhere = scope.spawn(|| {
                        crate::test_namespace::unshare_network();
                        probe.query().map(|link| link.name)
                    });
                    elsewhere.join().unwrap()
                })
            };
            assert_eq!(seen().unwrap(), "va");
            let status = std::process::Command::new("ip").args(["link", "set", "va", "name", "vc"]).status();
            assert!(status.unwrap().success());
            assert_eq!(seen().unwrap(), "vc");
            delete_link("vc").unwrap();
            assert!(seen().unwrap_err().is_no_interface());
        });
    }
}
