//! Flow entries: their changes, counters and end.

use crate::action::PortNo;
use crate::error::ErrorCode;
use crate::group_id;
use crate::instruction::Instructions;
use crate::oxm::Match;
use crate::wire::{Reader, Wire, pad, sized, wire_enum, wire_flags, wire_struct};

wire_enum! {
    /// What a [`FlowMod`] does.
    pub enum FlowCommand: u8 {
        /// Adds a flow entry, in place of an equal one.
        Add = 0,
        /// Changes the instructions of all that match.
        Modify = 1,
        /// Changes the one with the same match and priority.
        ModifyStrict = 2,
        /// Deletes all that match.
        Delete = 3,
        /// Deletes the one with the same match and priority.
        DeleteStrict = 4,
    } else FLOW_BAD_COMMAND;

    /// Why a flow entry is gone.
    pub enum FlowRemovedReason: u8 {
        /// Nothing matched for too long.
        IdleTimeout = 0,
        /// Its time was over.
        HardTimeout = 1,
        /// By a flow-mod.
        Delete = 2,
        /// A group that it uses was deleted.
        GroupDelete = 3,
    } else REQUEST_BAD_LEN;
}

wire_flags! {
    /// Flags of a flow entry.
    pub struct FlowFlags: u16 {
        /// Its removal is reported.
        SEND_FLOW_REM = 1,
        /// It is refused if it overlaps another.
        CHECK_OVERLAP = 2,
        /// Its counters are reset when it changes.
        RESET_COUNTS = 4,
        /// Its packets need not be counted.
        NO_PACKET_COUNTS = 8,
        /// Its bytes need not be counted.
        NO_BYTE_COUNTS = 16,
    } else FLOW_BAD_FLAGS;
}

wire_struct! {
    /// A change of flow entries.
    pub struct FlowMod {
        /// A number of the controller's.
        pub cookie: u64,
        /// For changes of what is there: the bits of the cookie that must be the same.
        pub cookie_mask: u64,
        /// The table; [`table_id::ALL`](crate::table_id::ALL) to delete from all.
        pub table: u8,
        /// What to do.
        pub command: FlowCommand,
        /// It ends after this many seconds without a packet; 0 is never.
        pub idle_timeout_s: u16,
        /// It ends after this many seconds; 0 is never.
        pub hard_timeout_s: u16,
        /// The highest that matches counts.
        pub priority: u16,
        /// A buffered packet that goes through the tables afterwards.
        pub buffer_id: Option<u32>,
        /// Deletes only what sends to this port; [`PortNo::ANY`] for all.
        pub out_port: PortNo,
        /// Deletes only what uses this group; [`group_id::ANY`](crate::group_id::ANY) for all.
        pub out_group: u32,
        /// Flags of the entry.
        pub flags: FlowFlags => 2,
        /// The packets.
        pub matching: Match,
        /// What is done with them.
        pub instructions: Instructions,
    }

    /// Requests flow entries, or their sum.
    pub struct FlowStatsRequest {
        /// The table, or [`table_id::ALL`](crate::table_id::ALL).
        pub table: u8 => 3,
        /// Only what sends to this port.
        pub out_port: PortNo,
        /// Only what uses this group.
        pub out_group: u32 => 4,
        /// Only what has this cookie, where the mask is one.
        pub cookie: u64,
        /// See `cookie`.
        pub cookie_mask: u64,
        /// Only what matches no packet beyond these.
        pub matching: Match,
    }

    /// The sum of flow entries.
    pub struct AggregateStats {
        /// Packets of all.
        pub packets: u64,
        /// Bytes of all.
        pub bytes: u64,
        /// How many.
        pub flows: u32 => 4,
    }

    /// A flow entry is gone.
    pub struct FlowRemoved {
        /// Its cookie.
        pub cookie: u64,
        /// Its priority.
        pub priority: u16,
        /// Why.
        pub reason: FlowRemovedReason,
        /// Its table.
        pub table: u8,
        /// How long it was there, in whole seconds.
        pub duration_s: u32,
        /// And nanoseconds beyond.
        pub duration_ns: u32,
        /// As it was added.
        pub idle_timeout_s: u16,
        /// As it was added.
        pub hard_timeout_s: u16,
        /// Its packets.
        pub packets: u64,
        /// Its bytes.
        pub bytes: u64,
        /// Its match.
        pub matching: Match,
    }
}

/// A flow entry and its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// Its table.
    pub table: u8,
    /// How long it is there, in whole seconds.
    pub duration_s: u32,
    /// And nanoseconds beyond.
    pub duration_ns: u32,
    /// Its priority.
    pub priority: u16,
    /// As it was added.
    pub idle_timeout_s: u16,
    /// As it was added.
    pub hard_timeout_s: u16,
    /// As it was added.
    pub flags: FlowFlags,
    /// Its cookie.
    pub cookie: u64,
    /// Its packets.
    pub packets: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its match.
    pub matching: Match,
    /// What is done with its packets.
    pub instructions: Instructions,
}

impl FlowMod {
    /// Adds an entry that stays until it is deleted, and whose removal is not reported.
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

#[cfg(test)]
crate::tests::sample::sample_struct!(FlowStats {
    table: u8,
    duration_s: u32,
    duration_ns: u32,
    priority: u16,
    idle_timeout_s: u16,
    hard_timeout_s: u16,
    flags: FlowFlags,
    cookie: u64,
    packets: u64,
    bytes: u64,
    matching: Match,
    instructions: Instructions,
});

impl Wire for FlowStats {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut entry = reader.sized(0)?;
        let table = entry.get()?;
        entry.skip(1)?;
        let (duration_s, duration_ns, priority) = (entry.get()?, entry.get()?, entry.get()?);
        let (idle_timeout_s, hard_timeout_s, flags) = (entry.get()?, entry.get()?, entry.get()?);
        entry.skip(4)?;
        Ok(Self {
            table,
            duration_s,
            duration_ns,
            priority,
            idle_timeout_s,
            hard_timeout_s,
            flags,
            cookie: entry.get()?,
            packets: entry.get()?,
            bytes: entry.get()?,
            matching: entry.get()?,
            instructions: entry.get()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        sized(out, 0, |out| {
            0u16.write(out);
            self.table.write(out);
            pad(out, 1);
            self.duration_s.write(out);
            self.duration_ns.write(out);
            self.priority.write(out);
            self.idle_timeout_s.write(out);
            self.hard_timeout_s.write(out);
            self.flags.write(out);
            pad(out, 4);
            self.cookie.write(out);
            self.packets.write(out);
            self.bytes.write(out);
            self.matching.write(out);
            self.instructions.write(out);
        });
    }
}
