//! Sending on a packet socket: the frames of a batch with one `sendmmsg`, from where they lie, past the queueing
//! discipline (`PACKET_QDISC_BYPASS`).
//!
//! No transmit ring: it would cost a copy of ours before the kernel makes its own, hold one length of frame, and not
//! tell which frame was refused.
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::Delivery;
use ringroad_ring::layout::MAX_FRAGMENTS;

use super::socket;

/// What the kernel allocates for a frame beside its bytes: around them, then rounded up, and the buffer's description.
const AROUND_FRAME_BYTES: usize = 400;
const DESCRIPTION_BYTES: usize = 256;

/// Most bytes that are asked for to be on their way.
const MOST_ON_THEIR_WAY_BYTES: usize = 8 << 20;
/// How often within a batch a full card is asked again before the rest is dropped.
const PATIENCE: u32 = 4;

/// What the kernel charges the sender of a frame of so many bytes, about.
fn charge(frame_bytes: usize) -> usize {
    (frame_bytes + AROUND_FRAME_BYTES).next_power_of_two() + DESCRIPTION_BYTES
}

/// Of a frame that is not there.
const NO_PART: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Where a fragment lies.
#[inline]
fn part(fragment: &Fragment) -> libc::iovec {
    libc::iovec { iov_base: fragment.bytes().as_ptr().cast(), iov_len: fragment.len() }
}

/// A frame of `count` parts.
#[inline]
fn message(parts: *mut libc::iovec, count: usize) -> libc::mmsghdr {
    let msg_hdr = libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: parts,
        msg_iovlen: count as _,
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    };
    libc::mmsghdr { msg_hdr, msg_len: 0 }
}

/// Sends frames on one interface.
#[derive(Debug)]
pub(super) struct Sender {
    socket: OwnedFd,
    /// Longest frame that the interface takes.
    max_frame_bytes: usize,
    /// Bytes that may be on their way (`SO_SNDBUF`).
    limit_bytes: usize,
    /// Bytes that are on their way at most; the kernel is asked only while there are some.
    on_their_way_bytes: usize,
    messages: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
}

// SAFETY: the pointers in `messages` and `parts` are set and used within one call only.
unsafe impl Send for Sender {}

impl Sender {
    /// For interface `ifindex`, which takes frames of up to `max_frame_bytes` bytes.
    pub(super) fn open(ifindex: u32, max_frame_bytes: usize) -> Result<Self> {
        let socket = socket::open()?;
        socket::bind(&socket, ifindex, 0)?;
        socket::set(&socket, libc::PACKET_QDISC_BYPASS, &1i32)?;
        // So that a batch goes in one call; where the kernel allows less, a batch takes several. It doubles what it is given.
        let wanted = (BATCH_FRAMES * charge(max_frame_bytes)).min(MOST_ON_THEIR_WAY_BYTES);
        if rustix::net::sockopt::socket_send_buffer_size(&socket)? < wanted {
            socket::set_send_buffer(&socket, (wanted / 2) as libc::c_int);
        }
        let limit_bytes = rustix::net::sockopt::socket_send_buffer_size(&socket)?;
        Ok(Self {
            socket,
            max_frame_bytes,
            limit_bytes,
            on_their_way_bytes: 0,
            messages: Vec::with_capacity(BATCH_FRAMES),
            parts: Vec::with_capacity(BATCH_FRAMES + MAX_FRAGMENTS),
        })
    }

    /// Frames of `frame_bytes` bytes for which there is room now.
    pub(super) fn room(&mut self, frame_bytes: usize) -> usize {
        if self.on_their_way_bytes != 0 {
            let mut waiting: libc::c_int = 0;
            // SAFETY: the request writes an `int`.
            let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
            // Where the kernel does not tell, deliver finds out why, and counts.
            self.on_their_way_bytes = if result < 0 { 0 } else { waiting.max(0) as usize };
        }
        // Longer frames are refused, and counted, whatever room there is.
        let frame_bytes = frame_bytes.min(self.max_frame_bytes);
        self.limit_bytes.saturating_sub(self.on_their_way_bytes) / charge(frame_bytes)
    }

