//! Frames of a batch that are looked up together: their memory is prefetched for all at once, instead of one wait per
//! lookup. This pays if the entries are not in a core's caches.

use ringroad_port::frame::{Fragment, prefetch_read};

use crate::key::{FlowKey, Words};
use crate::lookup_cache::Step;
use crate::packet::Packet;
use crate::step_budget::StepBudget;
use crate::tables::Tables;

/// Maximum number of frames that are looked up together.
pub(crate) const LANES: usize = 32;
/// Minimum number of entries in the first table for joint lookups. An entry takes 32 bytes, a counter of 16 bytes, and
/// a slot in a hash table.
const LEAST_ENTRIES: usize = 16 * 1024;

/// Maximum number of searches for each frame of a joint lookup: all of them together search no more than one frame
/// alone may. A frame that needs more is looked up alone.
const SEARCHES: u64 = 128;

/// First steps of the frames of a joint lookup.
#[derive(Debug)]
pub(crate) struct BatchLookup {
    keys: Box<[FlowKey; LANES]>,
    steps: [Step; LANES],
    budgets: [StepBudget; LANES],
    /// Numbers of the first frame, and of the frame after the last.
    begin: usize,
    end: usize,
}

impl Default for BatchLookup {
    fn default() -> Self {
        let (keys, steps) = (Box::new([FlowKey::default(); LANES]), [Step::nothing(0); LANES]);
        Self { keys, steps, budgets: [StepBudget::new(); LANES], begin: 0, end: 0 }
    }
}

impl BatchLookup {
    /// Begins a batch. Returns whether its frames are looked up together.
    pub fn begin(&mut self, tables: &Tables) -> bool {
        self.end = 0;
        tables.tables.first().is_some_and(|table| table.len() >= LEAST_ENTRIES)
    }

    /// Whether a frame was looked up together with others.
    pub fn has_result(&self, frame: usize) -> bool {
        (self.begin..self.end).contains(&frame)
    }

    /// Returns the key and the first step of a frame, if a joint lookup has found them.
    pub fn get(&self, frame: usize) -> Option<(&FlowKey, Step)> {
        let lane = frame.checked_sub(self.begin).filter(|_| frame < self.end)?;
        self.budgets.get(lane).filter(|steps_left| steps_left.has_found())?;
        Some((self.keys.get(lane)?, *self.steps.get(lane)?))
    }

    /// Looks up the frames from `frame` on, each given as fragments and bytes, for this worker. Only `words` of their
    /// keys are relevant. Returns the number of steps taken.
    pub fn lookup<'frames>(
        &mut self,
        (tables, worker): (&Tables, usize),
        (packet, words): (&mut Packet, Words),
        frame: usize,
        frames: impl Iterator<Item = (&'frames [Fragment], usize)> + Clone,
    ) -> u64 {
        let Some(table) = tables.tables.first() else { return 0 };
        for fragment in frames.clone().take(LANES).filter_map(|(fragments, _)| fragments.first()) {
            prefetch_read(fragment.bytes().start().as_ptr());
        }
        (self.begin, self.end) = (frame, frame);
        for (key, (fragments, bytes)) in self.keys.iter_mut().zip(frames) {
            packet.enter_frame(fragments, bytes, words);
            *key = *packet.last_key();
            self.end += 1;
        }
        let count = self.end - self.begin;
        self.budgets = [StepBudget::of_searches(SEARCHES); LANES];
        let (Some(keys), Some(steps), Some(budgets)) =
            (self.keys.get(..count), self.steps.get_mut(..count), self.budgets.get_mut(..count))
        else {
            return 0;
        };
        table.find_each(0, keys, steps, budgets);
        let counters = tables.counters.of(worker);
        for step in steps.iter() {
            counters.fetch(step.entry.counter());
        }
        budgets.iter().map(StepBudget::searched).sum()
    }
}
