//! Number of this process in the locks of a region's rings, with which other processes check whether this process
//! lives.
//!
//! [`ringroad_ring::liveness`] proves the number by an open file description. A child that inherits it would keep it
//! open after the process's end. So it is withheld from children, which open their own.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ringroad_ring::fork::ProcessMark;
use ringroad_ring::liveness;
use ringroad_ring::region::Region;
use ringroad_ring::shared_lock::HolderNumber;

use crate::private_descriptors::PrivateDescriptor;

/// Number of a process in a region.
#[derive(Debug)]
pub(crate) struct Holder {
    region: Arc<Region>,
    /// Number; 0: none yet.
    number: AtomicU32,
    /// Process that took `number`.
    process: AtomicU32,
    /// Open file that holds the number, and the process that opened it.
    proof: Mutex<Option<(PrivateDescriptor, ProcessMark)>>,
}

impl Holder {
    pub(crate) fn new(region: &Arc<Region>) -> Self {
        Self {
            region: Arc::clone(region),
            number: AtomicU32::new(0),
            process: AtomicU32::new(ProcessMark::here().number()),
            proof: Mutex::new(None),
        }
    }

    /// Number of this process. `None` only while this thread (interrupted by a signal) or another thread is taking it,
    /// or if there is no randomness.
    #[inline]
    pub(crate) fn number(&self) -> Option<HolderNumber> {
        match ProcessMark::of(self.process.load(Ordering::Acquire)).is_here() {
            true => HolderNumber::new(self.number.load(Ordering::Relaxed)).or_else(|| self.get_number()),
            false => self.get_number(),
        }
    }

    #[cold]
    fn get_number(&self) -> Option<HolderNumber> {
        let mut proof = self.proof.try_lock().ok()?;
        let here = ProcessMark::here();
        if proof.as_ref().is_none_or(|(_, of)| *of != here) {
            let number = match liveness::prove(self.region.as_fd()) {
                Ok((number, descriptor)) => {
                    *proof = Some((PrivateDescriptor::not_for_children(descriptor), here));
                    number
                }
                // There is no proof, for example without /proc. A ring that such a process leaves locked stays locked
                // until all processes have closed it.
                Err(_) => liveness::unproven()?,
            };
            self.number.store(number.get(), Ordering::Relaxed);
            self.process.store(here.number(), Ordering::Release);
        }
        HolderNumber::new(self.number.load(Ordering::Relaxed))
    }

    /// Whether the process with the number `holder` lives.
    #[cold]
    pub(crate) fn is_alive(&self, holder: HolderNumber) -> bool {
        liveness::is_alive(self.region.as_fd(), holder)
    }
}
