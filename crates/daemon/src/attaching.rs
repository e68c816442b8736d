//! Ports that outlive programs: from a request to descriptions ([`PortSpec`]), and from a description to a port.
//!
//! A description is carried out in two steps. The first checks all that can be known before the device is opened, and
//! takes the resources that only one port can have; dropping its result undoes this. The second opens the device. So a
//! request attaches all its ports or none, and an upgrade checks each port before the running daemon gives it up.

use ringroad_control::message::{AttachedPort, ErrorKind, PortSpec};
use ringroad_drivers::catalogue::NETNS;
use ringroad_drivers::catalogue::port_kind::{DeviceName, InterfaceUse};
use ringroad_drivers::catalogue::port_name::{PortBase, PortName, host_side_text};
use ringroad_drivers::shm::PortShape;
use ringroad_netdev::link::link_by_name;
use ringroad_netdev::link_use::uses_of;
use ringroad_netdev::namespace::HeldNamespace;
use ringroad_port::port_settings::PortSettings;
use ringroad_port_table::entry::SwitchPortName;
use serde::{Deserialize, Serialize};

use crate::claims::holder_of;
use crate::devices::{NamedDevice, ReadyDevice, parse_name};
use crate::namespace_scope::NamespaceScope;
use crate::port_entries::{Kept, PortOrigin};
use crate::ports::Ports;
use crate::quotas::Holding;
use crate::refusal::{Refusal, device_refusal, fabric_refusal, refuse, table_refusal};

/// A port that is to be made: its description, and the daemon's data about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRecord {
    pub(crate) spec: PortSpec,
    /// Settings requested last, by the port's name or by a later change.
    pub(crate) asked: PortSettings,
    pub(crate) origin: PortOrigin,
    /// Index on the switch, which the port gets again if the index is free: flow tables name ports by it.
    pub(crate) index: Option<u8>,
}

/// A port that passed all checks. It holds its side of an interface and its region.
#[derive(Debug)]
pub(crate) struct ReadyPort {
    record: PortRecord,
    key: String,
    switch: String,
    port: String,
    settings: PortSettings,
    shape: PortShape,
    device: Option<ReadyDevice>,
}

/// Ports that are ready, in the order in which they are entered, and ports that cannot be made, with the reason.
#[derive(Debug, Default)]
pub(crate) struct ReadyPorts(Vec<(PortRecord, Result<ReadyPort, Refusal>)>);

impl PortRecord {
    /// Record of a port that was not changed since it was described.
    #[must_use]
    pub fn new(spec: PortSpec, origin: PortOrigin) -> Self {
        let name: Option<PortName> = spec.name.parse().ok();
        let asked = name.map(|name| name.options.settings).unwrap_or_default();
        Self { asked, spec, origin, index: None }
    }

    /// Name of the port without options.
    pub(crate) fn key(&self) -> String {
        key_of(&self.spec)
    }
}

/// Name of a port without options.
pub(crate) fn key_of(spec: &PortSpec) -> String {
    spec.name.parse::<PortName>().map_or_else(|_| spec.name.clone(), |name| name.base.to_string())
}

/// Whether a port has the host stack's side of the interface that `other` has: it leaves with that port, since alone it
/// would cut the host off.
pub(crate) fn is_host_side_of(spec: &PortSpec, other: &PortSpec) -> bool {
    let interface = |spec: &PortSpec| {
        let name: PortName = spec.driver.as_ref()?.parse().ok()?;
        let (interface, of_it) = name.base.device()?.interface()?;
        let netns = name.options.device.text(&NETNS).filter(|_| spec.netns.is_none());
        Some(((interface.to_owned(), netns.map(str::to_owned), spec.netns), of_it == InterfaceUse::HostStack))
    };
    let (Some((this, true)), Some((other, false))) = (interface(spec), interface(other)) else {
        return false;
    };
    this == other
}

