//! Switches that forward by flow tables, with the threads and sockets that serve them.

mod report;
mod settings;
mod start;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringroad_control::listening_socket::ListeningSocket;
use ringroad_control::message::{ErrorKind, FailMode as WantedFailMode, OpenFlow};
use ringroad_datapath::fabric::MakeForwardingPlane;
use ringroad_flow_tables::control_frame::port_number;
use ringroad_flow_tables::forwarding_plane::NoFlows;
use ringroad_flow_tables::memory_budget::SharedBudget;
use ringroad_flow_tables::state::handover::{Image, ImageError};
use ringroad_flow_tables::state::{FlowState, TableLimits, WorkerTables};
use ringroad_openflow_agent::agent::{AgentState, OpenFlowPort};
use ringroad_openflow_agent::service::{Controllers, OpenFlowService};
use ringroad_port::clock::Clock;
use ringroad_port::port_index::{MAX_PORTS, PortIndex};
use ringroad_port_table::entry::Occupant;

pub(crate) use self::settings::parse;
use self::settings::{CheckedSettings, fail_mode, read_tls};
use crate::config;
use crate::ports::Ports;
use crate::refusal::{Refusal, fabric_refusal, refuse};

/// Name of the controllers' port; no user can give a port this name.
const CONTROLLERS_PORT: &str = "(controllers)";
/// Time for which a reply waits for the tables of a switch.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// Index of the controllers' port. It is the last one, so that the numbers of other ports begin at 1 for controllers,
/// whichever port came first.
pub(crate) const CONTROLLERS_INDEX: PortIndex = PortIndex(MAX_PORTS as u8 - 1);

/// The switches that have flow tables.
#[derive(Debug)]
pub struct FlowSwitches {
    /// Folder of the sockets for tools.
    folder: PathBuf,
    running: BTreeMap<String, RunningSwitch>,
    /// Tables of switches whose settings are not in force yet; workers use them or will use them.
    ready: BTreeMap<String, FlowTables>,
    /// Settings that could not be put in force yet, each with the reason; they are retried.
    waiting: BTreeMap<String, (OpenFlow, String)>,
    /// Revision of the fabric at the last check.
    revision: u64,
    /// Memory of the tables of all switches.
    memory: Arc<SharedBudget>,
    limits: TableLimits,
}

impl Default for FlowSwitches {
    /// Creates a value without a folder, and with the default limits of memory.
    fn default() -> Self {
        Self::beside(Path::new(""), &config::LimitsConfig::default())
    }
}

/// Parts that a switch needs before its controllers are set.
#[derive(Debug)]
struct FlowTables {
    state: FlowState,
    /// Tables for each worker, and for the agent as the last entry.
    needs: Vec<WorkerTables>,
    clock: Clock,
    /// Descriptor of the controllers' port, once the port is on the switch.
    packets: Option<OwnedFd>,
    /// Flow tables that another process has left.
    agent_state: Option<(AgentState, Image)>,
}

#[derive(Debug)]
struct RunningSwitch {
    settings: OpenFlow,
    datapath_id: u64,
    service: OpenFlowService,
    /// Tables as the workers see them.
    seen: WorkerTables,
    clock: Clock,
    socket_path: PathBuf,
    /// Socket for tools, whose file is removed with it.
    _socket: ListeningSocket,
    /// State of each port that the service knows.
    known: BTreeMap<PortIndex, Known>,
    /// Whether the service may not have processed all of `known` yet.
    is_ahead: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    name: String,
    is_up: bool,
    /// Pointers to the port's counters, which identify the counters.
    queues: Vec<usize>,
}

fn no_flows() -> MakeForwardingPlane {
    Box::new(|_, _| Box::new(NoFlows))
}

/// OpenFlow settings in force, and those that wait.
pub(crate) fn in_force(ports: &Ports) -> Vec<OpenFlow> {
    let FlowSwitches { running, waiting, .. } = &ports.openflow;
    let is_replaced = |running: &&RunningSwitch| waiting.contains_key(&running.settings.switch);
    let running = running.values().filter(|running| !is_replaced(running)).map(|running| &running.settings);
    running.chain(waiting.values().map(|(settings, _)| settings)).cloned().collect()
}

impl FlowSwitches {
    /// Creates a value without switches; sockets for tools will be beside the control socket.
    #[must_use]
    pub fn beside(socket: &Path, limits: &config::LimitsConfig) -> Self {
        let (all_bytes, memory_bytes) = limits.flow_memory_bytes();
        Self {
            folder: socket.parent().unwrap_or(Path::new("/")).to_owned(),
            running: BTreeMap::new(),
            ready: BTreeMap::new(),
            waiting: BTreeMap::new(),
            revision: 0,
            memory: SharedBudget::new(all_bytes),
            limits: TableLimits { memory_bytes, ..TableLimits::default() },
        }
    }

