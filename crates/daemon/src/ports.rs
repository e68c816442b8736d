//! The ports that exist: on switches, for programs or with devices, and pipes. Opening, closing, attaching, detaching.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringroad_control::message::{AttachedPort, ErrorKind, OpenedPort, PortKind, PortWish};
use ringroad_datapath::fabric::{Fabric, FabricError, QueueParts, Share};
use ringroad_drivers::catalogue::plan_device_in;
use ringroad_drivers::catalogue::port_kind::{DeviceName, InterfaceUse};
use ringroad_drivers::catalogue::port_name::{PipeSide, PortBase, PortName, PortNameError};
use ringroad_drivers::device::InterfaceSide;
use ringroad_drivers::peer::watch::PeerStatus;
use ringroad_drivers::pipe::Pipe;
use ringroad_drivers::shm::{PortShape, ShmPort, ShmRegion, UnboundQueue};
use ringroad_netdev::link::link_by_name;
use ringroad_netdev::link_use::uses_of;
use ringroad_ring::eventfd;
use ringroad_ring::region::Region;

use crate::claims::holder_of;
use crate::devices::NamedDevice;
use crate::permissions::{Permissions, Standing};
use crate::port_entries::{Client, ClientId, DevicePort, Opened, Origin, PipeEntry, SwitchPort, place};
use crate::quotas::{Demand, Holding, Quotas};
use crate::refusal::{Refusal, device_refusal, fabric_refusal, refuse, region_refusal};
use crate::whereabouts::Whereabouts;

/// What stands for the driver of ports that netmap programs made.
pub(crate) const NETMAP_DRIVER: &str = "netmap";

/// What serves a port that is attached.
#[derive(Debug, Clone, Copy)]
pub enum ServedBy<'a> {
    /// The interface of the port's name.
    Namesake,
    /// A device by its name.
    Device(&'a str),
    /// A program that is still to open it.
    Program,
}

/// How a port is attached.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    /// What serves it.
    pub served_by: ServedBy<'a>,
    /// Whether the host stack's side of the interface becomes a port too.
    pub host: bool,
    /// Whether the interface is taken even where that cuts the host off.
    pub take: bool,
    /// Sizes.
    pub wish: &'a PortWish,
}

/// All ports.
#[derive(Debug)]
pub struct Ports {
    pub(crate) fabric: Fabric,
    /// Who may have what.
    pub(crate) permissions: Arc<Permissions>,
    pub(crate) on_switches: BTreeMap<String, SwitchPort>,
    pub(crate) pipes: BTreeMap<(String, String), PipeEntry>,
    pub(crate) devices: BTreeMap<String, DevicePort>,
    /// Faults of devices that were logged, by port.
    pub(crate) known_faults: BTreeMap<String, String>,
    /// Rung when a device's peer comes, goes or changes.
    pub(crate) peer_changes: Arc<OwnedFd>,
    /// Where the peers stood at the last look, by port.
    pub(crate) known_peers: BTreeMap<String, PeerStatus>,
    /// Configured ports whose devices are not there yet, or busy, and why.
    pub(crate) waiting: BTreeMap<String, String>,
    pub(crate) quotas: Quotas,
}