/// Descriptions of the ports that a request to attach `port` means. A port without a driver that is not `for_program`
/// gets the interface of its own name; with `host` the host stack's side is attached beside it.
///
/// # Errors
/// The refusal to send.
pub fn requested(
    port: PortSpec,
    for_program: bool,
    host: bool,
    scope: NamespaceScope<'_>,
) -> Result<Vec<PortSpec>, Refusal> {
    let (name, _, own) = switch_port(&port)?;
    let known = namespace_of(&port)?;
    let scope = known.as_ref().map_or(scope, NamespaceScope::Within);
    let device = match (&port.driver, for_program) {
        (Some(_), true) => {
            return Err(refuse(
                ErrorKind::BadRequest,
                "a port is served by a device or by a program, not by both",
                "leave one of them out",
            ));
        }
        (Some(text), false) => Some(NamedDevice::find(text, scope)?),
        (None, true) => None,
        (None, false) => Some(namesake(&own, scope)?),
    };
    let with = |name: String, device: Option<&NamedDevice>| PortSpec {
        name,
        driver: device.map(|device| device.spelled.clone()),
        properties: port.properties.clone(),
        netns: device.and_then(|device| device.netns.as_ref()).map(|netns| netns.id().inode()),
    };
    let mut ports = vec![with(port.name.clone(), device.as_ref())];
    if host {
        let host_stack = device.as_ref().and_then(host_stack_of).ok_or_else(|| {
            refuse(
                ErrorKind::BadProperties,
                format!("{} has no interface whose host stack could be attached", name.base),
                "name one with --driver, such as --driver eth0",
            )
        })?;
        ports.push(with(host_side_text(&port.name), Some(&host_stack)));
    }
    Ok(ports)
}

/// Name of a port that can be attached, with its switch and its name on the switch.
fn switch_port(spec: &PortSpec) -> Result<(PortName, String, String), Refusal> {
    let name = parse_name(&spec.name)?;
    match &name.base {
        PortBase::Switch { switch, port } => {
            let (switch, port) = (switch.clone(), port.clone());
            Ok((name, switch, port))
        }
        other => Err(refuse(
            ErrorKind::BadName,
            format!("{other} is not a port of a switch"),
            "attach to a name such as vale0:p1",
        )),
    }
}

/// The namespace that a description names.
fn namespace_of(spec: &PortSpec) -> Result<Option<HeldNamespace>, Refusal> {
    let held = spec.netns.map(HeldNamespace::numbered).transpose();
    held.map_err(|error| refuse(ErrorKind::BadName, error.to_string(), ""))
}

/// Device that serves a described port; `None` if a program serves it.
///
/// # Errors
/// The refusal that a request would get now.
pub(crate) fn device_of(spec: &PortSpec) -> Result<Option<NamedDevice>, Refusal> {
    let netns = namespace_of(spec)?;
    let scope = netns.as_ref().map_or(NamespaceScope::Own, NamespaceScope::Within);
    let find = |text: &String| NamedDevice::find(text, scope);
    spec.driver.as_ref().map(find).transpose()
}

/// Interface with the port's name, or the host stack's side of it.
fn namesake(port: &str, scope: NamespaceScope<'_>) -> Result<NamedDevice, Refusal> {
    let interface = port.strip_suffix('^').unwrap_or(port);
    let netns = scope.home()?;
    let found = netns.run(|| link_by_name(interface));
    let found = found.map_err(|error| refuse(ErrorKind::Internal, error.to_string(), ""))?;
    found.map_err(|error| {
        refuse(
            ErrorKind::NoSuchPort,
            error.to_string(),
            "name what serves the port with --driver, or let it wait for a program with --for-program",
        )
    })?;
    NamedDevice::find(port, scope)
}

/// The host stack's side of the interface that a device is.
fn host_stack_of(device: &NamedDevice) -> Option<NamedDevice> {
    let (interface, _) = device.name.base.device()?.interface()?;
    let base = PortBase::Device(DeviceName::host_stack_of(interface)?);
    let name = PortName { base, options: Default::default() };
    Some(NamedDevice { spelled: name.base.to_string(), name, netns: device.netns.clone() })
}

