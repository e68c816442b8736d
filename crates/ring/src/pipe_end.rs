//! Sending end of one direction of a pipe: exchanges slots with the peer's rx ring in the sender's own context.
//!
//! The two rings have the same number of slots and share buffers slot by slot. This end acts as the datapath of the
//! peer's rx ring: it owns the `datapath` line of that ring, and the peer owns the `program` line. Sending copies whole
//! slots, never payload; slots come back, perhaps with other buffers in them, when the peer releases them. A full pipe
//! holds the sender back and drops nothing. Frames that were sent and not read stay in the shared ring when the sender
//! ends.
//!
//! A hostile peer can scramble the frames of this pipe and no more: every index is checked before its use.

use crate::cursor::{advance, distance, previous, within};
use crate::layout::slot_flags::MORE_FRAGMENTS;
use crate::program_end::{Synced, stopped};
use crate::program_window::ProgramWindow;
use crate::ring_view::RingView;
use crate::shared::SlotWord;
use crate::sync::Ordering;
use crate::violation::RingViolation;
use crate::wakeup::{Kicker, Sleeper, publish_fence};

/// Number of slots whose lengths are added in one sum: a sum of extents has room for them.
const SUMMED_SLOTS: u32 = 1 << 15;

/// The sending end of one direction of a pipe.
#[derive(Debug)]
pub struct PipeSendEnd {
    window: ProgramWindow,
    peer: RingView,
    /// End of the published slots: earlier slots are in the peer's ring.
    published: u32,
    /// End of the reclaimed slots: earlier slots have come back.
    reclaimed: u32,
    /// The peer's count of exchanged buffers at the time when the peer last held no slot.
    peer_exchanged: u32,
    kicker: Kicker,
    sleeper: Sleeper,
}

impl PipeSendEnd {
    /// Takes over the direction at the position of the peer's ring. `own` and `peer` have the same number of slots.
    #[must_use]
    pub fn take_up(own: RingView, peer: RingView) -> Self {
        let slots = own.slot_count();
        debug_assert_eq!(slots, peer.slot_count());
        let control = peer.control();
        let mut published = control.datapath.tail.load(Ordering::Acquire);
        let mut reclaimed = control.program.head.load(Ordering::Acquire);
        if published >= slots || reclaimed >= slots {
            published = 0;
            reclaimed = 0;
        }
        // The count is read before the slots: an exchange that happens meanwhile shows as a change at the next reclaim.
        let peer_exchanged = control.program.exchanged.load(Ordering::Acquire);
        // Buffers may have been exchanged while no frame was sent. So every slot is taken over from the peer's ring,
        // except pending slots, which are equal in both rings.
        for index in 0..slots {
            own.slot(index).store_with_ptr(peer.slot(index).load_with_ptr());
        }
        control.datapath.sleeping.store(0, Ordering::Relaxed);
        let tail = previous(reclaimed, slots);
        own.show_cursors(published, published, tail);
        Self {
            window: ProgramWindow { view: own, head: published, tail, exchanged: 0 },
            peer,
            published,
            reclaimed,
            peer_exchanged,
            kicker: Kicker::default(),
            sleeper: Sleeper::default(),
        }
    }

    /// Window onto the slots that the sender owns.
    #[inline]
    #[must_use]
    pub fn window(&self) -> &ProgramWindow {
        &self.window
    }

    /// Window onto the slots that the sender owns, to fill them.
    #[inline]
    pub fn window_mut(&mut self) -> &mut ProgramWindow {
        &mut self.window
    }

    /// Number of slots that were sent and not yet released by the peer.
    #[must_use]
    pub fn pending(&self) -> u32 {
        distance(self.reclaimed, self.published, self.window.slot_count())
    }

    /// Sends whole frames up to `head`, and takes back the slots that the peer has released.
    ///
    /// # Errors
    /// [`RingViolation::Tail`] if the peer's index is outside of the slots that the peer holds;
    /// [`RingViolation::OtherProcess`] in a child of the process that opened the pipe.
    #[inline]
    pub fn sync(&mut self) -> Result<Synced, RingViolation> {
        let slots = self.window.slot_count();
        let control = self.peer.control();
        let own = &self.window.view;

        let mut kick = false;
        let end = whole_frames_end(own, self.published, self.window.head);
        if end != self.published {
            pass_slots(own, &self.peer, self.published, end);
            self.published = end;
            publish_fence();
            kick = self.kicker.needs_kick(&control.program.sleeping);
        }

        let released = control.program.head.load(Ordering::Acquire);
        if released != self.reclaimed {
            if !within(self.reclaimed, released, self.published, slots) {
                return Err(stopped(control));
            }
            let exchanged = control.program.exchanged.load(Ordering::Relaxed);
            if exchanged != self.peer_exchanged {
                // The count may be ahead of the released slots, so it is stored only when the peer holds no slot any
                // more.
                if released == self.published {
                    self.peer_exchanged = exchanged;
                }
                let mut index = self.reclaimed;
                while index != released {
                    own.slot(index).store_with_ptr(self.peer.slot(index).load_with_ptr());
                    index = advance(index, 1, slots);
                }
            }
        }
        let gained = distance(self.reclaimed, released, slots);
        self.reclaimed = released;
        self.window.tail = previous(released, slots);
        own.show_cursors(self.window.head, self.window.head, self.window.tail);
        Ok(Synced { gained, kick })
    }

    /// Announces that the sender is about to sleep until slots come back. The caller syncs once more before it waits.
    pub fn announce_sleep(&mut self) {
        self.sleeper.announce([&self.peer.control().datapath.sleeping]);
    }

    /// Withdraws the announcement.
    pub fn awake(&mut self) {
        Sleeper::awake(&self.peer.control().datapath.sleeping);
    }
}

/// Puts slots `[from, end)` of `own`, whole frames, into the peer's rx ring, counts them there, and publishes them.
#[inline]
pub fn pass_slots(own: &RingView, peer: &RingView, from: u32, end: u32) {
    let slots = own.slot_count();
    let (mut frames, mut bytes) = (0, 0);
    let mut index = from;
    while index != end {
        let run = own.slots(index, distance(index, end, slots).min(SUMMED_SLOTS));
        let (mut all, mut extents) = (SlotWord::default(), 0);
        for (own, peer) in run.iter().zip(peer.slots(index, run.len() as u32)) {
            let word = own.load_word();
            (all, extents) = (all.with(word), extents + word.extent());
            peer.replace(peer.load_word(), word);
            peer.store_ptr(own.load_ptr());
        }
        if all.flags() & MORE_FRAGMENTS == 0 {
            frames += run.len() as u32;
            bytes += SlotWord::extent_bytes(extents);
        } else {
            // Slots of the sender's ring, which no other process writes.
            frames += run.iter().map(|slot| slot.load().ends_frame()).sum::<u32>();
            bytes += run.iter().map(|slot| u64::from(slot.load().len)).sum::<u64>();
        }
        index = advance(index, run.len() as u32, slots);
    }
    let line = &peer.control().datapath;
    line.filled.add(frames, bytes);
    line.tail.store(end, Ordering::Release);
}

/// End of the last whole frame in `[from, head)`: a frame with missing fragments stays back.
#[inline]
#[must_use]
pub fn whole_frames_end(view: &RingView, from: u32, head: u32) -> u32 {
    let slots = view.slot_count();
    let mut end = head;
    while end != from && view.slot(previous(end, slots)).load().flags & MORE_FRAGMENTS != 0 {
        end = previous(end, slots);
    }
    end
}
