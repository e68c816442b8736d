//! The control block of a ring: passes head and tail between a program and the datapath.
//!
//! Two 64-byte lines per side, each written by that side only. The first line changes with every sync, and the other
//! side reads it all the time. The second line has fields that the other side does not use, or that hardly ever change.
//!
//! | field | writer | partner |
//! |---|---|---|
//! | `program.head` | program, release | datapath, acquire: slots before `head` are the datapath's |
//! | `program.sleeping` | program | datapath, after publishing (see [`crate::wakeup`]) |
//! | `datapath.tail` | datapath, release | program, acquire: slots before `tail` are the program's |
//! | `datapath.sleeping` | datapath | program, after publishing |
//! | `datapath.violation` | datapath | program: why the datapath stopped this ring, 0 while it runs |
//!
//! Programs that share a ring (netmap allows several bindings) have no separate ends. The program's line holds the
//! state that these programs share: `shown_tail`, and `lock`, which the syncing program holds. The daemon writes
//! `users` and `monitors` for them.
//!
//! If no datapath fills an rx ring (a pipe's, a monitor's), the filling program counts its frames in the datapath's
//! line. Ringroad shows these counts and never acts on them.
//!
//! A hostile program can write all of these lines, even the datapath's; the datapath never reads its own line back. On
//! a pipe, the other end does the datapath's part for each tx ring.

use crate::shared_lock::SharedLock;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The program's lines.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct ProgramLine {
    /// First slot that the program still owns.
    pub head: AtomicU32,
    /// Slot at which the program wants to be woken (netmap's `cur`). For diagnosis: the datapath does not read it.
    pub cur: AtomicU32,
    /// Number of the sleep that waits for a kick, or 0 while the program is awake.
    pub sleeping: AtomicU32,
    /// Count of slots whose buffer the program exchanged, written before `head`: lets the sending end of a pipe skip
    /// reading back slots that did not change.
    pub exchanged: AtomicU32,
    pad: [u32; 12],
    /// Number of the last sleep announced on a ring that programs share.
    pub last_sleep: AtomicU32,
    /// Last tail that programs have been shown: they own the slots up to it.
    pub shown_tail: AtomicU32,
    /// The lock of a ring that programs share; the syncing program holds it.
    pub lock: SharedLock,
}

/// The datapath's lines.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct DatapathLine {
    /// First slot that the datapath owns.
    pub tail: AtomicU32,
    /// Number of the sleep that waits for a kick, or 0 while the datapath is awake.
    pub sleeping: AtomicU32,
    /// Frames put into the ring, counted here if no datapath counts them.
    pub filled: FillCounters,
    pad: [u32; 8],
    /// Code of the [`crate::violation::RingViolation`] that stopped the ring, or 0.
    pub violation: AtomicU32,
    /// Number of bindings that use the ring.
    pub users: AtomicU32,
    /// Generation of the set of monitors that programs have to fill.
    pub monitors: AtomicU32,
}

/// Counters of frames that programs put into an rx ring. One writer at a time: the sender of a pipe, or the holder of a
/// monitor's lock.
#[derive(Debug, Default)]
pub struct FillCounters {
    frames: AtomicU64,
    bytes: AtomicU64,
    missed: AtomicU64,
}

/// Values of [`FillCounters`]. Untrusted: programs write the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FillCounts {
    /// Frames put into the ring.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Frames for which a monitor's ring had no room.
    pub missed: u64,
}

impl std::iter::Sum for FillCounts {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            frames: sum.frames.wrapping_add(part.frames),
            bytes: sum.bytes.wrapping_add(part.bytes),
            missed: sum.missed.wrapping_add(part.missed),
        })
    }
}

impl FillCounters {
    /// Counts the frames and bytes of a batch.
    #[inline]
    pub fn add(&self, frames: u32, bytes: u64) {
        let sum = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        sum(&self.frames, u64::from(frames));
        sum(&self.bytes, bytes);
    }

    /// Counts frames that did not get into the ring. Any program may call it, with or without the lock.
    #[cold]
    pub fn miss(&self, frames: u32) {
        self.missed.fetch_add(u64::from(frames), Ordering::Relaxed);
    }

    /// Reads the counters, which count from the layout of the ring.
    #[must_use]
    pub fn read(&self) -> FillCounts {
        let [frames, bytes, missed] =
            [&self.frames, &self.bytes, &self.missed].map(|counter| counter.load(Ordering::Relaxed));
        FillCounts { frames, bytes, missed }
    }
}

/// The lines of both sides of one ring.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ControlBlock {
    /// Lines that the program writes.
    pub program: ProgramLine,
    /// Lines that the datapath writes.
    pub datapath: DatapathLine,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<ControlBlock>() as u64 == crate::geometry::CONTROL_BLOCK_BYTES);
    assert!(std::mem::offset_of!(ProgramLine, last_sleep) == 64);
    assert!(std::mem::offset_of!(DatapathLine, violation) == 64);
};
