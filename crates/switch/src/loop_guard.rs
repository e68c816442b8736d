//! Finds loops behind a switch's ports, and cuts them.
//!
//! A flooded frame in a loop comes in again and again. So the switch remembers flooded frames, one of each batch. If
//! remembered frames come in again [`REPEATS_PER_S`] times within a second, there is a loop, or a program floods copies
//! of one frame. The switch then floods a probe: a frame whose source address no station has. Only a loop brings a
//! probe back, and the port by which it comes in is part of the loop.
//!
//! For [`BLOCKED_S`] seconds flooded frames neither enter nor leave by that port, as with a spanning tree. All flooded
//! frames in the loop come to the port and end there. Addresses learned from them are forgotten, and nothing is learned
//! until the last of them has come in at the loop's other end. Frames to learned addresses pass as before, unless their
//! source is known to be at another port: such a frame has passed through the loop.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use ringroad_port::clock::Clock;
use ringroad_port::forwarding_plane::Outcome;
use ringroad_port::frame::{ETHERNET_HEADER_BYTES, Fragment};
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_wire::headers::{ADDRESSES_BYTES, TAG_BYTES};
use ringroad_wire::mac::Mac;

use crate::mac_table::{MacTable, Tick};
use crate::port_set::PortSet;
use crate::vlan_tag::TAG_PROTOCOL;

/// Number of remembered frames that come in again within a second at which the switch sends a probe.
pub const REPEATS_PER_S: u32 = 256;
/// Time for which a port with a loop behind it is blocked for flooded frames, s.
pub const BLOCKED_S: u32 = 20;
/// Number of arrivals at which a frame counts as one that comes in again. Programs that answer with copies of their
/// input, or replay a file into two ports, send fewer copies of each frame.
const TIMES: u64 = 4;
/// Number of flooded frames that are remembered, a power of two.
const REMEMBERED: usize = 1024;
/// Time for which the switch waits for a probe to come back, s.
const AWAITED_S: u32 = 2;
/// Time from the first probe to the second, ms. It doubles with each probe, up to [`MOST_DOUBLINGS`] times: programs
/// that flood copies of one frame cause few probes.
const FIRST_PAUSE_MS: u64 = 16;
const MOST_DOUBLINGS: u64 = 12;
/// Number of bytes that identify a frame, at its beginning (without tags) and at its end.
const KNOWN_BY_BYTES: usize = 32;
/// EtherTypes of VLAN tags: of a customer's and of a provider's (IEEE 802.1Q).
const TAG_PROTOCOLS: [[u8; 2]; 2] = [TAG_PROTOCOL.to_be_bytes(), [0x88, 0xa8]];
/// Longest frame whose body a probe uses, bytes without FCS.
const MOST_PROBE_BYTES: usize = 1518;
/// EtherType of loop tests (Ethernet configuration testing protocol): stations ignore such frames.
const PROBE_ETHERTYPE: u16 = 0x9000;

/// Finds loops behind a switch's ports. All workers share it; simultaneous changes by two workers may count as one.
#[derive(Debug)]
pub struct LoopGuard {
    clock: Clock,
    /// Key of the hash that makes the addresses of probes from their numbers.
    key: RandomState,
    /// Number of probes that were made.
    probes: AtomicU64,
    /// Hashes of flooded frames. In each, the lowest byte is replaced by the second of the last arrival, and the 4 bits
    /// above by the number of arrivals; 0 in a free entry.
    remembered: Box<[AtomicU64]>,
    /// Current second, and in the lower half the number of remembered frames that came in again in this second.
    repeats: AtomicU64,
    /// Whether enough frames came in again for a probe.
    is_suspicious: AtomicBool,
    /// Time at which the next probe may be sent, ms, and in the lowest byte the number of times that the pause has
    /// doubled.
    next_probe: AtomicU64,
    /// Source address of the awaited probe, and in the lower 16 bits the second of its sending; 0 if no probe is
    /// awaited.
    awaited: AtomicU64,
    /// Ports that are blocked for flooded frames.
    blocked: PortSet,
    /// Whether a port is blocked or a probe is awaited.
    is_alert: AtomicBool,
    /// Second from which on no port is blocked.
    blocked_until: AtomicU32,
    /// Second after which addresses are learned again, because frames of the loop were under way until then; 0 while
    /// addresses are learned.
    learn_after: AtomicU32,
    /// The port that was blocked last, plus 1, until it is reported.
    unreported: AtomicU32,
}

fn second_of(ms: u64) -> u32 {
    (ms / 1000) as u32
}

