//! The handover of a ring's state from a connection's thread to a worker, and back.
//!
//! Either the thread or the worker owns the state. The thread puts the new state into a *mailbox* and rings the
//! bell of the worker's wake set. The worker reads one flag per batch. After a change it exchanges its state for the one
//! in the mailbox, as soon as no frame is borrowed. A change that leaves the state with the worker is an *edit*: at no
//! time is the worker without a state.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ringroad_ring::eventfd;

use super::wake_set::WakeSet;

/// The thread's side of the mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox<T>(Arc<Shared<T>>);

/// The worker's side of the mailbox, and the worker's present state.
#[derive(Debug)]
pub(crate) struct Held<T> {
    shared: Arc<Shared<T>>,
    current: Option<T>,
}

#[derive(Debug)]
struct Shared<T> {
    /// Whether the worker must check the mailbox.
    is_wanted: AtomicBool,
    state: Mutex<State<T>>,
    exchanged: Condvar,
    /// The set that a sleeping worker waits for.
    wake: Arc<WakeSet>,
}

#[derive(Debug)]
struct State<T> {
    /// Request for the worker, about its current state.
    wanted: Option<WorkerChange<T>>,
    /// The state that the worker gave back.
    back: Option<T>,
    /// Whether the worker is gone.
    is_gone: bool,
}

enum WorkerChange<T> {
    /// Give it back for this one.
    State(Option<T>),
    /// Change it, and keep it.
    Edit(Box<dyn FnOnce(&mut T) + Send>),
}

impl<T: fmt::Debug> fmt::Debug for WorkerChange<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(state) => formatter.debug_tuple("State").field(state).finish(),
            Self::Edit(_) => formatter.write_str("Edit"),
        }
    }
}

/// Creates both sides of a mailbox. `wake` is the set that wakes the worker.
pub(crate) fn handover<T>(wake: Arc<WakeSet>) -> (Mailbox<T>, Held<T>) {
    let state = Mutex::new(State { wanted: None, back: None, is_gone: false });
    let (is_wanted, exchanged) = (AtomicBool::new(false), Condvar::new());
    let shared = Arc::new(Shared { is_wanted, state, exchanged, wake });
    (Mailbox(Arc::clone(&shared)), Held { shared, current: None })
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Mailbox<T> {
    /// The set that wakes the worker.
    pub(crate) fn wake(&self) -> &WakeSet {
        &self.0.wake
    }

    /// Closes the mailbox: no state is exchanged any more, and the worker keeps its present one. This ends the thread's
    /// wait, independent of the worker.
    pub(crate) fn close(&self) {
        self.0.lock().is_gone = true;
        self.0.exchanged.notify_all();
    }

    /// Gives the worker `state` (`None` for no state), waits until it has released its previous state, and returns the
    /// previous one. If the worker is gone, `state` is dropped.
    pub(crate) fn exchange(&self, state: Option<T>) -> Option<T> {
        self.request(WorkerChange::State(state)).back.take()
    }

    /// Lets the worker change its state by `edit`, and waits until it has. Does nothing if the worker has no state or is
    /// gone. `edit` is short, and cannot panic.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut T) + Send + 'static) {
        drop(self.request(WorkerChange::Edit(Box::new(edit))));
    }

    /// Waits until the worker has done what is wanted, or is gone.
    fn request(&self, wanted: WorkerChange<T>) -> MutexGuard<'_, State<T>> {
        let mut shared = self.0.lock();
        if shared.is_gone {
            return shared;
        }
        shared.wanted = Some(wanted);
        self.0.is_wanted.store(true, Ordering::Release);
        eventfd::ring_own(&*self.0.wake.bell());
        while shared.wanted.is_some() && !shared.is_gone {
            shared = self.0.exchanged.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
        shared.wanted = None;
        shared
    }

    /// The worker's last state; `None` while a worker exists.
    pub(crate) fn left_behind(&self) -> Option<T> {
        let mut shared = self.0.lock();
        if shared.is_gone { shared.back.take() } else { None }
    }
}

