//! A device's binding in this process: the mapped region, the rings, and the wake-ups.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ringroad_control::netmap::{Badge, Bound, NetmapReply, NetmapRequest, RingBinding as Placed};
use ringroad_ring::eventfd;
use ringroad_ring::layout::Direction;
use ringroad_ring::ring_view::{Cursors, RingView};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::abi::register_flag::{NO_TX_POLL, OF_2012};
use crate::bell::Bell;
use crate::bound_ring::BoundRing;
use crate::daemon_link;
use crate::mapping::{RegionMapping, mapping_of};
use crate::monitor_fill::Monitor;
use crate::outcome::SyncOutcome;
use crate::private_descriptors::PrivateDescriptor;
use crate::ring_lock::{RingLock, SyncIntent};
use crate::urgency::warn_if_above;
use crate::wakers::Wakers;

/// Ring flag `NR_TIMESTAMP`.
const RING_TIMESTAMP: u32 = 0x2;
/// Ring flag `NR_FORWARD`.
const RING_FORWARD: u32 = 0x4;
/// Longest sleep, if another sleeper may get the wake-up, or if its sender may end.
pub(crate) const SHARED_SLEEP: Duration = Duration::from_millis(5);

/// Number of successive changes of a ring's monitors after which a sync gives up.
const MONITOR_CHANGES: u32 = 4;

/// Number of syncs without a result between two offers of the processor to the other side, which may have no other
/// processor.
const SYNCS_PER_YIELD: u32 = 64;
/// Number of syncs without a result between two checks for the daemon's end, and for a priority above the workers'.
const SYNCS_PER_CHECK: u32 = 256;

const READ: i16 = libc::POLLIN | libc::POLLRDNORM;
const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM;

#[derive(Debug)]
struct Events {
    kick: Bell,
    notify: Arc<Bell>,
}

/// A device's binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) badge: Badge,
    pub(crate) bound: Bound,
    pub(crate) mapping: Arc<RegionMapping>,
    pub(crate) tx: Vec<BoundRing>,
    pub(crate) rx: Vec<BoundRing>,
    events: Vec<Events>,
    /// Number of threads of this process that sleep on the binding.
    sleepers: AtomicU32,
    /// Connection that shows the end of the daemon.
    lifeline: Option<PrivateDescriptor>,
    gone: AtomicBool,
    /// Number of syncs that moved no slot.
    vain_syncs: AtomicU32,
}

impl Binding {
    /// Binds the device with the daemon's reply to REGISTER, or to a request for the binding.
    pub(crate) fn new(
        badge: Badge,
        bound: Bound,
        descriptors: Vec<std::os::fd::OwnedFd>,
    ) -> Result<Self, Errno> {
        if !bound.is_single_user {
            eventfd::prepare()?;
        }
        warn_if_above(bound.workers_real_time);
        let mut descriptors = descriptors.into_iter();
        let memory = descriptors.next().ok_or(Errno::IO)?;
        let mapping = mapping_of(bound.geometry, memory)?;
        let mut events = Vec::new();
        while let (Some(kick), Some(notify)) = (descriptors.next(), descriptors.next()) {
            let [kick, notify] = [kick, notify].map(|event| Bell::new(event, bound.is_single_user));
            events.push(Events { kick, notify: Arc::new(notify) });
        }
        let ring = |bound_ring: &Placed| {
            let events = events.get(usize::from(bound_ring.events)).ok_or(Errno::IO)?;
            BoundRing::new(&mapping, bound_ring, &events.notify).map_err(|_| Errno::IO)
        };
        let rings: Vec<BoundRing> = bound.rings.iter().map(ring).collect::<Result<_, _>>()?;
        let (tx, rx) = rings.into_iter().partition(|ring| ring.direction == Direction::Tx);
        Ok(Self {
            badge,
            bound,
            mapping,
            tx,
            rx,
            events,
            sleepers: AtomicU32::new(0),
            lifeline: daemon_link::lifeline(),
            gone: AtomicBool::new(false),
            vain_syncs: AtomicU32::new(0),
        })
    }

    /// All rings, the tx rings first.
    pub(crate) fn rings(&self) -> impl Iterator<Item = &BoundRing> {
        self.tx.iter().chain(&self.rx)
    }

