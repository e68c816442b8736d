//! The requests that bind nothing: reports of a port, and of the ports on switches.

use std::collections::{BTreeMap, BTreeSet};

use ringroad_control::message::PortSpec;
use ringroad_control::netmap::{NetmapReply, NetmapRequest, PortSizes};
use ringroad_datapath::fabric::QueueParts;
use ringroad_drivers::catalogue::port_name::check_plain_name;
use ringroad_drivers::patch::PatchQueue;
use ringroad_port_table::entry::Occupant;
use ringroad_port_table::opening::unbound;
use ringroad_ring::geometry::{DEFAULT_SLOTS, MAX_QUEUES};
use rustix::io::Errno;

use super::bind::mode;
use super::failure::{NetmapFailure, fail};
use super::find::{PortSettingsRequest, clamp_sizes, interface_exists};
use super::memory::{GLOBAL, global_geometry};
use super::name::{Name, PortKey};
use super::port::{Kind, NetmapPort};
use super::service::Service;
use super::{Netmap, Requester};
use crate::attaching::requested;
use crate::ports::Ports;
use crate::quotas::Demand;

/// Index that stands for "no port".
const NO_PORT: u32 = 255;

impl Netmap {
    pub(crate) fn serve_portwise(
        &mut self,
        requester: &mut Requester<'_>,
        request: NetmapRequest,
    ) -> Result<NetmapReply, NetmapFailure> {
        match request {
            NetmapRequest::PortInfo { name, sizes, mem_id } => {
                self.port_info(requester, &name, sizes, mem_id)
            }
            NetmapRequest::PoolsInfo { name, mem_id } => {
                if name.is_empty() {
                    return Err(fail(Errno::NXIO, "no port was named"));
                }
                let settings = PortSettingsRequest { mem_id, ..PortSettingsRequest::default() };
                self.inspect(requester, &name, &settings, |port| NetmapReply::Pools(port.memory.pools()))
            }
            NetmapRequest::PortHeaderGet { name } => {
                let key = self.known(requester, &name)?;
                Ok(NetmapReply::HeaderBytes(self.ports.get(&key).map_or(0, |port| port.header_bytes)))
            }
            NetmapRequest::PortHeaderSet { name, bytes } => self.set_header(requester, &name, bytes),
            NetmapRequest::ValeList { name, switch_index, port_index } => {
                self.list(requester.ports, &name, switch_index, port_index)
            }
            NetmapRequest::ValeAttach { name, mode, ring_id, mem_id } => {
                if !matches!(mode, mode::ALL_NIC | mode::NIC_SW) || ring_id != 0 {
                    return Err(fail(Errno::INVAL, "an interface is attached whole"));
                }
                if mem_id != 0 {
                    self.known_memory(requester, mem_id)?;
                }
                self.attach(requester, &name, mode == mode::NIC_SW)
            }
            NetmapRequest::ValeDetach { name } => self.detach(requester.ports, &name),
            NetmapRequest::ValeNewInterface { name, sizes, mem_id } => {
                self.new_interface(requester, &name, sizes, mem_id)
            }
            NetmapRequest::ValeDeleteInterface { name } => self.delete_interface(requester, &name),
            NetmapRequest::PollingEnable { name, mode, first_cpu, cpus } => {
                self.enable_polling(requester.ports, &name, mode, first_cpu, cpus)
            }
            NetmapRequest::PollingDisable { name } => {
                let key = self.polling_candidate(requester.ports, &name)?;
                if self.polled.remove(&key).is_none() {
                    return Err(fail(Errno::FAULT, format!("polling is not enabled on {key}")));
                }
                self.apply_polling(requester.ports);
                Ok(NetmapReply::Done)
            }
            _ => Err(fail(Errno::INVAL, "the request makes no sense here")),
        }
    }

    /// Inspects the port that REGISTER would find or make.
    fn inspect(
        &mut self,
        requester: &mut Requester<'_>,
        name: &str,
        request: &PortSettingsRequest,
        see: impl FnOnce(&NetmapPort) -> NetmapReply,
    ) -> Result<NetmapReply, NetmapFailure> {
        if request.mem_id != 0 {
            self.known_memory(requester, request.mem_id)?;
        }
        let key = self.find(requester, name, request)?;
        let seen = self.ports.get(&key).map(see);
        self.reap(&key, requester.ports)?;
        seen.ok_or_else(|| fail(Errno::NXIO, format!("there is no port {name:?}")))
    }

