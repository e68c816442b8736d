//! Counts of the frames of a batch, kept until the batch is executed.

use std::ops::Range;

use ringroad_port::batch::{BATCH_FRAMES, Batch};

use crate::counters::{Count, CounterId};
use crate::lookup_cache::{LookupCache, Step};
use crate::tables::{TABLES, Tables};

/// Consecutive frames that count for the same entries.
#[derive(Debug)]
struct Run {
    steps: Steps,
    bytes: u32,
    begin: u16,
    end: u16,
}

/// Steps of a frame: the first, and the range of the others in `Tally::more`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Steps {
    first: Step,
    begin: u32,
    end: u32,
}

impl Steps {
    #[inline]
    fn others(self) -> Range<usize> {
        self.begin as usize..self.end as usize
    }
}

/// Number of lookups of a table, and of those that found an entry.
#[derive(Debug, Clone, Copy, Default)]
struct Lookups {
    all: u32,
    matched: u32,
}

/// Counts of the frames of a batch.
#[derive(Debug)]
pub(crate) struct Tally {
    runs: Vec<Run>,
    /// Steps after the first ones.
    more: Vec<Step>,
    /// Steps of the last frame.
    last: Steps,
    /// Further counts of single frames.
    singles: Vec<(u16, CounterId, u64)>,
    /// Sums of each table, while they are made.
    lookups: Box<[Lookups]>,
    /// Tables that have a sum.
    used: Vec<u8>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            runs: Vec::with_capacity(BATCH_FRAMES),
            more: Vec::with_capacity(4 * BATCH_FRAMES),
            last: Steps { first: Step::nothing(0), begin: 0, end: 0 },
            singles: Vec::new(),
            lookups: vec![Lookups::default(); TABLES].into(),
            used: Vec::with_capacity(TABLES),
        }
    }
}

impl Tally {
    pub fn clear(&mut self) {
        self.runs.clear();
        self.more.clear();
        (self.last.begin, self.last.end) = (0, 0);
        self.singles.clear();
    }

    /// List to which the next frame's steps are appended, without the first step.
    #[inline]
    pub fn more_mut(&mut self) -> &mut Vec<Step> {
        &mut self.more
    }

    /// Moves the steps of the next frame to `into`, because the frame does not count for them as a whole.
    pub fn take_back(&mut self, first: Step, into: &mut LookupCache) {
        into.set(first, self.more.get(self.last.end as usize..).unwrap_or(&[]));
        self.more.truncate(self.last.end as usize);
    }

    /// Steps of the last frame.
    pub fn last(&self) -> (Step, &[Step]) {
        (self.last.first, self.more.get(self.last.others()).unwrap_or(&[]))
    }

    /// Makes the new steps the steps of the last frame.
    #[inline]
    pub fn take_new(&mut self, first: Step) {
        let end = self.more.len() as u32;
        if self.last.begin != end {
            self.take_more(first);
        } else {
            self.last.first = first;
        }
    }

    /// Does the work of `take_new` if there is a step after the first, or was one.
    #[inline(never)]
    fn take_more(&mut self, first: Step) {
        let Steps { begin, end, .. } = self.last;
        let (before, new) = self.more.split_at((end as usize).min(self.more.len()));
        if self.last.first == first && before.get(begin as usize..) == Some(new) {
            self.more.truncate(end as usize);
        } else {
            self.last = Steps { first, begin: end, end: self.more.len() as u32 };
        }
    }

    /// Counts a frame for the entries of the new steps.
    #[inline]
    pub fn add(&mut self, first: Step, frame: usize, bytes: usize) {
        self.take_new(first);
        self.add_same(frame..frame + 1, bytes as u64);
    }

    /// Counts frames for the entries of the last frame.
    #[inline]
    pub fn add_same(&mut self, frames: Range<usize>, bytes: u64) {
        let (begin, end, bytes) = (frames.start as u16, frames.end as u16, bytes as u32);
        match self.runs.last_mut() {
            Some(run) if run.end == begin && run.steps == self.last => {
                run.end = end;
                run.bytes += bytes;
            }
            _ => self.runs.push(Run { steps: self.last, bytes, begin, end }),
        }
    }

    /// Counts one frame with one counter.
    pub fn add_single(&mut self, frame: u16, counter: CounterId, bytes: u64) {
        self.singles.push((frame, counter, bytes));
    }

    /// Counts the executed frames of a range, for this worker.
    pub fn count(&mut self, tables: &Tables, worker: usize, batch: &Batch, range: Range<usize>) {
        let Self { runs, more, singles, lookups, used, .. } = self;
        let counters = tables.counters.of(worker);
        for run in runs {
            let (mut packets, mut bytes) = (run.end - run.begin, u64::from(run.bytes));
            if usize::from(run.begin) < range.start || usize::from(run.end) > range.end {
                let executed = range.start.max(run.begin.into())..range.end.min(run.end.into());
                packets = executed.len() as u16;
                bytes = batch.bytes_of(executed);
            }
            if packets == 0 {
                continue;
            }
            let mut count = |step: &Step| {
                let table = step.location.table();
                let Some(sum) = lookups.get_mut(usize::from(table)) else { return };
                if sum.all == 0 {
                    used.push(table);
                }
                sum.all += u32::from(packets);
                if step.entry.is_entry() {
                    sum.matched += u32::from(packets);
                    counters.add(step.entry.counter(), Count { packets: packets.into(), bytes });
                }
            };
            count(&run.steps.first);
            if run.steps.begin != run.steps.end {
                more.get(run.steps.others()).unwrap_or(&[]).iter().for_each(count);
            }
        }
        for table in used.drain(..).map(usize::from) {
            let (Some(sum), Some(&(all, matched))) = (lookups.get_mut(table), tables.lookups.get(table))
            else {
                continue;
            };
            let sum = std::mem::take(sum);
            for (counter, packets) in [(all, sum.all), (matched, sum.matched)] {
                counters.add(counter, Count { packets: packets.into(), bytes: 0 });
            }
        }
        for &(_, counter, bytes) in singles.iter().filter(|(frame, ..)| range.contains(&usize::from(*frame)))
        {
            counters.add(counter, Count { packets: 1, bytes });
        }
    }
}
