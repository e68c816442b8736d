//! Ledger of a limited resource, by user: mainly of shared memory, in bytes.
//!
//! Each object that takes a part carries a [`Reservation`] for its lifetime. So the ledger's sum is the sum over all
//! live objects, and returns to zero with the last object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits of the amounts that users may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLimits {
    /// Limit of the sum over all users.
    pub total: u64,
    /// Limit of one ordinary user.
    pub user: u64,
    /// Part of `total` that ordinary users cannot take: it stays for privileged users.
    pub reserve: u64,
}

impl LedgerLimits {
    /// Limit of the sum over all ordinary users.
    #[must_use]
    pub fn of_ordinary_users(&self) -> u64 {
        self.total.saturating_sub(self.reserve)
    }
}

/// Reason why a reservation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// One user would hold too much.
    #[error("{asked} more for user {user}, who holds {held}: {limit} are allowed")]
    User {
        /// The requested amount.
        asked: u64,
        /// The user.
        user: u32,
        /// The amount that the user holds.
        held: u64,
        /// Limit of a user.
        limit: u64,
    },
    /// All users together would hold too much.
    #[error("{asked} more for all users together, who hold {held}: {limit} are allowed")]
    Total {
        /// The requested amount.
        asked: u64,
        /// The amount that all users hold together.
        held: u64,
        /// Limit of all users together, or of all ordinary users together.
        limit: u64,
    },
}

#[derive(Debug, Default)]
struct Usage {
    total: u64,
    users: BTreeMap<u32, u64>,
}

/// Amounts of one resource, by user.
#[derive(Debug)]
pub struct Ledger {
    limits: LedgerLimits,
    usage: Mutex<Usage>,
}

impl Ledger {
    /// A ledger in which no user holds an amount.
    #[must_use]
    pub fn new(limits: LedgerLimits) -> Arc<Self> {
        Arc::new(Self { limits, usage: Mutex::default() })
    }

    /// Limits of the ledger.
    #[must_use]
    pub fn limits(&self) -> LedgerLimits {
        self.limits
    }

