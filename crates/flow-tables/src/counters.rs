//! Counters of packets and bytes. Each worker adds to its own cells; a reader gets the sum over all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringroad_port::frame::prefetch_write;

/// Number of packets, and of their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// Number that identifies a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CounterId(pub(crate) u32);

const BLOCK_CELLS: usize = 1024;

/// One worker's part of a counter. Only that worker writes it.
#[derive(Debug, Default)]
struct Cell {
    packets: AtomicU64,
    bytes: AtomicU64,
}

type Row = Arc<[Cell; BLOCK_CELLS]>;

/// Block of counters: a row of cells for each worker.
#[derive(Debug)]
pub(crate) struct Block {
    workers: Box<[Row]>,
}

impl Block {
    fn new(workers: usize) -> Self {
        let row = || Arc::new(std::array::from_fn(|_| Cell::default()));
        Self { workers: (0..workers).map(|_| row()).collect() }
    }
}

/// Counters as a worker sees them: the rows of each worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    workers: Vec<Vec<Row>>,
}

impl Counters {
    pub fn push(&mut self, block: &Block) {
        self.workers.resize_with(block.workers.len(), Vec::new);
        for (rows, row) in self.workers.iter_mut().zip(&block.workers) {
            rows.push(Arc::clone(row));
        }
    }

    /// Keeps the first `blocks` blocks.
    pub fn truncate(&mut self, blocks: usize) {
        for rows in &mut self.workers {
            rows.truncate(blocks);
            rows.shrink_to_fit();
        }
    }

    /// Counters of a worker; none if there is no such worker.
    #[inline]
    pub fn of(&self, worker: usize) -> WorkerCounters<'_> {
        WorkerCounters(self.workers.get(worker).map_or(&[], Vec::as_slice))
    }

    /// Sum of a counter over all workers.
    pub fn total(&self, id: CounterId) -> Count {
        let mut total = Count::default();
        for cell in self.workers.iter().filter_map(|rows| WorkerCounters(rows).cell(id)) {
            total += Count {
                packets: cell.packets.load(Ordering::Relaxed),
                bytes: cell.bytes.load(Ordering::Relaxed),
            };
        }
        total
    }
}

/// One worker's part of all counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerCounters<'counters>(&'counters [Row]);

impl<'counters> WorkerCounters<'counters> {
    #[inline]
    fn cell(self, id: CounterId) -> Option<&'counters Cell> {
        let id = id.0 as usize;
        self.0.get(id / BLOCK_CELLS)?.get(id % BLOCK_CELLS)
    }

    /// Prefetches a counter's memory.
    pub fn fetch(self, id: CounterId) {
        if let Some(cell) = self.cell(id) {
            prefetch_write(std::ptr::from_ref(cell).cast());
        }
    }

    /// Adds to a counter. Only the thread that is this worker calls it.
    #[inline]
    pub fn add(self, id: CounterId, count: Count) {
        if let Some(cell) = self.cell(id) {
            // Each cell has one writer: a load and a store lose nothing, and need no locked instruction.
            let add = |counter: &AtomicU64, more: u64| {
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
            };
            add(&cell.packets, count.packets);
            add(&cell.bytes, count.bytes);
        }
    }
}

/// Allocates counters, and takes them back.
#[derive(Debug)]
pub(crate) struct CounterBank {
    workers: usize,
    counters: Counters,
    /// Counters without an owner, with their last totals: they begin at zero again for the next owner.
    free: Vec<CounterId>,
    /// Total of each counter when its owner got it.
    begins: Vec<Count>,
    /// Number of counters with an owner, by block.
    owned: Vec<usize>,
}

impl CounterBank {
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            counters: Counters::default(),
            free: Vec::new(),
            begins: Vec::new(),
            owned: Vec::new(),
        }
    }

    /// Allocates a counter at zero. Returns also its block, if the counter is the first of a new one.
    pub fn take(&mut self) -> (CounterId, Option<Arc<Block>>) {
        if let Some(id) = self.free.pop() {
            self.note_owner(id, true);
            self.reset(id);
            return (id, None);
        }
        let id = CounterId(self.begins.len() as u32);
        let block = self.begins.len().is_multiple_of(BLOCK_CELLS).then(|| Arc::new(Block::new(self.workers)));
        if let Some(block) = &block {
            self.counters.push(block);
            self.owned.push(0);
        }
        self.begins.push(Count::default());
        self.note_owner(id, true);
        (id, block)
    }

    /// Takes a counter back. No worker may add to it any more.
    pub fn give_back(&mut self, id: CounterId) {
        self.free.push(id);
        self.note_owner(id, false);
    }

    fn note_owner(&mut self, id: CounterId, has_one: bool) {
        if let Some(owned) = self.owned.get_mut(id.0 as usize / BLOCK_CELLS) {
            *owned = if has_one { *owned + 1 } else { owned.saturating_sub(1) };
        }
    }

    /// Frees the last blocks, if they have no owners and are a good part of all. Returns the number of blocks left.
    pub fn shrink(&mut self) -> Option<usize> {
        let unowned = self.owned.iter().rev().take_while(|&&owned| owned == 0).count();
        let blocks = self.owned.len() - unowned;
        if unowned == 0 || unowned < self.owned.len() / 4 {
            return None;
        }
        self.owned.truncate(blocks);
        self.counters.truncate(blocks);
        self.begins.truncate(blocks * BLOCK_CELLS);
        self.begins.shrink_to_fit();
        let counters = self.begins.len();
        self.free.retain(|id| (id.0 as usize) < counters);
        // Counters of the first blocks are given out first, so that the last blocks become free.
        self.free.sort_unstable_by_key(|id| std::cmp::Reverse(id.0));
        self.free.shrink_to_fit();
        Some(blocks)
    }

    /// Number of counters, with an owner or without.
    pub fn len(&self) -> usize {
        self.begins.len()
    }

    /// Resets a counter to zero.
    pub fn reset(&mut self, id: CounterId) {
        let now = self.counters.total(id);
        if let Some(begin) = self.begins.get_mut(id.0 as usize) {
            *begin = now;
        }
    }

    /// Total since the counter's owner got it.
    pub fn read(&self, id: CounterId) -> Count {
        let (total, begin) =
            (self.counters.total(id), self.begins.get(id.0 as usize).copied().unwrap_or_default());
        Count {
            packets: total.packets.wrapping_sub(begin.packets),
            bytes: total.bytes.wrapping_sub(begin.bytes),
        }
    }
}
