//! Sending on a packet socket: the frames of a batch with one `sendmmsg`, from where they lie, past the queueing
//! discipline (`PACKET_QDISC_BYPASS`).
//!
//! No transmit ring: it would cost a copy of ours before the kernel makes its own, hold one length of frame, and not
//! report which frame was refused.
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};

use ringroad_netdev::LinkWatch;
use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::Delivery;
use ringroad_ring::layout::MAX_FRAGMENTS;
use rustix::ioctl::{Getter, Opcode, ioctl};

use super::socket;

/// What the kernel allocates for a frame beside its bytes: around them, then rounded up, and the buffer's description.
const AROUND_FRAME_BYTES: usize = 400;
const DESCRIPTION_BYTES: usize = 256;

/// Maximum number of bytes requested to be in flight.
const MOST_ON_THEIR_WAY_BYTES: usize = 8 << 20;
/// While there is certainly room for this many frames, the kernel is not queried for the room.
const ENOUGH_FRAMES: usize = BATCH_FRAMES / 2;
/// Requests the bytes of frames that were sent and have not left.
const BYTES_ON_THEIR_WAY: Opcode = libc::TIOCOUTQ as Opcode;
/// How often within a batch a full card is retried before the rest is dropped.
const PATIENCE: u32 = 4;

/// About what the kernel charges the sender for a frame of this many bytes.
fn charge(frame_bytes: usize) -> usize {
    (frame_bytes + AROUND_FRAME_BYTES).next_power_of_two() + DESCRIPTION_BYTES
}

/// The most that it charges for `frames` frames of `bytes` bytes in all: rounding up to a power of two less than
/// doubles a size.
fn most_charged(frames: usize, bytes: usize) -> usize {
    2 * (frames * AROUND_FRAME_BYTES + bytes) + frames * DESCRIPTION_BYTES
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

/// Frames for the kernel, and where their parts lie.
#[derive(Debug)]
struct Messages {
    messages: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
}

// SAFETY: the pointers to parts lead into the same value's own list; those to fragments are set and used within one
// call.
unsafe impl Send for Messages {}

impl Messages {
    /// A message for each frame of a batch, whose part is the one of the same number for ever.
    fn of_one_part() -> Self {
        let mut parts = vec![NO_PART; BATCH_FRAMES];
        let messages = parts.iter_mut().map(|part| message(part, 1)).collect();
        Self { messages, parts }
    }

    fn of_several_parts() -> Self {
        Self {
            messages: Vec::with_capacity(BATCH_FRAMES),
            parts: Vec::with_capacity(BATCH_FRAMES + MAX_FRAGMENTS),
        }
    }

    /// The frames that `frames` names, at most [`BATCH_FRAMES`] of one fragment each, in messages of one part.
    #[inline(never)]
    fn point_at(&mut self, batch: &Batch, frames: &[u16]) -> &mut [libc::mmsghdr] {
        let all = batch.fragments();
        if batch.is_whole(frames) {
            for (slot, fragment) in self.parts.iter_mut().zip(all) {
                *slot = part(fragment);
            }
        } else {
            for (slot, &frame) in self.parts.iter_mut().zip(frames) {
                *slot = all.get(usize::from(frame)).map_or(NO_PART, part);
            }
        }
        self.messages.get_mut(..frames.len()).unwrap_or(&mut [])
    }

    /// The frames that `frames` names, of any number of fragments.
    #[inline(never)]
    fn gather(&mut self, batch: &Batch, frames: &[u16]) -> &mut [libc::mmsghdr] {
        self.parts.clear();
        self.messages.clear();
        for &frame in frames {
            self.parts.extend(batch.frame(usize::from(frame)).iter().map(part));
        }
        // Pointers to parts are taken only now that the list does not move any more.
        let mut rest = self.parts.as_mut_slice();
        for &frame in frames {
            let count = batch.frame(usize::from(frame)).len();
            let (own, others) = rest.split_at_mut(count);
            rest = others;
            self.messages.push(message(own.as_mut_ptr(), count));
        }
        &mut self.messages
    }
}

/// Sends frames on one interface.
#[derive(Debug)]
pub(super) struct Sender {
    socket: OwnedFd,
    /// Longest frame that the interface takes.
    max_frame_bytes: usize,
    /// Bytes that may be on their way (`SO_SNDBUF`).
    limit_bytes: usize,
    /// Bytes that are on their way at most.
    on_their_way_bytes: usize,
    /// For frames of one fragment, and for others.
    singles: Messages,
    gathered: Messages,
}

impl Sender {
    /// For interface `ifindex`, which takes frames of up to `max_frame_bytes` bytes.
    pub(super) fn open(ifindex: u32, max_frame_bytes: usize) -> Result<Self> {
        let socket = socket::open()?;
        socket::bind(&socket, ifindex, 0)?;
        socket::set(&socket, libc::PACKET_QDISC_BYPASS, &1i32)?;
        // So that a batch goes in one call; where the kernel allows less, a batch takes several. It doubles what it is
        // given.
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
            singles: Messages::of_one_part(),
            gathered: Messages::of_several_parts(),
        })
    }

    /// Frames of `frame_bytes` bytes for which there is room now.
    pub(super) fn room(&mut self, frame_bytes: usize) -> usize {
        // Longer frames are refused, and counted, even if there is room.
        let charge = charge(frame_bytes.min(self.max_frame_bytes));
        if self.limit_bytes < self.on_their_way_bytes + ENOUGH_FRAMES * charge && self.on_their_way_bytes != 0
        {
            // SAFETY: the request writes a C `int`.
            let request = unsafe { Getter::<BYTES_ON_THEIR_WAY, libc::c_int>::new() };
            // SAFETY: and does no more.
            let asked = unsafe { ioctl(&self.socket, request) };
            // If the kernel does not report it, deliver finds the reason, and counts.
            self.on_their_way_bytes = asked.map_or(0, |bytes| bytes.max(0) as usize);
        }
        self.limit_bytes.saturating_sub(self.on_their_way_bytes) / charge
    }

    /// Sends the frames of `batch` that `frames` names on the interface of `link`.
    pub(super) fn send(&mut self, batch: &Batch, frames: &[u16], link: &LinkWatch) -> Delivery {
        let mut delivery = Delivery::default();
        for some in frames.chunks(BATCH_FRAMES) {
            let messages = match batch.is_single() {
                true => self.singles.point_at(batch, some),
                false => self.gathered.gather(batch, some),
            };
            send_messages(&self.socket, messages, batch, some, link, &mut delivery);
        }
        self.on_their_way_bytes += most_charged(delivery.frames as usize, delivery.bytes as usize);
        delivery
    }
}

