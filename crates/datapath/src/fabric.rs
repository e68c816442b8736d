//! The fabric: which ports exist, on which switch, served by which worker. Only the fabric changes the datapath.
//!
//! Daemon and embedded mode build the same fabric; they differ in where engines run ([`Runner`]). Changes have an order
//! in which no frame reaches a half removed port: first the port set and the address table forget the port, then every
//! worker's map, then the fabric takes out its queues. A queue's counters join the totals only when the queue is out,
//! because frames reach the queue until then.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, PoisonError};

use ringroad_port::clock::Clock;
use ringroad_port::counters::{CounterSnapshot, QueueCounters};
use ringroad_port::forwarding_plane::ForwardingPlane;
use ringroad_port::port_index::{MAX_PORTS, PortIndex};
use ringroad_port::port_queue::{PortQueue, QueueProperties};
use ringroad_port::port_settings::PortSettings;
use ringroad_port::trace::Trace;
use ringroad_switch::{
    LearningSwitch, MacTable, MacTableConfig, MacTableError, MirrorRule, Mirroring, Policing, PortPolicies,
    PortPolicy, Tracing,
};
use ringroad_wire::mac::Mac;

use crate::engine::Engine;
use crate::engine_queue::EngineQueue;
use crate::exchange::MAX_WORKERS;
use crate::exchange::{Doorbell, exchange};
use crate::forwarding::{Forwarding, QueueRef, SwitchId, SwitchView, Topology};
use crate::scheduler::OwnerId;
use crate::worker::{Worker, WorkerConfig, WorkerError};

mod addresses;
mod counters;
mod handover;
mod mirrors;
mod settings;
mod tracing;
mod wires;

pub use counters::SwitchTotals;
pub use handover::{PortLeft, QueueLeft};
pub use mirrors::NamedMirror;
use wires::Wire;
pub use wires::WireId;

/// Maximum number of switches of one fabric.
pub const MAX_SWITCHES: usize = 64;
/// Turns in which a closing port may forward its last frames: about 5 ms in all.
const DRAIN_TURNS: u32 = 64;

/// Owner whose share of a worker's time serves a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// The share of all ports of this user, which is divided equally among the user's programs.
    Program {
        /// User id.
        user: u32,
        /// Number that distinguishes the user's programs.
        program: u32,
    },
    /// A share of the port's own: a device that an administrator attached.
    Own,
}

/// Execution of an engine: on a thread, or by its caller.
#[derive(Debug)]
pub enum Runner {
    /// A thread of the engine's own.
    Thread(Worker),
    /// The caller's thread.
    Stepped(Arc<Mutex<Engine>>),
}

impl Runner {
    fn call<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, FabricError> {
        match self {
            Self::Thread(worker) => Ok(worker.call(command)?),
            Self::Stepped(engine) => {
                // A panic of another thread between two steps leaves the engine whole: every step restores it.
                Ok(command(&mut engine.lock().unwrap_or_else(PoisonError::into_inner)))
            }
        }
    }
}

