//! Reports for controllers: entries, groups, meters, and their counters.

use std::collections::HashMap;
use std::sync::Arc;

use ringroad_openflow::action::Action;
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    AggregateStats, BandStats, BucketStats, FlowStats, FlowStatsRequest, GroupDesc, GroupStats, MeterConfig,
    MeterStats, TableStats,
};
use ringroad_openflow::{group_id, meter_id, table_id};

use super::{FlowState, actions, duration, is_about, is_chosen};
use crate::flow::FlowEntry;
use crate::group::GroupEntry;
use crate::meter::MeterEntry;
use crate::tables::TABLES;

/// Number of entries that are read and sorted together.
const PIECE_FLOWS: usize = 4096;
const MAX_SCANNED: usize = 64 * 1024;
/// Number of actions after which a piece ends, because long lists of actions would take too much memory. One entry may
/// have more.
const MOST_ACTIONS: usize = 4096;

/// A list of entries that is made piece by piece, while entries come and go.
#[derive(Debug)]
pub struct FlowList {
    request: FlowStatsRequest,
    /// Number at which the next piece begins.
    next: usize,
    /// Numbers of the entries left in the current piece.
    piece: std::vec::IntoIter<u32>,
    is_over: bool,
}

impl FlowList {
    /// Whether all entries have been listed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

fn check_table(request: &FlowStatsRequest) -> Result<(), ErrorCode> {
    match usize::from(request.table) >= TABLES && request.table != table_id::ALL {
        true => Err(ErrorCode::REQUEST_BAD_TABLE_ID),
        false => Ok(()),
    }
}

impl FlowState {
    /// Begins a list of entries and their counters, which [`FlowState::next_flows`] goes through.
    ///
    /// # Errors
    /// There is no such table.
    pub fn list_flows(&self, request: FlowStatsRequest) -> Result<FlowList, ErrorCode> {
        check_table(&request)?;
        Ok(FlowList { request, next: 0, piece: Vec::new().into_iter(), is_over: false })
    }

    /// Returns at most `most` of the next entries of a list, perhaps none even if the list is not over. An entry that
    /// stays is in the list once, independent of changes meanwhile. Each 4096 are in the order of tables, and the
    /// highest priority first.
    pub fn next_flows(&self, list: &mut FlowList, most: usize, now_ns: u64) -> Vec<FlowStats> {
        if list.piece.len() == 0 {
            self.fill_piece(list);
        }
        let request = &list.request;
        // An entry may be deleted since, and its number reused.
        let flows = list.piece.by_ref().filter_map(|number| self.numbered.get(number as usize)?.as_ref());
        let mut flows = flows.filter(|(table, flow)| is_about(request, *table) && is_chosen(request, flow));
        let (mut stats, mut room) = (Vec::new(), MOST_ACTIONS);
        while stats.len() < most
            && room > 0
            && let Some((table, flow)) = flows.next()
        {
            room = room.saturating_sub(actions(&flow.instructions).count());
            let (duration_s, duration_ns) = duration(flow.added_ns, now_ns);
            let count = self.bank.read(flow.counter);
            stats.push(FlowStats {
                table: *table,
                duration_s,
                duration_ns,
                priority: flow.priority,
                idle_timeout_s: flow.idle_timeout_s,
                hard_timeout_s: flow.hard_timeout_s,
                flags: flow.flags,
                cookie: flow.cookie,
                packets: count.packets,
                bytes: count.bytes,
                matching: flow.matching.to_match(),
                instructions: Instructions::clone(&flow.instructions),
            });
        }
        list.is_over = list.piece.len() == 0 && list.next >= self.numbered.len();
        stats
    }

    fn fill_piece(&self, list: &mut FlowList) {
        let request = &list.request;
        let mut piece: Vec<&(u8, Arc<FlowEntry>)> = Vec::new();
        let rest = self.numbered.get(list.next..).unwrap_or_default();
        for entry in rest.iter().take(MAX_SCANNED) {
            if piece.len() == PIECE_FLOWS {
                break;
            }
            list.next += 1;
            piece.extend(
                entry.iter().filter(|(table, flow)| is_about(request, *table) && is_chosen(request, flow)),
            );
        }
        piece.sort_by(|(table, flow), (other_table, other)| {
            let order = (table, other.priority).cmp(&(other_table, flow.priority));
            order.then_with(|| flow.matching.fields().cmp(other.matching.fields()))
        });
        list.piece = piece.into_iter().map(|(_, flow)| flow.counter.0).collect::<Vec<_>>().into_iter();
    }

    /// Sums up the counters of entries.
    ///
    /// # Errors
    /// There is no such table.
    pub fn aggregate(&self, request: &FlowStatsRequest) -> Result<AggregateStats, ErrorCode> {
        check_table(request)?;
        let mut sum = AggregateStats { packets: 0, bytes: 0, flows: 0 };
        let flows = self.numbered.iter().flatten();
        for (_, flow) in flows.filter(|(table, flow)| is_about(request, *table) && is_chosen(request, flow)) {
            let count = self.bank.read(flow.counter);
            sum.packets += count.packets;
            sum.bytes += count.bytes;
            sum.flows += 1;
        }
        Ok(sum)
    }

