//! Regions, rings and the control block: the bytes that Ringroad's processes share, and the pointer work on them.
//!
//! From the bottom up:
//!
//! - [`layout`]: netmap's structures, asserted at compile time; [`geometry`]: where they lie in a region;
//!   [`allocator`]: which of them are in use.
//! - [`region`]: the sealed memfd; [`ledger`]: the memory of such files, by user; [`foreign_memory`]: memory that
//!   others made and can take back; [`mapping_guard`]: the guard for this case; [`shared`], [`copy`]: access to bytes
//!   that others write.
//! - [`control_block`], [`wakeup`]: how head and tail travel, and how a side sleeps (model-checked with loom);
//!   [`eventfd`]: the descriptor that wakes it; [`shared_lock`]: the lock of rings that programs share; [`liveness`]:
//!   whether the lock's holder lives; [`core_sharing`]: how threads that stay awake share a core.
//! - [`heap`]: the process's own heap.
//! - [`ring_view`]: one ring in a region; [`cursor`]: index arithmetic.
//! - the ends: [`program_end`] and [`pipe_end`] for programs (both through a [`program_window`]), [`datapath_end`] for
//!   the datapath, which trusts nothing ([`violation`]), [`monitor_end`] for copies to monitors.
//!
//! Unsafe code of the project's core is here and nowhere above, apart from drivers' own system interfaces.

#![deny(missing_docs)]
pub mod allocator;
pub mod control_block;
pub mod copy;
pub mod core_sharing;
pub mod cursor;
pub mod datapath_end;
pub mod eventfd;
pub mod foreign_memory;
pub mod geometry;
pub mod heap;
pub mod layout;
pub mod ledger;
pub mod liveness;
pub mod mapping_guard;
pub mod monitor_end;
pub mod pipe_end;
pub mod program_end;
pub mod program_window;
pub mod region;
pub mod ring_view;
pub mod shared;
pub mod shared_lock;
pub(crate) mod sync;
pub mod violation;
pub mod wakeup;

#[cfg(all(test, not(loom)))]
mod tests;
