//! The sending side of one queue. A queue load is a load's share on this queue, and puts its frames into the tx ring
//! when they are due.
#![allow(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ringroad::{FreeSlot, PortError, TxRing};
use ringroad_traffic::frame_source::{Variation, WriteFrames};
use ringroad_traffic::pacing::{DepartureError, Departures, OfferedLoad};
use ringroad_traffic::stream_mix::StreamMix;

use crate::clock::ClockReader;
use crate::control::Control;
use crate::queue_task::TaskTurn;
use crate::shared::{FrameCount, FrameCounter};

/// Longest time after the end of a load in which it can send frames that were due before the end, ns.
const LONGEST_CATCH_UP_NS: u64 = 1_000_000_000;
/// Number of frames of one burst that share a reading of the clock.
const FRAMES_PER_TIMESTAMP: u32 = 8;

/// A load's share on one queue.
#[derive(Debug)]
pub(crate) struct QueueLoad {
    pub(crate) load: usize,
    /// Index of the queue load's first stream among the session's streams; its other streams follow.
    pub(crate) first_stream: usize,
    pub(crate) mix: StreamMix,
    pub(crate) departures: Departures,
    /// Number of frames to send in each start.
    pub(crate) frame_limit: u64,
    pub(crate) duration_ns: u64,
    pub(crate) delay_ns: u64,
    pub(crate) counter: Arc<FrameCounter>,
    pub(crate) totals: LoadTotals,
    pub(crate) state: QueueLoadState,
    pub(crate) starts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueLoadState {
    Idle,
    /// Number of frames left, and end of the queue load, ns.
    Sending {
        left: u64,
        end_ns: u64,
    },
}

/// Counts of a queue load, over all its starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadTotals {
    pub(crate) sent: FrameCount,
    /// Offered load of the starts that are over.
    pub(crate) offered: OfferedLoad,
    pub(crate) timing: DepartureError,
    /// Time at which the first frame was handed over, ns.
    pub(crate) first_ns: Option<u64>,
    /// Time at which the last frame was handed over, ns.
    pub(crate) last_ns: u64,
}

/// The queue loads of one queue.
#[derive(Debug)]
pub(crate) struct Sender {
    queue_loads: Vec<QueueLoad>,
    control: Arc<Control>,
    seen_version: u64,
    burst: u32,
    /// Sending queue loads by the time of their next frame; unused with a single queue load.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    current: Burst,
    active: usize,
    /// Earliest end of a queue load, ns; 0 if a queue load has finished already.
    next_end_ns: u64,
    /// Time from which on frames have been due and the ring has had no room, ns.
    blocked_since_ns: Option<u64>,
    blocked_ns: u64,
}

/// Records made while slots are filled.
#[derive(Debug)]
struct Burst {
    /// Index of the queue load and due time of each frame of the burst, for the queue load's timing error. Times are ns
    /// after the queue load's start.
    log: Vec<(usize, f64)>,
    held: HeldFrames,
}

/// Number of slots that hold a frame of the sender's only stream, so that only the varying bytes need to be written.
/// Equals the number of slots handed over last, since a ring hands over its slots in order and slots keep their
/// buffers.
#[derive(Debug)]
struct HeldFrames {
    /// Whether there is a single queue load. Several queue loads would overwrite each other's frames.
    is_sole_lane: bool,
    /// The region with the slots' buffers.
    region: Option<(u64, u64)>,
    slots: u32,
}

impl HeldFrames {
    /// Whether every slot of `tx` holds a frame of the stream. `None` if another program may have written to the
    /// buffers.
    #[inline]
    fn fill(&mut self, tx: &TxRing) -> Option<bool> {
        let region = tx.region_of_kept_buffers().filter(|_| self.is_sole_lane)?;
        if self.region != Some(region) {
            (self.region, self.slots) = (Some(region), 0);
        }
        Some(self.slots >= tx.slot_count())
    }

    /// Records that `slots` more slots were handed over.
    #[inline]
    fn add(&mut self, slots: u32) {
        self.slots = self.slots.saturating_add(slots);
    }
}

