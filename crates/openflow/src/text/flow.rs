//! Flows.

use std::fmt;
use std::str::FromStr;

use super::actions::instructions;
use super::matching::{MatchReader, MatchText};
use super::{Pairs, TextError, Word, value};
use crate::message::{FlowCommand, FlowFlags, FlowMod, FlowStats, FlowStatsRequest};
use crate::{Instructions, Match, PortNo, group_id, table_id};

/// A flow, or the conditions that choose flows. Parts that the text does not state are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowText {
    /// Table, if stated.
    pub table: Option<u8>,
    /// Priority, if stated.
    pub priority: Option<u16>,
    /// Cookie, and the mask of its relevant bits if the text has a mask.
    pub cookie: Option<(u64, Option<u64>)>,
    /// Idle timeout in seconds; 0 is never.
    pub idle_timeout_s: u16,
    /// Hard timeout in seconds; 0 is never.
    pub hard_timeout_s: u16,
    pub flags: FlowFlags,
    /// Condition: the flow sends to this port.
    pub out_port: Option<PortNo>,
    /// Condition: the flow uses this group.
    pub out_group: Option<u32>,
    /// Packets of the flow.
    pub matching: Match,
    /// Instructions for the packets.
    pub instructions: Option<Instructions>,
}

/// Priority of a flow whose text states none.
const DEFAULT_PRIORITY: u16 = 0x8000;

const FLAGS: [(&str, FlowFlags); 5] = [
    ("send_flow_rem", FlowFlags::SEND_FLOW_REM),
    ("check_overlap", FlowFlags::CHECK_OVERLAP),
    ("reset_counts", FlowFlags::RESET_COUNTS),
    ("no_packet_counts", FlowFlags::NO_PACKET_COUNTS),
    ("no_byte_counts", FlowFlags::NO_BYTE_COUNTS),
];

impl FlowText {
    /// Makes the message that adds, changes or deletes such flows. Without a table, flows are deleted from all.
    pub fn flow_mod(&self, command: FlowCommand) -> FlowMod {
        let is_delete = matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        let (cookie, mask) = self.cookie.unwrap_or_default();
        FlowMod {
            cookie,
            cookie_mask: mask.unwrap_or(0),
            table: self.table.unwrap_or(if is_delete { table_id::ALL } else { 0 }),
            command,
            idle_timeout_s: self.idle_timeout_s,
            hard_timeout_s: self.hard_timeout_s,
            priority: self.priority.unwrap_or(DEFAULT_PRIORITY),
            buffer_id: None,
            out_port: self.out_port.unwrap_or(PortNo::ANY),
            out_group: self.out_group.unwrap_or(group_id::ANY),
            flags: self.flags,
            matching: self.matching.clone(),
            instructions: self.instructions.clone().unwrap_or_default(),
        }
    }

    /// Makes the request for the counters of such flows, in all tables if the text names none.
    pub fn stats_request(&self) -> FlowStatsRequest {
        let (cookie, mask) = self.cookie.unwrap_or_default();
        let default_mask = if self.cookie.is_some() { u64::MAX } else { 0 };
        FlowStatsRequest {
            table: self.table.unwrap_or(table_id::ALL),
            out_port: self.out_port.unwrap_or(PortNo::ANY),
            out_group: self.out_group.unwrap_or(group_id::ANY),
            cookie,
            cookie_mask: mask.unwrap_or(default_mask),
            matching: self.matching.clone(),
        }
    }
}

impl FromStr for FlowText {
    type Err = TextError;

