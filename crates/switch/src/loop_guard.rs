//! Limits the storm where switches are joined in a loop, and says where.
//!
//! A flooded frame that goes round a loop comes back by another port, so its source seems to move, again and again and
//! as fast as the loop carries frames. So when the addresses of a switch have moved [`MOST_MOVES_PER_S`] times within a
//! second, the switch looks at the bytes of flooded frames, until it finds none that goes round from one ageing tick to
//! the next. A frame that comes in by two ports goes round, and is dropped whenever it comes again. Addresses may move as often for other reasons, such as a generator
//! that sends with one address into two ports: those frames differ, and none is dropped.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::plan::{Fate, Plan};
use ringroad_port::port_index::{NO_PORT_INDEX, PortIndex};

use crate::mac::Mac;

/// Moves of addresses within a second from which on the switch looks for a loop.
pub const MOST_MOVES_PER_S: u32 = 1000;
/// Flooded frames that are remembered, a power of two.
const REMEMBERED: usize = 1024;
/// Bytes of a frame's beginning and of its end by which it is known.
const KNOWN_BY_BYTES: usize = 64;
/// In place of the port: the frame came by several.
const SEVERAL_PORTS: u64 = 0xff;

/// The addresses of one batch that were last seen on another port.
#[derive(Debug, Clone, Copy)]
pub struct Moves {
    count: u32,
    /// The first of them, and where it was before.
    source: Mac,
    before: PortIndex,
}

impl Moves {
    /// No address has moved.
    pub const NONE: Self = Self { count: 0, source: Mac::from_bits(0), before: NO_PORT_INDEX };

    #[cold]
    pub(crate) fn add(&mut self, source: Mac, before: PortIndex) {
        if self.count == 0 {
            (self.source, self.before) = (source, before);
        }
        self.count += 1;
    }

    /// Whether no address moved.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
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

/// Counts the moves of a switch's addresses, and finds frames that go round. All workers share it.
#[derive(Debug)]
pub struct LoopGuard {
    began: Instant,
    /// The second, and the moves in it.
    window: AtomicU64,
    /// Whether flooded frames are looked at.
    looks: AtomicBool,
    /// Whether a frame was found to go round since the last ageing tick. Of two copies that go round in opposite
    /// directions one may still be on its way, and alone it would not be found again.
    found: AtomicBool,
    /// Hash and port of flooded frames; 0 where there is none.
    remembered: Box<[AtomicU64]>,
    /// Address and ports of the last moves before a frame was found to go round.
    moved: AtomicU64,
    /// The same, once a frame was found to go round and until somebody has asked; 0 where there is nothing to say.
    seen: AtomicU64,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            window: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            found: AtomicBool::new(false),
            remembered: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            moved: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        }
    }
}

