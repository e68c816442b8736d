//! A device's binding in this process: the mapped region, the rings, and the wake-ups.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringroad_control::netmap::{Badge, Bound, BoundRing as Placed, NetmapReply, NetmapRequest};
use ringroad_ring::eventfd;
use ringroad_ring::layout::Direction;
use ringroad_ring::ring_view::RingView;
use rustix::io::Errno;

use crate::abi::register_flag::NO_TX_POLL;
use crate::bound_ring::{BoundRing, Outcome};
use crate::daemon_link;
use crate::mapping::{Mapping, mapping_of};
use crate::monitor_fill::Monitor;
use crate::private_descriptors::PrivateDescriptor;
use crate::ring_lock::{Look, RingLock};
use crate::wakers::Wakers;

/// Ring flag `NR_FORWARD`.
const RING_FORWARD: u32 = 0x4;
/// Frames that a switch takes from an explicit sync before that returns, as in a kernel; of more the rest follows at once.
const AWAITED_SLOTS: u32 = 64;
/// How long is waited at most for a worker to take them.
const AWAIT_MOST: Duration = Duration::from_millis(20);
/// Longest sleep if the wake-up may go to another sleeper, or its sender may end.
pub(crate) const SHARED_SLEEP: Duration = Duration::from_millis(5);

/// How many changes of its monitors in a row a sync goes along with.
const MONITOR_CHANGES: u32 = 4;

/// Syncs in vain between two looks at whether the daemon is still there.
const SYNCS_PER_LOOK: u32 = 256;

const READ: i16 = libc::POLLIN | libc::POLLRDNORM;
const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// Whether any device of this process has sent something that a worker has perhaps not taken yet.
static UNTAKEN: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Events {
    kick: PrivateDescriptor,
    notify: Arc<PrivateDescriptor>,
}

/// A device's binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) badge: Badge,
    pub(crate) bound: Bound,
    pub(crate) mapping: Arc<Mapping>,
    /// Tx rings first.
    rings: Vec<BoundRing>,
    events: Vec<Events>,
    tx_rings: usize,
    /// Threads of this process that sleep on it.
    sleepers: AtomicU32,
    /// Shows when the daemon ends.
    lifeline: Option<PrivateDescriptor>,
    gone: AtomicBool,
    /// Syncs that brought nothing, since the last look at the lifeline.
    vain_syncs: AtomicU32,
}

/// The result of a round of syncs.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    ready: bool,
    failed: bool,
    stopped: bool,
    skipped: bool,
}

impl Binding {
    /// Takes up the daemon's reply to REGISTER, or to a request for the binding.
    pub(crate) fn new(
        badge: Badge,
        bound: Bound,
        descriptors: Vec<std::os::fd::OwnedFd>,
    ) -> Result<Self, Errno> {
        eventfd::prepare()?;
        let mut descriptors = descriptors.into_iter();
        let memory = descriptors.next().ok_or(Errno::IO)?;
        let mapping = mapping_of(bound.geometry, memory)?;
        let mut events = Vec::new();
        while let (Some(kick), Some(notify)) = (descriptors.next(), descriptors.next()) {
            let [kick, notify] = [kick, notify].map(PrivateDescriptor::new);
            events.push(Events { kick, notify: Arc::new(notify) });
        }
        let ring = |placed: &Placed| {
            let events = events.get(usize::from(placed.events)).ok_or(Errno::IO)?;
            BoundRing::new(&mapping, placed, &events.notify).map_err(|_| Errno::IO)
        };
        let rings: Vec<BoundRing> = bound.rings.iter().map(ring).collect::<Result<_, _>>()?;
        let tx_rings = rings.iter().filter(|ring| ring.direction == Direction::Tx).count();
        Ok(Self {
            badge,
            bound,
            mapping,
            rings,
            events,
            tx_rings,
            sleepers: AtomicU32::new(0),
            lifeline: daemon_link::lifeline(),
            gone: AtomicBool::new(false),
            vain_syncs: AtomicU32::new(0),
        })
    }

