//! Number of this process in the locks of a region's rings, with which other processes check whether this process
//! lives.
//!
//! [`ringroad_ring::liveness`] proves the number by an open file description. A child that inherits it would keep it
//! open after the process's end. So children close it after a fork, and open their own.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ringroad_ring::liveness;
use ringroad_ring::region::Region;
use ringroad_ring::shared_lock::HolderNumber;

use crate::private_descriptors::{self, PrivateDescriptor};

/// Number of forks between the process that made the first holder and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Release);
    private_descriptors::close_those_of_parent();
}

/// Number of a process in a region.
#[derive(Debug)]
pub(crate) struct Holder {
    region: Arc<Region>,
    /// Number; 0: none yet.
    number: AtomicU32,
    /// Value of [`FORKS`] when `number` was taken.
    forks: AtomicU32,
    /// Open file that holds the number, and the value of [`FORKS`] at its opening.
    proof: Mutex<Option<(PrivateDescriptor, u32)>>,
}

/// Ends a proof. Does not close a parent's descriptor: its number may belong to another file by now.
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
        // SAFETY: the handler only makes system calls and changes atomics.
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

    /// Number of this process. `None` only while this thread (interrupted by a signal) or another thread is taking it,
    /// or if there is no randomness.
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
                // There is no proof, for example without /proc. A ring that such a process leaves locked stays locked
                // until all processes have closed it.
                Err(_) => liveness::unproven()?,
            };
            self.number.store(number.get(), Ordering::Relaxed);
            self.forks.store(forks, Ordering::Release);
        }
        HolderNumber::new(self.number.load(Ordering::Relaxed))
    }

    /// Whether the process with the number `holder` lives.
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
