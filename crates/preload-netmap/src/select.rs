//! Hooks of `select` and `pselect` for sets with devices in them. They are turned into a poll and back, as the kernel
//! defines the meaning of the sets.

use std::ffi::{c_int, c_ulong};
use std::time::Duration;

use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM, POLLWRBAND, POLLWRNORM,
    fd_set, sigset_t, timespec, timeval,
};
use ringroad_c_face::TimeLimit;
use ringroad_netmap::user_memory;
use rustix::io::Errno;
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::errno;
use crate::hooks::hooks;
use crate::time_limit::from_timespec;
use crate::tracked::{DeviceReference, any_device, device};
use crate::wait::Wait;

const BITS: usize = c_ulong::BITS as usize;

/// Set of the program: as many words as the highest descriptor needs, which may be more than an `fd_set` has.
struct Set {
    /// Address in the program's memory; 0: the program gave no set.
    address: usize,
    asked: SmallVec<[c_ulong; 16]>,
    /// Ready descriptors.
    ready: SmallVec<[c_ulong; 16]>,
}

impl Set {
    /// Reads the set of `count` bits, rounded up to whole words, at `set`.
    fn read(set: *mut fd_set, count: usize) -> Result<Self, Errno> {
        let words = if set.is_null() { 0 } else { count.div_ceil(BITS) };
        let mut asked = SmallVec::from_elem(0, words);
        user_memory::read_bytes(set.addr(), asked.as_mut_bytes())?;
        let ready = SmallVec::from_elem(0, words);
        Ok(Self { address: set.addr(), asked, ready })
    }

    fn has(&self, fd: usize) -> bool {
        self.asked.get(fd / BITS).is_some_and(|word| word >> (fd % BITS) & 1 != 0)
    }

    /// Marks a descriptor as ready if `is` is true and it was requested; returns the number of bits set.
    fn mark(&mut self, fd: usize, is: bool) -> c_int {
        if !is || !self.has(fd) {
            return 0;
        }
        self.ready[fd / BITS] |= 1 << (fd % BITS);
        1
    }

    /// Writes the ready descriptors to the program's memory.
    fn write(&self) -> Result<(), Errno> {
        user_memory::write_bytes(self.address, self.ready.as_bytes())
    }
}

struct Sets {
    count: usize,
    readable: Set,
    writable: Set,
    exceptional: Set,
}

impl Sets {
    /// Sets, if there is a device in them. `None` for sets that cannot be read: the kernel then states the error.
    fn with_device(
        count: c_int,
        readable: *mut fd_set,
        writable: *mut fd_set,
        exceptional: *mut fd_set,
    ) -> Option<Self> {
        let count = usize::try_from(count).ok().filter(|&count| count > 0 && any_device())?;
        let sets = Self {
            count,
            readable: Set::read(readable, count).ok()?,
            writable: Set::read(writable, count).ok()?,
            exceptional: Set::read(exceptional, count).ok()?,
        };
        let has_device = sets.descriptors().any(|fd| device(fd as c_int).is_some());
        has_device.then_some(sets)
    }

    /// Descriptors in any of the sets.
    fn descriptors(&self) -> impl Iterator<Item = usize> {
        let is_in = |&fd: &usize| self.readable.has(fd) || self.writable.has(fd) || self.exceptional.has(fd);
        (0..self.count).filter(is_in)
    }

    /// Marks ready descriptors; returns the number of bits set.
    fn mark(&mut self, fd: usize, revents: i16, exceptional: i16) -> c_int {
        let readable = revents & (POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR) != 0;
        let writable = revents & (POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR) != 0;
        self.readable.mark(fd, readable)
            + self.writable.mark(fd, writable)
            + self.exceptional.mark(fd, revents & exceptional != 0)
    }

