//! The datapath's side of a netmap port's rings: the queues on a switch, or the wires to a device.

use std::sync::Arc;

use ringroad_datapath::fabric::{Fabric, QueueParts, Share, WireId};
use ringroad_drivers::catalogue::port_kind::{DeviceName, InterfaceUse};
use ringroad_drivers::catalogue::port_name::PortName;
use ringroad_drivers::catalogue::{open_device, plan_device, plan_device_in};
use ringroad_drivers::device::{Device, DeviceRole};
use ringroad_drivers::shm::{NetmapQueue, ShmQueue};
use ringroad_netdev::namespace::HeldNamespace;
use ringroad_port_table::entry::SwitchPortName;
use ringroad_port_table::opening::{take_queues, unbound};
use ringroad_ring::datapath_end::{RxPutEnd, SlotRule, TxTakeEnd};
use ringroad_ring::layout::Direction;
use rustix::io::Errno;
use tracing::info;

use super::failure::{NetmapFailure, fail};
use super::port::{Kind, NetmapPort, offset_mask};
use crate::claims::Claim;
use crate::port_entries::DaemonPortTable;

/// Service of a port.
#[derive(Debug, Default)]
pub(crate) enum Service {
    /// No service.
    #[default]
    None,
    /// The port's queues are on a switch.
    Switch,
    /// A persistent port that is on no switch: its sent frames are discarded.
    Drain(WireId),
    /// A network interface: its own queues, and the host stack's side.
    Interface { nic: Option<Box<OpenSide>>, host: Option<Box<OpenSide>> },
}

/// A side of an interface that is open.
#[derive(Debug)]
pub(crate) struct OpenSide {
    pub(crate) wire: WireId,
    pub(crate) device: Device,
}

impl NetmapPort {
    /// Makes the datapath's side of queue `queue`; host queues follow the others.
    fn queue(&self, queue: u16) -> Result<QueueParts, NetmapFailure> {
        let index = usize::from(queue);
        let (Some(events), Some(state)) = (self.events.get(index), self.states.get(index)) else {
            return Err(fail(Errno::IO, "a queue without eventfds"));
        };
        let of = |direction| {
            self.rings.iter().find(|ring| ring.direction == direction && self.events_of(ring) == queue)
        };
        let (mask, max) = self.offsets.map_or((0, 0), |offsets| (offset_mask(&offsets), offsets.max as u32));
        let take = match of(Direction::Tx) {
            Some(ring) => {
                let mut take = TxTakeEnd::take_up(self.view(ring)?);
                take.set_rules(SlotRule::Pardon, mask, max);
                Some(take)
            }
            None => None,
        };
        let put = match of(Direction::Rx) {
            Some(ring) => {
                let mut put = RxPutEnd::take_up(self.view(ring)?);
                put.set_rules(SlotRule::Pardon, mask, max);
                Some(put)
            }
            None => None,
        };
        let counters = Arc::default();
        let exchanges = matches!(self.kind, Kind::Interface { .. }) && self.offsets.is_none();
        let region = self.memory.home.region();
        let queue = ShmQueue::of_ends(region, take, put, events.try_clone()?, Arc::clone(&counters));
        Ok(QueueParts { port: Box::new(NetmapQueue::new(queue, exchanges, Arc::clone(state))), counters })
    }

    /// Share of the workers' time that serves the port. Programs bind one port together, so the memory id stands for
    /// the program.
    pub(crate) fn share(&self) -> Share {
        Share::Program { user: self.memory.uid, program: self.memory.id.into() }
    }

    /// Position on a switch under the port's own name.
    pub(crate) fn name_on<'a>(&'a self, switch: &'a str) -> SwitchPortName<'a> {
        SwitchPortName { switch, port: &self.name }
    }

    /// Makes the datapath's side of the queues that are not host queues.
    pub(crate) fn queue_parts(&self) -> Result<Vec<QueueParts>, NetmapFailure> {
        (0..self.queues()).map(|queue| self.queue(queue)).collect()
    }

    /// Whether the port has rings that nothing serves.
    pub(crate) fn is_unserved(&self) -> bool {
        matches!(self.service, Service::None) && !self.rings.is_empty()
    }

    /// Adapts the datapath to the present use of the port: its laid-out rings, its bound rings, its switch. An
    /// ephemeral port joins its switch with its first binding, and is unchanged here.
    pub(crate) fn serve(&mut self, fabric: &mut Fabric) -> Result<(), NetmapFailure> {
        match self.kind.clone() {
            Kind::Persistent { switch: None, .. } => {
                if self.is_unserved() {
                    let drains = take_queues(&mut open_drain(self.queues())?);
                    self.service = Service::Drain(fabric.wire(self.share(), self.queue_parts()?, drains)?);
                }
            }
            Kind::Persistent { switch: Some(switch), .. } => {
                let served = matches!(self.service, Service::Switch);
                if served == self.rings.is_empty() {
                    let queues = if served { unbound(self.queues()) } else { self.queue_parts()? };
                    fabric.replace(&switch, &self.name, self.share(), queues)?;
                    self.service = if served { Service::None } else { Service::Switch };
                }
            }
            Kind::Interface { interface, netns } => self.serve_interface(fabric, &interface, &netns)?,
            Kind::Ephemeral { .. } | Kind::Pipe { .. } | Kind::Monitor { .. } | Kind::Null => {}
        }
        Ok(())
    }

