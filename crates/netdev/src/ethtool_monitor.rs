//! Changes of a driver's settings as they happen: the multicast group "monitor" of the kernel's ethtool family.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_generic::GenlMessage;
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::error::NetdevError;
use crate::ethtool_message::{FAMILY, interface_of};
use crate::generic_message::{Family, FamilyMessage};
use crate::netlink::{Notices, Requests, open_socket};

// Names and numbers of linux/ethtool_netlink.h.
const GROUP: &str = "monitor";
const RINGS_NTF: u8 = 17;
const CHANNELS_NTF: u8 = 19;

/// A notification of the kernel's ethtool family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EthtoolEvent {
    /// Number of queues or length of rings changed, of the interface with this index.
    Changed(u32),
    /// Events were lost.
    Lost,
}

/// Receives changes of queues and rings in the network namespace of the thread that opened the monitor.
#[derive(Debug)]
pub(crate) struct EthtoolMonitor(Notices);

impl EthtoolMonitor {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`NetdevError::Socket`]; [`NetdevError::NoEthtool`] if the kernel has no such group.
    pub(crate) fn open() -> Result<Self, NetdevError> {
        let family = Family::query(&mut Requests::open(NETLINK_GENERIC)?, FAMILY)?;
        let group = family.and_then(|family| family.group(GROUP)).ok_or(NetdevError::NoEthtool)?;
        let socket = open_socket(NETLINK_GENERIC, 0)?;
        let added = socket.add_membership(group);
        added.map_err(|source| NetdevError::Socket { operation: "set up", source })?;
        Notices::by(socket).map(Self)
    }

    /// Passes each pending event to `each`, oldest first. Never blocks.
    ///
    /// # Errors
    /// [`NetdevError::Socket`].
    pub(crate) fn events(&mut self, mut each: impl FnMut(EthtoolEvent)) -> Result<(), NetdevError> {
        self.0.pending(|message| {
            message.map_or(Some(EthtoolEvent::Lost), event_of).into_iter().for_each(&mut each)
        })
    }
}

impl AsFd for EthtoolMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn event_of(message: &[u8]) -> Option<EthtoolEvent> {
    match NetlinkMessage::<GenlMessage<FamilyMessage>>::deserialize(message).ok()?.payload {
        NetlinkPayload::InnerMessage(message) if matches!(message.header.cmd, RINGS_NTF | CHANNELS_NTF) => {
            interface_of(&message.payload).map(EthtoolEvent::Changed)
        }
        NetlinkPayload::Overrun(_) => Some(EthtoolEvent::Lost),
        _ => None,
    }
}
