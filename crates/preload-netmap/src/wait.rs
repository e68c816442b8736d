//! Sleep on devices and ordinary descriptors at once.
//!
//! A device syncs its rings whenever it is polled. Only if nothing is ready does the thread sleep, in one system call
//! on the ordinary descriptors and on the wake-ups of the armed devices.

use std::ptr;
use std::time::Duration;

use libc::{pollfd, sigset_t};
use ringroad_c_face::TimeLimit;
use ringroad_netmap::device::NetmapDevice;
use ringroad_netmap::wakers::Wakers;
use rustix::io::Errno;
use smallvec::SmallVec;

use crate::errno;
use crate::time_limit::timespec_of;
use crate::tracked::DeviceReference;

/// Conditions that are always reported.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// Object that can be waited for besides descriptors; see [`NetmapDevice`].
pub(crate) trait Waitable: PartialEq {
    /// Syncs, and returns the ready events among `events`.
    fn ready(&self, events: i16) -> i16;
    /// Announces a sleep, then polls as `ready` does. If the result is not 0, no sleep follows.
    fn arm(&self, events: i16, wakers: &mut Wakers) -> i16;
    /// Ends the sleep that `arm` announced.
    fn disarm(&self, events: i16);
}

impl Waitable for DeviceReference {
    fn ready(&self, events: i16) -> i16 {
        NetmapDevice::ready(self, events)
    }

    fn arm(&self, events: i16, wakers: &mut Wakers) -> i16 {
        NetmapDevice::arm(self, events, wakers)
    }

    fn disarm(&self, events: i16) {
        NetmapDevice::disarm(self, events);
    }
}

/// Object waited for, once per wait.
#[derive(Debug)]
struct Watched<W> {
    what: W,
    events: i16,
    found: i16,
}

/// All objects and descriptors that one call waits for. Up to 16 devices and 64 descriptors need no memory from the
/// heap.
#[derive(Debug)]
pub(crate) struct Wait<W> {
    watched: SmallVec<[Watched<W>; 16]>,
    /// Ordinary descriptors; their `revents` are the results.
    pub(crate) others: SmallVec<[pollfd; 64]>,
}

impl<W: Waitable> Wait<W> {
    pub(crate) fn new() -> Self {
        Self { watched: SmallVec::new(), others: SmallVec::new() }
    }

    /// Adds a device, or adds events to one that is there: copies of one descriptor are one device.
    pub(crate) fn watch(&mut self, what: W, events: i16) {
        match self.watched.iter_mut().find(|watched| watched.what == what) {
            Some(watched) => watched.events |= events,
            None => self.watched.push(Watched { what, events, found: 0 }),
        }
    }

    /// Adds an ordinary descriptor; a negative one is ignored, as poll(2) does.
    pub(crate) fn add(&mut self, fd: i32, events: i16) {
        self.others.push(pollfd { fd, events, revents: 0 });
    }

    /// Ready events among `events` of a device.
    pub(crate) fn found_at(&self, what: &W, events: i16) -> i16 {
        let watched = self.watched.iter().find(|watched| watched.what == *what);
        watched.map_or(0, |watched| watched.found & (events | ALWAYS))
    }

    /// Waits until a device or descriptor is ready, or the time is over.
    ///
    /// # Errors
    /// EINTR, and the errors of poll(2).
    pub(crate) fn run(&mut self, limit: &TimeLimit, mask: *const sigset_t) -> Result<(), Errno> {
        loop {
            if self.ask() || *limit == TimeLimit::Now {
                return self.poll_others(mask);
            }
            let slept = self.sleep(limit, mask);
            let over = limit.left() == Some(Duration::ZERO);
            if slept? || over {
                self.ask();
                return Ok(());
            }
        }
    }

    /// Polls all devices; returns whether any is ready.
    fn ask(&mut self) -> bool {
        let mut any = false;
        for watched in &mut self.watched {
            watched.found = watched.what.ready(watched.events);
            any |= watched.found != 0;
        }
        any
    }

    /// Polls the ordinary descriptors, if there are any, without waiting. A signal does not discard events of devices.
    fn poll_others(&mut self, mask: *const sigset_t) -> Result<(), Errno> {
        if mask.is_null() && self.others.iter().all(|other| other.fd < 0) {
            return Ok(());
        }
        let any = self.watched.iter().any(|watched| watched.found != 0);
        match self.poll(Some(Duration::ZERO), mask) {
            Err(Errno::INTR) if any => Ok(()),
            outcome => outcome,
        }
    }

    /// Sleeps once; returns whether the ordinary descriptors ended the sleep.
    fn sleep(&mut self, limit: &TimeLimit, mask: *const sigset_t) -> Result<bool, Errno> {
        let own = self.others.len();
        let mut wakers = Wakers::default();
        let mut armed = 0;
        for watched in &self.watched {
            if watched.what.arm(watched.events, &mut wakers) != 0 {
                break;
            }
            armed += 1;
        }
        let outcome = if armed == self.watched.len() {
            let awaited = wakers.descriptors.iter();
            self.others.extend(awaited.map(|&fd| pollfd { fd, events: libc::POLLIN, revents: 0 }));
            let nap = match (limit.left(), wakers.slice) {
                (Some(left), Some(slice)) => Some(left.min(slice)),
                (left, slice) => left.or(slice),
            };
            self.poll(nap, mask)
        } else {
            Ok(())
        };
        self.others.truncate(own);
        for watched in &self.watched[..armed] {
            watched.what.disarm(watched.events);
        }
        outcome.map(|()| self.others.iter().any(|other| other.revents != 0))
    }

    fn poll(&mut self, time: Option<Duration>, mask: *const sigset_t) -> Result<(), Errno> {
        /// Bytes of the kernel's signal set.
        const MASK_BYTES: usize = 8;
        for other in &mut self.others {
            other.revents = 0;
        }
        // The kernel writes the remaining time.
        let mut left = time.map(timespec_of);
        let left = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let (fds, count) = (self.others.as_mut_ptr(), self.others.len());
        // The C library's function would be a cancellation point, which would unwind Rust frames.
        // SAFETY: the array belongs to this value and has the stated length; `left` outlives the call, and the kernel
        // checks `mask`.
        let count = unsafe { libc::syscall(libc::SYS_ppoll, fds, count, left, mask, MASK_BYTES) };
        if count < 0 { Err(errno::last()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
