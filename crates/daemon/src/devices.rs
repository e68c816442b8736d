//! Ports with a device behind them: opened for a program, or attached to a switch.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringroad_control::message::{ErrorKind, OpenedPort, PortKind, PortWish};
use ringroad_datapath::fabric::{FabricError, QueueParts};
use ringroad_drivers::catalogue::port_kind::DeviceName;
use ringroad_drivers::catalogue::port_name::{PortBase, PortName};
use ringroad_drivers::catalogue::{forms, is_device, is_own_device, open_device, plan_device_in};
use ringroad_drivers::device::{Device, DeviceError, Role};
use ringroad_drivers::shm::{PortShape, ShmRegion};
use ringroad_netdev::namespace::HeldNamespace;
use ringroad_ring::eventfd;
use tracing::{info, warn};

use crate::claims::Claim;
use crate::port_entries::{Client, ClientId, DevicePort, Opened, place};
use crate::ports::Ports;
use crate::quotas::Demand;
use crate::refusal::{Refusal, device_refusal, fabric_refusal, refuse, region_refusal};

/// What a device brings to a port of a switch.
pub(crate) struct SwitchDevice {
    pub(crate) queues: Vec<QueueParts>,
    pub(crate) device: Device,
    pub(crate) home: Option<Arc<ShmRegion>>,
    pub(crate) sizes: PortShape,
}

/// A device that somebody has named: an interface stands in one namespace, while others may have one of its name.
#[derive(Debug, Clone)]
pub struct NamedDevice {
    /// As it was typed.
    pub(crate) spelled: String,
    pub(crate) name: PortName,
    /// Where its interface is, if it has one.
    pub(crate) netns: Option<HeldNamespace>,
}

impl NamedDevice {
    /// Under which name it is known, and permitted: interfaces of other namespaces than the daemon's are called after these.
    #[must_use]
    pub fn key(&self) -> String {
        key_in(&self.name.base.to_string(), self.netns.as_ref())
    }
}

/// How a device called `base` is known where its interface is in `netns`.
pub(crate) fn key_in(base: &str, netns: Option<&HeldNamespace>) -> String {
    match netns {
        Some(netns) if !netns.is_current() => format!("{base}@netns={}", netns.label()),
        _ => base.to_owned(),
    }
}

impl Ports {
    /// Opens a device for a program, in one region with it.
    pub(crate) fn open_device_port(
        &mut self,
        named: &NamedDevice,
        wish: &PortWish,
        client: &Client,
    ) -> Result<Opened, Refusal> {
        let NamedDevice { name, netns, .. } = named;
        if is_own_device(&name.base) {
            return Err(refuse(
                ErrorKind::Unsupported,
                format!("{} is not a port of the daemon", name.base),
                "open it in the program itself, or put it on a switch: ringroad attach vale0:NAME --driver DEVICE",
            ));
        }
        let mut key = named.key();
        if let Some(port) = self.devices.get(&key) {
            return Err(refuse(
                ErrorKind::PortTaken,
                format!("port {key} is in use by {}", port.owner),
                "end that program",
            ));
        }
        let shared = match &name.options.share {
            // The other device is in the same namespace unless it is named otherwise.
            Some(other) => {
                let beside = key_in(other, netns.as_ref());
                let known = [&beside, other].into_iter().find(|key| self.devices.contains_key(*key));
                Some(self.home_of(known.unwrap_or(other), client)?)
            }
            None => None,
        };
        // The rings of a shared region come in as many pairs as it has.
        let queues = shared.as_ref().map(|home| home.shape().queues).or(wish.queues);
        let failed = |error: DeviceError| device_refusal(&key, &error);
        let plan = plan_device_in(netns.as_ref(), name, queues).map_err(failed)?;
        let holder = format!("{key}, open in {client}");
        let claim = plan.side.map(|side| Claim::take(side, &holder)).transpose()?;
        if let Some(home) = shared.as_ref().filter(|home| home.shape().queues != plan.queues) {
            return Err(refuse(
                ErrorKind::BadWish,
                format!(
                    "{key} is to have {} queues in a region whose ports have {}",
                    plan.queues,
                    home.shape().queues
                ),
                "leave the number of queues out, or do not share",
            ));
        }
        let wished = PortShape::of(&name.options, wish).for_device(&plan);
        let holding = self.quotas.hold(client, Demand::of_device(plan.queues))?;
        let home = match shared {
            Some(home) => home,
            None => {
                ShmRegion::create(wished, Some(&self.quotas.memory_payer(client))).map_err(region_refusal)?
            }
        };
        let mut device = open_device(name, plan, Role::Program, Some(&home)).map_err(failed)?;
        if let Some(claim) = claim {
            claim.give_to(&mut device);
        }
        if let (PortBase::Device(asked), Some(made)) = (&name.base, &device.interface)
            && asked.target.is_empty()
        {
            let made = DeviceName { kind: asked.kind, target: made.name.clone() };
            key = key_in(&made.to_string(), netns.as_ref());
        }
        let (shm, queues) = place(&home, &key)?;
        let events = shm.clone_events().map_err(region_refusal)?;
        let device_queues = parts(&mut device);
        let wire = self.fabric.wire(client.share(), queues, device_queues).map_err(fabric_refusal)?;
        for note in &device.notes {
            info!(port = %key, user = client.peer.uid, "{note}");
        }
        let (region, placement) = (Arc::clone(shm.region()), shm.placement().clone());
        let reply = OpenedPort {
            name: key.clone(),
            kind: PortKind::Device,
            mode: device.capabilities.mode.clone(),
            driver: Some(device.capabilities.driver.to_owned()),
            notes: device.notes.clone(),
            geometry: *region.geometry(),
            queue_count: placement.tx_rings.len() as u16,
            placement,
            peer_placement: None,
            switch: None,
            switch_index: None,
        };
        let sizes = *home.shape();
        self.devices
            .insert(key, DevicePort { wire, device, sizes, owner: client.clone(), shm, _holding: holding });
        Ok(Opened::new(reply, region, events))
    }

