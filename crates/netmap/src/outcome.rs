//! Result of a sync of one or several rings.

bitflags::bitflags! {
    /// Result of a sync: any set of the constants. The result of several rings is the union of theirs.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) struct SyncOutcome: u32 {
        /// Slots went to the other side.
        const GIVEN = 1;
        /// Slots came from the other side.
        const GAINED = 1 << 1;
        /// The program has slots: its `cur` is not the tail.
        const READY = 1 << 2;
        /// The other side sleeps.
        const KICK = 1 << 3;
        /// The ring was not synced: another process syncs it.
        const SKIPPED = 1 << 4;
        /// The ring was not synced: the monitors that have to be filled have changed.
        const MONITORS_CHANGED = 1 << 5;
        /// The program's indexes were outside its slots, and were repaired.
        const BAD_INDEXES = 1 << 6;
        /// The ring has stopped: its device is gone, or a rule was broken.
        const STOPPED = 1 << 7;

        /// Slots changed sides.
        const MOVED = Self::GIVEN.bits() | Self::GAINED.bits();
        /// The ring fails its program.
        const FAILED = Self::BAD_INDEXES.bits() | Self::STOPPED.bits();
        /// The ring was not synced.
        const UNSYNCED = Self::SKIPPED.bits() | Self::MONITORS_CHANGED.bits() | Self::FAILED.bits();
    }
}

impl SyncOutcome {
    /// This result if `is_so`, else an empty one.
    #[inline]
    pub(crate) fn when(self, is_so: bool) -> Self {
        if is_so { self } else { Self::empty() }
    }
}
