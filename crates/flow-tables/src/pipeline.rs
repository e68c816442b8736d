//! Path of a packet through the tables (OpenFlow 1.3.5, 5.1).

use ringroad_openflow::action::{Action, Effect, PortNo};
use ringroad_openflow::message::{MeterBand, PacketInReason, PortConfig};
use ringroad_openflow::meter_id;
use ringroad_port::drop_cause::DropCause;

use crate::counters::CounterId;
use crate::flow::FlowEntry;
use crate::lookup_cache::{LookupCache, keeps_lookups};
use crate::meter::MeterEntry;
use crate::packet::{ActionError, Packet};
use crate::step_budget::StepBudget;
use crate::tables::Tables;

/// Maximum depth of groups within groups. Loops are refused when a group is made; this limit is for changes meanwhile.
pub(crate) const MAX_GROUPS_DEEP: usize = 16;
/// Table number of packets that are in no table, such as a packet-out.
const NO_TABLE: u8 = 0xff;

/// Destination of a packet that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputPort {
    /// A port of the switch, even if the packet came in by it.
    Port(PortNo),
    /// All ports but the one that the packet came in by.
    All,
    /// All ports but the one that the packet came in by, and without ports that take no part in flooding.
    Flood,
    /// The ports that the learning switch chooses.
    Normal,
}

/// Reason and data of a packet to the controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToController {
    /// Reason for the controllers.
    pub reason: PacketInReason,
    /// Table of the entry that sends the packet.
    pub table: u8,
    /// Cookie of the entry; all ones if there is none.
    pub cookie: u64,
}

/// Receives the events of a packet's path through the tables.
pub trait PipelineSink {
    /// Sends the packet as it is now, through a queue of the port if the flow has set one.
    fn output(&mut self, packet: &Packet, to: OutputPort, queue: Option<u32>);
    /// Sends the packet to the controllers, as it is now.
    fn packet_in(&mut self, packet: &Packet, why: ToController);
    /// Drops the packet.
    fn dropped(&mut self, cause: DropCause);
    /// Notes that a table looked for an entry, and found this one.
    fn looked_up(&mut self, table: u8, found: Option<&FlowEntry>);
    /// Counts the packet with this counter. `bytes` is its present size.
    fn count(&mut self, counter: CounterId, bytes: usize);

    // Events for explanations of the path, from here on. They cost other sinks nothing.

    /// Measures the packet of `bytes` bytes by a meter, as [`MeterEntry::measure`].
    #[inline]
    fn measure(&mut self, meter: &MeterEntry, bytes: usize, now_ns: u64) -> Option<usize> {
        meter.measure(bytes, now_ns)
    }
    /// Notes that an action on headers was done; the packet is as it is now.
    #[inline]
    fn changed(&mut self, _packet: &Packet, _action: &Action) {}
    /// Notes that the action set of the packet, or of a bucket, is done next.
    #[inline]
    fn does_action_set(&mut self) {}
    /// Notes that the packet reached a group, which chose this many buckets for it.
    #[inline]
    fn grouped(&mut self, _group: u32, _chosen: usize) {}
    /// Notes that a copy of the packet goes through a bucket of the group. Returns false to end the path.
    #[inline]
    fn enters_bucket(&mut self, _packet: &Packet, _bucket: usize) -> bool {
        true
    }
    /// Notes that the bucket's copy is done; the packet continues as it was.
    #[inline]
    fn leaves_bucket(&mut self) {}
    /// Notes that the packet does not go to this port.
    #[inline]
    fn not_sent(&mut self, _port: PortNo, _why: OutputRefusal) {}
}

/// Reason why an output sends a packet nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputRefusal {
    /// The packet came in by this port. Only `IN_PORT` sends it back.
    CameFromThere,
    /// The switch has no such port.
    NoSuchPort,
    /// A controller has disabled the port for frames that leave.
    Disabled,
    /// The controllers get no packet-in messages for packets of this port.
    NoPacketIn,
}

/// Action set: one action of each kind (OpenFlow 1.3.5, 5.10).
#[derive(Debug, Clone)]
pub(crate) struct ActionSet {
    /// Actions on headers, each at the index of its kind ([`Action::place`]), which is the order of execution.
    headers: [Action; Action::KINDS.len()],
    /// Bit set of the indexes in `headers` that are used.
    has: u32,
    /// Actions that set fields, one for each field, done after the other actions on headers.
    fields: Vec<Action>,
    queue: Option<u32>,
    group: Option<u32>,
    output: Option<PortNo>,
}

impl Default for ActionSet {
    fn default() -> Self {
        let headers = [Action::PopVlan; Action::KINDS.len()];
        Self { headers, has: 0, fields: Vec::new(), queue: None, group: None, output: None }
    }
}

