//! Permits of control connections, and limits on the memory that they may buffer.
//!
//! A user has a share of the connections, and some are kept for administrators. So root and the daemon's own user can
//! always connect, to find a problem and end it.

use std::collections::BTreeMap;

/// Divisor of the number of connections: this part, at least one connection, is kept for administrators.
const RESERVED_ONE_IN: usize = 16;
/// Divisor of the number of connections: one user may have this part, at least one connection, if the configuration
/// sets no number.
const USER_ONE_IN: usize = 4;
/// Divisor of the process's descriptors: control connections may take this part. Each port takes five descriptors or
/// more.
const DESCRIPTORS_ONE_IN: usize = 4;
/// Maximum memory of incomplete requests and unread replies of one user, bytes. Well-behaved programs hold none.
pub const MAX_HELD_BYTES: usize = 16 << 20;

/// Reason why a connection is refused, as text for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// All connections are in use.
    #[error("all {0} connections of the daemon are taken")]
    All(usize),
    /// The user has all connections of a user's share.
    #[error("user {user} has {connections} connections, which is all that one user may have")]
    User {
        /// User id.
        user: u32,
        /// Number of the user's connections.
        connections: usize,
    },
    /// The process has no descriptors left.
    #[error("the daemon has no descriptors left")]
    Descriptors,
}

#[derive(Debug, Default)]
struct UserLoad {
    connections: usize,
    held_bytes: usize,
}

/// Control connections in use, and their limits.
#[derive(Debug)]
pub struct Admission {
    pub connections: usize,
    per_user: usize,
    taken: usize,
    users: BTreeMap<u32, UserLoad>,
}

impl Admission {
    /// Admits `connections` connections to a process that may have `descriptors` open, and `per_user` of them for one
    /// user; 0 stands for a share of the connections.
    #[must_use]
    pub fn new(connections: usize, per_user: usize, descriptors: usize) -> Self {
        let allowed = connections.min(descriptors / DESCRIPTORS_ONE_IN).max(1);
        let per_user = if per_user == 0 { (allowed / USER_ONE_IN).max(1) } else { per_user };
        Self { connections: allowed, per_user, taken: 0, users: BTreeMap::new() }
    }

    /// Admits a connection of `user`.
    ///
    /// # Errors
    /// [`AdmissionError`].
    pub fn enter(&mut self, user: u32, administers: bool) -> Result<(), AdmissionError> {
        let reserved = if administers { 0 } else { (self.connections / RESERVED_ONE_IN).max(1) };
        if self.taken + reserved >= self.connections {
            return Err(AdmissionError::All(self.connections));
        }
        let connections = self.users.get(&user).map_or(0, |load| load.connections);
        if !administers && connections >= self.per_user {
            return Err(AdmissionError::User { user, connections });
        }
        self.users.entry(user).or_default().connections += 1;
        self.taken += 1;
        Ok(())
    }

    /// Removes a connection of `user`; returns whether it was the user's last one.
    pub fn leave(&mut self, user: u32) -> bool {
        self.taken -= 1;
        let Some(load) = self.users.get_mut(&user) else { return true };
        load.connections -= 1;
        let last = load.connections == 0;
        if last {
            self.users.remove(&user);
        }
        last
    }

    /// Counts that a connection of `user` holds `now` bytes instead of `before`; returns whether the user's total is
    /// still within the limit.
    pub fn hold(&mut self, user: u32, before: usize, now: usize) -> bool {
        let Some(load) = self.users.get_mut(&user) else { return true };
        load.held_bytes = load.held_bytes - before + now;
        now <= before || load.held_bytes <= MAX_HELD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_share_of_connections_and_administrators_always_get_one() {
        let mut admission = Admission::new(32, 0, 4096);
        for _ in 0..8 {
            assert_eq!(admission.enter(1000, false), Ok(()));
        }
        assert_eq!(admission.enter(1000, false), Err(AdmissionError::User { user: 1000, connections: 8 }));
        for user in 0..22 {
            assert_eq!(admission.enter(2000 + user, false), Ok(()));
        }
        // Two of the 32 connections are kept for administrators.
        assert_eq!(admission.enter(3000, false), Err(AdmissionError::All(32)));
        for _ in 0..2 {
            assert_eq!(admission.enter(0, true), Ok(()));
        }
        assert_eq!(admission.enter(0, true), Err(AdmissionError::All(32)));
        assert!(!admission.leave(1000));
        assert!(admission.leave(2000));
        assert_eq!(admission.enter(0, true), Ok(()));
    }

    #[test]
    fn connections_leave_descriptors_for_ports() {
        assert_eq!(Admission::new(2048, 0, 200).connections, 50);
        assert_eq!(Admission::new(2048, 0, 1 << 20).connections, 2048);
        assert_eq!(Admission::new(2048, 0, 0).connections, 1);
    }

    #[test]
    fn a_users_buffered_memory_is_bounded_over_all_connections() {
        let mut admission = Admission::new(100, 0, 4096);
        admission.enter(1000, false).unwrap();
        admission.enter(1000, false).unwrap();
        assert!(admission.hold(1000, 0, MAX_HELD_BYTES));
        assert!(!admission.hold(1000, 0, 1));
        assert!(admission.hold(1000, MAX_HELD_BYTES, 0));
        assert!(admission.hold(1000, 1, 2));
    }
}
