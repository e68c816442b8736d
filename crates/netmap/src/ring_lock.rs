//! Lock of a ring ([`ringroad_ring::shared_lock`]) for this process. No sync waits for it: a locked ring is skipped.

use std::sync::Arc;

use ringroad_ring::ring_view::RingView;
use ringroad_ring::shared_lock::{HolderNumber, LockAttempt, SharedLock};

use crate::bell::Bell;
use crate::holder::Holder;

/// Number of attempts to take a lock that is held for a short time.
const TRIES: u32 = 1_000;

/// The caller's plan after a skipped sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncIntent {
    /// Another process syncs the ring, which is sufficient.
    Passing,
    /// The caller sleeps if it finds no frame: the lock's holder must wake it on release.
    BeforeSleep,
}

/// A ring's lock as this process takes it.
#[derive(Debug)]
pub(crate) struct RingLock {
    view: RingView,
    holder: Arc<Holder>,
    /// Eventfd of the sleepers on the ring.
    notify: Arc<Bell>,
}

/// The lock, held until dropped.
#[derive(Debug)]
pub(crate) struct Held<'lock> {
    lock: &'lock RingLock,
    own: HolderNumber,
}

impl RingLock {
    pub(crate) fn new(view: &RingView, holder: &Arc<Holder>, notify: &Arc<Bell>) -> Self {
        Self { view: view.clone(), holder: Arc::clone(holder), notify: Arc::clone(notify) }
    }

    fn word(&self) -> &SharedLock {
        &self.view.control().program.lock
    }

    /// Wakes the sleepers on the ring.
    pub(crate) fn wake_sleepers(&self) {
        self.notify.ring();
    }

