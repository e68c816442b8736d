//! Groups: their changes, their buckets and counters.

use crate::action::{Action, PortNo};
use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, pad, sized, wire_enum, wire_flags, wire_struct};

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

/// A bucket: one way of a packet through a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Share of the packets, for select groups.
    pub weight: u16,
    /// Port whose liveness the bucket has; [`PortNo::ANY`] for none.
    pub watch_port: PortNo,
    /// Group whose liveness the bucket has; [`group_id::ANY`](crate::group_id::ANY) for none.
    pub watch_group: u32,
    /// Actions on the packet, as an action set.
    pub actions: Vec<Action>,
}

impl Wire for Bucket {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut within = reader.within(ErrorCode::GROUP_BAD_BUCKET);
        let mut bucket = within.sized(0)?;
        *reader = within.within(reader.bad_length());
        let (weight, watch_port, watch_group) = (bucket.get()?, bucket.get()?, bucket.get()?);
        bucket.skip(4)?;
        Ok(Self { weight, watch_port, watch_group, actions: bucket.get()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        sized(out, 0, |out| {
            0u16.write(out);
            self.weight.write(out);
            self.watch_port.write(out);
            self.watch_group.write(out);
            pad(out, 4);
            self.actions.write(out);
        });
    }
}

wire_struct! {
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
}

/// Counters of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    pub group: u32,
    /// Number of flow entries and groups that use the group.
    pub references: u32,
    pub packets: u64,
    pub bytes: u64,
    /// Age of the group, in whole seconds.
    pub duration_s: u32,
    /// Remainder of the age, in nanoseconds.
    pub duration_ns: u32,
    /// Counters of the buckets.
    pub buckets: Vec<BucketStats>,
}

impl Wire for GroupStats {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut entry = reader.sized(0)?;
        entry.skip(2)?;
        let (group, references) = (entry.get()?, entry.get()?);
        entry.skip(4)?;
        Ok(Self {
            group,
            references,
            packets: entry.get()?,
            bytes: entry.get()?,
            duration_s: entry.get()?,
            duration_ns: entry.get()?,
            buckets: entry.get()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        sized(out, 0, |out| {
            pad(out, 4);
            self.group.write(out);
            self.references.write(out);
            pad(out, 4);
            self.packets.write(out);
            self.bytes.write(out);
            self.duration_s.write(out);
            self.duration_ns.write(out);
            self.buckets.write(out);
        });
    }
}

/// A group as it was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    pub kind: GroupKind,
    pub group: u32,
    pub buckets: Vec<Bucket>,
}

impl Wire for GroupDesc {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut entry = reader.sized(0)?;
        let kind = entry.get()?;
        entry.skip(1)?;
        Ok(Self { kind, group: entry.get()?, buckets: entry.get()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        sized(out, 0, |out| {
            0u16.write(out);
            self.kind.write(out);
            pad(out, 1);
            self.group.write(out);
            self.buckets.write(out);
        });
    }
}
