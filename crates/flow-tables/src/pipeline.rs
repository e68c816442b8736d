//! The way of a packet through the tables (OpenFlow 1.3.5, 5.1).

use ringroad_openflow::action::{Action, Effect, PortNo};
use ringroad_openflow::message::{MeterBand, PacketInReason, PortConfig};

use crate::counters::CounterId;
use crate::flow::FlowEntry;
use crate::lookup_cache::{LookupCache, keeps_lookups};
use crate::meter::{MeterEntry, Metered};
use crate::packet::{ActionError, Packet};
use crate::step_budget::StepBudget;
use crate::tables::{FragmentPolicy, Tables};

/// Groups within groups: no more than that. Loops are refused when a group is made; this is for what changes meanwhile.
pub(crate) const MAX_GROUPS_DEEP: usize = 16;
/// No table has this number: where a packet-in has no table, as for a packet-out.
const NO_TABLE: u8 = 0xff;

/// Why a packet went nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// No entry of a table matched.
    NoFlow,
    /// The entries that matched send it nowhere.
    ByFlow,
    /// It would have taken more steps than one packet may.
    TooManySteps,
    /// A meter's band dropped it.
    ByMeter,
    /// Its TTL was over.
    TtlInvalid,
    /// Its headers became too long.
    TooLong,
    /// It is a fragment, and these are dropped.
    Fragment,
    /// The port does not receive, or does not send, by its configuration.
    ByPort,
}

/// Where a packet leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputPort {
    /// By this port of the switch, even if it came from there.
    Port(PortNo),
    /// By all ports but the one that it came from.
    All,
    /// The same, without ports that take no part in flooding.
    Flood,
    /// Where a learning switch would send it.
    Normal,
}

/// Why a packet goes to the controllers, and what is sent with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToController {
    /// Why.
    pub reason: PacketInReason,
    /// The table of the entry that sent it.
    pub table: u8,
    /// The cookie of this entry; all ones where there is none.
    pub cookie: u64,
    /// How many of its bytes they get.
    pub max_len: u16,
}

/// What happens to a packet on its way.
pub trait PipelineSink {
    /// It leaves, as it is now, by a queue of the port if the flow sets a queue.
    fn output(&mut self, packet: &Packet, to: OutputPort, queue: Option<u32>);
    /// The controllers get it, as it is now.
    fn packet_in(&mut self, packet: &Packet, why: ToController);
    /// It goes nowhere.
    fn dropped(&mut self, why: Dropped);
    /// A table looked for an entry, and found this one.
    fn looked_up(&mut self, table: u8, found: Option<&FlowEntry>);
    /// Counts the packet here, with its present size of `bytes` bytes.
    fn count(&mut self, counter: CounterId, bytes: usize);

    // The rest is for explanations of the path; it costs other sinks nothing.

    /// A meter judges the packet of `bytes` bytes.
    #[inline]
    fn measure(&mut self, meter: &MeterEntry, bytes: usize, now_ns: u64) -> Metered {
        meter.measure(bytes, now_ns)
    }
    /// An action on headers was done, and the packet is now like this.
    #[inline]
    fn changed(&mut self, _packet: &Packet, _action: &Action) {}
    /// The action set of the packet, or of a bucket, is done next.
    #[inline]
    fn does_action_set(&mut self) {}
    /// The packet reached a group that chose this many buckets for it.
    #[inline]
    fn grouped(&mut self, _group: u32, _chosen: usize) {}
    /// A copy of the packet goes through a bucket of the group. False: the walk must end.
    #[inline]
    fn enters_bucket(&mut self, _packet: &Packet, _bucket: usize) -> bool {
        true
    }
    /// That copy is done; the packet continues as it was.
    #[inline]
    fn leaves_bucket(&mut self) {}
    /// The packet does not go to this port.
    #[inline]
    fn not_sent(&mut self, _port: PortNo, _why: OutputRefusal) {}
}

/// Why an output sends a packet nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputRefusal {
    /// It came by this port, which only `IN_PORT` means then.
    CameFromThere,
    /// The switch has no such port.
    NoSuchPort,
    /// A controller has disabled the port for frames that leave.
    Disabled,
    /// Its controllers get no packet-in messages for packets of this port.
    NoPacketIn,
}

/// One of each kind of action (OpenFlow 1.3.5, 5.10).
#[derive(Debug, Clone)]
pub(crate) struct ActionSet {
    /// Actions on headers, each at the place of its kind ([`Action::set_order`]): the order in which they are done.
    headers: [Action; Action::KINDS.len()],
    /// A bit for each place of `headers` that the set has.
    has: u32,
    /// One of each field, after the other actions on headers.
    fields: Vec<Action>,
    queue: Option<u32>,
    group: Option<u32>,
    output: Option<(PortNo, u16)>,
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
                Effect::Output { port, max_len } => self.output = Some((port, max_len)),
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

    /// What it does to headers.
    fn on_headers(&self) -> impl Iterator<Item = Action> {
        let positions = self.headers.iter().enumerate();
        let headers =
            positions.filter(|(position, _)| self.has & 1 << position != 0).map(|(_, action)| action);
        headers.chain(&self.fields).copied()
    }
}

/// Where a packet is on its way.
struct Walk<'walk, S> {
    tables: &'walk Tables,
    now_ns: u64,
    sink: &'walk mut S,
    lookup_cache: &'walk mut LookupCache,
    table: u8,
    cookie: u64,
    queue: Option<u32>,
    /// Whether the entry at work is the one for all packets that no other entry of its table matches (5.4).
    is_table_miss: bool,
    /// Whether it has left, or was dropped and counted.
    is_settled: bool,
    steps_left: &'walk mut StepBudget,
}

