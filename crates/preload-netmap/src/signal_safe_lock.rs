//! Lock that a signal handler of the same thread may also take: signals wait while it is held. It is held only for a
//! few instructions, never across a call that may block, and around `fork`, so that a child finds the guarded value
//! whole.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ringroad_c_face::BlockedSignals;

/// A table with its lock, and the number of its entries for a quick check without the lock.
pub(crate) struct SignalSafeLock<T> {
    count: AtomicUsize,
    count_of: fn(&T) -> usize,
    taken: AtomicBool,
    /// The holder's signals, which wait.
    signals: UnsafeCell<Option<BlockedSignals>>,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of `taken` accesses `signals` and `value`.
unsafe impl<T: Send> Sync for SignalSafeLock<T> {}

impl<T> SignalSafeLock<T> {
    /// Makes the lock of an empty table, whose entries `count_of` counts.
    pub(crate) const fn new(value: T, count_of: fn(&T) -> usize) -> Self {
        Self {
            count: AtomicUsize::new(0),
            count_of,
            taken: AtomicBool::new(false),
            signals: UnsafeCell::new(None),
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
        let signals = BlockedSignals::new();
        while self.taken.swap(true, Ordering::Acquire) {
            rustix::thread::sched_yield();
        }
        // SAFETY: the lock is held.
        unsafe { *self.signals.get() = Some(signals) };
    }

    /// Releases the lock.
    pub(crate) fn give_back(&self) {
        // SAFETY: the lock is held.
        let signals = unsafe { &mut *self.signals.get() }.take();
        self.taken.store(false, Ordering::Release);
        drop(signals);
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
