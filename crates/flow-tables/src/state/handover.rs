//! Handover of the tables to another process: entries, groups and meters first, while they are still in use, and the
//! counts at the end.
//!
//! An image is a list of records. Each has the time at which an entry was added, the time at which it was last used,
//! and the OpenFlow message that would make it. Times are of the agent's clock, which continues in the other process.

use std::sync::Arc;

use ringroad_openflow::message::{
    ControllerMessage, FlowMod, GroupCommand, GroupMod, MeterCommand, MeterConfig, MeterMod, first_message,
};
use ringroad_openflow::table_id;

use super::{FlowState, Timed};
use crate::counters::{Count, CounterId};
use crate::group::GroupEntry;
use crate::memory_budget;
use crate::meter::MeterEntry;
use crate::packed_match::PackedMatch;
use crate::tables::{Change, TABLES};

/// Bytes of the two times before each message.
const TIMES_BYTES: usize = 16;
/// Bytes of a count: packets and bytes.
const COUNT_BYTES: usize = 16;

/// Tables at one moment. An image is valid while the tables do not change.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// Records, one after the other.
    pub bytes: Vec<u8>,
    /// Counters of the records, in their order. Those of tables come first, and that of the virtual meters last.
    counters: Vec<CounterId>,
}

/// Error: an image cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the image of flow tables is not whole")]
pub struct ImageError;

impl FlowState {
    /// Makes an image of all meters, groups and entries.
    #[must_use]
    pub fn image(&self) -> Image {
        let mut image = Image { bytes: Vec::new(), counters: self.counters_of_tables() };
        let mut record = |times: [u64; 2], request: &ControllerMessage| {
            let begin = image.bytes.len();
            times.iter().for_each(|time| image.bytes.extend(time.to_le_bytes()));
            // The request came in a message, so it fits into one.
            let is_whole = request.encode(0, &mut image.bytes).is_ok();
            if !is_whole {
                image.bytes.truncate(begin);
            }
            is_whole
        };
        let mut counters = Vec::new();
        for meter in self.tables.meters.values() {
            let MeterConfig { flags, meter: number, ref bands } = meter.config;
            let request = MeterMod { command: MeterCommand::Add, flags, meter: number, bands: bands.clone() };
            if record([meter.added_ns, 0], &ControllerMessage::MeterMod(request)) {
                counters.push(meter.counter);
                counters.extend(meter.bands.iter().map(|band| band.counter));
            }
        }
        for (&number, group) in &self.tables.groups {
            let buckets = group.buckets.clone();
            let request = GroupMod { command: GroupCommand::Add, kind: group.kind, group: number, buckets };
            if record([group.added_ns, 0], &ControllerMessage::GroupMod(request)) {
                counters.push(group.counter);
                counters.extend(&group.bucket_counters);
            }
        }
        for (table, flow) in self.flows_of(table_id::ALL) {
            let (matching, instructions) = (flow.matching.to_match(), (*flow.instructions).clone());
            let request = FlowMod {
                cookie: flow.cookie,
                idle_timeout_s: flow.idle_timeout_s,
                hard_timeout_s: flow.hard_timeout_s,
                flags: flow.flags,
                ..FlowMod::add(table, flow.priority, matching, instructions)
            };
            let used_ns = self.timed.get(&flow.counter).map_or(0, |timed| timed.used_ns);
            if record([flow.added_ns, used_ns], &ControllerMessage::FlowMod(request)) {
                counters.push(flow.counter);
            }
        }
        image.counters.extend(counters);
        image.counters.extend(self.tables.metered_packet_ins);
        image
    }

    fn counters_of_tables(&self) -> Vec<CounterId> {
        self.tables.lookups.iter().flat_map(|&(lookups, matched)| [lookups, matched]).collect()
    }

