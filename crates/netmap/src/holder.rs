//! This process's number in the locks of a region's rings, with which other processes check whether it still lives.
//!
//! [`ringroad_ring::liveness`] proves the number by an open file description. Children inherit it, where it would
//! outlive its process: they close it after a fork, and open their own.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ringroad_ring::liveness;
use ringroad_ring::region::Region;
use ringroad_ring::shared_lock::HolderNumber;

use crate::private_descriptors::{self, PrivateDescriptor};

/// How often this process was forked from another since the first holder was made.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Release);
    private_descriptors::close_those_of_parent();
}

/// A process's number in a region.
#[derive(Debug)]
pub(crate) struct Holder {
    region: Arc<Region>,
    /// 0: none yet.
    number: AtomicU32,
    /// [`FORKS`] when `number` was got.
    forks: AtomicU32,
    /// The open file that holds the number, and `forks` at its opening.
    proof: Mutex<Option<(PrivateDescriptor, u32)>>,
}

/// Forgets a proof without closing it where the descriptor is a parent's: its number may be another file's by now.
fn end(proof: Option<(PrivateDescriptor, u32)>) {
    if let Some((descriptor, forks)) = proof {
        match forks == FORKS.load(Ordering::Acquire) {
            true => drop(descriptor),
            false => std::mem::forget(descriptor),
        }
    }
}

impl Holder {
    pub(crate) fn new(region: &Arc<Region>) -> Self {
        static CHILDREN: Once = Once::new();
        // SAFETY: the handler makes system calls and changes atomics, nothing else.
        CHILDREN.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(after_fork_in_child));
        });
        Self {
            region: Arc::clone(region),
            number: AtomicU32::new(0),
            forks: AtomicU32::new(0),
            proof: Mutex::new(None),
        }
    }

    /// The number. None only while this thread (interrupted by a signal) or another is just getting it, or if there is
    /// no randomness.
    #[inline]
    pub(crate) fn number(&self) -> Option<HolderNumber> {
        match self.forks.load(Ordering::Acquire) == FORKS.load(Ordering::Acquire) {
            true => HolderNumber::new(self.number.load(Ordering::Relaxed)).or_else(|| self.get_number()),
            false => self.get_number(),
        }
    }

    #[cold]
    fn get_number(&self) -> Option<HolderNumber> {
        let mut proof = self.proof.try_lock().ok()?;
        let forks = FORKS.load(Ordering::Acquire);
        if proof.as_ref().is_none_or(|(_, of)| *of != forks) {
            end(proof.take());
            let number = match liveness::prove(self.region.as_fd()) {
                Ok((number, descriptor)) => {
                    *proof = Some((PrivateDescriptor::not_for_children(descriptor), forks));
                    number
                }
                // For example without /proc. A ring that such a process leaves locked stays locked until all processes
                // have closed it.
                Err(_) => liveness::unproven()?,
            };
            self.number.store(number.get(), Ordering::Relaxed);
            self.forks.store(forks, Ordering::Release);
        }
        HolderNumber::new(self.number.load(Ordering::Relaxed))
    }

    /// Whether the process of that number lives.
    #[cold]
    pub(crate) fn is_alive(&self, holder: HolderNumber) -> bool {
        liveness::is_alive(self.region.as_fd(), holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Ok(proof) = self.proof.get_mut() {
            end(proof.take());
        }
    }
}
