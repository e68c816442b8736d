//! Passing of bytes and descriptors over a UNIX socket, without blocking.
//!
//! Received descriptors are close-on-exec from the start and owned at once, so that none leaks on any path. A signal
//! never shows as an error; a full or empty socket shows as [`io::ErrorKind::WouldBlock`]; a peer that is gone shows as
//! [`io::ErrorKind::BrokenPipe`] without the signal.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringroad_ring::geometry::MAX_QUEUES;
use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Maximum number of descriptors with one reply: a region, and two eventfds for each queue of a port with the maximum
/// number of queues.
pub const MAX_DESCRIPTORS: usize = 1 + 2 * (MAX_QUEUES as usize + MAX_HOST_QUEUES);
/// Maximum number of host queues of one port.
const MAX_HOST_QUEUES: usize = 16;

/// Result of one call of [`receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Bytes stored; 0 if the peer will send no more.
    pub bytes: usize,
    /// Whether the kernel dropped descriptors for which there was no room.
    pub descriptors_lost: bool,
}

/// Sends as much of `bytes` as the socket takes, with `descriptors` attached to the first byte, and returns the number
/// of bytes taken. If this number is not 0, the descriptors are sent.
///
/// # Errors
/// The errors of sendmsg(2), among them `WouldBlock` and `BrokenPipe`; `InvalidInput` for more than
/// [`MAX_DESCRIPTORS`].
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let attached = descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors));
    if descriptors.len() > MAX_DESCRIPTORS || !attached {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more descriptors than one message carries"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags))?)
}

/// Receives into `buffer`, and appends received descriptors to `descriptors`. There is room for [`MAX_DESCRIPTORS`].
///
/// # Errors
/// The errors of recvmsg(2), among them `WouldBlock`.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<ReceivedMessage> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = receive_message(socket, buffer, &mut control)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    Ok(received)
}

/// Receives into `buffer` without room for descriptors: the kernel drops all received descriptors, and reports this.
///
/// # Errors
/// The errors of recvmsg(2), among them `WouldBlock`.
pub fn receive_bytes(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<ReceivedMessage> {
    receive_message(socket, buffer, &mut RecvAncillaryBuffer::default())
}

fn receive_message(
    socket: impl AsFd,
    buffer: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
) -> io::Result<ReceivedMessage> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(buffer)], control, flags))?;
    Ok(ReceivedMessage {
        bytes: message.bytes,
        descriptors_lost: message.flags.contains(ReturnFlags::CTRUNC),
    })
}

#[cfg(test)]
mod tests;
