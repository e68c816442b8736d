//! Groups: their changes, their buckets and counters.

use crate::action::{Action, PortNo};
use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, pad, sized, wire_enum, wire_flags, wire_struct};

wire_enum! {
    /// What a [`GroupMod`] does.
    pub enum GroupCommand: u16 {
        /// Adds a group.
        Add = 0,
        /// Changes a group.
        Modify = 1,
        /// Deletes a group, or all.
        Delete = 2,
    } else GROUP_BAD_COMMAND;

    /// How a group chooses buckets.
    pub enum GroupKind: u8 {
        /// All.
        All = 0,
        /// One by weight.
        Select = 1,
        /// The only one.
        Indirect = 2,
        /// The first that lives.
        FastFailover = 3,
    } else GROUP_BAD_TYPE;
}

wire_flags! {
    /// What groups of a switch can do.
    pub struct GroupCapabilities: u32 {
        /// Weights.
        SELECT_WEIGHT = 1,
        /// Select looks whether a bucket lives.
        SELECT_LIVENESS = 2,
        /// A group may send to a group.
        CHAINING = 4,
        /// Loops of groups are refused.
        CHAINING_CHECKS = 8,
    };
}

/// One way of a packet through a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Its share, for select.
    pub weight: u16,
    /// It lives as this port does; [`PortNo::ANY`] for none.
    pub watch_port: PortNo,
    /// It lives as this group does; [`group_id::ANY`](crate::group_id::ANY) for none.
    pub watch_group: u32,
    /// What is done with the packet, as an action set.
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
        /// What to do.
        pub command: GroupCommand,
        /// How it chooses buckets.
        pub kind: GroupKind => 1,
        /// Its number; [`group_id::ALL`](crate::group_id::ALL) to delete all.
        pub group: u32,
        /// Its buckets.
        pub buckets: Vec<Bucket>,
    }

    /// Requests counters of one group, or of all with [`group_id::ALL`](crate::group_id::ALL).
    pub struct GroupRequest {
        /// The group.
        pub group: u32 => 4,
    }

    /// The counters of a bucket.
    pub struct BucketStats {
        /// Its packets.
        pub packets: u64,
        /// Its bytes.
        pub bytes: u64,
    }

    /// What the groups of a switch can do. Lists are by [`GroupKind`].
    pub struct GroupFeatures {
        /// A bit for each kind of group.
        pub kinds: u32,
        /// What they can do.
        pub capabilities: GroupCapabilities,
        /// How many there can be.
        pub max_groups: [u32; 4],
        /// A bit for each kind of action.
        pub actions: [u32; 4],
    }
}

/// The counters of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// The group.
    pub group: u32,
    /// How many flow entries and groups use it.
    pub references: u32,
    /// Its packets.
    pub packets: u64,
    /// Its bytes.
    pub bytes: u64,
    /// How long it is there, in whole seconds.
    pub duration_s: u32,
    /// And nanoseconds beyond.
    pub duration_ns: u32,
    /// Those of its buckets.
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

/// A group as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// How it chooses buckets.
    pub kind: GroupKind,
    /// Its number.
    pub group: u32,
    /// Its buckets.
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