impl Ports {
    /// No ports on `fabric`.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new(fabric: Fabric, quotas: Quotas) -> Result<Self, FabricError> {
        Ok(Self {
            fabric,
            permissions: Arc::default(),
            on_switches: BTreeMap::new(),
            pipes: BTreeMap::new(),
            devices: BTreeMap::new(),
            known_faults: BTreeMap::new(),
            peer_changes: Arc::new(eventfd::create()?),
            known_peers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            quotas,
        })
    }

    /// Opens a port for a program.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn open(&mut self, named: &NamedDevice, wish: &PortWish, client: &Client) -> Result<Opened, Refusal> {
        let name = &named.name;
        let sizes = PortShape::of(&name.options, wish);
        match &name.base {
            PortBase::Switch { switch, port } => self.open_on_switch(name, switch, port, sizes, client),
            PortBase::Pipe { parent, id, side } => {
                self.open_pipe(name, (parent.clone(), id.clone()), *side, sizes, client)
            }
            PortBase::Device(_) => self.open_device_port(named, wish, client),
        }
    }

    fn open_on_switch(
        &mut self,
        name: &PortName,
        switch: &str,
        port: &str,
        sizes: PortShape,
        client: &Client,
    ) -> Result<Opened, Refusal> {
        let key = name.base.to_string();
        if let Some(entry) = self.on_switches.get(&key) {
            if let Some(owner) = &entry.owner {
                return Err(refuse(
                    ErrorKind::PortTaken,
                    format!("port {key} is in use by {owner}"),
                    "choose another name, or end that program",
                ));
            }
            if entry.driver == NETMAP_DRIVER {
                return Err(refuse(
                    ErrorKind::PortTaken,
                    format!("port {key} belongs to netmap programs"),
                    "choose another name, or end them",
                ));
            }
            if entry.driver != "shm" {
                return Err(refuse(
                    ErrorKind::PortTaken,
                    format!("port {key} is a {} device", entry.driver),
                    "choose another name, or take it off: ringroad detach",
                ));
            }
        }
        // A persistent port has the sizes it was made with.
        let persistent = self.on_switches.get(&key).map(|entry| entry.sizes);
        let sizes = persistent.unwrap_or(sizes);
        if persistent.is_none() {
            self.check_switch(switch, client)?;
        }
        let home = match &name.options.share {
            Some(other) => self.home_of(other, client)?,
            None => {
                ShmRegion::create(sizes, Some(&self.quotas.memory_payer(client))).map_err(region_refusal)?
            }
        };
        // A persistent port is the share of whoever made it.
        let holding = match persistent {
            Some(_) => Holding::default(),
            None => self.quotas.hold(client, Demand::of_port(home.shape().queues))?,
        };
        let (shm, queues) = place(&home, &key)?;
        // Whatever can fail is done before anybody sees the port.
        let events = shm.clone_events().map_err(region_refusal)?;
        let mode = mode_of(shm.region());
        // A port that shares a region has the sizes of that region.
        let sizes = persistent.unwrap_or(*home.shape());
        let share = client.share();
        if persistent.is_some() {
            self.fabric.replace(switch, port, share, queues).map_err(fabric_refusal)?;
        } else {
            let index = self.fabric.attach(switch, port, share, queues).map_err(fabric_refusal)?;
            self.on_switches.insert(
                key.clone(),
                SwitchPort {
                    switch: switch.to_owned(),
                    port: port.to_owned(),
                    index: index.0,
                    driver: "shm",
                    mode: mode.clone(),
                    origin: Origin::Program,
                    sizes,
                    owner: None,
                    shm: None,
                    device: None,
                    home: None,
                    _holding: holding,
                },
            );
        }
        let geometry = *shm.region().geometry();
        let placement = shm.placement().clone();
        let region = Arc::clone(shm.region());
        let mut index = None;
        if let Some(entry) = self.on_switches.get_mut(&key) {
            entry.owner = Some(client.clone());
            entry.mode.clone_from(&mode);
            entry.shm = Some(shm);
            index = Some(entry.index);
        }
        let reply = OpenedPort {
            name: key,
            kind: PortKind::SwitchPort,
            mode,
            driver: None,
            notes: Vec::new(),
            geometry,
            queue_count: placement.tx_rings.len() as u16,
            placement,
            peer_placement: None,
            switch: Some(switch.to_owned()),
            switch_index: index,
        };
        Ok(Opened::new(reply, region, events))
    }

    /// The user whose program has this port open.
    fn owner_of(&self, port: &str) -> Option<u32> {
        let on_switch = self.on_switches.get(port).and_then(|entry| entry.owner.as_ref());
        let device = || self.devices.get(port).map(|entry| &entry.owner);
        on_switch.or_else(device).map(|owner| owner.peer.uid)
    }

    /// The region of another port, for those who may have that port: who shares a region sees everything in it.
    pub(crate) fn home_of(&self, other: &str, client: &Client) -> Result<Arc<ShmRegion>, Refusal> {
        let on_switch =
            self.on_switches.get(other).and_then(|entry| Some((entry.shm.as_ref()?, entry.owner.as_ref()?)));
        let device = self.devices.get(other).map(|entry| (&entry.shm, &entry.owner));
        let (shm, owner) = on_switch.or(device).ok_or_else(|| {
            refuse(ErrorKind::NoSuchPort, format!("no program has port {other} open"), "open that port first")
        })?;
        if owner.peer.uid != client.peer.uid {
            let on_switches = self.on_switches.iter();
            let all = on_switches
                .filter_map(|(key, entry)| Some((key, entry.shm.as_ref()?, entry.owner.as_ref()?)));
            let all = all.chain(self.devices.iter().map(|(key, entry)| (key, &entry.shm, &entry.owner)));
            for (key, _, owner) in all.filter(|(_, other, _)| Arc::ptr_eq(other.home(), shm.home())) {
                self.permissions.check(client.peer, key, Standing::Of(owner.peer.uid))?;
            }
        }
        Ok(Arc::clone(shm.home()))
    }

    /// Whether a client may have one more port on a switch.
    pub(crate) fn check_switch(&self, switch: &str, client: &Client) -> Result<(), Refusal> {
        let user = |port: &SwitchPort| port.owner.as_ref().map(|owner| owner.peer.uid);
        let owners = self.on_switches.values().map(|port| (port.switch.as_str(), user(port)));
        self.quotas.check_switch(client, switch, owners)
    }

    /// Bytes of all regions that are mapped here.
    #[must_use]
    pub fn shared_memory_bytes(&self) -> u64 {
        self.quotas.memory().total()
    }

    /// The same by user.
    #[must_use]
    pub fn shared_memory_by_user(&self) -> BTreeMap<u32, u64> {
        self.quotas.memory().by_user()
    }

    /// Bytes of regions on 2 MiB pages.
    #[must_use]
    pub fn huge_page_bytes(&self) -> u64 {
        let ports = self.on_switches.values().filter_map(|port| port.shm.as_ref()).map(ShmPort::region);
        let devices = self.devices.values().map(|port| port.shm.region());
        let attached =
            self.on_switches.values().filter_map(|port| port.home.as_ref()).map(|home| home.region());
        let pipes = self.pipes.values().map(|pipe| pipe.pipe.region());
        let all = ports.chain(devices).chain(attached).chain(pipes).filter(|region| region.is_huge());
        // Ports may share one.
        let by_region: HashMap<_, _> =
            all.map(|region| (region.id(), region.mapped_bytes() as u64)).collect();
        by_region.values().sum()
    }

    fn open_pipe(
        &mut self,
        name: &PortName,
        key: (String, String),
        side: PipeSide,
        sizes: PortShape,
        client: &Client,
    ) -> Result<Opened, Refusal> {
        let full_name = name.base.to_string();
        let known = self.pipes.get(&key);
        // A new pipe hangs on whatever port has the name before the brace.
        let uid = known.map(|entry| entry.uid).or_else(|| self.owner_of(&key.0));
        if let Some(uid) = uid {
            self.permissions.check(client.peer, &full_name, Standing::Of(uid))?;
        }
        if let Some(owner) = known.and_then(|entry| entry.owners[side as usize].as_ref()) {
            return Err(refuse(
                ErrorKind::PortTaken,
                format!("{full_name} is in use by {owner}"),
                "open the other end, or another pipe",
            ));
        }
        let made = match known {
            Some(_) => None,
            None => Some(self.make_pipe(&full_name, sizes, client)?),
        };
        let Some(entry) = made.as_ref().or(known) else {
            return Err(refuse(ErrorKind::Internal, "the pipe vanished", ""));
        };
        let events = entry.pipe.clone_events(side).map_err(region_refusal)?;
        // From here on nothing fails: a pipe is seen when somebody has an end of it.
        self.pipes.extend(made.map(|made| (key.clone(), made)));
        let Some(entry) = self.pipes.get_mut(&key) else {
            return Err(refuse(ErrorKind::Internal, "the pipe vanished", ""));
        };
        entry.owners[side as usize] = Some(client.clone());
        let region = Arc::clone(entry.pipe.region());
        let placement = entry.pipe.placement(side).clone();
        let reply = OpenedPort {
            name: full_name,
            kind: PortKind::PipeEnd,
            mode: mode_of(&region),
            driver: None,
            notes: Vec::new(),
            geometry: *region.geometry(),
            queue_count: placement.tx_rings.len() as u16,
            placement,
            peer_placement: Some(entry.pipe.placement(side.other()).clone()),
            switch: None,
            switch_index: None,
        };
        Ok(Opened::new(reply, region, events))
    }

    /// A pipe that nobody has an end of yet.
    fn make_pipe(&self, full_name: &str, sizes: PortShape, client: &Client) -> Result<PipeEntry, Refusal> {
        let queues = u64::from(sizes.queues);
        let holding = self.quotas.hold(client, Demand { pipes: 1, queues, ..Demand::default() })?;
        let payer = self.quotas.memory_payer(client);
        let pipe = Pipe::create(full_name, sizes, Some(&payer)).map_err(region_refusal)?;
        Ok(PipeEntry { pipe, sizes, uid: client.peer.uid, owners: [None, None], _holding: holding })
    }

    /// Makes a port that outlives programs: with a device, or for programs to open. With `host` the host stack's side of the
    /// interface becomes a port too.
    ///
    /// # Errors
    /// The refusal to send; nothing is attached then.
    pub fn attach(
        &mut self,
        name: &PortName,
        attachment: Attachment<'_>,
        place: Whereabouts<'_>,
        origin: Origin,
    ) -> Result<Vec<AttachedPort>, Refusal> {
        let Attachment { served_by, host, take, wish } = attachment;
        let key = name.base.to_string();
        let PortBase::Switch { switch, port } = &name.base else {
            return Err(refuse(
                ErrorKind::BadName,
                format!("{key} is not a port of a switch"),
                "attach to a name such as vale0:p1",
            ));
        };
        let device = match served_by {
            ServedBy::Program => None,
            ServedBy::Device(text) => Some(named_device(text, place)?),
            ServedBy::Namesake => Some(namesake(port, place)?),
        };
        if host {
            let host_device = device.as_ref().and_then(host_stack_of).ok_or_else(|| {
                refuse(
                    ErrorKind::BadWish,
                    format!("{key} has no interface whose host stack could be attached"),
                    "name one with --driver, such as --driver eth0",
                )
            })?;
            let first = self.attach_one(name, switch, port, device.as_ref(), wish, origin.clone())?;
            let host_port = format!("{port}^");
            return match self.attach_one(name, switch, &host_port, Some(&host_device), wish, origin) {
                Ok(second) => Ok(vec![first, second]),
                Err(refusal) => {
                    self.detach(&key)?;
                    Err(refusal)
                }
            };
        }
        let cut_off = device.as_ref().map_or(Ok(None), |device| cut_off(device, take))?;
        let mut attached = self.attach_one(name, switch, port, device.as_ref(), wish, origin)?;
        attached.notes.extend(cut_off.clone());
        if let (Some(note), Some(entry)) = (cut_off, self.on_switches.get_mut(&key))
            && let Some(device) = &mut entry.device
        {
            device.notes.push(note);
        }
        Ok(vec![attached])
    }

    fn attach_one(
        &mut self,
        name: &PortName,
        switch: &str,
        port: &str,
        device: Option<&NamedDevice>,
        wish: &PortWish,
        origin: Origin,
    ) -> Result<AttachedPort, Refusal> {
        let key = format!("{switch}:{port}");
        if self.on_switches.contains_key(&key) {
            return Err(refuse(
                ErrorKind::PortTaken,
                format!("port {key} exists already"),
                "choose another name, or detach that one first",
            ));
        }
        let sizes = PortShape::of(&name.options, wish);
        let mut entry = SwitchPort {
            switch: switch.to_owned(),
            port: port.to_owned(),
            index: 0,
            driver: "shm",
            mode: "waits for a program".to_owned(),
            origin,
            sizes,
            owner: None,
            shm: None,
            device: None,
            home: None,
            _holding: Holding::default(),
        };
        let queues = match device {
            None => {
                sizes.geometry(1).map_err(|error| region_refusal(error.into()))?;
                unbound(sizes.queues)
            }
            Some(device) => {
                let opened = self.open_switch_device(&key, device, name.options.share.as_deref(), wish)?;
                entry.driver = opened.device.capabilities.driver;
                entry.mode.clone_from(&opened.device.capabilities.mode);
                (entry.sizes, entry.home) = (opened.sizes, opened.home);
                entry.device = Some(opened.device);
                opened.queues
            }
        };
        entry.index = self.fabric.attach(switch, port, Share::Own, queues).map_err(fabric_refusal)?.0;
        let told = entry.told();
        self.on_switches.insert(key, entry);
        Ok(told)
    }

    /// Removes a port of a switch, whoever has it, and with an interface the host stack's side of it where that is on a switch;
    /// returns the client that had it.
    ///
    /// # Errors
    /// The refusal to send. The host stack's side is not removed alone where that would cut the host off.
    pub fn detach(&mut self, key: &str) -> Result<Option<ClientId>, Refusal> {
        if self.on_switches.get(key).is_some_and(|port| port.driver == NETMAP_DRIVER) {
            return Err(refuse(
                ErrorKind::Busy,
                format!("{key} belongs to netmap programs"),
                "end them, or take a persistent port off with VALE_DETACH",
            ));
        }
        let side = self.on_switches.get(key).and_then(side_of);
        if let Some(holder) = side.filter(|side| side.host).and_then(|side| holder_of(side.other())) {
            return Err(refuse(
                ErrorKind::Busy,
                format!("without {key} the host would be cut off from the interface, which {holder} has"),
                "take the interface off, and this goes with it",
            ));
        }
        let Some(entry) = self.on_switches.remove(key) else {
            return Err(refuse(
                ErrorKind::NoSuchPort,
                format!("there is no port {key}"),
                "ringroad list shows the ports that exist",
            ));
        };
        self.fabric.detach(&entry.switch, &entry.port).map_err(fabric_refusal)?;
        let SwitchPort { owner, device, .. } = entry;
        // The interface is free before its host stack's side is looked at.
        drop(device);
        let beside = side.map(InterfaceSide::other).filter(|other| other.host);
        let host = self.on_switches.iter().find(|(_, port)| beside.is_some() && side_of(port) == beside);
        if let Some(host) = host.map(|(host, _)| host.clone()) {
            self.detach(&host)?;
        }
        Ok(owner.map(|owner| owner.id))
    }

    /// Whether a port is the host stack's side of an interface.
    pub(crate) fn is_host_side(&self, key: &str) -> bool {
        self.on_switches.get(key).and_then(side_of).is_some_and(|side| side.host)
    }

    /// Takes back everything that a client had open.
    ///
    /// # Errors
    /// [`FabricError`] where a worker is gone, which the daemon cannot survive.
    pub fn close_client(&mut self, client: ClientId) -> Result<(), FabricError> {
        let has = |owner: &Option<Client>| owner.as_ref().is_some_and(|owner| owner.id == client);
        let keys: Vec<String> = self
            .on_switches
            .iter()
            .filter(|(_, port)| has(&port.owner))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let Some(entry) = self.on_switches.get_mut(&key) else { continue };
            entry.shm.iter().for_each(|shm| shm.home().program_has_gone());
            if entry.origin == Origin::Program {
                self.fabric.detach(&entry.switch, &entry.port)?;
                self.on_switches.remove(&key);
            } else {
                let queues = unbound(entry.sizes.queues);
                self.fabric.replace(&entry.switch, &entry.port, Share::Own, queues)?;
                entry.owner = None;
                entry.shm = None;
                entry.mode = "waits for a program".to_owned();
            }
        }
        self.close_devices(client)?;
        for pipe in self.pipes.values_mut() {
            for owner in &mut pipe.owners {
                if has(owner) {
                    *owner = None;
                }
            }
        }
        self.pipes.retain(|_, pipe| {
            let has_owner = pipe.owners.iter().any(Option::is_some);
            if !has_owner {
                pipe.pipe.region().discard_at_end();
            }
            has_owner
        });
        Ok(())
    }

    /// Whether nothing would be lost if the daemon ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.on_switches.is_empty() && self.pipes.is_empty() && self.devices.is_empty()
    }
}

