//! Regions, rings and the control block: the bytes that Ringroad's processes share, and the pointer work on them.
//!
//! The modules, from the bottom up:
//!
//! - [`layout`]: netmap's structures, asserted at compile time; [`geometry`]: their positions in a region;
//!   [`allocator`]: records of those in use.
//! - [`region`]: the sealed memfd; [`ledger`]: the memory of such files, by user; [`foreign_memory`]: memory that other
//!   programs made and can take back; [`mapping_guard`]: the guard for this case; [`fork`]: children of the process;
//!   [`shared`], [`copy`]: access to bytes that other processes write.
//! - [`control_block`], [`wakeup`]: the passing of head and tail, and the sleep of a side (model-checked with loom);
//!   [`eventfd`]: the descriptor that wakes it; [`epoll_wait`]: the sleep itself; [`shared_lock`]: the lock of rings
//!   that programs share; [`liveness`]: whether the lock's holder lives; [`core_sharing`]: cores shared by threads that
//!   stay awake; [`real_time`]: their real-time priority.
//! - [`heap`]: the process's own heap.
//! - [`ring_view`]: one ring in a region; [`cursor`]: index arithmetic.
//! - Ends of rings: [`program_end`] and [`pipe_end`] for programs (both through a [`program_window`]), [`datapath_end`]
//!   for the datapath, which trusts nothing ([`violation`]), [`monitor_end`] for copies to monitors.
//!
//! Almost all unsafe code of the datapath is in this crate, apart from the drivers' system interfaces.

#![deny(missing_docs)]
pub mod allocator;
pub mod control_block;
pub mod copy;
pub mod core_sharing;
pub mod cursor;
pub mod datapath_end;
pub mod epoll_wait;
pub mod eventfd;
pub mod foreign_memory;
pub mod fork;
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
pub mod real_time;
pub mod region;
pub mod ring_view;
pub mod shared;
pub mod shared_lock;
pub(crate) mod sync;
pub mod violation;
pub mod wakeup;

#[cfg(all(test, not(loom)))]
mod tests;
