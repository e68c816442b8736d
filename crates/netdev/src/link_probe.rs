//! One link, polled repeatedly: from any thread, in the network namespace where the probe was made.
#![allow(unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::error::NetdevError;
use crate::link::{LinkInfo, NAME_BYTES_MAX, the_link};
use crate::netlink::Requests;

/// Whether a link can carry frames at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Up, with carrier.
    Running,
    /// Up, without.
    NoCarrier,
    /// Set down.
    Down,
    /// There is no link with that number.
    Gone,
}

/// Reads one link by its number, which stays when the link is renamed.
#[derive(Debug)]
pub struct LinkProbe {
    index: u32,
    /// For ioctls: netlink would answer the same queries only under the kernel's lock of all links.
    socket: OwnedFd,
    requests: Mutex<Requests>,
}

impl LinkProbe {
    /// A probe for the link `index` of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetdevError::Socket`].
    pub fn open(index: u32) -> Result<Self, NetdevError> {
        Ok(Self { index, socket: interface_socket()?, requests: Mutex::new(Requests::open(NETLINK_ROUTE)?) })
    }

    /// The link as it is now.
    ///
    /// # Errors
    /// [`NetdevError`]: it is gone, among others.
    pub fn look(&self) -> Result<LinkInfo, NetdevError> {
        let mut request = LinkMessage::default();
        request.header.index = self.index;
        let operation = || format!("read interface number {}", self.index);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        the_link(requests.ask(RouteNetlinkMessage::GetLink(request), 0, &operation)?, &operation)
    }

    /// The state of the link. The kernel answers under the lock of all links: not for each batch.
    #[must_use]
    pub fn state(&self) -> LinkState {
        match self.look() {
            Ok(link) if !link.up => LinkState::Down,
            Ok(link) if link.running && link.carrier => LinkState::Running,
            Ok(_) => LinkState::NoCarrier,
            Err(_) => LinkState::Gone,
        }
    }

    /// Whether the link is there and up. Waits for no kernel lock, and allocates nothing.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.flags().is_some_and(|flags| flags & libc::IFF_UP != 0)
    }

    /// Whether the link is up and has carrier, which the kernel may report up to a second late. It is true for a link
    /// that is gone: an attempt to send shows that. Waits for no kernel lock, and allocates nothing.
    #[must_use]
    pub fn may_send(&self) -> bool {
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        self.flags().is_none_or(|flags| flags & wanted == wanted)
    }

    fn flags(&self) -> Option<libc::c_int> {
        let name = netdevice::index_to_name_inlined(&self.socket, self.index).ok()?;
        let mut request = interface_request(name.as_str(), libc::__c_anonymous_ifr_ifru { ifru_flags: 0 });
        interface_ioctl(&self.socket, libc::SIOCGIFFLAGS, &mut request).ok()?;
        // SAFETY: the kernel wrote this member.
        Some(libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
    }
}

/// A socket for ioctls on interfaces of the calling thread's network namespace.
pub(crate) fn interface_socket() -> Result<OwnedFd, NetdevError> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| NetdevError::Socket { operation: "open", source: errno.into() })
}

/// Makes the ioctl `code`, one of netdevice(7) about an interface.
pub(crate) fn interface_ioctl(
    socket: &OwnedFd,
    code: libc::Ioctl,
    request: &mut libc::ifreq,
) -> Result<(), Errno> {
    // SAFETY: the requests of netdevice(7) read and write one ifreq, and what a caller of this crate made it point to.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), code, std::ptr::from_mut(request)) };
    if result < 0 { Err(Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(()) }
}

/// An ioctl's request for the interface `name`, which is cut if it is longer than any name can be.
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
    use crate::link_change::{VethEnd, create_veth, delete_link, set_up};
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
                        (probe.is_up(), probe.may_send(), probe.state())
                    });
                    elsewhere.join().unwrap()
                })
            };
            assert_eq!(seen(), (false, false, LinkState::Down));
            set_up("va", true).unwrap();
            assert_eq!(seen(), (true, false, LinkState::NoCarrier));
            set_up("vb", true).unwrap();
            crate::link_monitor::wait_running("va", std::time::Duration::from_secs(10)).unwrap();
            assert_eq!(seen(), (true, true, LinkState::Running));
            let status = std::process::Command::new("ip").args(["link", "set", "va", "name", "vc"]).status();
            assert!(status.unwrap().success());
            assert_eq!(probe.look().unwrap().name, "vc");
            assert_eq!(seen(), (true, true, LinkState::Running));
            delete_link("vc").unwrap();
            assert_eq!(seen(), (false, true, LinkState::Gone));
        });
    }
}