impl Sender {
    pub(crate) fn new(queue_loads: Vec<QueueLoad>, control: Arc<Control>, burst: u32) -> Self {
        Self {
            current: Burst {
                log: Vec::with_capacity(burst as usize),
                held: HeldFrames { is_sole_lane: queue_loads.len() == 1, region: None, slots: 0 },
            },
            queue: BinaryHeap::with_capacity(queue_loads.len()),
            queue_loads,
            control,
            seen_version: 0,
            burst,
            active: 0,
            next_end_ns: u64::MAX,
            blocked_since_ns: None,
            blocked_ns: 0,
        }
    }

    /// Time for which frames were due and the ring had no room, ns.
    pub(crate) fn blocked_ns(&self) -> u64 {
        self.blocked_ns
    }

    pub(crate) fn queue_loads(&self) -> &[QueueLoad] {
        &self.queue_loads
    }

    /// Fills slots with the frames that are due at `now_ns`. The caller then syncs the ring, and calls
    /// [`Self::handed_over`].
    #[inline]
    pub(crate) fn fill(
        &mut self,
        tx: &mut TxRing,
        now_ns: u64,
        clock: &mut ClockReader,
    ) -> Result<u32, PortError> {
        if self.seen_version != self.control.version() {
            self.obey(now_ns);
        }
        if self.active == 0 {
            if tx.pending() > 0 {
                tx.sync()?;
            }
            return Ok(0);
        }
        if tx.available() < self.burst {
            tx.sync()?;
        }
        match self.queue_loads.as_mut_slice() {
            [queue_load] => fill(queue_load, 0, tx, self.burst, now_ns, clock, &mut self.current),
            _ => self.fill_by_time(tx, now_ns, clock),
        }
    }

    /// Counts the frames of the turn that began at `now_ns`.
    #[inline]
    pub(crate) fn handed_over(&mut self, frames: u32, now_ns: u64, clock: &mut ClockReader) -> TaskTurn {
        if frames > 0 {
            self.update_totals(clock.now_ns());
        }
        if now_ns >= self.next_end_ns {
            self.end_lanes(now_ns);
        }
        if frames > 0 {
            self.note_blocked(false, now_ns);
            return TaskTurn { busy: true, next_due_ns: Some(now_ns), blocked: false };
        }
        self.idle(now_ns)
    }

    /// Carries out starts and stops of the session.
    #[cold]
    fn obey(&mut self, now_ns: u64) {
        self.seen_version = self.control.version();
        for queue_load in &mut self.queue_loads {
            let command = self.control.command(queue_load.load);
            if command.starts != queue_load.starts {
                queue_load.finish(now_ns, &self.control);
                queue_load.starts = command.starts;
                let origin_ns = command.start_ns.saturating_add(queue_load.delay_ns);
                queue_load.departures.restart(origin_ns);
                queue_load.totals.timing.pause();
                let end_ns = origin_ns.saturating_add(queue_load.duration_ns);
                queue_load.state = QueueLoadState::Sending { left: queue_load.frame_limit, end_ns };
            }
            if let (true, QueueLoadState::Sending { end_ns, .. }) = (command.stopped, &mut queue_load.state) {
                *end_ns = now_ns.min(*end_ns);
            }
        }
        self.end_lanes(now_ns);
    }

    /// Fills slots from several queue loads, in the order in which the frames are due.
    fn fill_by_time(
        &mut self,
        tx: &mut TxRing,
        now_ns: u64,
        clock: &mut ClockReader,
    ) -> Result<u32, PortError> {
        let mut filled = 0;
        while filled < self.burst {
            let Some(Reverse((_, index))) = self.queue.peek().copied() else { break };
            let queue_load = &mut self.queue_loads[index];
            if !queue_load.departures.is_due(now_ns) {
                break;
            }
            if queue_load.is_over(now_ns) {
                self.next_end_ns = 0;
                self.queue.pop();
                continue;
            }
            if fill(queue_load, index, tx, 1, now_ns, clock, &mut self.current)? == 0 {
                // The ring has no room.
                break;
            }
            filled += 1;
            self.queue.pop();
            // A queue load without a rate is always due. It is sorted by the current time, or the other due queue loads
            // would never send.
            let due_ns = match queue_load.departures.intended_fps() {
                Some(_) => queue_load.departures.next_due_ns(),
                None => now_ns,
            };
            self.queue.push(Reverse((due_ns, index)));
        }
        Ok(filled)
    }

