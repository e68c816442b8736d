//! Tables, groups, meters and ports for the workers. There are two copies (`left_right`): workers read one while the
//! other follows the changes, so no worker ever waits, or sees half a change.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;
use left_right::Absorb;
use ringroad_openflow::action::PortNo;
use ringroad_openflow::message::PortConfig;
use ringroad_openflow::table_id;
use ringroad_port::port_index::{PortIndex, PortMask};

use crate::classifier::Classifier;
use crate::control_frame::port_index;
use crate::counters::{Block, Count, CounterId, Counters};
use crate::flow::FlowEntry;
use crate::group::{GroupEntry, live_groups};
use crate::key::Words;
use crate::meter::MeterEntry;
use crate::pipeline::may_send;

/// Number of tables: 0 to 253. The specification's last number is left free, as in other switches.
pub const TABLES: usize = table_id::MAX as usize;

/// State of a port that matters to frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablePort {
    /// Configuration by the controllers.
    pub config: PortConfig,
    /// Whether frames can leave by the port, for groups that watch it.
    pub is_live: bool,
}

/// Ports of the switch.
#[derive(Debug, Clone, Default)]
pub struct TablePorts {
    states: HashMap<PortNo, TablePort, FixedState>,
    senders: PortMask,
}

impl TablePorts {
    /// State of a port; `None` if the switch has no such port.
    #[must_use]
    pub fn get(&self, port: PortNo) -> Option<TablePort> {
        self.states.get(&port).copied()
    }

    /// Whether frames can leave by a port.
    #[must_use]
    pub fn lives(&self, port: PortNo) -> bool {
        self.get(port).is_some_and(|state| state.is_live && !state.config.contains(PortConfig::PORT_DOWN))
    }

    /// All ports, with their states.
    pub fn iter(&self) -> impl Iterator<Item = (PortNo, TablePort)> {
        self.states.iter().map(|(&port, &state)| (port, state))
    }

    /// Ports that can send frames.
    #[must_use]
    pub fn senders(&self) -> PortMask {
        self.senders
    }

    /// Whether frames may leave by a port.
    #[inline]
    pub(crate) fn may_send(&self, port: PortIndex) -> bool {
        self.senders.contains(port)
    }

    pub(crate) fn set(&mut self, port: PortNo, state: Option<TablePort>) {
        match state {
            Some(state) => drop(self.states.insert(port, state)),
            None => drop(self.states.remove(&port)),
        }
        let senders = self.states.iter().filter(|(_, state)| may_send(state.config));
        self.senders = senders.filter_map(|(&port, _)| port_index(port)).collect();
    }
}

/// Shrinks a map to about the room that it uses.
pub(crate) fn shrink<K: Hash + Eq, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}

/// Tables, groups, meters and ports at one moment.
#[derive(Debug, Clone)]
pub struct Tables {
    pub(crate) tables: Vec<Classifier>,
    pub(crate) groups: HashMap<u32, Arc<GroupEntry>, FixedState>,
    /// Number of groups that watch groups.
    watchers: usize,
    /// Live groups, known only if some groups watch others.
    pub(crate) live_groups: HashSet<u32, FixedState>,
    pub(crate) meters: HashMap<u32, Arc<MeterEntry>, FixedState>,
    pub(crate) ports: TablePorts,
    /// Whether fragments of IP packets are dropped. Else they go through the tables; those after the first have no
    /// ports.
    pub(crate) drops_fragments: bool,
    pub(crate) counters: Counters,
    /// Counters of each table: lookups, and lookups that found an entry.
    pub(crate) lookups: Arc<[(CounterId, CounterId)]>,
    /// Counter of the packets that a virtual meter has kept from the controllers.
    pub(crate) metered_packet_ins: Option<CounterId>,
    /// Words of a packet's key that some table uses.
    pub(crate) words: Words,
    /// Number of hash tables in all tables.
    pub(crate) parts: usize,
    /// Generation: different after each change that workers see.
    pub(crate) generation: u64,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            tables: vec![Classifier::default(); TABLES],
            groups: HashMap::default(),
            watchers: 0,
            live_groups: HashSet::default(),
            meters: HashMap::default(),
            ports: TablePorts::default(),
            drops_fragments: false,
            counters: Counters::default(),
            lookups: Arc::default(),
            metered_packet_ins: None,
            words: 0,
            parts: 0,
            generation: 0,
        }
    }
}

/// Usage of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableUse {
    pub table: u8,
    /// Number of flow entries.
    pub flows: usize,
    /// Number of packets that reached the table.
    pub lookups: u64,
    /// Number of packets that an entry of the table matched.
    pub matches: u64,
}

