//! Lock of a ring that several programs use: one word in shared memory.
//!
//! The word holds the number of the process that has the lock. It holds no pointer, and no process waits for it in the
//! kernel: a caller that finds the lock taken continues without it. Any program at the ring can write any value there,
//! and a process can be killed while its number is there. So a number counts only while its process lives. The caller
//! checks that outside shared memory ([`crate::liveness`]), and takes over the lock of a dead holder.
//!
//! A program that is about to sleep must not continue without the lock: its frames may lie in the ring already. It
//! leaves a *mark*. The holder learns of the mark when it releases the lock, and wakes the ring's sleepers. (A killed
//! holder wakes no sleeper: sleepers that left a mark check again after a while.)
//!
//! A hostile program can keep other programs from its ring, or let two of them use the ring at once. Then frames of
//! that ring are lost or garbled.

use crate::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
/// Bit of the mark: a refused caller sleeps.
const MARK: u32 = 1 << 31;
/// Number of attempts with a word that changes all the time.
const TRIES: u32 = 1000;

/// Number of a process in the words of its locks: 1 to [`HolderNumber::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderNumber(u32);

impl HolderNumber {
    /// The largest number.
    pub const MAX: u32 = MARK - 1;

    /// Number of a holder; `None` if it is out of range.
    #[inline]
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    /// Value of the number.
    #[inline]
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Result of an attempt to take the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockAttempt {
    /// The caller has the lock.
    Taken,
    /// Another process has the lock, and will see the caller's mark when it releases the lock.
    ToBeTold,
    /// Another process has the lock.
    Missed,
}

/// Lock of a ring. Zero: free.
#[derive(Debug, Default)]
pub struct SharedLock {
    word: AtomicU32,
    /// Number of times that the lock was taken.
    turns: AtomicU32,
}

/// One hold of the lock; a caller can wait for its end.
#[derive(Debug, Clone, Copy)]
pub struct LockHold {
    turn: u32,
}

impl SharedLock {
    /// Takes the lock if it is free; else returns the word.
    #[inline]
    fn take_free(&self, own: HolderNumber) -> Result<(), u32> {
        match self.word.compare_exchange(FREE, own.0, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => {
                self.begin_turn();
                Ok(())
            }
            // A mark without a number: no correct holder wrote this.
            Err(MARK) if self.take_over(MARK, own) => Ok(()),
            Err(found) => Err(found),
        }
    }

