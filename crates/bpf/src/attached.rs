//! Query and removal of an interface's XDP program, by rtnetlink, since such programs need not have a link.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::error::BpfError;
use crate::link::{XdpAttachMode, detach_xdp_link};

/// Bytes of `struct nlmsghdr` and of `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;
const LINK_HEADER_BYTES: usize = 16;
const RTM_SETLINK: u16 = 19;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const NLA_TYPE_MASK: u16 = 0x3FFF;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const NLA_F_NESTED: u16 = 1 << 15;
/// Room for the answer about one interface, bytes. Some attributes are long.
const ANSWER_BYTES: usize = 64 << 10;

/// An XDP program that is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachedXdp {
    /// The kernel's id of the program.
    pub program: u32,
    /// Mode in which the program runs. `None` if it runs in the device itself, or if there are several programs.
    pub mode: Option<XdpAttachMode>,
}

/// The XDP program on interface `interface`; `None` if there is none.
///
/// # Errors
/// [`BpfError::NoInterface`], or [`BpfError::System`] if the kernel does not answer.
pub fn attached_xdp(interface: u32) -> Result<Option<AttachedXdp>, BpfError> {
    const STEP: &str = "querying the XDP program of an interface";
    let answer = request(RTM_GETLINK, 0, interface, &[]).map_err(|source| failed(STEP, interface, source))?;
    let attributes = answer.get(HEADER_BYTES + LINK_HEADER_BYTES..).unwrap_or_default();
    let Some(xdp) = attribute(attributes, IFLA_XDP) else { return Ok(None) };
    let mode = match attribute(xdp, IFLA_XDP_ATTACHED).and_then(|value| value.first()) {
        None | Some(0) => return Ok(None),
        Some(1) => Some(XdpAttachMode::Native),
        Some(2) => Some(XdpAttachMode::Generic),
        Some(_) => None,
    };
    let by_mode = [IFLA_XDP_PROG_ID, IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID];
    let program = by_mode.into_iter().find_map(|kind| word(attribute(xdp, kind)?, 0)).unwrap_or(0);
    Ok(Some(AttachedXdp { program, mode }))
}

/// Detaches any XDP program from `interface`, even one that another process attached. Call this only on the user's
/// request.
///
/// # Errors
/// [`BpfError`] if the kernel refuses. No attached program is not an error.
pub fn detach_xdp(interface: u32) -> Result<(), BpfError> {
    const STEP: &str = "detaching the XDP program of an interface";
    // Native and generic programs can both be attached only if one was added through the device. Two rounds remove
    // both.
    for _ in 0..2 {
        let Some(found) = attached_xdp(interface)? else { return Ok(()) };
        if detach_xdp_link(found.program, interface).map_err(|source| failed(STEP, interface, source))? {
            continue;
        }
        let flags = match found.mode {
            Some(XdpAttachMode::Native) => 1 << 2,
            Some(XdpAttachMode::Generic) => 1 << 1,
            None => 0_u32,
        };
        let mut xdp = Vec::with_capacity(20);
        put_attribute(&mut xdp, IFLA_XDP_FD, &(-1_i32).to_ne_bytes());
        put_attribute(&mut xdp, IFLA_XDP_FLAGS, &flags.to_ne_bytes());
        let mut attributes = Vec::with_capacity(24);
        put_attribute(&mut attributes, IFLA_XDP | NLA_F_NESTED, &xdp);
        request(RTM_SETLINK, NLM_F_ACK, interface, &attributes)
            .map_err(|source| failed(STEP, interface, source))?;
    }
    Ok(())
}

fn failed(step: &'static str, interface: u32, source: Errno) -> BpfError {
    match source {
        Errno::NODEV => BpfError::NoInterface { step, interface },
        source => BpfError::new(step, source),
    }
}

/// Sends one rtnetlink request about an interface and returns the kernel's answer. An error in the answer becomes
/// `Err`.
fn request(kind: u16, flags: u16, interface: u32, attributes: &[u8]) -> Result<Vec<u8>, Errno> {
    let socket: OwnedFd = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // NETLINK_ROUTE is number 0.
        None,
    )?;
    let bytes = HEADER_BYTES + LINK_HEADER_BYTES + attributes.len();
    let mut message = Vec::with_capacity(bytes);
    message.extend((bytes as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    // Sequence number and port: a socket with a single request needs neither.
    message.extend([0; 8]);
    // ifinfomsg: family and type unspecified, index, no flags.
    message.extend([0; 4]);
    message.extend(interface.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(attributes);
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;

    let mut answer = vec![0_u8; ANSWER_BYTES];
    let (received, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    answer.truncate(received);
    if half(&answer, 4) == Some(NLMSG_ERROR) {
        let code = word(&answer, HEADER_BYTES).unwrap_or(0).cast_signed();
        if code != 0 {
            return Err(Errno::from_raw_os_error(code.saturating_neg()));
        }
    }
    Ok(answer)
}

fn put_attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend((4 + value.len() as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// The value of the first attribute of this kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let bytes = usize::from(half(attributes, 0)?);
        let kind = half(attributes, 2)? & NLA_TYPE_MASK;
        // A length below that of the header would never advance.
        let value = attributes.get(4..bytes)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(bytes.next_multiple_of(4)..)?;
    }
}

fn half(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..)?.first_chunk().copied()?))
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..)?.first_chunk().copied()?))
}
