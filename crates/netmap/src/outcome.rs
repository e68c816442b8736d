//! Result of a sync of one or several rings.

use std::ops::{BitOr, BitOrAssign};

/// Result of a sync: any set of the constants. The result of several rings is the union of theirs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SyncOutcome(u32);

impl SyncOutcome {
    /// Slots went to the other side.
    pub(crate) const GIVEN: Self = Self(1);
    /// Slots came from the other side.
    pub(crate) const GAINED: Self = Self(1 << 1);
    /// The program has slots: its `cur` is not the tail.
    pub(crate) const READY: Self = Self(1 << 2);
    /// The other side sleeps.
    pub(crate) const KICK: Self = Self(1 << 3);
    /// The ring was not synced: another process syncs it.
    pub(crate) const SKIPPED: Self = Self(1 << 4);
    /// The ring was not synced: the monitors that have to be filled have changed.
    pub(crate) const MONITORS_CHANGED: Self = Self(1 << 5);
    /// The program's indexes were outside its slots, and were repaired.
    pub(crate) const BAD_INDEXES: Self = Self(1 << 6);
    /// The ring has stopped: its device is gone, or a rule was broken.
    pub(crate) const STOPPED: Self = Self(1 << 7);

    /// Slots changed sides.
    pub(crate) const MOVED: Self = Self(Self::GIVEN.0 | Self::GAINED.0);
    /// The ring fails its program.
    pub(crate) const FAILED: Self = Self(Self::BAD_INDEXES.0 | Self::STOPPED.0);
    /// The ring was not synced.
    pub(crate) const UNSYNCED: Self = Self(Self::SKIPPED.0 | Self::MONITORS_CHANGED.0 | Self::FAILED.0);

    /// This result if `is_so`, else an empty one.
    #[inline]
    pub(crate) fn when(self, is_so: bool) -> Self {
        if is_so { self } else { Self::default() }
    }

    /// Whether the result has one of these bits.
    #[inline]
    pub(crate) fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

impl BitOr for SyncOutcome {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for SyncOutcome {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}
