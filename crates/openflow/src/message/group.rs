//! Groups: their changes, their buckets and counters.

use crate::action::{Action, PortNo};
use crate::wire::{wire_enum, wire_flags, wire_struct};

wire_enum! {
    /// Command of a [`GroupMod`].
    pub enum GroupCommand: u16 {
        /// Adds a group.
        Add = 0,
        /// Changes a group.
        Modify = 1,
        /// Deletes a group, or all groups.
        Delete = 2,
    } else GROUP_BAD_COMMAND;

    /// Kind of a group: its choice of buckets.
    pub enum GroupKind: u8 {
        /// All buckets.
        All = 0,
        /// One bucket, chosen by weight.
        Select = 1,
        /// The only bucket.
        Indirect = 2,
        /// The first live bucket.
        FastFailover = 3,
    } else GROUP_BAD_TYPE;
}

wire_flags! {
    /// Capabilities of a switch's groups.
    pub struct GroupCapabilities: u32 {
        /// Buckets can have weights.
        SELECT_WEIGHT = 1,
        /// Select groups choose live buckets.
        SELECT_LIVENESS = 2,
        /// Groups may send to groups.
        CHAINING = 4,
        /// The switch refuses loops of groups.
        CHAINING_CHECKS = 8,
    };
}

wire_struct! {
    /// A bucket: one way of a packet through a group.
    #[derive(Hash)]
    pub struct Bucket {
        [length else GROUP_BAD_BUCKET]
        /// Share of the packets, for select groups.
        pub weight: u16,
        /// Port whose liveness the bucket has; [`PortNo::ANY`] for none.
        pub watch_port: PortNo,
        /// Group whose liveness the bucket has; [`group_id::ANY`](crate::group_id::ANY) for none.
        pub watch_group: u32 => 4,
        /// Actions on the packet, as an action set.
        pub actions: Vec<Action>,
    }

    /// A change of groups.
    pub struct GroupMod {
        /// Command to carry out.
        pub command: GroupCommand,
        pub kind: GroupKind => 1,
        /// Number of the group; [`group_id::ALL`](crate::group_id::ALL) to delete all.
        pub group: u32,
        pub buckets: Vec<Bucket>,
    }

    /// Requests counters of one group, or of all with [`group_id::ALL`](crate::group_id::ALL).
    pub struct GroupRequest {
        pub group: u32 => 4,
    }

    /// Counters of a bucket.
    pub struct BucketStats {
        pub packets: u64,
        pub bytes: u64,
    }

    /// Features of a switch's groups. Arrays are indexed by [`GroupKind`].
    pub struct GroupFeatures {
        /// Bit mask of the supported kinds of groups.
        pub kinds: u32,
        pub capabilities: GroupCapabilities,
        /// Maximum number of groups of each kind.
        pub max_groups: [u32; 4],
        /// Bit mask of the supported kinds of actions, for each kind of group.
        pub actions: [u32; 4],
    }

    /// Counters of a group.
    pub struct GroupStats {
        [length => 2]
        pub group: u32,
        /// Number of flow entries and groups that use the group.
        pub references: u32 => 4,
        pub packets: u64,
        pub bytes: u64,
        /// Age of the group, in whole seconds.
        pub duration_s: u32,
        /// Remainder of the age, in nanoseconds.
        pub duration_ns: u32,
        /// Counters of the buckets.
        pub buckets: Vec<BucketStats>,
    }

    /// A group as it was requested.
    pub struct GroupDesc {
        [length]
        pub kind: GroupKind => 1,
        pub group: u32,
        pub buckets: Vec<Bucket>,
    }
}
