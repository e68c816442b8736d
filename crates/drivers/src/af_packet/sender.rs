//! Sending on a packet socket: the frames of a batch with one `sendmmsg`, without a copy, past the queueing discipline
//! (`PACKET_QDISC_BYPASS`).
//!
//! A transmit ring is not used: it would cost one more copy before the kernel's own, hold frames of one length, and not
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
use rustix::net::sockopt;

use super::socket;

/// Bytes that the kernel allocates for a frame beside its own: those around it, which are then rounded up, and those of
/// the buffer's description.
const AROUND_FRAME_BYTES: usize = 400;
const DESCRIPTION_BYTES: usize = 256;

/// Maximum number of bytes requested to be in flight.
const MOST_ON_THEIR_WAY_BYTES: usize = 8 << 20;
/// Number of frames: while there is certainly room for them, the kernel is not queried for the room.
const ENOUGH_FRAMES: usize = BATCH_FRAMES / 2;
/// Request for the bytes of frames that were sent and have not left.
const BYTES_ON_THEIR_WAY: Opcode = libc::TIOCOUTQ as Opcode;
/// Number of refusals by a full card that a batch survives; the next one drops the rest of the batch.
const PATIENCE: u32 = 4;

/// Approximate charge of the kernel to the sender for a frame of `frame_bytes` bytes.
fn charge(frame_bytes: usize) -> usize {
    (frame_bytes + AROUND_FRAME_BYTES).next_power_of_two() + DESCRIPTION_BYTES
}

/// Maximum charge for `frames` frames of `bytes` bytes in total. Rounding up to a power of two less than doubles a
/// size.
fn most_charged(frames: usize, bytes: usize) -> usize {
    2 * (frames * AROUND_FRAME_BYTES + bytes) + frames * DESCRIPTION_BYTES
}

/// Part without bytes, of a frame that does not exist.
const NO_PART: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Address and length of a fragment.
#[inline]
fn part(fragment: &Fragment) -> libc::iovec {
    libc::iovec { iov_base: fragment.bytes().as_ptr().cast(), iov_len: fragment.len() }
}

/// Message with a frame of `count` parts.
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

/// Frames for the kernel, and the addresses of their parts.
#[derive(Debug)]
struct Messages {
    messages: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
}

// SAFETY: the pointers to parts point into the list of the same value; those to fragments are set and used within one
// call.
unsafe impl Send for Messages {}

impl Messages {
    /// A message for each frame of a batch, which always has the part with its own index.
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

    /// Messages for the frames with the indexes `frames`: at most [`BATCH_FRAMES`], of one fragment each.
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