/// Reason why the fabric could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// All 254 ports of the switch are in use.
    #[error("switch {0} has 254 ports, which is all it can have")]
    SwitchFull(String),
    /// The fabric has its maximum number of switches.
    #[error("{MAX_SWITCHES} switches exist, which is all there can be")]
    TooManySwitches,
    /// The name belongs to another port.
    #[error("port {0} exists already")]
    PortTaken(String),
    /// No port has this name.
    #[error("there is no port {0}")]
    NoSuchPort(String),
    /// A worker is gone or cannot be started.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The kernel refused an eventfd or random bytes.
    #[error("requesting an eventfd or random bytes from the kernel: {0}")]
    System(#[from] rustix::io::Errno),
    /// Sizes of the address table are out of range.
    #[error(transparent)]
    Table(#[from] MacTableError),
    /// A port of a switch with flow tables was to get settings.
    #[error("switch {0} has flow tables: its flows have to do what settings of ports would do")]
    HasFlowTables(String),
    /// A switch was to get flow tables while its ports have settings.
    #[error("port {0} has settings: no flow tables can decide for its switch")]
    HasSettings(String),
    /// A switch was to get VLANs, but its address table does not distinguish them.
    #[error("a switch with VLANs needs room for {least} addresses; it has room for {0}", least = MacTableConfig::LEAST_ENTRIES_FOR_VLANS)]
    TableWithoutVlans(usize),
    /// Number of workers is out of range.
    #[error("{0} workers: choose from 1 to {MAX_WORKERS}")]
    Workers(usize),
}

/// A queue and its counters, as handed to the fabric.
pub struct QueueParts {
    /// The driver's part.
    pub port: Box<dyn PortQueue>,
    /// Counters of the queue.
    pub counters: Arc<QueueCounters>,
}

impl QueueParts {
    /// Gives the queue counters of its own, for drivers that do not count themselves.
    #[must_use]
    pub fn new(port: Box<dyn PortQueue>) -> Self {
        Self { port, counters: Arc::default() }
    }
}

#[derive(Debug)]
struct FabricPort {
    index: PortIndex,
    queues: Vec<QueueRef>,
    /// Queues that take frames: some or all of `queues`.
    taking: Vec<QueueRef>,
    counters: Vec<Arc<QueueCounters>>,
    /// Totals of queues that were replaced.
    past: CounterSnapshot,
}

impl FabricPort {
    fn counters(&self) -> CounterSnapshot {
        let mut sum = self.past.clone();
        for counters in &self.counters {
            counters.add_to(&mut sum);
        }
        sum
    }
}

/// Makes the forwarding plane that replaces the learning switch, from the learning switch and the number of the worker.
pub type MakeForwardingPlane = Box<dyn Fn(Arc<LearningSwitch>, u8) -> Box<dyn ForwardingPlane> + Send>;

struct Switch {
    id: SwitchId,
    learning: Arc<LearningSwitch>,
    /// Maker of the forwarding plane, if it is not the learning switch.
    make_forwarding_plane: Option<MakeForwardingPlane>,
    topology: Topology,
    ports: BTreeMap<String, FabricPort>,
    /// Mirrors that the workers' forwarding planes know.
    mirrors: Vec<MirrorRule>,
    /// The settings of ports that have some.
    policies: BTreeMap<PortIndex, PortPolicy>,
    /// Settings of ports as the workers' forwarding planes know them; `None` if no port has any.
    policed: Option<Arc<PortPolicies>>,
    /// Counters of each worker, for its work for the switch.
    worker_counters: Vec<Arc<QueueCounters>>,
    /// Totals of ports that have left.
    departed: CounterSnapshot,
}

impl Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch").field("id", &self.id).field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Switch {
    fn counters(&self) -> CounterSnapshot {
        let mut sum = self.departed.clone();
        for port in self.ports.values() {
            sum += port.counters();
        }
        for counters in &self.worker_counters {
            counters.add_to(&mut sum);
        }
        sum
    }
}

/// All ports, switches and workers of one datapath.
#[derive(Debug)]
pub struct Fabric {
    runners: Vec<Runner>,
    /// Queue indexes in use, per worker.
    used_indexes: Vec<Vec<bool>>,
    switches: BTreeMap<String, Switch>,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
    next_own_share: u64,
    table: MacTableConfig,
    /// Static addresses by switch, each with the name of its port, which need not exist.
    statics: BTreeMap<String, BTreeMap<Mac, String>>,
    /// Mirrors by switch.
    mirrors: BTreeMap<String, Vec<NamedMirror>>,
    /// Settings by switch and port, which need not exist.
    settings: BTreeMap<(String, String), PortSettings>,
    /// Clock for storm limits.
    clock: Clock,
    /// The running trace, with its switch.
    trace: Option<(String, Arc<Trace>)>,
    /// Counters of the engines themselves.
    engine_counters: Vec<Arc<QueueCounters>>,
    /// Totals of switches and wires that are gone.
    departed: CounterSnapshot,
    /// Number of changes of ports so far.
    revision: u64,
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // All workers stop before the first engine is dropped: other workers copy handed-over frames out of its memory.
        for runner in &mut self.runners {
            if let Runner::Thread(worker) = runner {
                worker.end();
            }
        }
    }
}

impl Fabric {
    /// Creates a fabric with one engine, which its users step; also returns the engine.
    #[must_use]
    pub fn stepped(table: MacTableConfig) -> (Self, Arc<Mutex<Engine>>) {
        let engine = Engine::new(0);
        let counters = vec![Arc::clone(engine.counters())];
        let engine = Arc::new(Mutex::new(engine));
        (Self::with_runners(vec![Runner::Stepped(Arc::clone(&engine))], counters, table), engine)
    }

