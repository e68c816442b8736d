//! The tx side of a queue: frames onto the tx ring, by reference or by copy, and buffers back off the completion ring.
#![allow(unsafe_code)]

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{Fragment, Gather};
use ringroad_ring::shared::prefetch_write;
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::{Interface, PREFETCH_FRAMES, XdpQueue};

/// Most descriptors of a frame to send: what the kernel builds a packet of (`MAX_SKB_FRAGS` of linux/skbuff.h, 17).
pub(super) const MAX_TX_DESCRIPTORS: usize = 17;
/// Calls for one batch at most. Usually it takes one, or one for 32 frames on a kernel without `XDP_MAX_TX_SKB_BUDGET`; one
/// per frame where the device drops them all.
const MAX_KICKS: u32 = 2 * BATCH_FRAMES as u32;

impl XdpQueue {
    /// Takes what the kernel is done with off the completion ring.
    #[inline]
    pub(super) fn reap(&mut self) {
        let count = self.socket.completion.refresh();
        if count == 0 {
            return;
        }
        for ahead in 0..count {
            if let Some(address) = self.socket.completion.peek(ahead)
                && let Some(buffer) = self.umem.buffer_at(address)
            {
                self.ledger.complete(buffer);
            }
        }
        self.socket.completion.take(count);
        self.socket.completion.publish();
    }

    /// Has the kernel send what is on the tx ring; number of calls.
    pub(super) fn kick(&mut self) -> u32 {
        let mut untaken = self.socket.tx.untaken();
        for kick in 1..=MAX_KICKS {
            match self.socket.send() {
                Ok(()) => self.interface = Interface::Up,
                Err(Errno::NXIO | Errno::NODEV) => {
                    self.interface = Interface::Gone;
                    self.unsent = false;
                    self.ledger.abandon();
                    return kick;
                }
                Err(Errno::NETDOWN) => {
                    self.stop();
                    return kick;
                }
                // The device dropped the frame, and the kernel went no further: for want of a carrier, or since the other
                // end of a veth did not keep up.
                Err(Errno::BUSY) if !self.attachment.link.may_send() => {
                    self.stop();
                    return kick;
                }
                // More is on the ring than one call sends, there is no room for completions, or the kernel is short of memory.
                Err(_) => {}
            }
            self.reap();
            let left = self.socket.tx.untaken();
            // The driver of a zero-copy interface goes on by itself.
            self.unsent = left > 0 && !self.attachment.zero_copy;
            if !self.unsent || left == untaken {
                return kick;
            }
            untaken = left;
        }
        MAX_KICKS
    }

    /// The interface is down. What waits on the tx ring is sent when it is up again; lent buffers are not held until then:
    /// their frames move to buffers of ours.
    #[cold]
    fn stop(&mut self) {
        self.interface = Interface::Down;
        self.unsent = false;
        if self.attachment.zero_copy {
            return;
        }
        let (umem, ledger) = (&self.umem, &mut self.ledger);
        let move_out = |descriptor: XdpDesc| {
            let lent = umem.buffer_at(descriptor.addr).filter(|&buffer| ledger.is_lent(buffer));
            let Some(lent) = lent else { return Some(descriptor) };
            let own = ledger.take()?;
            let len = descriptor.len as usize;
            umem.bytes(own, len).copy_from(&umem.bytes(lent, len));
            ledger.complete(lent);
            Some(XdpDesc { addr: umem.address(own), ..descriptor })
        };
        // SAFETY: in copy mode the kernel reads the tx ring only when this queue calls it, and it serves one thread.
        unsafe { self.socket.tx.change_untaken(move_out) };
    }

    /// Room on the tx ring, with completions reaped and the kernel called where it does not reach `wanted`.
    pub(super) fn tx_room(&mut self, wanted: u32) -> u32 {
        let free = self.socket.tx.free(wanted);
        if free >= wanted && self.ledger.free() >= wanted as usize {
            return free;
        }
        self.reap();
        let free = self.socket.tx.free(wanted);
        if free >= wanted && self.ledger.free() >= wanted as usize {
            return free;
        }
        self.socket.tx.publish();
        self.kick();
        self.socket.tx.free(wanted)
    }

