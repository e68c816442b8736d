//! The tables, for controllers that change and read them.

mod groups;
pub mod handover;
mod meters;
mod reports;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use left_right::{ReadHandle, WriteHandle};
use ringroad_openflow::action::{Action, Effect, PortNo};
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::instruction::Instructions;
use ringroad_openflow::message::{
    FlowCommand, FlowFlags, FlowMod, FlowRemoved, FlowRemovedReason, FlowStatsRequest,
};
use ringroad_openflow::oxm::Match;
use ringroad_openflow::{group_id, meter_id, table_id};

pub use self::reports::FlowList;
use crate::classifier::Classifier;
use crate::counters::{CounterBank, CounterId};
use crate::flow::{FlowEntry, covers, overlap};
use crate::memory_budget::{self, SharedBudget, TableBudget};
use crate::packed_match::PackedMatch;
use crate::step_budget::{MAX_ACTIONS, count_actions};
use crate::subtable::compiled;
use crate::tables::{Change, TABLES, TablePort, Tables, shrink};

const NS: u64 = 1_000_000_000;
/// Number of deleted entries at which the changes are published to the workers.
const MOST_UNPUBLISHED: usize = 1 << 12;

/// Limits on the entries, groups and meters of controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLimits {
    /// Maximum number of flow entries in all tables.
    pub flows: usize,
    /// Maximum number of groups.
    pub groups: usize,
    /// Maximum number of buckets in a group.
    pub buckets: usize,
    /// Maximum number of meters.
    pub meters: usize,
    /// Maximum number of bands of a meter.
    pub bands: usize,
    /// Maximum memory of the entries, groups and meters, bytes.
    pub memory_bytes: u64,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self {
            flows: 2_000_000,
            groups: 10_000,
            buckets: 1000,
            meters: 10_000,
            bands: 16,
            memory_bytes: 4 << 30,
        }
    }
}

/// Tracks when a worker is between a decision and its execution: until the execution ends, the worker may count for
/// deleted entries.
#[derive(Debug, Default)]
pub struct QuiescentState(AtomicU64);

impl QuiescentState {
    /// Notes that the worker decides.
    pub fn begin(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | 1, Ordering::SeqCst);
    }

    /// Notes that the worker has counted its decision.
    pub fn end(&self) {
        let turns = self.0.load(Ordering::Relaxed);
        self.0.store((turns | 1).wrapping_add(1), Ordering::Release);
    }

    /// Whether the worker has ended the turn in which its number was `then`.
    fn is_past(&self, then: u64) -> bool {
        then & 1 == 0 || self.0.load(Ordering::Acquire) != then
    }
}

/// Data that a worker needs.
#[derive(Debug, Clone)]
pub struct WorkerTables {
    /// Tables as published last.
    pub tables: ReadHandle<Tables>,
    pub worker: usize,
    /// Turns of the worker: when it decides.
    pub turns: Arc<QuiescentState>,
}

/// Counters without an owner, and the turn of each worker when they lost it.
#[derive(Debug)]
struct RetiredCounters {
    counters: Vec<CounterId>,
    then: Vec<u64>,
}

/// An entry with a timeout.
#[derive(Debug)]
struct Timed {
    table: u8,
    flow: Arc<FlowEntry>,
    /// Packets of the entry at the last check, and the time at which they last increased.
    packets: u64,
    used_ns: u64,
}

/// Instructions of all entries, each stored once.
#[derive(Debug, Default)]
struct SharedInstructions {
    /// Instructions with the number of entries that use them.
    known: HashMap<Arc<Instructions>, usize>,
}

impl SharedInstructions {
    fn has(&self, wanted: &Instructions) -> bool {
        self.known.contains_key(wanted)
    }