/// The side of an interface that a port has.
fn side_of(port: &SwitchPort) -> Option<InterfaceSide> {
    port.device.as_ref()?.interface.as_ref()?.side
}

fn named_device(text: &str, place: Whereabouts<'_>) -> Result<NamedDevice, Refusal> {
    let name: PortName =
        text.parse().map_err(|error: PortNameError| refuse(ErrorKind::BadName, error.to_string(), ""))?;
    let netns = place.find(&name)?;
    Ok(NamedDevice { spelled: text.to_owned(), name, netns })
}

/// The interface of a port's name, or its host stack's side.
fn namesake(port: &str, place: Whereabouts<'_>) -> Result<NamedDevice, Refusal> {
    let interface = port.strip_suffix('^').unwrap_or(port);
    let netns = place.home()?;
    let found = netns.run(|| link_by_name(interface));
    let found = found.map_err(|error| refuse(ErrorKind::Internal, error.to_string(), ""))?;
    found.map_err(|error| {
        refuse(
            ErrorKind::NoSuchPort,
            error.to_string(),
            "name what serves the port with --driver, or let it wait for a program with --for-program",
        )
    })?;
    named_device(port, place)
}

/// The host stack's side of the interface that a device is.
fn host_stack_of(device: &NamedDevice) -> Option<NamedDevice> {
    let (interface, _) = device.name.base.device()?.interface()?;
    let base = PortBase::Device(DeviceName::host_stack_of(interface)?);
    let name = PortName { base, options: Default::default() };
    Some(NamedDevice { spelled: name.base.to_string(), name, netns: device.netns.clone() })
}

