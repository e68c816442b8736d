//! Loss, duplication and reordering, from the sequence numbers that frames carry.
//!
//! A [`SequenceTracker`] stores which numbers arrived, in blocks of 64: the block of the highest number so far and the
//! 1023 blocks before it (8 KiB). These blocks are the *window*, which reaches back at least [`WINDOW_FRAMES`]. Each
//! number is one of
//!
//! - *in order*: higher than all before;
//! - *reordered*: new, in the window, and lower than the next expected number (as in RFC 4737);
//! - *duplicate*: in the window, and seen before;
//! - *stale*: below the window, where duplicates are no longer recognised.
//!
//! *Lost* are the numbers between the lowest and the highest that have not arrived so far, or arrived stale. A number
//! counted as lost that still arrives within the window is then counted as reordered, not lost. So the counts are exact
//! unless a frame is stale. `received = in order + reordered + duplicates + stale` always holds.
//!
//! Loss after the highest number cannot be detected here: compare `received` with the sender's count. A sender that
//! starts again from a lower number needs a new tracker; for the old tracker its frames are duplicates or stale.

use serde::Serialize;

/// Distance behind the highest number, frames, up to which duplicates and reordered frames are always distinguished.
pub const WINDOW_FRAMES: u64 = (BLOCKS as u64 - 1) * BLOCK_FRAMES;

const BLOCKS: usize = 1024;
const BLOCK_FRAMES: u64 = u64::BITS as u64;

/// Counts of received and missing frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SequenceCounts {
    /// Number of arrivals.
    pub received: u64,
    /// Numbers missing between the lowest and the highest.
    pub lost: u64,
    /// Numbers that had arrived before.
    pub duplicates: u64,
    /// Numbers that arrived for the first time, after a higher number.
    pub reordered: u64,
    /// Numbers too far behind to be classified as duplicate or reordered.
    pub stale: u64,
}

/// Relation of an arriving frame's number to the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalOrder {
    /// The number is higher than all before.
    InOrder {
        /// Count of expected numbers below this one that had not arrived, frames.
        skipped: u64,
    },
    /// The number is new and follows a higher one.
    Reordered,
    /// The number had arrived before.
    Duplicate,
    /// The number is too far behind to be classified as duplicate or reordered.
    Stale,
}

/// Tracker of one stream's sequence numbers.
#[derive(Debug, Clone)]
pub struct SequenceTracker {
    /// Bitmap of the window: bit n % 64 of block n / 64 % 1024 is set if number n arrived.
    window: Box<[u64; BLOCKS]>,
    /// Lowest number for which loss is counted, once known.
    lowest: Option<u64>,
    highest: Option<u64>,
    counts: SequenceCounts,
}

impl Default for SequenceTracker {
    fn default() -> Self {
        Self::new()
    }
}

impl SequenceTracker {
    /// Makes a tracker for a stream in progress. Its lowest number is the lowest that arrives.
    #[must_use]
    pub fn new() -> Self {
        Self { window: Box::new([0; BLOCKS]), lowest: None, highest: None, counts: SequenceCounts::default() }
    }

    /// Makes a tracker for a stream that starts with number `first`: missing numbers from `first` on are lost. If a
    /// lower number arrives, loss is counted from that number on.
    #[must_use]
    pub fn starting_at(first: u64) -> Self {
        Self { lowest: Some(first), ..Self::new() }
    }

    /// Counts so far.
    #[must_use]
    pub fn counts(&self) -> SequenceCounts {
        self.counts
    }

    /// Next expected number: the highest plus 1. Before the first frame the lowest number, or 0 if it is unknown.
    #[inline]
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.highest.map_or(self.lowest.unwrap_or(0), |highest| highest.saturating_add(1))
    }

    /// Records the number of a received frame, and classifies it.
    #[inline]
    pub fn record(&mut self, number: u64) -> ArrivalOrder {
        self.counts.received += 1;
        match self.highest {
            Some(highest) if number <= highest => self.record_behind(number, highest),
            before => ArrivalOrder::InOrder { skipped: self.advance(number, before) },
        }
    }

    /// Moves the window to `number`. Returns the count of skipped numbers.
    #[inline]
    fn advance(&mut self, number: u64, before: Option<u64>) -> u64 {
        // Skipped numbers are those after the highest, or for the first frame those from the lowest on.
        let expected = match before {
            Some(highest) => highest + 1,
            None => *self.lowest.get_or_insert(number),
        };
        self.lowest = self.lowest.map(|lowest| lowest.min(number));
        let skipped = number.saturating_sub(expected);
        self.counts.lost += skipped;
        if let Some(highest) = before {
            let entered = number / BLOCK_FRAMES - highest / BLOCK_FRAMES;
            for ahead in 1..=entered.min(BLOCKS as u64) {
                *self.block(highest / BLOCK_FRAMES + ahead) = 0;
            }
        }
        self.highest = Some(number);
        *self.block(number / BLOCK_FRAMES) |= bit(number);
        skipped
    }

    #[cold]
    fn record_behind(&mut self, number: u64, highest: u64) -> ArrivalOrder {
        if highest / BLOCK_FRAMES - number / BLOCK_FRAMES >= BLOCKS as u64 {
            self.counts.stale += 1;
            return ArrivalOrder::Stale;
        }
        let block = self.block(number / BLOCK_FRAMES);
        if *block & bit(number) != 0 {
            self.counts.duplicates += 1;
            return ArrivalOrder::Duplicate;
        }
        *block |= bit(number);
        self.counts.reordered += 1;
        match self.lowest {
            Some(lowest) if number < lowest => {
                self.counts.lost += lowest - number - 1;
                self.lowest = Some(number);
            }
            _ => self.counts.lost -= 1,
        }
        ArrivalOrder::Reordered
    }

    #[inline]
    fn block(&mut self, block: u64) -> &mut u64 {
        &mut self.window[(block % BLOCKS as u64) as usize]
    }
}

#[inline]
fn bit(number: u64) -> u64 {
    1 << (number % BLOCK_FRAMES)
}

#[cfg(test)]
mod tests;
