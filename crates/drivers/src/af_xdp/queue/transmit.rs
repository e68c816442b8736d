//! The tx side of a queue: frames onto the tx ring, by reference or by copy, and buffers back off the completion ring.
#![allow(unsafe_code)]

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::{ETHERNET_HEADER_BYTES, Fragment, Gather};
use ringroad_port::port_queue::Delivery;
use ringroad_ring::shared::{SlotWord, prefetch_write};
use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::super::rings::ProducerRing;
use super::{Interface, PREFETCH_FRAMES, Umem, XdpQueue, XdpSocket};

/// Most descriptors of a frame to send: what the kernel builds a packet of (`MAX_SKB_FRAGS` of linux/skbuff.h, 17).
pub(super) const MAX_TX_DESCRIPTORS: usize = 17;
/// Calls for one batch at most. Usually it takes one, or one for 32 frames on a kernel without `XDP_MAX_TX_SKB_BUDGET`;
/// one per frame where the device drops them all.
const MAX_KICKS: u32 = 2 * BATCH_FRAMES as u32;

impl XdpQueue {
    /// Takes what the kernel is done with off the completion ring.
    #[inline]
    pub(super) fn reap(&mut self) {
        let count = self.socket.completion.refresh();
        if count == 0 {
            return;
        }
        let Self { socket: XdpSocket { completion, .. }, umem, ledger, .. } = self;
        // All up to where the ring begins anew, then the others.
        for _ in 0..2 {
            let mut run = completion.run(count);
            let taken = run.len() as u32;
            while !run.is_empty() {
                // The lent ones come back in order, but where others go by them or ours lie between them.
                let done = ledger.complete_in_order(run);
                let Some((&address, others)) = run.get(done..).and_then(<[u64]>::split_first) else { break };
                if let Some(buffer) = umem.buffer_at(address) {
                    ledger.complete(buffer);
                }
                run = others;
            }
            completion.take(taken);
        }
        completion.publish();
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
                // The device dropped the frame, and the kernel went no further: for want of a carrier, or since the
                // other end of a veth did not keep up.
                Err(Errno::BUSY) if !self.attachment.link.may_send() => {
                    self.stop();
                    return kick;
                }
                // More is on the ring than one call sends, there is no room for completions, or the kernel is short of
                // memory.
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

    /// The interface is down. What waits on the tx ring is sent when it is up again; lent buffers are not held until
    /// then: their frames move to buffers of ours.
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

    /// Puts frames of one fragment each that fit in one buffer, as nearly all do, up to the first that is anything else
    /// or for which there is no room. Returns their number.
    #[inline]
    pub(super) fn put_singles(
        &mut self,
        batch: &mut Batch,
        frames: &[u16],
        lends: bool,
        gives: bool,
        delivery: &mut Delivery,
    ) -> usize {
        let put = match (lends, gives) {
            _ if !batch.is_single() => return 0,
            (true, _) => self.lend_singles(batch, frames),
            (false, true) if batch.is_all_sole() => self.exchange_singles(batch, frames),
            (false, true) => return 0,
            (false, false) => self.copy_singles(batch, frames),
        };
        delivery.frames += put as u32;
        delivery.bytes += batch.bytes_of_listed(frames.get(..put).unwrap_or(frames));
        put
    }

    /// Puts the buffers of frames themselves on the tx ring; they stay their source's.
    #[inline(never)]
    fn lend_singles(&mut self, batch: &Batch, frames: &[u16]) -> usize {
        let lengths = self.single_lengths();
        let Self { socket: XdpSocket { tx, .. }, umem, ledger, .. } = self;
        let frames = frames.get(..ledger.lendable()).unwrap_or(frames);
        let place = |fragment: &Fragment| {
            let slot = fragment.slot();
            (lengths.has(slot) && umem.has(slot.buffer())).then_some(slot)
        };
        let lend = |put: &[XdpDesc]| ledger.lend(put, |descriptor| descriptor.addr);
        match batch.is_whole(frames) {
            true => put_each(tx, umem, batch.fragments(), place, lend),
            false => put_each(tx, umem, frames, |&frame| place(batch.fragment(frame.into())?), lend),
        }
    }

    /// Puts the buffers of frames themselves on the tx ring, and gives others of ours for them.
    #[inline(never)]
    fn exchange_singles(&mut self, batch: &mut Batch, frames: &[u16]) -> usize {
        let lengths = self.single_lengths();
        let Self { socket: XdpSocket { tx, .. }, umem, ledger, .. } = self;
        let fragments = batch.exchange_buffers();
        let exchange = |&frame: &u16| {
            let fragment = fragments.get_mut(usize::from(frame))?;
            let slot = fragment.slot();
            if !lengths.has(slot) || !umem.has(slot.buffer()) {
                return None;
            }
            *fragment = fragment.in_buffer(ledger.exchange(slot.buffer())?);
            Some(slot)
        };
        put_each(tx, umem, frames, exchange, |_| ())
    }

    /// Copies frames into buffers of ours.
    #[inline(never)]
    fn copy_singles(&mut self, batch: &Batch, frames: &[u16]) -> usize {
        let lengths = self.single_lengths();
        let Self { socket: XdpSocket { tx, .. }, umem, ledger, .. } = self;
        let copy = |&frame: &u16| {
            let fragment = batch.fragment(frame.into())?;
            if !lengths.has(fragment.slot()) {
                return None;
            }
            let own = ledger.take()?;
            if let Some(ahead) = ledger.peek(PREFETCH_FRAMES) {
                prefetch_write(umem.start(umem.address(ahead)));
            }
            umem.bytes(own, fragment.len()).copy_from(&fragment.bytes());
            Some(fragment.slot().in_buffer(own))
        };
        put_each(tx, umem, frames, copy, |_| ())
    }

    /// Lengths of frames that are sent from one buffer.
    fn single_lengths(&self) -> SingleLengths {
        let most = self.attachment.max_frame_bytes.min(self.umem.capacity()) as u16;
        let extent = |len| SlotWord::new(0, len, 0).extent();
        let least = extent(ETHERNET_HEADER_BYTES as u16);
        SingleLengths { least, span: extent(most).saturating_sub(least) }
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
        let room = if keep { self.ledger.free() } else { self.ledger.lendable() };
        if room.min(self.socket.tx.free(needed as u32) as usize) < needed {
            return Err(DropCause::NoSpace);
        }
        let last = range.end.saturating_sub(1);
        for fragment in range {
            let buffer = batch.buffer(fragment);
            let len = batch.fragment(fragment).map_or(0, Fragment::len);
            if keep {
                let Some(own) = self.ledger.exchange(buffer) else { return Err(DropCause::NoSpace) };
                batch.exchange(fragment, own);
            } else {
                self.ledger.lend(&[self.umem.address(buffer)], |&address| address);
            }
            self.put(buffer, len, fragment != last);
        }
        Ok(())
    }

    /// Copies a frame into free buffers of ours.
    pub(super) fn put_copy(&mut self, fragments: &[Fragment], total: usize) -> Result<(), DropCause> {
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

/// Lengths of frames that are sent from one buffer, as extents of slots ([`SlotWord::extent`]).
#[derive(Debug, Clone, Copy)]
struct SingleLengths {
    least: u64,
    span: u64,
}

impl SingleLengths {
    /// Whether a slot holds a frame alone, of such a length.
    #[inline]
    fn has(self, slot: SlotWord) -> bool {
        slot.extent().wrapping_sub(self.least) <= self.span
    }
}

/// Puts frames of one fragment each on the tx ring, as long as there is room and `place` says in which buffer a frame
/// is and how long. `note` sees what was put. Returns the number.
#[inline]
fn put_each<S>(
    tx: &mut ProducerRing<XdpDesc>,
    umem: &Umem,
    sources: &[S],
    mut place: impl FnMut(&S) -> Option<SlotWord>,
    mut note: impl FnMut(&[XdpDesc]),
) -> usize {
    let room = tx.free(sources.len() as u32) as usize;
    let mut rest = sources.get(..room).unwrap_or(sources);
    let mut put = 0;
    loop {
        let describe = |source: &S| {
            let slot = place(source)?;
            let addr = umem.address(slot.buffer());
            Some(XdpDesc { addr, len: slot.len().into(), options: XdpDescOptions::empty() })
        };
        // Once more where the ring begins anew.
        let some = tx.put_each(rest, describe, &mut note);
        put += some;
        rest = rest.get(some..).unwrap_or(&[]);
        if some == 0 || rest.is_empty() {
            return put;
        }
    }
}
