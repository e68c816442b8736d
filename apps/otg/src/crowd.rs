//! The open connections. Strangers, connections that have not shown the token yet, have little time and are closed
//! first, so that no number of them can lock out authorised clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Most connections at once.
pub(crate) const MAX_CONNECTIONS: usize = 128;
/// How long a stranger has until the head of a first request that passes: for TLS too.
pub(crate) const STRANGER_TIME: Duration = Duration::from_secs(10);

/// All connections, by number: the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Mutex<BTreeMap<u64, Place>>);

#[derive(Debug)]
struct Place {
    standing: Standing,
    task: Option<AbortHandle>,
}

/// State of a connection: the first state is closed first, and of two idle connections the one that is idle longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Stranger,
    Resting(Instant),
    Working,
}

impl Crowd {
    fn places(&self) -> MutexGuard<'_, BTreeMap<u64, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection. If all are taken, an idle connection is closed; `None` if no connection is idle.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Seat> {
        let mut places = self.places();
        if places.len() >= MAX_CONNECTIONS {
            let idle = places.iter().filter(|(_, place)| place.standing != Standing::Working);
            let least =
                idle.min_by_key(|(number, place)| (place.standing, **number)).map(|(number, _)| *number)?;
            if let Some(Place { task: Some(task), .. }) = places.remove(&least) {
                task.abort();
            }
        }
        let number = places.last_key_value().map_or(0, |(last, _)| last + 1);
        places.insert(number, Place { standing: Standing::Stranger, task: None });
        Some(Seat { crowd: Arc::clone(self), number })
    }

    /// Registers the handle that ends connection `number`.
    pub(crate) fn serve_by(&self, number: u64, task: AbortHandle) {
        if let Some(place) = self.places().get_mut(&number) {
            place.task = Some(task);
        }
    }
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    number: u64,
}

impl Seat {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn set(&self, standing: Standing) {
        if let Some(place) = self.crowd.places().get_mut(&self.number) {
            place.standing = standing;
        }
    }

    /// Records that a request was authorised, and is being answered until the returned guard is dropped.
    pub(crate) fn work(&self) -> Work<'_> {
        self.set(Standing::Working);
        Work(self)
    }

    /// Returns when a stranger has had `time`; never if it is authorised by then.
    pub(crate) async fn overdue(&self, time: Duration) {
        tokio::time::sleep(time).await;
        let standing = self.crowd.places().get(&self.number).map(|place| place.standing);
        if standing.is_some_and(|standing| standing != Standing::Stranger) {
            std::future::pending().await
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.crowd.places().remove(&self.number);
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Work<'a>(&'a Seat);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.set(Standing::Resting(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> (Arc<Crowd>, Vec<Seat>) {
        let crowd = Arc::new(Crowd::default());
        let seats = (0..MAX_CONNECTIONS).map(|_| crowd.admit().unwrap()).collect();
        (crowd, seats)
    }

    fn is_there(crowd: &Crowd, seat: &Seat) -> bool {
        crowd.places().contains_key(&seat.number)
    }

    #[test]
    fn strangers_are_closed_first_then_idle_and_never_busy_ones() {
        let (crowd, seats) = full();
        // One stranger in the middle; the second rests longest.
        let order = [1, 0].into_iter().chain(2..MAX_CONNECTIONS);
        order.filter(|index| *index != 5).for_each(|index| drop(seats[index].work()));
        let working = seats[0].work();

        let newcomers: Vec<Seat> = (0..3)
            .map(|_| {
                let newcomer = crowd.admit().unwrap();
                drop(newcomer.work());
                newcomer
            })
            .collect();
        assert_eq!(crowd.places().len(), MAX_CONNECTIONS);
        for gone in [5, 1, 2] {
            assert!(!is_there(&crowd, &seats[gone]), "{gone}");
        }
        assert!(is_there(&crowd, &seats[0]) && newcomers.iter().all(|newcomer| is_there(&crowd, newcomer)));
        drop(working);
        drop((newcomers, seats));
        assert!(crowd.places().is_empty());
    }

    #[test]
    fn no_connection_is_admitted_while_all_are_busy() {
        let (crowd, seats) = full();
        let mut work: Vec<Work<'_>> = seats.iter().map(Seat::work).collect();
        assert!(crowd.admit().is_none());
        work.pop();
        assert!(crowd.admit().is_some());
    }

    #[tokio::test]
    async fn only_connections_without_a_token_time_out() {
        let crowd = Arc::new(Crowd::default());
        let (stranger, known) = (crowd.admit().unwrap(), crowd.admit().unwrap());
        drop(known.work());
        stranger.overdue(Duration::ZERO).await;
        tokio::select! {
            biased;
            () = known.overdue(Duration::ZERO) => panic!("it is not a stranger"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
}
