//! The thread that serves a port's peers, and its end.

use std::thread::JoinHandle;

use super::handover::Closer;
use super::socket::StopBell;

/// A thread that ends when this value is dropped: it is stopped, its mailboxes are closed, and it is joined. `T` is the
/// state of a ring that the thread hands over.
#[derive(Debug)]
pub(crate) struct PeerThread<T> {
    stop: StopBell,
    closers: Vec<Closer<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T> PeerThread<T> {
    /// Starts the thread. `run` must return when `stop` was rung. The `closers` are those of the mailboxes at which the
    /// thread waits for workers.
    ///
    /// # Errors
    /// The kernel has no threads left.
    pub(crate) fn start(
        name: &str,
        stop: StopBell,
        closers: Vec<Closer<T>>,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { stop, closers, thread: Some(thread) })
    }

    /// Stops the thread without waiting for its end. This is for a thread that also waits elsewhere, where its owner
    /// ends that wait afterwards.
    pub(crate) fn stop(&self) {
        self.stop.ring();
        self.closers.iter().for_each(Closer::close);
    }
}

impl<T> Drop for PeerThread<T> {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use ringroad_ring::eventfd;

    use super::*;
    use crate::peer::handover::handover;

    #[test]
    fn a_thread_ends_with_its_value_in_any_wait() {
        let (mailbox, held) = handover::<u32>(Arc::new(eventfd::create().unwrap()));
        let stop = StopBell::new().unwrap();
        let (steps, step) = mpsc::channel();
        let closers = vec![mailbox.closer()];
        let thread = PeerThread::start("test", stop.clone(), closers, move || {
            steps.send("begun").unwrap();
            // The thread waits for a worker that never answers.
            mailbox.exchange(Some(7));
            assert_eq!(stop.wait([], None), None);
            steps.send("ended").unwrap();
        })
        .unwrap();
        assert_eq!(step.recv(), Ok("begun"));
        while !held.is_recalled() {
            std::thread::yield_now();
        }
        drop(thread);
        assert_eq!(step.try_recv(), Ok("ended"));
    }
}
