//! Takeover of the ports of another daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringroad_control::message::PortSpec;
use ringroad_datapath::fabric::{QueueParts, Share};
use ringroad_drivers::absent::AbsentQueue;
use ringroad_drivers::catalogue::port_name::PortName;
use ringroad_drivers::catalogue::{plan_device_in, take_over_device};
use ringroad_drivers::device::{Device, DevicePlan, DeviceRole};
use ringroad_drivers::pipe::Pipe;
use ringroad_drivers::shm::{QueueEvents, ShmPort, ShmRegion};
use ringroad_port::counters::{CounterSnapshot, QueueCounters};
use ringroad_port::port_index::PortIndex;
use ringroad_port::port_queue::{HandOver, PortQueue};
use ringroad_port_table::entry::{Occupant, PipePort, SwitchPort};
use ringroad_ring::region::Region;
use ringroad_wire::mac::Mac;
use tracing::{info, warn};

use super::ReceivedDescriptors;
use super::flow_tables::bytes_of;
use super::state::{
    CountersState, DeviceState, HomeState, OccupantState, PipeState, PortsState, QueueState, RingsState,
    SwitchPortState,
};
use crate::attaching::{PortRecord, ReadyPorts, device_of};
use crate::claims::Claim;
use crate::port_entries::{Client, ClientId, Kept, PortOrigin};
use crate::ports::Ports;
use crate::quotas::{Demand, Holding};
use crate::refusal::Refusal;
use crate::restore::RestoreFile;
use crate::switch_settings::SwitchSettings;

/// The clients that came with the state.
pub(crate) type Clients = BTreeMap<ClientId, Client>;

/// A device that a program has open, with the program's rings.
struct Wiring {
    key: String,
    spec: PortSpec,
    client: Client,
    shm: ShmPort,
    rings: Vec<QueueParts>,
}

/// A device of a program, ready to be opened: no other port can take its side of an interface.
struct ReadyWiring {
    wiring: Wiring,
    name: PortName,
    plan: DevicePlan,
    claim: Claim,
    holding: Holding,
}

/// A device of a program that is opened once the other process has ended.
struct ReopenedDevice {
    key: String,
    client: ClientId,
    /// Reason for the refusal, if the device cannot be opened.
    ready: Result<ReadyWiring, String>,
}

/// Ports and devices that are opened once the other process has ended.
#[derive(Default)]
pub(crate) struct Reopenings {
    /// Ports of switches.
    ports: ReadyPorts,
    /// Devices of programs.
    devices: Vec<ReopenedDevice>,
}

impl Reopenings {
    /// Names of ports that cannot be opened, each with the reason.
    pub(crate) fn refused(&self) -> BTreeMap<String, String> {
        let refused =
            |device: &ReopenedDevice| Some((device.key.clone(), device.ready.as_ref().err()?.clone()));
        let devices = self.devices.iter().filter_map(refused);
        self.ports.refused().chain(devices).collect()
    }

    /// Names of all these ports.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.ports.keys().chain(self.devices.iter().map(|device| device.key.clone())).collect()
    }
}

/// Descriptors of the state, with the clients and regions that were taken over.
struct Arrival<'a> {
    descriptors: &'a mut ReceivedDescriptors,
    clients: &'a Clients,
    homes: Vec<Arc<ShmRegion>>,
}

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String + use<E> {
    let what = what.to_owned();
    move |error| format!("{what}: {error}")
}

fn message(refusal: Refusal) -> String {
    refusal.message
}

fn counters_of(counters: &CountersState) -> Arc<QueueCounters> {
    Arc::new(QueueCounters::resume(&CounterSnapshot::from(counters)))
}