    /// Opens a device for the port `key` of a switch.
    pub(crate) fn open_switch_device(
        &self,
        key: &str,
        named: &NamedDevice,
        share: Option<&str>,
        wish: &PortWish,
    ) -> Result<SwitchDevice, Refusal> {
        let NamedDevice { spelled: text, name, netns } = named;
        if !is_device(&name.base) {
            return Err(refuse(
                ErrorKind::BadName,
                format!("{text} is not a device"),
                format!("devices are {}", forms()),
            ));
        }
        let failed = |error: DeviceError| device_refusal(text, &error);
        let plan = plan_device_in(netns.as_ref(), name, wish.queues).map_err(failed)?;
        let claim = plan.side.map(|side| Claim::take(side, key)).transpose()?;
        let sizes = PortShape::of(&name.options, wish).for_device(&plan);
        let share = name.options.share.as_deref().or(share);
        let home = match share {
            Some(other) => Some(self.device_home(other)?),
            None if plan.region_buffers > 0 => {
                Some(ShmRegion::create(sizes, Some(&self.quotas.own_payer())).map_err(region_refusal)?)
            }
            None => None,
        };
        let mut device = open_device(name, plan, Role::SwitchPort, home.as_ref()).map_err(failed)?;
        if let Some(claim) = claim {
            claim.give_to(&mut device);
        }
        if let Some(peer) = &device.peer {
            peer.ring_at_changes(Arc::clone(&self.peer_changes));
        }
        let queues = parts(&mut device);
        Ok(SwitchDevice { queues, device, home, sizes })
    }

    /// The region of a device on a switch.
    fn device_home(&self, other: &str) -> Result<Arc<ShmRegion>, Refusal> {
        let home = self.on_switches.get(other).and_then(|port| port.home.clone());
        home.ok_or_else(|| {
            refuse(
                ErrorKind::NoSuchPort,
                format!("{other} is no port with a device that has a region to share"),
                "attach an interface served by AF_XDP first, and name it as vale0:eth0",
            )
        })
    }

    /// Looks at all devices, and logs which have failed or recovered since the last look.
    pub(crate) fn watch_devices(&mut self) -> Result<(), FabricError> {
        let mut faults = BTreeMap::new();
        for (key, port) in self.on_switches.iter().filter(|(_, port)| port.device.is_some()) {
            faults
                .extend(self.fabric.port_fault(&port.switch, &port.port)?.map(|fault| (key.clone(), fault)));
        }
        self.fabric.end_wires()?;
        for (key, port) in &self.devices {
            faults.extend(self.fabric.wire_fault(port.wire)?.map(|fault| (key.clone(), fault)));
        }
        for (port, fault) in &faults {
            if self.known_faults.get(port) != Some(fault) {
                warn!(%port, "{fault}");
            }
        }
        for port in self.known_faults.keys().filter(|port| !faults.contains_key(*port)) {
            info!(%port, "works again, or was removed");
        }
        self.known_faults = faults;
        Ok(())
    }

    /// Looks at the peers of all devices: sends frames only to the queues that they use, and logs what has changed since the last look.
    pub(crate) fn follow_peers(&mut self) -> Result<(), FabricError> {
        eventfd::drain(&*self.peer_changes);
        let mut peers = BTreeMap::new();
        for (key, port) in &self.on_switches {
            let Some(peer) = port.device.as_ref().and_then(|device| device.peer.as_ref()) else { continue };
            let (now, before) = (peer.status(), self.known_peers.remove(key).unwrap_or_default());
            if now.active_queues != before.active_queues {
                self.fabric.use_queues(&port.switch, &port.port, now.active_queues)?;
            }
            if now.connections != before.connections {
                info!(visited = %key, "a peer has connected");
            }
            if now.active_queues != before.active_queues && now.active_queues != 0 {
                info!(visited = %key, queues = now.active_queues, "the peer is in service: {}", now.agreed);
            }
            if before.is_connected && !now.is_connected && now.last_error.is_none() {
                info!(visited = %key, "the peer has left");
            }
            if let Some(error) =
                now.last_error.as_ref().filter(|error| before.last_error.as_ref() != Some(*error))
            {
                warn!(visited = %key, "no peer: {error}");
            }
            peers.insert(key.clone(), now);
        }
        self.known_peers = peers;
        Ok(())
    }

    /// Takes back the devices that a client had open.
    pub(crate) fn close_devices(&mut self, client: ClientId) -> Result<(), FabricError> {
        let keys: Vec<String> = self
            .devices
            .iter()
            .filter(|(_, port)| port.owner.id == client)
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            if let Some(port) = self.devices.remove(&key) {
                port.shm.home().program_has_gone();
                self.fabric.unwire(port.wire)?;
            }
        }
        Ok(())
    }
}

/// A device's queues, for the fabric.
pub(crate) fn parts(device: &mut Device) -> Vec<QueueParts> {
    std::mem::take(&mut device.queues).into_iter().map(QueueParts::new).collect()
}
