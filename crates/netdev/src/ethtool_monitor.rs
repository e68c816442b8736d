//! Changes of a driver's settings as they happen: the multicast group "monitor" of the kernel's ethtool family.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_generic::GenlMessage;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;

use crate::error::NetdevError;
use crate::ethtool_message::{FAMILY, interface_of};
use crate::generic_message::{Family, FamilyMessage};
use crate::netlink::{Requests, messages, open_socket, receive, receive_buffer};

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
pub(crate) struct EthtoolMonitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl EthtoolMonitor {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`NetdevError::Socket`]; [`NetdevError::NoEthtool`] if the kernel has no such group.
    pub(crate) fn open() -> Result<Self, NetdevError> {
        let family = Family::query(&mut Requests::open(NETLINK_GENERIC)?, FAMILY)?;
        let group = family.and_then(|family| family.group(GROUP)).ok_or(NetdevError::NoEthtool)?;
        let socket = open_socket(NETLINK_GENERIC, 0)?;
        let failed = |source| NetdevError::Socket { operation: "set up", source };
        socket.add_membership(group).map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        Ok(Self { socket, buffer: receive_buffer() })
    }

    /// Passes each pending event to `each`, oldest first. Never blocks.
    ///
    /// # Errors
    /// [`NetdevError::Socket`].
    pub(crate) fn events(&mut self, mut each: impl FnMut(EthtoolEvent)) -> Result<(), NetdevError> {
        loop {
            match receive(&self.socket, &mut self.buffer) {
                Ok(length) => messages(self.buffer.get(..length).unwrap_or_default())
                    .filter_map(event_of)
                    .for_each(&mut each),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::NOBUFS | Errno::MSGSIZE) => each(EthtoolEvent::Lost),
                Err(errno) => {
                    return Err(NetdevError::Socket { operation: "read from", source: errno.into() });
                }
            }
        }
    }
}

impl AsFd for EthtoolMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for EthtoolMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EthtoolMonitor").field("socket", &self.socket).finish_non_exhaustive()
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