/// Note for users about the host's loss if `device` is attached alone; `None` if the host loses nothing.
///
/// # Errors
/// The host uses the interface, and the request does not allow its loss.
fn cut_off(device: &ReadyDevice, take: bool) -> Result<Option<String>, Refusal> {
    let NamedDevice { name, netns: Some(netns), spelled } = &device.named else { return Ok(None) };
    let interface = match name.base.device().and_then(DeviceName::interface) {
        Some((interface, InterfaceUse::Wire | InterfaceUse::HostStack)) => interface,
        Some((_, InterfaceUse::Copies)) | None => return Ok(None),
    };
    // The owners of both sides decide about a connection between them.
    if device.plan.side.is_some_and(|side| holder_of(side.other()).is_some()) {
        return Ok(None);
    }
    let failed = |error| device_refusal(spelled, &error);
    let uses = netns
        .run(|| uses_of(&link_by_name(interface)?))
        .map_err(|error| failed(error.into()))?
        .map_err(|error| failed(error.into()))?;
    if !uses.is_empty() && !take {
        return Err(refuse(
            ErrorKind::BadProperties,
            format!(
                "attaching {interface} cuts the host off from it, and the host uses it: {}",
                uses.join(", ")
            ),
            "add --host to keep the host connected through the switch, or --take if the host should lose the interface",
        ));
    }
    let used = if uses.is_empty() { String::new() } else { format!(": {}", uses.join(", ")) };
    Ok(Some(format!("the host stack is cut off from {interface} meanwhile{used}")))
}

impl ReadyPorts {
    /// Ports that are ready.
    pub(crate) fn ready(&self) -> impl Iterator<Item = &ReadyPort> {
        self.0.iter().filter_map(|(_, port)| port.as_ref().ok())
    }

    /// Names of the ports that cannot be made, with the reason.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (String, String)> {
        let refused = self.0.iter().filter_map(|(record, port)| Some((record, port.as_ref().err()?)));
        refused.map(|(record, refusal)| (record.key(), refusal.message.clone()))
    }

    /// Names of all ports.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(record, _)| record.key())
    }
}

impl ReadyPort {
    /// Device of this port, if the port is `key`.
    pub(crate) fn device_of(&self, key: &str) -> Option<&ReadyDevice> {
        self.device.as_ref().filter(|_| self.key == key)
    }
}

impl Ports {
    /// Attaches ports for a command, all or none of them. With `take` they are attached even if that cuts the host off
    /// from an interface that it uses.
    ///
    /// # Errors
    /// The refusal to send; nothing is attached then.
    pub fn attach(&mut self, specs: Vec<PortSpec>, take: bool) -> Result<Vec<AttachedPort>, Refusal> {
        let number = |spec| PortRecord::new(spec, PortOrigin::Command { number: self.restore.new_number() });
        let records: Vec<_> = specs.into_iter().map(number).collect();
        for record in &records {
            self.rules.settle(&record.key(), &record.asked)?;
        }
        let mut attached: Vec<AttachedPort> = Vec::with_capacity(records.len());
        let ready: Result<Vec<_>, _> = self.make_ready(records).0.into_iter().map(|(_, port)| port).collect();
        for port in ready? {
            match self.enter(port, take) {
                Ok(port) => attached.push(port),
                Err(refusal) => {
                    for port in attached.iter().rev() {
                        self.table.detach(&port.name).map_err(fabric_refusal)?;
                    }
                    return Err(refusal);
                }
            }
        }
        self.keep_list();
        Ok(attached)
    }

    /// Attaches each of these ports that can be attached.
    pub(crate) fn attach_each(
        &mut self,
        records: Vec<PortRecord>,
    ) -> Vec<(PortRecord, Result<AttachedPort, Refusal>)> {
        let ready = self.make_ready(records);
        self.enter_each(ready)
    }