    #[inline]
    fn begin_turn(&self) {
        // The store comes after the end of the earlier turn, which the lock's word shows.
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Takes over the lock from the holder in `found`, and keeps the mark: perhaps a caller sleeps.
    #[cold]
    fn take_over(&self, found: u32, own: HolderNumber) -> bool {
        let taken =
            self.word.compare_exchange(found, MARK | own.0, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if taken {
            self.begin_turn();
        }
        taken
    }

    /// Takes the lock, unless a living process holds it.
    #[inline]
    pub fn try_take(&self, own: HolderNumber, is_alive: impl FnOnce(HolderNumber) -> bool) -> bool {
        match self.take_free(own) {
            Ok(()) => true,
            Err(found) => self.take_from_dead(found, own, is_alive),
        }
    }

    #[cold]
    fn take_from_dead(
        &self,
        found: u32,
        own: HolderNumber,
        is_alive: impl FnOnce(HolderNumber) -> bool,
    ) -> bool {
        !HolderNumber::new(found & !MARK).is_some_and(is_alive) && self.take_over(found, own)
    }

    /// Works as [`Self::try_take`], for a caller that is about to sleep: leaves a mark if the lock is not available.
    #[cold]
    pub fn take_or_mark(&self, own: HolderNumber, is_alive: impl Fn(HolderNumber) -> bool) -> LockAttempt {
        for _ in 0..TRIES {
            let Err(found) = self.take_free(own) else { return LockAttempt::Taken };
            if !HolderNumber::new(found & !MARK).is_some_and(&is_alive) {
                if self.take_over(found, own) {
                    return LockAttempt::Taken;
                }
            } else if found & MARK != 0
                || self
                    .word
                    .compare_exchange(found, found | MARK, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                return LockAttempt::ToBeTold;
            }
        }
        LockAttempt::Missed
    }

    /// Whether no process has the lock now.
    #[inline]
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !MARK == FREE
    }

    /// The present hold, if a living process has the lock. A later holder sees all values that the caller stored before
    /// with [`Ordering::SeqCst`].
    #[must_use]
    pub fn hold(&self, is_alive: impl FnOnce(HolderNumber) -> bool) -> Option<LockHold> {
        let held = HolderNumber::new(self.word.load(Ordering::SeqCst) & !MARK).is_some_and(is_alive);
        held.then(|| LockHold { turn: self.turns.load(Ordering::Acquire) })
    }

    /// Whether `hold` is over, no matter which process holds the lock now.
    #[must_use]
    pub fn is_over(&self, hold: LockHold, is_alive: impl FnOnce(HolderNumber) -> bool) -> bool {
        self.hold(is_alive).is_none_or(|now| now.turn != hold.turn)
    }

    /// Releases the lock that the caller has taken as `own`. Returns true if another caller was refused meanwhile: the
    /// caller then wakes the ring's sleepers.
    #[inline]
    #[must_use]
    pub fn release(&self, own: HolderNumber) -> bool {
        let release =
            |held: u32| self.word.compare_exchange(held, FREE, Ordering::Release, Ordering::Relaxed).is_ok();
        // The word is neither of the two: another program wrote it, and this process must not clear it.
        !release(own.0) && release(own.0 | MARK)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ONE: HolderNumber = HolderNumber(1);
    const OTHER: HolderNumber = HolderNumber(HolderNumber::MAX);

    fn alive(_: HolderNumber) -> bool {
        true
    }

    fn dead(_: HolderNumber) -> bool {
        false
    }

    #[test]
    fn a_lock_has_one_holder_until_its_release() {
        let lock = SharedLock::default();
        assert!(lock.try_take(ONE, dead));
        assert!(!lock.try_take(OTHER, alive) && !lock.try_take(ONE, alive));
        assert!(!lock.release(ONE));
        assert!(lock.is_free() && lock.try_take(OTHER, alive));
    }

    #[test]
    fn the_lock_of_a_dead_holder_is_taken_over_and_its_sleepers_are_woken() {
        let lock = SharedLock::default();
        assert!(lock.try_take(ONE, alive));
        assert_eq!(lock.take_or_mark(OTHER, |holder| holder != ONE), LockAttempt::Taken);
        // If the old holder lives after all, it does not release the lock of the new holder.
        assert!(!lock.release(ONE) && !lock.is_free());
        assert!(lock.release(OTHER) && lock.is_free());
    }

    #[test]
    fn a_release_reports_the_mark_of_a_refused_caller() {
        let lock = SharedLock::default();
        assert!(lock.try_take(ONE, alive));
        assert_eq!(lock.take_or_mark(OTHER, alive), LockAttempt::ToBeTold);
        assert_eq!(lock.take_or_mark(OTHER, alive), LockAttempt::ToBeTold);
        assert!(!lock.try_take(OTHER, alive));
        assert!(lock.release(ONE));
        assert!(lock.is_free());
    }

    #[test]
    fn a_hold_ends_by_release_by_a_new_hold_or_by_its_holders_death() {
        let lock = SharedLock::default();
        assert!(lock.hold(alive).is_none());
        assert!(lock.try_take(ONE, alive));
        let hold = lock.hold(alive).unwrap();
        assert!(!lock.is_over(hold, alive) && lock.is_over(hold, dead));
        assert!(!lock.release(ONE) && lock.is_over(hold, alive));
        assert!(lock.try_take(ONE, alive) && lock.is_over(hold, alive));
        let hold = lock.hold(alive).unwrap();
        assert!(lock.try_take(OTHER, dead) && lock.is_over(hold, alive));
    }

    /// The test tries every kind of word that a hostile program can leave: no caller waits, and a lock without a living
    /// holder can be taken.
    #[test]
    fn no_word_blocks_a_caller_or_locks_for_a_dead_holder() {
        let words =
            (0..32).flat_map(|bit| [1 << bit, u32::MAX >> bit, u32::MAX << bit]).chain([0, 0x5555_5555]);
        for word in words {
            let scribbled = || SharedLock { word: AtomicU32::new(word), turns: AtomicU32::new(word) };
            assert!(scribbled().try_take(ONE, dead), "{word:#x}");
            assert_eq!(scribbled().take_or_mark(ONE, dead), LockAttempt::Taken, "{word:#x}");
            let is_nobodys = word & !MARK == FREE;
            assert_eq!(scribbled().try_take(ONE, alive), is_nobodys, "{word:#x}");
            let turn = if is_nobodys { LockAttempt::Taken } else { LockAttempt::ToBeTold };
            assert_eq!(scribbled().take_or_mark(ONE, alive), turn, "{word:#x}");
            // The word changes while the lock is held: the holder clears only its own number.
            let held = scribbled();
            let told = held.release(OTHER);
            assert_eq!(held.is_free(), word & !MARK == OTHER.0 || is_nobodys, "{word:#x}");
            assert_eq!(told, word == OTHER.0 | MARK, "{word:#x}");
        }
    }

    #[test]
    fn two_threads_exclude_each_other() {
        use std::sync::atomic::AtomicU64;
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let lock = SharedLock::default();
        let sum = AtomicU64::new(0);
        let work = |own: HolderNumber| {
            for _ in 0..rounds {
                while !lock.try_take(own, alive) {
                    std::thread::yield_now();
                }
                // The addition is not atomic: another holder at the same time would lose a count.
                sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                let _ = lock.release(own);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work(ONE));
            scope.spawn(|| work(OTHER));
        });
        assert_eq!(sum.into_inner(), 2 * rounds);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::fence;
    use crate::wakeup::{Kicker, Sleeper, publish_fence};
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    const FILLER: HolderNumber = HolderNumber(1);
    const READER: HolderNumber = HolderNumber(2);

    /// Ring that its filler and its reader both lock, such as a monitor's.
    #[derive(Default)]
    struct LockedRing {
        lock: SharedLock,
        index: AtomicU32,
        sleeping: AtomicU32,
        eventfd: AtomicU64,
    }

    impl LockedRing {
        fn ring(&self) {
            self.eventfd.fetch_add(1, Ordering::AcqRel);
        }

        fn release(&self, own: HolderNumber) {
            if self.lock.release(own) {
                self.ring();
            }
        }

        fn fill(&self, kicker: &mut Kicker, index: u32) {
            while !self.lock.try_take(FILLER, |_| true) {
                thread::yield_now();
            }
            self.index.store(index, Ordering::Relaxed);
            publish_fence();
            let kick = kicker.needs_kick(&self.sleeping);
            self.release(FILLER);
            if kick {
                self.ring();
            }
        }

        /// Reads under the lock, and sleeps only if its last read found nothing or it left a mark.
        fn read_until(&self, goal: u32) {
            let mut sleeper = Sleeper::default();
            loop {
                sleeper.announce([&self.sleeping]);
                let mut seen = 0;
                match self.lock.take_or_mark(READER, |_| true) {
                    LockAttempt::Taken => {
                        seen = self.index.load(Ordering::Relaxed);
                        self.release(READER);
                    }
                    LockAttempt::ToBeTold => {}
                    LockAttempt::Missed => unreachable!("a word that is not scribbled on"),
                }
                if seen >= goal {
                    return;
                }
                // Loom reports the livelock if no thread rings.
                while self.eventfd.swap(0, Ordering::AcqRel) == 0 {
                    thread::yield_now();
                }
                Sleeper::awake(&self.sleeping);
            }
        }
    }

    #[test]
    fn loom_a_caller_refused_by_a_locked_ring_is_woken() {
        loom::model(|| {
            let ring = Arc::new(LockedRing::default());
            let filled = Arc::clone(&ring);
            let thread = thread::spawn(move || {
                let mut kicker = Kicker::default();
                filled.fill(&mut kicker, 1);
                filled.fill(&mut kicker, 2);
            });
            ring.read_until(2);
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_a_holder_sees_the_change_or_the_owner_waits_for_it() {
        loom::model(|| {
            // The owner changes the memory to fill, and takes the old memory back when no holder is left that may not
            // have seen the change.
            let lock = Arc::new(SharedLock::default());
            let changed = Arc::new(AtomicU32::new(0));
            let memory = Arc::new(AtomicU32::new(0));
            let (filled, seen, written) = (Arc::clone(&lock), Arc::clone(&changed), Arc::clone(&memory));
            let thread = thread::spawn(move || {
                for own in [FILLER, READER] {
                    assert!(filled.try_take(own, |_| true));
                    fence(Ordering::SeqCst);
                    if seen.load(Ordering::SeqCst) == 0 {
                        assert_eq!(written.load(Ordering::Relaxed), 0, "filled what was taken back");
                    }
                    let _ = filled.release(own);
                }
            });
            changed.store(1, Ordering::SeqCst);
            // Loom knows the single order of such operations only for fences.
            fence(Ordering::SeqCst);
            if let Some(hold) = lock.hold(|_| true) {
                while !lock.is_over(hold, |_| true) {
                    thread::yield_now();
                }
            }
            memory.store(1, Ordering::Relaxed);
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_writes_under_the_lock_are_visible_to_the_next_holder() {
        loom::model(|| {
            let lock = Arc::new(SharedLock::default());
            let sum = Arc::new(AtomicU64::new(0));
            let work = |lock: Arc<SharedLock>, sum: Arc<AtomicU64>, own: HolderNumber| {
                while !lock.try_take(own, |_| true) {
                    thread::yield_now();
                }
                sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                let _ = lock.release(own);
            };
            let (other_lock, other_sum) = (Arc::clone(&lock), Arc::clone(&sum));
            let thread = thread::spawn(move || work(other_lock, other_sum, FILLER));
            work(Arc::clone(&lock), Arc::clone(&sum), READER);
            thread.join().unwrap();
            assert_eq!(sum.load(Ordering::Relaxed), 2);
        });
    }
}