    /// Reads a flow in the form that users write, or a line of a dump, whose counters are ignored.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut flow = Self::default();
        let mut matching = MatchReader::default();
        let mut pairs = Pairs::new(Word::new(text));
        let mut actions = None;
        loop {
            actions = actions.or(pairs.all_after(&["actions", "action"]));
            if actions.is_some() {
                break;
            }
            let Some(pair) = pairs.next() else { break };
            let pair = pair?;
            match pair.key.text {
                "table" => flow.table = Some(pair.value()?.number()?),
                "priority" => flow.priority = Some(pair.value()?.number()?),
                "cookie" => {
                    let word = pair.value()?;
                    flow.cookie = Some(match word.split_once("/") {
                        Some((cookie, Word { text: "-1", .. })) => (cookie.number()?, Some(u64::MAX)),
                        Some((cookie, mask)) => (cookie.number()?, Some(mask.number()?)),
                        None => (word.number()?, None),
                    });
                }
                "idle_timeout" | "idle" => flow.idle_timeout_s = pair.value()?.number()?,
                "hard_timeout" | "hard" => flow.hard_timeout_s = pair.value()?.number()?,
                "out_port" => flow.out_port = Some(value::port(pair.value()?)?),
                "out_group" => flow.out_group = Some(pair.value()?.number()?),
                "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {
                    pair.value()?;
                }
                key => match FLAGS.iter().find(|(name, _)| *name == key) {
                    Some((_, flag)) => {
                        pair.no_value()?;
                        flow.flags = flow.flags | *flag;
                    }
                    None => matching.push(pair),
                },
            }
        }
        flow.matching = matching.finish()?;
        flow.instructions = actions.map(|actions| instructions(actions, &flow.matching)).transpose()?;
        Ok(flow)
    }
}

/// Writes the rest of a flow's line: timeouts, flags, priority, match and actions.
fn write_entry(
    f: &mut fmt::Formatter,
    separator: &str,
    flow: (u16, u16, FlowFlags),
    priority: Option<u16>,
    matching: &Match,
    instructions: Option<&Instructions>,
) -> fmt::Result {
    let (idle, hard, flags) = flow;
    if idle != 0 {
        write!(f, "idle_timeout={idle},{separator}")?;
    }
    if hard != 0 {
        write!(f, "hard_timeout={hard},{separator}")?;
    }
    for (name, flag) in FLAGS {
        if flags.contains(flag) {
            write!(f, "{name}{}", if separator.is_empty() { "," } else { separator })?;
        }
    }
    let mut words = String::new();
    if let Some(priority) = priority {
        words.push_str(&format!("priority={priority},"));
    }
    words.push_str(&MatchText(matching).to_string());
    f.write_str(words.trim_end_matches(','))?;
    match instructions {
        Some(instructions) => {
            write!(f, "{}actions={}", if words.is_empty() { "" } else { " " }, instructions)
        }
        None => Ok(()),
    }
}

impl fmt::Display for FlowText {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.cookie {
            Some((cookie, Some(mask))) => write!(f, "cookie={cookie:#x}/{mask:#x},")?,
            Some((cookie, None)) => write!(f, "cookie={cookie:#x},")?,
            None => {}
        }
        if let Some(table) = self.table {
            write!(f, "table={table},")?;
        }
        if let Some(port) = self.out_port {
            write!(f, "out_port={port},")?;
        }
        if let Some(group) = self.out_group {
            write!(f, "out_group={group},")?;
        }
        let entry = (self.idle_timeout_s, self.hard_timeout_s, self.flags);
        write_entry(f, "", entry, self.priority, &self.matching, self.instructions.as_ref())
    }
}

/// Line of `ovs-ofctl dump-flows`, without the space before it.
impl fmt::Display for FlowStats {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // Milliseconds without zeros at the end, or without the point, as Open vSwitch prints them.
        let duration = match format!("{}.{:03}", self.duration_s, self.duration_ns / 1_000_000) {
            whole if whole.ends_with(".000") => self.duration_s.to_string(),
            parts => parts,
        };
        write!(f, "cookie={:#x}, duration={duration}s, table={}, ", self.cookie, self.table)?;
        write!(f, "n_packets={}, n_bytes={}, ", self.packets, self.bytes)?;
        let priority = (self.priority != DEFAULT_PRIORITY).then_some(self.priority);
        let entry = (self.idle_timeout_s, self.hard_timeout_s, self.flags);
        write_entry(f, " ", entry, priority, &self.matching, Some(&self.instructions))
    }
}