    /// Carries out the first step for each of these ports.
    pub(crate) fn make_ready(&self, records: Vec<PortRecord>) -> ReadyPorts {
        let mut ready = ReadyPorts::default();
        for record in records {
            let port = self.make_one_ready(record.clone(), &ready);
            ready.0.push((record, port));
        }
        ready
    }

    /// Carries out the second step for each of these ports.
    pub(crate) fn enter_each(
        &mut self,
        ready: ReadyPorts,
    ) -> Vec<(PortRecord, Result<AttachedPort, Refusal>)> {
        let mut missing: Vec<PortSpec> = Vec::new();
        let mut entered = Vec::with_capacity(ready.0.len());
        for (record, port) in ready.0 {
            let awaited = missing.iter().find(|other| is_host_side_of(&record.spec, other));
            let made = match awaited {
                Some(other) => Err(refuse(
                    ErrorKind::Busy,
                    format!("it waits for {}, without which the host would be cut off", key_of(other)),
                    "",
                )),
                // No question about `take`: the original command or configuration has answered it.
                None => port.and_then(|port| self.enter(port, true)),
            };
            if made.is_err() {
                missing.push(record.spec.clone());
            }
            entered.push((record, made));
        }
        entered
    }

    fn make_one_ready(&self, record: PortRecord, others: &ReadyPorts) -> Result<ReadyPort, Refusal> {
        let spec = &record.spec;
        let (name, switch, port) = switch_port(spec)?;
        let key = name.base.to_string();
        if self.table.on_switches().contains_key(&key) || others.ready().any(|other| other.key == key) {
            return Err(refuse(
                ErrorKind::PortTaken,
                format!("port {key} exists already"),
                "choose another name, or detach that one first",
            ));
        }
        let settings = self.rules.settings(&key, &record.asked);
        let (device, shape) = match self.described_device(&key, spec, others)? {
            None => (None, PortShape::of(&name.options, &spec.properties)),
            Some((device, shape)) => (Some(device), shape),
        };
        Ok(ReadyPort { record, key, switch, port, settings, shape, device })
    }

    /// Carries out the first step for the device of the described port `key`, beside `others`; `None` if it has none.
    /// Also returns the port's shape.
    pub(crate) fn described_device(
        &self,
        key: &str,
        spec: &PortSpec,
        others: &ReadyPorts,
    ) -> Result<Option<(ReadyDevice, PortShape)>, Refusal> {
        let (name, ..) = switch_port(spec)?;
        let share = name.options.share.as_deref();
        let ready = |named| self.ready_device(key, named, share, &spec.properties, others);
        device_of(spec)?.map(ready).transpose()
    }

    fn enter(&mut self, ready: ReadyPort, take: bool) -> Result<AttachedPort, Refusal> {
        let ReadyPort { record, key, switch, port, settings, shape, device } = ready;
        let device = match device {
            None => None,
            Some(device) => {
                let note = cut_off(&device, take)?;
                let (mut device, home) = self.open_ready_device(device, Vec::new())?;
                device.notes.extend(note);
                Some((device, home))
            }
        };
        let PortRecord { spec, asked, origin, index } = record;
        let taken = |index: &u8| {
            let mut ports = self.table.on_switches().values();
            ports.any(|port| port.switch == switch && port.index == *index)
        };
        let index = index.filter(|index| !taken(index));
        let number = origin.number();
        let kept = Kept { asked, spec: Some(spec), ..Kept::new(origin, Holding::default()) };
        let switch_port = SwitchPortName { switch: &switch, port: &port };
        let attached = self.table.attach(switch_port, index, device, (shape, settings), kept);
        let attached = attached.map_err(|error| table_refusal(&key, error))?;
        Ok(AttachedPort {
            driver: attached.occupant.driver().to_owned(),
            mode: attached.occupant.mode().to_owned(),
            notes: attached.occupant.notes().to_vec(),
            name: key,
            number,
        })
    }
}