    fn port_info(
        &mut self,
        requester: &mut Requester<'_>,
        name: &str,
        sizes: PortSizes,
        mem_id: u16,
    ) -> Result<NetmapReply, NetmapFailure> {
        if name.is_empty() {
            let mem_id = if mem_id == 0 { GLOBAL } else { mem_id };
            let memory_bytes = match mem_id {
                GLOBAL => global_geometry().pools_bytes(),
                _ => self.known_memory(requester, mem_id)?.geometry().pools_bytes(),
            };
            return Ok(NetmapReply::PortInfo { memory_bytes, sizes, mem_id });
        }
        let request = PortSettingsRequest { sizes, mem_id, ..PortSettingsRequest::default() };
        self.inspect(requester, name, &request, NetmapPort::info)
    }

    fn set_header(
        &mut self,
        requester: &Requester<'_>,
        name: &str,
        bytes: u32,
    ) -> Result<NetmapReply, NetmapFailure> {
        let key = self.known(requester, name)?;
        let absent = || fail(Errno::NXIO, format!("there is no port {name:?} on a switch"));
        let port = self.ports.get_mut(&key).ok_or_else(absent)?;
        if !matches!(port.kind, Kind::Ephemeral { .. } | Kind::Persistent { .. }) {
            return Err(absent());
        }
        if !matches!(bytes, 0 | 10 | 12) {
            return Err(fail(
                Errno::INVAL,
                format!("a virtio-net header has 0, 10 or 12 bytes, not {bytes}"),
            ));
        }
        port.header_bytes = bytes;
        for state in &port.states {
            state.set_header_bytes(bytes);
        }
        Ok(NetmapReply::HeaderBytes(bytes))
    }

    /// Assigns numbers to the switches; a number is kept while its switch exists.
    fn number_switches(&mut self, ports: &Ports) {
        let existing: BTreeSet<&str> = ports.table.fabric().switch_names().collect();
        self.switch_numbers.retain(|switch, _| existing.contains(switch.as_str()));
        for switch in existing {
            if !self.switch_numbers.contains_key(switch) {
                let taken: BTreeSet<u16> = self.switch_numbers.values().copied().collect();
                let free = (0..u16::MAX).find(|number| !taken.contains(number)).unwrap_or(u16::MAX);
                self.switch_numbers.insert(switch.to_owned(), free);
            }
        }
    }

    fn list(
        &mut self,
        ports: &Ports,
        name: &str,
        first_switch: u16,
        first_port: u32,
    ) -> Result<NetmapReply, NetmapFailure> {
        self.number_switches(ports);
        if !name.is_empty() {
            let (switch, port) = Name::of_vale(name)?;
            let absent = || fail(Errno::NOENT, format!("there is no switch {switch}"));
            let switch_index = *self.switch_numbers.get(&switch).ok_or_else(absent)?;
            let found = ports.table.on_switches().get(&format!("{switch}:{port}"));
            let port_index = found.map_or(NO_PORT, |port| u32::from(port.index));
            return Ok(NetmapReply::Listed { name: name.to_owned(), switch_index, port_index });
        }
        // Each switch is processed once, however many ports it has.
        let first_of = |(&switch_index, switch): (&u16, &&str)| {
            let least = if switch_index == first_switch { first_port } else { 0 };
            let of_switch = format!("{switch}:");
            let of_switch = ports
                .table
                .on_switches()
                .range(of_switch.clone()..)
                .take_while(|(key, _)| key.starts_with(&of_switch));
            let (port_index, name) = of_switch
                .map(|(key, port)| (u32::from(port.index), key))
                .filter(|(index, _)| *index >= least)
                .min()?;
            Some(NetmapReply::Listed { name: name.clone(), switch_index, port_index })
        };
        let by_number: BTreeMap<u16, &str> =
            self.switch_numbers.iter().map(|(switch, &number)| (number, switch.as_str())).collect();
        let next = by_number.range(first_switch..).find_map(first_of);
        next.ok_or_else(|| fail(Errno::NOENT, "there are no more ports"))
    }

    fn attach(
        &mut self,
        requester: &mut Requester<'_>,
        name: &str,
        host: bool,
    ) -> Result<NetmapReply, NetmapFailure> {
        let (switch, port) = Name::of_vale(name)?;
        let key = format!("{switch}:{port}");
        if requester.ports.table.occupant(&key).is_some() {
            return Err(fail(Errno::BUSY, format!("{key} is attached already")));
        }
        if interface_exists(&port, requester.scope) {
            if self.known(requester, &port).is_ok() {
                return Err(fail(Errno::BUSY, format!("{port} is in use by a program")));
            }
        } else {
            let own = PortKey::Persistent(port.clone());
            let Some(NetmapPort { kind: Kind::Persistent { switch: on, .. }, bound, joins, .. }) =
                self.ports.get(&own)
            else {
                return Err(fail(Errno::INVAL, format!("there is no interface {port}")));
            };
            return match on {
                _ if !bound.is_empty() => Err(fail(Errno::BUSY, format!("{port} is in use by a program"))),
                Some(first) if joins.is_none() && *first != switch => self.join(requester, &switch, &port),
                Some(_) => Err(fail(Errno::BUSY, format!("{port} is on two switches already"))),
                None => self.attach_own(requester, &switch, &port),
            };
        }
        // The options `-a` and `-h` of `vale-ctl` select the interface alone or with its host stack's side.
        let specs = requested(PortSpec::for_program(&key), false, host, requester.scope)?;
        requester.ports.attach(specs, true)?;
        let index =
            requester.ports.table.on_switches().get(&key).map_or(NO_PORT, |port| u32::from(port.index));
        Ok(NetmapReply::PortIndex(index))
    }