/// What stays allocated from packet to packet.
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
            return sink.dropped(Dropped::ByPort);
        }
        let PipelineScratch { set, lookup_cache } = scratch;
        lookup_cache.clear();
        self.follow(packet, lookup_cache, now_ns, set, sink, &mut StepBudget::new());
    }

    /// Takes a packet through the tables. The lookup cache knows the results of some lookups, and records those of
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
            walk.sink.dropped(Dropped::ByFlow);
        }
    }

    /// Whether packets may come in by a port, by its configuration.
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
            walk.sink.dropped(Dropped::ByFlow);
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
    /// Goes on, if the packet may still take these steps; else it stops. It is dropped, if it has not left yet.
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
            self.sink.dropped(Dropped::TooManySteps);
        }
    }

    /// `None` where the packet stops on its way.
    fn through_tables(&mut self, packet: &mut Packet, set: &mut ActionSet) -> Option<()> {
        if self.tables.fragments == FragmentPolicy::Drop && packet.is_fragment() {
            self.sink.dropped(Dropped::Fragment);
            return None;
        }
        loop {
            // Weighed with what the lookup searches.
            self.steps_left.search();
            let found = self.lookup_cache.find(self.tables, self.table, packet, self.steps_left);
            self.sink.looked_up(self.table, found.map(|flow| &**flow));
            self.take(|steps_left| steps_left.has_found().then_some(()))?;
            let Some(flow) = found else {
                self.sink.dropped(Dropped::NoFlow);
                return None;
            };
            self.sink.count(flow.counter, packet.bytes());
            self.cookie = flow.cookie;
            self.is_table_miss = flow.is_table_miss();
            let steps = &flow.instructions;
            if let Some(meter) = steps.meter {
                self.meter(packet, meter)?;
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

    fn meter(&mut self, packet: &mut Packet, meter: u32) -> Option<()> {
        // Deleting a meter deletes its flows.
        let meter = self.tables.meters.get(&meter)?;
        self.take(|steps_left| steps_left.measure(meter.bands.len()))?;
        self.sink.count(meter.counter, packet.bytes());
        let Metered::Exceeds(number) = self.sink.measure(meter, packet.bytes(), self.now_ns) else {
            return Some(());
        };
        if let Some(band) = meter.bands.get(number) {
            self.sink.count(band.counter, packet.bytes());
        }
        match meter.config.bands.get(number)? {
            MeterBand::Drop { .. } => {
                self.sink.dropped(Dropped::ByMeter);
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
                Effect::Output { port, max_len } => self.output(packet, port, max_len),
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
            // With a group in the set, its output is not done.
            (Some(group), _) => self.group(packet, group, depth),
            (None, Some((port, max_len))) => self.output(packet, port, max_len),
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
                self.sink.dropped(Dropped::TooLong);
                None
            }
            Err(ActionError::TtlInvalid) => {
                self.packet_in(packet, PacketInReason::InvalidTtl, u16::MAX);
                self.sink.dropped(Dropped::TtlInvalid);
                None
            }
        }
    }

    /// Each bucket has its own copy of the packet: the other buckets and later actions do not see its changes.
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
            // What stops in a bucket is counted there; the packet itself continues.
            if self.apply_set(&mut copy, &set, depth + 1).is_none() {
                self.is_settled = true;
            }
            self.queue = queue;
            self.sink.leaves_bucket();
        }
    }

    fn output(&mut self, packet: &Packet, port: PortNo, max_len: u16) {
        let target = match port {
            PortNo::CONTROLLER => {
                let reason = match self.is_table_miss {
                    true => PacketInReason::NoMatch,
                    false => PacketInReason::Action,
                };
                return self.packet_in(packet, reason, max_len);
            }
            // Only what a controller sends goes through the tables by this name.
            PortNo::TABLE if self.table == NO_TABLE => {
                self.is_settled = true;
                let mut copy = packet.clone();
                let mut lookup_cache = LookupCache::default();
                let mut walk = Walk::new(
                    self.tables,
                    self.now_ns,
                    0,
                    &mut *self.sink,
                    &mut lookup_cache,
                    &mut *self.steps_left,
                );
                if walk.through_tables(&mut copy, &mut ActionSet::default()).is_some() && !walk.is_settled {
                    walk.sink.dropped(Dropped::ByFlow);
                }
                return;
            }
            PortNo::IN_PORT => OutputPort::Port(packet.in_port),
            PortNo::ALL => OutputPort::All,
            PortNo::FLOOD => OutputPort::Flood,
            PortNo::NORMAL => OutputPort::Normal,
            // Back to where it came from only by the name for that.
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

    fn packet_in(&mut self, packet: &Packet, reason: PacketInReason, max_len: u16) {
        let config =
            self.tables.ports.get(packet.in_port).map_or(PortConfig::default(), |state| state.config);
        if config.contains(PortConfig::NO_PACKET_IN) {
            return self.sink.not_sent(PortNo::CONTROLLER, OutputRefusal::NoPacketIn);
        }
        self.is_settled = true;
        self.sink.packet_in(packet, ToController { reason, table: self.table, cookie: self.cookie, max_len });
    }
}

/// Whether frames may leave by a port, by its configuration.
pub(crate) fn may_send(config: PortConfig) -> bool {
    !config.contains(PortConfig::NO_FWD) && !config.contains(PortConfig::PORT_DOWN)
}