    /// Messages for the frames with the indexes `frames`, of any number of fragments.
    #[inline(never)]
    fn gather(&mut self, batch: &Batch, frames: &[u16]) -> &mut [libc::mmsghdr] {
        self.parts.clear();
        self.messages.clear();
        for &frame in frames {
            self.parts.extend(batch.frame(usize::from(frame)).iter().map(part));
        }
        // Pointers to parts are taken only after the list is complete, because it could move before.
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
    /// Maximum length of a frame on the interface, bytes.
    max_frame_bytes: usize,
    /// Maximum number of bytes in flight (`SO_SNDBUF`).
    limit_bytes: usize,
    /// Upper bound of the bytes in flight.
    on_their_way_bytes: usize,
    /// Messages for batches of single fragments, and for other batches.
    singles: Messages,
    gathered: Messages,
}

impl Sender {
    /// Opens a sender for interface `ifindex`, whose frames have up to `max_frame_bytes` bytes.
    pub(super) fn open(ifindex: u32, max_frame_bytes: usize) -> Result<Self> {
        let socket = socket::open()?;
        socket::bind(&socket, ifindex, 0)?;
        socket::set(&socket, libc::PACKET_QDISC_BYPASS, &1i32)?;
        // The buffer holds a whole batch, so that one call sends it. If the kernel allows less, a batch takes several
        // calls. The kernel doubles the requested size.
        let wanted = (BATCH_FRAMES * charge(max_frame_bytes)).min(MOST_ON_THEIR_WAY_BYTES);
        if sockopt::socket_send_buffer_size(&socket)? < wanted {
            // The forced size exceeds the system's limit, if that is permitted. A smaller buffer is enough, so errors
            // are ignored.
            let _ = sockopt::set_socket_send_buffer_size_force(&socket, wanted / 2)
                .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, wanted / 2));
        }
        let limit_bytes = sockopt::socket_send_buffer_size(&socket)?;
        Ok(Self {
            socket,
            max_frame_bytes,
            limit_bytes,
            on_their_way_bytes: 0,
            singles: Messages::of_one_part(),
            gathered: Messages::of_several_parts(),
        })
    }

    /// Number of frames of `frame_bytes` bytes for which there is room now.
    pub(super) fn room(&mut self, frame_bytes: usize) -> usize {
        // Longer frames are refused, and counted, even if there is room.
        let charge = charge(frame_bytes.min(self.max_frame_bytes));
        if self.limit_bytes < self.on_their_way_bytes + ENOUGH_FRAMES * charge && self.on_their_way_bytes != 0
        {
            // SAFETY: the request writes a C `int`.
            let request = unsafe { Getter::<BYTES_ON_THEIR_WAY, libc::c_int>::new() };
            // SAFETY: as above.
            let asked = unsafe { ioctl(&self.socket, request) };
            // If the kernel does not report the bytes, deliver finds the reason and counts the frames.
            self.on_their_way_bytes = asked.map_or(0, |bytes| bytes.max(0) as usize);
        }
        self.limit_bytes.saturating_sub(self.on_their_way_bytes) / charge
    }

    /// Sends the frames of `batch` with the indexes `frames` on the interface of `link`.
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

/// Sends `messages`, which are the frames of `batch` with the indexes `frames`.
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
        // The kernel takes no partial frames, so all bytes of these frames are sent.
        delivery.bytes += batch.bytes_of_listed(taken);
        done += sent;
        if done < frames.len() {
            // The socket keeps the error of the refused frame for the next call, which would attribute it to another
            // frame.
            let _ = sockopt::socket_error(socket);
        }
    }
}

/// Passes `messages` to the kernel. Returns how many it took, or `None` if it refused the first, with the reason in
/// `errno`.
#[inline]
fn send_some(socket: &OwnedFd, messages: &mut [libc::mmsghdr]) -> Option<usize> {
    let (number, socket, count) = (libc::SYS_sendmmsg, socket.as_raw_fd(), messages.len() as libc::c_uint);
    // The system call is made directly: the work of the C library's function for thread cancellation costs more than
    // the rest of this function. SAFETY: `count` messages, whose parts name borrowed fragments that the kernel reads.
    let sent = unsafe { libc::syscall(number, socket, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
    sent.try_into().ok()
}

/// Frames to send after a refusal.
enum Next {
    Again,
    /// The frames after the refused one.
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
    /// Finds the reason why the kernel refused the first of `frames` just now, and counts the frames dropped for it.
    #[cold]
    fn judge(&mut self, batch: &Batch, frames: &[u16], link: &LinkWatch, delivery: &mut Delivery) -> Next {
        let left = frames.len() as u32;
        let len = frames.first().map_or(0, |&frame| batch.frame_bytes(usize::from(frame)));
        let (cause, dropped) = match Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::EINTR => return Next::Again,
            // The kernel reports an interface that was down in between once more after it is up again.
            libc::ENETDOWN if !self.was_down => {
                self.was_down = true;
                return Next::Again;
            }
            libc::ENETDOWN | libc::ENXIO | libc::ENODEV => (DropCause::LinkDown, left),
            libc::EAGAIN => (DropCause::NoSpace, left),
            libc::ENOBUFS if !link.is_running() => (DropCause::LinkDown, left),
            libc::EMSGSIZE => (DropCause::TooLong, 1),
            libc::EINVAL if len < 14 => (DropCause::TooShort, 1),
            // The card's queue is full, or the kernel is short of memory.
            _ if self.count == PATIENCE => (DropCause::NoSpace, left),
            errno => {
                // ENOBUFS can also mean a lost carrier of which the kernel has not notified yet.
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
