//! Limits the storm where switches are joined in a loop, and reports the place.
//!
//! A flooded frame that goes round a loop comes back by another port, so its source seems to move, again and again and
//! as fast as the loop carries frames. So when the addresses of a switch have moved [`MOST_MOVES_PER_S`] times within a
//! second, the switch checks the bytes of flooded frames, until it has found none that goes round for [`LOOKS_ON_S`]
//! seconds and an ageing tick. A frame that comes in by two ports goes round, and is dropped whenever it comes again.
//! Addresses may move as often for other reasons, such as a generator that sends with one address into two ports: those
//! frames differ, and none is dropped.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;
use ringroad_port::frame::Fragment;
use ringroad_port::plan::{Fate, Plan};
use ringroad_port::port_index::{NO_PORT_INDEX, PortIndex};

use crate::mac::Mac;

/// Moves of addresses within a second from which on the switch looks for a loop.
pub const MOST_MOVES_PER_S: u32 = 1000;
/// How long a switch continues to check after it has found a frame that goes round, s. Of two copies that go round in
/// opposite directions one may wait in the ring of a program that gets no processor time meanwhile. A single copy could
/// not be detected again, since it always comes by the same port.
const LOOKS_ON_S: u32 = 20;
/// Flooded frames that are remembered, a power of two.
const REMEMBERED: usize = 1024;
/// Places that a frame may have.
const PLACES: usize = 4;
/// Bytes of a frame's beginning and of its end that identify it.
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
    /// Whether flooded frames are checked.
    looks: AtomicBool,
    /// Second in which a frame was last found to go round; valid while it looks.
    found_at: AtomicU32,
    /// Hash and port of flooded frames; 0 where there is none.
    remembered: Box<[AtomicU64]>,
    /// Frames that took a place. The place that is taken is scattered by it: frames that displaced each other in turn
    /// would never be found.
    displaced: AtomicU32,
    /// Address and ports of the last moves before a frame was found to go round.
    moved: AtomicU64,
    /// The same, after a frame was found to go round and until it is reported; 0 if there is nothing to report.
    seen: AtomicU64,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            window: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            found_at: AtomicU32::new(0),
            displaced: AtomicU32::new(0),
            remembered: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            moved: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        }
    }
}

