//! Wake-ups of a thread that sleeps on devices.

use std::os::fd::RawFd;
use std::time::Duration;

use smallvec::SmallVec;

/// Descriptors that become readable when one of the armed devices may have become ready. A wait for up to 32 rings of
/// devices needs no memory from the heap.
#[derive(Debug, Default)]
pub struct Wakers {
    /// Descriptors to wait for, each for reading.
    pub descriptors: SmallVec<[RawFd; 32]>,
    /// Longest sleep before the devices are checked again, independent of the program's time limit.
    pub slice: Option<Duration>,
}

impl Wakers {
    /// Requests that the wait is cut into pieces of at most `slice`.
    pub fn check_every(&mut self, slice: Duration) {
        self.slice = Some(self.slice.map_or(slice, |earlier| earlier.min(slice)));
    }
}