    /// Descriptor on which a ring's program waits.
    pub(crate) fn notify_of(&self, ring: &BoundRing) -> Option<std::os::fd::RawFd> {
        self.events.get(ring.events).map(|events| events.notify.as_fd().as_raw_fd())
    }

    pub(crate) fn drain_notify(&self, ring: &BoundRing) {
        if let Some(events) = self.events.get(ring.events) {
            eventfd::drain(events.notify.as_fd());
        }
    }

    /// Wakes the other side of a ring.
    pub(crate) fn kick(&self, ring: &BoundRing) {
        if let Some(events) = self.events.get(ring.events) {
            events.kick.ring();
        }
    }

    /// Updates the monitors that have to be filled. There are none if the daemon does not report any.
    #[cold]
    fn update_monitors(&self) {
        let generations: Vec<u32> =
            self.rings().map(|ring| ring.view.control().datapath.monitors.load(Ordering::Acquire)).collect();
        let (monitor_rings, descriptors) = match daemon_link::ask(Some(self.badge), NetmapRequest::Monitors) {
            Ok((NetmapReply::Monitors(monitor_rings), descriptors)) => (monitor_rings, descriptors),
            _ => (Vec::new(), Vec::new()),
        };
        let mut monitors: Vec<Vec<Monitor>> = self.rings().map(|_| Vec::new()).collect();
        for (monitor_ring, notify) in monitor_rings.iter().zip(descriptors) {
            let Ok(ring) = RingView::new(&self.mapping.region, monitor_ring.object, monitor_ring.slots)
            else {
                continue;
            };
            let monitored = self.rings().position(|ring| {
                ring.direction == monitor_ring.direction && ring.index == monitor_ring.index
            });
            if let Some(list) = monitored.and_then(|index| monitors.get_mut(index)) {
                let notify = Arc::new(Bell::new(notify, self.bound.is_single_user));
                let lock = RingLock::new(&ring, &self.mapping.holder, &notify);
                list.push(Monitor { ring, lock, zero_copy: monitor_ring.zero_copy, sent: monitor_ring.sent });
            }
        }
        for ((ring, generation), monitors) in self.rings().zip(generations).zip(monitors) {
            ring.monitors.set(generation, monitors);
        }
    }

    /// Outcome of a sync, which is done `again` once the monitors that it has to fill are known.
    #[inline]
    pub(crate) fn with_monitors(&self, outcome: SyncOutcome, again: impl Fn() -> SyncOutcome) -> SyncOutcome {
        if outcome == SyncOutcome::MONITORS_CHANGED { self.with_new_monitors(again) } else { outcome }
    }

    #[cold]
    fn with_new_monitors(&self, sync: impl Fn() -> SyncOutcome) -> SyncOutcome {
        for _ in 0..MONITOR_CHANGES {
            self.update_monitors();
            match sync() {
                SyncOutcome::MONITORS_CHANGED => {}
                outcome => return outcome,
            }
        }
        SyncOutcome::SKIPPED
    }

    /// Syncs a ring whose header has these values.
    #[inline(always)]
    fn sync_ring(&self, ring: &BoundRing, cursors: Cursors, intent: SyncIntent) -> SyncOutcome {
        let mut outcome = ring.sync(cursors, intent);
        if outcome.intersects(SyncOutcome::UNSYNCED) {
            outcome = self.not_synced(ring, outcome, intent);
        }
        if outcome.intersects(SyncOutcome::KICK) {
            self.kick(ring);
        }
        outcome
    }

    /// Outcome of a sync that did nothing; the sync may be repeated.
    #[cold]
    fn not_synced(&self, ring: &BoundRing, outcome: SyncOutcome, intent: SyncIntent) -> SyncOutcome {
        let outcome = self.with_monitors(outcome, || ring.sync(ring.view.cursors_shown(), intent));
        // The program that holds the lock publishes the result. Whether the ring has slots can be seen nevertheless.
        let cursors = ring.view.cursors_shown();
        outcome | SyncOutcome::READY.when(outcome == SyncOutcome::SKIPPED && cursors.cur != cursors.tail)
    }

    #[inline]
    fn is_of_2012(&self) -> bool {
        self.bound.flags & OF_2012 != 0
    }