/// What becomes of the host where `device` is attached alone, in words for people; `None` where it loses nothing.
///
/// # Errors
/// The host uses the interface, and nobody has said that it is to lose it.
fn cut_off(device: &NamedDevice, take: bool) -> Result<Option<String>, Refusal> {
    let NamedDevice { name, netns: Some(netns), spelled } = device else { return Ok(None) };
    let interface = match name.base.device().and_then(DeviceName::interface) {
        Some((interface, InterfaceUse::Wire | InterfaceUse::HostStack)) => interface,
        Some((_, InterfaceUse::Copies)) | None => return Ok(None),
    };
    let failed = |error| device_refusal(spelled, &error);
    let plan = plan_device_in(Some(netns), name, None).map_err(failed)?;
    // With both sides taken it is for their owners to join them.
    if plan.side.is_some_and(|side| holder_of(side.other()).is_some()) {
        return Ok(None);
    }
    let uses = netns
        .run(|| uses_of(&link_by_name(interface)?))
        .map_err(|error| failed(error.into()))?
        .map_err(|error| failed(error.into()))?;
    if !uses.is_empty() && !take {
        return Err(refuse(
            ErrorKind::BadWish,
            format!(
                "attaching {interface} cuts the host off from it, and the host uses it: {}",
                uses.join(", ")
            ),
            "add --host to keep the host connected through the switch, or --take if it is to lose the interface",
        ));
    }
    let used = if uses.is_empty() { String::new() } else { format!(": {}", uses.join(", ")) };
    Ok(Some(format!("the host stack is cut off from {interface} meanwhile{used}")))
}

/// The queues of a persistent port that no program has open.
pub(crate) fn unbound(queues: u16) -> Vec<QueueParts> {
    (0..queues).map(|_| QueueParts::new(Box::new(UnboundQueue))).collect()
}

fn mode_of(region: &Region) -> String {
    if region.is_huge() { "shared memory, 2 MiB pages" } else { "shared memory, 4 KiB pages" }.to_owned()
}
