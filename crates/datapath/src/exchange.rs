//! Frames for queues of another worker: a ring with one writer and one reader per ordered pair of workers.
//!
//! The sending worker hands over the borrowed fragments themselves; the receiving worker copies them to their
//! destination, then moves `consumed`. Only then does the sender release the slots to their program. So a frame that
//! crosses workers is copied once, like any other, and no lock is taken.

use std::cell::UnsafeCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ringroad_port::batch::FrameMeta;
use ringroad_port::frame::Fragment;
use ringroad_port::port_index::{PortIndex, PortMask};
use ringroad_ring::eventfd;
use ringroad_ring::wakeup::{Kicker, Sleeper, publish_fence};

use crate::forwarding::SwitchId;

/// Maximum number of workers of one datapath.
pub const MAX_WORKERS: usize = 16;
/// Entries of an exchange ring.
pub const EXCHANGE_ENTRIES: usize = 2048;

/// Destination of a handed-over frame at the receiving worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffTarget {
    /// One queue of the receiving worker.
    Queue(u32),
    /// All ports of a switch that the receiving worker serves, except the frame's source.
    Flood {
        switch: SwitchId,
        /// Port that the frame came from.
        from: PortIndex,
    },
    /// The ports of a set that the receiving worker serves.
    Ports {
        switch: SwitchId,
        /// Number of the set in the exchange ([`Inbox::ports`]).
        set: u16,
    },
}

/// A fragment of a frame that is handed over.
#[derive(Debug, Clone, Copy)]
pub struct Handoff {
    /// The borrowed bytes.
    pub fragment: Fragment,
    /// Destination of the frame.
    pub target: HandoffTarget,
    /// Switch whose counters count the frame.
    pub switch: SwitchId,
    /// The frame's metadata.
    pub meta: FrameMeta,
}

/// Doorbell of a worker: other workers and commands ring it.
#[derive(Debug)]
pub struct Doorbell {
    sleeping: AtomicU32,
    event: OwnedFd,
}

impl Doorbell {
    /// Creates a doorbell.
    ///
    /// # Errors
    /// The kernel's error from `eventfd`.
    pub fn new() -> rustix::io::Result<Self> {
        Ok(Self { sleeping: AtomicU32::new(0), event: eventfd::create()? })
    }

    /// Wakes the worker whether or not it sleeps.
    pub fn ring(&self) {
        eventfd::ring_own(&self.event);
    }

    pub(crate) fn ring_if_sleeping(&self, kicker: &mut Kicker) {
        if kicker.needs_kick(&self.sleeping) {
            self.ring();
        }
    }

    pub(crate) fn announce_sleep(&self, sleeper: &mut Sleeper) {
        sleeper.announce([&self.sleeping]);
    }

    pub(crate) fn awake(&self) {
        Sleeper::awake(&self.sleeping);
        eventfd::drain(&self.event);
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[derive(Debug)]
struct Shared {
    entries: Box<[UnsafeCell<Option<Handoff>>]>,
    /// Sets of ports that entries name; allocated with the first set.
    sets: OnceLock<Box<[UnsafeCell<PortMask>]>>,
    published: AtomicU64,
    consumed: AtomicU64,
}

// SAFETY: an entry is written by the only sender before `published` passes it (release) and read by the only receiver
// after (acquire); it is written again only after `consumed` passed it. A set is written and read in the same way: the
// entries that name it follow each other, and a set is overwritten only after as many entries as the ring has.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}
// SAFETY: fragments may move between threads; see `Fragment`.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}

/// The sending half.
#[derive(Debug)]
pub struct Outbox {
    shared: Arc<Shared>,
    written: u64,
    published: u64,
    /// The last set of ports that was written, with its number.
    last_set: Option<(PortMask, u16)>,
    bell: Arc<Doorbell>,
    kicker: Kicker,
}

/// The receiving half.
#[derive(Debug)]
pub struct Inbox {
    shared: Arc<Shared>,
    read: u64,
}

/// Creates an exchange towards the worker behind `bell`.
#[must_use]
pub fn exchange(bell: Arc<Doorbell>) -> (Outbox, Inbox) {
    let shared = Arc::new(Shared {
        entries: (0..EXCHANGE_ENTRIES).map(|_| UnsafeCell::new(None)).collect(),
        sets: OnceLock::new(),
        published: AtomicU64::new(0),
        consumed: AtomicU64::new(0),
    });
    let outbox = Outbox {
        shared: Arc::clone(&shared),
        written: 0,
        published: 0,
        last_set: None,
        bell,
        kicker: Kicker::default(),
    };
    (outbox, Inbox { shared, read: 0 })
}

impl Outbox {
    /// Number of entries that can be pushed.
    #[must_use]
    pub fn free(&self) -> usize {
        EXCHANGE_ENTRIES - (self.written - self.consumed()) as usize
    }

    /// Position behind the last entry pushed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.written
    }

    /// Position up to which the receiver has consumed entries.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.shared.consumed.load(Ordering::Acquire)
    }