impl Arrival<'_> {
    fn client(&self, id: ClientId) -> Result<&Client, String> {
        self.clients.get(&id).ok_or_else(|| format!("client {id} was not handed over"))
    }

    fn events(&mut self, events: &[[usize; 2]]) -> Result<Vec<QueueEvents>, String> {
        let pair = |&[kick, notify]: &[usize; 2]| {
            Ok(QueueEvents { kick: self.descriptors.take(kick)?, notify: self.descriptors.take(notify)? })
        };
        events.iter().map(pair).collect()
    }

    /// States that the queues of a device leave, and their counters.
    fn left(&mut self, queues: Vec<QueueState>) -> Result<(Vec<HandOver>, Vec<Arc<QueueCounters>>), String> {
        let mut left = Vec::with_capacity(queues.len());
        let mut all_counters = Vec::with_capacity(queues.len());
        for QueueState { numbers, descriptors, counters } in queues {
            let descriptors = descriptors.into_iter().map(|number| self.descriptors.take(number));
            left.push(HandOver { numbers, descriptors: descriptors.collect::<Result<_, _>>()? });
            all_counters.push(counters_of(&counters));
        }
        Ok((left, all_counters))
    }

    /// Takes over a program's rings; also returns the datapath's side of them.
    fn rings(
        &mut self,
        rings: RingsState,
        queues: &[QueueState],
    ) -> Result<(ShmPort, Vec<QueueParts>), String> {
        let events = self.events(&rings.events)?;
        let home = self.homes.get(rings.home).ok_or("a region was not handed over")?;
        let shm = ShmPort::resume(home, rings.placement, events);
        let mut parts = Vec::with_capacity(queues.len());
        for (number, queue) in (0u16..).zip(queues) {
            let counters = counters_of(&queue.counters);
            let port = shm.resume_queue(number, Arc::clone(&counters), &queue.numbers);
            let port: Box<dyn PortQueue> = Box::new(port.map_err(failed("a program's rings"))?);
            parts.push(QueueParts { port, counters });
        }
        Ok((shm, parts))
    }
}

/// Queues of a device with their earlier counters.
fn with_counters(device: &mut Device, counters: Vec<Arc<QueueCounters>>) -> Vec<QueueParts> {
    let queues = std::mem::take(&mut device.queues);
    let counters = counters.into_iter().chain(std::iter::repeat_with(Arc::default));
    queues.into_iter().zip(counters).map(|(port, counters)| QueueParts { port, counters }).collect()
}

impl Ports {
    /// Takes over the ports of another daemon, which stand still meanwhile, on a held fabric. Returns the ports whose
    /// devices must still be opened, without the ports that `config` does not have any more.
    ///
    /// # Errors
    /// Text that names the port or region that cannot be taken over; the other daemon continues then.
    pub(crate) fn arrive(
        &mut self,
        state: PortsState,
        descriptors: &mut ReceivedDescriptors,
        clients: &Clients,
        restore: RestoreFile,
        config: &[PortSpec],
    ) -> Result<Reopenings, String> {
        self.restore = restore;
        self.provisional = state.provisional;
        let fabric = self.table.fabric_mut();
        let applied = state.settings.apply_to_fabric(fabric, &SwitchSettings::default());
        applied.map_err(failed("mirrors"))?;
        self.openflow.await_predecessor(state.settings.openflow);
        let mut arrival = Arrival { descriptors, clients, homes: Vec::new() };
        for home in state.homes {
            let home = self.home_again(home, &mut arrival)?;
            arrival.homes.push(home);
        }
        for port in state.on_switches {
            self.take_up_port(port, &mut arrival)?;
        }
        let mut reopenings = Reopenings::default();
        for device in state.devices {
            reopenings.devices.extend(self.take_up_device(device, &mut arrival)?);
        }
        let is_wanted =
            |record: &PortRecord| record.origin != PortOrigin::Config || config.contains(&record.spec);
        reopenings.ports = self.make_ready(state.reopened.into_iter().filter(is_wanted).collect());
        for pipe in state.pipes {
            self.take_up_pipe(pipe, &mut arrival)?;
        }
        let fabric = self.table.fabric_mut();
        for (switch, learned) in state.learned {
            let learned = learned.into_iter().map(|(mac, port)| (0, Mac::from_octets(mac), PortIndex(port)));
            fabric.learn(&switch, learned);
        }
        for (switch, learned) in state.learned_in_vlans {
            let entry = |(vlan, mac, port)| (vlan, Mac::from_octets(mac), PortIndex(port));
            fabric.learn(&switch, learned.into_iter().map(entry));
        }
        let snapshot =
            |(switch, counters): (String, CountersState)| (switch, CounterSnapshot::from(&counters));
        let of_switches = state.departed_of_switches.into_iter().map(snapshot).collect();
        fabric.resume_departed(of_switches, (&state.departed).into());
        let mut counts = BTreeMap::new();
        for (switch, file) in state.flow_counts {
            let bytes = bytes_of(arrival.descriptors.take(file)?).map_err(failed("counts of flows"))?;
            counts.insert(switch, bytes);
        }
        self.resume_flow_tables(&counts)?;
        self.hold_for_openflow();
        Ok(reopenings)
    }

