//! Ports of devices: opened for a program, or attached to a switch.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringroad_control::message::{ErrorKind, PortBackend, PortProperties, PortSpec};
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::catalogue::port_kind::DeviceName;
use ringroad_drivers::catalogue::port_name::{PortBase, PortName};
use ringroad_drivers::catalogue::{forms, is_own_device, open_device, plan_device_in, take_over_device};
use ringroad_drivers::device::{Device, DeviceError, DevicePlan, DeviceRole};
use ringroad_drivers::nic::{link_of, reset_fault};
use ringroad_drivers::peer::watch::PeerStatus;
use ringroad_drivers::shm::{PortShape, ShmRegion};
use ringroad_netdev::namespace::HeldNamespace;
use ringroad_port::port_queue::HandOver;
use ringroad_port_table::entry::Occupant;
use ringroad_port_table::opening::device_home;
use ringroad_ring::eventfd;
use tracing::{info, warn};

use crate::attaching::ReadyPorts;
use crate::claims::Claim;
use crate::namespace_scope::NamespaceScope;
use crate::port_entries::{Client, OpenReply};
use crate::ports::Ports;
use crate::quotas::Demand;
use crate::refusal::{Refusal, device_refusal, refuse, region_refusal, table_refusal};

/// A device of a port of a switch that is ready to be opened. No other port can take its side of an interface.
#[derive(Debug)]
pub(crate) struct ReadyDevice {
    pub(crate) named: NamedDevice,
    pub(crate) plan: DevicePlan,
    claim: Claim,
    home: Option<Arc<ShmRegion>>,
}

/// A device named in a request. Interfaces of several namespaces can have the same name, so the namespace belongs to
/// it.
#[derive(Debug, Clone)]
pub struct NamedDevice {
    /// Name as it was typed.
    pub(crate) spelled: String,
    pub(crate) name: PortName,
    /// Namespace of its interface, if it has one.
    pub(crate) netns: Option<HeldNamespace>,
}

pub(crate) fn parse_name(text: &str) -> Result<PortName, Refusal> {
    text.parse().map_err(|error| refuse(ErrorKind::BadName, format!("{error}"), ""))
}

impl NamedDevice {
    /// Finds the device that a requester at `scope` calls `text`.
    ///
    /// # Errors
    /// The refusal to send: the name is invalid, or its namespace cannot be found.
    pub(crate) fn find(text: &str, scope: NamespaceScope<'_>) -> Result<Self, Refusal> {
        let name = parse_name(text)?;
        let netns = scope.find(&name)?;
        Ok(Self { spelled: text.to_owned(), name, netns })
    }

    /// Name by which the device is known and permitted; it contains the namespace of an interface that is not in the
    /// daemon's namespace.
    #[must_use]
    pub fn key(&self) -> String {
        key_in(&self.name.base.to_string(), self.netns.as_ref())
    }
}

/// Name by which a device called `base` is known if its interface is in `netns`.
pub(crate) fn key_in(base: &str, netns: Option<&HeldNamespace>) -> String {
    match netns {
        Some(netns) if !netns.is_current() => format!("{base}@netns={}", netns.label()),
        _ => base.to_owned(),
    }
}

