//! The kernel's ethtool family of generic netlink: a request about an interface, and the reply's attributes. Source:
//! Documentation/networking/ethtool-netlink.rst; numbers from linux/ethtool_netlink.h. The family exists since Linux
//! 5.6, parts of it since 5.8.

use netlink_packet_core::{DefaultNla, NLA_F_NESTED, parse_u32};
use rustix::io::Errno;

use crate::error::NetdevError;
use crate::generic_message::{Attributes, FamilyMessage, ask_family, bytes_of, find};
use crate::link::{check_name, name_missing};

pub(crate) const FAMILY: &str = "ethtool";

/// Attribute of every message that names the interface.
const HEADER: u16 = 1;
const HEADER_DEVICE_INDEX: u16 = 1;
const HEADER_DEVICE_NAME: u16 = 2;

fn text(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, [text.as_bytes(), &[0]].concat())
}

fn nested(kind: u16, parts: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind | NLA_F_NESTED, bytes_of(parts))
}

/// Sends `command` (`ETHTOOL_MSG_*`) to read `what` of `interface`, and returns the answer. If the driver refuses, the
/// error names `what` as the missing capability.
pub(crate) fn ask(interface: &str, command: u8, what: &'static str) -> Result<Attributes, NetdevError> {
    check_name(interface)?;
    let header = nested(HEADER, &[text(HEADER_DEVICE_NAME, interface)]);
    let operation = || format!("read the {what} of {interface}");
    let answer = ask_family(FAMILY, command, &[header], &operation).map_err(|error| match error {
        NetdevError::Refused { source: Errno::OPNOTSUPP, .. } => {
            NetdevError::Unsupported { interface: interface.to_owned(), what }
        }
        other => name_missing(interface, other),
    })?;
    answer.ok_or(NetdevError::NoEthtool)
}

/// Number of the interface that a message is about.
pub(crate) fn interface_of(message: &FamilyMessage) -> Option<u32> {
    parse_u32(find(message.attributes.value(HEADER)?, HEADER_DEVICE_INDEX)?).ok()
}
