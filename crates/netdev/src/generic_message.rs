//! Families of the kernel's generic netlink: requests to a family, and the attributes of the answers. Source:
//! Documentation/userspace-api/netlink/intro.rst.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_HEADER_SIZE, NlasIterator, ParseableParametrized, parse_u32,
    parse_u64,
};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;

use crate::error::NetdevError;
use crate::netlink::Requests;

/// A message of a family, sent or received.
#[derive(Debug)]
pub(crate) struct FamilyMessage {
    command: u8,
    pub(crate) attributes: Attributes,
}

impl GenlFamily for FamilyMessage {
    /// Empty name, because messages are sent by the family's number.
    fn family_name() -> &'static str {
        ""
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for FamilyMessage {
    fn buffer_len(&self) -> usize {
        self.attributes.0.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.attributes.0);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for FamilyMessage {
    fn parse_with_param(attributes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self { command: header.cmd, attributes: Attributes(attributes.to_vec()) })
    }
}

/// Attributes of a message.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// Value of a `u32` attribute, if the message has it.
    pub(crate) fn number(&self, kind: u16) -> Option<u32> {
        self.value(kind).and_then(|value| parse_u32(value).ok())
    }

    /// Value of a `u64` attribute, if the message has it.
    pub(crate) fn large_number(&self, kind: u16) -> Option<u64> {
        self.value(kind).and_then(|value| parse_u64(value).ok())
    }

    /// Bytes of an attribute's value, if the message has it.
    pub(crate) fn value(&self, kind: u16) -> Option<&[u8]> {
        find(&self.0, kind)
    }
}

/// The value of the attribute `kind` in a list of attributes.
pub(crate) fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == kind).map(|found| {
        let length = usize::from(found.length());
        found.into_inner().get(NLA_HEADER_SIZE..length).unwrap_or_default()
    })
}

/// The bytes of a list of attributes.
pub(crate) fn bytes_of(parts: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; parts.buffer_len()];
    parts.emit(&mut bytes);
    bytes
}

/// Sends `command` of `family` with these attributes and returns the answer. `None` if the kernel does not know the
/// family. `operation` follows "cannot" in errors.
pub(crate) fn ask_family(
    family: &str,
    command: u8,
    attributes: &[DefaultNla],
    operation: &dyn Fn() -> String,
) -> Result<Option<Attributes>, NetdevError> {
    let mut requests = Requests::open(NETLINK_GENERIC)?;
    let Some(family) = Family::query(&mut requests, family)? else { return Ok(None) };
    let attributes = Attributes(bytes_of(attributes));
    let mut request = GenlMessage::from_payload(FamilyMessage { command, attributes });
    request.set_resolved_family_id(family.number);
    let mut answers = requests.ask(request, 0, operation)?;
    Ok(Some(answers.pop().map(|answer| answer.payload.attributes).unwrap_or_default()))
}

/// Numbers of a family and its multicast groups. They differ from boot to boot.
pub(crate) struct Family {
    number: u16,
    groups: Vec<Vec<McastGrpAttrs>>,
}

impl Family {
    /// Queries the kernel for the family of this name. `None` if there is none.
    pub(crate) fn query(requests: &mut Requests, name: &str) -> Result<Option<Self>, NetdevError> {
        let operation = || format!("query the kernel's {name} interface");
        let request =
            GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(name.to_owned())] };
        let answers = match requests.ask(GenlMessage::from_payload(request), 0, &operation) {
            Err(NetdevError::Refused { source: Errno::NOENT, .. }) => return Ok(None),
            answers => answers?,
        };
        let (mut number, mut groups) = (None, Vec::new());
        for attribute in answers.into_iter().flat_map(|answer| answer.payload.nlas) {
            match attribute {
                GenlCtrlAttrs::FamilyId(id) => number = Some(id),
                GenlCtrlAttrs::McastGroups(list) => groups = list,
                _ => {}
            }
        }
        match number {
            Some(number) => Ok(Some(Self { number, groups })),
            None => {
                Err(NetdevError::Answer { operation: operation(), reason: "it has no number".to_owned() })
            }
        }
    }

    /// Number of the multicast group `name` of the family.
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
