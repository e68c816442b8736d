//! Start of flow tables on a switch: the port for controllers, the sockets, the thread, and the workers' forwarding
//! planes.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use ringroad_control::listening_socket::BoundSocket;
use ringroad_control::message::{ErrorKind, OpenFlow};
use ringroad_datapath::fabric::{QueueParts, Share};
use ringroad_drivers::dgram;
use ringroad_flow_tables::forwarding_plane::FlowPlane;
use ringroad_flow_tables::state::WorkerTables;
use ringroad_openflow_agent::address::{ListenAddress, Transport};
use ringroad_openflow_agent::agent::{Agent, SwitchIdentity};
use ringroad_openflow_agent::service::{Controllers, Listeners, OpenFlowService};
use ringroad_port::clock::Clock;
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::forwarding_plane::ForwardingPlane;
use ringroad_switch::LearningSwitch;
use rustix::net::SocketType;

use super::settings::fail_mode;
use super::{CONTROLLERS_INDEX, CONTROLLERS_PORT, FlowTables, RunningSwitch};
use crate::ports::Ports;
use crate::refusal::{Refusal, fabric_refusal, refuse};

/// Permissions of the socket: only its owner may change flows.
const SOCKET_MODE: u32 = 0o600;
/// Backlog of the socket for tools: Open vSwitch's tools do not wait for room in the backlog, they fail. It is below
/// the least limit of the kernel (`net.core.somaxconn`).
const BACKLOG: i32 = 128;

impl Ports {
    pub(super) fn start_openflow(
        &mut self,
        settings: &OpenFlow,
        controllers: Controllers,
        listen: &[ListenAddress],
        datapath_id: u64,
    ) -> Result<RunningSwitch, Refusal> {
        let name = settings.switch.as_str();
        let failed = |what: String| refuse(ErrorKind::Busy, what, "");
        self.table.fabric().check_unset(name).map_err(fabric_refusal)?;
        let socket_path = self.openflow.folder.join(format!("{name}.mgmt"));
        let socket = BoundSocket::bind(&socket_path, SocketType::STREAM, Some(SOCKET_MODE))
            .and_then(|socket| socket.listen(BACKLOG))
            .map_err(|error| failed(error.to_string()))?;
        let unix = UnixListener::from(
            rustix::io::fcntl_dupfd_cloexec(&socket, 0)
                .map_err(|error| failed(format!("no descriptor: {error}")))?,
        );
        let mut listeners = Listeners { unix: vec![unix], ..Listeners::default() };
        for ListenAddress { transport, address } in listen {
            let listener = TcpListener::bind(address)
                .map_err(|error| failed(format!("cannot listen on {address}: {error}")))?;
            match transport {
                Transport::Tcp => listeners.tcp.push(listener),
                Transport::Tls => listeners.tls.push(listener),
            }
        }
        let workers = self.table.fabric().runners().len();
        let ready = self.openflow.ready.remove(name);
        let tables = ready.unwrap_or_else(|| self.openflow.empty_tables(workers));
        let begun = self
            .join_controllers(name, tables)
            .and_then(|tables| self.serve(settings, datapath_id, (controllers, listeners), tables))
            .and_then(|(service, needs, clock)| {
                let seen = needs.last().cloned().ok_or_else(|| failed("there is no worker".to_owned()))?;
                self.forward_by(name, needs, clock.clone())?;
                Ok((service, seen, clock))
            });
        match begun {
            Ok((service, seen, clock)) => Ok(RunningSwitch {
                settings: settings.clone(),
                datapath_id,
                service,
                seen,
                clock,
                socket_path,
                _socket: socket,
                known: BTreeMap::new(),
                is_ahead: false,
            }),
            Err(refusal) => {
                let _ = self.table.fabric_mut().detach(name, CONTROLLERS_PORT);
                Err(refusal)
            }
        }
    }

    /// Puts the port for controllers onto a switch, if the port is not there.
    pub(super) fn join_controllers(
        &mut self,
        switch: &str,
        mut tables: FlowTables,
    ) -> Result<FlowTables, Refusal> {
        if tables.packets.is_none() {
            let pair = dgram::pair();
            let (queue, packets) =
                pair.map_err(|error| refuse(ErrorKind::Busy, format!("no descriptor: {error}"), ""))?;
            let index_and_counters = (CONTROLLERS_INDEX, CounterSnapshot::default());
            let queues = vec![QueueParts::new(queue)];
            let fabric = self.table.fabric_mut();
            fabric
                .resume((switch, CONTROLLERS_PORT), index_and_counters, Share::Own, queues)
                .map_err(fabric_refusal)?;
            tables.packets = Some(packets);
        }
        Ok(tables)
    }

    /// Starts the thread of a switch's agent.
    fn serve(
        &self,
        settings: &OpenFlow,
        datapath_id: u64,
        (controllers, listeners): (Controllers, Listeners),
        tables: FlowTables,
    ) -> Result<(OpenFlowService, Vec<WorkerTables>, Clock), Refusal> {
        let name = settings.switch.as_str();
        let failed = |what: String| refuse(ErrorKind::Busy, what, "");
        let FlowTables { state, needs, clock, packets, agent_state } = tables;
        let learning = self.table.fabric().learning(name);
        let learning = learning.ok_or_else(|| failed(format!("there is no switch {name}")))?;
        let packets = packets.ok_or_else(|| failed("there is no port for controllers".to_owned()))?;
        let identity = SwitchIdentity {
            switch: name.to_owned(),
            datapath_id,
            version: format!("ringroad {}", env!("CARGO_PKG_VERSION")),
        };
        let agent_worker = needs.len().saturating_sub(1);
        let state = (state, agent_worker, clock.clone());
        let agent = Agent::new(identity, state, learning, fail_mode(settings.fail_mode));
        let agent_state = agent_state.as_ref().map(|(agent_state, _)| agent_state);
        let service = OpenFlowService::start(
            agent,
            controllers,
            listeners,
            packets,
            agent_state,
            ringroad_ring::heap::give_back,
        );
        let service = service.map_err(|error| failed(format!("starting the OpenFlow thread: {error}")))?;
        Ok((service, needs, clock))
    }

    /// Makes the workers forward by flow tables.
    pub(super) fn forward_by(
        &mut self,
        switch: &str,
        needs: Vec<WorkerTables>,
        clock: Clock,
    ) -> Result<(), Refusal> {
        let make = move |learning: Arc<LearningSwitch>, worker: u8| -> Box<dyn ForwardingPlane> {
            match needs.get(usize::from(worker)).cloned() {
                Some(needs) => Box::new(FlowPlane::new(needs, learning, CONTROLLERS_INDEX, clock.clone())),
                None => learning.forwarding_plane(),
            }
        };
        self.table.fabric_mut().set_forwarding_plane(switch, Some(Box::new(make))).map_err(fabric_refusal)
    }
}