    /// Puts a persistent port on its first switch.
    fn attach_own(
        &mut self,
        requester: &mut Requester<'_>,
        switch: &str,
        name: &str,
    ) -> Result<NetmapReply, NetmapFailure> {
        let Some(port) = self.ports.get_mut(&PortKey::Persistent(name.to_owned())) else {
            return Err(fail(Errno::NXIO, format!("{name} vanished")));
        };
        port.end_service(&mut requester.ports.table)?;
        let queues = unbound(port.queues());
        let entered = Self::enter_on_switch(requester, port, port.name_on(switch), queues);
        if entered.is_err() {
            port.serve(requester.ports.table.fabric_mut())?;
        } else if let Kind::Persistent { switch: on, .. } = &mut port.kind {
            *on = Some(switch.to_owned());
        }
        entered.map(NetmapReply::PortIndex)
    }

    /// Puts a persistent port that is on a switch on a second one: from then on the port joins the two switches and
    /// serves no program.
    fn join(
        &mut self,
        requester: &mut Requester<'_>,
        second: &str,
        name: &str,
    ) -> Result<NetmapReply, NetmapFailure> {
        let Some(port) = self.ports.get_mut(&PortKey::Persistent(name.to_owned())) else {
            return Err(fail(Errno::NXIO, format!("{name} vanished")));
        };
        let Kind::Persistent { switch: Some(first), .. } = port.kind.clone() else {
            return Err(fail(Errno::INVAL, format!("{name} is on no switch")));
        };
        let [one, other] = PatchQueue::pair()?.map(|queue| vec![QueueParts::new(Box::new(queue))]);
        let switch_port = port.name_on(second);
        let index = Self::enter_on_switch(requester, port, switch_port, other)?;
        if let Err(error) = requester.ports.table.fabric_mut().replace(&first, name, port.share(), one) {
            requester.ports.table.detach(&switch_port.to_string())?;
            return Err(error.into());
        }
        port.joins = Some(second.to_owned());
        Ok(NetmapReply::PortIndex(index))
    }

    /// Undoes [`Self::join`].
    fn part(&mut self, ports: &mut Ports, second: &str, name: &str) -> Result<(), NetmapFailure> {
        let Some(port) = self.ports.get_mut(&PortKey::Persistent(name.to_owned())) else { return Ok(()) };
        port.joins = None;
        ports.table.detach(&port.name_on(second).to_string())?;
        if let Kind::Persistent { switch: Some(first), .. } = &port.kind {
            ports.table.fabric_mut().replace(first, name, port.share(), unbound(port.queues()))?;
        }
        Ok(())
    }

    fn detach(&mut self, ports: &mut Ports, name: &str) -> Result<NetmapReply, NetmapFailure> {
        let (switch, port) = Name::of_vale(name)?;
        let key = format!("{switch}:{port}");
        let absent = || fail(Errno::NXIO, format!("there is no port {key}"));
        let index = u32::from(ports.table.on_switches().get(&key).ok_or_else(absent)?.index);
        if self.polled.contains_key(&key) {
            return Err(fail(Errno::BUSY, format!("polling is enabled on {key}")));
        }
        let own = PortKey::Persistent(port.clone());
        if self.ports.get(&own).is_some_and(|own| own.joins.as_ref() == Some(&switch)) {
            self.part(ports, &switch, &port)?;
        } else if self.persistent_on(&switch, &port).is_some() {
            if self.ports.get(&own).is_some_and(|own| own.joins.is_some()) {
                return Err(fail(
                    Errno::BUSY,
                    format!("{port} is on another switch too: take it off there first"),
                ));
            }
            ports.table.detach(&key)?;
            if let Some(own) = self.ports.get_mut(&own) {
                own.service = Service::None;
                if let Kind::Persistent { switch: on, .. } = &mut own.kind {
                    *on = None;
                }
                own.serve(ports.table.fabric_mut())?;
            }
        } else if !matches!(ports.table.occupant(&key), Some(Occupant::Netmap { .. })) {
            ports.detach(&key, false)?;
        }
        Ok(NetmapReply::PortIndex(index))
    }

