//! Report of the program at the other end of a port's socket.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ringroad_ring::eventfd;
use ringroad_wire::mac::Mac;

/// The state of a port's connection with its peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerStatus {
    /// Whether a peer is connected.
    pub is_connected: bool,
    /// Number of connections so far, the present one included.
    pub connections: u64,
    /// Settings agreed with the connected peer, as text for users; empty without a peer.
    pub agreed: String,
    /// Number of the port's queues that the peer uses now.
    pub active_queues: u16,
    /// Address of the peer's card, if the peer has it from this port or has set it here.
    pub address: Option<Mac>,
    /// Reason why the last connection failed or could not be set up, or what of the present one is stopped; absent after
    /// a regular end.
    pub last_error: Option<String>,
}

/// The status of a port, and the reason why its last connection ended or was not agreed on.
#[derive(Debug, Default)]
struct WatchedPeer {
    status: PeerStatus,
    cause: Option<String>,
}

/// The status of a port, written by the thread of its connection and read by any thread.
#[derive(Debug, Default)]
pub struct PeerWatch {
    watched: Mutex<WatchedPeer>,
    bell: OnceLock<Arc<OwnedFd>>,
}

impl PeerWatch {
    fn lock(&self) -> MutexGuard<'_, WatchedPeer> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Present status.
    #[must_use]
    pub fn status(&self) -> PeerStatus {
        self.lock().status.clone()
    }

    /// Rings `bell`, an eventfd, now and at each later change. Only the first bell is kept.
    pub fn ring_at_changes(&self, bell: Arc<OwnedFd>) {
        eventfd::ring_own(self.bell.get_or_init(|| bell).as_fd());
    }

    /// Changes the status, and rings the bell if it differs from before.
    fn change(&self, change: impl FnOnce(&mut WatchedPeer)) {
        let mut watched = self.lock();
        let before = watched.status.clone();
        change(&mut watched);
        if watched.status != before
            && let Some(bell) = self.bell.get()
        {
            eventfd::ring_own(bell.as_fd());
        }
    }

    /// Records that a peer is connected.
    pub(crate) fn connected(&self) {
        self.change(|WatchedPeer { status, cause }| {
            status.is_connected = true;
            status.connections += 1;
            status.last_error = None;
            *cause = None;
        });
    }

    /// Records the agreed settings, and the number of queues in use: the first `active_queues` of the port.
    pub(crate) fn agreed(&self, agreed: String, active_queues: u16) {
        self.change(|WatchedPeer { status, .. }| {
            (status.agreed, status.active_queues) = (agreed, active_queues)
        });
    }

    /// Records the address of the connected peer's card, if this port knows it.
    pub(crate) fn has_address(&self, address: Option<Mac>) {
        self.change(|WatchedPeer { status, .. }| status.address = address);
    }

    /// Records that a part of the connection is stopped.
    pub(crate) fn has_fault(&self, fault: String) {
        self.change(|WatchedPeer { status, .. }| status.last_error = Some(fault));
    }

    /// Records that the connection has ended or could not be set up. `error` is the reason, unless the end was regular.
    pub(crate) fn disconnected(&self, error: Option<String>) {
        self.change(|WatchedPeer { status, cause }| {
            status.is_connected = false;
            status.agreed.clear();
            status.active_queues = 0;
            status.address = None;
            if error.is_some() {
                status.last_error.clone_from(&error);
            }
            *cause = error;
        });
    }

    /// Records that the peer's socket cannot be reached. The reason why the connection before failed stays first: it
    /// may explain why the peer has ended.
    pub(crate) fn unreachable(&self, error: String) {
        self.change(|WatchedPeer { status, cause }| {
            status.last_error = Some(match cause {
                Some(cause) => format!("{cause}; since then: {error}"),
                None => error,
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_gone_does_not_hide_why_its_connection_failed() {
        let watch = PeerWatch::default();
        let told = || watch.status().last_error.unwrap_or_default();
        watch.unreachable("no such file".to_owned());
        assert_eq!(told(), "no such file");
        watch.disconnected(Some("the peer disconnected: wrong secret".to_owned()));
        for error in ["connection reset", "connection refused"] {
            watch.unreachable(error.to_owned());
            assert_eq!(told(), format!("the peer disconnected: wrong secret; since then: {error}"));
        }
        watch.connected();
        watch.disconnected(None);
        assert_eq!(watch.status().last_error, None);
        watch.unreachable("connection refused".to_owned());
        assert_eq!(told(), "connection refused");
    }
}
