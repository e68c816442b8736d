//! Hooks of `select` and `pselect` for sets with devices in them. They are turned into a poll and back, as the kernel
//! defines the meaning of the sets.

use std::ffi::{c_int, c_ulong};
use std::time::Duration;

use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM, POLLWRBAND, POLLWRNORM,
    fd_set, sigset_t, timespec, timeval,
};
use ringroad_c_face::TimeLimit;
use rustix::io::Errno;
use smallvec::SmallVec;

use crate::errno;
use crate::hooks::hooks;
use crate::time_limit::from_timespec;
use crate::tracked::{DeviceReference, any_device, device};
use crate::wait::Wait;

const BITS: usize = c_ulong::BITS as usize;

/// Set of the program: as many words as the highest descriptor needs, which may be more than an `fd_set` has.
struct Set {
    words: *mut c_ulong,
    asked: SmallVec<[c_ulong; 16]>,
    /// Ready descriptors.
    ready: SmallVec<[c_ulong; 16]>,
}

impl Set {
    /// # Safety
    /// `words` must be null or point to `count` bits, rounded up to whole words.
    unsafe fn read(words: *mut fd_set, count: usize) -> Self {
        let words: *mut c_ulong = words.cast();
        let asked = if words.is_null() {
            SmallVec::new()
        } else {
            // SAFETY: the caller's promise.
            let words = unsafe { std::slice::from_raw_parts(words, count.div_ceil(BITS)) };
            SmallVec::from_slice(words)
        };
        let ready = SmallVec::from_elem(0, asked.len());
        Self { words, asked, ready }
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

    /// # Safety
    /// The set must still be at the address from which it was read.
    unsafe fn write(&self) {
        for (index, &word) in self.ready.iter().enumerate() {
            // SAFETY: the caller's promise; as many words were read.
            let target = unsafe { self.words.add(index) };
            // SAFETY: as above.
            unsafe { target.write(word) };
        }
    }
}

struct Sets {
    count: usize,
    readable: Set,
    writable: Set,
    exceptional: Set,
}

impl Sets {
    /// Sets, if there is a device in them.
    ///
    /// # Safety
    /// The conditions of select(2).
    unsafe fn with_device(
        count: c_int,
        readable: *mut fd_set,
        writable: *mut fd_set,
        exceptional: *mut fd_set,
    ) -> Option<Self> {
        let count = usize::try_from(count).ok().filter(|&count| count > 0 && any_device())?;
        // SAFETY: the caller's promise.
        let readable = unsafe { Set::read(readable, count) };
        // SAFETY: the caller's promise.
        let writable = unsafe { Set::read(writable, count) };
        // SAFETY: the caller's promise.
        let exceptional = unsafe { Set::read(exceptional, count) };
        let sets = Self { count, readable, writable, exceptional };
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
    ///
    /// # Safety
    /// The sets must still be at the addresses from which they were read.
    unsafe fn answer(mut self, limit: &TimeLimit, mask: *const sigset_t) -> Result<c_int, Errno> {
        let ready = self.wait(limit, mask)?;
        for set in [&self.readable, &self.writable, &self.exceptional] {
            // SAFETY: the caller's promise.
            unsafe { set.write() };
        }
        Ok(ready)
    }
}

fn limit_of(timeout: Option<&timeval>) -> Result<TimeLimit, Errno> {
    let Some(timeout) = timeout else { return Ok(TimeLimit::Never) };
    match (u64::try_from(timeout.tv_sec), u64::try_from(timeout.tv_usec)) {
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
        // SAFETY: the program's own arguments.
        let Some(sets) = (unsafe { Sets::with_device(count, readable, writable, exceptional) }) else {
            // SAFETY: the program's own arguments.
            return unsafe { next::select(count, readable, writable, exceptional, timeout) };
        };
        // SAFETY: null or a structure, as the program guarantees.
        let timeout = unsafe { timeout.as_mut() };
        let limit = match limit_of(timeout.as_deref()) {
            Ok(limit) => limit,
            Err(errno) => return errno::fail(errno),
        };
        // SAFETY: the program's own arguments.
        let answer = unsafe { sets.answer(&limit, std::ptr::null()) };
        // The remaining time is written, as Linux does.
        if let (Some(timeout), Some(left)) = (timeout, limit.left()) {
            timeout.tv_sec = left.as_secs() as libc::time_t;
            timeout.tv_usec = left.subsec_micros().into();
        }
        errno::returned(answer)
    }

    [unsafe] pselect(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int {
        // SAFETY: the program's own arguments.
        let Some(sets) = (unsafe { Sets::with_device(count, readable, writable, exceptional) }) else {
            // SAFETY: the program's own arguments.
            return unsafe { next::pselect(count, readable, writable, exceptional, timeout, mask) };
        };
        // SAFETY: null or a structure, as the program guarantees.
        let limit = from_timespec(unsafe { timeout.as_ref() });
        // SAFETY: the program's own arguments.
        errno::returned(limit.and_then(|limit| unsafe { sets.answer(&limit, mask) }))
    }
}