    /// Records the time at which the burst was handed over.
    #[inline]
    fn update_totals(&mut self, left_ns: u64) {
        let Self { queue_loads, current, next_end_ns, .. } = self;
        for &(index, due_ns) in &current.log {
            let Some(queue_load) = queue_loads.get_mut(index) else { continue };
            queue_load.totals.first_ns.get_or_insert(left_ns);
            queue_load.totals.last_ns = left_ns;
            queue_load.counter.set(queue_load.totals.sent);
            if queue_load.is_through() {
                *next_end_ns = 0;
            }
            if queue_load.departures.intended_fps().is_some() {
                let left_ns = left_ns.saturating_sub(queue_load.departures.origin_ns());
                queue_load.totals.timing.record(due_ns, left_ns as f64);
            }
        }
        current.log.clear();
    }

    /// Ends finished queue loads, and sorts the others by the time of their next frame.
    #[cold]
    fn end_lanes(&mut self, now_ns: u64) {
        self.queue.clear();
        self.next_end_ns = u64::MAX;
        for (index, queue_load) in self.queue_loads.iter_mut().enumerate() {
            let QueueLoadState::Sending { end_ns, .. } = queue_load.state else { continue };
            if queue_load.is_over(now_ns) {
                queue_load.finish(now_ns, &self.control);
            } else {
                self.next_end_ns = self.next_end_ns.min(end_ns);
                self.queue.push(Reverse((queue_load.departures.next_due_ns(), index)));
            }
        }
        self.active = self.queue.len();
    }

    /// The result of a turn in which nothing was sent.
    fn idle(&mut self, now_ns: u64) -> TaskTurn {
        let next_due_ns = match self.queue_loads.as_slice() {
            _ if self.active == 0 => None,
            [queue_load] => Some(queue_load.departures.next_due_ns()),
            _ => self.queue.peek().map(|Reverse((due_ns, _))| *due_ns),
        };
        let blocked = next_due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        self.note_blocked(blocked, now_ns);
        TaskTurn { busy: false, next_due_ns, blocked }
    }

    #[inline]
    fn note_blocked(&mut self, blocked: bool, now_ns: u64) {
        match (blocked, self.blocked_since_ns) {
            (true, None) => self.blocked_since_ns = Some(now_ns),
            (false, Some(since_ns)) => {
                self.blocked_ns += now_ns.saturating_sub(since_ns);
                self.blocked_since_ns = None;
            }
            _ => {}
        }
    }

    /// Ends all queue loads that still send, at the end of the session.
    pub(crate) fn finish(&mut self, now_ns: u64) {
        self.note_blocked(false, now_ns);
        for queue_load in &mut self.queue_loads {
            queue_load.finish(now_ns, &self.control);
        }
        self.active = 0;
    }
}

impl QueueLoad {
    /// Whether the queue load has sent all frames of its start.
    #[inline]
    fn is_through(&self) -> bool {
        matches!(self.state, QueueLoadState::Sending { left: 0, .. })
    }

    /// Whether the queue load sends no more frames. After its end a queue load with a rate may still send late frames
    /// that were due before.
    #[inline]
    fn is_over(&self, now_ns: u64) -> bool {
        match self.state {
            QueueLoadState::Idle => true,
            QueueLoadState::Sending { left: 0, .. } => true,
            QueueLoadState::Sending { end_ns, .. } => {
                now_ns >= end_ns && self.is_late_for_good(now_ns, end_ns)
            }
        }
    }

    #[cold]
    fn is_late_for_good(&self, now_ns: u64, end_ns: u64) -> bool {
        let catches_up = self.departures.intended_fps().is_some() && self.departures.next_due_ns() < end_ns;
        !catches_up || now_ns >= end_ns.saturating_add(self.departures.catch_up_ns().min(LONGEST_CATCH_UP_NS))
    }

