//! Requests to the kernel over netlink: one request, all its replies, and the kernel's explanation if it refuses.
//! Source: Documentation/userspace-api/netlink/intro.rst.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NetlinkBuffer, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlasIterator, parse_string,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::error::NetdevError;

/// Maximum length of one datagram of the kernel. Dumps come in pieces of at most 32 KiB. The report of a link with many
/// virtual functions is the longest single message.
const RECEIVE_BYTES: usize = 256 * 1024;

/// `NLMSGERR_ATTR_MSG` of linux/netlink.h: the explanation in a refusal.
const ERROR_TEXT: u16 = 1;

/// Number of attempts at a dump, because a change while it runs makes it invalid.
const DUMP_ATTEMPTS: usize = 8;

/// A netlink socket for requests.
#[derive(Debug)]
pub(crate) struct Requests {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// Opens a socket of `protocol` (one of `netlink_sys::protocols`) that receives the multicast `groups`, in the calling
/// thread's network namespace.
pub(crate) fn open_socket(protocol: isize, groups: u32) -> Result<Socket, NetdevError> {
    let failed = |operation| move |source| NetdevError::Socket { operation, source };
    let mut socket = Socket::new(protocol).map_err(failed("open"))?;
    socket.bind(&SocketAddr::new(0, groups)).map_err(failed("bind"))?;
    // Errors are ignored: the options only improve messages, and kernels before 4.12 lack them.
    let _ = socket.set_ext_ack(true);
    let _ = socket.set_cap_ack(true);
    Ok(socket)
}

/// Receives one datagram into `buffer` and returns its length. `Err` with [`Errno::MSGSIZE`] if it was longer.
fn receive(socket: &Socket, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let (kept, length) =
        rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut *buffer, RecvFlags::TRUNC))?;
    if length > kept { Err(Errno::MSGSIZE) } else { Ok(kept) }
}

/// A socket that receives the kernel's notices to multicast groups.
pub(crate) struct Notices {
    pub(crate) socket: Socket,
    buffer: Vec<u8>,
}

impl Notices {
    /// Begins to receive by this socket.
    pub(crate) fn by(socket: Socket) -> Result<Self, NetdevError> {
        let set = socket.set_non_blocking(true);
        set.map_err(|source| NetdevError::Socket { operation: "set up", source })?;
        Ok(Self { socket, buffer: vec![0; RECEIVE_BYTES] })
    }

    /// Passes each pending message to `each`, oldest first, and `None` where messages were lost. Never blocks.
    pub(crate) fn pending(&mut self, mut each: impl FnMut(Option<&[u8]>)) -> Result<(), NetdevError> {
        loop {
            match receive(&self.socket, &mut self.buffer) {
                Ok(length) => messages(self.buffer.get(..length).unwrap_or_default())
                    .for_each(|message| each(Some(message))),
                Err(Errno::AGAIN) => return Ok(()),
                // NOBUFS: the socket's queue was full. MSGSIZE: the message was longer than expected.
                Err(Errno::NOBUFS | Errno::MSGSIZE) => each(None),
                Err(errno) => {
                    return Err(NetdevError::Socket { operation: "read from", source: errno.into() });
                }
            }
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notices").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Messages of a datagram, each as its bytes. Ends at a truncated message.
fn messages(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = NetlinkBuffer::new_checked(rest).ok()?.length() as usize;
        let message = rest.get(..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

impl Requests {
    pub(crate) fn open(protocol: isize) -> Result<Self, NetdevError> {
        Ok(Self { socket: open_socket(protocol, 0)?, sequence: 0, buffer: vec![0; RECEIVE_BYTES] })
    }

    /// Requests that dumps contain only entries that match the attributes of the request. Kernels before 4.20 ignore
    /// this, so there the answers contain all entries.
    pub(crate) fn with_filtered_dumps(self) -> Self {
        let _ = self.socket.set_netlink_get_strict_chk(true);
        self
    }

    /// Sends `request` and collects its answers until the kernel has acknowledged it. `operation` names its purpose and
    /// follows "cannot" in errors. `flags` are `NLM_F_*` beyond `NLM_F_REQUEST`.
    pub(crate) fn ask<M>(
        &mut self,
        request: impl Into<NetlinkPayload<M>>,
        flags: u16,
        operation: &dyn Fn() -> String,
    ) -> Result<Vec<M>, NetdevError>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Debug,
    {
        let payload = request.into();
        let dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.header.flags = NLM_F_REQUEST | flags | if dump { 0 } else { NLM_F_ACK };
        let mut attempt = 1;
        loop {
            let (answers, interrupted) = self.ask_once(&mut message, operation)?;
            if !interrupted || attempt == DUMP_ATTEMPTS {
                return Ok(answers);
            }
            attempt += 1;
        }
    }

    fn ask_once<M>(
        &mut self,
        request: &mut NetlinkMessage<M>,
        operation: &dyn Fn() -> String,
    ) -> Result<(Vec<M>, bool), NetdevError>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Debug,
    {
        let odd = |reason: String| NetdevError::Answer { operation: operation(), reason };
        self.sequence += 1;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket
            .send(&bytes, 0)
            .map_err(|source| NetdevError::Socket { operation: "write to", source })?;

        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            let length = receive(&self.socket, &mut self.buffer)
                .map_err(|errno| NetdevError::Socket { operation: "read from", source: errno.into() })?;
            for bytes in messages(self.buffer.get(..length).unwrap_or_default()) {
                let answer =
                    NetlinkMessage::<M>::deserialize(bytes).map_err(|error| odd(error.to_string()))?;
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                let flags = answer.header.flags;
                interrupted |= flags & NLM_F_DUMP_INTR != 0;
                let refused = |code: i32, kernel_message| NetdevError::Refused {
                    operation: operation(),
                    source: Errno::from_raw_os_error(code.saturating_neg()),
                    kernel_message,
                };
                match answer.payload {
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok((answers, interrupted)),
                        Some(code) => return Err(refused(code.get(), explanation(&error, flags))),
                    },
                    NetlinkPayload::Done(done) if done.code < 0 => return Err(refused(done.code, None)),
                    NetlinkPayload::Done(_) => return Ok((answers, interrupted)),
                    NetlinkPayload::Overrun(_) => return Err(odd("it ran over".to_owned())),
                    _ => {}
                }
            }
        }
    }
}

/// The kernel's explanation in a refusal. Its attribute follows the quoted request, of which the refusal has all or
/// only the header.
fn explanation(error: &ErrorMessage, flags: u16) -> Option<String> {
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let quoted = NetlinkBuffer::new(&error.header);
    let length =
        if flags & NLM_F_CAPPED != 0 || error.header.len() < 16 { 16 } else { quoted.length() as usize };
    let attributes = error.header.get(length.next_multiple_of(4)..)?;
    let text = NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == ERROR_TEXT)?;
    parse_string(text.value()).ok()
}