    /// Writes a set of ports, and returns the number by which the next entry and later entries name it; the caller has
    /// checked [`Outbox::free`].
    #[allow(unsafe_code)]
    pub fn set(&mut self, ports: PortMask) -> u16 {
        if let Some((last, number)) = self.last_set
            && last == ports
        {
            return number;
        }
        assert!(self.free() > 0, "exchange overrun");
        let number = self.last_set.map_or(0, |(_, last)| (usize::from(last) + 1) % EXCHANGE_ENTRIES);
        let make = || (0..EXCHANGE_ENTRIES).map(|_| UnsafeCell::new(PortMask::default())).collect();
        let set_cell = &self.shared.sets.get_or_init(make)[number];
        // SAFETY: every set since the last one at this index came with an entry. So the entries that name the old set
        // are at least a ring's length back, and the receiver has consumed them: some entry is free, asserted above.
        unsafe { *set_cell.get() = ports };
        self.last_set = Some((ports, number as u16));
        number as u16
    }

    /// Adds an entry; the caller has checked [`Outbox::free`].
    #[allow(unsafe_code)]
    pub fn push(&mut self, handoff: Handoff) {
        assert!(self.free() > 0, "exchange overrun");
        let entry = &self.shared.entries[self.written as usize % EXCHANGE_ENTRIES];
        // SAFETY: the receiver has consumed this entry, asserted above, and does not read it until published.
        unsafe { *entry.get() = Some(handoff) };
        self.written += 1;
    }

    /// Makes pushed entries visible and wakes the receiver if it sleeps.
    pub fn flush(&mut self) {
        if self.published != self.written {
            self.published = self.written;
            self.shared.published.store(self.written, Ordering::Release);
            publish_fence();
            self.bell.ring_if_sleeping(&mut self.kicker);
        }
    }
}

impl Inbox {
    /// Whether an entry waits.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.shared.published.load(Ordering::Acquire) != self.read
    }

    /// Returns the next entry. The entry stays the next until [`Inbox::skip`], and its bytes stay borrowed until
    /// [`Inbox::consume`].
    #[allow(unsafe_code)]
    #[must_use]
    pub fn peek(&self) -> Option<Handoff> {
        if !self.has_waiting() {
            return None;
        }
        let entry = &self.shared.entries[self.read as usize % EXCHANGE_ENTRIES];
        // SAFETY: the entry is published, so the sender does not touch it until the entry is consumed.
        unsafe { *entry.get() }
    }

    /// Ports of the set that the entry of [`Inbox::peek`] names.
    #[allow(unsafe_code)]
    #[must_use]
    pub fn ports(&self, set: u16) -> PortMask {
        let set_cell = self.shared.sets.get().and_then(|sets| sets.get(usize::from(set)));
        // SAFETY: the entry is published and not consumed, so the sender does not touch its set.
        set_cell.map_or_else(PortMask::default, |set_cell| unsafe { *set_cell.get() })
    }

    /// Moves on to the entry after the one that [`Inbox::peek`] returned.
    pub fn skip(&mut self) {
        self.read += 1;
    }

    /// Whether entries were taken and not handed back yet.
    #[must_use]
    pub fn has_taken(&self) -> bool {
        self.shared.consumed.load(Ordering::Relaxed) != self.read
    }

    /// Hands all taken entries back to the sender.
    pub fn consume(&mut self) {
        self.shared.consumed.store(self.read, Ordering::Release);
    }
}

/// Position of the last handed-over entry, for each worker.
pub(crate) fn positions(outboxes: &[Option<Outbox>]) -> [u64; MAX_WORKERS] {
    let mut positions = [0; MAX_WORKERS];
    for (position, outbox) in positions.iter_mut().zip(outboxes) {
        *position = outbox.as_ref().map_or(0, Outbox::position);
    }
    positions
}

/// Whether all workers have consumed the entries handed over to them before `positions`.
pub(crate) fn is_consumed(positions: &[u64; MAX_WORKERS], outboxes: &[Option<Outbox>]) -> bool {
    let mut pairs = positions.iter().zip(outboxes);
    pairs.all(|(&position, outbox)| outbox.as_ref().is_none_or(|outbox| outbox.consumed() >= position))
}