    /// Makes tables without flows for a switch with `workers` workers.
    fn empty_tables(&self, workers: usize) -> FlowTables {
        // The agent counts like a worker.
        let (state, needs) = FlowState::within(workers + 1, self.limits, Arc::clone(&self.memory));
        FlowTables { state, needs, clock: Clock::system(), packets: None, agent_state: None }
    }

    /// Whether no switch has, or will have, flow tables.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Whether settings are to be retried.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a switch has flow tables.
    pub(crate) fn has(&self, switch: &str) -> bool {
        self.running.contains_key(switch)
            || self.ready.get(switch).is_some_and(|tables| tables.packets.is_some())
    }

    /// The threads of all switches.
    pub(crate) fn services(&self) -> impl Iterator<Item = (&str, &OpenFlowService)> {
        self.running.iter().map(|(switch, running)| (switch.as_str(), &running.service))
    }

    /// Tables that workers use and that no thread serves yet, as another process left them.
    pub(crate) fn waiting_tables(&self) -> impl Iterator<Item = (&str, &(AgentState, Image), &FlowState)> {
        self.ready.iter().filter_map(|(switch, tables)| {
            Some((switch.as_str(), tables.agent_state.as_ref()?, &tables.state))
        })
    }

    /// Makes the tables of a switch as another process left them, for `workers` workers.
    ///
    /// # Errors
    /// The image is incomplete.
    pub(crate) fn make_ready(
        &mut self,
        switch: &str,
        agent_state: AgentState,
        records: Vec<u8>,
        workers: usize,
    ) -> Result<(), ImageError> {
        let mut tables = self.empty_tables(workers);
        let image = tables.state.resume(records)?;
        agent_state.resume_in(&mut tables.state);
        tables.agent_state = Some((agent_state, image));
        self.ready.insert(switch.to_owned(), tables);
        Ok(())
    }

    /// The tables of a switch as its workers see them, and the workers' time, ns.
    pub(crate) fn tables_of(&self, switch: &str) -> Option<(&WorkerTables, u64)> {
        let ready = || self.ready.get(switch).and_then(|tables| Some((tables.needs.last()?, &tables.clock)));
        let running = self.running.get(switch).map(|running| (&running.seen, &running.clock));
        running.or_else(ready).map(|(seen, clock)| (seen, clock.now_ns()))
    }

    /// Takes settings over from a daemon that still has the sockets.
    pub(crate) fn await_predecessor(&mut self, settings: Vec<OpenFlow>) {
        let why = "the daemon before this one has the socket";
        let waiting =
            settings.into_iter().map(|settings| (settings.switch.clone(), (settings, why.to_owned())));
        self.waiting.extend(waiting);
    }
}

impl Ports {
    /// Makes a switch forward by flow tables, with these settings.
    ///
    /// # Errors
    /// The refusal to send; the switch is unchanged then.
    pub(crate) fn set_openflow(&mut self, settings: &OpenFlow) -> Result<(), Refusal> {
        let parsed = parse(settings).map_err(|what| refuse(ErrorKind::BadProperties, what, ""))?;
        let tls = read_tls(settings).map_err(|what| refuse(ErrorKind::BadProperties, what, ""))?;
        let name = &settings.switch;
        let CheckedSettings { controllers, listen, datapath_id } = parsed;
        let controllers = Controllers { addresses: controllers, tls };
        if let Some(running) = self.openflow.running.get_mut(name) {
            let same_identity =
                running.datapath_id == datapath_id && running.settings.listen == settings.listen;
            if same_identity {
                running.service.set_controllers(controllers, fail_mode(settings.fail_mode));
                running.settings = settings.clone();
                self.openflow.waiting.remove(name);
                return Ok(());
            }
            self.end_openflow(name, Some(no_flows()))?;
        }
        let running = self.start_openflow(settings, controllers, &listen, datapath_id)?;
        self.openflow.waiting.remove(name);
        self.openflow.running.insert(name.clone(), running);
        self.openflow.revision = u64::MAX;
        self.follow_openflow();
        Ok(())
    }

    /// Lets the workers of switches continue with the tables and the counts of another process.
    ///
    /// # Errors
    /// Text that names what cannot be taken over.
    pub(crate) fn resume_flow_tables(&mut self, counts: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
        for (switch, mut tables) in std::mem::take(&mut self.openflow.ready) {
            if !self.openflow.waiting.contains_key(&switch) {
                continue;
            }
            if let (Some((_, image)), Some(counts)) = (&tables.agent_state, counts.get(&switch)) {
                tables.state.resume_counts(image, counts);
            }
            let resumed = self.join_controllers(&switch, tables).and_then(|tables| {
                self.forward_by(&switch, tables.needs.clone(), tables.clock.clone()).map(|()| tables)
            });
            let tables = resumed.map_err(|refusal| refusal.message)?;
            self.openflow.ready.insert(switch, tables);
        }
        Ok(())
    }