    /// Returns the instructions for one more entry.
    fn get(&mut self, wanted: &Instructions) -> Arc<Instructions> {
        let known = match self.known.get_key_value(wanted) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(wanted.clone()),
        };
        *self.known.entry(Arc::clone(&known)).or_default() += 1;
        known
    }

    /// Gives back the instructions of one entry. Returns whether it was the last.
    fn put_back(&mut self, used: &Arc<Instructions>) -> bool {
        let Some(users) = self.known.get_mut(used) else { return false };
        *users -= 1;
        let is_last = *users == 0;
        if is_last {
            self.known.remove(used);
            shrink(&mut self.known);
        }
        is_last
    }
}

/// Charged bytes of an entry without instructions and shape.
fn bytes_of_flow(flow: &FlowEntry) -> u64 {
    let (mask, _) = compiled(flow.matching.fields());
    memory_budget::of_flow(&flow.matching, mask.used_words().count(), flow.is_timed())
}

/// Tables, groups and meters of a switch; nothing else changes them.
#[derive(Debug)]
pub struct FlowState {
    /// Tables with all changes.
    tables: Tables,
    /// Publishes changes to the workers.
    writer: WriteHandle<Tables, Change>,
    limits: TableLimits,
    budget: TableBudget,
    bank: CounterBank,
    turns: Vec<Arc<QuiescentState>>,
    timed: HashMap<CounterId, Timed>,
    /// Counters without an owner. The workers do not know this yet.
    unpublished: Vec<CounterId>,
    leaving: Vec<RetiredCounters>,
    shared: SharedInstructions,
    /// Entries, indexed by the numbers of their counters. An index is stable while hash tables grow, so lists can be
    /// made piece by piece.
    numbered: Vec<Option<(u8, Arc<FlowEntry>)>>,
}

/// Whether a request is about the entries of a table.
fn is_about(request: &FlowStatsRequest, table: u8) -> bool {
    request.table == table || request.table == table_id::ALL
}

