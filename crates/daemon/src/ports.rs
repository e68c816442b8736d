//! The daemon's ports: on switches, for programs or with devices, and pipes. This module opens, closes, attaches and
//! detaches them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringroad_control::message::{ErrorKind, PortBackend, PortProperties, PortSpec};
use ringroad_datapath::fabric::{Fabric, FabricError};
use ringroad_drivers::catalogue::port_name::{PipeSide, PortBase, PortName, PortOptions};
use ringroad_drivers::device::InterfaceSide;
use ringroad_drivers::peer::watch::PeerStatus;
use ringroad_drivers::shm::{PortShape, ShmRegion};
use ringroad_port::port_settings::PortSettings;
use ringroad_port_table::entry::{Occupant, SwitchPortName};
use ringroad_port_table::table::PortTable;
use ringroad_ring::eventfd;

use crate::attaching::{is_host_side_of, key_of};
use crate::claims::holder_of;
use crate::devices::NamedDevice;
use crate::link_following::FollowedLinks;
use crate::openflow::FlowSwitches;
use crate::permissions::{Permissions, PortAccess};
use crate::port_entries::{Client, ClientId, DaemonPortTable, Kept, OpenReply, PortOrigin};
use crate::port_rules::{self, PortRules};
use crate::provisional_ports::ProvisionalPorts;
use crate::quotas::{Demand, Holding, Quotas};
use crate::refusal::{Refusal, fabric_refusal, refuse, region_refusal, table_refusal};
use crate::restore::RestoreFile;

/// All ports of the daemon, and the rules for them.
#[derive(Debug)]
pub struct Ports {
    pub(crate) table: DaemonPortTable,
    /// Rules about the ports that users may have.
    pub(crate) permissions: Arc<Permissions>,
    /// Rules that fix settings of ports.
    pub(crate) rules: PortRules,
    /// Faults of devices that were logged, by port.
    pub(crate) known_faults: BTreeMap<String, String>,
    /// Ports whose cards are checked: all ports at each tick, and ports whose cards were found reset.
    pub(crate) suspect_cards: BTreeSet<String>,
    /// The links of ports.
    pub(crate) links: FollowedLinks,
    /// Eventfd that is signalled when a device's peer comes, goes or changes.
    pub(crate) peer_changes: Arc<OwnedFd>,
    /// State of the peers at the last check, by port.
    pub(crate) known_peers: BTreeMap<String, PeerStatus>,
    /// Configured ports whose devices are not there yet, or busy, each with the reason.
    pub(crate) waiting: BTreeMap<String, String>,
    pub(crate) quotas: Quotas,
    /// Switches that have flow tables.
    pub openflow: FlowSwitches,
    /// Ports that commands attached, recorded for a restore by the next daemon.
    pub restore: RestoreFile,
    /// Ports that commands attached and that end with their connections.
    pub(crate) provisional: ProvisionalPorts,
}