impl ActionSet {
    fn write(&mut self, actions: &[Action]) {
        for &action in actions {
            match action.effect() {
                Effect::Field(field) => {
                    self.fields.retain(|other| other.effect() != Effect::Field(field));
                    self.fields.push(action);
                }
                Effect::Ttl | Effect::VlanTag { .. } | Effect::Header => {
                    let order = action.set_order();
                    if let Some(header) = self.headers.get_mut(order) {
                        *header = action;
                        self.has |= 1 << order;
                    }
                }
                Effect::Queue(queue) => self.queue = Some(queue),
                Effect::Group(group) => self.group = Some(group),
                Effect::Output(port) => self.output = Some(port),
            }
        }
    }

    fn clear(&mut self) {
        let Self { headers: _, has, fields, queue, group, output } = self;
        fields.clear();
        (*has, *queue, *group, *output) = (0, None, None, None);
    }

    fn is_empty(&self) -> bool {
        self.group.is_none() && self.output.is_none()
    }

    /// Actions of the set that change headers.
    fn on_headers(&self) -> impl Iterator<Item = Action> {
        let positions = self.headers.iter().enumerate();
        let headers =
            positions.filter(|(position, _)| self.has & 1 << position != 0).map(|(_, action)| action);
        headers.chain(&self.fields).copied()
    }
}

/// State of a packet's path through the tables.
struct Walk<'walk, S> {
    tables: &'walk Tables,
    now_ns: u64,
    sink: &'walk mut S,
    lookup_cache: &'walk mut LookupCache,
    table: u8,
    cookie: u64,
    queue: Option<u32>,
    /// Whether the current entry is for all packets that no other entry of its table matches (5.4).
    is_table_miss: bool,
    /// Whether the packet has left, or was dropped and counted.
    is_settled: bool,
    steps_left: &'walk mut StepBudget,
}

/// Memory that stays allocated from packet to packet.
#[derive(Debug, Default)]
pub struct PipelineScratch {
    pub(crate) set: ActionSet,
    pub(crate) lookup_cache: LookupCache,
}

impl Tables {
    /// Takes a packet that came in by a port through the tables.
    pub fn receive<S: PipelineSink>(
        &self,
        packet: &mut Packet,
        now_ns: u64,
        scratch: &mut PipelineScratch,
        sink: &mut S,
    ) {
        if !self.receives_by(packet.in_port) {
            return sink.dropped(DropCause::PortDisabled);
        }
        let PipelineScratch { set, lookup_cache } = scratch;
        lookup_cache.clear();
        self.follow(packet, lookup_cache, now_ns, set, sink, &mut StepBudget::new());
    }

    /// Takes a packet through the tables. The lookup cache has the results of some lookups, and records those of
    /// others.
    pub(crate) fn follow<S: PipelineSink>(
        &self,
        packet: &mut Packet,
        lookup_cache: &mut LookupCache,
        now_ns: u64,
        set: &mut ActionSet,
        sink: &mut S,
        steps_left: &mut StepBudget,
    ) {
        set.clear();
        lookup_cache.rewind();
        let mut walk = Walk::new(self, now_ns, 0, sink, lookup_cache, steps_left);
        if walk.through_tables(packet, set).is_some() && !walk.is_settled {
            walk.sink.dropped(DropCause::ByFlow);
        }
    }

    /// Whether a port's configuration lets packets come in.
    pub(crate) fn receives_by(&self, port: PortNo) -> bool {
        let config = self.ports.get(port).map_or(PortConfig::default(), |state| state.config);
        !config.contains(PortConfig::NO_RECV) && !config.contains(PortConfig::PORT_DOWN)
    }

    /// Applies a controller's actions to a packet.
    pub fn apply<S: PipelineSink>(&self, packet: &mut Packet, actions: &[Action], now_ns: u64, sink: &mut S) {
        let (mut lookup_cache, mut steps_left) = (LookupCache::default(), StepBudget::new());
        let mut walk = Walk::new(self, now_ns, NO_TABLE, sink, &mut lookup_cache, &mut steps_left);
        let done = walk.take(|steps_left| steps_left.act(actions.len()));
        let done = done.and_then(|()| walk.apply(packet, actions.iter().copied(), 0));
        if done.is_some() && !walk.is_settled {
            walk.sink.dropped(DropCause::ByFlow);
        }
    }
}

impl<'walk, S: PipelineSink> Walk<'walk, S> {
    fn new(
        tables: &'walk Tables,
        now_ns: u64,
        table: u8,
        sink: &'walk mut S,
        lookup_cache: &'walk mut LookupCache,
        steps_left: &'walk mut StepBudget,
    ) -> Self {
        Self {
            tables,
            now_ns,
            sink,
            lookup_cache,
            table,
            cookie: u64::MAX,
            queue: None,
            is_table_miss: false,
            is_settled: false,
            steps_left,
        }
    }
}

