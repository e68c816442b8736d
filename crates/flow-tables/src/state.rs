//! The tables as controllers change and read them.

mod groups;
pub mod handover;
mod meters;
mod reports;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use left_right::{ReadHandle, WriteHandle};
use ringroad_openflow::action::{Action, PortNo};
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{FlowCommand, FlowFlags, FlowMod, FlowRemoved, FlowRemovedReason};
use ringroad_openflow::oxm::Match;
use ringroad_openflow::{group_id, table_id};

pub use self::reports::FlowList;
use crate::counters::{CounterBank, CounterId};
use crate::flow::{Flow, covers, overlap};
use crate::pipeline::MAX_STEPS;
use crate::tables::{Change, Fragments, PortState, TABLES, Tables};

const NS: u64 = 1_000_000_000;

/// How much controllers may make of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Flow entries in all tables.
    pub flows: usize,
    /// Groups.
    pub groups: usize,
    /// Buckets of a group.
    pub buckets: usize,
    /// Meters.
    pub meters: usize,
    /// Bands of a meter.
    pub bands: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 2_000_000, groups: 10_000, buckets: 1000, meters: 10_000, bands: 16 }
    }
}

/// Tracks when a worker is between a decision and its execution: until the execution ends it may count for
/// entries that are gone.
#[derive(Debug, Default)]
pub struct Turns(AtomicU64);

impl Turns {
    /// The worker decides.
    pub fn begin(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | 1, Ordering::SeqCst);
    }

    /// The worker has counted what it decided.
    pub fn end(&self) {
        let turns = self.0.load(Ordering::Relaxed);
        self.0.store((turns | 1).wrapping_add(1), Ordering::Release);
    }

    /// Whether the worker has ended the turn that it was in when this was its number.
    fn is_past(&self, then: u64) -> bool {
        then & 1 == 0 || self.0.load(Ordering::Acquire) != then
    }
}

/// What a worker needs.
#[derive(Debug, Clone)]
pub struct WorkerTables {
    /// The tables, as they are now.
    pub tables: ReadHandle<Tables>,
    /// The worker's number.
    pub worker: usize,
    /// When it decides.
    pub turns: Arc<Turns>,
}

/// Counters whose owners are gone, and in which turn each worker was then.
#[derive(Debug)]
struct Leaving {
    counters: Vec<CounterId>,
    then: Vec<u64>,
}

/// An entry that ends after a time.
#[derive(Debug)]
struct Timed {
    table: u8,
    flow: Arc<Flow>,
    /// Its packets at the last check, and when they last increased.
    packets: u64,
    used_ns: u64,
}

/// The instructions of all entries, each once.
#[derive(Debug, Default)]
struct SharedInstructions {
    known: HashSet<Arc<Instructions>>,
    /// At this number, those that no entry uses any more are removed.
    swept_at: usize,
}

impl SharedInstructions {
    fn get(&mut self, wanted: &Instructions) -> Arc<Instructions> {
        if let Some(known) = self.known.get(wanted) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.swept_at {
            self.known.retain(|one| Arc::strong_count(one) > 1);
            self.swept_at = 2 * self.known.len() + 1024;
        }
        let new = Arc::new(wanted.clone());
        self.known.insert(Arc::clone(&new));
        new
    }
}

/// The tables, groups and meters of a switch; only this changes them.
#[derive(Debug)]
pub struct FlowState {
    /// As they are with all changes.
    tables: Tables,
    /// Passes changes to the workers.
    writer: WriteHandle<Tables, Change>,
    limits: Limits,
    bank: CounterBank,
    /// Lookups of each table, and those that found an entry.
    lookups: Vec<(CounterId, CounterId)>,
    turns: Vec<Arc<Turns>>,
    timed: HashMap<CounterId, Timed>,
    /// Counters whose owners are gone, which workers do not know yet.
    unpublished: Vec<CounterId>,
    leaving: Vec<Leaving>,
    shared: SharedInstructions,
    /// The entries at the numbers of their counters, where they stay while hash tables grow: lists are made piece by
    /// piece.
    numbered: Vec<Option<(u8, Arc<Flow>)>>,
}

