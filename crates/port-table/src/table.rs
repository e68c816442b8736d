//! Table of all ports of a datapath, and all operations that add or remove ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringroad_datapath::fabric::{Fabric, FabricError, QueueParts, Share};
use ringroad_drivers::catalogue::port_name::{PipeSide, PortBase};
use ringroad_drivers::device::Device;
use ringroad_drivers::pipe::Pipe;
use ringroad_drivers::shm::{PortShape, ShmPort, ShmRegion};
use ringroad_port::counters::CounterSnapshot;
use ringroad_port::port_index::PortIndex;
use ringroad_port::port_settings::PortSettings;
use ringroad_ring::ledger::ChargedUser;
use ringroad_ring::region::{Region, RegionError};

use crate::entry::{DevicePort, Occupant, PipePort, SwitchPort, SwitchPortName};
use crate::error::TableError;
use crate::opening::{Opener, ProgramSide, lay_out, take_queues, unbound};

/// All ports of a datapath. Steps that can fail come before the port becomes visible.
#[derive(Debug)]
pub struct PortTable<O, K> {
    fabric: Fabric,
    on_switches: BTreeMap<String, SwitchPort<O, K>>,
    pipes: BTreeMap<(String, String), PipePort<O, K>>,
    devices: BTreeMap<String, DevicePort<O, K>>,
}

impl<O, K> PortTable<O, K> {
    /// Creates a table without ports on `fabric`.
    #[must_use]
    pub fn new(fabric: Fabric) -> Self {
        Self { fabric, on_switches: BTreeMap::new(), pipes: BTreeMap::new(), devices: BTreeMap::new() }
    }

    /// Fabric of the datapath.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Fabric of the datapath, for wires and queues that the caller keeps. Only the table puts ports onto switches and
    /// takes them off.
    pub fn fabric_mut(&mut self) -> &mut Fabric {
        &mut self.fabric
    }

    /// The ports on switches, by full name.
    #[must_use]
    pub fn on_switches(&self) -> &BTreeMap<String, SwitchPort<O, K>> {
        &self.on_switches
    }

    /// Data that the owner of the table keeps for the port `key` of a switch.
    pub fn kept_mut(&mut self, key: &str) -> Option<&mut K> {
        self.on_switches.get_mut(key).map(|port| &mut port.kept)
    }

    /// The pipes, by the name before the brace and the identifier behind it.
    #[must_use]
    pub fn pipes(&self) -> &BTreeMap<(String, String), PipePort<O, K>> {
        &self.pipes
    }

    /// The devices that programs have open, by name.
    #[must_use]
    pub fn devices(&self) -> &BTreeMap<String, DevicePort<O, K>> {
        &self.devices
    }

    /// Devices that programs have open, by name, to record something at them.
    pub fn devices_mut(&mut self) -> impl Iterator<Item = (&str, &mut Device)> {
        self.devices.iter_mut().map(|(key, port)| (key.as_str(), &mut port.device))
    }