    fn home_again(&self, home: HomeState, arrival: &mut Arrival<'_>) -> Result<Arc<ShmRegion>, String> {
        let payer = self.quotas.memory_payer(arrival.client(home.payer)?);
        let memory = arrival.descriptors.take(home.memory)?;
        ShmRegion::inherit(home.shape, home.geometry, memory, &home.handed_out, Some(&payer))
            .map_err(failed("a region"))
    }

    fn take_up_port(&mut self, port: SwitchPortState, arrival: &mut Arrival<'_>) -> Result<(), String> {
        let key = format!("{}:{}", port.switch, port.port);
        let (occupant, queues) = match port.occupant {
            OccupantState::Nobody => {
                let unbound = |queue: &QueueState| QueueParts {
                    port: Box::new(AbsentQueue::unbound()),
                    counters: counters_of(&queue.counters),
                };
                (Occupant::Nobody, port.queues.iter().map(unbound).collect())
            }
            OccupantState::Program(rings) => {
                let owner = arrival.client(rings.client)?.clone();
                let (shm, queues) = arrival.rings(rings, &port.queues)?;
                (Occupant::Program { shm, owner }, queues)
            }
            OccupantState::Device { notes } => {
                let (left, counters) = arrival.left(port.queues)?;
                let mut device = Device { notes, ..self.take_over(&key, port.spec.as_ref(), left)? };
                let queues = with_counters(&mut device, counters);
                (Occupant::Device { device: Box::new(device), home: None }, queues)
            }
        };
        let share = occupant.owner().map_or(Share::Own, Client::share);
        let holding = match (&port.origin, occupant.owner()) {
            (PortOrigin::Program { .. }, Some(client)) => {
                self.quotas.hold(client, Demand::of_port(port.shape.queues)).map_err(message)?
            }
            _ => Holding::default(),
        };
        let settings = self.rules.settings(&key, &port.asked);
        let kept = Kept { asked: port.asked, spec: port.spec, ..Kept::new(port.origin, holding) };
        let SwitchPortState { switch, port: name, index, shape, is_persistent, past, .. } = port;
        let entry = SwitchPort { switch, port: name, index, shape, settings, occupant, is_persistent, kept };
        self.table.resume(entry, (&past).into(), share, queues).map_err(failed(&key))
    }

    /// Opens the device of a port of a switch, with the state that another process leaves of it.
    fn take_over(&self, key: &str, spec: Option<&PortSpec>, left: Vec<HandOver>) -> Result<Device, String> {
        let spec = spec.ok_or_else(|| format!("{key} has no description"))?;
        let named = device_of(spec).map_err(message)?.ok_or_else(|| format!("{key} has no device"))?;
        let ready = self.ready_device(key, named, None, &spec.properties, &ReadyPorts::default());
        let (ready, _) = ready.map_err(message)?;
        self.open_ready_device(ready, left).map(|(device, _)| device).map_err(message)
    }

    /// Takes over a device that a program has open. Returns the device if it must still be opened.
    fn take_up_device(
        &mut self,
        device: DeviceState,
        arrival: &mut Arrival<'_>,
    ) -> Result<Option<ReopenedDevice>, String> {
        let DeviceState { key, spec, rings, ring_queues, device_queues } = device;
        let client = arrival.client(rings.client)?.clone();
        let (shm, rings) = arrival.rings(rings, &ring_queues)?;
        let ready = self.ready_to_wire(Wiring { key: key.clone(), spec, client: client.clone(), shm, rings });
        let Some(queues) = device_queues else {
            return Ok(Some(ReopenedDevice { key, client: client.id, ready }));
        };
        let (left, counters) = arrival.left(queues)?;
        self.wire_again(ready?, left, counters).map(|()| None)
    }

