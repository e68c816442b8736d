//! What a sync did, of one ring or of several.

use std::ops::{BitOr, BitOrAssign};

/// What a sync did: any of the constants. That of several rings is all of theirs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SyncOutcome(u32);

impl SyncOutcome {
    /// Slots went to the other side.
    pub(crate) const GIVEN: Self = Self(1);
    /// Slots came from there.
    pub(crate) const GAINED: Self = Self(1 << 1);
    /// The program has slots: its `cur` is not the tail.
    pub(crate) const READY: Self = Self(1 << 2);
    /// The other side sleeps.
    pub(crate) const KICK: Self = Self(1 << 3);
    /// Nothing is done: another process does it.
    pub(crate) const SKIPPED: Self = Self(1 << 4);
    /// Nothing is done: other monitors have to be filled than are known.
    pub(crate) const MONITORS_CHANGED: Self = Self(1 << 5);
    /// The program's indexes were outside its slots; they were put right.
    pub(crate) const BAD_INDEXES: Self = Self(1 << 6);
    /// The ring has stopped: its device is gone, or a rule was broken.
    pub(crate) const STOPPED: Self = Self(1 << 7);

    /// Slots changed sides.
    pub(crate) const MOVED: Self = Self(Self::GIVEN.0 | Self::GAINED.0);
    /// The ring fails its program.
    pub(crate) const FAILED: Self = Self(Self::BAD_INDEXES.0 | Self::STOPPED.0);
    /// The ring was not synced.
    pub(crate) const UNSYNCED: Self = Self(Self::SKIPPED.0 | Self::MONITORS_CHANGED.0 | Self::FAILED.0);

    /// This, if so.
    #[inline]
    pub(crate) fn when(self, is_so: bool) -> Self {
        if is_so { self } else { Self::default() }
    }

    /// Whether one of these is among it.
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
