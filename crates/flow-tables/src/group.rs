//! Groups: which buckets a packet goes through.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use ringroad_openflow::action::PortNo;
use ringroad_openflow::message::{Bucket, GroupKind};
use ringroad_openflow::oxm::Field;

use crate::counters::CounterId;
use crate::packet::Packet;
use crate::tables::Tables;

/// A group. It does not change: a changed one takes its place.
#[derive(Debug)]
pub struct Group {
    /// How it chooses buckets.
    pub kind: GroupKind,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// When it was added, ns of the caller's clock.
    pub added_ns: u64,
    pub(crate) counter: CounterId,
    /// One for each bucket.
    pub(crate) bucket_counters: Vec<CounterId>,
}

/// Packets of one flow go through the same bucket of a selecting group.
const HASHER: FixedState = FixedState::with_seed(0x4772_6f75_7073);

/// What makes packets one flow. Fields that a packet does not have make no difference.
const FLOW_FIELDS: [Field; 19] = [
    Field::EthDst,
    Field::EthSrc,
    Field::EthType,
    Field::VlanVid,
    Field::IpProto,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::TcpSrc,
    Field::TcpDst,
    Field::UdpSrc,
    Field::UdpDst,
    Field::SctpSrc,
    Field::SctpDst,
    Field::ArpSpa,
    Field::ArpTpa,
    Field::MplsLabel,
    Field::PbbIsid,
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

impl Group {
    /// The buckets that a packet goes through.
    pub(crate) fn chosen(&self, packet: &Packet, tables: &Tables) -> std::ops::Range<usize> {
        match self.kind {
            GroupKind::All => 0..self.buckets.len(),
            GroupKind::Indirect => 0..self.buckets.len().min(1),
            GroupKind::FastFailover => self
                .buckets
                .iter()
                .position(|bucket| is_alive(bucket, tables))
                .map_or(0..0, |first| first..first + 1),
            GroupKind::Select => self.selected(packet, tables).map_or(0..0, |one| one..one + 1),
        }
    }

    /// A bucket by its weight among those that live.
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

/// Groups that watch groups: no more than that within each other.
const MAX_WATCHED: usize = 16;

/// Buckets that are looked at to know whether one lives: each watched group can multiply those of the groups behind it.
const MAX_LOOKED_AT: usize = 256;

/// Whether a bucket lives: with the port and the group that it watches, and always if it watches neither.
fn is_alive(bucket: &Bucket, tables: &Tables) -> bool {
    let mut looks_left = MAX_LOOKED_AT;
    lives(bucket, tables, 0, &mut looks_left)
}

fn lives(bucket: &Bucket, tables: &Tables, depth: usize, looks_left: &mut usize) -> bool {
    let port = bucket.watch_port == PortNo::ANY || tables.ports.lives(bucket.watch_port);
    let group = bucket.watch_group == ringroad_openflow::group_id::ANY
        || depth < MAX_WATCHED
            && tables.groups.get(&bucket.watch_group).is_some_and(|group| {
                group.buckets.iter().any(|bucket| {
                    let Some(left) = looks_left.checked_sub(1) else { return false };
                    *looks_left = left;
                    lives(bucket, tables, depth + 1, looks_left)
                })
            });
    port && group
}
