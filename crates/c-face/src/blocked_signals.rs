//! Signals that wait.

use std::mem::MaybeUninit;
use std::ptr;

use libc::sigset_t;

/// All signals of the thread that made this wait until it is dropped, by the same thread or by its copy after `fork`.
/// A thread that starts meanwhile blocks them for good: so a library's own thread never runs a program's handler.
pub struct BlockedSignals {
    before: sigset_t,
}

impl BlockedSignals {
    /// Blocks the calling thread's signals.
    #[must_use]
    pub fn new() -> Self {
        let mut all = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: the call fills the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: both sets belong to this function; the second is written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: the call, which cannot fail with these arguments, wrote the set.
        Self { before: unsafe { before.assume_init() } }
    }
}

impl Default for BlockedSignals {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set was written by the same function in `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}
