//! Plans in which frames leave as several copies or with rewritten headers. The copies become frames of a second batch,
//! which is executed like any other. A copy consists of its new header, in memory of this module, and the original
//! frame's bytes.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::collections::VecDeque;

use ringroad_port::batch::{BATCH_FRAMES, Batch, FrameMeta};
use ringroad_port::drop_cause::{DropCause, DropTally};
use ringroad_port::forwarding_plane::{HeaderRewrite, MAX_COPIES, MAX_REWRITE_BYTES, Outcome};
use ringroad_port::frame::{ETHERNET_HEADER_BYTES, Fragment};
use ringroad_port::offload::Unfinished;
use ringroad_ring::layout::{MAX_FRAGMENTS, slot_flags::MORE_FRAGMENTS};

use crate::exchange::Outbox;
use crate::exchange::{MAX_WORKERS, is_consumed, positions};
use crate::execution::{DeliveryTargets, Executed, Executor, Job, bytes_cost, finishing_factor};

/// Entries of each exchange that are free when a batch begins.
pub(crate) const LEAST_ROOM: usize = BATCH_FRAMES + MAX_FRAGMENTS;
/// Header rewrites in use at a time: those that other workers have not copied yet, and the most that one frame can
/// need.
const REWRITES: u64 = 4 * MAX_COPIES as u64;

/// Executes plans with copies.
#[derive(Debug)]
pub(crate) struct Copier {
    batch: Batch,
    outcomes: Vec<Outcome>,
    rewrites: RewriteMemory,
}

/// Memory for header rewrites, given out and taken back in order.
#[derive(Debug, Default)]
struct RewriteMemory {
    /// Empty until the first header rewrite.
    cells: Box<[UnsafeCell<[u8; MAX_REWRITE_BYTES]>]>,
    /// Header rewrites given out so far.
    given: u64,
    /// Header rewrites taken back so far.
    back: u64,
    /// Numbers of header rewrites, each with positions in the exchanges: rewrites below the number are free again once
    /// the other workers have consumed their exchanges up to these positions.
    lent: VecDeque<(u64, [u64; MAX_WORKERS])>,
}

impl Default for Copier {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            outcomes: Vec::with_capacity(BATCH_FRAMES),
            rewrites: RewriteMemory::default(),
        }
    }
}

impl Copier {
    /// Whether there is memory for the header rewrites of any frame.
    #[inline]
    pub(crate) fn has_room(&mut self, outboxes: &[Option<Outbox>]) -> bool {
        self.rewrites.given == self.rewrites.back || {
            self.rewrites.settle(outboxes);
            self.rewrites.free() >= MAX_COPIES as u64
        }
    }

    /// Sends the copies of the job's frames to the destinations of its plan, until delivering them costs its budget or
    /// no memory is left for the next frame. At least one frame is executed.
    pub(crate) fn execute(
        &mut self,
        executor: &mut Executor,
        batch: &Batch,
        job: Job<'_>,
        outlets: DeliveryTargets<'_>,
        dropped: &mut DropTally,
    ) -> Executed {
        let Job { first, outcomes, plan, origin, budget, .. } = job;
        let DeliveryTargets { queues, outboxes } = outlets;
        let mut executed = Executed { end: first, replicated: 0, cost: 0 };
        let mut room = outboxes.iter().flatten().map(Outbox::free).min();
        let finishing = finishing_factor(batch);
        let mut hand_over = |copier: &mut Self, executed: &mut Executed, dropped: &mut DropTally| {
            let Self { batch, outcomes, .. } = copier;
            let outlets = DeliveryTargets { queues: &mut *queues, outboxes: &mut *outboxes };
            let job = Job { first: 0, outcomes, common: None, budget: u64::MAX, ..job };
            let done = executor.execute(batch, job, outlets, dropped);
            executed.replicated += done.replicated;
            batch.reset(BATCH_FRAMES);
            outcomes.clear();
        };
        self.batch.reset(BATCH_FRAMES);
        self.outcomes.clear();
        for (frame, &outcome) in outcomes.iter().enumerate().skip(first) {
            let copies = match outcome {
                Outcome::Copies(id) => plan.copies_of(id),
                _ => &[],
            };
            let count = copies.len().max(1);
            // Entries of an exchange: each fragment of each copy can take one.
            let entries = count * (batch.frame(frame).len() + 1);
            let rewrites = copies.iter().filter(|copy| copy.rewrite.is_some()).count() as u64;
            if room.is_some_and(|room| entries > room && entries <= LEAST_ROOM)
                || rewrites > self.rewrites.free()
                || executed.cost >= budget
            {
                break;
            }
            executed.end = frame + 1;
            executed.cost += 1;
            if room.is_some() && entries > LEAST_ROOM {
                dropped.add(DropCause::TooLong, 1);
                continue;
            }
            room = room.map(|room| room - entries);
            executed.replicated += count as u64 - 1;
            for number in 0..count {
                let (outcome, rewrite) = match copies.get(number) {
                    Some(copy) => (copy.to.into(), copy.rewrite),
                    None => (outcome, None),
                };
                let members = match outcome {
                    Outcome::Flood => origin.topology.flood(origin.port).count(),
                    Outcome::Ports(set) => plan.ports(set).len(),
                    _ => 1,
                };
                executed.cost += members as u64 * (1 + bytes_cost(batch, frame, finishing));
                if !self.batch.has_room(batch.frame(frame).len() + 1) {
                    hand_over(self, &mut executed, dropped);
                }
                match self.write(batch, frame, rewrite.and_then(|rewrite| plan.rewrite_of(rewrite))) {
                    Ok(()) => self.outcomes.push(outcome),
                    Err(cause) => dropped.add(cause, 1),
                }
            }
        }
        hand_over(self, &mut executed, dropped);
        self.rewrites.lend(outboxes);
        executed
    }

