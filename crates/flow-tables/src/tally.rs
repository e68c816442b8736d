//! What the frames of a batch count for, until they are executed.

use std::ops::Range;

use ringroad_port::batch::{BATCH_FRAMES, Batch};

use crate::counters::{Count, CounterId};
use crate::tables::{TABLES, Tables};
use crate::trail::Step;

/// Frames one after the other that count for the same entries.
#[derive(Debug)]
struct Run {
    frames: Range<u16>,
    bytes: u32,
    steps: Range<u32>,
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
    /// Those of each run.
    steps: Vec<Step>,
    /// What single frames count for beside.
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
            steps: Vec::with_capacity(4 * BATCH_FRAMES),
            singles: Vec::new(),
            lookups: vec![Lookups::default(); TABLES].into(),
            used: Vec::with_capacity(TABLES),
        }
    }
}

impl Tally {
    pub fn clear(&mut self) {
        self.runs.clear();
        self.steps.clear();
        self.singles.clear();
    }

    /// A frame counts for the entries of these steps.
    #[inline]
    pub fn add(&mut self, frame: usize, bytes: usize, steps: &[Step]) {
        let (frame, bytes) = (frame as u16, bytes as u32);
        if let Some(last) = self.runs.last_mut()
            && last.frames.end == frame
            && self.steps.get(last.steps.start as usize..) == Some(steps)
        {
            last.frames.end += 1;
            last.bytes += bytes;
            return;
        }
        let begin = self.steps.len() as u32;
        self.steps.extend_from_slice(steps);
        let steps = begin..self.steps.len() as u32;
        self.runs.push(Run { frames: frame..frame + 1, bytes, steps });
    }

    /// A frame counts here.
    pub fn add_single(&mut self, frame: u16, counter: CounterId, bytes: u64) {
        self.singles.push((frame, counter, bytes));
    }

    /// Counts the frames of a range, as this worker.
    pub fn count(&mut self, tables: &Tables, worker: usize, batch: &Batch, range: Range<usize>) {
        let Self { runs, steps, singles, lookups, used } = self;
        for run in runs {
            let frames = usize::from(run.frames.start)..usize::from(run.frames.end);
            let executed = frames.start.max(range.start)..frames.end.min(range.end);
            if executed.is_empty() {
                continue;
            }
            let packets = executed.len() as u32;
            let bytes = match executed == frames {
                true => run.bytes.into(),
                false => batch.bytes_of(executed),
            };
            for step in steps.get(run.steps.start as usize..run.steps.end as usize).unwrap_or(&[]) {
                let Some(sum) = lookups.get_mut(usize::from(step.table)) else { continue };
                if sum.all == 0 {
                    used.push(step.table);
                }
                sum.all += packets;
                if step.has_found {
                    sum.matched += packets;
                    tables.counters.add(worker, step.counter, Count { packets: packets.into(), bytes });
                }
            }
        }
        for table in used.drain(..).map(usize::from) {
            let (Some(sum), Some(&counters)) = (lookups.get_mut(table), tables.lookups.get(table)) else {
                continue;
            };
            let Lookups { all, matched } = std::mem::take(sum);
            for (counter, packets) in [(counters.0, all), (counters.1, matched)] {
                tables.counters.add(worker, counter, Count { packets: packets.into(), bytes: 0 });
            }
        }
        for &(_, counter, bytes) in singles.iter().filter(|(frame, ..)| range.contains(&usize::from(*frame)))
        {
            tables.counters.add(worker, counter, Count { packets: 1, bytes });
        }
    }
}