    /// Counts of everything in an image, in its order.
    #[must_use]
    pub fn counts(&self, image: &Image) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(image.counters.len() * COUNT_BYTES);
        for &counter in &image.counters {
            let Count { packets, bytes: of_packets } = self.bank.read(counter);
            bytes.extend(packets.to_le_bytes());
            bytes.extend(of_packets.to_le_bytes());
        }
        bytes
    }

    /// Fills empty tables from the records of an image, which come from a process of the same user.
    ///
    /// # Errors
    /// [`ImageError`]; the tables may have a part of the image then.
    pub fn resume(&mut self, records: Vec<u8>) -> Result<Image, ImageError> {
        let mut image = Image { counters: self.counters_of_tables(), bytes: records };
        let mut rest = image.bytes.as_slice();
        while !rest.is_empty() {
            let (times, messages) = rest.split_at_checked(TIMES_BYTES).ok_or(ImageError)?;
            let time = |at: usize| {
                times.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_le_bytes)
            };
            let (added_ns, used_ns) = (time(0).ok_or(ImageError)?, time(8).ok_or(ImageError)?);
            let message = first_message(messages).ok().flatten().ok_or(ImageError)?;
            let (_, request) = ControllerMessage::decode(message).map_err(|_| ImageError)?;
            rest = messages.get(message.len()..).unwrap_or_default();
            self.resume_one(request, added_ns, used_ns, &mut image.counters)?;
        }
        // Last, because a process of an earlier version does not tell it.
        image.counters.extend(self.tables.metered_packet_ins);
        // The second publication makes both copies of the tables complete.
        self.publish();
        self.publish();
        Ok(image)
    }

    fn resume_one(
        &mut self,
        request: ControllerMessage,
        added_ns: u64,
        used_ns: u64,
        counters: &mut Vec<CounterId>,
    ) -> Result<(), ImageError> {
        let counter = self.counter();
        counters.push(counter);
        match request {
            ControllerMessage::MeterMod(MeterMod { flags, meter, bands, .. }) => {
                let of_bands: Vec<_> = bands.iter().map(|_| self.counter()).collect();
                counters.extend(&of_bands);
                let config = MeterConfig { flags, meter, bands };
                self.budget.take(memory_budget::of_meter(&config.bands));
                let resumed = MeterEntry::new(config, added_ns, counter, of_bands);
                self.change(Change::Meter(meter, Some(Arc::new(resumed))));
            }
            ControllerMessage::GroupMod(GroupMod { kind, group, buckets, .. }) => {
                let bucket_counters: Vec<_> = buckets.iter().map(|_| self.counter()).collect();
                counters.extend(&bucket_counters);
                self.budget.take(memory_budget::of_group(&buckets));
                let resumed = GroupEntry { kind, buckets, added_ns, counter, bucket_counters };
                self.change(Change::Group(group, Some(Arc::new(resumed))));
            }
            ControllerMessage::FlowMod(request) if usize::from(request.table) < TABLES => {
                // The entry is charged without a check: it fitted into the other process, and this one may have lower
                // limits.
                let matching = PackedMatch::from(&request.matching);
                let bytes = self.bytes_of_new(&request, &matching, true);
                self.budget.take(bytes);
                let flow = Arc::new(self.entry(&request, matching, added_ns, counter));
                if flow.is_timed() {
                    let table = request.table;
                    self.timed.insert(counter, Timed { table, flow: Arc::clone(&flow), packets: 0, used_ns });
                }
                self.put(request.table, flow);
            }
            _ => return Err(ImageError),
        }
        Ok(())
    }

    /// Sets the counters of everything in an image to their earlier values.
    pub fn resume_counts(&mut self, image: &Image, counts: &[u8]) {
        // No worker has counted yet, so the counters of the last one, the agent, get the whole sum.
        let agent = self.turns.len().saturating_sub(1);
        for (&counter, count) in image.counters.iter().zip(counts.chunks_exact(COUNT_BYTES)) {
            let number = |at: usize| {
                count.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_le_bytes)
            };
            self.tables.count(agent, counter, Count { packets: number(0), bytes: number(8) });
        }
        for timed in self.timed.values_mut() {
            timed.packets = self.bank.read(timed.flow.counter).packets;
        }
    }
}