    /// Takes the lock, unless a living process holds it.
    #[inline(always)]
    pub(crate) fn try_take(&self, intent: SyncIntent) -> Option<Held<'_>> {
        let own = self.holder.number()?;
        let is_alive = |holder| self.holder.is_alive(holder);
        let taken = match intent {
            SyncIntent::Passing => self.word().try_take(own, is_alive),
            SyncIntent::BeforeSleep => self.word().take_or_mark(own, is_alive) == LockAttempt::Taken,
        };
        taken.then(|| Held { lock: self, own })
    }

    /// Takes the lock of a ring that other processes use only for a moment. Gives up after a while, in case that the
    /// code which this thread interrupted holds it.
    pub(crate) fn take_soon(&self) -> Option<Held<'_>> {
        let first = self.try_take(SyncIntent::Passing);
        if first.is_some() {
            return first;
        }
        let own = self.holder.number()?;
        for _ in 0..TRIES {
            std::hint::spin_loop();
            if self.word().is_free() && self.word().try_take(own, |_| true) {
                return Some(Held { lock: self, own });
            }
        }
        None
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.word().release(self.own) {
            self.lock.wake_sleepers();
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use ringroad_ring::eventfd;
    use ringroad_ring::geometry::RegionGeometry;
    use ringroad_ring::layout::Direction;
    use ringroad_ring::region::{HugePages, Region};
    use ringroad_ring::ring_view::{RingInit, lay_out_ring};

    use super::*;

    /// Region with a ring, mapped as in a program: children inherit the mapping.
    fn ring() -> (Arc<Region>, RingView) {
        let geometry = RegionGeometry::for_ports(1, 1, 8, 128, 0).unwrap();
        let made = Arc::new(Region::create(geometry, HugePages::Never).unwrap());
        let mut buffers = 2..geometry.buffers;
        lay_out_ring(&made, 0, &RingInit::new(Direction::Rx, 0, 8), &mut buffers).unwrap();
        let descriptor = made.as_fd().try_clone_to_owned().unwrap();
        let region = Arc::new(Region::open_inheritable(geometry, descriptor).unwrap());
        let view = RingView::new(&region, 0, 8).unwrap();
        (region, view)
    }

    /// A separate process, as far as the lock can detect.
    fn process_at(region: &Arc<Region>, view: &RingView) -> RingLock {
        let notify = Arc::new(Bell::new(eventfd::create().unwrap(), true));
        RingLock::new(view, &Arc::new(Holder::new(region)), &notify)
    }

    fn was_woken(lock: &RingLock) -> bool {
        rustix::io::read(lock.notify.as_fd(), &mut [0; 8]).is_ok()
    }

    /// Forks a child that runs `act` with the end of a pipe to signal this process, and then waits to be killed. Any
    /// other holder of the returned end keeps the pipe open.
    fn child(act: impl FnOnce(&mut std::fs::File)) -> (libc::pid_t, std::fs::File) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        // SAFETY: the child makes system calls, allocates, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(read);
            act(&mut write.into());
            loop {
                // SAFETY: the call waits for a signal.
                unsafe { libc::pause() };
            }
        }
        assert!(child > 0);
        (child, read.into())
    }

    fn kill(child: libc::pid_t) {
        // SAFETY: a child of this process that was not waited for yet.
        assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
        // SAFETY: as above; nothing is written.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }

    #[test]
    fn a_living_process_keeps_its_lock() {
        let (region, view) = ring();
        let (one, other) = (process_at(&region, &view), process_at(&region, &view));
        let held = one.try_take(SyncIntent::Passing).unwrap();
        assert!(other.try_take(SyncIntent::Passing).is_none() && other.take_soon().is_none());
        // The lock is not available to another thread of the process, either.
        assert!(one.try_take(SyncIntent::Passing).is_none() && other.try_take(SyncIntent::Passing).is_none());
        drop(held);
        assert!(!was_woken(&one));
        drop(other.take_soon().unwrap());
    }

    #[test]
    fn releasing_the_lock_wakes_a_sleeper() {
        let (region, view) = ring();
        let (one, other) = (process_at(&region, &view), process_at(&region, &view));
        let held = one.try_take(SyncIntent::Passing).unwrap();
        assert!(other.try_take(SyncIntent::BeforeSleep).is_none());
        assert!(!was_woken(&one));
        drop(held);
        assert!(was_woken(&one));
    }

    #[test]
    fn a_killed_holder_leaves_nothing_locked() {
        let (region, view) = ring();
        let own = process_at(&region, &view);
        let inherited = process_at(&region, &view);
        assert!(inherited.holder.number().is_some());
        let (holder, mut told) = child(|tell| {
            // The inherited number is not the child's own any more, and the child has a child that outlives it.
            std::mem::forget(inherited.try_take(SyncIntent::Passing).unwrap());
            let tell = tell.try_clone().unwrap();
            child(|_| (&tell).write_all(&std::process::id().to_ne_bytes()).unwrap());
        });
        let mut heir = [0; 4];
        told.read_exact(&mut heir).unwrap();
        let was_kept_out =
            own.try_take(SyncIntent::Passing).is_none() && own.try_take(SyncIntent::BeforeSleep).is_none();
        kill(holder);
        let is_let_in = own.try_take(SyncIntent::Passing).is_some();
        // SAFETY: the process only waits for this signal.
        unsafe { libc::kill(libc::pid_t::from_ne_bytes(heir), libc::SIGKILL) };
        assert!(was_kept_out && is_let_in);
        // The mark was left for the dead holder.
        assert!(was_woken(&own));
    }

    #[test]
    fn lock_words_without_a_living_holder_block_no_process() {
        let (region, view) = ring();
        let own = process_at(&region, &view);
        let word = std::ptr::from_ref(&view.control().program.lock).cast::<std::sync::atomic::AtomicU32>();
        for number in [1, 0x1234_5678, 0x3FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xBFFF_FFFF] {
            // SAFETY: mapped and aligned; a hostile program writes there as this does.
            unsafe { word.as_ref() }.unwrap().store(number, std::sync::atomic::Ordering::Relaxed);
            assert!(own.try_take(SyncIntent::Passing).is_some(), "{number:#x}");
            // SAFETY: as above.
            unsafe { word.as_ref() }.unwrap().store(number, std::sync::atomic::Ordering::Relaxed);
            assert!(own.try_take(SyncIntent::BeforeSleep).is_some(), "{number:#x}");
        }
        // The worst numbers belong to a process that lives, or that counts as alive for ever. The ring is lost, but the
        // caller is not blocked.
        let other = process_at(&region, &view);
        for number in [0x7FFF_FFFF, other.holder.number().unwrap().get(), own.holder.number().unwrap().get()]
        {
            // SAFETY: as above.
            unsafe { word.as_ref() }.unwrap().store(number, std::sync::atomic::Ordering::Relaxed);
            assert!(own.take_soon().is_none(), "{number:#x}");
            assert!(own.try_take(SyncIntent::BeforeSleep).is_none(), "{number:#x}");
        }
    }
}