    /// Sends the frames of `batch` that `frames` names. `is_running` tells, where the kernel takes not even the first,
    /// whether the interface has a link at all.
    pub(super) fn send(&mut self, batch: &Batch, frames: &[u16], is_running: impl Fn() -> bool) -> Delivery {
        let mut delivery = Delivery::default();
        for some in frames.chunks(BATCH_FRAMES) {
            if batch.is_single() {
                self.prepare_singles(batch, some);
            } else {
                self.prepare(batch, some);
            }
            self.send_prepared(batch, some, &is_running, &mut delivery);
        }
        delivery
    }

    /// As [`Self::prepare`], where each frame is one fragment.
    #[inline(never)]
    fn prepare_singles(&mut self, batch: &Batch, frames: &[u16]) {
        self.messages.clear();
        self.parts.clear();
        let fragments = frames.iter().map(|&frame| batch.fragment(frame.into()));
        self.parts.extend(fragments.map(|fragment| fragment.map_or(NO_PART, part)));
        // The list of parts does not move any more.
        let first = self.parts.as_mut_ptr();
        self.messages.extend((0..frames.len()).map(|place| message(first.wrapping_add(place), 1)));
    }

    fn prepare(&mut self, batch: &Batch, frames: &[u16]) {
        self.parts.clear();
        self.messages.clear();
        for &frame in frames {
            for fragment in batch.frame(usize::from(frame)) {
                self.parts.push(part(fragment));
            }
        }
        // Pointers to parts are taken only now that the list does not move any more.
        let mut rest = self.parts.as_mut_slice();
        for &frame in frames {
            let count = batch.frame(usize::from(frame)).len();
            let (own, others) = rest.split_at_mut(count);
            rest = others;
            self.messages.push(message(own.as_mut_ptr(), count));
        }
    }

    fn send_prepared(
        &mut self,
        batch: &Batch,
        frames: &[u16],
        is_running: &impl Fn() -> bool,
        delivery: &mut Delivery,
    ) {
        let mut done = 0;
        let (mut retried, mut refusals) = (false, 0);
        while let Some(rest) = self.messages.get_mut(done..)
            && !rest.is_empty()
        {
            let count = rest.len() as libc::c_uint;
            // SAFETY: `count` messages, whose parts name borrowed fragments that the kernel reads.
            let sent = unsafe {
                libc::sendmmsg(self.socket.as_raw_fd(), rest.as_mut_ptr(), count, libc::MSG_DONTWAIT)
            };
            if sent >= 0 {
                let (mut bytes, mut charged) = (0, 0);
                for message in rest.iter().take(sent as usize) {
                    // The kernel says how many bytes it took.
                    bytes += u64::from(message.msg_len);
                    charged += charge(message.msg_len as usize);
                }
                delivery.bytes += bytes;
                self.on_their_way_bytes += charged;
                delivery.frames += sent as u32;
                done += sent as usize;
                if done < frames.len() {
                    // The refusal of the next frame is kept for the next call, which would blame another for it.
                    let _ = rustix::net::sockopt::socket_error(&self.socket);
                }
                continue;
            }
            let left = rest.len() as u32;
            let code = Error::last_os_error().raw_os_error().unwrap_or(0);
            let len: usize = frames
                .get(done)
                .map_or(0, |&frame| batch.frame(usize::from(frame)).iter().map(|part| part.len()).sum());
            match code {
                libc::EINTR => continue,
                // An interface that was down in between is reported once after it is up again.
                libc::ENETDOWN if !retried => {
                    retried = true;
                    continue;
                }
                libc::ENETDOWN | libc::ENXIO | libc::ENODEV => {
                    return delivery.dropped.add(DropCause::LinkDown, left);
                }
                libc::EAGAIN => return delivery.dropped.add(DropCause::NoSpace, left),
                libc::ENOBUFS if refusals == 0 && delivery.frames == 0 && !is_running() => {
                    return delivery.dropped.add(DropCause::LinkDown, left);
                }
                libc::EMSGSIZE => delivery.dropped.add(DropCause::TooLong, 1),
                libc::EINVAL if len < 14 => delivery.dropped.add(DropCause::TooShort, 1),
                // The card's queue is full, or the kernel short of memory.
                _ if refusals == PATIENCE => return delivery.dropped.add(DropCause::NoSpace, left),
                _ => {
                    refusals += 1;
                    delivery.dropped.add(DropCause::NoSpace, 1);
                }
            }
            done += 1;
        }
    }
}
