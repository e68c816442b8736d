//! Limits the storm where switches are joined in a loop, and says where.
//!
//! A flooded frame that goes round a loop comes back by another port, so its source seems to move, again and again and
//! as fast as the loop carries frames. Stations move too, but seldom. So when the addresses of a switch have moved
//! [`MOST_MOVES_PER_S`] times within a second, frames from addresses that have just moved are not flooded for the rest
//! of that second: frames on their way round end, and a later broadcast gets no further than that in each second.
//! Addresses are learned as ever, and frames to learned ones go where they went.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ringroad_port::drop_cause::DropCause;
use ringroad_port::plan::Fate;
use ringroad_port::port_index::{NO_PORT_INDEX, PortIndex};

use crate::classify::FrameHeader;
use crate::mac::Mac;

/// Moves of addresses within a second from which on they are taken for a loop.
pub const MOST_MOVES_PER_S: u32 = 1000;
/// Moved addresses of one batch that are told apart; where there are more, no frame of the batch is flooded.
const TOLD_APART: usize = 8;

/// The addresses of one batch that were last seen on another port.
#[derive(Debug, Clone, Copy)]
pub struct Moves {
    count: u32,
    sources: [Mac; TOLD_APART],
    /// Where the first of them was before.
    before: PortIndex,
}

impl Moves {
    /// No address has moved.
    pub const NONE: Self = Self { count: 0, sources: [Mac::from_bits(0); TOLD_APART], before: NO_PORT_INDEX };

    #[cold]
    pub(crate) fn add(&mut self, source: Mac, before: PortIndex) {
        if self.count == 0 {
            self.before = before;
        }
        if let Some(place) = self.sources.get_mut(self.count as usize) {
            *place = source;
        }
        self.count += 1;
    }

    /// Whether no address moved.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn may_have(&self, source: Mac) -> bool {
        let told_apart = self.sources.get(..self.count as usize);
        told_apart.is_none_or(|sources| sources.contains(&source))
    }

    /// Drops the frames of these sources that would be flooded.
    pub(crate) fn drop_flooded(&self, frames: &[FrameHeader], fates: &mut [Fate]) {
        for (frame, fate) in frames.iter().zip(fates) {
            if *fate == Fate::Flood && self.may_have(frame.source) {
                *fate = Fate::Drop(DropCause::Looped);
            }
        }
    }
}

/// Where a loop was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopSeen {
    /// An address that moved.
    pub mac: Mac,
    /// The ports between which it moved.
    pub ports: [PortIndex; 2],
}

/// Counts the moves of a switch's addresses. All workers share it.
#[derive(Debug)]
pub struct LoopGuard {
    began: Instant,
    /// The second, and the moves in it.
    window: AtomicU64,
    /// Address and ports of the last loop that nobody has been told of; 0 where there is none.
    seen: AtomicU64,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self { began: Instant::now(), window: AtomicU64::new(0), seen: AtomicU64::new(0) }
    }
}

impl LoopGuard {
    /// Counts moves that a batch from the port `from` showed. Says whether they are too many.
    #[cold]
    pub(crate) fn note(&self, moves: &Moves, from: PortIndex) -> bool {
        self.note_at(self.began.elapsed().as_secs() as u32, moves, from)
    }

    fn note_at(&self, second: u32, moves: &Moves, from: PortIndex) -> bool {
        let window = self.window.load(Ordering::Relaxed);
        let before = if (window >> 32) as u32 == second { window as u32 } else { 0 };
        let count = before.saturating_add(moves.count);
        // Moves that two workers note at once may count as one's: the limit is no exact figure.
        self.window.store(u64::from(second) << 32 | u64::from(count), Ordering::Relaxed);
        if count <= MOST_MOVES_PER_S {
            return false;
        }
        let [source, ..] = moves.sources;
        let seen = source.bits() << 16 | u64::from(moves.before.0) << 8 | u64::from(from.0);
        self.seen.store(seen, Ordering::Relaxed);
        true
    }

    /// The loop that was noticed last, once.
    pub fn take_seen(&self) -> Option<LoopSeen> {
        let seen = self.seen.swap(0, Ordering::Relaxed);
        (seen != 0).then(|| LoopSeen {
            mac: Mac::from_bits(seen >> 16),
            ports: [PortIndex((seen >> 8) as u8), PortIndex(seen as u8)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac::from_octets([2, 0, 0, 0, 0, 0xa]);
    const B: Mac = Mac::from_octets([2, 0, 0, 0, 0, 0xb]);

    fn moved(sources: &[Mac]) -> Moves {
        let mut moves = Moves::NONE;
        sources.iter().for_each(|&source| moves.add(source, PortIndex(1)));
        moves
    }

    #[test]
    fn moves_beyond_the_limit_of_a_second_are_a_loop_until_the_second_ends() {
        let guard = LoopGuard::default();
        let moves = moved(&[A]);
        for _ in 0..MOST_MOVES_PER_S {
            assert!(!guard.note_at(7, &moves, PortIndex(2)));
        }
        assert_eq!(guard.take_seen(), None);
        assert!(guard.note_at(7, &moves, PortIndex(2)));
        assert_eq!(guard.take_seen(), Some(LoopSeen { mac: A, ports: [PortIndex(1), PortIndex(2)] }));
        assert_eq!(guard.take_seen(), None);
        assert!(!guard.note_at(8, &moves, PortIndex(2)));
    }

    #[test]
    fn only_flooded_frames_of_sources_that_moved_are_dropped() {
        let header = |source| FrameHeader { destination: B, source, flags: 0 };
        let frames = [header(A), header(A), header(B)];
        let mut fates = [Fate::Flood, Fate::Port(PortIndex(3)), Fate::Flood];
        moved(&[A]).drop_flooded(&frames, &mut fates);
        let looped = Fate::Drop(DropCause::Looped);
        assert_eq!(fates, [looped, Fate::Port(PortIndex(3)), Fate::Flood]);
        // Too many to tell them apart.
        moved(&[A; TOLD_APART + 1]).drop_flooded(&frames, &mut fates);
        assert_eq!(fates, [looped, Fate::Port(PortIndex(3)), looped]);
    }
}