    /// Whether there is no port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.on_switches.is_empty() && self.pipes.is_empty() && self.devices.is_empty()
    }

    /// The occupant of the port `key` of a switch; `None` if there is no such port.
    #[must_use]
    pub fn occupant(&self, key: &str) -> Option<&Occupant<O>> {
        self.on_switches.get(key).map(|port| &port.occupant)
    }

    /// The owner of the open port `key`, on a switch or a device.
    #[must_use]
    pub fn owner(&self, key: &str) -> Option<&O> {
        let on_switch = self.occupant(key).and_then(Occupant::owner);
        on_switch.or_else(|| self.devices.get(key).map(|port| &port.owner))
    }

    /// Ports whose rings programs have in regions of the table, with their full names: ports on switches, then devices.
    pub fn programs(&self) -> impl Iterator<Item = (&str, &ShmPort, &O)> {
        let on_switches = self.on_switches.iter().filter_map(|(key, port)| match &port.occupant {
            Occupant::Program { shm, owner } => Some((key.as_str(), shm, owner)),
            _ => None,
        });
        on_switches.chain(self.devices.iter().map(|(key, port)| (key.as_str(), &port.shm, &port.owner)))
    }

    /// Regions that ports lie in. A shared region comes several times.
    pub fn regions(&self) -> impl Iterator<Item = &Arc<Region>> {
        let on_switches = self.on_switches.values().filter_map(|port| port.occupant.home());
        let devices = self.devices.values().map(|port| port.shm.home());
        on_switches
            .chain(devices)
            .map(|home| home.region())
            .chain(self.pipes.values().map(|pipe| pipe.pipe.region()))
    }

    /// Opens a port of a switch for a program, in `home`: either a new port with these settings, which goes with the
    /// program, or a port that waits for a program and keeps its own settings.
    ///
    /// # Errors
    /// [`TableError`]; [`FabricError::PortTaken`] if the port is taken.
    pub fn open(
        &mut self,
        name: SwitchPortName<'_>,
        settings: PortSettings,
        home: &Arc<ShmRegion>,
        opener: Opener<'_, O, K>,
    ) -> Result<ProgramSide, TableError> {
        let key = name.to_string();
        let Opener { owner, kept, share, wrap } = opener;
        if !matches!(self.occupant(&key), None | Some(Occupant::Nobody)) {
            return Err(FabricError::PortTaken(key).into());
        }
        let (shm, queues) = lay_out(home, &key, wrap)?;
        let side = ProgramSide::of(&shm)?;
        let occupant = Occupant::Program { shm, owner };
        match self.on_switches.get_mut(&key) {
            Some(waiting) => {
                self.fabric.replace(name.switch, name.port, share, queues)?;
                waiting.occupant = occupant;
            }
            None => {
                let port = SwitchPort::new(name, (*home.shape(), settings), occupant, kept);
                self.enter(port, None, share, queues)?;
            }
        }
        Ok(side)
    }

    /// Makes a port of a switch that stays until it is detached: with a device and its region, if it has one, or for
    /// programs to open. The port gets this index on the switch, or the first free one.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn attach(
        &mut self,
        name: SwitchPortName<'_>,
        index: Option<u8>,
        device: Option<(Device, Option<Arc<ShmRegion>>)>,
        (shape, settings): (PortShape, PortSettings),
        kept: K,
    ) -> Result<&SwitchPort<O, K>, TableError> {
        let (queues, occupant) = match device {
            None => {
                shape.geometry(1).map_err(RegionError::from)?;
                (unbound(shape.queues), Occupant::Nobody)
            }
            Some((mut device, home)) => {
                (take_queues(&mut device), Occupant::Device { device: Box::new(device), home })
            }
        };
        let port = SwitchPort::new(name, (shape, settings), occupant, kept);
        let port = SwitchPort { is_persistent: true, ..port };
        let at = index.map(|index| (PortIndex(index), CounterSnapshot::default()));
        Ok(self.enter(port, at, Share::Own, queues)?)
    }

    /// Puts a port of netmap programs on a switch, with the datapath's side of its rings.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn attach_netmap(
        &mut self,
        name: SwitchPortName<'_>,
        (shape, settings): (PortShape, PortSettings),
        opener: Opener<'_, O, K>,
        queues: Vec<QueueParts>,
    ) -> Result<&SwitchPort<O, K>, FabricError> {
        let Opener { owner, kept, share, .. } = opener;
        let occupant = Occupant::Netmap { owner };
        self.enter(SwitchPort::new(name, (shape, settings), occupant, kept), None, share, queues)
    }

    fn enter(
        &mut self,
        mut port: SwitchPort<O, K>,
        at: Option<(PortIndex, CounterSnapshot)>,
        share: Share,
        queues: Vec<QueueParts>,
    ) -> Result<&SwitchPort<O, K>, FabricError> {
        self.fabric.set_settings(&port.switch, &port.port, port.settings.clone())?;
        let name = (port.switch.as_str(), port.port.as_str());
        let attached = match at {
            Some(at) => self.fabric.resume(name, at.clone(), share, queues).map(|()| at.0),
            None => self.fabric.attach(name.0, name.1, share, queues),
        };
        if attached.is_err() {
            self.fabric.set_settings(&port.switch, &port.port, PortSettings::default())?;
        }
        port.index = attached?.0;
        Ok(self.on_switches.entry(port.name().to_string()).insert_entry(port).into_mut())
    }

    /// Gives a port of a switch other settings.
    ///
    /// # Errors
    /// [`FabricError`]; the port is unchanged, unless a worker is gone.
    pub fn set_settings(&mut self, key: &str, settings: PortSettings) -> Result<(), FabricError> {
        let port = self.on_switches.get_mut(key).ok_or_else(|| FabricError::NoSuchPort(key.to_owned()))?;
        self.fabric.set_settings(&port.switch, &port.port, settings.clone())?;
        port.settings = settings;
        Ok(())
    }

    /// Sends frames only to the first `count` queues of a port of a switch, as [`Fabric::use_queues`].
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`], or a worker that is gone.
    pub fn use_queues(&mut self, key: &str, count: u16) -> Result<(), FabricError> {
        let port = self.on_switches.get(key).ok_or_else(|| FabricError::NoSuchPort(key.to_owned()))?;
        self.fabric.use_queues(&port.switch, &port.port, count)
    }

    /// Gives a port of a switch another device, with its region, if it has one. The port keeps its index, settings and
    /// counters. Returns the previous device.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`], also for a port without a device; or a worker that is gone.
    pub fn replace_device(
        &mut self,
        key: &str,
        (mut device, home): (Device, Option<Arc<ShmRegion>>),
        shape: PortShape,
    ) -> Result<Box<Device>, FabricError> {
        let no_port = || FabricError::NoSuchPort(key.to_owned());
        let port = self.on_switches.get_mut(key).ok_or_else(no_port)?;
        let Occupant::Device { device: before, home: home_before } = &mut port.occupant else {
            return Err(no_port());
        };
        if let Some(shortcut) = &before.shortcut {
            shortcut.give_up();
        }
        self.fabric.replace(&port.switch, &port.port, Share::Own, take_queues(&mut device))?;
        (port.shape, *home_before) = (shape, home);
        Ok(std::mem::replace(before, Box::new(device)))
    }

    /// Takes a port off its switch, for any owner.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`], or a worker that is gone.
    pub fn detach(&mut self, key: &str) -> Result<SwitchPort<O, K>, FabricError> {
        let port = self.on_switches.get(key).ok_or_else(|| FabricError::NoSuchPort(key.to_owned()))?;
        // Frames that pass within the kernel are counted for the port only if they passed before the device ends.
        if let Some(shortcut) = port.occupant.device().and_then(|device| device.shortcut.as_ref()) {
            shortcut.give_up();
        }
        self.fabric.detach(&port.switch, &port.port)?;
        self.on_switches.remove(key).ok_or_else(|| FabricError::NoSuchPort(key.to_owned()))
    }

    /// Wires a device to the rings of a program, which lie in `home` ([`crate::opening::device_home`]).
    ///
    /// # Errors
    /// [`TableError`]; [`FabricError::PortTaken`] if there is a device of that name.
    pub fn open_device(
        &mut self,
        key: String,
        mut device: Device,
        home: &Arc<ShmRegion>,
        opener: Opener<'_, O, K>,
    ) -> Result<ProgramSide, TableError> {
        if self.devices.contains_key(&key) {
            return Err(FabricError::PortTaken(key).into());
        }
        let Opener { owner, kept, share, wrap } = opener;
        let (shm, queues) = lay_out(home, &key, wrap)?;
        let side = ProgramSide::of(&shm)?;
        let wire = self.fabric.wire(share, queues, take_queues(&mut device))?;
        self.devices.insert(key, DevicePort { wire, device, shm, owner, kept });
        Ok(side)
    }

    /// Opens an end of a pipe. The first end makes the pipe, in memory that `charged` reserves.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn open_pipe(
        &mut self,
        pipe: (&str, &str),
        side: PipeSide,
        shape: PortShape,
        charged: Option<&ChargedUser>,
        owner: O,
        kept: K,
    ) -> Result<ProgramSide, TableError> {
        let key = (pipe.0.to_owned(), pipe.1.to_owned());
        let name = PortBase::Pipe { parent: key.0.clone(), id: key.1.clone(), side }.to_string();
        let mut port = match self.pipes.remove(&key) {
            Some(known) => known,
            None => {
                PipePort { pipe: Pipe::create(&name, shape, charged)?, shape, owners: [None, None], kept }
            }
        };
        let end = &mut port.owners[side as usize];
        let opened = match end {
            Some(_) => Err(TableError::EndInUse(name)),
            None => ProgramSide::of_pipe(&port.pipe, side).map_err(TableError::from),
        };
        if opened.is_ok() {
            *end = Some(owner);
        }
        // A pipe exists while one of its ends is open.
        if port.owners.iter().any(Option::is_some) {
            self.pipes.insert(key, port);
        }
        opened
    }

    /// Resumes a port of a switch that another process had. `past` are the totals of the queues that the port had
    /// before.
    ///
    /// # Errors
    /// [`FabricError`]: its index is taken, or a worker is gone.
    pub fn resume(
        &mut self,
        port: SwitchPort<O, K>,
        past: CounterSnapshot,
        share: Share,
        queues: Vec<QueueParts>,
    ) -> Result<(), FabricError> {
        let at = (PortIndex(port.index), past);
        self.enter(port, Some(at), share, queues).map(drop)
    }

    /// Resumes a device that another process had wired to a program's rings; the queues are those of the rings and of
    /// the device.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn resume_device(
        &mut self,
        key: String,
        (device, shm): (Device, ShmPort),
        (owner, kept): (O, K),
        share: Share,
        [rings, queues]: [Vec<QueueParts>; 2],
    ) -> Result<(), FabricError> {
        let wire = self.fabric.wire(share, rings, queues)?;
        self.devices.insert(key, DevicePort { wire, device, shm, owner, kept });
        Ok(())
    }

    /// Resumes a pipe that another process had.
    pub fn resume_pipe(&mut self, name: (String, String), pipe: PipePort<O, K>) {
        self.pipes.insert(name, pipe);
    }

    /// Takes back all ports that the programs of an owner had open, after the programs have ended.
    ///
    /// # Errors
    /// A worker that is gone; everything is taken back nevertheless.
    pub fn close_all_of(&mut self, is_owner: impl Fn(&O) -> bool) -> Result<(), FabricError> {
        let fabric = &mut self.fabric;
        let mut done = Vec::new();
        self.on_switches.retain(|_, port| {
            let Occupant::Program { shm, owner } = &port.occupant else { return true };
            if !is_owner(owner) {
                return true;
            }
            shm.home().program_has_gone();
            done.push(match port.is_persistent {
                true => fabric.replace(&port.switch, &port.port, Share::Own, unbound(port.shape.queues)),
                false => fabric.detach(&port.switch, &port.port).map(drop),
            });
            // The port's room in the region must be free before the next port of the region is checked.
            port.occupant = Occupant::Nobody;
            port.is_persistent
        });
        for (_, port) in self.devices.extract_if(.., |_, port| is_owner(&port.owner)) {
            port.shm.home().program_has_gone();
            done.push(fabric.unwire(port.wire));
        }
        self.pipes.retain(|_, port| {
            for end in &mut port.owners {
                end.take_if(|owner| is_owner(owner));
            }
            let is_open = port.owners.iter().any(Option::is_some);
            if !is_open {
                port.pipe.region().discard_at_end();
            }
            is_open
        });
        done.into_iter().collect()
    }
}
