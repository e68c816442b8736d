//! The thread that connects a port to its server: the lookup of a path can take any time.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use ringroad_control::listening_socket::connect_prepared;
use ringroad_ring::eventfd;
use rustix::net::SocketType;

use crate::peer::peer_thread::PeerThread;
use crate::peer::wake_set::WakeSet;
use crate::peer::watch::PeerWatch;
use crate::socket_frames::refuse_descriptors;

/// The queue's side of the thread.
#[derive(Debug)]
pub(super) struct Connector {
    /// Eventfd with which the queue requests a connection.
    request: Arc<OwnedFd>,
    /// Whether the thread works on a request.
    is_requested: bool,
    connections: Receiver<OwnedFd>,
}

impl Connector {
    /// Starts the thread, which connects to `path` on request and then wakes the worker by `wake`.
    ///
    /// # Errors
    /// The kernel has no threads or descriptors left.
    pub(super) fn start(
        path: &Path,
        wake: Arc<WakeSet>,
        watch: Arc<PeerWatch>,
    ) -> std::io::Result<(Self, PeerThread<()>)> {
        let request = Arc::new(eventfd::create()?);
        let (sender, connections) = channel();
        let (path, requested) = (path.to_owned(), Arc::clone(&request));
        let thread = PeerThread::start("stream", Vec::new(), move |stop| {
            let mut is_first = true;
            while stop.wait([requested.as_fd()], None).is_some() {
                eventfd::drain(&*requested);
                // A server that ends each connection at once is not visited without a pause.
                if !std::mem::take(&mut is_first) && stop.pause().is_none() {
                    return;
                }
                let connect = || connect_prepared(&path, SocketType::STREAM, refuse_descriptors);
                let failed = |error| watch.unreachable(error);
                let Some(socket) = stop.await_connection(&path, connect, failed) else { return };
                if sender.send(socket).is_err() {
                    return;
                }
                eventfd::ring_own(&*wake.bell());
            }
        })?;
        Ok((Self { request, is_requested: false, connections }, thread))
    }

    /// The next connection. If there is none yet, it is requested.
    pub(super) fn take(&mut self) -> Option<OwnedFd> {
        if !self.is_requested {
            self.is_requested = true;
            eventfd::ring_own(&*self.request);
            return None;
        }
        let connection = self.connections.try_recv().ok();
        self.is_requested = connection.is_none();
        connection
    }
}