impl Ports {
    /// Creates a value without ports on `fabric`.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new(fabric: Fabric, quotas: Quotas) -> Result<Self, FabricError> {
        Ok(Self {
            table: PortTable::new(fabric),
            permissions: Arc::default(),
            rules: PortRules::default(),
            known_faults: BTreeMap::new(),
            suspect_cards: BTreeSet::new(),
            links: FollowedLinks::new()?,
            peer_changes: Arc::new(eventfd::create()?),
            known_peers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            quotas,
            openflow: FlowSwitches::default(),
            restore: RestoreFile::default(),
            provisional: ProvisionalPorts::default(),
        })
    }

    /// Opens a port for a program.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn open(
        &mut self,
        named: &NamedDevice,
        properties: &PortProperties,
        client: &Client,
    ) -> Result<OpenReply, Refusal> {
        let name = &named.name;
        let shape = PortShape::of(&name.options, properties);
        match &name.base {
            PortBase::Switch { switch, port } => {
                self.open_on_switch(name, SwitchPortName { switch, port }, shape, client)
            }
            PortBase::Pipe { parent, id, side } => self.open_pipe((parent, id), *side, shape, client),
            PortBase::Device(_) => self.open_device_port(named, properties, client),
        }
    }

    fn open_on_switch(
        &mut self,
        name: &PortName,
        switch_port: SwitchPortName<'_>,
        shape: PortShape,
        client: &Client,
    ) -> Result<OpenReply, Refusal> {
        let key = switch_port.to_string();
        let taken = |by: String, advice: &str| {
            Err(refuse(
                ErrorKind::PortTaken,
                format!("port {key} is {by}"),
                format!("choose another name, or {advice}"),
            ))
        };
        let there = self.table.on_switches().get(&key);
        let waiting = match there.map(|port| (&port.occupant, port.shape)) {
            None => None,
            Some((Occupant::Nobody, shape)) => Some(shape),
            Some((Occupant::Program { owner, .. } | Occupant::Netmap { owner }, _)) => {
                return taken(format!("in use by {owner}"), "end that program");
            }
            Some((Occupant::Device { device, .. }, _)) => {
                let driver = device.capabilities.driver;
                return taken(format!("a {driver} device"), "take it off: ringroad detach");
            }
        };
        let asked = &name.options.settings;
        let settings = match there {
            // A persistent port has the settings with which it was made.
            Some(port) if port.settings.has_all_of(asked) => port.settings.clone(),
            Some(port) => {
                return Err(refuse(
                    ErrorKind::PermissionDenied,
                    format!("port {key} was made with {}, not {asked}", port_rules::words(&port.settings)),
                    "leave these options out",
                ));
            }
            None => self.rules.settle(&key, asked)?,
        };
        if waiting.is_none() {
            self.check_switch(switch_port.switch, client)?;
        }
        let home = match &name.options.share {
            Some(other) => self.home_of(other, client)?,
            // A persistent port has the sizes with which it was made.
            None => ShmRegion::create(waiting.unwrap_or(shape), Some(&self.quotas.memory_payer(client)))
                .map_err(region_refusal)?,
        };
        // A persistent port is charged to its maker.
        let holding = match waiting {
            Some(_) => Holding::default(),
            None => self.quotas.hold(client, Demand::of_port(home.shape().queues))?,
        };
        let mut opener = client.opener(holding);
        opener.kept.asked = asked.clone();
        let side = self.table.open(switch_port, settings, &home, opener);
        let side = side.map_err(|error| table_refusal(&key, error))?;
        let mut opened = OpenReply::new(&key, PortBackend::SwitchPort, side);
        opened.reply.switch = Some(switch_port.switch.to_owned());
        opened.reply.switch_index = self.table.on_switches().get(&key).map(|port| port.index);
        Ok(opened)
    }

    /// Region of another port, for users who may have that port: a user who shares a region sees everything in it.
    pub(crate) fn home_of(&self, other: &str, client: &Client) -> Result<Arc<ShmRegion>, Refusal> {
        let mut programs = self.table.programs();
        let (_, shm, owner) = programs.find(|(key, ..)| *key == other).ok_or_else(|| {
            refuse(ErrorKind::NoSuchPort, format!("no program has port {other} open"), "open that port first")
        })?;
        if owner.peer.uid != client.peer.uid {
            let in_it = self.table.programs().filter(|(_, port, _)| Arc::ptr_eq(port.home(), shm.home()));
            for (key, _, owner) in in_it {
                self.permissions.check(client.peer, key, PortAccess::Of(owner.peer.uid))?;
            }
        }
        Ok(Arc::clone(shm.home()))
    }

    /// Checks that a client may have one more port on a switch.
    pub(crate) fn check_switch(&self, switch: &str, client: &Client) -> Result<(), Refusal> {
        let owners = self.table.on_switches().values();
        let owners =
            owners.map(|port| (port.switch.as_str(), port.occupant.owner().map(|owner| owner.peer.uid)));
        self.quotas.check_switch(client, switch, owners)
    }

    /// Size of the regions on 2 MiB pages, bytes.
    #[must_use]
    pub fn huge_page_bytes(&self) -> u64 {
        let huge = self.table.regions().filter(|region| region.is_huge());
        // Regions are counted once, since ports may share one.
        let by_region: HashMap<_, _> =
            huge.map(|region| (region.id(), region.mapped_bytes() as u64)).collect();
        by_region.values().sum()
    }

    fn open_pipe(
        &mut self,
        (parent, id): (&str, &str),
        side: PipeSide,
        shape: PortShape,
        client: &Client,
    ) -> Result<OpenReply, Refusal> {
        let key = (parent.to_owned(), id.to_owned());
        let full_name = PortBase::Pipe { parent: key.0.clone(), id: key.1.clone(), side }.to_string();
        let known = self.table.pipes().get(&key);
        // The parent of a new pipe is the port with the name before the brace.
        let hung_on = || self.table.owner(parent).map(|owner| owner.peer.uid);
        if let Some(uid) = known.and_then(|pipe| pipe.kept.user()).or_else(hung_on) {
            self.permissions.check(client.peer, &full_name, PortAccess::Of(uid))?;
        }
        if let Some(owner) = known.and_then(|pipe| pipe.owners[side as usize].as_ref()) {
            return Err(refuse(
                ErrorKind::PortTaken,
                format!("{full_name} is in use by {owner}"),
                "open the other end, or another pipe",
            ));
        }
        // A pipe is charged to its maker.
        let holding = match known {
            Some(_) => Holding::default(),
            None => {
                let demand = Demand { pipes: 1, queues: shape.queues.into(), ..Demand::default() };
                self.quotas.hold(client, demand)?
            }
        };
        let payer = self.quotas.memory_payer(client);
        let kept = Kept::of_program(client, holding);
        let opened = self.table.open_pipe((parent, id), side, shape, Some(&payer), client.clone(), kept);
        let opened = opened.map_err(|error| table_refusal(&full_name, error))?;
        Ok(OpenReply::new(&full_name, PortBackend::PipeEnd, opened))
    }

    /// Removes a port of a switch. With an interface it also removes the host stack's side, if that is on a switch.
    /// With `take` it removes a port that a program has open, too, and returns this program's client.
    ///
    /// # Errors
    /// The refusal to send. The host stack's side is not removed alone if that would cut the host off.
    pub fn detach(&mut self, key: &str, take: bool) -> Result<Option<ClientId>, Refusal> {
        if let Some(given_up) = self.restore.give_up(key) {
            let is_beside = |port: &PortSpec| is_host_side_of(port, &given_up);
            let mut there = self.table.on_switches().iter();
            let host = there.find(|(_, port)| port.kept.spec.as_ref().is_some_and(is_beside));
            if let Some(host) = host.map(|(host, _)| host.clone()) {
                self.detach(&host, false)?;
            }
            self.provisional.forget(key);
            self.keep_list();
            return Ok(None);
        }
        let occupant = self.table.occupant(key).ok_or_else(|| no_port(key))?;
        if let Occupant::Netmap { .. } = occupant {
            return Err(refuse(
                ErrorKind::Busy,
                format!("{key} belongs to netmap programs"),
                "end them, or take a persistent port off with VALE_DETACH",
            ));
        }
        if let (Occupant::Program { owner, .. }, false) = (occupant, take) {
            return Err(refuse(
                ErrorKind::Busy,
                format!("{key} is in use by {owner}"),
                format!("end that program, or take the port from it: ringroad detach --take {key}"),
            ));
        }
        let side = side_of(occupant);
        if let Some(holder) = side.filter(|side| side.host).and_then(|side| holder_of(side.other())) {
            return Err(refuse(
                ErrorKind::Busy,
                format!("without {key} the host would be cut off from the interface, which {holder} has"),
                "take the interface off, and this goes with it",
            ));
        }
        let port = self.table.detach(key).map_err(fabric_refusal)?;
        let owner = port.occupant.owner().map(|owner| owner.id);
        // The interface is free before its host stack's side is checked.
        drop(port);
        if let Some(beside) = side.map(InterfaceSide::other).filter(|other| other.host) {
            let mut ports = self.table.on_switches().iter();
            let host = ports.find(|(_, port)| side_of(&port.occupant) == Some(beside));
            if let Some(host) = host.map(|(host, _)| host.clone()) {
                self.detach(&host, false)?;
            }
        }
        self.provisional.forget(key);
        self.keep_list();
        Ok(owner)
    }

    /// Ports that do not exist yet, each with the reason.
    pub(crate) fn waiting_ports(&self) -> BTreeMap<String, String> {
        let configured = self.waiting.iter().map(|(port, reason)| (port.clone(), reason.clone()));
        configured.chain(self.restore.waiting_ports()).collect()
    }

    /// Whether the port `key` exists: on a switch, as a program's device, or as the pipe of this master's end.
    pub(crate) fn has(&self, key: &str) -> bool {
        let pipe = key.split_once('{').map(|(parent, id)| (parent.to_owned(), id.to_owned()));
        self.table.on_switches().contains_key(key)
            || self.table.devices().contains_key(key)
            || pipe.is_some_and(|pipe| self.table.pipes().contains_key(&pipe))
    }

    /// Whether the port `key` was attached under this number.
    pub(crate) fn has_number(&self, key: &str, number: u64) -> bool {
        let attached = self.table.on_switches().get(key).map(|port| port.kept.origin.number());
        attached == Some(number) || self.restore.awaits(key, number)
    }

    /// Gives a port the VLANs, isolation and storm limit that a name has, and removes those that the name does not
    /// have. Returns the settings in force. A port that a command attached comes back with these options after a crash.
    ///
    /// # Errors
    /// The refusal to send; the port is unchanged then.
    pub(crate) fn set_options(&mut self, name: &PortName) -> Result<PortSettings, Refusal> {
        let key = name.base.to_string();
        let asked = &name.options.settings;
        if !matches!(name.base, PortBase::Switch { .. })
            || name.options != (PortOptions { settings: asked.clone(), ..PortOptions::default() })
        {
            let what =
                format!("{key}: only VLANs, isolation and storm limits of a switch's port can be changed");
            return Err(refuse(
                ErrorKind::BadProperties,
                what,
                "detach the port and create it again with other options",
            ));
        }
        if !self.table.on_switches().contains_key(&key) {
            return Err(no_port(&key));
        }
        let settings = self.rules.settle(&key, asked)?;
        self.table.set_settings(&key, settings.clone()).map_err(fabric_refusal)?;
        if let Some(kept) = self.table.kept_mut(&key) {
            kept.asked = asked.clone();
        }
        self.keep_list();
        Ok(settings)
    }

    /// Whether the described port is there as the configuration has it.
    pub(crate) fn is_configured(&self, spec: &PortSpec) -> bool {
        let there = self.table.on_switches().get(&key_of(spec)).map(|port| &port.kept);
        there.is_some_and(|kept| kept.origin == PortOrigin::Config && kept.spec.as_ref() == Some(spec))
    }

    /// Whether a port is the host stack's side of an interface.
    pub(crate) fn is_host_side(&self, key: &str) -> bool {
        self.table.occupant(key).and_then(side_of).is_some_and(|side| side.host)
    }

    /// Whether nothing would be lost if the daemon ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty() && self.openflow.is_empty()
    }
}

fn no_port(key: &str) -> Refusal {
    let what = format!("there is no port {key}");
    refuse(ErrorKind::NoSuchPort, what, "ringroad list shows the ports that exist")
}

/// The side of an interface that a port has.
fn side_of(occupant: &Occupant<Client>) -> Option<InterfaceSide> {
    occupant.device()?.interface.as_ref()?.side
}