impl LoopGuard {
    /// Whether flooded frames are to be looked at.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.looks.load(Ordering::Relaxed)
    }

    /// Counts moves that a batch from the port `from` showed.
    #[cold]
    pub(crate) fn note(&self, moves: &Moves, from: PortIndex) {
        self.note_at(self.began.elapsed().as_secs() as u32, moves, from);
    }

    fn note_at(&self, second: u32, moves: &Moves, from: PortIndex) {
        let window = self.window.load(Ordering::Relaxed);
        let before = if (window >> 32) as u32 == second { window as u32 } else { 0 };
        let count = before.saturating_add(moves.count);
        // Moves that two workers note at once may count as one's: the limit is no exact figure.
        self.window.store(u64::from(second) << 32 | u64::from(count), Ordering::Relaxed);
        let moved = moves.source.bits() << 16 | u64::from(moves.before.0) << 8 | u64::from(from.0);
        self.moved.store(moved, Ordering::Relaxed);
        if count > MOST_MOVES_PER_S {
            self.looks.store(true, Ordering::Relaxed);
        }
    }

    /// Looks no more, until addresses move again as often, unless a frame was found since the last call. At each ageing
    /// tick.
    pub(crate) fn rest(&self) {
        if !self.found.swap(false, Ordering::Relaxed) && self.looks.swap(false, Ordering::Relaxed) {
            self.remembered.iter().for_each(|frame| frame.store(0, Ordering::Relaxed));
        }
    }

    /// Drops those of the frames `range` that would be flooded and came by another port, too.
    #[cold]
    pub(crate) fn drop_looped(&self, batch: &Batch, range: Range<usize>, from: PortIndex, plan: &mut Plan) {
        let fates = plan.fates_mut(range.clone());
        for (frame, fate) in range.zip(fates).filter(|(_, fate)| **fate == Fate::Flood) {
            if self.goes_round(hash(batch.frame(frame)), from) {
                *fate = Fate::Drop(DropCause::Looped);
                self.seen.store(self.moved.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Whether a frame came by another port than `from`. Two workers at once may not see it; the frame comes again.
    fn goes_round(&self, hash: u64, from: PortIndex) -> bool {
        let Some(place) = self.remembered.get(hash as usize & (REMEMBERED - 1)) else { return false };
        // Its lowest byte is the port, and it is never 0.
        let frame = hash | 1 << 8;
        let (known, port) = (place.load(Ordering::Relaxed) & !0xff, place.load(Ordering::Relaxed) & 0xff);
        if known != frame & !0xff {
            place.store(frame & !0xff | u64::from(from.0), Ordering::Relaxed);
            return false;
        }
        let is_elsewhere = port != u64::from(from.0);
        if is_elsewhere {
            place.store(known | SEVERAL_PORTS, Ordering::Relaxed);
            self.found.store(true, Ordering::Relaxed);
        }
        is_elsewhere
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

/// Tells frames apart by their beginning, their end and their length (FNV-1a).
fn hash(fragments: &[Fragment]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    let mut bytes = [0; KNOWN_BY_BYTES];
    for fragment in [fragments.first(), fragments.last()].into_iter().flatten() {
        let len = fragment.bytes().read(&mut bytes);
        add(bytes.get(..len).unwrap_or(&[]));
        let end = fragment.bytes().skip(fragment.len().saturating_sub(KNOWN_BY_BYTES));
        let len = end.read(&mut bytes);
        add(bytes.get(..len).unwrap_or(&[]));
    }
    let len: usize = fragments.iter().map(Fragment::len).sum();
    add(&len.to_le_bytes());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac::from_octets([2, 0, 0, 0, 0, 0xa]);
    const ONE: PortIndex = PortIndex(1);
    const TWO: PortIndex = PortIndex(2);

    #[test]
    fn moves_beyond_the_limit_of_a_second_make_it_look_until_the_next_tick() {
        let guard = LoopGuard::default();
        let mut moves = Moves::NONE;
        moves.add(A, ONE);
        for second in 0..3 {
            for _ in 0..MOST_MOVES_PER_S {
                guard.note_at(second, &moves, TWO);
                assert!(!guard.looks());
            }
        }
        guard.note_at(2, &moves, TWO);
        assert!(guard.looks());
        assert_eq!(guard.take_seen(), None, "that is no loop yet");
        guard.rest();
        assert!(!guard.looks());
    }

    #[test]
    fn a_frame_goes_round_once_it_came_by_two_ports() {
        let guard = LoopGuard::default();
        let (frame, other) = (0x1234_5678_9abc_de00, 0x1234_5678_9abd_de01);
        assert!(!guard.goes_round(frame, ONE) && !guard.goes_round(frame, ONE));
        assert!(!guard.goes_round(other, TWO));
        assert!(guard.goes_round(frame, TWO));
        assert!(guard.goes_round(frame, ONE) && guard.goes_round(frame, TWO));
        guard.looks.store(true, Ordering::Relaxed);
        guard.rest();
        assert!(guard.looks() && guard.goes_round(frame, TWO), "another copy may still go round");
        guard.rest();
        guard.rest();
        assert!(!guard.looks() && !guard.goes_round(frame, TWO));
    }
}
