//! Flow entries: their changes, counters and end.

use crate::action::PortNo;
use crate::group_id;
use crate::instruction::Instructions;
use crate::oxm::Match;
use crate::wire::{wire_enum, wire_flags, wire_struct};

wire_enum! {
    /// Command of a [`FlowMod`].
    pub enum FlowCommand: u8 {
        /// Adds a flow entry, and replaces an equal one.
        Add = 0,
        /// Changes the instructions of all entries that match.
        Modify = 1,
        /// Changes the instructions of the entry with the same match and priority.
        ModifyStrict = 2,
        /// Deletes all entries that match.
        Delete = 3,
        /// Deletes the entry with the same match and priority.
        DeleteStrict = 4,
    } else FLOW_BAD_COMMAND;

    /// Reason why a flow entry is gone.
    pub enum FlowRemovedReason: u8 {
        /// No packet matched for the idle timeout.
        IdleTimeout = 0,
        /// The hard timeout has passed.
        HardTimeout = 1,
        /// A flow-mod deleted the entry.
        Delete = 2,
        /// A group of the entry was deleted.
        GroupDelete = 3,
    } else REQUEST_BAD_LEN;
}

wire_flags! {
    /// Flags of a flow entry.
    pub struct FlowFlags: u16 {
        /// The entry's removal is reported.
        SEND_FLOW_REM = 1,
        /// The entry is refused if it overlaps another.
        CHECK_OVERLAP = 2,
        /// The entry's counters are reset when it changes.
        RESET_COUNTS = 4,
        /// The entry's packets need not be counted.
        NO_PACKET_COUNTS = 8,
        /// The entry's bytes need not be counted.
        NO_BYTE_COUNTS = 16,
    } else FLOW_BAD_FLAGS;
}

wire_struct! {
    /// A change of flow entries.
    pub struct FlowMod {
        /// Number that the controller chose for the entry.
        pub cookie: u64,
        /// Mask for changes of existing entries: the cookie's bits that must be equal.
        pub cookie_mask: u64,
        /// Table; [`table_id::ALL`](crate::table_id::ALL) to delete from all tables.
        pub table: u8,
        /// Command to carry out.
        pub command: FlowCommand,
        /// Idle timeout: seconds without a packet after which the entry ends; 0 is never.
        pub idle_timeout_s: u16,
        /// Hard timeout: seconds after which the entry ends; 0 is never.
        pub hard_timeout_s: u16,
        /// Priority: of the entries that match, the highest one applies.
        pub priority: u16,
        /// A buffered packet that goes through the tables afterwards.
        pub buffer_id: Option<u32>,
        /// Condition for deletions: the entry sends to this port; [`PortNo::ANY`] for none.
        pub out_port: PortNo,
        /// Condition for deletions: the entry uses this group; [`group_id::ANY`](crate::group_id::ANY) for none.
        pub out_group: u32,
        /// Flags of the entry.
        pub flags: FlowFlags => 2,
        /// Match: the packets that the entry applies to.
        pub matching: Match,
        /// Instructions for these packets.
        pub instructions: Instructions,
    }

    /// Requests flow entries, or their sum.
    pub struct FlowStatsRequest {
        /// Table, or [`table_id::ALL`](crate::table_id::ALL).
        pub table: u8 => 3,
        /// Condition: the entry sends to this port.
        pub out_port: PortNo,
        /// Condition: the entry uses this group.
        pub out_group: u32 => 4,
        /// Condition: the entry has this cookie, in the bits of the mask.
        pub cookie: u64,
        /// See `cookie`.
        pub cookie_mask: u64,
        /// Condition: the entry matches no packet beyond these.
        pub matching: Match,
    }

    /// Sums over flow entries.
    pub struct AggregateStats {
        /// Number of packets of all entries.
        pub packets: u64,
        /// Number of bytes of all entries.
        pub bytes: u64,
        /// Number of entries.
        pub flows: u32 => 4,
    }

    /// A notification that a flow entry is gone.
    pub struct FlowRemoved {
        /// Cookie of the entry.
        pub cookie: u64,
        /// Priority of the entry.
        pub priority: u16,
        /// Reason of the removal.
        pub reason: FlowRemovedReason,
        /// Table of the entry.
        pub table: u8,
        /// Age of the entry, in whole seconds.
        pub duration_s: u32,
        /// Remainder of the age, in nanoseconds.
        pub duration_ns: u32,
        /// Idle timeout as requested, in seconds.
        pub idle_timeout_s: u16,
        /// Hard timeout as requested, in seconds.
        pub hard_timeout_s: u16,
        /// Number of packets that matched.
        pub packets: u64,
        /// Number of bytes of these packets.
        pub bytes: u64,
        /// Match of the entry.
        pub matching: Match,
    }

    /// A flow entry and its counters.
    pub struct FlowStats {
        [length]
        /// Table of the entry.
        pub table: u8 => 1,
        /// Age of the entry, in whole seconds.
        pub duration_s: u32,
        /// Remainder of the age, in nanoseconds.
        pub duration_ns: u32,
        /// Priority of the entry.
        pub priority: u16,
        /// Idle timeout as requested, in seconds.
        pub idle_timeout_s: u16,
        /// Hard timeout as requested, in seconds.
        pub hard_timeout_s: u16,
        /// Flags as requested.
        pub flags: FlowFlags => 4,
        /// Cookie of the entry.
        pub cookie: u64,
        /// Number of packets that matched.
        pub packets: u64,
        /// Number of bytes of these packets.
        pub bytes: u64,
        /// Match of the entry.
        pub matching: Match,
        /// Instructions for the packets.
        pub instructions: Instructions,
    }
}

impl FlowMod {
    /// Makes a request to add an entry that stays until it is deleted, and whose removal is not reported.
    #[must_use]
    pub fn add(table: u8, priority: u16, matching: Match, instructions: Instructions) -> Self {
        Self {
            cookie: 0,
            cookie_mask: 0,
            table,
            command: FlowCommand::Add,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            priority,
            buffer_id: None,
            out_port: PortNo::ANY,
            out_group: group_id::ANY,
            flags: FlowFlags::default(),
            matching,
            instructions,
        }
    }
}