impl<S: PipelineSink> Walk<'_, S> {
    /// Counts steps. If the packet may take no more, the path ends, and the packet is dropped unless it has left.
    #[inline]
    fn take(&mut self, steps: impl FnOnce(&mut StepBudget) -> Option<()>) -> Option<()> {
        let done = steps(self.steps_left);
        if done.is_none() {
            self.stop_exhausted();
        }
        done
    }

    #[cold]
    fn stop_exhausted(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            self.sink.dropped(DropCause::TooManySteps);
        }
    }

    /// Takes the packet through the tables. Returns `None` if the packet is stopped.
    fn through_tables(&mut self, packet: &mut Packet, set: &mut ActionSet) -> Option<()> {
        if self.tables.drops_fragments && packet.is_fragment() {
            self.sink.dropped(DropCause::Fragment);
            return None;
        }
        loop {
            // The table counts as a search; the limit is checked after the lookup.
            self.steps_left.search();
            let found = self.lookup_cache.find(self.tables, self.table, packet, self.steps_left);
            self.sink.looked_up(self.table, found.map(|flow| &**flow));
            self.take(|steps_left| steps_left.has_found().then_some(()))?;
            let Some(flow) = found else {
                self.sink.dropped(DropCause::NoFlow);
                return None;
            };
            self.sink.count(flow.counter, packet.bytes());
            self.cookie = flow.cookie;
            self.is_table_miss = flow.is_table_miss();
            let steps = &flow.instructions;
            if let Some(meter) = steps.meter {
                // Deleting a meter deletes its flows, so no flow names a missing meter.
                self.meter(packet, self.tables.meters.get(&meter)?)?;
            }
            if let Some(actions) = &steps.apply {
                self.take(|steps_left| steps_left.act(actions.len()))?;
                self.apply(packet, actions.iter().copied(), 0)?;
            }
            if steps.clear {
                set.clear();
            }
            if let Some(actions) = &steps.write {
                self.take(|steps_left| steps_left.act(actions.len()))?;
                set.write(actions);
            }
            if let Some((value, mask)) = steps.metadata {
                packet.metadata = packet.metadata & !mask | value & mask;
            }
            let Some(next) = steps.goto else { break };
            self.table = next;
        }
        if !set.is_empty() {
            self.apply_set(packet, set, 0)?;
        }
        Some(())
    }

    /// Measures the packet. Returns `None` if it must go no further.
    fn meter(&mut self, packet: &mut Packet, meter: &MeterEntry) -> Option<()> {
        self.take(|steps_left| steps_left.measure(meter.bands.len()))?;
        self.sink.count(meter.counter, packet.bytes());
        let Some(number) = self.sink.measure(meter, packet.bytes(), self.now_ns) else {
            return Some(());
        };
        if let Some(band) = meter.bands.get(number) {
            self.sink.count(band.counter, packet.bytes());
        }
        match meter.config.bands.get(number)? {
            MeterBand::Drop { .. } => {
                if meter.is_virtual()
                    && let Some(counter) = self.tables.metered_packet_ins
                {
                    self.sink.count(counter, packet.bytes());
                }
                self.sink.dropped(DropCause::Metered);
                None
            }
            MeterBand::DscpRemark { levels, .. } => {
                self.lookup_cache.close();
                packet.remark(*levels);
                Some(())
            }
        }
    }

    fn apply(
        &mut self,
        packet: &mut Packet,
        actions: impl Iterator<Item = Action>,
        depth: usize,
    ) -> Option<()> {
        for action in actions {
            match action.effect() {
                Effect::Output(port) => self.output(packet, port),
                Effect::Group(group) => self.group(packet, group, depth),
                Effect::Queue(queue) => self.queue = Some(queue),
                Effect::Field(_) | Effect::Ttl | Effect::VlanTag { .. } | Effect::Header => {
                    self.on_headers(packet, &action)?;
                }
            }
        }
        Some(())
    }

    fn apply_set(&mut self, packet: &mut Packet, set: &ActionSet, depth: usize) -> Option<()> {
        self.sink.does_action_set();
        set.on_headers().try_for_each(|action| self.on_headers(packet, &action))?;
        self.queue = set.queue.or(self.queue);
        match (set.group, set.output) {
            // The set's output is ignored if it has a group.
            (Some(group), _) => self.group(packet, group, depth),
            (None, Some(port)) => self.output(packet, port),
            (None, None) => {}
        }
        Some(())
    }

    fn on_headers(&mut self, packet: &mut Packet, action: &Action) -> Option<()> {
        self.take(StepBudget::change)?;
        if !keeps_lookups(action.effect()) {
            self.lookup_cache.close();
        }
        match packet.apply(action) {
            Ok(()) => {
                self.sink.changed(packet, action);
                Some(())
            }
            Err(ActionError::TooLong) => {
                self.sink.dropped(DropCause::TooLong);
                None
            }
            Err(ActionError::TtlInvalid) => {
                self.packet_in(packet, PacketInReason::InvalidTtl);
                self.sink.dropped(DropCause::TtlExpired);
                None
            }
        }
    }

    /// Sends the packet through a group. Each bucket has its own copy, so other buckets and later actions do not see
    /// its changes.
    fn group(&mut self, packet: &Packet, number: u32, depth: usize) {
        let Some(group) = self.tables.groups.get(&number).filter(|_| depth < MAX_GROUPS_DEEP) else { return };
        self.sink.count(group.counter, packet.bytes());
        let (chosen, compared) = group.chosen(packet, self.tables);
        self.sink.grouped(number, chosen.len());
        if self.take(|steps_left| steps_left.compare(compared)).is_none() {
            return;
        }
        for chosen in chosen {
            let (Some(bucket), Some(&counter)) =
                (group.buckets.get(chosen), group.bucket_counters.get(chosen))
            else {
                continue;
            };
            if self.take(|steps_left| steps_left.act(1 + bucket.actions.len())).is_none() {
                return;
            }
            self.sink.count(counter, packet.bytes());
            if !self.sink.enters_bucket(packet, chosen) {
                return;
            }
            let mut set = ActionSet::default();
            set.write(&bucket.actions);
            let queue = self.queue;
            let mut copy = packet.clone();
            // A copy that stops in a bucket is counted there; the packet itself continues.
            if self.apply_set(&mut copy, &set, depth + 1).is_none() {
                self.is_settled = true;
            }
            self.queue = queue;
            self.sink.leaves_bucket();
        }
    }

    fn output(&mut self, packet: &Packet, port: PortNo) {
        let target = match port {
            PortNo::CONTROLLER => {
                let reason = match self.is_table_miss {
                    true => PacketInReason::NoMatch,
                    false => PacketInReason::Action,
                };
                return self.packet_in(packet, reason);
            }
            // TABLE is valid only for packets of a controller.
            PortNo::TABLE if self.table == NO_TABLE => {
                self.is_settled = true;
                let PipelineScratch { mut set, mut lookup_cache } = PipelineScratch::default();
                let (sink, steps_left) = (&mut *self.sink, &mut *self.steps_left);
                let copy = &mut packet.clone();
                return self.tables.follow(copy, &mut lookup_cache, self.now_ns, &mut set, sink, steps_left);
            }
            PortNo::IN_PORT => OutputPort::Port(packet.in_port),
            PortNo::ALL => OutputPort::All,
            PortNo::FLOOD => OutputPort::Flood,
            PortNo::NORMAL => OutputPort::Normal,
            // The input port is a destination only under the name `IN_PORT`.
            port if port == packet.in_port => return self.sink.not_sent(port, OutputRefusal::CameFromThere),
            port if !port.is_physical() => return self.sink.not_sent(port, OutputRefusal::NoSuchPort),
            port => OutputPort::Port(port),
        };
        if let OutputPort::Port(port) = target {
            match self.tables.ports.get(port) {
                Some(state) if may_send(state.config) => {}
                Some(_) => return self.sink.not_sent(port, OutputRefusal::Disabled),
                None => return self.sink.not_sent(port, OutputRefusal::NoSuchPort),
            }
        }
        self.is_settled = true;
        self.sink.output(packet, target, self.queue);
    }

    /// Gives the packet to the controllers. Such packets are few.
    #[cold]
    fn packet_in(&mut self, packet: &Packet, reason: PacketInReason) {
        let config =
            self.tables.ports.get(packet.in_port).map_or(PortConfig::default(), |state| state.config);
        if config.contains(PortConfig::NO_PACKET_IN) {
            return self.sink.not_sent(PortNo::CONTROLLER, OutputRefusal::NoPacketIn);
        }
        self.is_settled = true;
        let why = ToController { reason, table: self.table, cookie: self.cookie };
        // Only packets to the controllers leave the fast path, so both meters are for the same packets.
        let meters = meter_id::VIRTUAL.map(|meter| self.tables.meters.get(&meter));
        if meters.iter().all(Option::is_none) {
            return self.sink.packet_in(packet, why);
        }
        // A meter may change the packet that the controllers get, but not the one that goes on.
        let mut copy = packet.clone();
        if meters.into_iter().flatten().all(|meter| self.meter(&mut copy, meter).is_some()) {
            self.sink.packet_in(&copy, why);
        }
    }
}

/// Whether a port's configuration lets frames leave.
pub(crate) fn may_send(config: PortConfig) -> bool {
    !config.contains(PortConfig::NO_FWD) && !config.contains(PortConfig::PORT_DOWN)
}
