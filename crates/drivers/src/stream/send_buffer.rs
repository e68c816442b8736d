//! Sends many frames by one call, and keeps the rest of a frame that the kernel took in part.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::Delivery;
use ringroad_ring::layout::MAX_FRAGMENTS;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::LENGTH_BYTES;
use crate::socket_frames::{self, MAX_FRAME_BYTES};

/// Maximum number of parts of one call: the rest of an earlier frame, and for each frame of a batch its length and its
/// bytes in one fragment.
const MAX_PARTS: usize = 1 + 2 * BATCH_FRAMES;

const _: () = assert!(MAX_PARTS > 1 + MAX_FRAGMENTS && MAX_PARTS <= 1024, "1024 is the kernel's UIO_MAXIOV");

type Length = [u8; LENGTH_BYTES];

/// The bytes that must be sent before the next frame.
#[derive(Debug)]
pub(super) struct SendBuffer(Vec<u8>);

impl SendBuffer {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(LENGTH_BYTES + MAX_FRAME_BYTES))
    }

    /// The rest of the frame that was sent in part.
    pub(super) fn rest(&self) -> &[u8] {
        &self.0
    }

    /// Takes over the rest that another process has left.
    pub(super) fn begin_with(&mut self, rest: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(rest);
    }

    pub(super) fn discard(&mut self) {
        self.0.clear();
    }

    /// Sends as much of the rest as there is room for. The reading side detects an end of the connection.
    pub(super) fn send_rest(&mut self, socket: BorrowedFd<'_>) {
        if let Ok(bytes) = send(socket, &[IoSlice::new(&self.0)]) {
            self.0.drain(..bytes.min(self.0.len()));
        }
    }

    /// Sends the frames of `batch` that `frames` names. The rest of a frame that the kernel takes in part is kept, and
    /// the frames behind it are dropped.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, batch: &Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        let mut unsent = frames;
        while let Some((&first, behind)) = unsent.split_first() {
            if let Err(cause) = length(batch.frame(first.into())) {
                delivery.dropped.add(cause, 1);
                unsent = behind;
                continue;
            }
            let mut lengths = [Length::default(); BATCH_FRAMES];
            let (burst, others) = unsent.split_at(prepare(batch, unsent, &mut lengths));
            let refused = match self.send_burst(socket, batch, burst, &lengths) {
                Ok(bytes) => self.count(batch, burst, &lengths, bytes, &mut delivery),
                Err(errno) => Some((socket_frames::drop_cause(errno), burst.len())),
            };
            unsent = others;
            if let Some((cause, count)) = refused {
                delivery.dropped.add(cause, (count + others.len()) as u32);
                break;
            }
        }
        delivery
    }

    /// Sends the rest, and frames behind it. Returns the number of bytes that the kernel took.
    fn send_burst(
        &self,
        socket: BorrowedFd<'_>,
        batch: &Batch,
        burst: &[u16],
        lengths: &[Length],
    ) -> Result<usize, Errno> {
        let frames = burst.iter().zip(lengths).flat_map(|(&frame, length)| {
            let fragments = batch.frame(frame.into()).iter().map(socket_frames::part);
            std::iter::once(IoSlice::new(length)).chain(fragments)
        });
        let mut parts = [IoSlice::new(&[]); MAX_PARTS];
        let mut count = 0;
        for (part, bytes) in parts.iter_mut().zip(std::iter::once(IoSlice::new(&self.0)).chain(frames)) {
            *part = bytes;
            count += 1;
        }
        send(socket, parts.get(..count).unwrap_or_default())
    }

    /// Counts the frames of a burst. The kernel took `bytes` bytes of the former rest and the burst together. Returns
    /// the number of frames that it refused, with the cause.
    fn count(
        &mut self,
        batch: &Batch,
        burst: &[u16],
        lengths: &[Length],
        mut bytes: usize,
        delivery: &mut Delivery,
    ) -> Option<(DropCause, usize)> {
        let of_rest = bytes.min(self.0.len());
        self.0.drain(..of_rest);
        bytes -= of_rest;
        for (number, (&frame, length)) in burst.iter().zip(lengths).enumerate() {
            if bytes == 0 {
                return Some((DropCause::NoSpace, burst.len() - number));
            }
            let frame_bytes = u32::from_be_bytes(*length) as usize;
            delivery.count(Ok(frame_bytes as u64));
            let sent = bytes.min(LENGTH_BYTES + frame_bytes);
            bytes -= sent;
            if sent < LENGTH_BYTES + frame_bytes {
                self.keep(*length, batch.frame(frame.into()), sent);
            }
        }
        // The next frame would be sent behind the rest by a call that the kernel refuses.
        (!self.0.is_empty()).then_some((DropCause::NoSpace, 0))
    }

    /// Keeps a frame behind its first `sent` bytes.
    fn keep(&mut self, length: Length, fragments: &[Fragment], sent: usize) {
        self.0.extend_from_slice(length.get(sent..).unwrap_or_default());
        let mut skipped = sent.saturating_sub(LENGTH_BYTES);
        for fragment in fragments {
            let rest = fragment.behind(skipped);
            skipped -= fragment.len() - rest.len();
            let at = self.0.len();
            self.0.resize(at + rest.len(), 0);
            rest.bytes().read(self.0.get_mut(at..).unwrap_or_default());
        }
    }
}

/// Writes the lengths of the first of `frames`, as many as one call can send. Returns their number.
fn prepare(batch: &Batch, frames: &[u16], lengths: &mut [Length]) -> usize {
    let mut parts = 1;
    let mut count = 0;
    for (&frame, into) in frames.iter().zip(lengths) {
        let fragments = batch.frame(frame.into());
        parts += 1 + fragments.len();
        let Ok(length) = length(fragments) else { break };
        if parts > MAX_PARTS {
            break;
        }
        *into = length;
        count += 1;
    }
    count
}

/// The length that goes before the frame of `fragments`.
fn length(fragments: &[Fragment]) -> Result<Length, DropCause> {
    let bytes: usize = fragments.iter().map(Fragment::len).sum();
    match bytes {
        0 => Err(DropCause::TooShort),
        1..=MAX_FRAME_BYTES if fragments.len() <= MAX_FRAGMENTS => Ok((bytes as u32).to_be_bytes()),
        _ => Err(DropCause::TooLong),
    }
}

fn send(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
            Err(Errno::INTR) => {}
            sent => return sent,
        }
    }
}