    /// Makes a switch learn addresses again.
    ///
    /// # Errors
    /// The refusal to send.
    pub(crate) fn remove_openflow(&mut self, switch: &str) -> Result<(), Refusal> {
        let waited = self.openflow.waiting.remove(switch).is_some();
        if self.openflow.running.contains_key(switch) {
            return self.end_openflow(switch, None);
        }
        if !waited {
            let what = format!("{switch} has no flow tables");
            return Err(refuse(ErrorKind::NoSuchPort, what, "ringroad switch lists the switches that have"));
        }
        if self.openflow.ready.remove(switch).is_some_and(|tables| tables.packets.is_some()) {
            return self.end_openflow(switch, None);
        }
        let fabric = self.table.fabric_mut();
        match fabric.has_forwarding_plane(switch) {
            true => fabric.set_forwarding_plane(switch, None).map_err(fabric_refusal),
            false => Ok(()),
        }
    }

    /// Ends a switch's flow tables; `then` makes the next forwarding plane.
    fn end_openflow(&mut self, switch: &str, then: Option<MakeForwardingPlane>) -> Result<(), Refusal> {
        self.openflow.running.remove(switch);
        let fabric = self.table.fabric_mut();
        let ended =
            fabric.set_forwarding_plane(switch, then).and_then(|()| fabric.detach(switch, CONTROLLERS_PORT));
        ended.map(|_| ()).map_err(fabric_refusal)
    }

    /// Makes switches that wait for their flow tables drop all frames, unless they are set to learn without a
    /// controller.
    pub(crate) fn hold_for_openflow(&mut self) {
        let secure = self
            .openflow
            .waiting
            .values()
            .filter(|(settings, _)| settings.fail_mode == WantedFailMode::Secure);
        let fabric = self.table.fabric_mut();
        for (settings, _) in secure {
            if fabric.learning(&settings.switch).is_some() && !fabric.has_forwarding_plane(&settings.switch) {
                // A lost worker ends the daemon anyway.
                let _ = fabric.set_forwarding_plane(&settings.switch, Some(no_flows()));
            }
        }
    }

    /// Puts settings in force, now or as soon as possible. Returns the reason for a delay.
    pub(crate) fn want_openflow(&mut self, settings: &OpenFlow) -> Option<String> {
        let refusal = self.set_openflow(settings).err()?;
        self.openflow.waiting.insert(settings.switch.clone(), (settings.clone(), refusal.message.clone()));
        self.hold_for_openflow();
        Some(refusal.message)
    }

    /// Retries settings that could not be put in force.
    pub(crate) fn retry_openflow(&mut self) {
        for (settings, _) in std::mem::take(&mut self.openflow.waiting).into_values() {
            self.want_openflow(&settings);
        }
    }

    /// Notifies controllers of ports that came, left or changed since the last call.
    pub(crate) fn follow_openflow(&mut self) {
        let fabric = self.table.fabric();
        let on_switches = self.table.on_switches();
        for (switch, running) in &mut self.openflow.running {
            let mut now = BTreeMap::new();
            for (name, index, past, counters) in
                fabric.ports_of(switch).filter(|(_, index, ..)| *index != CONTROLLERS_INDEX)
            {
                let key = format!("{switch}:{name}");
                let is_served =
                    on_switches.get(&key).is_none_or(|port| !matches!(port.occupant, Occupant::Nobody));
                let is_up = is_served && !self.known_faults.contains_key(&key);
                let queues = counters.iter().map(|queue| Arc::as_ptr(queue) as usize).collect();
                let known = Known { name: name.to_owned(), is_up, queues };
                if running.known.get(&index) != Some(&known) {
                    let port = OpenFlowPort::new(name.to_owned(), is_up, counters.to_vec(), past.clone());
                    running.service.set_port(port_number(index), port);
                    running.is_ahead = true;
                }
                now.insert(index, known);
            }
            for index in running.known.keys().filter(|index| !now.contains_key(index)) {
                running.service.remove_port(port_number(*index));
            }
            running.known = now;
        }
        self.openflow.revision = fabric.revision();
    }

    /// Notifies controllers as [`Self::follow_openflow`] does, if a port came or left since.
    pub(crate) fn follow_openflow_ports(&mut self) {
        if !self.openflow.is_empty() && self.openflow.revision != self.table.fabric().revision() {
            self.hold_for_openflow();
            self.follow_openflow();
        }
    }

    /// Notifies controllers as [`Self::follow_openflow_ports`] does, and waits until the tables know all ports, for a
    /// request whose reply names a new port. A thread that is late processes the port after the reply.
    pub(crate) fn settle_openflow_ports(&mut self) {
        self.follow_openflow_ports();
        for running in self.openflow.running.values_mut().filter(|running| running.is_ahead) {
            running.is_ahead = !running.service.settle(SETTLE_TIME);
        }
    }
}