    /// Appends a copy of a frame, with a rewritten header if there is one.
    fn write(
        &mut self,
        source: &Batch,
        frame: usize,
        rewrite: Option<HeaderRewrite<'_>>,
    ) -> Result<(), DropCause> {
        let fragments = source.frame(frame);
        let meta = source.meta(frame);
        let Some(HeaderRewrite { replaces, bytes }) = rewrite else {
            for (index, &fragment) in fragments.iter().enumerate() {
                self.batch.push(fragment, index == 0);
            }
            self.describe(meta);
            return Ok(());
        };
        let frame_bytes = source.frame_bytes(frame);
        let grows = bytes.len() as isize - replaces as isize;
        let unfinished = match replaces == frame_bytes {
            // The copy is a finished frame.
            true => Unfinished::default(),
            false => meta.unfinished.shifted(grows).ok_or(DropCause::BadOffload)?,
        };
        let new_bytes = frame_bytes.checked_add_signed(grows).filter(|_| replaces <= frame_bytes);
        let new_bytes = new_bytes.filter(|&new_bytes| new_bytes >= ETHERNET_HEADER_BYTES);
        if !unfinished.fits(new_bytes.ok_or(DropCause::TooShort)?) {
            return Err(DropCause::BadOffload);
        }
        let (mut skipped, mut first) = (replaces, 0);
        while let Some(fragment) = fragments.get(first)
            && skipped != 0
            && skipped >= fragment.len()
        {
            skipped -= fragment.len();
            first += 1;
        }
        let rest = fragments.get(first..).unwrap_or(&[]);
        if rest.len() + usize::from(!bytes.is_empty()) > MAX_FRAGMENTS {
            return Err(DropCause::TooLong);
        }
        if !bytes.is_empty() {
            let flags = if rest.is_empty() { 0 } else { MORE_FRAGMENTS };
            self.batch.push(self.rewrites.keep(bytes, flags), true);
        }
        for (index, fragment) in rest.iter().enumerate() {
            let fragment = if index == 0 { fragment.behind(skipped) } else { *fragment };
            self.batch.push(fragment, index == 0 && bytes.is_empty());
        }
        self.describe(FrameMeta { unfinished, ..meta });
        Ok(())
    }

    fn describe(&mut self, meta: FrameMeta) {
        if meta != FrameMeta::default() {
            self.batch.describe(meta);
        }
    }
}

impl RewriteMemory {
    fn free(&self) -> u64 {
        REWRITES - (self.given - self.back)
    }

    /// Keeps these bytes as a fragment; the caller has checked [`RewriteMemory::free`].
    fn keep(&mut self, bytes: &[u8], flags: u16) -> Fragment {
        assert!(self.free() > 0, "heads overrun");
        if self.cells.is_empty() {
            // Allocated once in the life of an engine that rewrites headers.
            self.cells = (0..REWRITES).map(|_| UnsafeCell::new([0; MAX_REWRITE_BYTES])).collect();
        }
        let index = self.cells[(self.given % REWRITES) as usize].get();
        self.given += 1;
        // SAFETY: this entry was taken back, asserted above: neither this worker nor another one uses a fragment of it.
        let index = unsafe { &mut *index };
        let bytes = bytes.get(..MAX_REWRITE_BYTES).unwrap_or(bytes);
        let (kept, _) = index.split_at_mut(bytes.len());
        kept.copy_from_slice(bytes);
        // SAFETY: the entry lives as long as the engine, which outlasts all workers' work. It is written again only
        // after it was taken back.
        unsafe { Fragment::from_private(kept, flags) }
    }

    /// Marks the header rewrites given out as used until other workers have consumed all frames handed over to them.
    fn lend(&mut self, outboxes: &[Option<Outbox>]) {
        if self.given != self.lent.back().map_or(self.back, |&(given, _)| given) {
            self.lent.push_back((self.given, positions(outboxes)));
            self.settle(outboxes);
        }
    }

    fn settle(&mut self, outboxes: &[Option<Outbox>]) {
        while let Some((given, positions)) = self.lent.front()
            && is_consumed(positions, outboxes)
        {
            self.back = *given;
            self.lent.pop_front();
        }
    }
}