/// Which entries a request is about.
struct Chosen<'request> {
    table: u8,
    matching: &'request Match,
    cookie: u64,
    cookie_mask: u64,
    out_port: PortNo,
    out_group: u32,
}

impl Chosen<'_> {
    fn is_of(&self, table: u8) -> bool {
        self.table == table || self.table == table_id::ALL
    }

    fn has(&self, flow: &Flow) -> bool {
        flow.cookie & self.cookie_mask == self.cookie & self.cookie_mask
            && covers(self.matching, &flow.matching)
            && (self.out_port == PortNo::ANY
                || actions(&flow.instructions)
                    .any(|action| matches!(action, Action::Output { port, .. } if *port == self.out_port)))
            && (self.out_group == group_id::ANY || uses_group(&flow.instructions, self.out_group))
    }
}

fn actions(instructions: &Instructions) -> impl Iterator<Item = &Action> {
    instructions.apply.iter().chain(&instructions.write).flatten()
}

fn uses_group(instructions: &Instructions, group: u32) -> bool {
    actions(instructions).any(|action| matches!(action, Action::Group(used) if *used == group))
}

fn duration(since_ns: u64, now_ns: u64) -> (u32, u32) {
    let age = now_ns.saturating_sub(since_ns);
    ((age / NS) as u32, (age % NS) as u32)
}

impl FlowState {
    /// Empty tables for `workers` workers, and what each worker needs.
    #[must_use]
    pub fn new(workers: usize, limits: Limits) -> (Self, Vec<WorkerTables>) {
        let (writer, reader) = left_right::new::<Tables, Change>();
        let turns: Vec<Arc<Turns>> = (0..workers).map(|_| Arc::default()).collect();
        let needs = turns.iter().enumerate().map(|(worker, turns)| WorkerTables {
            tables: reader.clone(),
            worker,
            turns: Arc::clone(turns),
        });
        let needs = needs.collect();
        let mut state = Self {
            tables: Tables::default(),
            writer,
            limits,
            bank: CounterBank::new(workers),
            lookups: Vec::new(),
            turns,
            timed: HashMap::new(),
            unpublished: Vec::new(),
            leaving: Vec::new(),
            shared: SharedInstructions::default(),
            numbered: Vec::new(),
        };
        state.lookups = (0..TABLES).map(|_| (state.counter(), state.counter())).collect();
        let lookups = state.lookups.clone().into();
        state.change(Change::Lookups(lookups));
        state.publish();
        (state, needs)
    }

    /// The tables with all changes, also with those that workers do not see yet.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Shows the workers all changes. After that no worker uses the earlier tables.
    pub fn publish(&mut self) {
        if self.writer.has_pending_operations() {
            // What a worker knows of the tables as they were does not hold any more.
            self.change(Change::Generation(self.tables.generation + 1));
        }
        self.writer.publish();
        if !self.unpublished.is_empty() {
            let counters = std::mem::take(&mut self.unpublished);
            let then = self.turns.iter().map(|turns| turns.0.load(Ordering::SeqCst)).collect();
            self.leaving.push(Leaving { counters, then });
        }
        let Self { leaving, bank, turns, .. } = self;
        leaving.retain(|leaving| {
            let is_past = turns.iter().zip(&leaving.then).all(|(turns, &then)| turns.is_past(then));
            if is_past {
                leaving.counters.iter().for_each(|&counter| bank.give_back(counter));
            }
            !is_past
        });
    }

    fn change(&mut self, change: Change) {
        self.tables.change(change.clone());
        self.writer.append(change);
    }

    fn counter(&mut self) -> CounterId {
        let (counter, block) = self.bank.take();
        if let Some(block) = block {
            self.change(Change::Counters(block));
        }
        counter
    }

    /// Makes a port known, changes it, or takes it away.
    pub fn set_port(&mut self, port: PortNo, state: Option<PortState>) {
        if self.tables.ports.get(port) != state {
            self.change(Change::Port(port, state));
        }
    }