    /// Creates a fabric with a thread for each configuration; the workers are connected with each other.
    ///
    /// # Errors
    /// [`FabricError::Workers`] for a number out of range, [`FabricError::Worker`] if a thread cannot be started.
    pub fn threaded(workers: Vec<WorkerConfig>, table: MacTableConfig) -> Result<Self, FabricError> {
        let count = workers.len();
        if count == 0 || count > MAX_WORKERS {
            return Err(FabricError::Workers(count));
        }
        let bells = (0..count).map(|_| Doorbell::new().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let mut outboxes: Vec<Vec<_>> = (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
        let mut inboxes: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for (from, row) in outboxes.iter_mut().enumerate() {
            for (to, (cell, bell)) in row.iter_mut().zip(&bells).enumerate() {
                if from != to {
                    let (outbox, inbox) = exchange(Arc::clone(bell));
                    *cell = Some(outbox);
                    if let Some(inboxes) = inboxes.get_mut(to) {
                        inboxes.push(inbox);
                    }
                }
            }
        }
        let mut runners = Vec::with_capacity(count);
        let mut counters = Vec::with_capacity(count);
        for (((config, bell), outboxes), inboxes) in workers.into_iter().zip(bells).zip(outboxes).zip(inboxes)
        {
            let mut engine = Engine::new(config.index);
            if count > 1 {
                engine.connect(outboxes, inboxes);
            }
            counters.push(Arc::clone(engine.counters()));
            runners.push(Runner::Thread(Worker::start(engine, bell, config)?));
        }
        Ok(Self::with_runners(runners, counters, table))
    }

    fn with_runners(
        runners: Vec<Runner>,
        engine_counters: Vec<Arc<QueueCounters>>,
        table: MacTableConfig,
    ) -> Self {
        let used_indexes = runners.iter().map(|_| Vec::new()).collect();
        Self {
            runners,
            used_indexes,
            switches: BTreeMap::new(),
            wires: BTreeMap::new(),
            next_wire: 0,
            next_own_share: 0,
            table,
            statics: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            settings: BTreeMap::new(),
            clock: Clock::system(),
            trace: None,
            engine_counters,
            departed: CounterSnapshot::default(),
            revision: 0,
        }
    }

    fn owner(&mut self, share: Share) -> OwnerId {
        match share {
            Share::Program { user, program } => OwnerId { user: user.into(), program },
            Share::Own => {
                self.next_own_share += 1;
                OwnerId { user: u64::from(u32::MAX) + self.next_own_share, program: 0 }
            }
        }
    }

    /// The workers.
    #[must_use]
    pub fn runners(&self) -> &[Runner] {
        &self.runners
    }

    /// Adds a port to a switch, which is created with its first port. Its queues are spread over the workers, and
    /// served in `share`.
    ///
    /// # Errors
    /// [`FabricError`]; nothing has changed then, except for frames that were already under way.
    pub fn attach(
        &mut self,
        switch: &str,
        port: &str,
        share: Share,
        queues: Vec<QueueParts>,
    ) -> Result<PortIndex, FabricError> {
        self.attach_with((switch, port), None, share, queues)
    }

    /// Attaches a port that another process had, with its index and the totals of the queues that it had there.
    ///
    /// # Errors
    /// As [`Self::attach`]; [`FabricError::PortTaken`] also if another port has the index.
    pub fn resume(
        &mut self,
        (switch, port): (&str, &str),
        (index, past): (PortIndex, CounterSnapshot),
        share: Share,
        queues: Vec<QueueParts>,
    ) -> Result<(), FabricError> {
        self.attach_with((switch, port), Some(index), share, queues)?;
        let state = self.switches.get_mut(switch);
        if let Some(port) = state.and_then(|state| state.ports.get_mut(port)) {
            port.past = past;
        }
        Ok(())
    }

    fn attach_with(
        &mut self,
        (switch, port): (&str, &str),
        index: Option<PortIndex>,
        share: Share,
        queues: Vec<QueueParts>,
    ) -> Result<PortIndex, FabricError> {
        self.ensure_switch(switch)?;
        let result = self.attach_to((switch, port), index, share, queues);
        self.remove_switch_if_empty(switch)?;
        result
    }

    fn attach_to(
        &mut self,
        (name, port): (&str, &str),
        index: Option<PortIndex>,
        share: Share,
        queues: Vec<QueueParts>,
    ) -> Result<PortIndex, FabricError> {
        let full_name = || format!("{name}:{port}");
        let no_port = || FabricError::NoSuchPort(full_name());
        let switch = self.switches.get(name).ok_or_else(no_port)?;
        if switch.ports.contains_key(port) {
            return Err(FabricError::PortTaken(full_name()));
        }
        let is_free = |index: &PortIndex| !switch.ports.values().any(|port| port.index == *index);
        let index = match index {
            Some(index) => Some(index).filter(is_free).ok_or_else(|| FabricError::PortTaken(full_name()))?,
            None => (0..MAX_PORTS as u8)
                .map(PortIndex)
                .find(is_free)
                .ok_or_else(|| FabricError::SwitchFull(name.to_owned()))?,
        };
        let id = switch.id;
        let counters = queues.iter().map(|queue| Arc::clone(&queue.counters)).collect();
        // Settings apply before the port's first frame can come.
        let settings = self.settings.get(&(name.to_owned(), port.to_owned())).cloned();
        self.apply_settings(name, index, settings.unwrap_or_default())?;
        let (refs, taking) = match self.assign_all(queues, id, index, share) {
            Ok(assigned) => assigned,
            Err(error) => {
                self.apply_settings(name, index, PortSettings::default())?;
                return Err(error);
            }
        };
        let switch = self.switches.get_mut(name).ok_or_else(no_port)?;
        switch.topology.set(index, taking.clone());
        let past = CounterSnapshot::default();
        switch.ports.insert(port.to_owned(), FabricPort { index, queues: refs, taking, counters, past });
        self.publish_topology(name)?;
        if let Some(switch) = self.switches.get(name) {
            switch.learning.ports.insert(index);
            let statics = self.statics.get(name).into_iter().flatten();
            for (&mac, _) in statics.filter(|(_, of)| *of == port) {
                switch.learning.table.set_static(mac, index, switch.learning.now());
            }
        }
        self.install_mirrors(name)?;
        Ok(index)
    }

    /// Replaces the queues of a port, which keeps its index, learned addresses and totals.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`], or a worker that is gone.
    pub fn replace(
        &mut self,
        switch: &str,
        port: &str,
        share: Share,
        queues: Vec<QueueParts>,
    ) -> Result<(), FabricError> {
        let no_port = || FabricError::NoSuchPort(format!("{switch}:{port}"));
        let state = self.switches.get(switch).ok_or_else(no_port)?;
        let entry = state.ports.get(port).ok_or_else(no_port)?;
        let (id, index, old) = (state.id, entry.index, entry.queues.clone());
        self.drain(&old)?;
        let counters = queues.iter().map(|queue| Arc::clone(&queue.counters)).collect();
        let (refs, taking) = self.assign_all(queues, id, index, share)?;
        let state = self.switches.get_mut(switch).ok_or_else(no_port)?;
        state.topology.set(index, taking.clone());
        let entry = state.ports.get_mut(port).ok_or_else(no_port)?;
        (entry.queues, entry.taking, entry.counters) = (refs, taking, counters);
        self.publish_topology(switch)?;
        let final_counters = self.take_out(&old)?;
        let state = self.switches.get_mut(switch).ok_or_else(no_port)?;
        state.ports.get_mut(port).ok_or_else(no_port)?.past += final_counters;
        Ok(())
    }

    /// Sends frames only to the first `count` queues of a port, at least to one: its peer uses no more.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`], or a worker that is gone.
    pub fn use_queues(&mut self, switch: &str, port: &str, count: u16) -> Result<(), FabricError> {
        let no_port = || FabricError::NoSuchPort(format!("{switch}:{port}"));
        let state = self.switches.get_mut(switch).ok_or_else(no_port)?;
        let entry = state.ports.get(port).ok_or_else(no_port)?;
        let taking = entry.taking.iter().take(count.max(1).into()).copied().collect();
        state.topology.set(entry.index, taking);
        self.publish_topology(switch)
    }

    /// Removes a port. Frames that it had received before are forwarded or counted; the switch is removed with its last
    /// port.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`], or a worker that is gone.
    pub fn detach(&mut self, switch: &str, port: &str) -> Result<CounterSnapshot, FabricError> {
        let no_port = || FabricError::NoSuchPort(format!("{switch}:{port}"));
        let state = self.switches.get_mut(switch).ok_or_else(no_port)?;
        let queues = state.ports.get(port).ok_or_else(no_port)?.queues.clone();
        self.drain(&queues)?;
        let state = self.switches.get_mut(switch).ok_or_else(no_port)?;
        let mut gone = state.ports.remove(port).ok_or_else(no_port)?;
        state.learning.ports.remove(gone.index);
        state.learning.loops.release(gone.index);
        state.learning.table.forget_port(gone.index);
        state.topology.set(gone.index, Vec::new());
        self.publish_topology(switch)?;
        self.install_mirrors(switch)?;
        gone.past += self.take_out(&gone.queues)?;
        self.settings.remove(&(switch.to_owned(), port.to_owned()));
        self.apply_settings(switch, gone.index, PortSettings::default())?;
        if let Some(state) = self.switches.get_mut(switch) {
            state.departed += gone.past.clone();
        }
        self.remove_switch_if_empty(switch)?;
        Ok(gone.past)
    }

    /// Names of the switches.
    pub fn switch_names(&self) -> impl Iterator<Item = &str> {
        self.switches.keys().map(String::as_str)
    }

    /// A number that no other switch has while this one exists.
    #[must_use]
    pub fn switch_number(&self, switch: &str) -> Option<u16> {
        Some(self.switches.get(switch)?.id.0)
    }

    /// Whether the switch decides by its addresses alone: it has no other forwarding plane, no settings of ports, no
    /// mirror with an existing port, and no running trace.
    #[must_use]
    pub fn only_learns(&self, switch: &str) -> bool {
        let is_traced = self.trace.as_ref().is_some_and(|(traced, _)| traced == switch);
        !is_traced
            && self.switches.get(switch).is_none_or(|state| {
                state.make_forwarding_plane.is_none()
                    && state.policies.is_empty()
                    && self.mirrors_in_force(switch, state).is_empty()
            })
    }

    /// Whether a switch has a forwarding plane other than the learning switch.
    #[must_use]
    pub fn has_forwarding_plane(&self, switch: &str) -> bool {
        self.switches.get(switch).is_some_and(|state| state.make_forwarding_plane.is_some())
    }

    /// State of the learning switch that the workers share.
    #[must_use]
    pub fn learning(&self, switch: &str) -> Option<Arc<LearningSwitch>> {
        self.switches.get(switch).map(|state| Arc::clone(&state.learning))
    }

    /// The ports of a switch: name, index, totals of replaced queues, and the counters of each queue since.
    pub fn ports_of(
        &self,
        switch: &str,
    ) -> impl Iterator<Item = (&str, PortIndex, &CounterSnapshot, &[Arc<QueueCounters>])> {
        let ports = self.switches.get(switch).into_iter().flat_map(|state| &state.ports);
        ports.map(|(name, port)| (name.as_str(), port.index, &port.past, port.counters.as_slice()))
    }

    /// A number that changes with every port that comes, leaves or gets other queues.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Sets a forwarding plane other than the learning switch for a switch; `None` stands for the learning switch. The
    /// forwarding plane lasts until the last port of the switch has left.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`] if there is no such switch, [`FabricError::HasSettings`], or a worker that is gone.
    pub fn set_forwarding_plane(
        &mut self,
        switch: &str,
        make: Option<MakeForwardingPlane>,
    ) -> Result<(), FabricError> {
        let Some(state) = self.switches.get_mut(switch) else {
            return Err(FabricError::NoSuchPort(format!("{switch}:")));
        };
        if make.is_some() {
            state.check_unset(switch)?;
        }
        state.make_forwarding_plane = make;
        let mirrors = state.mirrors.clone();
        self.switches
            .get(switch)
            .map_or(Ok(()), |state| self.install_forwarding_planes(switch, state, &mirrors))
    }

    /// Gives each worker the forwarding planes of a switch: the learning switch or its replacement, behind one for
    /// mirrors and one for a trace if there are such.
    fn install_forwarding_planes(
        &self,
        name: &str,
        switch: &Switch,
        mirrors: &[MirrorRule],
    ) -> Result<(), FabricError> {
        for (worker, runner) in (0..).zip(&self.runners) {
            let learning = Arc::clone(&switch.learning);
            let mut decide = match (&switch.make_forwarding_plane, &switch.policed) {
                (Some(make), _) => make(learning, worker),
                (None, None) => learning.forwarding_plane(),
                (None, Some(policies)) => {
                    Box::new(Policing::new(learning, Arc::clone(policies), self.clock.clone()))
                }
            };
            if !mirrors.is_empty() {
                let learning = Arc::clone(&switch.learning);
                decide = Box::new(Mirroring::new(decide, learning, mirrors.to_vec(), worker));
            }
            if let Some((_, trace)) = self.trace.as_ref().filter(|(traced, _)| traced == name) {
                let (learning, policies) = (Arc::clone(&switch.learning), switch.policed.clone());
                decide = Box::new(Tracing::new(decide, learning, policies, Arc::clone(trace)));
            }
            let id = switch.id;
            runner.call(move |engine| engine.set_forwarding_plane(id, decide))?;
        }
        Ok(())
    }

    /// Name of the port with an index.
    #[must_use]
    pub fn port_name(&self, switch: &str, index: PortIndex) -> Option<&str> {
        let switch = self.switches.get(switch)?;
        switch.ports.iter().find(|(_, port)| port.index == index).map(|(name, _)| name.as_str())
    }

    fn runner(&self, worker: u16) -> Result<&Runner, FabricError> {
        self.runners.get(usize::from(worker)).ok_or(FabricError::Worker(WorkerError::Gone(worker)))
    }

    fn ensure_switch(&mut self, name: &str) -> Result<(), FabricError> {
        if self.switches.contains_key(name) {
            return Ok(());
        }
        let id = (0..MAX_SWITCHES as u16)
            .map(SwitchId)
            .find(|&id| !self.switches.values().any(|switch| switch.id == id))
            .ok_or(FabricError::TooManySwitches)?;
        // Secret key of each table, so that no sender can aim at its sets.
        let mut key = [0; 8];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        let table = MacTableConfig { hash_key: u64::from_ne_bytes(key), ..self.table };
        let switch = Switch {
            id,
            learning: Arc::new(LearningSwitch::new(MacTable::new(table)?)),
            make_forwarding_plane: None,
            topology: Topology::default(),
            ports: BTreeMap::new(),
            mirrors: Vec::new(),
            policies: BTreeMap::new(),
            policed: None,
            worker_counters: self.runners.iter().map(|_| Arc::default()).collect(),
            departed: CounterSnapshot::default(),
        };
        for (runner, counters) in self.runners.iter().zip(&switch.worker_counters) {
            let decide = switch.learning.forwarding_plane();
            let view = SwitchView { decide, topology: Arc::default(), counters: Arc::clone(counters) };
            runner.call(move |engine| engine.set_switch(id, Some(view)))?;
        }
        self.switches.insert(name.to_owned(), switch);
        Ok(())
    }

    fn remove_switch_if_empty(&mut self, name: &str) -> Result<(), FabricError> {
        if self.switches.get(name).is_none_or(|switch| !switch.ports.is_empty()) {
            return Ok(());
        }
        if let Some(switch) = self.switches.remove(name) {
            for runner in &self.runners {
                runner.call(move |engine| engine.set_switch(switch.id, None))?;
            }
            self.departed += switch.counters();
        }
        Ok(())
    }

    fn publish_topology(&mut self, name: &str) -> Result<(), FabricError> {
        self.revision += 1;
        let Some(switch) = self.switches.get(name) else { return Ok(()) };
        let topology = Arc::new(switch.topology.clone());
        for runner in &self.runners {
            let (id, topology) = (switch.id, Arc::clone(&topology));
            runner.call(move |engine| engine.set_topology(id, topology))?;
        }
        Ok(())
    }

    fn free_queue_index(&mut self, worker: u16) -> u32 {
        let Some(used_indexes) = self.used_indexes.get_mut(usize::from(worker)) else { return 0 };
        let queue_index = used_indexes.iter().position(|used| !used).unwrap_or(used_indexes.len());
        if queue_index == used_indexes.len() {
            used_indexes.push(false);
        }
        used_indexes[queue_index] = true;
        queue_index as u32
    }

    /// Distributes the queues of a port among the workers; also returns the queues that take frames.
    fn assign_all(
        &mut self,
        queues: Vec<QueueParts>,
        switch: SwitchId,
        index: PortIndex,
        share: Share,
    ) -> Result<(Vec<QueueRef>, Vec<QueueRef>), FabricError> {
        let owner = self.owner(share);
        let mut all = Vec::with_capacity(queues.len());
        let mut taking = Vec::with_capacity(queues.len());
        for (queue, parts) in (0u16..).zip(queues) {
            let forwarding = Forwarding::Switch { switch, port: index, queue };
            let (queue_index, properties) = self.assign(parts, forwarding, owner)?;
            all.push(queue_index);
            if properties.takes_frames {
                taking.push(queue_index);
            }
        }
        Ok((all, taking))
    }

    /// Gives a queue to the worker with the fewest queues.
    fn assign(
        &mut self,
        parts: QueueParts,
        forwarding: Forwarding,
        owner: OwnerId,
    ) -> Result<(QueueRef, QueueProperties), FabricError> {
        let load = |used_indexes: &Vec<bool>| used_indexes.iter().filter(|used| **used).count();
        let worker = (0u16..)
            .zip(&self.used_indexes)
            .min_by_key(|(_, used_indexes)| load(used_indexes))
            .map_or(0, |(worker, _)| worker);
        let queue_index = self.free_queue_index(worker);
        let queue = EngineQueue::new(parts.port, forwarding, parts.counters, owner);
        let properties = queue.properties();
        self.runner(worker)?.call(move |engine| engine.insert(queue_index, queue))?;
        Ok((QueueRef { worker, frame_cost: properties.frame_cost, index: queue_index }, properties))
    }

    /// Runs `command` for each of the queues, between two turns of each worker.
    fn at_each<T: Send + 'static>(
        &self,
        queues: &[QueueRef],
        command: impl Fn(&mut Engine, u32) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, FabricError> {
        let mut answers = Vec::with_capacity(queues.len());
        for (runner, indexes) in self.by_worker(queues) {
            let command = command.clone();
            answers.extend(runner.call(move |engine| {
                indexes.into_iter().map(|queue_index| command(engine, queue_index)).collect::<Vec<_>>()
            })?);
        }
        Ok(answers)
    }

    /// Indexes of the queues at each worker that serves some of them.
    fn by_worker(&self, queues: &[QueueRef]) -> impl Iterator<Item = (&Runner, Vec<u32>)> {
        (0u16..).zip(&self.runners).filter_map(|(worker, runner)| {
            let here = queues.iter().filter(|queue| queue.worker == worker);
            let indexes: Vec<u32> = here.map(|queue| queue.index).collect();
            (!indexes.is_empty()).then_some((runner, indexes))
        })
    }

    /// Forwards the frames that closing queues had been given before, and takes no more from these queues.
    fn drain(&self, queues: &[QueueRef]) -> Result<(), FabricError> {
        self.at_each(queues, Engine::close)?;
        for (runner, indexes) in self.by_worker(queues) {
            let indexes: Arc<[u32]> = indexes.into();
            for _ in 0..DRAIN_TURNS {
                let indexes = Arc::clone(&indexes);
                // Other owners have turns between these calls.
                if !runner.call(move |engine| engine.drain(&indexes))? {
                    break;
                }
            }
        }
        self.at_each(queues, |engine, queue_index| engine.set_forwarding(queue_index, Forwarding::Hold))?;
        Ok(())
    }

    /// Takes queues out of their engines, and returns the sum of their counters.
    fn take_out(&mut self, queues: &[QueueRef]) -> Result<CounterSnapshot, FabricError> {
        let mut counters = CounterSnapshot::default();
        // Drivers are dropped here, not on the worker: closing may take time.
        for removed in self.at_each(queues, Engine::remove)?.into_iter().flatten() {
            removed.close().add_to(&mut counters);
        }
        for queue in queues {
            let used_indexes = self.used_indexes.get_mut(usize::from(queue.worker));
            if let Some(used) =
                used_indexes.and_then(|used_indexes| used_indexes.get_mut(queue.index as usize))
            {
                *used = false;
            }
        }
        Ok(counters)
    }
}
