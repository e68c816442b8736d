//! The open connections. Connections that have not shown the token yet have little time and are closed first, so that
//! no number of them can lock out authorised clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Maximum number of open connections.
pub(crate) const MAX_CONNECTIONS: usize = 128;
/// Time limit until the head of the first authorised request, including TLS.
pub(crate) const FIRST_REQUEST_TIME: Duration = Duration::from_secs(10);

/// All connections, by number: the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimit(Mutex<BTreeMap<u64, ConnectionEntry>>);

#[derive(Debug)]
struct ConnectionEntry {
    standing: ConnectionState,
    task: Option<AbortHandle>,
}

/// State of a connection. Connections in the first state are closed first; of two idle connections, the one that is
/// idle longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionState {
    Unauthenticated,
    Idle(Instant),
    Working,
}

impl ConnectionLimit {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, ConnectionEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a new connection. If the limit is reached, an idle connection is closed; `None` if no connection is idle.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut entries = self.entries();
        if entries.len() >= MAX_CONNECTIONS {
            let idle = entries.iter().filter(|(_, entry)| entry.standing != ConnectionState::Working);
            let least =
                idle.min_by_key(|(number, entry)| (entry.standing, **number)).map(|(number, _)| *number)?;
            if let Some(ConnectionEntry { task: Some(task), .. }) = entries.remove(&least) {
                task.abort();
            }
        }
        let number = entries.last_key_value().map_or(0, |(last, _)| last + 1);
        entries.insert(number, ConnectionEntry { standing: ConnectionState::Unauthenticated, task: None });
        Some(ConnectionPermit { connections: Arc::clone(self), number })
    }

    /// Registers the handle that ends connection `number`.
    pub(crate) fn serve_by(&self, number: u64, task: AbortHandle) {
        if let Some(entry) = self.entries().get_mut(&number) {
            entry.task = Some(task);
        }
    }
}

/// Permit of a connection. Dropping it makes room for another connection.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<ConnectionLimit>,
    number: u64,
}

impl ConnectionPermit {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn set(&self, standing: ConnectionState) {
        if let Some(entry) = self.connections.entries().get_mut(&self.number) {
            entry.standing = standing;
        }
    }

    /// Records that a request was authorised, and is in progress until the returned guard is dropped.
    pub(crate) fn work(&self) -> Work<'_> {
        self.set(ConnectionState::Working);
        Work(self)
    }

    /// Returns after `time` if the connection is not authorised by then; otherwise never returns.
    pub(crate) async fn overdue(&self, time: Duration) {
        tokio::time::sleep(time).await;
        let standing = self.connections.entries().get(&self.number).map(|entry| entry.standing);
        if standing.is_some_and(|standing| standing != ConnectionState::Unauthenticated) {
            std::future::pending().await
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.entries().remove(&self.number);
    }
}

/// Guard of a request in progress.
#[derive(Debug)]
pub(crate) struct Work<'a>(&'a ConnectionPermit);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.set(ConnectionState::Idle(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> (Arc<ConnectionLimit>, Vec<ConnectionPermit>) {
        let connections = Arc::new(ConnectionLimit::default());
        let permits = (0..MAX_CONNECTIONS).map(|_| connections.admit().unwrap()).collect();
        (connections, permits)
    }

    fn is_there(connections: &ConnectionLimit, permit: &ConnectionPermit) -> bool {
        connections.entries().contains_key(&permit.number)
    }

    #[test]
    fn unauthenticated_connections_are_closed_first_then_idle_and_never_busy_ones() {
        let (connections, permits) = full();
        // Connection 5 stays unauthorised; connection 1 is idle longest.
        let order = [1, 0].into_iter().chain(2..MAX_CONNECTIONS);
        order.filter(|index| *index != 5).for_each(|index| drop(permits[index].work()));
        let working = permits[0].work();

        let new_clients: Vec<ConnectionPermit> = (0..3)
            .map(|_| {
                let new_client = connections.admit().unwrap();
                drop(new_client.work());
                new_client
            })
            .collect();
        assert_eq!(connections.entries().len(), MAX_CONNECTIONS);
        for gone in [5, 1, 2] {
            assert!(!is_there(&connections, &permits[gone]), "{gone}");
        }
        assert!(
            is_there(&connections, &permits[0])
                && new_clients.iter().all(|new_client| is_there(&connections, new_client))
        );
        drop(working);
        drop((new_clients, permits));
        assert!(connections.entries().is_empty());
    }

    #[test]
    fn no_connection_is_admitted_while_all_are_busy() {
        let (connections, permits) = full();
        let mut work: Vec<Work<'_>> = permits.iter().map(ConnectionPermit::work).collect();
        assert!(connections.admit().is_none());
        work.pop();
        assert!(connections.admit().is_some());
    }

    #[tokio::test]
    async fn only_connections_without_a_token_time_out() {
        let connections = Arc::new(ConnectionLimit::default());
        let (unauthenticated, known) = (connections.admit().unwrap(), connections.admit().unwrap());
        drop(known.work());
        unauthenticated.overdue(Duration::ZERO).await;
        tokio::select! {
            biased;
            () = known.overdue(Duration::ZERO) => panic!("it is not a stranger"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
}
