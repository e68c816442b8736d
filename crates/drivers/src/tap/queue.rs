//! One queue of a TAP interface.
#![allow(unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringroad_netdev::{LinkProbe, LinkState, LinkWatch};
use ringroad_port::batch::{Batch, FrameMeta};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::offload::{LONGEST_UNFINISHED_BYTES, Unfinished, VIRTIO_HEADER_BYTES};
use ringroad_port::port_queue::{
    Delivery, Diagnose, FailedDirection, HandOver, PortQueue, QueueProperties, Sleep, Upgrade,
};
use ringroad_port::roles;
use ringroad_ring::layout::MAX_FRAGMENTS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::MAX_FRAME_BYTES;
use crate::sleep_watch::SleepWatch;

/// Maximum number of borrowed frames.
const BUFFERS: usize = 64;
/// Approximate maximum of borrowed bytes, so that they stay in the cache until they are delivered.
const BORROWED_BYTES: usize = 256 * 1024;
/// Length of an Ethernet frame of MTU 1500 with a VLAN tag, bytes.
const USUAL_FRAME_BYTES: usize = 1518;
/// Distance of buffers, bytes. A buffer has room for a header and a frame that is one byte too long. The distance is an
/// odd number of cache lines, so that the first lines of the buffers map to different cache sets. Pages that no frame
/// has touched take no memory.
const STRIDE_BYTES: usize = 1033 * 64;

const _: () = assert!(STRIDE_BYTES > VIRTIO_HEADER_BYTES + MAX_FRAME_BYTES + 1);

/// One queue of a TAP interface: a descriptor of /dev/net/tun.
#[derive(Debug)]
pub struct TapQueue {
    descriptor: OwnedFd,
    watch: SleepWatch,
    name: String,
    /// Whether frames may be unfinished.
    offloads: bool,
    arena: Vec<u8>,
    /// Index of the buffer that is filled next.
    next: usize,
    /// Number of borrowed buffers: the last `borrowed` ones before `next`.
    borrowed: usize,
    link: Arc<LinkWatch>,
    /// Probe for the drops of the whole interface, which only one queue has.
    probe: Option<LinkProbe>,
    known_drops: u64,
    /// Length of the longest expected frame, bytes: that of a usual frame, until a longer one comes.
    longest_bytes: usize,
    /// Number of frames too long for a slot.
    cut: u64,
    gone: bool,
    refusal: Option<i32>,
}

impl TapQueue {
    /// A queue of the interface called `name`.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub(super) fn new(
        descriptor: OwnedFd,
        name: String,
        offloads: bool,
        (link, probe): (Arc<LinkWatch>, Option<LinkProbe>),
    ) -> rustix::io::Result<Self> {
        let known_drops = probe.as_ref().and_then(drops).unwrap_or(0);
        Ok(Self {
            watch: SleepWatch::new(&descriptor)?,
            descriptor,
            name,
            offloads,
            arena: vec![0; BUFFERS * STRIDE_BYTES],
            next: 0,
            borrowed: 0,
            link,
            probe,
            known_drops,
            longest_bytes: USUAL_FRAME_BYTES,
            cut: 0,
            gone: false,
            refusal: None,
        })
    }

    /// Borrows waiting frames into `batch`.
    fn read(&mut self, batch: &mut Batch) {
        if self.borrowed == 0 {
            // The first buffers are still in the cache.
            self.next = 0;
        }
        let mut bytes = 0;
        while self.borrowed < BUFFERS && bytes < BORROWED_BYTES && batch.has_room(1) && !self.gone {
            let start = self.next * STRIDE_BYTES;
            let Some(buffer) = self.arena.get_mut(start..start + STRIDE_BYTES) else { return };
            let len = match rustix::io::read(&self.descriptor, buffer) {
                Ok(len) => len,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::BADFD) => {
                    self.gone = true;
                    return;
                }
                // No frame is waiting, or the kernel is short of memory for the moment.
                Err(_) => return,
            };
            let Some((header, frame)) = self
                .arena
                .get(start..start + len)
                .and_then(|read| read.split_at_checked(VIRTIO_HEADER_BYTES))
            else {
                continue;
            };
            if frame.len() > MAX_FRAME_BYTES {
                self.cut += 1;
                continue;
            }
            self.longest_bytes = self.longest_bytes.max(frame.len());
            // SAFETY: the arena is never resized and lives as long as the queue; this buffer is not written again
            // before `release` has counted it back.
            batch.push(unsafe { Fragment::from_private(frame, 0) }, true);
            let unfinished = Unfinished::from_header(header);
            if !unfinished.is_nothing() {
                batch.describe(FrameMeta { unfinished, ..FrameMeta::default() });
            }
            bytes += len;
            self.next = (self.next + 1) % BUFFERS;
            self.borrowed += 1;
        }
    }

    /// Writes the frame of `fragments`, with the unfinished work `unfinished`, and returns its length, bytes.
    fn write(&mut self, fragments: &[Fragment], unfinished: Unfinished) -> Result<u64, DropCause> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut parts = [nothing; MAX_FRAGMENTS + 1];
        let mut header = unfinished.to_header();
        parts[0] = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        if fragments.len() > MAX_FRAGMENTS {
            return Err(DropCause::TooLong);
        }
        let mut len = 0;
        for (part, fragment) in parts.iter_mut().skip(1).zip(fragments) {
            *part = libc::iovec { iov_base: fragment.bytes().as_ptr().cast(), iov_len: fragment.len() };
            len += fragment.len();
        }
        let longest = if unfinished.is_nothing() { MAX_FRAME_BYTES } else { LONGEST_UNFINISHED_BYTES };
        if len > longest {
            return Err(DropCause::TooLong);
        }
        let count = 1 + fragments.len();
        loop {
            // SAFETY: the first `count` parts name mapped bytes (a header on the stack, borrowed fragments), which the
            // kernel reads.
            let written =
                unsafe { libc::writev(self.descriptor.as_raw_fd(), parts.as_ptr(), count as libc::c_int) };
            if written >= 0 {
                return Ok(len as u64);
            }
            let code = Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(match code {
                libc::EINTR => continue,
                // The interface is set down.
                libc::EIO => DropCause::LinkDown,
                libc::EBADFD => {
                    self.gone = true;
                    DropCause::LinkDown
                }
                libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => DropCause::NoSpace,
                // The kernel requires an Ethernet header, and a length that fits into a socket buffer.
                libc::EINVAL if len < 14 => DropCause::TooShort,
                libc::EINVAL if !unfinished.is_nothing() => DropCause::BadOffload,
                libc::EINVAL | libc::EMSGSIZE => DropCause::TooLong,
                other => {
                    self.refusal = Some(other);
                    DropCause::WriteFailed
                }
            });
        }
    }
}