    fn new_interface(
        &mut self,
        requester: &Requester<'_>,
        name: &str,
        sizes: PortSizes,
        mem_id: u16,
    ) -> Result<NetmapReply, NetmapFailure> {
        check_plain_name(name).map_err(|problem| fail(Errno::INVAL, problem))?;
        if name.starts_with("vale") {
            return Err(fail(Errno::INVAL, format!("{name} would be taken for a port of a switch")));
        }
        let key = PortKey::Persistent(name.to_owned());
        if self.ports.contains_key(&key) || interface_exists(name, requester.scope) {
            return Err(fail(Errno::EXIST, format!("{name} exists")));
        }
        let sizes = clamp_sizes(&sizes, [DEFAULT_SLOTS; 2], MAX_QUEUES);
        let request = PortSettingsRequest { mem_id, ..PortSettingsRequest::default() };
        let memory = self.memory_for(requester, &request, &sizes)?;
        let kind = Kind::Persistent { automatic: false, switch: None };
        let holding = requester.hold(Demand::of_port(sizes.tx_rings.max(sizes.rx_rings)))?;
        let port = NetmapPort::new(name, kind, requester.client, memory, sizes, holding);
        let reply = port.info();
        self.insert(key, port)?;
        Ok(reply)
    }

    fn delete_interface(
        &mut self,
        requester: &Requester<'_>,
        name: &str,
    ) -> Result<NetmapReply, NetmapFailure> {
        let key = PortKey::Persistent(name.to_owned());
        let Some(port) = self.ports.get(&key) else {
            let exists =
                interface_exists(name, requester.scope) || requester.ports.table.occupant(name).is_some();
            let errno = if exists { Errno::INVAL } else { Errno::NXIO };
            return Err(fail(errno, format!("{name:?} is not a persistent port")));
        };
        match &port.kind {
            Kind::Persistent { automatic: false, switch } => {
                if switch.is_some() || !port.bound.is_empty() || port.pipes > 0 {
                    return Err(fail(Errno::BUSY, format!("{name} is in use")));
                }
            }
            _ => return Err(fail(Errno::INVAL, format!("{name:?} is not a persistent port"))),
        }
        self.ports.remove(&key);
        Ok(NetmapReply::Done)
    }

    /// The attachment that a polling request is about.
    fn polling_candidate(&self, ports: &Ports, name: &str) -> Result<String, NetmapFailure> {
        let (switch, port) = Name::of_vale(name)?;
        let key = format!("{switch}:{port}");
        match ports.table.occupant(&key) {
            None => Err(fail(Errno::NXIO, format!("there is no port {key}"))),
            Some(Occupant::Device { .. }) => Ok(key),
            Some(_) => Err(fail(Errno::OPNOTSUPP, format!("{key} is not an interface"))),
        }
    }

    fn enable_polling(
        &mut self,
        ports: &mut Ports,
        name: &str,
        mode: u32,
        first_cpu: u32,
        cpus: u32,
    ) -> Result<NetmapReply, NetmapFailure> {
        let key = self.polling_candidate(ports, name)?;
        if self.polled.contains_key(&key) {
            return Err(fail(Errno::FAULT, format!("polling is enabled on {key}")));
        }
        let online = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        let rings = ports.table.on_switches().get(&key).map_or(0, |port| u32::from(port.shape.queues));
        let last = first_cpu.checked_add(cpus);
        let fits = match mode {
            1 => cpus == 1,
            2 => last.is_some_and(|last| last <= rings),
            _ => false,
        };
        if cpus == 0 || cpus >= online || !fits {
            return Err(fail(
                Errno::INVAL,
                format!("polling of {key} by {cpus} processors from {first_cpu} on"),
            ));
        }
        self.polled.insert(key, first_cpu);
        self.apply_polling(ports);
        Ok(NetmapReply::Done)
    }

    /// Forgets the polling of attachments that no longer exist.
    pub(crate) fn forget_detached(&mut self, ports: &Ports) {
        self.polled.retain(|key, _| ports.table.occupant(key).is_some());
        self.apply_polling(ports);
    }

    /// Makes the workers poll while any attachment requires polling.
    fn apply_polling(&self, ports: &Ports) {
        ports.table.fabric().keep_awake(!self.polled.is_empty());
    }
}

impl NetmapPort {
    /// The reply of PORT_INFO_GET and VALE_NEWIF.
    fn info(&self) -> NetmapReply {
        NetmapReply::PortInfo {
            memory_bytes: self.memory.geometry().pools_bytes(),
            sizes: self.sizes,
            mem_id: self.memory.id,
        }
    }
}