/// Whether an entry fulfils the conditions of a request, in a table that the request is about.
fn is_chosen(request: &FlowStatsRequest, flow: &FlowEntry) -> bool {
    flow.cookie & request.cookie_mask == request.cookie & request.cookie_mask
        && covers(&request.matching, &flow.matching)
        && (request.out_port == PortNo::ANY
            || actions(&flow.instructions)
                .any(|action| matches!(action, Action::Output { port, .. } if *port == request.out_port)))
        && (request.out_group == group_id::ANY || uses_group(&flow.instructions, request.out_group))
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
    /// Makes empty tables for `workers` workers, and the data for each worker.
    #[must_use]
    pub fn new(workers: usize, limits: TableLimits) -> (Self, Vec<WorkerTables>) {
        Self::within(workers, limits, SharedBudget::new(u64::MAX))
    }

    /// Makes the empty tables of a switch that shares memory with others.
    #[must_use]
    pub fn within(
        workers: usize,
        limits: TableLimits,
        shared: Arc<SharedBudget>,
    ) -> (Self, Vec<WorkerTables>) {
        let (writer, reader) = left_right::new::<Tables, Change>();
        let turns: Vec<Arc<QuiescentState>> = (0..workers).map(|_| Arc::default()).collect();
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
            budget: TableBudget::new(limits.memory_bytes, shared),
            bank: CounterBank::new(workers),
            turns,
            timed: HashMap::new(),
            unpublished: Vec::new(),
            leaving: Vec::new(),
            shared: SharedInstructions::default(),
            numbered: Vec::new(),
        };
        let lookups = (0..TABLES).map(|_| (state.counter(), state.counter())).collect();
        state.change(Change::Lookups(lookups));
        let metered = state.counter();
        state.change(Change::MeteredPacketIns(metered));
        state.publish();
        (state, needs)
    }

    /// Tables with all changes, published or not.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Publishes all changes to the workers. After that no worker uses the earlier tables.
    pub fn publish(&mut self) {
        if self.writer.has_pending_operations() {
            // A new generation makes the workers' caches of the earlier tables invalid.
            self.change(Change::Generation(self.tables.generation + 1));
        }
        self.writer.publish();
        self.budget.publish();
        if !self.unpublished.is_empty() {
            let counters = std::mem::take(&mut self.unpublished);
            let then = self.turns.iter().map(|turns| turns.0.load(Ordering::SeqCst)).collect();
            self.leaving.push(RetiredCounters { counters, then });
        }
        let Self { leaving, bank, turns, .. } = self;
        leaving.retain(|leaving| {
            let is_past = turns.iter().zip(&leaving.then).all(|(turns, &then)| turns.is_past(then));
            if is_past {
                leaving.counters.iter().for_each(|&counter| bank.give_back(counter));
            }
            !is_past
        });
        if let Some(blocks) = bank.shrink() {
            self.numbered.truncate(self.bank.len());
            self.numbered.shrink_to_fit();
            self.change(Change::FewerCounters(blocks));
        }
    }

    /// Charged memory of the entries, groups and meters, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    /// Returns the charged bytes that became free since the last call.
    pub fn take_freed_bytes(&mut self) -> u64 {
        self.budget.take_freed()
    }

    /// Charges bytes, if there is room for them. To make room, it waits until the workers have left deleted entries.
    fn charge(&mut self, bytes: u64) -> bool {
        if !self.budget.has_room(bytes) && self.budget.is_leaving() {
            self.publish();
            self.publish();
        }
        let has_room = self.budget.has_room(bytes);
        if has_room {
            self.budget.take(bytes);
        }
        has_room
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

    /// Adds a port, changes it, or removes it if there is no `state`.
    pub fn set_port(&mut self, port: PortNo, state: Option<TablePort>) {
        if self.tables.ports.get(port) != state {
            self.change(Change::Port(port, state));
        }
    }

    /// Sets whether fragments of IP packets are dropped.
    pub fn set_drops_fragments(&mut self, drops: bool) {
        if self.tables.drops_fragments != drops {
            self.change(Change::DropsFragments(drops));
        }
    }

    /// Whether fragments of IP packets are dropped.
    #[must_use]
    pub fn drops_fragments(&self) -> bool {
        self.tables.drops_fragments
    }

    /// Removes all entries, groups and meters, without notifications.
    pub fn clear(&mut self) {
        for (table, flow) in self.with(table_id::ALL, |_| true) {
            self.remove(table, &flow);
        }
        self.remove_groups(|_| true);
        self.remove_meters(|_| true);
    }

    /// Changes flow entries. Returns the deleted entries whose removal must be reported.
    ///
    /// # Errors
    /// The error for the controller; nothing has changed then.
    pub fn flow_mod(&mut self, request: &FlowMod, now_ns: u64) -> Result<Vec<FlowRemoved>, ErrorCode> {
        if request.buffer_id.is_some() {
            // This switch has no packet buffers.
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
                let meant = self.meant(request);
                let is_new = !meant.is_empty() && !self.shared.has(&request.instructions);
                if is_new && !self.charge(memory_budget::of_instructions(&request.instructions)) {
                    return Err(ErrorCode::FLOW_TABLE_FULL);
                }
                for (table, flow) in meant {
                    // `insert` returns the charge for the replaced entry.
                    self.budget.take(bytes_of_flow(&flow));
                    let instructions = self.shared.get(&request.instructions);
                    let changed = FlowEntry { instructions, ..FlowEntry::clone(&flow) };
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

    fn meant(&self, request: &FlowMod) -> Vec<(u8, Arc<FlowEntry>)> {
        let is_delete = matches!(request.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        let chosen = FlowStatsRequest {
            table: request.table,
            matching: request.matching.clone(),
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            // These fields apply to deletions only.
            out_port: if is_delete { request.out_port } else { PortNo::ANY },
            out_group: if is_delete { request.out_group } else { group_id::ANY },
        };
        match request.command {
            FlowCommand::ModifyStrict | FlowCommand::DeleteStrict => {
                let tables = self.numbered(request.table);
                let one = tables.filter_map(|(number, table)| {
                    let flow = table.get(request.priority, &request.matching)?;
                    is_chosen(&chosen, flow).then(|| (number, Arc::clone(flow)))
                });
                one.collect()
            }
            _ => self.with(request.table, |flow| is_chosen(&chosen, flow)),
        }
    }

    /// Tables that a request with this number is about.
    fn numbered(&self, table: u8) -> impl Iterator<Item = (u8, &Classifier)> {
        let tables = (0..).zip(&self.tables.tables);
        tables.filter(move |&(number, _)| table == table_id::ALL || number == table)
    }

    fn flows_of(&self, table: u8) -> impl Iterator<Item = (u8, &Arc<FlowEntry>)> {
        self.numbered(table).flat_map(|(number, table)| table.iter().map(move |flow| (number, flow)))
    }

    /// Entries of a table, or of all tables, that fulfil a condition.
    fn with(&self, table: u8, condition: impl Fn(&FlowEntry) -> bool) -> Vec<(u8, Arc<FlowEntry>)> {
        let flows = self.flows_of(table).filter(|(_, flow)| condition(flow));
        flows.map(|(number, flow)| (number, Arc::clone(flow))).collect()
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
        let matching = PackedMatch::from(&request.matching);
        let bytes = self.bytes_of_new(request, &matching, replaced.is_none());
        if !self.charge(bytes) {
            return Err(ErrorCode::FLOW_TABLE_FULL);
        }
        let counter = match &replaced {
            Some(flow) => flow.counter,
            None => self.counter(),
        };
        if request.flags.contains(FlowFlags::RESET_COUNTS) {
            self.bank.reset(counter);
        }
        let flow = self.entry(request, matching, now_ns, counter);
        self.timed.remove(&counter);
        self.insert(request.table, flow, now_ns);
        Ok(())
    }

    /// Makes the entry that a request adds.
    fn entry(
        &mut self,
        request: &FlowMod,
        matching: PackedMatch,
        added_ns: u64,
        counter: CounterId,
    ) -> FlowEntry {
        FlowEntry {
            priority: request.priority,
            matching,
            cookie: request.cookie,
            instructions: self.shared.get(&request.instructions),
            idle_timeout_s: request.idle_timeout_s,
            hard_timeout_s: request.hard_timeout_s,
            flags: request.flags,
            added_ns,
            counter,
        }
    }

    /// Charged bytes of an entry: with its instructions only if no other entry has them, with its shape only if that is
    /// new to the table.
    fn bytes_of_new(&self, request: &FlowMod, matching: &PackedMatch, is_new: bool) -> u64 {
        let (mask, _) = compiled(matching.fields());
        let table = self.tables.tables.get(usize::from(request.table));
        let has_shape = !is_new || table.is_some_and(|table| table.has_shape_of(&mask));
        let is_timed = request.idle_timeout_s != 0 || request.hard_timeout_s != 0;
        let shared = self.shared.has(&request.instructions);
        memory_budget::of_flow(matching, mask.used_words().count(), is_timed)
            + if has_shape { 0 } else { memory_budget::of_shape() }
            + if shared { 0 } else { memory_budget::of_instructions(&request.instructions) }
    }

    /// Returns the charge for a deleted entry.
    fn give_back(&mut self, flow: &FlowEntry) {
        self.budget.give_back(bytes_of_flow(flow));
        if self.shared.put_back(&flow.instructions) {
            self.budget.give_back(memory_budget::of_instructions(&flow.instructions));
        }
    }

    fn insert(&mut self, table: u8, flow: FlowEntry, now_ns: u64) {
        let flow = Arc::new(flow);
        if flow.is_timed() {
            let packets = self.bank.read(flow.counter).packets;
            let timed = self.timed.entry(flow.counter);
            let timed =
                timed.or_insert_with(|| Timed { table, flow: Arc::clone(&flow), packets, used_ns: now_ns });
            timed.flow = Arc::clone(&flow);
        }
        self.put(table, flow);
    }

    fn put(&mut self, table: u8, flow: Arc<FlowEntry>) {
        let number = flow.counter.0 as usize;
        if self.numbered.len() <= number {
            self.numbered.resize(number + 1, None);
        }
        if let Some(entry) = self.numbered.get_mut(number)
            && let Some((_, replaced)) = entry.replace((table, Arc::clone(&flow)))
        {
            self.give_back(&replaced);
        }
        self.change(Change::Insert(table, flow));
    }

    fn remove(&mut self, table: u8, flow: &Arc<FlowEntry>) {
        self.timed.remove(&flow.counter);
        shrink(&mut self.timed);
        if let Some(entry) = self.numbered.get_mut(flow.counter.0 as usize) {
            *entry = None;
        }
        self.unpublished.push(flow.counter);
        self.change(Change::Remove(table, Arc::clone(flow)));
        self.give_back(flow);
        let (mask, _) = compiled(flow.matching.fields());
        if !self.tables.tables.get(usize::from(table)).is_some_and(|table| table.has_shape_of(&mask)) {
            self.budget.give_back(memory_budget::of_shape());
        }
        if self.unpublished.len() >= MOST_UNPUBLISHED {
            // Without this, the list of changes would take more memory than the entries.
            self.publish();
        }
    }

    fn remove_all(
        &mut self,
        flows: Vec<(u8, Arc<FlowEntry>)>,
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

    /// Number of flow entries.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.tables.tables.iter().map(Classifier::len).sum()
    }

    fn check_instructions(&self, request: &FlowMod) -> Result<(), ErrorCode> {
        let Instructions { meter, apply, write, goto, .. } = &request.instructions;
        if let Some(next) = goto
            && (*next <= request.table || usize::from(*next) >= TABLES)
        {
            return Err(ErrorCode::INSTRUCTION_BAD_TABLE_ID);
        }
        match meter {
            Some(meter) if *meter > meter_id::MAX => return Err(ErrorCode::METER_INVALID),
            Some(meter) if !self.tables.meters.contains_key(meter) => return Err(ErrorCode::METER_UNKNOWN),
            _ => {}
        }
        for list in [apply, write].into_iter().flatten() {
            self.check_actions(list, Some(&request.matching))?;
        }
        Ok(())
    }

    /// Checks the actions of an entry, a bucket or a packet-out. A packet-out has no match.
    ///
    /// # Errors
    /// The error for the controller.
    pub fn check_actions(&self, list: &[Action], matching: Option<&Match>) -> Result<(), ErrorCode> {
        // After a tag is pushed or popped, the headers are unknown until there is a packet.
        let mut is_known = matching.is_some();
        if count_actions(list) > MAX_ACTIONS {
            return Err(ErrorCode::ACTION_TOO_MANY);
        }
        for action in list {
            match action.effect() {
                Effect::Output(port) => {
                    if port == PortNo::TABLE && matching.is_some() {
                        return Err(ErrorCode::ACTION_BAD_OUT_PORT);
                    }
                }
                Effect::Group(group) => {
                    if !self.tables.groups.contains_key(&group) {
                        return Err(ErrorCode::ACTION_BAD_OUT_GROUP);
                    }
                }
                Effect::Field(field) => {
                    let is_met =
                        |matching: &Match| field.prerequisites().iter().all(|&needed| matching.has(needed));
                    if is_known && !matching.is_none_or(is_met) {
                        return Err(ErrorCode::ACTION_MATCH_INCONSISTENT);
                    }
                }
                Effect::VlanTag { .. } | Effect::Header => is_known = false,
                Effect::Ttl | Effect::Queue(_) => {}
            }
        }
        Ok(())
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

    /// Limits of these tables.
    #[must_use]
    pub fn limits(&self) -> TableLimits {
        self.limits
    }
}
