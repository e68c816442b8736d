//! State of the ports of a daemon whose workers stand still, for another process to take over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringroad_datapath::fabric::{FabricError, PortLeft, QueueLeft};
use ringroad_drivers::catalogue::port_name::PipeSide;
use ringroad_drivers::shm::{QueueEvents, ShmPort, ShmRegion};
use ringroad_port::counters::CounterSnapshot;
use ringroad_port_table::entry::{Occupant, SwitchPort};

use super::state::{
    DeviceState, HomeState, OccupantState, PipeState, PortsState, QueueState, RingsState, SwitchPortState,
};
use crate::port_entries::{Client, ClientId, Kept, record_of};
use crate::ports::Ports;
use crate::switch_settings::SwitchSettings;

/// Reason why a port is lost whose queues cannot be handed over.
const RINGS_STAY: &str = "its rings cannot be handed over";

/// A descriptor on its way to the other process.
#[derive(Debug)]
enum SentDescriptor<'a> {
    Shared(BorrowedFd<'a>),
    Own(OwnedFd),
}

/// The descriptors that go with a state.
#[derive(Debug, Default)]
pub(crate) struct SentDescriptors<'a>(Vec<SentDescriptor<'a>>);

impl<'a> SentDescriptors<'a> {
    /// Adds a descriptor that stays in use here until the other process takes over.
    pub(crate) fn share(&mut self, descriptor: &'a impl AsFd) -> usize {
        self.0.push(SentDescriptor::Shared(descriptor.as_fd()));
        self.0.len() - 1
    }

    fn share_events(&mut self, events: &'a [QueueEvents]) -> Vec<[usize; 2]> {
        events.iter().map(|pair| [self.share(&pair.kick), self.share(&pair.notify)]).collect()
    }

    /// Adds the state that a queue leaves; `None` if another process could not continue with it.
    fn add(&mut self, left: QueueLeft) -> Option<QueueState> {
        let hand_over = left.hand_over?;
        let from = self.0.len();
        self.0.extend(hand_over.descriptors.into_iter().map(SentDescriptor::Own));
        let descriptors = (from..self.0.len()).collect();
        Some(QueueState { numbers: hand_over.numbers, descriptors, counters: (&left.counters).into() })
    }

    /// All descriptors in order.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let borrow = |leaving| match leaving {
            &SentDescriptor::Shared(descriptor) => descriptor,
            SentDescriptor::Own(descriptor) => descriptor.as_fd(),
        };
        self.0.iter().map(borrow).collect()
    }
}

/// Collected state of all ports.
struct Departure<'a, 'b> {
    state: PortsState,
    sent: &'b mut SentDescriptors<'a>,
    homes: Vec<&'a Arc<ShmRegion>>,
}

impl Ports {
    /// State that another process needs to take over all ports. The workers have quiesced.
    ///
    /// # Errors
    /// A worker that is gone.
    pub(crate) fn leave<'a>(&'a self, sent: &mut SentDescriptors<'a>) -> Result<PortsState, FabricError> {
        let fabric = self.table.fabric();
        let (of_switches, departed) = fabric.departed();
        let mut state = PortsState {
            settings: SwitchSettings::in_force(self),
            departed_of_switches: of_switches
                .iter()
                .map(|(name, counters)| (name.clone(), counters.into()))
                .collect(),
            departed: (&departed).into(),
            waiting: self.restore.waiting.clone(),
            last_number: self.restore.last_number,
            provisional: self.provisional.clone(),
            ..PortsState::default()
        };
        for switch in fabric.switch_names() {
            let learned = fabric.mac_table(switch).unwrap_or_default().into_iter();
            let (tagged, untagged): (Vec<_>, Vec<_>) =
                learned.filter(|entry| !entry.is_static).partition(|entry| entry.vlan != 0);
            let untagged = untagged.iter().map(|entry| (entry.mac.octets(), entry.port.0));
            let tagged = tagged.iter().map(|entry| (entry.vlan, entry.mac.octets(), entry.port.0));
            state.learned.insert(switch.to_owned(), untagged.collect());
            state.learned_in_vlans.insert(switch.to_owned(), tagged.collect());
        }
        let mut departure = Departure { state, sent, homes: Vec::new() };
        for (key, port) in self.table.on_switches() {
            departure.add_port(key, port, fabric.hand_over_port(&port.switch, &port.port)?);
        }
        for (key, port) in self.table.devices() {
            let [rings, queues] = fabric.hand_over_wire(port.wire)?;
            let (Some(ring_queues), device_queues) = (departure.add_all(rings), departure.add_all(queues))
            else {
                departure.lose(key, RINGS_STAY);
                continue;
            };
            let Some(spec) = port.kept.spec.clone() else {
                departure.lose(key, "the daemon does not know how it was opened");
                continue;
            };
            let rings = departure.rings(&port.shm, port.owner.id);
            let device = DeviceState { key: key.clone(), spec, rings, ring_queues, device_queues };
            departure.state.devices.push(device);
        }
        // Ports are sorted in the order in which they were attached: an interface before its host stack's side, a card
        // before its programs.
        departure.state.reopened.sort_by_key(|record| record.origin.number());
        for (name, port) in self.table.pipes() {
            let pipe = &port.pipe;
            let state = PipeState {
                name: name.clone(),
                shape: port.shape,
                geometry: *pipe.region().geometry(),
                memory: departure.sent.share(&**pipe.region()),
                placements: [PipeSide::Master, PipeSide::Slave].map(|side| pipe.placement(side).clone()),
                events: departure.sent.share_events(pipe.events()),
                owners: [0, 1].map(|end: usize| port.owners[end].as_ref().map(|owner| owner.id)),
                origin: port.kept.origin.clone(),
            };
            departure.state.pipes.push(state);
        }
        Ok(departure.state)
    }
}