impl Ports {
    /// Opens a device for a program; both lie in one region.
    pub(crate) fn open_device_port(
        &mut self,
        named: &NamedDevice,
        properties: &PortProperties,
        client: &Client,
    ) -> Result<OpenReply, Refusal> {
        let NamedDevice { name, netns, .. } = named;
        if is_own_device(&name.base) {
            return Err(refuse(
                ErrorKind::Unsupported,
                format!("{} is not a port of the daemon", name.base),
                "open it in the program itself, or put it on a switch: ringroad attach vale0:NAME --driver DEVICE",
            ));
        }
        let mut key = named.key();
        if let Some(port) = self.table.devices().get(&key) {
            return Err(refuse(
                ErrorKind::PortTaken,
                format!("port {key} is in use by {}", port.owner),
                "end that program",
            ));
        }
        let shared = match &name.options.share {
            // The other device is in the same namespace unless its name has another one.
            Some(other) => {
                let beside = key_in(other, netns.as_ref());
                let devices = self.table.devices();
                let known = [&beside, other].into_iter().find(|key| devices.contains_key(*key));
                Some(self.home_of(known.unwrap_or(other), client)?)
            }
            None => None,
        };
        // Number of pairs of rings: a shared region fixes it for all its ports.
        let queues = shared.as_ref().map(|home| home.shape().queues).or(properties.queues);
        let failed = |error: DeviceError| device_refusal(&key, &error);
        let plan = plan_device_in(netns.as_ref(), name, queues).map_err(failed)?;
        let holder = format!("{key}, open in {client}");
        let claim = Claim::take(plan.side, &holder)?;
        let holding = self.quotas.hold(client, Demand::of_device(plan.queues))?;
        let shape = PortShape::of(&name.options, properties);
        let home = device_home(shared, &plan, shape, Some(&self.quotas.memory_payer(client)))
            .map_err(|error| table_refusal(&key, error))?;
        let mut device = open_device(name, plan, DeviceRole::Program, Some(&home)).map_err(failed)?;
        claim.give_to(&mut device);
        if let (PortBase::Device(asked), Some(made)) = (&name.base, &device.interface)
            && asked.target.is_empty()
        {
            let made = DeviceName { kind: asked.kind, target: made.name.clone() };
            key = key_in(&made.to_string(), netns.as_ref());
        }
        let (capabilities, notes) = (device.capabilities.clone(), device.notes.clone());
        let mut opener = client.opener(holding);
        opener.kept.spec = Some(PortSpec {
            properties: properties.clone(),
            netns: netns.as_ref().map(|netns| netns.id().inode()),
            ..PortSpec::for_device(&named.spelled, &named.spelled)
        });
        let side = self.table.open_device(key.clone(), device, &home, opener);
        let side = side.map_err(|error| table_refusal(&key, error))?;
        for note in &notes {
            info!(port = %key, user = client.peer.uid, "{note}");
        }
        let mut opened = OpenReply::new(&key, PortBackend::Device, side);
        (opened.reply.mode, opened.reply.notes) = (capabilities.mode, notes);
        opened.reply.driver = Some(capabilities.driver.to_owned());
        opened.reply.max_frame_bytes = Some(capabilities.max_frame_bytes);
        Ok(opened)
    }

    /// Checks that a device can be opened for the port `key` of a switch, beside `others`, and takes its side of an
    /// interface and its region. Also returns the port's shape.
    pub(crate) fn ready_device(
        &self,
        key: &str,
        named: NamedDevice,
        share: Option<&str>,
        properties: &PortProperties,
        others: &ReadyPorts,
    ) -> Result<(ReadyDevice, PortShape), Refusal> {
        let NamedDevice { spelled: text, name, netns } = &named;
        if name.base.device().is_none() {
            return Err(refuse(
                ErrorKind::BadName,
                format!("{text} is not a device"),
                format!("devices are {}", forms()),
            ));
        }
        let plan = plan_device_in(netns.as_ref(), name, properties.queues);
        let plan = plan.map_err(|error| device_refusal(text, &error))?;
        let claim = Claim::take(plan.side, key)?;
        let shape = PortShape::of(&name.options, properties).for_device(&plan);
        let home = match name.options.share.as_deref().or(share) {
            Some(other) => Some(self.device_home(other, others)?),
            None if plan.region_buffers > 0 => {
                Some(ShmRegion::create(shape, Some(&self.quotas.own_payer())).map_err(region_refusal)?)
            }
            None => None,
        };
        Ok((ReadyDevice { named, plan, claim, home }, shape))
    }

    /// Opens a device that is ready, with the state that another process leaves of it. Also returns its region.
    pub(crate) fn open_ready_device(
        &self,
        ready: ReadyDevice,
        left: Vec<HandOver>,
    ) -> Result<(Device, Option<Arc<ShmRegion>>), Refusal> {
        let ReadyDevice { named, plan, claim, home } = ready;
        let mut device = take_over_device(&named.name, plan, DeviceRole::SwitchPort, home.as_ref(), left)
            .map_err(|error| device_refusal(&named.spelled, &error))?;
        claim.give_to(&mut device);
        if let Some(peer) = &device.peer {
            peer.ring_at_changes(Arc::clone(&self.peer_changes));
        }
        Ok((device, home))
    }

    /// Region of the device of a port of a switch, which is attached or will be.
    fn device_home(&self, other: &str, others: &ReadyPorts) -> Result<Arc<ShmRegion>, Refusal> {
        let there = match self.table.occupant(other) {
            Some(Occupant::Device { home, .. }) => home.as_ref(),
            _ => others.ready().find_map(|port| port.device_of(other)?.home.as_ref()),
        };
        there.map(Arc::clone).ok_or_else(|| {
            refuse(
                ErrorKind::NoSuchPort,
                format!("{other} is not a port with a device that has a region to share"),
                "attach an interface served by AF_XDP first, and name it as vale0:eth0",
            )
        })
    }

