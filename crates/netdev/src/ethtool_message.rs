//! The kernel's ethtool family of generic netlink: a request about an interface, and the reply's attributes. Source:
//! Documentation/networking/ethtool-netlink.rst; numbers from linux/ethtool_netlink.h. Linux 5.6, parts of it 5.8.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLA_HEADER_SIZE, NlasIterator, ParseableParametrized,
    parse_string, parse_u8, parse_u32,
};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;

use crate::error::NetdevError;
use crate::link::{check_name, name_missing};
use crate::netlink::Requests;

const FAMILY: &str = "ethtool";

/// In every message, the attribute that names the interface.
const HEADER: u16 = 1;
const HEADER_DEVICE_INDEX: u16 = 1;
const HEADER_DEVICE_NAME: u16 = 2;

const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITSET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// A message of the family, either way.
#[derive(Debug)]
pub(crate) struct EthtoolMessage {
    command: u8,
    attributes: Vec<u8>,
}

impl EthtoolMessage {
    /// Number of the interface that it is about.
    pub(crate) fn interface(&self) -> Option<u32> {
        parse_u32(find(find(&self.attributes, HEADER)?, HEADER_DEVICE_INDEX)?).ok()
    }
}

impl GenlFamily for EthtoolMessage {
    fn family_name() -> &'static str {
        FAMILY
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for EthtoolMessage {
    fn buffer_len(&self) -> usize {
        self.attributes.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.attributes);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for EthtoolMessage {
    fn parse_with_param(attributes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self { command: header.cmd, attributes: attributes.to_vec() })
    }
}

/// The attributes of an answer.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// A number, where the driver gave one.
    pub(crate) fn number(&self, kind: u16) -> Option<u32> {
        find(&self.0, kind).and_then(|value| parse_u32(value).ok())
    }

    /// A small number, where the driver gave one.
    pub(crate) fn byte(&self, kind: u16) -> Option<u8> {
        find(&self.0, kind).and_then(|value| parse_u8(value).ok())
    }

    /// The names of the bits that are set in a bitset.
    pub(crate) fn bits(&self, kind: u16) -> Vec<String> {
        let bitset = find(&self.0, kind).unwrap_or_default();
        // A bitset lists the bits that are set or, with a mask, the bits that it reports.
        let all_set = find(bitset, BITSET_NOMASK).is_some();
        NlasIterator::new(find(bitset, BITSET_BITS).unwrap_or_default())
            .flatten()
            .filter(|bit| bit.kind() == BITSET_BIT)
            .filter(|bit| all_set || find(bit.value(), BIT_VALUE).is_some())
            .filter_map(|bit| parse_string(find(bit.value(), BIT_NAME)?).ok())
            .collect()
    }
}

fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == kind).map(|found| {
        let length = usize::from(found.length());
        found.into_inner().get(NLA_HEADER_SIZE..length).unwrap_or_default()
    })
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

fn bytes_of(parts: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; parts.buffer_len()];
    parts.emit(&mut bytes);
    bytes
}

/// Sends `command` (`ETHTOOL_MSG_*`) about `interface` and returns the answer. `what` is what the interface does not
/// have where its driver refuses; `operation` is read after "cannot".
pub(crate) fn ask(
    interface: &str,
    command: u8,
    content: &[DefaultNla],
    what: &'static str,
    operation: &dyn Fn() -> String,
) -> Result<Attributes, NetdevError> {
    check_name(interface)?;
    let mut requests = Requests::open(NETLINK_GENERIC)?;
    let family = family(&mut requests)?;
    let mut parts = vec![nested(HEADER, &[text(HEADER_DEVICE_NAME, interface)])];
    parts.extend_from_slice(content);
    let mut request = GenlMessage::from_payload(EthtoolMessage { command, attributes: bytes_of(&parts) });
    request.set_resolved_family_id(family.id);
    let mut answers = requests.ask(request, 0, operation).map_err(|error| match error {
        NetdevError::Refused { source: Errno::OPNOTSUPP, .. } => {
            NetdevError::Unsupported { interface: interface.to_owned(), what }
        }
        other => name_missing(interface, other),
    })?;
    Ok(answers.pop().map(|answer| Attributes(answer.payload.attributes)).unwrap_or_default())
}

/// The family, whose numbers differ from boot to boot.
pub(crate) struct Family {
    id: u16,
    groups: Vec<Vec<McastGrpAttrs>>,
}

impl Family {
    /// Number of one of its multicast groups.
    pub(crate) fn group(&self, name: &str) -> Option<u32> {
        let is_it = |group: &&Vec<McastGrpAttrs>| {
            group.iter().any(|part| matches!(part, McastGrpAttrs::Name(known) if known == name))
        };
        self.groups.iter().find(is_it)?.iter().find_map(|part| match part {
            McastGrpAttrs::Id(number) => Some(*number),
            McastGrpAttrs::Name(_) => None,
        })
    }
}

/// Queries the kernel for the family.
pub(crate) fn family(requests: &mut Requests) -> Result<Family, NetdevError> {
    let operation = || "query the kernel's ethtool interface".to_owned();
    let request =
        GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(FAMILY.to_owned())] };
    let answers =
        requests.ask(GenlMessage::from_payload(request), 0, &operation).map_err(|error| match error {
            NetdevError::Refused { source: Errno::NOENT, .. } => NetdevError::NoEthtool,
            other => other,
        })?;
    let (mut id, mut groups) = (None, Vec::new());
    for attribute in answers.into_iter().flat_map(|answer| answer.payload.nlas) {
        match attribute {
            GenlCtrlAttrs::FamilyId(number) => id = Some(number),
            GenlCtrlAttrs::McastGroups(list) => groups = list,
            _ => {}
        }
    }
    let id = id.ok_or_else(|| NetdevError::Answer {
        operation: operation(),
        reason: "it has no number".to_owned(),
    })?;
    Ok(Family { id, groups })
}

/// A number as an attribute.
pub(crate) fn number_attribute(kind: u16, number: u32) -> DefaultNla {
    DefaultNla::new(kind, number.to_ne_bytes().to_vec())
}