impl<T> Held<T> {
    /// The state, for a batch; `None` if there is none.
    #[inline]
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        self.current.as_mut()
    }

    /// Takes over the state that a worker of another process had.
    pub(crate) fn begin_with(&mut self, state: Option<T>) {
        self.current = state;
    }

    /// The set that wakes the worker.
    pub(crate) fn wake(&self) -> &WakeSet {
        &self.shared.wake
    }

    /// The state, for reading.
    pub(crate) fn peek(&self) -> Option<&T> {
        self.current.as_ref()
    }

    /// Whether the thread wants the state back. Then no more frames may be borrowed from it, and once all are released,
    /// [`Self::exchange`] must be called.
    #[inline]
    pub(crate) fn is_recalled(&self) -> bool {
        self.shared.is_wanted.load(Ordering::Acquire)
    }

    /// Gives the state back and takes the new one from the thread, or changes the state as the thread wants. No frame may
    /// be borrowed from the state.
    #[cold]
    pub(crate) fn exchange(&mut self) {
        let mut shared = self.shared.lock();
        self.shared.is_wanted.store(false, Ordering::Release);
        match shared.wanted.take() {
            Some(WorkerChange::State(state)) => shared.back = std::mem::replace(&mut self.current, state),
            Some(WorkerChange::Edit(edit)) => {
                if let Some(current) = &mut self.current {
                    edit(current);
                }
            }
            None => return,
        }
        self.shared.exchanged.notify_all();
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let mut shared = self.shared.lock();
        shared.is_gone = true;
        // A state that was given back earlier and not fetched yet has precedence.
        let last = self.current.take();
        shared.back = shared.back.take().or(last);
        self.shared.exchanged.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_goes_to_the_worker_and_comes_back_as_the_worker_left_it() {
        let (mailbox, mut held) = handover::<Vec<u32>>(Arc::new(WakeSet::new().unwrap()));
        assert!(held.get().is_none() && !held.is_recalled());
        let (fetched, await_fetched) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            assert_eq!(mailbox.exchange(Some(vec![1])), None);
            let back = mailbox.exchange(Some(vec![7]));
            fetched.send(()).unwrap();
            assert_eq!(mailbox.exchange(None), Some(vec![7]));
            // The thread does not wait, because no worker is left.
            assert_eq!(mailbox.exchange(Some(vec![9])), None);
            mailbox.close();
            back
        });
        let await_recall = |held: &Held<Vec<u32>>| {
            while !held.is_recalled() {
                std::thread::yield_now();
            }
        };
        await_recall(&held);
        held.exchange();
        held.get().unwrap().push(2);
        await_recall(&held);
        held.exchange();
        assert_eq!(held.get(), Some(&mut vec![7]));
        await_fetched.recv().unwrap();
        drop(held);
        assert_eq!(thread.join().unwrap(), Some(vec![1, 2]));
    }

    #[test]
    fn an_edit_leaves_the_state_with_the_worker() {
        let (mailbox, mut held) = handover::<Vec<u32>>(Arc::new(WakeSet::new().unwrap()));
        held.begin_with(Some(vec![1]));
        let thread = std::thread::spawn(move || {
            mailbox.edit(|state| state.push(2));
            mailbox
        });
        while !held.is_recalled() {
            std::thread::yield_now();
        }
        assert_eq!(held.get(), Some(&mut vec![1]));
        held.exchange();
        assert_eq!(held.get(), Some(&mut vec![1, 2]));
        let mailbox = thread.join().unwrap();
        drop(held);
        // The thread does not wait, because no worker is left, and what the worker left is as it was.
        mailbox.edit(|state| state.push(3));
        assert_eq!(mailbox.left_behind(), Some(vec![1, 2]));
    }
}
