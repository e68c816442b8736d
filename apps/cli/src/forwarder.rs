//! Forwarding between two ports, both ways in one thread: `fwd` runs it once, or once per thread of a pipeline.

use std::time::Duration;

use ringroad::{Interest, Port, RxRing, TxRing, slot_flags};
use serde::Serialize;

use crate::failure::Failure;
use crate::port_wait::{Idleness, wait_for_either};
use crate::run::Run;

/// Counters of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DirectionCounts {
    pub(crate) frames: u64,
    /// Frames released because they are too long for the other port.
    pub(crate) too_long_frames: u64,
    /// Frames released because the other port was full.
    pub(crate) dropped_frames: u64,
    /// Whether buffers were exchanged instead of copied.
    pub(crate) zero_copy: bool,
}

impl DirectionCounts {
    /// Combines the counters of two pipeline stages: the second stage delivers, and both can drop.
    pub(crate) fn followed_by(self, next: Self) -> Self {
        Self {
            frames: next.frames,
            too_long_frames: self.too_long_frames + next.too_long_frames,
            dropped_frames: self.dropped_frames + next.dropped_frames,
            zero_copy: self.zero_copy && next.zero_copy,
        }
    }
}

/// State of one direction.
#[derive(Debug)]
pub(crate) struct ForwarderDirection {
    /// Whether to exchange source and destination address.
    macswap: bool,
    /// Whether to release frames when the other port is full, instead of waiting.
    drop: bool,
    burst: u32,
    pub(crate) counts: DirectionCounts,
    /// Slots at the front of the receive ring with addresses that are exchanged already, of frames that did not fit
    /// before.
    swapped_slots: u32,
    /// Whether the slot after `swapped_slots` continues a frame.
    within_frame: bool,
    /// Whether frames are waiting for room.
    blocked: bool,
}

impl ForwarderDirection {
    pub(crate) fn new(macswap: bool, drop: bool, burst: u32) -> Self {
        let counts = DirectionCounts::default();
        Self { macswap, drop, burst, counts, swapped_slots: 0, within_frame: false, blocked: false }
    }

    /// Moves one burst. Returns whether anything moved.
    fn turn(&mut self, rx: &mut RxRing, tx: &mut TxRing) -> Result<bool, Failure> {
        rx.sync()?;
        let before = rx.available();
        if before == 0 {
            self.blocked = false;
            self.begin_anew();
            return Ok(false);
        }
        let limit = self.limit(rx);
        if self.macswap {
            self.swap(rx, limit);
        }
        let mut moved = rx.forward(tx, limit);
        if rx.available() + limit > before {
            // Part of the burst had no room. The sync can make room.
            tx.sync()?;
            let rest = limit - (before - rx.available());
            let again = rx.forward(tx, rest);
            moved.frames += again.frames;
            moved.too_long += again.too_long;
        }
        tx.sync()?;
        let mut gone = before - rx.available();
        self.blocked = gone < limit;
        if self.blocked && self.drop {
            let (frames, slots) = whole_frames(rx, limit - gone);
            rx.release(slots);
            self.counts.dropped_frames += u64::from(frames);
            gone += slots;
            self.blocked = false;
        }
        self.swapped_slots = self.swapped_slots.saturating_sub(gone);
        self.counts.frames += u64::from(moved.frames);
        self.counts.too_long_frames += u64::from(moved.too_long);
        self.counts.zero_copy = moved.zero_copy;
        Ok(gone > 0)
    }

    /// Forgets that frames in the receive ring were read before.
    fn begin_anew(&mut self) {
        (self.swapped_slots, self.within_frame) = (0, false);
    }

    /// Returns the number of slots in this burst, which contain whole frames, at least one.
    fn limit(&self, rx: &RxRing) -> u32 {
        let (_, slots) = whole_frames(rx, self.burst);
        if slots > 0 { slots } else { rx.frame_slots(0) }
    }

    /// Exchanges the addresses of the frames in the first `limit` slots, once per frame.
    fn swap(&mut self, rx: &RxRing, limit: u32) {
        for offset in self.swapped_slots..limit {
            let more = rx.slot(offset).flags & slot_flags::MORE_FRAGMENTS != 0;
            if !std::mem::replace(&mut self.within_frame, more) {
                let mut bytes = rx.frame(offset);
                let mut addresses = [0; 12];
                if bytes.read(&mut addresses) == addresses.len() {
                    addresses.rotate_left(6);
                    bytes.write(&addresses);
                }
            }
        }
        self.swapped_slots = self.swapped_slots.max(limit);
    }
}

/// Returns the number of whole frames in the first `limit` slots, and their slots.
fn whole_frames(rx: &RxRing, limit: u32) -> (u32, u32) {
    let (mut frames, mut slots) = (0, 0);
    for offset in 0..limit.min(rx.available()) {
        if rx.slot(offset).flags & slot_flags::MORE_FRAGMENTS == 0 {
            frames += 1;
            slots = offset + 1;
        }
    }
    (frames, slots)
}

/// Connection of two ports: `there` moves frames from the first to the second, `back` from the second to the first.
#[derive(Debug)]
pub(crate) struct PortPair {
    pub(crate) ports: [Port; 2],
    pub(crate) there: ForwarderDirection,
    pub(crate) back: Option<ForwarderDirection>,
}

impl PortPair {
    /// Forwards until the run is over. Calls `watch` once per turn with the time and the number of moved frames.
    pub(crate) fn forward(
        &mut self,
        run: &Run,
        mut watch: impl FnMut(u64, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut idleness = Idleness::default();
        loop {
            let now_ns = run.now_ns();
            if run.is_over(now_ns) {
                return Ok(());
            }
            let moved = self.turn()?;
            watch(now_ns, self.counts().iter().map(|counts| counts.frames).sum())?;
            if moved {
                idleness.busy();
            } else if idleness.is_long() {
                self.rest(run.wait_limit(now_ns))?;
            }
        }
    }

    /// Returns the counters of both directions.
    pub(crate) fn counts(&self) -> [DirectionCounts; 2] {
        [self.there.counts, self.back.as_ref().map_or_else(DirectionCounts::default, |back| back.counts)]
    }

    fn turn(&mut self) -> Result<bool, Failure> {
        let [first, second] = &mut self.ports;
        let mut moved = false;
        for (a, b) in first.queues().iter_mut().zip(second.queues()) {
            moved |= self.there.turn(a.rx(), b.tx())?;
            if let Some(back) = &mut self.back {
                moved |= back.turn(b.rx(), a.tx())?;
            }
        }
        Ok(moved)
    }

    fn rest(&mut self, limit: Duration) -> Result<(), Failure> {
        let interest = |incoming: Option<&ForwarderDirection>, outgoing: Option<&ForwarderDirection>| {
            // A direction that waits for room has enough frames.
            let rx = incoming.is_some_and(|direction| !direction.blocked);
            match (rx, outgoing.is_some_and(|direction| direction.blocked)) {
                (true, true) => Some(Interest::Both),
                (true, false) => Some(Interest::Rx),
                (false, true) => Some(Interest::Tx),
                (false, false) => None,
            }
        };
        let (there, back) = (Some(&self.there), self.back.as_ref());
        let interests = [interest(there, back), interest(back, there)];
        let [first, second] = &mut self.ports;
        let before = [first.reconnections(), second.reconnections()];
        wait_for_either([first, second], interests, limit)?;
        if [first.reconnections(), second.reconnections()] != before {
            // Reconnected ports have new rings.
            self.there.begin_anew();
            self.back.iter_mut().for_each(ForwarderDirection::begin_anew);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