/// Header of a probe from this source address.
pub(crate) fn probe_header(source: Mac) -> [u8; ETHERNET_HEADER_BYTES] {
    let [a, b, c, d, e, f] = source.octets();
    let [high, low] = PROBE_ETHERTYPE.to_be_bytes();
    [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, a, b, c, d, e, f, high, low]
}

impl LoopGuard {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            key: RandomState::new(),
            probes: AtomicU64::new(0),
            remembered: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            repeats: AtomicU64::new(0),
            is_suspicious: AtomicBool::new(false),
            next_probe: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            blocked: PortSet::new(),
            is_alert: AtomicBool::new(false),
            blocked_until: AtomicU32::new(0),
            learn_after: AtomicU32::new(0),
            unreported: AtomicU32::new(0),
        }
    }

    /// Whether frames need [`Self::begin_batch`] and [`Self::ends_here`], and flooding needs [`Self::blocked`].
    #[inline]
    pub(crate) fn is_alert(&self) -> bool {
        self.is_alert.load(Ordering::Relaxed)
    }

    /// Ports that are blocked for flooded frames.
    pub(crate) fn blocked(&self) -> PortMask {
        self.blocked.mask()
    }

    /// Whether a port is blocked for flooded frames.
    #[must_use]
    pub fn is_blocked(&self, port: PortIndex) -> bool {
        self.blocked.contains(port) && self.second() < self.blocked_until.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ns() / 1_000_000
    }

    fn second(&self) -> u32 {
        second_of(self.now_ms())
    }

    /// Begins a batch while [`Self::is_alert`]: ends blocks and waits whose time is over. Returns whether addresses may
    /// be learned.
    #[cold]
    pub(crate) fn begin_batch(&self, table: &MacTable) -> bool {
        self.rest(table);
        self.learn_after.load(Ordering::Relaxed) == 0
    }

    /// Whether a frame from `source` with this outcome ends at the port `from`.
    ///
    /// A frame to be flooded ends there if the port is blocked, or if the frame is the probe, which blocks the port.
    /// Any other frame ends there if it has passed through the loop: the port is blocked, and the frame's source is
    /// known, in its VLAN, to be at another port.
    #[cold]
    pub(crate) fn ends_here(
        &self,
        outcome: Outcome,
        source: Mac,
        from: PortIndex,
        vlan: u16,
        table: &MacTable,
        now: Tick,
    ) -> bool {
        match outcome {
            Outcome::Flood => self.ends_at(self.second(), source, from, table),
            _ => {
                self.blocked.contains(from)
                    && table.lookup_in(vlan, source, now).is_some_and(|port| port != from)
            }
        }
    }

    fn ends_at(&self, second: u32, source: Mac, from: PortIndex, table: &MacTable) -> bool {
        let awaited = self.awaited.load(Ordering::Relaxed);
        if awaited != 0 && awaited >> 16 == source.bits() {
            self.awaited.store(0, Ordering::Relaxed);
            self.next_probe.store(0, Ordering::Relaxed);
            // The counted frames passed through the loop before the port was blocked.
            self.repeats.store(0, Ordering::Relaxed);
            self.is_suspicious.store(false, Ordering::Relaxed);
            self.blocked_until.store(second + BLOCKED_S, Ordering::Relaxed);
            self.blocked.insert(from);
            self.learn_after.store(second + 1, Ordering::Relaxed);
            table.forget_learned(None);
            self.unreported.store(u32::from(from.0) + 1, Ordering::Relaxed);
            return true;
        }
        self.blocked.contains(from)
    }

    /// Ends blocks and waits whose time is over. Called at each ageing tick, and while frames come.
    pub(crate) fn rest(&self, table: &MacTable) {
        self.keep_time(self.second(), table);
    }

    fn keep_time(&self, second: u32, table: &MacTable) {
        let learn_after = self.learn_after.load(Ordering::Relaxed);
        if learn_after != 0 && second > learn_after {
            // A worker that was about to learn from a frame of the loop may have done so since.
            table.forget_learned(None);
            self.learn_after.store(0, Ordering::Relaxed);
        }
        if second >= self.blocked_until.load(Ordering::Relaxed) && !self.blocked.is_empty() {
            self.blocked.iter().for_each(|port| self.release(port));
        }
        let awaited = self.awaited.load(Ordering::Relaxed);
        if awaited != 0 && (second as u16).wrapping_sub(awaited as u16) > AWAITED_S as u16 {
            self.awaited.store(0, Ordering::Relaxed);
        }
        let is_quiet =
            self.blocked.is_empty() && self.awaited.load(Ordering::Relaxed) == 0 && learn_after == 0;
        if is_quiet {
            self.is_alert.store(false, Ordering::Relaxed);
        }
    }

    /// Unblocks a port: its time is over, or it has left the switch, and another port may get its index.
    pub fn release(&self, port: PortIndex) {
        self.blocked.remove(port);
    }

    /// Remembers a flooded frame. A frame that was decided on and not executed is not remembered: it is decided on
    /// again.
    #[inline(never)]
    pub(crate) fn remember(&self, frame: &[Fragment]) {
        if self.is_suspect(self.now_ms(), hash(frame)) {
            self.is_suspicious.store(true, Ordering::Relaxed);
        }
    }

    /// Source address of a probe, if one is to be flooded with this frame.
    #[inline]
    pub(crate) fn probe_with(&self, frame: &[Fragment]) -> Option<Mac> {
        if !self.is_suspicious.load(Ordering::Relaxed) {
            return None;
        }
        let bytes: usize = frame.iter().map(Fragment::len).sum();
        if bytes > MOST_PROBE_BYTES { None } else { self.probe(self.now_ms()) }
    }

    /// Remembers a frame. Returns whether there may be a loop.
    fn is_suspect(&self, now_ms: u64, hash: u64) -> bool {
        let second = second_of(now_ms);
        let Some(entry) = self.remembered.get((hash >> 32) as usize & (REMEMBERED - 1)) else { return false };
        let before = entry.load(Ordering::Relaxed);
        let is_known = (before ^ hash) >> 12 == 0 && (second as u8).wrapping_sub(before as u8) <= 1;
        let times = if is_known { (before >> 8 & 0xf).saturating_add(1).min(0xf) } else { 1 };
        entry.store(hash & !0xfff | times << 8 | u64::from(second as u8), Ordering::Relaxed);
        if times < TIMES {
            return false;
        }
        let repeats = self.repeats.load(Ordering::Relaxed);
        let count = if (repeats >> 32) as u32 == second { repeats as u32 + 1 } else { 1 };
        self.repeats.store(u64::from(second) << 32 | u64::from(count), Ordering::Relaxed);
        count >= REPEATS_PER_S
    }

    /// Source address of the next probe, if one is due.
    #[cold]
    fn probe(&self, now_ms: u64) -> Option<Mac> {
        self.is_suspicious.store(false, Ordering::Relaxed);
        let next = self.next_probe.load(Ordering::Relaxed);
        let (due_ms, doublings) = (next >> 8, next & 0xff);
        if now_ms < due_ms {
            return None;
        }
        // The pauses begin anew after a time without repeats as long as the longest pause.
        let doublings = if now_ms - due_ms > FIRST_PAUSE_MS << MOST_DOUBLINGS { 0 } else { doublings };
        let due_ms = now_ms + (FIRST_PAUSE_MS << doublings);
        let then = due_ms << 8 | (doublings + 1).min(MOST_DOUBLINGS);
        self.next_probe.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let mut hasher = self.key.build_hasher();
        hasher.write_u64(self.probes.fetch_add(1, Ordering::Relaxed));
        let [mut first, second, third, fourth, fifth, sixth, ..] = hasher.finish().to_be_bytes();
        // The address is locally administered, and no group address.
        first = first & !1 | 2;
        let source = Mac::from_octets([first, second, third, fourth, fifth, sixth]);
        self.awaited.store(source.bits() << 16 | u64::from(second_of(now_ms) as u16), Ordering::Relaxed);
        self.is_alert.store(true, Ordering::Relaxed);
        Some(source)
    }

    /// Port that was blocked last; reported only once.
    pub fn take_blocked(&self) -> Option<PortIndex> {
        self.unreported.swap(0, Ordering::Relaxed).checked_sub(1).map(|index| PortIndex(index as u8))
    }
}