/// Number of frames that the interface dropped before transmission, since it was created.
fn drops(link: &LinkProbe) -> Option<u64> {
    link.query().ok().map(|link| link.statistics.tx_dropped)
}

impl PortQueue for TapQueue {
    fn properties(&mut self) -> QueueProperties {
        // Each frame takes a system call.
        QueueProperties { frame_cost: 16, take_cost: 16, ..QueueProperties::default() }
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.read(batch);
        self.watch.note_frames(&self.descriptor, batch.frames());
    }

    fn release(&mut self, fragments: usize) {
        self.borrowed = self.borrowed.saturating_sub(fragments);
    }

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery::default();
        for &frame in frames {
            let unfinished = batch.meta(usize::from(frame)).unfinished;
            delivery.count(self.write(batch.frame(usize::from(frame)), unfinished));
        }
        delivery
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.longest_bytes
    }

    fn takes_unfinished(&mut self) -> bool {
        self.offloads
    }

    roles! { sleeper: Sleep, upgrade: Upgrade, diagnosis: Diagnose }
}

impl Upgrade for TapQueue {
    fn hand_over(&mut self) -> Option<HandOver> {
        let descriptor = rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0).ok().filter(|_| !self.gone)?;
        Some(HandOver { numbers: Vec::new(), descriptors: vec![descriptor] })
    }
}

impl Sleep for TapQueue {
    fn has_waiting(&mut self) -> bool {
        let mut descriptors = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let ready =
            poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0);
        let found = descriptors.first().map_or(PollFlags::empty(), PollFd::revents);
        self.gone |= ready && found.contains(PollFlags::ERR);
        self.borrowed < BUFFERS && (ready || self.watch.has_failed()) && !self.gone
    }

    fn prepare_sleep(&mut self, sleeping: bool) {
        if sleeping && !self.gone {
            self.watch.begin(&self.descriptor);
        }
    }

    fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        // The descriptor of a deleted interface would be readable forever.
        (!self.gone).then(|| self.watch.descriptor())
    }

    fn drain_wake(&mut self) {
        // The cause of the wake-up may be the end of the interface instead of a frame.
        self.has_waiting();
    }
}

impl Diagnose for TapQueue {
    fn failure(&self, _way: FailedDirection) -> Option<String> {
        self.is_gone().then(|| LinkState::Gone.fault(&self.name)).flatten()
    }

    fn fault(&self) -> Option<String> {
        let name = &self.name;
        self.failure(FailedDirection::Either)
            .or_else(|| if self.link.is_up() { None } else { self.link.state().fault(name) })
            .or_else(|| {
                self.refusal.map(|code| format!("writing to {name}: {}", Error::from_raw_os_error(code)))
            })
    }

    fn is_gone(&self) -> bool {
        self.gone || self.link.state() == LinkState::Gone
    }

    fn missed_frames(&mut self) -> u64 {
        let cut = std::mem::take(&mut self.cut);
        let Some(link) = &self.probe else { return cut };
        // A deleted interface has no counter any more.
        let drops = drops(link).unwrap_or(self.known_drops);
        let missed = drops.saturating_sub(self.known_drops);
        self.known_drops = drops;
        missed + cut
    }
}
