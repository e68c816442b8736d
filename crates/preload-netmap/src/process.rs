//! Owner of this memory: this process, a fork with a copy of it, or a parent from which a `vfork` child borrows it.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::epoll_interests::INTERESTS;
use crate::mapping_ledger::LEDGER;

/// Process whose descriptors the tables hold; 0 while they are empty.
static OWNER: AtomicI32 = AtomicI32::new(0);

fn current() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether the tables belong to this process. A child of `vfork` runs in its parent's memory, but the descriptors that
/// it closes stay open in the parent.
pub(crate) fn owns_tables() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner == 0 || owner == current()
}

/// Makes this process the owner of the tables. Called before their first entry.
pub(crate) fn take_tables() {
    if OWNER.compare_exchange(0, current(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        // SAFETY: the handlers take locks that are held for a few instructions only, and are never unloaded: preloaded
        // objects stay loaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
    }
}

extern "C" fn before_fork() {
    INTERESTS.take();
    LEDGER.take();
}

extern "C" fn after_fork() {
    LEDGER.give_back();
    INTERESTS.give_back();
}

extern "C" fn after_fork_in_child() {
    OWNER.store(current(), Ordering::Relaxed);
    after_fork();
}