    /// The tx rings, and the rx rings.
    pub(crate) fn rings(&self) -> (&[BoundRing], &[BoundRing]) {
        self.rings.split_at(self.tx_rings)
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
            eventfd::ring(events.kick.as_fd());
        }
    }

    /// Learns of the monitors that have to be filled. Where the daemon does not say there are none.
    #[cold]
    fn update_monitors(&self) {
        let generations: Vec<u32> = self
            .rings
            .iter()
            .map(|ring| ring.view.control().datapath.monitors.load(Ordering::Acquire))
            .collect();
        let (placed, descriptors) = match daemon_link::ask(Some(self.badge), NetmapRequest::Monitors) {
            Ok((NetmapReply::Monitors(placed), descriptors)) => (placed, descriptors),
            _ => (Vec::new(), Vec::new()),
        };
        let mut monitors: Vec<Vec<Monitor>> = self.rings.iter().map(|_| Vec::new()).collect();
        for (placed, notify) in placed.iter().zip(descriptors) {
            let Ok(ring) = RingView::new(self.mapping.region(), placed.object, placed.slots) else {
                continue;
            };
            let looked_at = self
                .rings
                .iter()
                .position(|ring| ring.direction == placed.direction && ring.index == placed.index);
            if let Some(list) = looked_at.and_then(|place| monitors.get_mut(place)) {
                let notify = Arc::new(PrivateDescriptor::new(notify));
                let lock = RingLock::new(&ring, self.mapping.holder(), &notify);
                list.push(Monitor { ring, lock, zero_copy: placed.zero_copy, sent: placed.sent });
            }
        }
        for ((ring, generation), monitors) in self.rings.iter().zip(generations).zip(monitors) {
            ring.monitors().set(generation, monitors);
        }
    }

    /// The work of `sync`, once the monitors that it has to fill are known.
    #[inline]
    pub(crate) fn with_monitors(&self, sync: impl Fn() -> Outcome) -> Outcome {
        for _ in 0..MONITOR_CHANGES {
            match sync() {
                Outcome::MonitorsChanged => self.update_monitors(),
                outcome => return outcome,
            }
        }
        Outcome::Skipped
    }

    fn sync_ring(&self, ring: &BoundRing, look: Look, round: &mut Round) -> u32 {
        match self.with_monitors(|| ring.sync(look)) {
            Outcome::Synced { given, ready, kick } => {
                if kick {
                    self.kick(ring);
                }
                round.ready |= ready;
                return given;
            }
            // Whoever is at it shows the result; whether there is something can be seen all the same.
            Outcome::Skipped | Outcome::MonitorsChanged => {
                let cursors = ring.view.cursors_shown();
                round.ready |= cursors.cur != cursors.tail;
                round.skipped = true;
            }
            Outcome::BadIndexes => round.failed = true,
            Outcome::Stopped => (round.failed, round.stopped) = (true, true),
        }
        0
    }

    /// Syncs the tx rings. `idle_too`: also those on which the program has done nothing.
    fn sync_tx(&self, idle_too: bool, look: Look) -> (Round, u32) {
        let mut round = Round::default();
        let mut given = 0;
        for ring in self.rings().0 {
            if idle_too || ring.has_news() {
                given += self.sync_ring(ring, look, &mut round);
            }
        }
        (round, given)
    }

    fn sync_rx(&self, look: Look) -> Round {
        let mut round = Round::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for ring in self.rings().1 {
            if ring.view.cursors_shown().flags & RING_FORWARD != 0 {
                self.forward(ring);
            }
            self.sync_ring(ring, look, &mut round);
            ring.view.stamp(now.as_secs() as i64, i64::from(now.subsec_micros()));
        }
        round
    }

    /// Syncs the rx rings. If they are empty, waits for frames that this process has sent itself, and syncs again.
    fn sync_rx_behind_own(&self, look: Look) -> Round {
        let round = self.sync_rx(look);
        if round.ready || !UNTAKEN.swap(false, Ordering::Relaxed) {
            return round;
        }
        crate::device::for_each_bound(Self::await_taken);
        self.sync_rx(look)
    }

    /// Passes the slots that the program has marked from a network interface to its host side or the other way.
    fn forward(&self, ring: &BoundRing) {
        let mut to = self.rings().0.iter().filter(|tx| tx.host != ring.host);
        if let Some(to) = to.next() {
            ring.forward(to);
            self.kick(to);
        }
    }

    /// Whether a switch takes the sent frames, at once and without back pressure.
    fn is_on_switch(&self) -> bool {
        self.bound.sizes.host_tx_rings == 0
    }

    /// Waits until a worker has taken the sent frames, usually some microseconds; the limit is for a worker that cannot
    /// run.
    fn await_taken(&self) {
        let mut started = None;
        for ring in self.rings().0.iter().filter(|ring| ring.is_served()) {
            let mut looks = 0u32;
            while !ring.is_consumed() {
                looks += 1;
                if looks < 200 {
                    std::hint::spin_loop();
                    continue;
                }
                let started = started.get_or_insert_with(std::time::Instant::now);
                if started.elapsed() > AWAIT_MOST {
                    return;
                }
                std::thread::yield_now();
            }
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

    /// EIO where the daemon has ended. A program that syncs in vain for ever learns of it too.
    fn check_daemon(&self, in_vain: bool) -> Result<(), Errno> {
        let looks =
            in_vain && self.vain_syncs.fetch_add(1, Ordering::Relaxed) % SYNCS_PER_LOOK == SYNCS_PER_LOOK - 1;
        if looks {
            self.is_orphaned();
        }
        match self.gone.load(Ordering::Relaxed) {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// NIOCTXSYNC.
    pub(crate) fn tx_sync(&self) -> Result<(), Errno> {
        let (mut round, given) = self.sync_tx(true, Look::Passing);
        if given > 0 && self.is_on_switch() {
            match given <= AWAITED_SLOTS {
                true => {
                    self.await_taken();
                    // The program sees its slots come back, as after a system call.
                    round.stopped |= self.sync_tx(true, Look::Passing).0.stopped;
                }
                false => UNTAKEN.store(true, Ordering::Relaxed),
            }
        }
        self.check_daemon(!round.ready)?;
        self.check_stopped(round)
    }

    fn check_stopped(&self, round: Round) -> Result<(), Errno> {
        // A monitor's tx rings fail without an error, by design.
        let fails_by_design = |ring: &BoundRing| !ring.is_served();
        match round.stopped && !self.rings().0.iter().all(fails_by_design) {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// NIOCRXSYNC.
    pub(crate) fn rx_sync(&self) -> Result<(), Errno> {
        let round = self.sync_rx_behind_own(Look::Passing);
        self.check_daemon(!round.ready)?;
        if round.stopped { Err(Errno::IO) } else { Ok(()) }
    }

    /// A poll without sleeping.
    pub(crate) fn ready(&self, events: i16) -> i16 {
        self.look(events, Look::Passing).0
    }

    /// The ready events among `events`, and whether a ring was skipped.
    fn look(&self, events: i16, look: Look) -> (i16, bool) {
        let mut result = if self.gone.load(Ordering::Relaxed) { libc::POLLERR } else { 0 };
        let mut skipped = false;
        let wants_tx = events & WRITE != 0;
        if wants_tx || self.bound.flags & NO_TX_POLL == 0 {
            let (round, given) = self.sync_tx(wants_tx, look);
            skipped |= round.skipped;
            if given > 0 && self.is_on_switch() {
                UNTAKEN.store(true, Ordering::Relaxed);
            }
            if wants_tx && round.ready {
                result |= events & WRITE;
            }
            if round.failed {
                result |= libc::POLLERR;
            }
        }
        if events & READ != 0 {
            let round = self.sync_rx_behind_own(look);
            skipped |= round.skipped;
            if round.ready {
                result |= events & READ;
            }
            if round.failed {
                result |= libc::POLLERR;
            }
        }
        (result, skipped)
    }

    /// Rings on which `events` wait.
    fn awaited(&self, events: i16) -> impl Iterator<Item = &BoundRing> {
        let (tx, rx) = self.rings();
        let tx = if events & WRITE != 0 { tx } else { &[] };
        let rx = if events & READ != 0 { rx } else { &[] };
        tx.iter().chain(rx)
    }

    /// Announces a sleep and looks once more.
    pub(crate) fn arm(&self, events: i16, wakers: &mut Wakers) -> i16 {
        if self.is_orphaned() {
            return libc::POLLERR;
        }
        let sleepers = self.sleepers.fetch_add(1, Ordering::Relaxed) + 1;
        let mut shared = sleepers > 1;
        let mut last = None;
        for ring in self.awaited(events) {
            if last != Some(ring.events) {
                // Whatever it stands for is seen by the sync below.
                self.drain_notify(ring);
                last = Some(ring.events);
            }
            announce(ring);
            shared |= ring.users() > 1;
        }
        std::sync::atomic::fence(Ordering::SeqCst);
        let (ready, skipped) = self.look(events, Look::BeforeSleep);
        if ready != 0 {
            self.disarm(events);
            return ready;
        }
        let mut last = None;
        for ring in self.awaited(events) {
            if last != Some(ring.events) {
                wakers.extend(self.notify_of(ring));
                last = Some(ring.events);
            }
        }
        wakers.extend(self.lifeline.as_ref().map(|lifeline| lifeline.as_fd().as_raw_fd()));
        // Whoever has the lock of a ring that was skipped wakes us on releasing it, unless it is killed before.
        if shared || skipped {
            wakers.look_every(SHARED_SLEEP);
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

/// Announces a sleep on a ring, under an unused number.
pub(crate) fn announce(ring: &BoundRing) {
    let number = ring.view.control().program.last_sleep.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    // 0 means awake.
    ring.sleeping_flag().store(number.max(1), Ordering::Relaxed);
}
