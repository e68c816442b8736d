//! Changes of links as they happen: rtnetlink's multicast group of links (rtnetlink(7), `RTMGRP_LINK`).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::NetdevError;
use crate::link::{LinkInfo, link_by_name};
use crate::netlink::{Notices, open_socket};

/// `RTMGRP_LINK` of linux/rtnetlink.h.
const GROUP_LINK: u32 = 1;

/// A notification about a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEvent {
    /// The link is new or has changed. The kernel also reports changes that [`LinkInfo`] does not show.
    Changed(Box<LinkInfo>),
    /// The link was deleted, or moved to another namespace.
    Gone {
        /// Index that the link had.
        index: u32,
        /// Name that the link had.
        name: String,
    },
    /// Events were lost: they came faster than they were read, or one was invalid. A caller with a copy of the state
    /// must read it again ([`crate::link::links`]).
    Lost,
}

/// Receives every change to a link of the network namespace of the thread that opened the monitor, even if another
/// thread uses it.
///
/// Its descriptor is readable while events are pending. A state that is read *after* opening misses no change.
#[derive(Debug)]
pub struct LinkMonitor(Notices);

impl LinkMonitor {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`NetdevError::Socket`].
    pub fn open() -> Result<Self, NetdevError> {
        Notices::by(open_socket(NETLINK_ROUTE, GROUP_LINK)?).map(Self)
    }

    /// Begins to listen to the links of this namespace and of all namespaces that have an id in it, such as those of
    /// the other ends of its links. Events do not name the namespace.
    ///
    /// # Errors
    /// [`NetdevError::Socket`], also without `CAP_NET_BROADCAST` in this namespace.
    pub(crate) fn open_across_namespaces() -> Result<Self, NetdevError> {
        let this = Self::open()?;
        let set = this.0.socket.set_listen_all_namespaces(true);
        set.map_err(|source| NetdevError::Socket { operation: "set up", source })?;
        Ok(this)
    }

    /// Passes each pending event to `each`, oldest first. Never blocks.
    ///
    /// # Errors
    /// [`NetdevError::Socket`].
    pub fn events(&mut self, mut each: impl FnMut(LinkEvent)) -> Result<(), NetdevError> {
        self.0.pending(|message| {
            message.map_or(Some(LinkEvent::Lost), event_of).into_iter().for_each(&mut each)
        })
    }
}

#[cfg(test)]
impl LinkMonitor {
    /// Shrinks the socket's buffer to a few events.
    pub(crate) fn shrink_room(&self) {
        self.0.socket.set_rx_buf_sz(16_384_i32).unwrap();
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn event_of(message: &[u8]) -> Option<LinkEvent> {
    let payload = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) {
        Ok(message) => message.payload,
        Err(_) => return Some(LinkEvent::Lost),
    };
    match payload {
        // A bridge reports its members in the same form: a link that leaves the bridge still exists.
        NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link),
        ) if link.header.interface_family != AddressFamily::Unspec => None,
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
            Some(LinkEvent::Changed(Box::new(link.into())))
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
            let LinkInfo { index, name, .. } = link.into();
            Some(LinkEvent::Gone { index, name })
        }
        NetlinkPayload::Overrun(_) => Some(LinkEvent::Lost),
        _ => None,
    }
}

/// Waits until the interface `name` carries frames ([`LinkInfo::running`]), and returns its state then. Frames sent
/// right after an interface was set up are dropped by the kernel.
///
/// # Errors
/// [`NetdevError::NotRunning`] after `limit`; [`NetdevError::NoInterface`] if it does not exist or is deleted
/// meanwhile.
pub fn wait_running(name: &str, limit: Duration) -> Result<LinkInfo, NetdevError> {
    let end = Instant::now() + limit;
    let mut monitor = LinkMonitor::open()?;
    loop {
        let link = link_by_name(name)?;
        if link.running {
            return Ok(link);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NetdevError::NotRunning { interface: link.name, up: link.up, waited: limit });
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&monitor, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(NetdevError::Socket { operation: "wait on", source: errno.into() }),
        }
        monitor.events(drop)?;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::link_change::{VethEnd, create_veth, delete_link, move_to_namespace, set_mtu, set_up};
    use crate::test_namespace::{in_new_namespace, new_namespace};

    fn waiting(monitor: &mut LinkMonitor) -> Vec<LinkEvent> {
        let mut events = Vec::new();
        monitor.events(|event| events.push(event)).unwrap();
        events
    }

    #[test]
    fn each_change_of_a_link_is_reported_once() {
        in_new_namespace(|| {
            let mut monitor = LinkMonitor::open().unwrap();
            assert!(waiting(&mut monitor).is_empty(), "nothing has happened");

            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            set_mtu("va", 1400).unwrap();
            let a = link_by_name("va").unwrap();
            let b = link_by_name("vb").unwrap();
            let events = waiting(&mut monitor);
            assert!(events.contains(&LinkEvent::Changed(Box::new(a.clone()))), "{events:?}");
            assert!(!events.iter().any(|event| !matches!(event, LinkEvent::Changed(_))), "{events:?}");

            let other = new_namespace();
            move_to_namespace("vb", other.as_fd()).unwrap();
            assert!(waiting(&mut monitor).contains(&LinkEvent::Gone { index: b.index, name: "vb".into() }));
            delete_link("va").unwrap();
            assert!(waiting(&mut monitor).contains(&LinkEvent::Gone { index: a.index, name: "va".into() }));
            assert!(waiting(&mut monitor).is_empty(), "each event is reported once");
        });
    }

    #[test]
    fn a_monitors_descriptor_is_readable_while_events_wait() {
        in_new_namespace(|| {
            let mut monitor = LinkMonitor::open().unwrap();
            let readable = |monitor: &LinkMonitor| {
                poll(&mut [PollFd::new(monitor, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
            };
            assert!(!readable(&monitor));
            set_up("lo", true).unwrap();
            assert!(readable(&monitor));
            waiting(&mut monitor);
            assert!(!readable(&monitor));
        });
    }

    #[test]
    fn lost_events_are_reported_and_later_ones_arrive() {
        in_new_namespace(|| {
            let mut monitor = LinkMonitor::open().unwrap();
            monitor.shrink_room();
            for round in 0..100 {
                set_mtu("lo", 1500 + round).unwrap();
            }
            let events = waiting(&mut monitor);
            assert!(events.contains(&LinkEvent::Lost));
            assert!(events.len() < 100, "{} events fitted", events.len());
            set_mtu("lo", 1400).unwrap();
            let expected = LinkEvent::Changed(Box::new(link_by_name("lo").unwrap()));
            assert_eq!(waiting(&mut monitor), [expected]);
        });
    }

    #[test]
    fn waiting_for_carrier_ends_with_the_reason() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let wait = |milliseconds| wait_running("va", Duration::from_millis(milliseconds));
            assert!(matches!(wait(1), Err(NetdevError::NotRunning { up: false, .. })));
            set_up("va", true).unwrap();
            assert!(matches!(wait(1), Err(NetdevError::NotRunning { up: true, .. })));
            set_up("vb", true).unwrap();
            assert!(wait(10_000).unwrap().running);
            assert!(wait_running("vc", Duration::from_secs(1)).unwrap_err().is_no_interface());
        });
    }
}