    /// Prepares new rings for a program of 2012. What such a program keeps of a shared ring is left alone.
    pub(crate) fn begin_as_2012(&self) {
        if self.is_of_2012() {
            for ring in self.rings() {
                if ring.users() <= 1 {
                    ring.view.clear_reserved();
                }
                ring.view.show_available();
            }
        }
    }

    /// Syncs the tx rings. `idle_too`: also the rings on which the program has done nothing.
    #[inline(always)]
    fn sync_tx(&self, idle_too: bool, intent: SyncIntent) -> SyncOutcome {
        if self.is_of_2012() {
            derive_heads(&self.tx);
        }
        let mut outcome = SyncOutcome::default();
        for ring in &self.tx {
            if idle_too || ring.has_news() {
                outcome |= self.sync_ring(ring, ring.view.cursors_shown(), intent);
            }
        }
        if self.is_of_2012() {
            show_available(&self.tx, outcome);
        }
        outcome
    }

    #[inline(always)]
    fn sync_rx(&self, intent: SyncIntent) -> SyncOutcome {
        if self.is_of_2012() {
            derive_heads(&self.rx);
        }
        let mut outcome = SyncOutcome::default();
        let mut now = None;
        for ring in &self.rx {
            let cursors = ring.view.cursors_shown();
            if cursors.flags & RING_FORWARD != 0 {
                self.forward(ring);
            }
            let synced = self.sync_ring(ring, cursors, intent);
            outcome |= synced;
            if synced.intersects(SyncOutcome::GAINED) || cursors.flags & RING_TIMESTAMP != 0 {
                let now = now.get_or_insert_with(|| clock_gettime(ClockId::Realtime));
                ring.view.stamp(now.tv_sec, i64::from(now.tv_nsec as u32 / 1000));
            }
        }
        if self.is_of_2012() {
            show_available(&self.rx, outcome);
        }
        outcome
    }

    /// Passes the slots that the program has marked from a network interface to its host side, or the other way.
    fn forward(&self, ring: &BoundRing) {
        let mut to = self.tx.iter().filter(|tx| tx.host != ring.host);
        if let Some(to) = to.next() {
            ring.forward(to);
            self.kick(to);
        }
    }

    /// Whether the daemon has ended. Costs a system call.
    #[cold]
    fn is_orphaned(&self) -> bool {
        if self.lifeline.as_ref().is_some_and(daemon_link::is_hung_up) {
            self.gone.store(true, Ordering::Relaxed);
        }
        self.gone.load(Ordering::Relaxed)
    }

    /// Counts a sync that moved no slot. A program that repeats such syncs waits for the other side.
    fn count_vain(&self) {
        // Threads that count at the same time lose a count, which is harmless.
        let syncs = self.vain_syncs.load(Ordering::Relaxed).wrapping_add(1);
        self.vain_syncs.store(syncs, Ordering::Relaxed);
        if syncs.is_multiple_of(SYNCS_PER_YIELD) {
            std::thread::yield_now();
        }
        if syncs.is_multiple_of(SYNCS_PER_CHECK) {
            self.is_orphaned();
            warn_if_above(self.bound.workers_real_time);
        }
    }