    /// Whether frames can be sent. Where they could not, the kernel is asked again, once per batch.
    pub(super) fn is_up(&mut self) -> bool {
        if self.interface == Interface::Down && self.attachment.link.may_send() {
            self.kick();
        }
        self.interface == Interface::Up
    }

    #[inline]
    fn put(&mut self, buffer: u32, len: usize, more: bool) {
        let options = if more { XdpDescOptions::XDP_PKT_CONTD } else { XdpDescOptions::empty() };
        self.socket.tx.put(XdpDesc { addr: self.umem.address(buffer), len: len as u32, options });
    }

    /// Whether the kernel takes these fragments as they lie.
    #[inline]
    pub(super) fn fits_in_place(&self, batch: &Batch, frame: usize) -> bool {
        let range = batch.fragments_of(frame);
        let single = range.len() == 1;
        (single || (self.attachment.multi_buffer && range.len() <= MAX_TX_DESCRIPTORS))
            && range.into_iter().all(|fragment| {
                let len = batch.fragment(fragment).map_or(0, Fragment::len);
                len > 0 && len <= self.umem.capacity() && self.umem.has(batch.buffer(fragment))
            })
    }

    /// Puts the buffers of a frame themselves on the tx ring: `keep` exchanges them for free ones of ours.
    #[inline]
    pub(super) fn put_in_place(
        &mut self,
        batch: &mut Batch,
        frame: usize,
        keep: bool,
    ) -> Result<(), DropCause> {
        let range = batch.fragments_of(frame);
        let needed = range.len();
        if (self.socket.tx.free(needed as u32) as usize) < needed || (keep && self.ledger.free() < needed) {
            return Err(DropCause::NoSpace);
        }
        let last = range.end.saturating_sub(1);
        for fragment in range {
            let buffer = batch.buffer(fragment);
            let len = batch.fragment(fragment).map_or(0, Fragment::len);
            if keep {
                let Some(own) = self.ledger.take() else { return Err(DropCause::NoSpace) };
                batch.exchange(fragment, own);
            } else {
                self.ledger.lend(buffer);
            }
            self.put(buffer, len, fragment != last);
        }
        Ok(())
    }

    /// Copies a frame into free buffers of ours.
    #[inline]
    pub(super) fn put_copy(&mut self, fragments: &[Fragment], total: usize) -> Result<(), DropCause> {
        let capacity = self.umem.capacity();
        if let [single] = fragments
            && total <= capacity
        {
            if self.socket.tx.free(1) == 0 {
                return Err(DropCause::NoSpace);
            }
            if let Some(ahead) = self.ledger.peek(PREFETCH_FRAMES as usize) {
                prefetch_write(self.umem.start(self.umem.address(ahead)));
            }
            let Some(buffer) = self.ledger.take() else { return Err(DropCause::NoSpace) };
            self.umem.bytes(buffer, total).copy_from(&single.bytes());
            self.put(buffer, total, false);
            return Ok(());
        }
        self.put_long_copy(fragments, total)
    }

    /// Copies a frame of several fragments, or one that needs several buffers.
    fn put_long_copy(&mut self, fragments: &[Fragment], total: usize) -> Result<(), DropCause> {
        let capacity = self.umem.capacity();
        let needed = total.div_ceil(capacity).max(1);
        if needed > MAX_TX_DESCRIPTORS || (needed > 1 && !self.attachment.multi_buffer) {
            return Err(DropCause::TooLong);
        }
        if (self.socket.tx.free(needed as u32) as usize) < needed || self.ledger.free() < needed {
            return Err(DropCause::NoSpace);
        }
        let mut gather = Gather::new(fragments.iter());
        for piece in 0..needed {
            let Some(buffer) = self.ledger.take() else { return Err(DropCause::NoSpace) };
            let len = (total - piece * capacity).min(capacity);
            gather.fill(self.umem.bytes(buffer, len));
            self.put(buffer, len, piece + 1 < needed);
        }
        Ok(())
    }
}