/// Hash that distinguishes frames by their beginning and their end, but not by a VLAN tag, which a frame may have at
/// one port and not at another.
fn hash(frame: &[Fragment]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
    let mut add = |bytes: &[u8]| {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, byte)| *to = *byte);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            hash ^= hash >> 32;
        }
    };
    let mut bytes = [0; ADDRESSES_BYTES + TAG_BYTES + KNOWN_BY_BYTES];
    if let Some(first) = frame.first() {
        let len = first.bytes().read(&mut bytes);
        let (addresses, rest) = bytes.split_at(len.min(ADDRESSES_BYTES));
        let is_tagged = rest.first_chunk().is_some_and(|protocol| TAG_PROTOCOLS.contains(protocol));
        let rest = rest.get(if is_tagged { TAG_BYTES } else { 0 }..).unwrap_or(&[]);
        add(addresses);
        add(rest.get(..len.saturating_sub(ADDRESSES_BYTES + TAG_BYTES).min(KNOWN_BY_BYTES)).unwrap_or(&[]));
    }
    if let Some(last) = frame.last() {
        let end = last.bytes().skip(last.len().saturating_sub(KNOWN_BY_BYTES));
        let len = end.read(&mut bytes);
        add(bytes.get(..len).unwrap_or(&[]));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mac_table::MacTableConfig;

    const A: Mac = Mac::from_octets([2, 0, 0, 0, 0, 0xa]);
    const ONE: PortIndex = PortIndex(1);

    fn table() -> MacTable {
        MacTable::new(MacTableConfig::new(7)).unwrap()
    }

    #[test]
    fn frames_that_come_in_again_are_suspect_from_the_limit_of_a_second_on() {
        let guard = LoopGuard::new(Clock::manual());
        for second in 0..3 {
            let suspects =
                (0..REPEATS_PER_S + 3).filter(|_| guard.is_suspect(second * 1000, 0x1234_5678_9abc_de00));
            // The first three copies are not counted.
            assert_eq!(suspects.count(), if second == 0 { 1 } else { 4 });
        }
        for number in 0..100_000 {
            assert!(!guard.is_suspect(5000, number << 32), "frames that differ are not suspect");
        }
        assert!(
            (0..10).all(|second| !guard.is_suspect(10_000 + second * 2000, 7 << 40)),
            "slow ones neither"
        );
        for number in 0..3 * 1000 {
            assert!(!guard.is_suspect(40_000, (number % 1000) << 32), "nor are few copies of each of many");
        }
    }

    #[test]
    fn pauses_between_probes_double_up_to_a_minute_and_begin_anew_after_a_quiet_time() {
        let guard = LoopGuard::new(Clock::manual());
        let times = |until: u64| (0..until).filter(|&ms| guard.probe(ms).is_some()).collect::<Vec<_>>();
        assert_eq!(times(500), [0, 16, 48, 112, 240, 496]);
        let later: Vec<_> = (500..600_000).filter(|&ms| guard.probe(ms).is_some()).collect();
        let pause = FIRST_PAUSE_MS << MOST_DOUBLINGS;
        assert!(later.windows(2).all(|pair| pair[1] - pair[0] <= pause) && later.len() < 20, "{later:?}");
        assert!(guard.probe(1_000_000).is_some());
        assert!(guard.probe(1_000_000 + FIRST_PAUSE_MS).is_some());
    }

    #[test]
    fn a_port_is_blocked_by_the_awaited_probe_alone_and_for_its_time() {
        let (guard, table) = (LoopGuard::new(Clock::manual()), table());
        table.learn(A, ONE, Tick(0));
        assert!(!guard.ends_at(100, A, ONE, &table));
        let first = guard.probe(100_000).unwrap();
        let second = guard.probe(100_016).unwrap();
        assert_ne!(first, second);
        assert!(!second.is_multicast());
        assert!(!guard.ends_at(100, first, ONE, &table), "the later one is awaited");
        assert!(table.lookup(A, Tick(0)).is_some());
        assert!(guard.ends_at(100, second, ONE, &table) && guard.is_alert());
        assert_eq!(table.lookup(A, Tick(0)), None, "what the loop taught is forgotten");
        assert!(guard.ends_at(100, A, ONE, &table), "other flooded frames end there, too");
        assert!(!guard.ends_at(100, A, PortIndex(2), &table));
        assert_eq!((guard.take_blocked(), guard.take_blocked()), (Some(ONE), None));
        table.learn(A, ONE, Tick(0));
        guard.keep_time(101, &table);
        assert!(table.lookup(A, Tick(0)).is_some());
        guard.keep_time(102, &table);
        assert_eq!(table.lookup(A, Tick(0)), None, "what another worker learned meanwhile is forgotten");
        guard.keep_time(100 + BLOCKED_S - 1, &table);
        assert!(guard.ends_at(119, A, ONE, &table) && guard.is_alert());
        guard.keep_time(100 + BLOCKED_S, &table);
        assert!(!guard.ends_at(120, A, ONE, &table) && !guard.is_alert());
    }

    #[test]
    fn a_probe_that_does_not_come_back_is_not_awaited_for_ever() {
        let (guard, table) = (LoopGuard::new(Clock::manual()), table());
        let probe = guard.probe(65_535_000).unwrap();
        guard.keep_time(65_535 + AWAITED_S, &table);
        assert!(guard.is_alert());
        guard.keep_time(65_535 + AWAITED_S + 1, &table);
        assert!(!guard.is_alert() && !guard.ends_at(65_540, probe, ONE, &table));
    }
}