    /// Returns EIO if the daemon has ended. A program that always syncs without a result also gets to know this.
    fn check_daemon(&self, round: SyncOutcome) -> Result<(), Errno> {
        if !round.intersects(SyncOutcome::MOVED) {
            self.count_vain();
        }
        match self.gone.load(Ordering::Relaxed) {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// Sync of NIOCTXSYNC.
    pub(crate) fn tx_sync(&self) -> Result<(), Errno> {
        let round = self.sync_tx(true, SyncIntent::Passing);
        self.check_daemon(round)?;
        if round.intersects(SyncOutcome::STOPPED) { self.check_stopped() } else { Ok(()) }
    }

    /// Returns EIO if a ring has stopped; a monitor's tx rings fail without an error, by design.
    #[cold]
    fn check_stopped(&self) -> Result<(), Errno> {
        match self.tx.iter().any(BoundRing::is_served) {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// Sync of NIOCRXSYNC.
    pub(crate) fn rx_sync(&self) -> Result<(), Errno> {
        let round = self.sync_rx(SyncIntent::Passing);
        self.check_daemon(round)?;
        if round.intersects(SyncOutcome::STOPPED) { Err(Errno::IO) } else { Ok(()) }
    }

    /// Polls without sleeping.
    pub(crate) fn ready(&self, events: i16) -> i16 {
        self.check_events(events, SyncIntent::Passing).0
    }

    /// Ready events among `events`, and whether a ring was skipped.
    fn check_events(&self, events: i16, intent: SyncIntent) -> (i16, bool) {
        let mut result = if self.gone.load(Ordering::Relaxed) { libc::POLLERR } else { 0 };
        let mut skipped = false;
        let mut add = |round: SyncOutcome, wanted: i16| {
            skipped |= round.intersects(SyncOutcome::SKIPPED);
            if round.intersects(SyncOutcome::READY) {
                result |= events & wanted;
            }
            if round.intersects(SyncOutcome::FAILED) {
                result |= libc::POLLERR;
            }
        };
        let wants_tx = events & WRITE != 0;
        if wants_tx || self.bound.flags & NO_TX_POLL == 0 {
            add(self.sync_tx(wants_tx, intent), WRITE);
        }
        if events & READ != 0 {
            add(self.sync_rx(intent), READ);
        }
        (result, skipped)
    }

    /// Rings for which `events` wait.
    fn awaited(&self, events: i16) -> impl Iterator<Item = &BoundRing> {
        let tx = if events & WRITE != 0 { &self.tx[..] } else { &[] };
        let rx = if events & READ != 0 { &self.rx[..] } else { &[] };
        tx.iter().chain(rx)
    }

    /// Announces a sleep and checks once more.
    pub(crate) fn arm(&self, events: i16, wakers: &mut Wakers) -> i16 {
        if self.is_orphaned() {
            return libc::POLLERR;
        }
        let sleepers = self.sleepers.fetch_add(1, Ordering::Relaxed) + 1;
        let mut shared = sleepers > 1;
        let mut last = None;
        for ring in self.awaited(events) {
            if last != Some(ring.events) {
                // The sync below sees the events that were notified.
                self.drain_notify(ring);
                last = Some(ring.events);
            }
            announce(ring);
            shared |= ring.users() > 1;
        }
        std::sync::atomic::fence(Ordering::SeqCst);
        let (ready, skipped) = self.check_events(events, SyncIntent::BeforeSleep);
        if ready != 0 {
            self.disarm(events);
            return ready;
        }
        let mut last = None;
        for ring in self.awaited(events) {
            if last != Some(ring.events) {
                wakers.descriptors.extend(self.notify_of(ring));
                last = Some(ring.events);
            }
        }
        let lifeline = self.lifeline.as_ref().map(|lifeline| lifeline.as_fd().as_raw_fd());
        wakers.descriptors.extend(lifeline);
        // The holder of a skipped ring's lock wakes this thread on release, unless the holder is killed before.
        if shared || skipped {
            wakers.check_every(SHARED_SLEEP);
        }
        0
    }

    /// Withdraws the announcement, unless another sleeper still needs it.
    pub(crate) fn disarm(&self, events: i16) {
        if self.sleepers.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        for ring in self.awaited(events).filter(|ring| ring.users() <= 1) {
            ring.sleeping_flag().store(0, Ordering::Relaxed);
        }
    }
}

/// Takes over what a program of 2012 has done in `rings`.
#[cold]
fn derive_heads(rings: &[BoundRing]) {
    for ring in rings {
        ring.view.derive_head(ring.direction == Direction::Rx);
    }
}

/// Shows a program of 2012 the `outcome` of a sync of `rings`.
#[cold]
fn show_available(rings: &[BoundRing], outcome: SyncOutcome) {
    for ring in rings {
        if outcome.intersects(SyncOutcome::BAD_INDEXES) {
            // Also a wrong `reserved` is put right.
            ring.view.clear_reserved();
        }
        ring.view.show_available();
    }
}

/// Announces a sleep on a ring, under an unused number.
pub(crate) fn announce(ring: &BoundRing) {
    let number = ring.view.control().program.last_sleep.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    // The number 0 means awake.
    ring.sleeping_flag().store(number.max(1), Ordering::Relaxed);
}