    /// Waits, and marks ready descriptors; returns the number of bits set.
    fn wait(&mut self, limit: &TimeLimit, mask: *const sigset_t) -> Result<c_int, Errno> {
        let mut wait = Wait::new();
        let mut devices: SmallVec<[(usize, DeviceReference); 16]> = SmallVec::new();
        let mut others: SmallVec<[usize; 64]> = SmallVec::new();
        for fd in self.descriptors() {
            let mut events = if self.readable.has(fd) { POLLIN } else { 0 };
            if self.writable.has(fd) {
                events |= POLLOUT;
            }
            if let Some(device) = device(fd as c_int) {
                wait.watch(device.clone(), events);
                devices.push((fd, device));
                continue;
            }
            if self.readable.has(fd) {
                events |= POLLRDNORM | POLLRDBAND;
            }
            if self.writable.has(fd) {
                events |= POLLWRNORM | POLLWRBAND;
            }
            if self.exceptional.has(fd) {
                events |= POLLPRI;
            }
            wait.add(fd as c_int, events);
            others.push(fd);
        }
        loop {
            wait.run(limit, mask)?;
            let mut ready = 0;
            for (fd, device) in &devices {
                ready += self.mark(*fd, wait.found_at(device, POLLIN | POLLOUT), POLLERR);
            }
            for (other, &fd) in wait.others.iter_mut().zip(&others) {
                if other.revents & POLLNVAL != 0 {
                    return Err(Errno::BADF);
                }
                let bits = self.mark(fd, other.revents, POLLPRI);
                // The condition is one that poll always reports and that is in none of the sets: it would prevent the
                // sleep.
                if other.revents != 0 && bits == 0 {
                    other.fd = -1;
                }
                ready += bits;
            }
            if ready > 0 || limit.left() == Some(Duration::ZERO) {
                return Ok(ready);
            }
        }
    }

    /// Waits, and writes the result to the program's sets.
    fn answer(mut self, limit: &TimeLimit, mask: *const sigset_t) -> Result<c_int, Errno> {
        let ready = self.wait(limit, mask)?;
        for set in [&self.readable, &self.writable, &self.exceptional] {
            set.write()?;
        }
        Ok(ready)
    }
}

/// Limit after the program's `timeval`; without one there is no limit.
fn limit_of(timeout: *mut timeval) -> Result<TimeLimit, Errno> {
    if timeout.is_null() {
        return Ok(TimeLimit::Never);
    }
    let [seconds, microseconds]: [i64; 2] = user_memory::read(timeout.addr())?;
    match (u64::try_from(seconds), u64::try_from(microseconds)) {
        (Ok(seconds), Ok(microseconds)) => {
            let time = Duration::from_secs(seconds).saturating_add(Duration::from_micros(microseconds));
            Ok(TimeLimit::after(time))
        }
        _ => Err(Errno::INVAL),
    }
}

hooks! {
    [unsafe] select(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, timeout: *mut timeval
    ) -> c_int {
        let Some(sets) = Sets::with_device(count, readable, writable, exceptional) else {
            // SAFETY: the program's own arguments.
            return unsafe { next::select(count, readable, writable, exceptional, timeout) };
        };
        let limit = match limit_of(timeout) {
            Ok(limit) => limit,
            Err(errno) => return errno::fail(errno),
        };
        let answer = sets.answer(&limit, std::ptr::null());
        // The remaining time is written, as Linux does; a failure of that is no failure of the call.
        if let (false, Some(left)) = (timeout.is_null(), limit.left()) {
            let left = [left.as_secs().cast_signed(), left.subsec_micros().into()];
            let _ = user_memory::write(timeout.addr(), &left);
        }
        errno::returned(answer)
    }

    [unsafe] pselect(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int {
        let Some(sets) = Sets::with_device(count, readable, writable, exceptional) else {
            // SAFETY: the program's own arguments.
            return unsafe { next::pselect(count, readable, writable, exceptional, timeout, mask) };
        };
        let limit = from_timespec(timeout);
        errno::returned(limit.and_then(|limit| sets.answer(&limit, mask)))
    }
}
