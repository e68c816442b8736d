//! The UNIX socket that connects a port and its peer, also after a disconnect.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringroad_control::listening_socket::connect;
use ringroad_ring::eventfd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketType;

/// Pause between two attempts: to reach a server, to accept a connection, or to agree with a peer.
const RETRY: Duration = Duration::from_millis(200);

/// Signal to a port's thread that the port ends: an eventfd that is part of each of its waits.
#[derive(Debug, Clone)]
pub(crate) struct StopBell(Arc<OwnedFd>);

impl StopBell {
    /// Creates a bell that has not been rung.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self(Arc::new(eventfd::create()?)))
    }

    /// Ends all waits, present and later.
    pub(crate) fn ring(&self) {
        eventfd::ring_own(&*self.0);
    }

    /// Waits until one of `descriptors` is ready, or `timeout` has passed. Returns which are ready; `None` when the
    /// bell was rung.
    pub(crate) fn wait<const N: usize>(
        &self,
        descriptors: [BorrowedFd<'_>; N],
        timeout: Option<Duration>,
    ) -> Option<[bool; N]> {
        self.wait_for_any(&descriptors, timeout)?.try_into().ok()
    }

    /// Waits as [`Self::wait`] does, for any number of descriptors.
    pub(crate) fn wait_for_any(
        &self,
        descriptors: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Option<Vec<bool>> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut waits: Vec<PollFd<'_>> = std::iter::once(self.0.as_fd())
            .chain(descriptors.iter().copied())
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        loop {
            match poll(&mut waits, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                // Without the ability to wait the port cannot be served, so it ends.
                Err(_) => return None,
                Ok(_) => break,
            }
        }
        let mut ready = waits.iter().map(|wait| !wait.revents().is_empty());
        if ready.next() == Some(true) {
            return None;
        }
        Some(ready.collect())
    }

    /// Pauses before the next attempt. `None` when the bell was rung.
    pub(crate) fn pause(&self) -> Option<()> {
        self.wait([], Some(RETRY)).map(|[]| ())
    }

    /// Connects to the server at `path` as soon as it listens. Calls `failed` with the reason after each failed
    /// attempt. `None` when the bell was rung.
    pub(crate) fn await_server(
        &self,
        path: &Path,
        kind: SocketType,
        failed: impl FnMut(String),
    ) -> Option<OwnedFd> {
        self.await_connection(path, || connect(path, kind), failed)
    }

    /// Connects as [`Self::await_server`] does, by `connect`.
    pub(crate) fn await_connection(
        &self,
        path: &Path,
        mut connect: impl FnMut() -> std::io::Result<OwnedFd>,
        mut failed: impl FnMut(String),
    ) -> Option<OwnedFd> {
        loop {
            match connect() {
                Ok(socket) => return Some(socket),
                Err(error) => failed(format!("connecting to {}: {error}", path.display())),
            }
            self.pause()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use ringroad_control::listening_socket::ListeningSocket;

    use super::*;

    #[test]
    fn a_client_finds_a_later_server_and_ends_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let stop = StopBell::new().unwrap();
        let (failures, failed) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let (stop, path) = (stop.clone(), path.clone());
            move || {
                let mut told = |why| failures.send(why).unwrap();
                let found = stop.await_server(&path, SocketType::SEQPACKET, &mut told).is_some();
                found && stop.await_server(Path::new("/nowhere/s"), SocketType::STREAM, told).is_none()
            }
        });
        assert!(failed.recv().unwrap().contains("No such file"));
        let listener = ListeningSocket::bind(&path, SocketType::SEQPACKET, Some(0o660)).unwrap();
        assert_eq!(stop.wait([listener.as_fd()], None), Some([true]));
        assert!(listener.accept().unwrap().is_some());
        assert!(listener.accept().unwrap().is_none());
        while !failed.recv().unwrap().contains("nowhere") {}
        stop.ring();
        assert!(thread.join().unwrap());
    }
}