/// Sends `messages`, which are the frames of `batch` that `frames` names.
fn send_messages(
    socket: &OwnedFd,
    messages: &mut [libc::mmsghdr],
    batch: &Batch,
    frames: &[u16],
    link: &LinkWatch,
    delivery: &mut Delivery,
) {
    let mut done = 0;
    let mut refusals = Refusals::default();
    while let Some(rest) = messages.get_mut(done..)
        && !rest.is_empty()
    {
        let Some(sent) = send_some(socket, rest) else {
            let rest = frames.get(done..).unwrap_or(&[]);
            match refusals.judge(batch, rest, link, delivery) {
                Next::Again => {}
                Next::Behind => done += 1,
                Next::Nothing => return,
            }
            continue;
        };
        let taken = frames.get(done..done + sent).unwrap_or(&[]);
        delivery.frames += sent as u32;
        // The kernel takes a frame whole or not at all.
        delivery.bytes += batch.bytes_of_listed(taken);
        done += sent;
        if done < frames.len() {
            // The refusal of the next frame is kept for the next call, which would blame another for it.
            let _ = rustix::net::sockopt::socket_error(socket);
        }
    }
}

/// Passes `messages` to the kernel; returns how many it took, or `None` if it refused the first, with the reason in
/// `errno`.
#[inline]
fn send_some(socket: &OwnedFd, messages: &mut [libc::mmsghdr]) -> Option<usize> {
    let (number, socket, count) = (libc::SYS_sendmmsg, socket.as_raw_fd(), messages.len() as libc::c_uint);
    // Past the C library's own function, which does more for threads that are cancelled than all of this.
    // SAFETY: `count` messages, whose parts name borrowed fragments that the kernel reads.
    let sent = unsafe { libc::syscall(number, socket, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
    sent.try_into().ok()
}

/// What to send after a refusal.
enum Next {
    Again,
    /// The frames behind the one that was refused.
    Behind,
    Nothing,
}

/// Refusals within a batch.
#[derive(Default)]
struct Refusals {
    was_down: bool,
    count: u32,
}

impl Refusals {
    /// Judges why the kernel refused the first of `frames` just now, and counts what is dropped for it.
    #[cold]
    fn judge(&mut self, batch: &Batch, frames: &[u16], link: &LinkWatch, delivery: &mut Delivery) -> Next {
        let left = frames.len() as u32;
        let len = frames.first().map_or(0, |&frame| batch.frame_bytes(usize::from(frame)));
        let (cause, dropped) = match Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::EINTR => return Next::Again,
            // An interface that was down in between is reported once after it is up again.
            libc::ENETDOWN if !self.was_down => {
                self.was_down = true;
                return Next::Again;
            }
            libc::ENETDOWN | libc::ENXIO | libc::ENODEV => (DropCause::LinkDown, left),
            libc::EAGAIN => (DropCause::NoSpace, left),
            libc::ENOBUFS if !link.is_running() => (DropCause::LinkDown, left),
            libc::EMSGSIZE => (DropCause::TooLong, 1),
            libc::EINVAL if len < 14 => (DropCause::TooShort, 1),
            // The card's queue is full, or the kernel short of memory.
            _ if self.count == PATIENCE => (DropCause::NoSpace, left),
            errno => {
                // So is a frame refused for lack of a carrier, of which the kernel has not notified yet.
                if errno == libc::ENOBUFS {
                    link.doubt();
                }
                self.count += 1;
                (DropCause::NoSpace, 1)
            }
        };
        delivery.dropped.add(cause, dropped);
        if dropped == left { Next::Nothing } else { Next::Behind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_counted_as_in_flight_are_no_less_than_bytes_charged() {
        for len in 14..=65535 {
            assert!(most_charged(1, len) >= charge(len), "{len}");
        }
    }
}
