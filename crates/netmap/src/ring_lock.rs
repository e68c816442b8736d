//! A mutex in shared memory for programs that use one ring: process-shared and robust, so that a program that is killed while it holds it does not
//! leave it locked.
//!
//! The programs that share a ring trust each other with it. What a hostile one can do here is to keep its fellows from syncing that ring.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use ringroad_ring::ring_view::RingView;

const NEW: u32 = 0;
const BEING_MADE: u32 = 1;
const MADE: u32 = 2;
/// How often a short lock is tried before it is given up.
const TRIES: u32 = 10_000;

const _: () = assert!(size_of::<libc::pthread_mutex_t>() == size_of::<[u64; 5]>());

/// The lock of a ring, held until dropped.
#[derive(Debug)]
pub struct RingLock<'ring> {
    view: &'ring RingView,
}

fn mutex(view: &RingView) -> *mut libc::pthread_mutex_t {
    view.lock_address().as_ptr().cast()
}

/// Makes the mutex, if nobody has yet. False where it cannot be used: another program is just making it, or ended in the middle.
fn ensure(view: &RingView) -> bool {
    let state = &view.control().program.lock_state;
    if state.load(Ordering::Acquire) == MADE {
        return true;
    }
    if state.compare_exchange(NEW, BEING_MADE, Ordering::Acquire, Ordering::Acquire).is_err() {
        return state.load(Ordering::Acquire) == MADE;
    }
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    // SAFETY: the pointer is to memory for attributes, which the call fills.
    unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) };
    // SAFETY: initialised above.
    unsafe { libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED) };
    // SAFETY: as above.
    unsafe { libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) };
    // SAFETY: 40 mapped and aligned bytes that nobody else uses: `lock_state` let one through.
    unsafe { libc::pthread_mutex_init(mutex(view), attributes.as_ptr()) };
    state.store(MADE, Ordering::Release);
    true
}

impl<'ring> RingLock<'ring> {
    /// Takes the lock, unless somebody has it: a ring that is being synced is skipped.
    #[must_use]
    pub fn try_take(view: &'ring RingView) -> Option<Self> {
        if !ensure(view) {
            return None;
        }
        // SAFETY: a mutex made above or by another program; it lies in the mapping that `view` keeps.
        match unsafe { libc::pthread_mutex_trylock(mutex(view)) } {
            0 => Some(Self { view }),
            libc::EOWNERDEAD => {
                // The ring's state is a few words, each valid by itself and checked before use.
                // SAFETY: this thread holds the mutex now.
                unsafe { libc::pthread_mutex_consistent(mutex(view)) };
                Some(Self { view })
            }
            _ => None,
        }
    }

    /// Takes the lock of a ring on which others only work for a moment; gives up after a while, should it be held by what this thread interrupted.
    #[must_use]
    pub fn take_soon(view: &'ring RingView) -> Option<Self> {
        (0..TRIES).find_map(|_| {
            let taken = Self::try_take(view);
            if taken.is_none() {
                std::hint::spin_loop();
            }
            taken
        })
    }
}

impl Drop for RingLock<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread took it.
        unsafe { libc::pthread_mutex_unlock(mutex(self.view)) };
    }
}