    /// Ends the current start, if there is one, and adds its offered load. The start ends at `now_ns` or has ended
    /// before.
    fn finish(&mut self, now_ns: u64, control: &Control) {
        let QueueLoadState::Sending { left, end_ns } = self.state else { return };
        // A load that ends by its time ends at that time, not when the thread notices it, and frames due at the end are
        // no longer intended. A load that ends by its count ends with its last frame.
        let origin_ns = self.departures.origin_ns();
        let over_ns = if left == 0 { self.totals.last_ns } else { end_ns.min(now_ns) };
        let mut offered = self.departures.offered_load(over_ns.saturating_sub(1));
        offered.elapsed_ns = over_ns.saturating_sub(origin_ns);
        if left == 0 {
            offered.intended_frames = offered.sent_frames + offered.skipped_frames;
        }
        let earlier = self.totals.offered;
        self.totals.offered =
            OfferedLoad { elapsed_ns: earlier.elapsed_ns + offered.elapsed_ns, ..earlier.merge(offered) };
        self.state = QueueLoadState::Idle;
        control.lane_done(self.load, self.starts);
    }
}

/// Fills up to `most` slots with the frames of `queue_load` that are due. Returns the number of frames, fewer if there
/// is no room.
#[inline]
fn fill(
    queue_load: &mut QueueLoad,
    index: usize,
    tx: &mut TxRing,
    most: u32,
    now_ns: u64,
    clock: &mut ClockReader,
    burst: &mut Burst,
) -> Result<u32, PortError> {
    let QueueLoadState::Sending { left, end_ns } = queue_load.state else { return Ok(0) };
    if queue_load.is_over(now_ns) {
        return Ok(0);
    }
    // Frames due at the end or later are not sent.
    let due_by_ns = now_ns.min(end_ns.saturating_sub(1));
    let most = most.min(u32::try_from(left).unwrap_or(u32::MAX));
    let times = [due_by_ns, now_ns];
    let filled = if queue_load.mix.longest_slot_bytes() > tx.buffer_bytes() as usize {
        send_long(queue_load, index, tx, most, times, &mut burst.log)?
    } else if queue_load.departures.intended_fps().is_some() {
        fill_slots::<true>(queue_load, index, tx, most, times, clock, burst)
    } else {
        fill_slots::<false>(queue_load, index, tx, most, times, clock, burst)
    };
    queue_load.state = QueueLoadState::Sending { left: left - u64::from(filled), end_ns };
    Ok(filled)
}

/// Writes frames that fit one slot each. Without a rate (not `PACED`) all frames are due once the first is, and their
/// times are not recorded.
#[inline]
fn fill_slots<const PACED: bool>(
    queue_load: &mut QueueLoad,
    index: usize,
    tx: &mut TxRing,
    most: u32,
    [due_by_ns, now_ns]: [u64; 2],
    clock: &mut ClockReader,
    Burst { log, held }: &mut Burst,
) -> u32 {
    let QueueLoad { mix, departures, totals, .. } = queue_load;
    let is_due = if PACED { departures.is_due(due_by_ns) } else { due_by_ns >= departures.origin_ns() };
    if !is_due {
        return 0;
    }
    let pace = Pace::<PACED> {
        departures,
        index,
        due_by_ns,
        log,
        clock,
        timestamp_ns: now_ns,
        until_reading: FRAMES_PER_TIMESTAMP,
        bytes: 0,
    };
    let (filled, bytes) = match (mix.of_one_size(), held.fill(tx)) {
        (Some(frames), Some(is_held)) => {
            let (filled, bytes) = match frames.variation() {
                Variation::Constant(mut frames) if is_held && !PACED => {
                    let filled = most.min(tx.available());
                    tx.advance(filled);
                    frames.skip(filled.into());
                    (filled, u64::from(filled) * frames.slot_bytes() as u64)
                }
                Variation::Constant(frames) => push_held::<PACED, false>(tx, most, pace, is_held, frames),
                Variation::Compact(frames) => push_held::<PACED, true>(tx, most, pace, is_held, frames),
                Variation::Full(frames) => push_held::<PACED, true>(tx, most, pace, is_held, frames),
                Variation::Any(frames) => push_held::<PACED, true>(tx, most, pace, is_held, frames),
            };
            held.add(filled);
            (filled, bytes)
        }
        _ => push::<PACED, true>(tx, most, pace, |timestamp_ns, slot| {
            slot.bytes.write(mix.next_frame(timestamp_ns).0)
        }),
    };
    totals.sent.bytes += bytes;
    totals.sent.frames += u64::from(filled);
    if !PACED && filled > 0 {
        departures.depart_at_once(filled);
        // One entry stands for all frames: it records that the queue load has sent.
        log.push((index, 0.0));
    }
    filled
}