impl<'a> Departure<'a, '_> {
    fn add_port(&mut self, key: &str, port: &'a SwitchPort<Client, Kept>, left: PortLeft) {
        let PortLeft { queues, past } = left;
        let mut counters = past.clone();
        queues.iter().for_each(|queue| counters += queue.counters.clone());
        // Devices with a region cannot be handed over, since the kernel holds buffers of the region.
        let is_bound = matches!(&port.occupant, Occupant::Device { home: Some(_), .. });
        let queues = if is_bound { None } else { self.add_all(queues) };
        let occupant = match &port.occupant {
            Occupant::Nobody => OccupantState::Nobody,
            Occupant::Program { shm, owner } => OccupantState::Program(self.rings(shm, owner.id)),
            Occupant::Device { device, .. } => OccupantState::Device { notes: device.notes.clone() },
            Occupant::Netmap { .. } => {
                self.keep_counters(port, &counters);
                return self.lose(key, "rings of netmap programs cannot be handed over");
            }
        };
        let Some(queues) = queues else {
            self.keep_counters(port, &counters);
            return match (&port.occupant, record_of(port)) {
                (Occupant::Device { .. }, Some(record)) => self.state.reopened.push(record),
                _ => self.lose(key, RINGS_STAY),
            };
        };
        self.state.on_switches.push(SwitchPortState {
            switch: port.switch.clone(),
            port: port.port.clone(),
            index: port.index,
            shape: port.shape,
            is_persistent: port.is_persistent,
            spec: port.kept.spec.clone(),
            asked: port.kept.asked.clone(),
            origin: port.kept.origin.clone(),
            occupant,
            queues,
            past: (&past).into(),
        });
    }

    /// Adds the counters of a port that is not handed over to those of its switch.
    fn keep_counters(&mut self, port: &SwitchPort<Client, Kept>, counters: &CounterSnapshot) {
        let departed = self.state.departed_of_switches.entry(port.switch.clone()).or_default();
        let mut sum = CounterSnapshot::from(&*departed);
        sum += counters.clone();
        *departed = (&sum).into();
    }

    fn lose(&mut self, key: &str, why: &str) {
        self.state.lost.insert(key.to_owned(), why.to_owned());
    }

    /// States that all queues of a port leave; `None` if one leaves none.
    fn add_all(&mut self, queues: Vec<QueueLeft>) -> Option<Vec<QueueState>> {
        queues.into_iter().map(|queue| self.sent.add(queue)).collect()
    }

    fn rings(&mut self, shm: &'a ShmPort, client: ClientId) -> RingsState {
        RingsState {
            client,
            home: self.home(shm.home(), client),
            placement: shm.placement().clone(),
            events: self.sent.share_events(shm.events()),
        }
    }

    /// Index of a region in the list of regions that are handed over. The first client found in the region pays for it.
    fn home(&mut self, home: &'a Arc<ShmRegion>, payer: ClientId) -> usize {
        if let Some(known) = self.homes.iter().position(|known| Arc::ptr_eq(known, home)) {
            return known;
        }
        self.homes.push(home);
        self.state.homes.push(HomeState {
            shape: *home.shape(),
            geometry: *home.region().geometry(),
            handed_out: home.allocator().handed_out(),
            memory: self.sent.share(&**home.region()),
            payer,
        });
        self.homes.len() - 1
    }
}