impl LoopGuard {
    /// Whether flooded frames must be checked.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.looks.load(Ordering::Relaxed)
    }

    /// Counts moves that a batch from the port `from` showed.
    #[cold]
    pub(crate) fn note(&self, moves: &Moves, from: PortIndex) {
        self.note_at(self.second(), moves, from);
    }

    fn second(&self) -> u32 {
        self.began.elapsed().as_secs() as u32
    }

    fn note_at(&self, second: u32, moves: &Moves, from: PortIndex) {
        let window = self.window.load(Ordering::Relaxed);
        let before = if (window >> 32) as u32 == second { window as u32 } else { 0 };
        let count = before.saturating_add(moves.count);
        // Moves that two workers note at once may count as one's: the limit is not exact.
        self.window.store(u64::from(second) << 32 | u64::from(count), Ordering::Relaxed);
        let moved = moves.source.bits() << 16 | u64::from(moves.before.0) << 8 | u64::from(from.0);
        self.moved.store(moved, Ordering::Relaxed);
        if count > MOST_MOVES_PER_S {
            self.looks.store(true, Ordering::Relaxed);
        }
    }

    /// Looks no more, until addresses move again as often, unless a frame was found lately. At each ageing tick.
    pub(crate) fn rest(&self) {
        self.rest_at(self.second());
    }

    fn rest_at(&self, second: u32) {
        let found_at = self.found_at.load(Ordering::Relaxed);
        let found_lately = found_at > 0 && second.saturating_sub(found_at) < LOOKS_ON_S;
        if !found_lately && self.looks.swap(false, Ordering::Relaxed) {
            self.remembered.iter().for_each(|frame| frame.store(0, Ordering::Relaxed));
        }
    }

    /// Drops those of the frames `range` that would be flooded and came by another port, too.
    #[cold]
    pub(crate) fn drop_looped(&self, batch: &Batch, range: Range<usize>, from: PortIndex, plan: &mut Plan) {
        let second = self.second();
        let fates = plan.fates_mut(range.clone());
        for (frame, fate) in range.zip(fates).filter(|(_, fate)| **fate == Fate::Flood) {
            if self.goes_round(hash(batch.frame(frame)), from, second) {
                *fate = Fate::Drop(DropCause::Looped);
                self.seen.store(self.moved.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Whether a frame came by another port than `from`. Two workers at once may not see it; the frame comes again.
    fn goes_round(&self, hash: u64, from: PortIndex, second: u32) -> bool {
        let first = hash as usize & (REMEMBERED - PLACES);
        let places = self.remembered.get(first..first + PLACES).unwrap_or(&[]);
        // Its lowest byte is the port, and it is never 0.
        let frame = (hash | 1 << 8) & !0xff;
        let Some(place) = places.iter().find(|place| place.load(Ordering::Relaxed) & !0xff == frame) else {
            let empty = places.iter().find(|place| place.load(Ordering::Relaxed) == 0);
            let scattered = || {
                let number = scatter(self.displaced.fetch_add(1, Ordering::Relaxed));
                places.get(number as usize & (PLACES - 1))
            };
            if let Some(place) = empty.or_else(scattered) {
                place.store(frame | u64::from(from.0), Ordering::Relaxed);
            }
            return false;
        };
        let is_elsewhere = place.load(Ordering::Relaxed) & 0xff != u64::from(from.0);
        if is_elsewhere {
            place.store(frame | SEVERAL_PORTS, Ordering::Relaxed);
            self.found_at.store(second.max(1), Ordering::Relaxed);
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

/// A number without an order in its bits (the last steps of MurmurHash3).
fn scatter(mut number: u32) -> u32 {
    number ^= number >> 16;
    number = number.wrapping_mul(0x85eb_ca6b);
    number ^= number >> 13;
    number = number.wrapping_mul(0xc2b2_ae35);
    number ^ number >> 16
}

/// Distinguishes frames by their beginning, their end and their length (FNV-1a).
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
    fn moves_beyond_the_limit_of_a_second_make_it_check_frames_until_the_next_tick() {
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
        assert_eq!(guard.take_seen(), None, "that is not a loop yet");
        guard.rest();
        assert!(!guard.looks());
    }

    #[test]
    fn a_frame_goes_round_once_it_came_by_two_ports() {
        let guard = LoopGuard::default();
        let goes_round = |frame, port, second| guard.goes_round(frame, port, second);
        let (frame, other) = (0x1234_5678_9abc_de00, 0x1234_5678_9abd_de01);
        assert!(!goes_round(frame, ONE, 0) && !goes_round(frame, ONE, 0));
        assert!(!goes_round(other, TWO, 0));
        assert!(goes_round(frame, TWO, 0));
        assert!(goes_round(frame, ONE, 1) && goes_round(frame, TWO, 1));
        guard.looks.store(true, Ordering::Relaxed);
        guard.rest_at(LOOKS_ON_S);
        assert!(guard.looks() && goes_round(frame, TWO, LOOKS_ON_S), "another copy may still go round");
        guard.rest_at(2 * LOOKS_ON_S);
        assert!(!guard.looks() && !goes_round(frame, TWO, 2 * LOOKS_ON_S));
    }

    #[test]
    fn more_frames_than_have_places_are_found_in_the_end() {
        let guard = LoopGuard::default();
        let places = PLACES as u64;
        let mut frames: Vec<u64> = (1..=3 * places).map(|number| number << 20 | 0xff).collect();
        for _ in 0..10_000 {
            for port in [ONE, TWO] {
                frames.retain(|&frame| !guard.goes_round(frame, port, 0));
            }
        }
        assert_eq!(frames, Vec::<u64>::new());
    }
}
