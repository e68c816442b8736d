//! Groups, and their choice of buckets for a packet.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use ringroad_openflow::action::PortNo;
use ringroad_openflow::group_id;
use ringroad_openflow::message::{Bucket, GroupKind};
use ringroad_openflow::oxm::OxmField;

use crate::counters::CounterId;
use crate::packet::Packet;
use crate::tables::{TablePorts, Tables};

/// A group. It never changes: a modified group replaces it.
#[derive(Debug)]
pub struct GroupEntry {
    /// Kind of the group, which says how it chooses buckets.
    pub kind: GroupKind,
    /// Buckets in the order of the request.
    pub buckets: Vec<Bucket>,
    /// Time at which the group was added, ns of the caller's clock.
    pub added_ns: u64,
    pub(crate) counter: CounterId,
    /// Counters, one for each bucket.
    pub(crate) bucket_counters: Vec<CounterId>,
}

/// Fixed seed: packets of one flow go through the same bucket of a select group.
const HASHER: FixedState = FixedState::with_seed(0x4772_6f75_7073);

/// Fields that identify a flow. Fields that a packet does not have make no difference.
const FLOW_FIELDS: [OxmField; 19] = [
    OxmField::EthDst,
    OxmField::EthSrc,
    OxmField::EthType,
    OxmField::VlanVid,
    OxmField::IpProto,
    OxmField::Ipv4Src,
    OxmField::Ipv4Dst,
    OxmField::Ipv6Src,
    OxmField::Ipv6Dst,
    OxmField::TcpSrc,
    OxmField::TcpDst,
    OxmField::UdpSrc,
    OxmField::UdpDst,
    OxmField::SctpSrc,
    OxmField::SctpDst,
    OxmField::ArpSpa,
    OxmField::ArpTpa,
    OxmField::MplsLabel,
    OxmField::PbbIsid,
];

pub(crate) fn flow_hash(packet: &Packet) -> u64 {
    let mut hasher = HASHER.build_hasher();
    for field in FLOW_FIELDS {
        if let Some(value) = packet.field(field) {
            hasher.write_u128(value);
        }
    }
    hasher.finish()
}

impl GroupEntry {
    /// Returns the buckets that a packet goes through, and the number of buckets compared to choose them.
    pub(crate) fn chosen(&self, packet: &Packet, tables: &Tables) -> (std::ops::Range<usize>, usize) {
        let all = self.buckets.len();
        let (one, compared) = match self.kind {
            GroupKind::All => return (0..all, 0),
            GroupKind::Indirect => return (0..all.min(1), 0),
            GroupKind::FastFailover => {
                let first = self.buckets.iter().position(|bucket| is_alive(bucket, tables));
                (first, first.map_or(all, |first| first + 1))
            }
            GroupKind::Select => (self.selected(packet, tables), all),
        };
        (one.map_or(0..0, |one| one..one + 1), compared)
    }

    /// Chooses a live bucket by its weight.
    fn selected(&self, packet: &Packet, tables: &Tables) -> Option<usize> {
        let weight = |bucket: &Bucket| if is_alive(bucket, tables) { u64::from(bucket.weight) } else { 0 };
        let total: u64 = self.buckets.iter().map(weight).sum();
        // The product's high half is evenly spread over the weights.
        let mut point = ((u128::from(flow_hash(packet)) * u128::from(total)) >> 64) as u64;
        self.buckets.iter().position(|bucket| match point.checked_sub(weight(bucket)) {
            Some(rest) => {
                point = rest;
                false
            }
            None => true,
        })
    }
}

/// Maximum depth of groups that watch groups. Groups beyond that depth do not live.
const MAX_WATCHED: usize = 16;

/// Whether the port that a bucket watches is live. True if the bucket watches no port.
fn has_live_port(bucket: &Bucket, ports: &TablePorts) -> bool {
    bucket.watch_port == PortNo::ANY || ports.lives(bucket.watch_port)
}

/// Whether a bucket is live: its watched port and group are. A bucket that watches neither is always live.
fn is_alive(bucket: &Bucket, tables: &Tables) -> bool {
    let has_live_group =
        bucket.watch_group == group_id::ANY || tables.live_groups.contains(&bucket.watch_group);
    has_live_group && has_live_port(bucket, &tables.ports)
}

impl GroupEntry {
    /// Whether a bucket watches a group.
    pub(crate) fn watches_groups(&self) -> bool {
        self.buckets.iter().any(|bucket| bucket.watch_group != group_id::ANY)
    }
}

/// Returns the live groups: those with a live bucket. Each bucket is checked once.
pub(crate) fn live_groups<'groups>(
    groups: impl Iterator<Item = (u32, &'groups GroupEntry)>,
    ports: &TablePorts,
) -> HashSet<u32, FixedState> {
    let (mut found, mut with) = (Vec::new(), HashMap::<u32, Vec<u32>, FixedState>::default());
    for (number, group) in groups {
        for bucket in group.buckets.iter().filter(|bucket| has_live_port(bucket, ports)) {
            match bucket.watch_group {
                group_id::ANY => found.push(number),
                watched => with.entry(watched).or_default().push(number),
            }
        }
    }
    let mut live = HashSet::default();
    for _ in 0..=MAX_WATCHED {
        found.retain(|&number| live.insert(number));
        found = found.iter().filter_map(|number| with.remove(number)).flatten().collect();
    }
    live
}