/// Pushes the frames that are due, at most `most`, into a ring. If `is_held`, all slots already hold such frames.
/// Separate from its caller, so that each kind of frame gets the registers for itself.
#[inline(never)]
fn push_held<const PACED: bool, const VARIES: bool>(
    tx: &mut TxRing,
    most: u32,
    pace: Pace<'_, PACED>,
    is_held: bool,
    frames: impl WriteFrames,
) -> (u32, u64) {
    // A copy, so that the values that change from frame to frame stay in registers.
    let mut frames = frames;
    push::<PACED, VARIES>(tx, most, pace, |timestamp_ns, slot| {
        // SAFETY: the ring reserves its buffers for this program, each buffer is in one slot, and the slot is free.
        let bytes = unsafe { slot.bytes.as_mut_slice() };
        frames.write_next(timestamp_ns, bytes, is_held).unwrap_or(0)
    })
}

/// Pushes the frames that are due, at most `most`. If the frames vary (`VARIES`), `write` gets the time. Returns the
/// number of frames and their bytes.
#[inline(always)]
fn push<const PACED: bool, const VARIES: bool>(
    tx: &mut TxRing,
    most: u32,
    pace: Pace<'_, PACED>,
    mut write: impl FnMut(u64, &mut FreeSlot<'_>) -> usize,
) -> (u32, u64) {
    let mut pace = pace;
    let filled = tx.push_each::<VARIES>(most, |mut slot| {
        if !pace.is_due() {
            return None;
        }
        let timestamp_ns = if VARIES { pace.timestamp_ns() } else { 0 };
        // A slot that names no buffer has no room. It gets a frame of length 0, at which the datapath stops the ring.
        let len = write(timestamp_ns, &mut slot);
        pace.depart(len);
        Some(len as u16)
    });
    (filled, pace.bytes)
}

/// Reads the clock. Not inlined, so that the loop over the frames keeps the registers.
#[inline(never)]
fn read(clock: &mut ClockReader) -> u64 {
    clock.now_ns()
}

/// Due times and departures of the frames of one burst.
struct Pace<'burst, const PACED: bool> {
    departures: &'burst mut Departures,
    index: usize,
    due_by_ns: u64,
    log: &'burst mut Vec<(usize, f64)>,
    clock: &'burst mut ClockReader,
    timestamp_ns: u64,
    /// Number of further frames that share `timestamp_ns`.
    until_reading: u32,
    /// Bytes of the departed frames, without FCS.
    bytes: u64,
}

impl<const PACED: bool> Pace<'_, PACED> {
    #[inline(always)]
    fn is_due(&mut self) -> bool {
        !PACED || self.departures.is_due(self.due_by_ns)
    }

    /// The time for the next frame's signature, ns.
    #[inline(always)]
    fn timestamp_ns(&mut self) -> u64 {
        if self.until_reading == 0 {
            (self.timestamp_ns, self.until_reading) = (read(self.clock), FRAMES_PER_TIMESTAMP);
        }
        self.until_reading -= 1;
        self.timestamp_ns
    }

    #[inline(always)]
    fn depart(&mut self, len: usize) {
        if PACED {
            self.log.push((self.index, self.departures.next_due()));
            self.departures.depart(len);
        }
        self.bytes += len as u64;
    }
}

/// Sends frames that may need several slots each.
fn send_long(
    queue_load: &mut QueueLoad,
    index: usize,
    tx: &mut TxRing,
    most: u32,
    [due_by_ns, now_ns]: [u64; 2],
    log: &mut Vec<(usize, f64)>,
) -> Result<u32, PortError> {
    let mut sent = 0;
    while sent < most && queue_load.departures.is_due(due_by_ns) {
        let slots = queue_load.mix.next_size().div_ceil(tx.buffer_bytes() as usize);
        if (tx.available() as usize) < slots {
            break;
        }
        let (frame, _) = queue_load.mix.next_frame(now_ns);
        let len = frame.len();
        tx.send(frame)?;
        log.push((index, queue_load.departures.next_due()));
        queue_load.departures.depart(len);
        queue_load.totals.sent.bytes += len as u64;
        sent += 1;
    }
    queue_load.totals.sent.frames += u64::from(sent);
    Ok(sent)
}
