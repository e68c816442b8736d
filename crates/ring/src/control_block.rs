//! The control block of a ring: how head and tail travel between a program and the datapath.
//!
//! One 128-byte line per side, each written by that side only:
//!
//! | field | writer | partner |
//! |---|---|---|
//! | `program.head` | program, release | datapath, acquire: slots before `head` are the datapath's |
//! | `program.sleeping` | program | datapath, after publishing (see [`crate::wakeup`]) |
//! | `datapath.tail` | datapath, release | program, acquire: slots before `tail` are the program's |
//! | `datapath.sleeping` | datapath | program, after publishing |
//! | `datapath.violation` | datapath | program: why the datapath stopped this ring, 0 while it runs |
//!
//! Programs that share a ring (netmap allows several bindings) have no ends of their own: all that one of them must know of the others stands in
//! the program's line: `shown_tail`, and `lock`, which whoever syncs holds. `users` and `monitors` are the daemon's word to them.
//!
//! A hostile program can write any of it, the datapath's line included; the datapath never reads its own line back.
//! On a pipe the other end plays the datapath's part for each tx ring.

use core::cell::UnsafeCell;

use crate::sync::AtomicU32;

/// What the program writes.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct ProgramLine {
    /// First slot that the program still owns.
    pub head: AtomicU32,
    /// Where the program wants to be woken (netmap's `cur`); for onlookers, the datapath does not need it.
    pub cur: AtomicU32,
    /// 0 while awake, else the number of the sleep that waits for a kick.
    pub sleeping: AtomicU32,
    /// Count of slots whose buffer the program exchanged, written before `head`: lets the sending end of a pipe skip
    /// reading back slots that did not change.
    pub exchanged: AtomicU32,
    /// Number of the last sleep announced on a ring that programs share.
    pub last_sleep: AtomicU32,
    /// The tail that programs have been shown: they own slots up to it.
    pub shown_tail: AtomicU32,
    /// A process-shared robust mutex (`pthread_mutex_t`), all zero until its first user makes it.
    pub lock: UnsafeCell<[u64; 5]>,
    /// 0: no mutex yet, 1: being made, 2: made.
    pub lock_state: AtomicU32,
}

/// What the datapath writes.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct DatapathLine {
    /// First slot that belongs to the datapath.
    pub tail: AtomicU32,
    /// 0 while awake, else the number of the sleep that waits for a kick.
    pub sleeping: AtomicU32,
    /// 0, or the code of the [`crate::violation::RingViolation`] for which the ring was stopped.
    pub violation: AtomicU32,
    /// How many bindings use the ring.
    pub users: AtomicU32,
    /// Changes with the set of monitors that programs have to fill.
    pub monitors: AtomicU32,
}

/// Both lines of one ring.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ControlBlock {
    /// Written by the program.
    pub program: ProgramLine,
    /// Written by the datapath.
    pub datapath: DatapathLine,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ControlBlock>() as u64 == crate::geometry::CONTROL_BLOCK_BYTES);