    /// Checks that a device can be opened for the program that has it.
    fn ready_to_wire(&self, wiring: Wiring) -> Result<ReadyWiring, String> {
        let Wiring { key, spec, client, shm, .. } = &wiring;
        let named = device_of(spec).map_err(message)?.ok_or_else(|| format!("{key} has no device"))?;
        let queues = Some(shm.home().shape().queues);
        let plan = plan_device_in(named.netns.as_ref(), &named.name, queues).map_err(failed(key))?;
        let holder = format!("{key}, open in {client}");
        let claim = Claim::take(plan.side, &holder).map_err(message)?;
        let holding = self.quotas.hold(client, Demand::of_device(plan.queues)).map_err(message)?;
        Ok(ReadyWiring { wiring, name: named.name, plan, claim, holding })
    }

    /// Wires a device again to the rings of the program that has it open.
    fn wire_again(
        &mut self,
        ready: ReadyWiring,
        left: Vec<HandOver>,
        counters: Vec<Arc<QueueCounters>>,
    ) -> Result<(), String> {
        let ReadyWiring { wiring: Wiring { key, spec, client, shm, rings }, name, plan, claim, holding } =
            ready;
        let mut device = take_over_device(&name, plan, DeviceRole::Program, Some(shm.home()), left)
            .map_err(failed(&key))?;
        claim.give_to(&mut device);
        let queues = with_counters(&mut device, counters);
        let kept = Kept { spec: Some(spec), ..Kept::of_program(&client, holding) };
        let (share, failed) = (client.share(), failed(&key));
        self.table.resume_device(key, (device, shm), (client, kept), share, [rings, queues]).map_err(failed)
    }

    fn take_up_pipe(&mut self, pipe: PipeState, arrival: &mut Arrival<'_>) -> Result<(), String> {
        let owner = |id: Option<ClientId>| id.map(|id| arrival.client(id).cloned()).transpose();
        let owners = [owner(pipe.owners[0])?, owner(pipe.owners[1])?];
        let payer = owners.iter().flatten().next().ok_or("a pipe without ends")?;
        let demand = Demand { pipes: 1, queues: pipe.shape.queues.into(), ..Demand::default() };
        let holding = self.quotas.hold(payer, demand).map_err(message)?;
        let payer = self.quotas.memory_payer(payer);
        let region = Region::inherit(Some(&payer), pipe.geometry, arrival.descriptors.take(pipe.memory)?)
            .map_err(failed("a pipe's region"))?;
        let events = arrival.events(&pipe.events)?;
        let kept = Kept::new(pipe.origin, holding);
        let port =
            PipePort { pipe: Pipe::resume(region, pipe.placements, events), shape: pipe.shape, owners, kept };
        self.table.resume_pipe(pipe.name, port);
        Ok(())
    }

    /// Opens the devices that could not be handed over, once the other process has ended. Ports of switches that cannot
    /// be opened wait. A program whose device cannot be opened is notified as if the device had ended; returns the
    /// clients of these programs.
    pub(crate) fn open_anew(&mut self, reopenings: Reopenings) -> Vec<ClientId> {
        let mut lost = Vec::new();
        for ReopenedDevice { key, client, ready } in reopenings.devices {
            match ready.and_then(|ready| self.wire_again(ready, Vec::new(), Vec::new())) {
                Ok(()) => info!(port = %key, "reopened"),
                Err(why) => {
                    warn!(port = %key, reason = %why, "a program's device is not there any more");
                    lost.push(client);
                }
            }
        }
        for (record, opened) in self.enter_each(reopenings.ports) {
            match (opened, &record.origin) {
                (Ok(port), _) => {
                    info!(port = %port.name, driver = %port.driver, mode = %port.mode, "reopened")
                }
                (Err(refusal), PortOrigin::Config) => {
                    warn!(port = %record.spec.name, reason = %refusal.message, "not reopened");
                    self.waiting.insert(record.spec.name, refusal.message);
                }
                (Err(refusal), _) => {
                    self.restore.note_refusal(record, refusal);
                }
            }
        }
        lost
    }
}