    /// Opens and closes the two sides of an interface according to its bound rings.
    fn serve_interface(
        &mut self,
        fabric: &mut Fabric,
        interface: &str,
        netns: &HeldNamespace,
    ) -> Result<(), NetmapFailure> {
        let used = |host| self.rings.iter().any(|ring| ring.host == host && ring.users > 0);
        let (nic_used, host_used) = (used(false), used(true));
        let (mut nic, mut host) = match std::mem::take(&mut self.service) {
            Service::Interface { nic, host } => (nic, host),
            _ => (None, None),
        };
        let is_generic = |nic: &Option<Box<OpenSide>>| {
            nic.as_ref().is_some_and(|nic| nic.device.capabilities.mode.contains("generic"))
        };
        let mut open = || {
            let own = format!("{interface}@queues={}", self.queues());
            nic = self.side(fabric, netns, nic.take(), nic_used, &own)?;
            if host_used && is_generic(&nic) {
                nic = self.side(fabric, netns, nic.take(), false, &own)?;
                // An XDP program in generic mode would take the host's frames; a packet socket leaves them.
                let beside_host = format!("packet:{interface}@immediate=1,queues={}", self.queues());
                nic = self.side(fabric, netns, nic.take(), nic_used, &beside_host)?;
            }
            let host_stack = format!("{interface}^@queues={}", self.host_queues());
            host = self.side(fabric, netns, host.take(), host_used, &host_stack)?;
            Ok(())
        };
        let opened = open();
        self.service = Service::Interface { nic, host };
        opened
    }

    fn side(
        &self,
        fabric: &mut Fabric,
        netns: &HeldNamespace,
        side: Option<Box<OpenSide>>,
        used: bool,
        name: &str,
    ) -> Result<Option<Box<OpenSide>>, NetmapFailure> {
        match (side, used) {
            (Some(side), false) => {
                fabric.unwire(side.wire)?;
                Ok(None)
            }
            (None, true) => {
                let wrong = |error| fail(Errno::INVAL, format!("{}: {error}", self.name));
                let name: PortName = name.parse().map_err(wrong)?;
                let plan = plan_device_in(Some(netns), &name, None)?;
                let holder = format!("netmap programs, as {}", self.name);
                let claim = Claim::take(plan.side, &holder)?;
                let mut device = open_device(&name, plan, DeviceRole::Program, Some(&self.memory.home))?;
                claim.give_to(&mut device);
                for note in &device.notes {
                    info!(visited = %self.name, "{note}");
                }
                let queues = take_queues(&mut device);
                let host = name.base.device().and_then(DeviceName::interface);
                let host = matches!(host, Some((_, InterfaceUse::HostStack)));
                let own = match host {
                    false => self.queue_parts()?,
                    true => {
                        let first = self.queues();
                        (first..first + self.host_queues())
                            .map(|queue| self.queue(queue))
                            .collect::<Result<_, _>>()?
                    }
                };
                Ok(Some(Box::new(OpenSide { wire: fabric.wire(self.share(), own, queues)?, device })))
            }
            (side, _) => Ok(side),
        }
    }

    /// Takes the port out of the datapath.
    pub(crate) fn end_service(&mut self, table: &mut DaemonPortTable) -> Result<(), NetmapFailure> {
        let fabric = table.fabric_mut();
        match std::mem::take(&mut self.service) {
            Service::None => {}
            Service::Switch => match &self.kind {
                Kind::Ephemeral { switch, port } => {
                    table.detach(&SwitchPortName { switch, port }.to_string())?;
                }
                Kind::Persistent { switch: Some(switch), .. } => {
                    fabric.replace(switch, &self.name, self.share(), unbound(self.queues()))?;
                }
                _ => {}
            },
            Service::Drain(wire) => fabric.unwire(wire)?,
            Service::Interface { nic, host } => {
                for side in [nic, host].into_iter().flatten() {
                    fabric.unwire(side.wire)?;
                }
            }
        }
        Ok(())
    }
}

fn open_drain(queues: u16) -> Result<Device, NetmapFailure> {
    let name: PortName = format!("null:no-rx=1@queues={queues}")
        .parse()
        .map_err(|error| fail(Errno::IO, format!("the drain: {error}")))?;
    let plan = plan_device(&name, None)?;
    Ok(open_device(&name, plan, DeviceRole::Program, None)?)
}