    /// Counters of the tables.
    #[must_use]
    pub fn table_stats(&self) -> Vec<TableStats> {
        let tables = (0..).zip(&self.tables.tables).zip(self.tables.lookups.iter());
        let stats = tables.map(|((table, entries), (lookups, matched))| TableStats {
            table,
            active: entries.len() as u32,
            lookups: self.bank.read(*lookups).packets,
            matched: self.bank.read(*matched).packets,
        });
        stats.collect()
    }

    /// Groups with this number, or all groups, ordered by number.
    fn groups(&self, number: u32) -> Vec<(u32, &GroupEntry)> {
        let groups = self.tables.groups.iter().map(|(&number, group)| (number, &**group));
        let mut groups: Vec<_> =
            groups.filter(|&(one, _)| number == group_id::ALL || one == number).collect();
        groups.sort_by_key(|&(number, _)| number);
        groups
    }

    /// Counters of one group, or of all groups.
    #[must_use]
    pub fn group_stats(&self, number: u32, now_ns: u64) -> Vec<GroupStats> {
        let references = self.references_of_groups();
        let stats = self.groups(number).into_iter().map(|(number, group)| {
            let (duration_s, duration_ns) = duration(group.added_ns, now_ns);
            let count = self.bank.read(group.counter);
            let buckets = group.bucket_counters.iter().map(|&counter| {
                let count = self.bank.read(counter);
                BucketStats { packets: count.packets, bytes: count.bytes }
            });
            GroupStats {
                group: number,
                references: references.get(&number).copied().unwrap_or(0),
                packets: count.packets,
                bytes: count.bytes,
                duration_s,
                duration_ns,
                buckets: buckets.collect(),
            }
        });
        stats.collect()
    }

    /// Number of actions of entries and buckets that lead to each group. One pass over all of them serves all groups.
    fn references_of_groups(&self) -> HashMap<u32, u32> {
        let of_flows = self.flows_of(table_id::ALL).flat_map(|(_, flow)| actions(&flow.instructions));
        let of_groups =
            self.tables.groups.values().flat_map(|group| &group.buckets).flat_map(|bucket| &bucket.actions);
        let mut references = HashMap::new();
        for action in of_flows.chain(of_groups) {
            if let Action::Group(group) = action {
                *references.entry(*group).or_default() += 1;
            }
        }
        references
    }

    /// Descriptions of all groups, as they were requested.
    #[must_use]
    pub fn group_descriptions(&self) -> Vec<GroupDesc> {
        let groups = self.groups(group_id::ALL).into_iter();
        groups
            .map(|(number, group)| GroupDesc {
                kind: group.kind,
                group: number,
                buckets: group.buckets.clone(),
            })
            .collect()
    }

    /// Meters with this number, or all meters, ordered by number.
    ///
    /// # Errors
    /// There is no such meter.
    fn meters(&self, number: u32) -> Result<Vec<&MeterEntry>, ErrorCode> {
        let meters = self.tables.meters.values().map(|meter| &**meter);
        let mut meters: Vec<_> =
            meters.filter(|meter| number == meter_id::ALL || meter.config.meter == number).collect();
        if meters.is_empty() && number != meter_id::ALL {
            return Err(ErrorCode::METER_UNKNOWN);
        }
        meters.sort_by_key(|meter| meter.config.meter);
        Ok(meters)
    }

    /// Counters of one meter, or of all meters.
    ///
    /// # Errors
    /// There is no such meter.
    pub fn meter_stats(&self, number: u32, now_ns: u64) -> Result<Vec<MeterStats>, ErrorCode> {
        let mut flows = HashMap::<u32, u32>::new();
        for meter in self.flows_of(table_id::ALL).filter_map(|(_, flow)| flow.instructions.meter) {
            *flows.entry(meter).or_default() += 1;
        }
        let stats = self.meters(number)?.into_iter().map(|meter| {
            let (duration_s, duration_ns) = duration(meter.added_ns, now_ns);
            let count = self.bank.read(meter.counter);
            let bands = meter.bands.iter().map(|band| {
                let count = self.bank.read(band.counter);
                BandStats { packets: count.packets, bytes: count.bytes }
            });
            MeterStats {
                meter: meter.config.meter,
                flows: flows.get(&meter.config.meter).copied().unwrap_or(0),
                packets: count.packets,
                bytes: count.bytes,
                duration_s,
                duration_ns,
                bands: bands.collect(),
            }
        });
        Ok(stats.collect())
    }

    /// Configurations of one meter, or of all meters.
    ///
    /// # Errors
    /// There is no such meter.
    pub fn meter_configs(&self, number: u32) -> Result<Vec<MeterConfig>, ErrorCode> {
        Ok(self.meters(number)?.into_iter().map(|meter| meter.config.clone()).collect())
    }
}
