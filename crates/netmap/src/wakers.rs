//! Wake-ups of a thread that sleeps on devices.

use std::os::fd::RawFd;
use std::time::Duration;

/// Maximum number of rings of devices for which a wait needs no memory from the heap.
const INLINE: usize = 32;

/// Descriptors that become readable when one of the armed devices may have become ready.
#[derive(Debug)]
pub struct Wakers {
    few: [RawFd; INLINE],
    count: usize,
    many: Vec<RawFd>,
    slice: Option<Duration>,
}

impl Default for Wakers {
    fn default() -> Self {
        Self { few: [-1; INLINE], count: 0, many: Vec::new(), slice: None }
    }
}

impl Wakers {
    /// Adds a descriptor.
    pub fn push(&mut self, descriptor: RawFd) {
        match self.few.get_mut(self.count) {
            Some(index) => {
                *index = descriptor;
                self.count += 1;
            }
            None => self.many.push(descriptor),
        }
    }

    /// Adds a descriptor, if there is one.
    pub fn extend(&mut self, descriptor: Option<RawFd>) {
        descriptor.into_iter().for_each(|descriptor| self.push(descriptor));
    }

    /// Requests that the wait is cut into pieces of at most `slice`.
    pub fn check_every(&mut self, slice: Duration) {
        self.slice = Some(self.slice.map_or(slice, |earlier| earlier.min(slice)));
    }

    /// Descriptors to wait for, each for reading.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.few.iter().take(self.count).chain(&self.many).copied()
    }

    /// Longest sleep before the devices are checked again, independent of the program's time limit.
    #[must_use]
    pub fn slice(&self) -> Option<Duration> {
        self.slice
    }

    /// Removes all descriptors, for another round.
    pub fn clear(&mut self) {
        self.count = 0;
        self.many.clear();
        self.slice = None;
    }
}