    /// Amount that all users hold together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.usage().total
    }

    /// Amounts by user, for all users that hold some.
    #[must_use]
    pub fn by_user(&self) -> BTreeMap<u32, u64> {
        self.usage().users.clone()
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// User to whom reservations are charged.
#[derive(Debug, Clone)]
pub struct ChargedUser {
    ledger: Arc<Ledger>,
    user: u32,
    privileged: bool,
}

impl ChargedUser {
    /// A user of the ledger. A privileged user is bound only by the limit of all users together.
    #[must_use]
    pub fn new(ledger: &Arc<Ledger>, user: u32, privileged: bool) -> Self {
        Self { ledger: Arc::clone(ledger), user, privileged }
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Reserves `amount`.
    ///
    /// # Errors
    /// [`LimitError`] for the exceeded limit; nothing is reserved then.
    pub fn reserve(&self, amount: u64) -> Result<Reservation, LimitError> {
        let limits = self.ledger.limits;
        let mut usage = self.ledger.usage();
        let held = usage.users.get(&self.user).copied().unwrap_or(0);
        if !self.privileged && exceeds(held, amount, limits.user) {
            return Err(LimitError::User { asked: amount, user: self.user, held, limit: limits.user });
        }
        let limit = if self.privileged { limits.total } else { limits.of_ordinary_users() };
        if exceeds(usage.total, amount, limit) {
            return Err(LimitError::Total { asked: amount, held: usage.total, limit });
        }
        usage.total += amount;
        *usage.users.entry(self.user).or_default() += amount;
        drop(usage);
        Ok(Reservation { ledger: Arc::clone(&self.ledger), user: self.user, amount })
    }

    /// Whether three quarters of the user's limit would still be free after a reservation of `amount`.
    #[must_use]
    pub fn has_plenty(&self, amount: u64) -> bool {
        let limits = self.ledger.limits;
        let usage = self.ledger.usage();
        let held = usage.users.get(&self.user).copied().unwrap_or(0);
        let limit = if self.privileged { limits.total } else { limits.of_ordinary_users() };
        (self.privileged || !exceeds(held, amount, limits.user / 4))
            && !exceeds(usage.total, amount, limit / 4)
    }
}

fn exceeds(held: u64, more: u64, limit: u64) -> bool {
    held.checked_add(more).is_none_or(|sum| sum > limit)
}

/// Amount that a user holds until the value is dropped.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    user: u32,
    amount: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut usage = self.ledger.usage();
        usage.total -= self.amount;
        if let Some(held) = usage.users.get_mut(&self.user) {
            *held -= self.amount;
            if *held == 0 {
                usage.users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: LedgerLimits = LedgerLimits { total: 100, user: 40, reserve: 20 };

    #[test]
    fn a_user_is_held_to_the_users_limit_and_others_are_not_touched() {
        let ledger = Ledger::new(LIMITS);
        let [one, other] = [1, 2].map(|user| ChargedUser::new(&ledger, user, false));
        let held = one.reserve(40).unwrap();
        assert_eq!(one.reserve(1).unwrap_err(), LimitError::User { asked: 1, user: 1, held: 40, limit: 40 });
        assert!(other.reserve(40).is_ok());
        drop(held);
        assert!(one.reserve(40).is_ok());
    }

    #[test]
    fn the_privileged_reserve_is_there_when_others_have_used_their_part() {
        let ledger = Ledger::new(LIMITS);
        let _held = [1, 2].map(|user| ChargedUser::new(&ledger, user, false).reserve(40).unwrap());
        let third = ChargedUser::new(&ledger, 3, false);
        assert_eq!(third.reserve(1).unwrap_err(), LimitError::Total { asked: 1, held: 80, limit: 80 });
        let root = ChargedUser::new(&ledger, 0, true);
        let last = root.reserve(20).unwrap();
        assert!(matches!(root.reserve(1), Err(LimitError::Total { limit: 100, .. })));
        drop(last);
    }

    #[test]
    fn no_amount_overflows_the_ledger() {
        let ledger = Ledger::new(LedgerLimits { total: u64::MAX, user: u64::MAX, reserve: 0 });
        let charged = ChargedUser::new(&ledger, 1, false);
        let _held = charged.reserve(u64::MAX).unwrap();
        assert!(charged.reserve(1).is_err());
    }

    #[test]
    fn memory_is_plentiful_while_three_quarters_are_free() {
        let ledger = Ledger::new(LIMITS);
        let charged = ChargedUser::new(&ledger, 1, false);
        assert!(charged.has_plenty(10) && !charged.has_plenty(11));
        let _held = ChargedUser::new(&ledger, 2, false).reserve(15).unwrap();
        assert!(charged.has_plenty(5) && !charged.has_plenty(6), "others have taken of what all may have");
        assert!(ChargedUser::new(&ledger, 0, true).has_plenty(10));
    }

    proptest! {
        #[test]
        fn the_ledger_is_the_sum_of_reservations_and_returns_to_zero(
            steps in proptest::collection::vec((0u32..4, 0u64..60, any::<bool>()), 0..40),
        ) {
            let ledger = Ledger::new(LIMITS);
            let mut held: Vec<(u32, u64, Reservation)> = Vec::new();
            for (user, amount, take) in steps {
                if take {
                    let reservation = ChargedUser::new(&ledger, user, user == 0).reserve(amount);
                    held.extend(reservation.ok().map(|reservation| (user, amount, reservation)));
                } else if !held.is_empty() {
                    held.remove(amount as usize % held.len());
                }
                prop_assert_eq!(ledger.total(), held.iter().map(|(_, amount, _)| amount).sum::<u64>());
                prop_assert!(ledger.total() <= LIMITS.total);
                for user in 1..4 {
                    let of_user = held.iter().filter(|entry| entry.0 == user).map(|entry| entry.1).sum::<u64>();
                    prop_assert_eq!(ledger.by_user().get(&user).copied().unwrap_or(0), of_user);
                    prop_assert!(of_user <= LIMITS.user);
                }
            }
            drop(held);
            prop_assert_eq!(ledger.total(), 0);
            prop_assert!(ledger.by_user().is_empty());
        }
    }
}