    /// Sets the handling of fragments.
    pub fn set_fragments(&mut self, fragments: Fragments) {
        if self.tables.fragments != fragments {
            self.change(Change::Fragments(fragments));
        }
    }

    /// What becomes of fragments.
    #[must_use]
    pub fn fragments(&self) -> Fragments {
        self.tables.fragments
    }

    /// Removes all entries, groups and meters, without notifications.
    pub fn clear(&mut self) {
        let all = Chosen {
            table: table_id::ALL,
            matching: &Match::default(),
            cookie: 0,
            cookie_mask: 0,
            out_port: PortNo::ANY,
            out_group: group_id::ANY,
        };
        for (table, flow) in self.chosen(&all) {
            self.remove(table, &flow);
        }
        for group in self.tables.groups.keys().copied().collect::<Vec<_>>() {
            self.remove_group(group);
        }
        for meter in self.tables.meters.keys().copied().collect::<Vec<_>>() {
            self.remove_meter(meter);
        }
    }

    /// Changes flow entries. Returns the deleted entries whose removal must be reported.
    ///
    /// # Errors
    /// The error for the controller; nothing has changed then.
    pub fn flow_mod(&mut self, request: &FlowMod, now_ns: u64) -> Result<Vec<FlowRemoved>, ErrorCode> {
        if request.buffer_id.is_some() {
            // This switch keeps no packets.
            return Err(ErrorCode::REQUEST_BUFFER_UNKNOWN);
        }
        let is_delete = matches!(request.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        if usize::from(request.table) >= TABLES && !(is_delete && request.table == table_id::ALL) {
            return Err(ErrorCode::FLOW_BAD_TABLE_ID);
        }
        if !is_delete {
            self.check_instructions(request)?;
        }
        match request.command {
            FlowCommand::Add => self.add(request, now_ns).map(|()| Vec::new()),
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                for (table, flow) in self.meant(request) {
                    let changed = Flow {
                        priority: flow.priority,
                        matching: flow.matching.clone(),
                        cookie: flow.cookie,
                        instructions: self.shared.get(&request.instructions),
                        idle_timeout_s: flow.idle_timeout_s,
                        hard_timeout_s: flow.hard_timeout_s,
                        flags: flow.flags,
                        added_ns: flow.added_ns,
                        counter: flow.counter,
                    };
                    if request.flags.contains(FlowFlags::RESET_COUNTS) {
                        self.bank.reset(flow.counter);
                    }
                    self.insert(table, changed, now_ns);
                }
                Ok(Vec::new())
            }
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                let meant = self.meant(request);
                Ok(self.remove_all(meant, FlowRemovedReason::Delete, now_ns))
            }
        }
    }

    fn meant(&self, request: &FlowMod) -> Vec<(u8, Arc<Flow>)> {
        let is_delete = matches!(request.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        let chosen = Chosen {
            table: request.table,
            matching: &request.matching,
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            // These choose what is deleted, and nothing else.
            out_port: if is_delete { request.out_port } else { PortNo::ANY },
            out_group: if is_delete { request.out_group } else { group_id::ANY },
        };
        match request.command {
            FlowCommand::ModifyStrict | FlowCommand::DeleteStrict => {
                let tables = self.numbered(request.table);
                let one = tables.filter_map(|(number, table)| {
                    let flow = table.get(request.priority, &request.matching)?;
                    chosen.has(flow).then(|| (number, Arc::clone(flow)))
                });
                one.collect()
            }
            _ => self.chosen(&chosen),
        }
    }

    fn numbered(&self, table: u8) -> impl Iterator<Item = (u8, &crate::classifier::Classifier)> {
        let tables = (0..).zip(&self.tables.tables);
        tables.filter(move |&(number, _)| table == table_id::ALL || number == table)
    }

    fn chosen(&self, chosen: &Chosen) -> Vec<(u8, Arc<Flow>)> {
        let in_table = |(number, table): (u8, &crate::classifier::Classifier)| {
            table
                .iter()
                .filter(|flow| chosen.has(flow))
                .map(|flow| (number, Arc::clone(flow)))
                .collect::<Vec<_>>()
        };
        self.numbered(chosen.table).flat_map(in_table).collect()
    }

    fn add(&mut self, request: &FlowMod, now_ns: u64) -> Result<(), ErrorCode> {
        let Some(table) = self.tables.tables.get(usize::from(request.table)) else {
            return Err(ErrorCode::FLOW_BAD_TABLE_ID);
        };
        let replaced = table.get(request.priority, &request.matching).cloned();
        if request.flags.contains(FlowFlags::CHECK_OVERLAP)
            && table
                .iter()
                .any(|flow| flow.priority == request.priority && overlap(&flow.matching, &request.matching))
        {
            return Err(ErrorCode::FLOW_OVERLAP);
        }
        if replaced.is_none() && self.flows() >= self.limits.flows {
            return Err(ErrorCode::FLOW_TABLE_FULL);
        }
        let counter = match &replaced {
            Some(flow) => flow.counter,
            None => self.counter(),
        };
        if request.flags.contains(FlowFlags::RESET_COUNTS) {
            self.bank.reset(counter);
        }
        let flow = Flow {
            priority: request.priority,
            matching: (&request.matching).into(),
            cookie: request.cookie,
            instructions: self.shared.get(&request.instructions),
            idle_timeout_s: request.idle_timeout_s,
            hard_timeout_s: request.hard_timeout_s,
            flags: request.flags,
            added_ns: now_ns,
            counter,
        };
        self.timed.remove(&counter);
        self.insert(request.table, flow, now_ns);
        Ok(())
    }

    fn insert(&mut self, table: u8, flow: Flow, now_ns: u64) {
        let flow = Arc::new(flow);
        if flow.idle_timeout_s != 0 || flow.hard_timeout_s != 0 {
            let packets = self.bank.read(flow.counter).packets;
            let timed = self.timed.entry(flow.counter);
            let timed =
                timed.or_insert_with(|| Timed { table, flow: Arc::clone(&flow), packets, used_ns: now_ns });
            timed.flow = Arc::clone(&flow);
        }
        self.put(table, flow);
    }

    fn put(&mut self, table: u8, flow: Arc<Flow>) {
        let number = flow.counter.0 as usize;
        if self.numbered.len() <= number {
            self.numbered.resize(number + 1, None);
        }
        if let Some(place) = self.numbered.get_mut(number) {
            *place = Some((table, Arc::clone(&flow)));
        }
        self.change(Change::Insert(table, flow));
    }

    fn remove(&mut self, table: u8, flow: &Flow) {
        self.timed.remove(&flow.counter);
        if let Some(place) = self.numbered.get_mut(flow.counter.0 as usize) {
            *place = None;
        }
        self.unpublished.push(flow.counter);
        self.change(Change::Remove(table, flow.priority, flow.matching.to_match()));
    }

    fn remove_all(
        &mut self,
        flows: Vec<(u8, Arc<Flow>)>,
        reason: FlowRemovedReason,
        now_ns: u64,
    ) -> Vec<FlowRemoved> {
        if flows.is_empty() {
            return Vec::new();
        }
        for (table, flow) in &flows {
            self.remove(*table, flow);
        }
        // Workers count for these entries until they see the change.
        self.publish();
        let told = flows.into_iter().filter(|(_, flow)| flow.flags.contains(FlowFlags::SEND_FLOW_REM));
        let told = told.map(|(table, flow)| {
            let (duration_s, duration_ns) = duration(flow.added_ns, now_ns);
            let count = self.bank.read(flow.counter);
            FlowRemoved {
                cookie: flow.cookie,
                priority: flow.priority,
                reason,
                table,
                duration_s,
                duration_ns,
                idle_timeout_s: flow.idle_timeout_s,
                hard_timeout_s: flow.hard_timeout_s,
                packets: count.packets,
                bytes: count.bytes,
                matching: flow.matching.to_match(),
            }
        });
        told.collect()
    }

    /// How many flow entries there are.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.tables.tables.iter().map(crate::classifier::Classifier::len).sum()
    }

    fn check_instructions(&self, request: &FlowMod) -> Result<(), ErrorCode> {
        let Instructions { meter, apply, write, goto, .. } = &request.instructions;
        if let Some(next) = goto
            && (*next <= request.table || usize::from(*next) >= TABLES)
        {
            return Err(ErrorCode::INSTRUCTION_BAD_TABLE_ID);
        }
        if let Some(meter) = meter
            && !self.tables.meters.contains_key(meter)
        {
            return Err(ErrorCode::METER_UNKNOWN);
        }
        for list in [apply, write].into_iter().flatten() {
            self.check_actions(list, Some(&request.matching))?;
        }
        Ok(())
    }

    /// Checks actions of an entry, of a bucket or of a packet-out, which has neither.
    ///
    /// # Errors
    /// The error for the controller.
    pub fn check_actions(&self, list: &[Action], matching: Option<&Match>) -> Result<(), ErrorCode> {
        // What a pushed or popped tag uncovers is unknown before the packet is there.
        let mut is_known = matching.is_some();
        if list.len() > MAX_STEPS {
            return Err(ErrorCode::ACTION_TOO_MANY);
        }
        for action in list {
            match action {
                Action::Output { port, .. } if *port == PortNo::TABLE && matching.is_some() => {
                    return Err(ErrorCode::ACTION_BAD_OUT_PORT);
                }
                Action::Group(group) if !self.tables.groups.contains_key(group) => {
                    return Err(ErrorCode::ACTION_BAD_OUT_GROUP);
                }
                Action::SetField(set) if is_known => {
                    let is_met = |matching: &Match| {
                        set.field.prerequisites().iter().all(|&needed| matching.has(needed))
                    };
                    if !matching.is_none_or(is_met) {
                        return Err(ErrorCode::ACTION_MATCH_INCONSISTENT);
                    }
                }
                Action::PushVlan(_)
                | Action::PopVlan
                | Action::PushMpls(_)
                | Action::PopMpls(_)
                | Action::PushPbb(_)
                | Action::PopPbb => is_known = false,
                _ => {}
            }
        }
        Ok(())
    }

    fn all_flows(&self) -> impl Iterator<Item = (u8, &Arc<Flow>)> {
        self.numbered(table_id::ALL).flat_map(|(number, table)| table.iter().map(move |flow| (number, flow)))
    }

    /// Entries of all tables that meet a condition.
    fn with(&self, condition: impl Fn(&Flow) -> bool) -> Vec<(u8, Arc<Flow>)> {
        let flows = self.all_flows().filter(|(_, flow)| condition(flow));
        flows.map(|(number, flow)| (number, Arc::clone(flow))).collect()
    }

    /// Removes the expired entries. Returns those whose removal must be reported.
    pub fn expire(&mut self, now_ns: u64) -> Vec<FlowRemoved> {
        let (mut idle, mut over) = (Vec::new(), Vec::new());
        let bank = &self.bank;
        for timed in self.timed.values_mut() {
            let packets = bank.read(timed.flow.counter).packets;
            if packets != timed.packets {
                (timed.packets, timed.used_ns) = (packets, now_ns);
            }
            let is_past =
                |since: u64, after_s: u16| after_s != 0 && now_ns >= since + u64::from(after_s) * NS;
            if is_past(timed.flow.added_ns, timed.flow.hard_timeout_s) {
                over.push((timed.table, Arc::clone(&timed.flow)));
            } else if is_past(timed.used_ns, timed.flow.idle_timeout_s) {
                idle.push((timed.table, Arc::clone(&timed.flow)));
            }
        }
        let mut told = self.remove_all(over, FlowRemovedReason::HardTimeout, now_ns);
        told.extend(self.remove_all(idle, FlowRemovedReason::IdleTimeout, now_ns));
        told
    }

    /// The limits that it was made with.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }
}
