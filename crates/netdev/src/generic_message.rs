//! Families of the kernel's generic netlink: a request of one of them, and the answers' attributes. Source:
//! Documentation/userspace-api/netlink/intro.rst.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_HEADER_SIZE, NlasIterator, ParseableParametrized, parse_u8,
    parse_u32, parse_u64,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;

use crate::error::NetdevError;
use crate::netlink::Requests;

/// A message of a family, either way.
#[derive(Debug)]
struct FamilyMessage {
    command: u8,
    attributes: Vec<u8>,
}

impl GenlFamily for FamilyMessage {
    /// None: messages are sent by the family's number.
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
        self.attributes.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.attributes);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for FamilyMessage {
    fn parse_with_param(attributes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self { command: header.cmd, attributes: attributes.to_vec() })
    }
}

/// The attributes of an answer.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// A number, where the kernel gave one.
    pub(crate) fn number(&self, kind: u16) -> Option<u32> {
        self.value(kind).and_then(|value| parse_u32(value).ok())
    }

    /// A large number, where the kernel gave one.
    pub(crate) fn large_number(&self, kind: u16) -> Option<u64> {
        self.value(kind).and_then(|value| parse_u64(value).ok())
    }

    /// A small number, where the kernel gave one.
    pub(crate) fn byte(&self, kind: u16) -> Option<u8> {
        self.value(kind).and_then(|value| parse_u8(value).ok())
    }

    /// The bytes of an attribute, where the kernel gave it.
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

/// Sends `command` of `family` with these attributes and returns the answer; `None` where the kernel does not know the
/// family. `operation` is read after "cannot".
pub(crate) fn ask_family(
    family: &str,
    command: u8,
    attributes: &[DefaultNla],
    operation: &dyn Fn() -> String,
) -> Result<Option<Attributes>, NetdevError> {
    let mut requests = Requests::open(NETLINK_GENERIC)?;
    let Some(number) = family_number(&mut requests, family)? else { return Ok(None) };
    let mut request = GenlMessage::from_payload(FamilyMessage { command, attributes: bytes_of(attributes) });
    request.set_resolved_family_id(number);
    let mut answers = requests.ask(request, 0, operation)?;
    Ok(Some(answers.pop().map(|answer| Attributes(answer.payload.attributes)).unwrap_or_default()))
}

/// Queries the kernel for the number of the family, which differs from boot to boot; `None` where there is no such
/// family.
fn family_number(requests: &mut Requests, family: &str) -> Result<Option<u16>, NetdevError> {
    let operation = || format!("query the kernel's {family} interface");
    let request =
        GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(family.to_owned())] };
    let answers = match requests.ask(GenlMessage::from_payload(request), 0, &operation) {
        Err(NetdevError::Refused { source: Errno::NOENT, .. }) => return Ok(None),
        answers => answers?,
    };
    let mut attributes = answers.into_iter().flat_map(|answer| answer.payload.nlas);
    let number = attributes.find_map(|attribute| match attribute {
        GenlCtrlAttrs::FamilyId(id) => Some(id),
        _ => None,
    });
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(NetdevError::Answer { operation: operation(), reason: "it has no number".to_owned() }),
    }
}
