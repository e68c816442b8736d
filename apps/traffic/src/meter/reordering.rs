//! Reordering as RFC 4737 measures it.

use std::collections::VecDeque;

use serde::Serialize;

use super::distribution::{Distribution, DistributionSummary};

/// Number of remembered jumps. For so many gaps the extent is known when they are filled.
const MAX_JUMPS: usize = 8192;
/// The highest n of n-reordering.
const MAX_N: usize = 3;

/// An arrival that left lower numbers missing.
#[derive(Debug, Clone, Copy)]
struct Jump {
    number: u64,
    /// Number of frames that had arrived before.
    arrival: u64,
    arrival_ns: u64,
}

/// Reordering of one stream. Each number is recorded once, at its first arrival.
///
/// A reordered frame arrived after a higher number; the first such arrival jumped over the frame's own number. So only
/// jumps are stored, and an arrival in order has almost no cost.
#[derive(Debug, Clone, Default)]
pub(super) struct ReorderingTracker {
    jumps: VecDeque<Jump>,
    /// Number of the last forgotten jump, or 0.
    forgotten: u64,
    /// Numbers of the last arrivals; arrival i is at i % 4.
    last: [u64; 4],
    /// First arrival of the current run in order.
    run_start: u64,
    totals: ReorderingTotals,
}

/// Sums over arrivals, of one stream or several.
#[derive(Debug, Clone, Default)]
pub(super) struct ReorderingTotals {
    arrivals: u64,
    reordered: u64,
    extents: Distribution,
    late_times: Distribution,
    extents_unknown: u64,
    n_reordered: [u64; MAX_N],
    runs: Distribution,
    longest_run: u64,
}

/// Reordering by the metrics of RFC 4737. Frames are counted by the first copy that arrived intact; stale frames are
/// left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReorderingSummary {
    /// Reordered frames divided by all frames that arrived (section 4.1). None without frames.
    pub ratio: Option<f64>,
    /// Extent of reordered frames: the number of arrivals since the first frame with a higher number (section 4.2).
    /// None if no frame was reordered.
    pub extent_frames: Option<DistributionSummary>,
    /// Late time offset of reordered frames, ns: the time since the first frame with a higher number arrived (section
    /// 4.3).
    pub late_time_ns: Option<DistributionSummary>,
    /// Reordered frames missing from extent and late time: more gaps have opened since theirs than are remembered.
    pub extent_unknown: u64,
    /// Frames that are n-reordered, for n = 1, 2, 3: the last n arrivals before the frame had higher numbers (section
    /// 5). A 3-reordered segment makes a TCP sender retransmit.
    pub n_reordered: [u64; MAX_N],
    /// Reordering-free runs, frames: the number of frames in order before each reordered frame (section 4.6).
    pub free_run_frames: Option<DistributionSummary>,
    /// The longest run in order, frames. The current run counts, too.
    pub longest_free_run_frames: u64,
}

impl ReorderingTracker {
    /// Records a number higher than all before, after `skipped` numbers that are missing.
    #[inline]
    pub(super) fn record_in_order(&mut self, number: u64, skipped: u64, arrival_ns: u64) {
        if skipped > 0 || self.totals.arrivals == 0 {
            self.remember(Jump { number, arrival: self.totals.arrivals, arrival_ns });
        }
        self.arrive(number);
    }

    /// Records a number that had not arrived yet and is lower than the highest.
    #[cold]
    pub(super) fn record_reordered(&mut self, number: u64, arrival_ns: u64) {
        let totals = &mut self.totals;
        totals.reordered += 1;
        let over_it = self.jumps.get(self.jumps.partition_point(|jump| jump.number < number));
        match over_it {
            Some(jump) if number >= self.forgotten => {
                totals.extents.record(totals.arrivals - jump.arrival);
                totals.late_times.record(arrival_ns.saturating_sub(jump.arrival_ns));
            }
            _ => totals.extents_unknown += 1,
        }
        for n in 1..=MAX_N as u64 {
            let higher = |back| self.last[((totals.arrivals - back) % 4) as usize] > number;
            if n > totals.arrivals || !higher(n) {
                break;
            }
            totals.n_reordered[n as usize - 1] += 1;
        }
        let run_frames = totals.arrivals - self.run_start;
        totals.longest_run = totals.longest_run.max(run_frames);
        totals.runs.record(run_frames);
        self.arrive(number);
        self.run_start = self.totals.arrivals;
    }

    /// Sums so far.
    pub(super) fn totals(&self) -> ReorderingTotals {
        let longest_run = self.totals.longest_run.max(self.totals.arrivals - self.run_start);
        ReorderingTotals { longest_run, ..self.totals.clone() }
    }

    #[inline]
    fn arrive(&mut self, number: u64) {
        self.last[(self.totals.arrivals % 4) as usize] = number;
        self.totals.arrivals += 1;
    }

    #[cold]
    fn remember(&mut self, jump: Jump) {
        if self.jumps.len() == MAX_JUMPS
            && let Some(oldest) = self.jumps.pop_front()
        {
            self.forgotten = oldest.number;
        }
        self.jumps.push_back(jump);
    }
}

impl ReorderingTotals {
    pub(super) fn merge(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.reordered += other.reordered;
        self.extents.merge(&other.extents);
        self.late_times.merge(&other.late_times);
        self.extents_unknown += other.extents_unknown;
        self.n_reordered.iter_mut().zip(other.n_reordered).for_each(|(into, from)| *into += from);
        self.runs.merge(&other.runs);
        self.longest_run = self.longest_run.max(other.longest_run);
    }

    pub(super) fn summary(&self) -> ReorderingSummary {
        ReorderingSummary {
            ratio: (self.arrivals > 0).then(|| self.reordered as f64 / self.arrivals as f64),
            extent_frames: self.extents.summary(),
            late_time_ns: self.late_times.summary(),
            extent_unknown: self.extents_unknown,
            n_reordered: self.n_reordered,
            free_run_frames: self.runs.summary(),
            longest_free_run_frames: self.longest_run,
        }
    }
}
