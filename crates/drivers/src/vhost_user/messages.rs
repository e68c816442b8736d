//! The messages of a front end that the `vhost` crate refuses, or does not know, although front ends send them.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recv, recvmsg};
use vhost::vhost_user::Error;
use vhost::vhost_user::message::{MAX_ATTACHED_FD_ENTRIES, VhostUserMemoryRegion, VhostUserProtocolFeatures};

/// Length of a message's header, bytes: request, flags, and length of the payload, four bytes each.
const HEADER_BYTES: usize = 12;
/// Flags of a message: the protocol's version, reply, and reply needed.
pub(super) const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// The message of a back end that the card's configuration has changed (`VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`).
const CONFIG_CHANGE: u32 = 2;

const SET_MEM_TABLE: u32 = 5;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;

/// Length of the number of regions and its padding in a table of memory, bytes.
const TABLE_HEAD_BYTES: usize = 8;
/// Length of a region in a table of memory, bytes.
const REGION_BYTES: usize = 32;

/// A message that this side carries out by itself.
pub(super) enum OwnMessage {
    /// User-mode Linux sends room for more regions than it has, which the crate rejects.
    SetMemTable {
        regions: Vec<VhostUserMemoryRegion>,
        files: Vec<OwnedFd>,
    },
    /// QEMU enables rings before it acknowledges the feature bit of this message, which the crate rejects.
    SetVringEnable {
        index: u32,
        is_enabled: bool,
    },
    /// The crate keeps the socket of this message, and has no message for it that a network card sends.
    SetBackendReqFd(OwnedFd),
    /// The crate does not know the messages about the device's status.
    SetStatus(u64),
    GetStatus,
}

/// Answer that a message awaits.
#[derive(Debug)]
pub(super) struct PendingAnswer {
    request: u32,
    is_wanted: bool,
}

impl OwnMessage {
    /// Receives the next message if it is one of these, and waits until all of it has come. `None`: the message stays
    /// in the socket.
    ///
    /// # Errors
    /// The message is invalid, or the socket has failed.
    pub(super) fn next(mut socket: &UnixStream) -> Result<Option<(Self, PendingAnswer)>, Error> {
        let mut header = [0; HEADER_BYTES];
        let peeked = recv(socket, &mut header, RecvFlags::PEEK | RecvFlags::WAITALL);
        let (_, count) = peeked.map_err(failed)?;
        let [request, flags, size] = words(&header);
        let most = match request {
            SET_MEM_TABLE => TABLE_HEAD_BYTES + MAX_ATTACHED_FD_ENTRIES * REGION_BYTES,
            SET_VRING_ENABLE | SET_BACKEND_REQ_FD | SET_STATUS | GET_STATUS => 8,
            _ => return Ok(None),
        };
        if count < HEADER_BYTES {
            return Ok(None);
        }
        if flags & !NEED_REPLY != VERSION || size as usize > most {
            return Err(Error::InvalidMessage);
        }
        let mut bytes = vec![0; HEADER_BYTES + size as usize];
        let (read, files) = receive_first(socket, &mut bytes)?;
        socket.read_exact(bytes.get_mut(read..).unwrap_or_default()).map_err(Error::SocketError)?;
        let payload = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let message = Self::read(request, payload, files).ok_or(Error::InvalidMessage)?;
        Ok(Some((message, PendingAnswer { request, is_wanted: flags & NEED_REPLY != 0 })))
    }

    /// Features of the protocol that a front end acknowledges before it sends the message.
    pub(super) fn protocol_features(&self) -> VhostUserProtocolFeatures {
        match self {
            Self::SetMemTable { .. } | Self::SetVringEnable { .. } => VhostUserProtocolFeatures::empty(),
            Self::SetBackendReqFd(_) => VhostUserProtocolFeatures::BACKEND_REQ,
            Self::SetStatus(_) | Self::GetStatus => VhostUserProtocolFeatures::STATUS,
        }
    }

    fn read(request: u32, payload: &[u8], mut files: Vec<OwnedFd>) -> Option<Self> {
        match request {
            SET_MEM_TABLE => {
                let (head, rest) = payload.split_first_chunk::<TABLE_HEAD_BYTES>()?;
                let [count, padding] = words(head);
                let (regions, _) = rest.as_chunks::<REGION_BYTES>();
                let regions: Vec<_> = regions.get(..count as usize)?.iter().map(region).collect();
                let is_valid = padding == 0 && !regions.is_empty() && files.len() == regions.len();
                (is_valid && regions.iter().all(is_addressable))
                    .then_some(Self::SetMemTable { regions, files })
            }
            SET_VRING_ENABLE => match words(payload.first_chunk::<8>()?) {
                [index, value @ 0..=1] => Some(Self::SetVringEnable { index, is_enabled: value == 1 }),
                _ => None,
            },
            SET_BACKEND_REQ_FD => files.pop().filter(|_| files.is_empty()).map(Self::SetBackendReqFd),
            SET_STATUS => payload.first_chunk().map(|&status| Self::SetStatus(u64::from_ne_bytes(status))),
            GET_STATUS => Some(Self::GetStatus),
            _ => None,
        }
    }
}

impl PendingAnswer {
    /// Sends the front end the outcome of its message: whether it was carried out, or the value that it requests.
    ///
    /// # Errors
    /// The message could not be carried out, or the socket has failed.
    pub(super) fn send(
        self,
        mut socket: &UnixStream,
        outcome: Result<Option<u64>, Error>,
    ) -> Result<(), Error> {
        let value = match &outcome {
            Ok(Some(value)) => Some(*value),
            Ok(None) => self.is_wanted.then_some(0),
            Err(_) => self.is_wanted.then_some(1),
        };
        if let Some(value) = value {
            let header = [self.request, VERSION | REPLY, 8].map(u32::to_ne_bytes);
            let bytes = [header.as_flattened(), &value.to_ne_bytes()].concat();
            socket.write_all(&bytes).map_err(Error::SocketError)?;
        }
        outcome.map(|_| ())
    }
}

/// The message for a front end that the card's configuration has changed.
pub(super) fn config_change() -> Vec<u8> {
    [CONFIG_CHANGE, VERSION, 0].map(u32::to_ne_bytes).concat()
}

fn failed(errno: rustix::io::Errno) -> Error {
    Error::SocketError(errno.into())
}

/// Receives the first bytes of a message into `bytes`, and the descriptors that come with them. Returns the number of
/// bytes.
fn receive_first(socket: &UnixStream, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_ATTACHED_FD_ENTRIES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags));
    let received = received.map_err(failed)?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Error::IncorrectFds);
    }
    Ok((received.bytes, files))
}

/// First words of a message or its payload, in the machine's byte order.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    words
}

fn region(bytes: &[u8; REGION_BYTES]) -> VhostUserMemoryRegion {
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *number = u64::from_ne_bytes(*bytes);
    }
    let [guest_phys_addr, memory_size, user_addr, mmap_offset] = numbers;
    VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset }
}

/// Whether a region has bytes, and all of them have addresses.
fn is_addressable(region: &VhostUserMemoryRegion) -> bool {
    let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } = *region;
    let ends = [guest_phys_addr, user_addr, mmap_offset].map(|start| start.checked_add(memory_size));
    memory_size != 0 && ends.iter().all(Option::is_some)
}
