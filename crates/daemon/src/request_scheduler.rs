//! The order in which the control thread serves users.
//!
//! Users share the thread's time. The next turn belongs to the user who has used the least time, and the user's
//! connections take turns in order. A user who sends a request after a pause has no claim to the unused time, so no
//! user can save up turns. Requests of one user keep the order of their events: a close by one program comes before a
//! later request of another.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::port_entries::ClientId;

#[derive(Debug, Default)]
struct UserTurns {
    waiting: VecDeque<ClientId>,
    /// Time of the thread that the user has used, or left to others.
    used: Duration,
}

/// Connections with work to be done, by user.
#[derive(Debug, Default)]
pub struct RequestScheduler {
    users: BTreeMap<u32, UserTurns>,
    /// Used time of the user who had the last turn: the least of all users who waited.
    least: Duration,
}

impl RequestScheduler {
    /// Queues a connection of `user` after the user's others. The connection must not wait already.
    pub fn add(&mut self, user: u32, client: ClientId) {
        let requests = self.users.entry(user).or_default();
        if requests.waiting.is_empty() {
            requests.used = requests.used.max(self.least);
        }
        requests.waiting.push_back(client);
    }

    /// Takes out the next connection.
    pub fn take_next(&mut self) -> Option<ClientId> {
        let (user, _) = self.waiting_users().min_by_key(|(_, requests)| requests.used)?;
        let requests = self.users.get_mut(&user)?;
        self.least = requests.used;
        requests.waiting.pop_front()
    }

    fn waiting_users(&self) -> impl Iterator<Item = (u32, &UserTurns)> {
        self.users
            .iter()
            .filter(|(_, requests)| !requests.waiting.is_empty())
            .map(|(&user, requests)| (user, requests))
    }

    /// Counts the time of a turn.
    pub fn charge(&mut self, user: u32, time: Duration) {
        if let Some(requests) = self.users.get_mut(&user) {
            requests.used += time;
        }
    }

    /// Forgets a user who has no connections any more.
    pub fn forget(&mut self, user: u32) {
        self.users.remove(&user);
    }

    /// Whether no user waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting_users().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_micros(100);

    /// Takes `count` turns of `time`; the connection waits again after each turn. Returns the connections in the order
    /// of their turns.
    fn rotate(
        requests: &mut RequestScheduler,
        count: usize,
        user_of: impl Fn(ClientId) -> u32,
    ) -> Vec<ClientId> {
        (0..count)
            .map(|_| {
                let client = requests.take_next().unwrap();
                requests.charge(user_of(client), TURN);
                requests.add(user_of(client), client);
                client
            })
            .collect()
    }

    #[test]
    fn a_user_with_many_connections_gets_no_more_turns_than_one_with_one() {
        let user_of = |client: ClientId| if client == 9 { 2 } else { 1 };
        let mut requests = RequestScheduler::default();
        for client in [1, 2, 3, 9] {
            requests.add(user_of(client), client);
        }
        let had = rotate(&mut requests, 60, user_of);
        assert_eq!(had.iter().filter(|&&client| client == 9).count(), 30);
        for client in [1, 2, 3] {
            assert_eq!(had.iter().filter(|&&other| other == client).count(), 10);
        }
    }

    #[test]
    fn a_user_waits_after_a_long_turn() {
        let mut requests = RequestScheduler::default();
        requests.add(1, 1);
        requests.add(2, 2);
        assert_eq!(requests.take_next(), Some(1));
        requests.charge(1, 10 * TURN);
        requests.add(1, 1);
        for _ in 0..10 {
            assert_eq!(requests.take_next(), Some(2));
            requests.charge(2, TURN);
            requests.add(2, 2);
        }
        assert_eq!(requests.take_next(), Some(1));
    }

    #[test]
    fn a_new_client_is_next_and_has_no_credit_from_its_absence() {
        let mut requests = RequestScheduler::default();
        requests.add(1, 1);
        rotate(&mut requests, 1000, |_| 1);
        requests.add(0, 5);
        assert_eq!(requests.take_next(), Some(5));
        requests.charge(0, 2 * TURN);
        requests.add(0, 5);
        // The new client has not saved up a thousand turns.
        assert_eq!(requests.take_next(), Some(1));
    }

    #[test]
    fn within_a_user_events_keep_their_order() {
        let mut requests = RequestScheduler::default();
        for client in [4, 2, 7] {
            requests.add(1, client);
        }
        let order: Vec<_> = std::iter::from_fn(|| requests.take_next()).collect();
        assert_eq!(order, [4, 2, 7]);
        assert!(requests.is_empty());
    }
}
