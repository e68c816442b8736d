//! Sleep without lost wake-ups, and without a syscall while both sides are awake.
//!
//! The sleeper announces a numbered sleep in its own line, reads the other side's index once more, and only then waits
//! on its eventfd. The publisher stores its index and then reads the sleeper's announcement. Each side has a full fence
//! between its store and its load, so that at least one of the two sees the other (Dekker). The number lets the
//! publisher kick once per sleep instead of once per sync: an eventfd keeps its signal until it is drained, and the
//! sleeper drains before it checks again.
//!
//! A hostile peer can leave out kicks (its own frames wait) or kick without a reason (one wake-up each).

use crate::sync::{AtomicU32, Ordering, fence};

/// State of the sleeping side: numbers its sleeps.
#[derive(Debug, Default)]
pub struct Sleeper {
    last_sleep: u32,
}

impl Sleeper {
    /// A sleeper whose first sleep comes after sleep number `last`: a kick for sleep `last` has no effect any more.
    #[must_use]
    pub fn after(last: u32) -> Self {
        Self { last_sleep: last }
    }

    /// Number of the last sleep.
    #[must_use]
    pub fn last_sleep(&self) -> u32 {
        self.last_sleep
    }

    /// Announces a new sleep in all given flags (one sleeper may wait on many rings) with a single fence. Afterwards
    /// the caller must check for work once more before it waits.
    pub fn announce<'a>(&mut self, flags: impl IntoIterator<Item = &'a AtomicU32>) {
        // The count skips 0, which means awake.
        self.last_sleep = self.last_sleep.wrapping_add(1).max(1);
        for flag in flags {
            flag.store(self.last_sleep, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Withdraws the announcement.
    pub fn awake(flag: &AtomicU32) {
        flag.store(0, Ordering::Relaxed);
    }
}

/// State of the publishing side: the last sleep that it has ended.
#[derive(Debug, Default)]
pub struct Kicker {
    last_kicked: u32,
}

impl Kicker {
    /// Whether the sleeper behind `flag` needs a kick. To be called after [`publish_fence`].
    #[inline]
    pub fn needs_kick(&mut self, flag: &AtomicU32) -> bool {
        let sleep = flag.load(Ordering::Relaxed);
        if sleep == 0 || sleep == self.last_kicked {
            return false;
        }
        self.last_kicked = sleep;
        true
    }
}

/// Variant of [`Kicker`] for a ring at which several threads publish in turn.
#[derive(Debug, Default)]
pub struct SharedKicker {
    last_kicked: AtomicU32,
}

impl SharedKicker {
    /// Works as [`Kicker::needs_kick`].
    #[inline]
    pub fn needs_kick(&self, flag: &AtomicU32) -> bool {
        let sleep = flag.load(Ordering::Relaxed);
        if sleep == 0 || sleep == self.last_kicked.load(Ordering::Relaxed) {
            return false;
        }
        self.last_kicked.store(sleep, Ordering::Relaxed);
        true
    }
}

/// Orders the publisher's index before its read of the sleeper's announcement.
#[inline]
pub fn publish_fence() {
    fence(Ordering::SeqCst);
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    /// One direction of a ring under loom: an index, an announcement, and an eventfd as a counter that is read and
    /// zeroed at once. `wait` yields to the model until the counter is not zero.
    #[derive(Default)]
    struct Channel {
        index: AtomicU32,
        sleeping: AtomicU32,
        eventfd: AtomicU64,
    }

    impl Channel {
        fn wait_and_drain(&self) {
            // Loom reports the livelock if the kick was lost: the eventfd is never written then.
            while self.eventfd.swap(0, Ordering::AcqRel) == 0 {
                thread::yield_now();
            }
        }

        fn consume_until(&self, goal: u32) {
            let mut sleeper = Sleeper::default();
            while self.index.load(Ordering::Acquire) < goal {
                sleeper.announce([&self.sleeping]);
                let seen = self.index.load(Ordering::Acquire);
                if seen < goal {
                    // Publications after `seen` come from a publisher that must have seen the announcement.
                    self.wait_and_drain();
                }
                Sleeper::awake(&self.sleeping);
            }
        }

        fn publish(&self, kicker: &mut Kicker, index: u32) {
            self.index.store(index, Ordering::Release);
            publish_fence();
            if kicker.needs_kick(&self.sleeping) {
                self.eventfd.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    #[test]
    fn loom_no_wake_up_is_lost_in_two_publications() {
        loom::model(|| {
            let channel = Arc::new(Channel::default());
            let publisher = Arc::clone(&channel);
            let thread = thread::spawn(move || {
                let mut kicker = Kicker::default();
                publisher.publish(&mut kicker, 1);
                publisher.publish(&mut kicker, 2);
            });
            channel.consume_until(2);
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_both_sides_may_sleep_on_each_other() {
        loom::model(|| {
            // Request and reply: each side publishes, then sleeps until the other side publishes.
            let request = Arc::new(Channel::default());
            let answer = Arc::new(Channel::default());
            let (peer_request, peer_answer) = (Arc::clone(&request), Arc::clone(&answer));
            let thread = thread::spawn(move || {
                peer_request.consume_until(1);
                peer_answer.publish(&mut Kicker::default(), 1);
            });
            request.publish(&mut Kicker::default(), 1);
            answer.consume_until(1);
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_slots_before_the_published_index_are_visible() {
        loom::model(|| {
            let channel = Arc::new(Channel::default());
            let slot = Arc::new(AtomicU32::new(0));
            let (publisher, payload) = (Arc::clone(&channel), Arc::clone(&slot));
            let thread = thread::spawn(move || {
                payload.store(7, Ordering::Relaxed);
                publisher.publish(&mut Kicker::default(), 1);
            });
            channel.consume_until(1);
            assert_eq!(slot.load(Ordering::Relaxed), 7);
            thread.join().unwrap();
        });
    }
}
