//! The thread that serves a port's peers, and its end.

use std::thread::JoinHandle;

use super::handover::Mailbox;
use super::socket::StopBell;

/// A thread that ends when this value is dropped: it is stopped, its mailboxes are closed, and it is joined. `T` is the
/// state of a ring that the thread hands over.
#[derive(Debug)]
pub(crate) struct PeerThread<T> {
    stop: StopBell,
    mailboxes: Vec<Mailbox<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T> PeerThread<T> {
    /// Starts the thread. `run` must return when its bell was rung. The `mailboxes` are those at which the thread waits
    /// for workers.
    ///
    /// # Errors
    /// The kernel has no threads or descriptors left.
    pub(crate) fn start(
        name: &str,
        mailboxes: Vec<Mailbox<T>>,
        run: impl FnOnce(StopBell) + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = StopBell::new()?;
        let bell = stop.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(bell))?;
        Ok(Self { stop, mailboxes, thread: Some(thread) })
    }

    /// Stops the thread without waiting for its end. This is for a thread that also waits elsewhere, where its owner
    /// ends that wait afterwards.
    pub(crate) fn stop(&self) {
        self.stop.ring();
        self.mailboxes.iter().for_each(Mailbox::close);
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

    use super::*;
    use crate::peer::handover::handover;
    use crate::peer::wake_set::WakeSet;

    #[test]
    fn a_thread_ends_with_its_value_in_any_wait() {
        let (mailbox, held) = handover::<u32>(Arc::new(WakeSet::new().unwrap()));
        let (steps, step) = mpsc::channel();
        let thread = PeerThread::start("test", vec![mailbox.clone()], move |stop| {
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
