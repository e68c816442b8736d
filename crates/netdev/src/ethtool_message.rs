//! The kernel's ethtool family of generic netlink: a request about an interface, and the reply's attributes. Source:
//! Documentation/networking/ethtool-netlink.rst; numbers from linux/ethtool_netlink.h. The family exists since Linux
//! 5.6, parts of it since 5.8.

use netlink_packet_core::{DefaultNla, NLA_F_NESTED, NlasIterator, parse_string, parse_u32};
use rustix::io::Errno;

use crate::error::NetdevError;
use crate::generic_message::{Attributes, FamilyMessage, ask_family, bytes_of, find};
use crate::link::{check_name, name_missing};

pub(crate) const FAMILY: &str = "ethtool";

/// Attribute of every message that names the interface.
const HEADER: u16 = 1;
const HEADER_DEVICE_INDEX: u16 = 1;
const HEADER_DEVICE_NAME: u16 = 2;

const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITSET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// Names of the bits that are set in the bitset `kind` of an answer.
pub(crate) fn bits(answer: &Attributes, kind: u16) -> Vec<String> {
    let bitset = answer.value(kind).unwrap_or_default();
    // A bitset lists the bits that are set or, with a mask, the bits that it reports.
    let all_set = find(bitset, BITSET_NOMASK).is_some();
    NlasIterator::new(find(bitset, BITSET_BITS).unwrap_or_default())
        .flatten()
        .filter(|bit| bit.kind() == BITSET_BIT)
        .filter(|bit| all_set || find(bit.value(), BIT_VALUE).is_some())
        .filter_map(|bit| parse_string(find(bit.value(), BIT_NAME)?).ok())
        .collect()
}

/// A bitset attribute that changes the bits of these names and no others.
pub(crate) fn bit_changes<'a>(kind: u16, changes: impl Iterator<Item = (&'a str, bool)>) -> DefaultNla {
    let bits: Vec<_> = changes
        .map(|(name, on)| {
            let mut parts = vec![text(BIT_NAME, name)];
            parts.extend(on.then(|| DefaultNla::new(BIT_VALUE, Vec::new())));
            nested(BITSET_BIT, &parts)
        })
        .collect();
    nested(kind, &[nested(BITSET_BITS, &bits)])
}

fn text(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, [text.as_bytes(), &[0]].concat())
}

fn nested(kind: u16, parts: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind | NLA_F_NESTED, bytes_of(parts))
}

/// Sends `command` (`ETHTOOL_MSG_*`) about `interface` and returns the answer. If the driver refuses, the error names
/// `what` as the missing capability. `operation` follows "cannot" in errors.
pub(crate) fn ask(
    interface: &str,
    command: u8,
    content: &[DefaultNla],
    what: &'static str,
    operation: &dyn Fn() -> String,
) -> Result<Attributes, NetdevError> {
    check_name(interface)?;
    let mut parts = vec![nested(HEADER, &[text(HEADER_DEVICE_NAME, interface)])];
    parts.extend_from_slice(content);
    let answer = ask_family(FAMILY, command, &parts, operation).map_err(|error| match error {
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

/// An attribute with a number as its value.
pub(crate) fn number_attribute(kind: u16, number: u32) -> DefaultNla {
    DefaultNla::new(kind, number.to_ne_bytes().to_vec())
}
