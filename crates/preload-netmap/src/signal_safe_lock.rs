//! Lock that a signal handler of the same thread may also take: signals wait while it is held. It is held only for a
//! few instructions, never across a call that may block, and around `fork`, so that a child finds the guarded value
//! whole.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::sigset_t;

/// A table with its lock, and the number of its entries for a quick check without the lock.
pub(crate) struct SignalSafeLock<T> {
    count: AtomicUsize,
    count_of: fn(&T) -> usize,
    taken: AtomicBool,
    /// Signals that the lock's holder had blocked before it took the lock.
    mask: UnsafeCell<MaybeUninit<sigset_t>>,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of `taken` accesses `mask` and `value`.
unsafe impl<T: Send> Sync for SignalSafeLock<T> {}

impl<T> SignalSafeLock<T> {
    /// Makes the lock of an empty table, whose entries `count_of` counts.
    pub(crate) const fn new(value: T, count_of: fn(&T) -> usize) -> Self {
        Self {
            count: AtomicUsize::new(0),
            count_of,
            taken: AtomicBool::new(false),
            mask: UnsafeCell::new(MaybeUninit::uninit()),
            value: UnsafeCell::new(value),
        }
    }

    /// Whether the table has no entry. Takes no lock.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Runs `f` on the value. `f` must not take the lock again, and must not close or free a device: this is done after
    /// the call.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.take();
        // SAFETY: the lock is held, so there is no other reference.
        let value = unsafe { &mut *self.value.get() };
        let result = f(value);
        self.count.store((self.count_of)(value), Ordering::Relaxed);
        self.give_back();
        result
    }

    /// Takes the lock without access to the value; [`Self::give_back`] must follow on this thread, or in its child.
    pub(crate) fn take(&self) {
        let mut all = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: the call fills the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: both sets belong to this function; the second is written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        while self.taken.swap(true, Ordering::Acquire) {
            rustix::thread::sched_yield();
        }
        // SAFETY: the lock is held.
        unsafe { *self.mask.get() = before };
    }

    /// Releases the lock.
    pub(crate) fn give_back(&self) {
        // SAFETY: the lock is held, and the mask was written when it was taken.
        let before = unsafe { *self.mask.get() };
        self.taken.store(false, Ordering::Release);
        // SAFETY: the set was written by the same function in `take`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        static LOCK: SignalSafeLock<u64> = SignalSafeLock::new(0, |count| *count as usize);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| LOCK.with(|count| *count += 1)));
            }
        });
        assert_eq!(LOCK.with(|count| *count), 40_000);
    }

    #[test]
    fn signals_wait() {
        static SEEN: AtomicBool = AtomicBool::new(false);
        extern "C" fn note(_signal: libc::c_int) {
            SEEN.store(true, Ordering::SeqCst);
        }
        let handler: extern "C" fn(libc::c_int) = note;
        // SAFETY: the handler only stores an atomic.
        unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
        let lock = SignalSafeLock::new((), |()| 0);
        lock.with(|()| {
            // SAFETY: a handler is in place.
            unsafe { libc::raise(libc::SIGUSR2) };
            assert!(!SEEN.load(Ordering::SeqCst));
        });
        assert!(SEEN.load(Ordering::SeqCst));
    }
}