/// A change. It is atomic: workers see all of it, or nothing.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Insert(u8, Arc<FlowEntry>),
    Remove(u8, Arc<FlowEntry>),
    Group(u32, Option<Arc<GroupEntry>>),
    Meter(u32, Option<Arc<MeterEntry>>),
    Port(PortNo, Option<TablePort>),
    DropsFragments(bool),
    Counters(Arc<Block>),
    /// At most this many blocks of counters are in use from now on.
    FewerCounters(usize),
    Lookups(Arc<[(CounterId, CounterId)]>),
    MeteredPacketIns(CounterId),
    Generation(u64),
}

impl Tables {
    /// Ports of the switch.
    #[must_use]
    pub fn ports(&self) -> &TablePorts {
        &self.ports
    }

    /// Tables that have entries, or have had packets.
    #[must_use]
    pub fn used(&self) -> Vec<TableUse> {
        let tables = (0..).zip(&self.tables).zip(self.lookups.iter());
        let uses = tables.map(|((table, entries), &(lookups, matched))| TableUse {
            table,
            flows: entries.len(),
            lookups: self.counters.total(lookups).packets,
            matches: self.counters.total(matched).packets,
        });
        uses.filter(|table| table.flows > 0 || table.lookups > 0).collect()
    }

    /// Number of groups, and number of meters.
    #[must_use]
    pub fn groups_and_meters(&self) -> (usize, usize) {
        (self.groups.len(), self.meters.len())
    }

    /// Number of packets that the virtual meters have kept from the controllers.
    #[must_use]
    pub fn metered_packet_ins(&self) -> u64 {
        self.metered_packet_ins.map_or(0, |counter| self.counters.total(counter).packets)
    }

    /// Counts a packet that a worker took through a table. Only this worker's thread may call it.
    pub fn count_lookup(&self, worker: usize, table: u8, is_found: bool) {
        if let Some(&(lookups, matched)) = self.lookups.get(usize::from(table)) {
            let one = Count { packets: 1, bytes: 0 };
            self.count(worker, lookups, one);
            if is_found {
                self.count(worker, matched, one);
            }
        }
    }

    /// Counts packets. Only this worker's thread may call it.
    pub fn count(&self, worker: usize, counter: CounterId, count: Count) {
        self.counters.of(worker).add(counter, count);
    }

    /// Whether there is a meter, so that lookups need the time.
    pub(crate) fn has_meters(&self) -> bool {
        !self.meters.is_empty()
    }

    pub(crate) fn change(&mut self, change: Change) {
        match change {
            Change::Insert(table, flow) => {
                let table = self.tables.get_mut(usize::from(table));
                if table.is_some_and(|table| table.insert(flow)) {
                    self.update_words();
                }
            }
            Change::Remove(table, flow) => {
                let table = self.tables.get_mut(usize::from(table));
                if table.is_some_and(|table| table.remove(flow.priority, &flow.matching)) {
                    self.update_words();
                }
            }
            Change::Group(number, group) => self.set_group(number, group),
            Change::Meter(meter, Some(value)) => drop(self.meters.insert(meter, value)),
            Change::Meter(meter, None) => {
                self.meters.remove(&meter);
                shrink(&mut self.meters);
            }
            Change::Port(port, state) => {
                self.ports.set(port, state);
                self.update_watched();
            }
            Change::DropsFragments(drops) => self.drops_fragments = drops,
            Change::Counters(block) => self.counters.push(&block),
            Change::FewerCounters(blocks) => self.counters.truncate(blocks),
            Change::Lookups(lookups) => self.lookups = lookups,
            Change::MeteredPacketIns(counter) => self.metered_packet_ins = Some(counter),
            Change::Generation(generation) => self.generation = generation,
        }
    }

    fn set_group(&mut self, number: u32, group: Option<Arc<GroupEntry>>) {
        let watches = |group: &Option<Arc<GroupEntry>>| {
            usize::from(group.as_ref().is_some_and(|group| group.watches_groups()))
        };
        self.watchers += watches(&group);
        let before = match group {
            Some(group) => self.groups.insert(number, group),
            None => self.groups.remove(&number),
        };
        shrink(&mut self.groups);
        self.watchers -= watches(&before);
        self.update_watched();
    }

    fn update_watched(&mut self) {
        if self.watchers > 0 {
            self.live_groups =
                live_groups(self.groups.iter().map(|(&number, group)| (number, &**group)), &self.ports);
        }
    }

    fn update_words(&mut self) {
        self.words = self.tables.iter().map(Classifier::words).fold(0, |all, words| all | words);
        self.parts = self.tables.iter().map(Classifier::parts).sum();
    }
}

impl Absorb<Change> for Tables {
    fn absorb_first(&mut self, change: &mut Change, _: &Self) {
        self.change(change.clone());
    }

    fn absorb_second(&mut self, change: Change, _: &Self) {
        self.change(change);
    }

    fn sync_with(&mut self, first: &Self) {
        self.clone_from(first);
    }
}