    /// Checks all devices, logs which have failed or recovered since the last check, and reports changes to
    /// controllers.
    pub(crate) fn watch_devices(&mut self) -> Result<(), FabricError> {
        let fabric = self.table.fabric();
        fabric.end_wires()?;
        let on_switches = self.table.on_switches().iter();
        let on_switches = on_switches.filter(|(_, port)| port.occupant.device().is_some());
        let (keys, names): (Vec<_>, Vec<_>) =
            on_switches.map(|(key, port)| (key, (port.switch.as_str(), port.port.as_str()))).unzip();
        let found = keys.into_iter().zip(fabric.port_faults(&names)?);
        let mut faults: BTreeMap<String, String> =
            found.filter_map(|(key, fault)| Some((key.clone(), fault?))).collect();
        for (key, port) in self.table.devices() {
            faults.extend(fabric.wire_fault(port.wire)?.map(|fault| (key.clone(), fault)));
        }
        let resets: Vec<_> =
            self.suspect_cards.iter().filter_map(|key| Some((key.clone(), self.card_fault(key)?))).collect();
        self.suspect_cards = resets.iter().map(|(key, _)| key.clone()).collect();
        for (key, fault) in resets {
            faults.entry(key).or_insert(fault);
        }
        for (port, fault) in &faults {
            if self.known_faults.get(port) != Some(fault) {
                warn!(visited = %port, "{fault}");
            }
        }
        for port in self.known_faults.keys().filter(|port| !faults.contains_key(*port)) {
            info!(visited = %port, "works again, or was removed");
        }
        self.known_faults = faults;
        self.follow_openflow();
        Ok(())
    }

    /// Marks all cards for the next check. No event announces the reset of a card, and each check asks the kernel.
    pub(crate) fn suspect_all_cards(&mut self) {
        let on_switches = self.table.on_switches().iter();
        let on_switches = on_switches.filter_map(|(key, port)| Some((key, port.occupant.device()?)));
        let devices = self.table.devices().iter().map(|(key, port)| (key, &port.device));
        // A device without rings is no card.
        let has_rings = |device: &Device| {
            device.interface.as_ref().and_then(|interface| interface.opened_for?.rings).is_some()
        };
        let cards = on_switches.chain(devices).filter(|(_, device)| has_rings(device));
        self.suspect_cards = cards.map(|(key, _)| key.clone()).collect();
    }

    /// Fault of the card of the port `key`, if there is one.
    fn card_fault(&self, key: &str) -> Option<String> {
        let on_switch = self.table.on_switches().get(key).and_then(|port| port.occupant.device());
        let device = on_switch.or_else(|| self.table.devices().get(key).map(|port| &port.device))?;
        let interface = device.interface.as_ref()?;
        reset_fault(interface, link_of(interface)?.1)
    }

    /// Checks the peers of all devices: sends frames only to the queues that they use, and logs changes since the last
    /// check.
    pub(crate) fn follow_peers(&mut self) -> Result<(), FabricError> {
        eventfd::drain(&*self.peer_changes);
        let ports = self.table.on_switches().iter();
        let peers = ports
            .filter_map(|(key, port)| Some((key.clone(), port.occupant.device()?.peer.as_ref()?.status())));
        let peers: BTreeMap<String, PeerStatus> = peers.collect();
        for (key, now) in &peers {
            let before = self.known_peers.remove(key).unwrap_or_default();
            if now.active_queues != before.active_queues {
                self.table.use_queues(key, now.active_queues)?;
            }
            if let (Some(address), Some(former)) = (now.address, before.address)
                && address != former
                && let Some(port) = self.table.on_switches().get(key)
            {
                // Nobody has the former address any more, so frames to it go to all ports again.
                let forgotten =
                    self.table.fabric().forget_learned(&port.switch, Some(port.port.as_str())).unwrap_or(0);
                info!(visited = %key, forgotten, "the peer has changed its address from {former} to {address}");
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
                let state = if now.is_connected { "peer" } else { "no peer" };
                warn!(visited = %key, "{state}: {error}");
            }
        }
        self.known_peers = peers;
        Ok(())
    }
}
