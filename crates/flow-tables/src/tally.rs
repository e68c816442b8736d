//! What the frames of a batch count for, until they are executed.

use std::ops::Range;

use ringroad_port::batch::{BATCH_FRAMES, Batch};

use crate::counters::{Count, CounterId};
use crate::lookup_cache::{LookupCache, Step};
use crate::tables::{TABLES, Tables};

/// Frames one after the other that count for the same entries.
#[derive(Debug)]
struct Run {
    steps: Steps,
    bytes: u32,
    begin: u16,
    end: u16,
}

/// The steps of a frame: the first, and where others are that follow.
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

/// Lookups of a table, and those that found an entry.
#[derive(Debug, Clone, Copy, Default)]
struct Lookups {
    all: u32,
    matched: u32,
}

/// What the frames of a batch count for.
#[derive(Debug)]
pub(crate) struct Tally {
    runs: Vec<Run>,
    /// Steps behind the first ones.
    more: Vec<Step>,
    /// Those of the last frame.
    last: Steps,
    /// Counts of single frames in addition.
    singles: Vec<(u16, CounterId, u64)>,
    /// Of each table, while the sums are made.
    lookups: Box<[Lookups]>,
    /// The tables that have some.
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

    /// Where the steps of the next frame go, behind those that are there and without the first.
    #[inline]
    pub fn more_mut(&mut self) -> &mut Vec<Step> {
        &mut self.more
    }

    /// Takes back the steps of the next frame, which does not count for them as a whole.
    pub fn take_back(&mut self, first: Step, into: &mut LookupCache) {
        into.set(first, self.more.get(self.last.end as usize..).unwrap_or(&[]));
        self.more.truncate(self.last.end as usize);
    }

    /// The steps of the last frame.
    pub fn last(&self) -> (Step, &[Step]) {
        (self.last.first, self.more.get(self.last.others()).unwrap_or(&[]))
    }

    /// Makes the new steps those of the last frame.
    #[inline]
    pub fn take_new(&mut self, first: Step) {
        let end = self.more.len() as u32;
        if self.last.begin != end {
            self.take_more(first);
        } else {
            self.last.first = first;
        }
    }

    /// The same, where there is a step behind the first, or was one.
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

    /// A frame counts for the entries of the new steps.
    #[inline]
    pub fn add(&mut self, first: Step, frame: usize, bytes: usize) {
        self.take_new(first);
        self.add_same(frame..frame + 1, bytes as u64);
    }

    /// Frames count for the entries that the last one counted for.
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

    /// A frame counts here.
    pub fn add_single(&mut self, frame: u16, counter: CounterId, bytes: u64) {
        self.singles.push((frame, counter, bytes));
    }

    /// Counts the frames of a range, as this worker.
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
