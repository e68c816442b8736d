//! Changes of the links of ports. They show in reports and flow tables at once. A port is opened anew if its interface
//! has other queues, another MTU or other rings, or is another interface of the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringroad_control::message::{ErrorKind, PortSpec};
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::absent::stand_in;
use ringroad_drivers::device::{Device, DeviceInterface, InterfaceSettings};
use ringroad_drivers::nic::settings_of;
use ringroad_drivers::shm::{PortShape, ShmRegion};
use ringroad_netdev::LinkState;
use ringroad_netdev::link_watch::ring_at_changes;
use ringroad_ring::eventfd;
use tracing::{info, warn};

use crate::attaching::ReadyPorts;
use crate::ports::Ports;
use crate::refusal::{Refusal, refuse};

/// Minimum time between two openings of a port: a user who can change an interface decides how often it changes.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);

/// State of the links of ports.
#[derive(Debug)]
pub struct FollowedLinks {
    /// Eventfd that is signalled at each change of a link.
    pub(crate) bell: Arc<OwnedFd>,
    /// Revision of each port's link at the last check of its settings.
    seen: BTreeMap<String, u32>,
    /// Ports to be checked again, because they were opened a moment ago.
    pending: BTreeSet<String>,
    /// Ports that could not be opened anew, each with the change that requires it; they are retried.
    unopened: BTreeMap<String, String>,
    /// Time at which each port was last opened anew.
    renewed: BTreeMap<String, Instant>,
}

impl FollowedLinks {
    /// Begins to follow links.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let bell = Arc::new(eventfd::create()?);
        ring_at_changes(&bell);
        let seen = BTreeMap::new();
        Ok(Self { bell, seen, pending: BTreeSet::new(), unopened: BTreeMap::new(), renewed: BTreeMap::new() })
    }

    /// Whether ports are to be checked again without a change.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty() || !self.unopened.is_empty()
    }
}

impl Ports {
    /// Processes the changes of links.
    ///
    /// # Errors
    /// A worker that is gone.
    pub(crate) fn follow_links(&mut self) -> Result<(), FabricError> {
        // Faults come first, since frames depend on them and a port may take long to open.
        self.watch_devices()?;
        if self.follow_settings()? {
            self.watch_devices()?;
        }
        Ok(())
    }

    /// Opens ports anew whose interfaces have other settings than at their opening. Returns whether there were such
    /// ports.
    fn follow_settings(&mut self) -> Result<bool, FabricError> {
        let ports = self.table.on_switches().iter();
        let interfaces =
            ports.filter_map(|(key, port)| Some((key, port.occupant.device()?.interface.as_ref()?)));
        let now = Instant::now();
        let FollowedLinks { seen, pending, unopened, renewed, .. } = &mut self.links;
        let mut changed = Vec::new();
        for (key, interface) in interfaces {
            let revision = interface.link.view().revision;
            let is_new = seen.insert(key.clone(), revision).unwrap_or(0) != revision;
            if !is_new && !pending.contains(key) && !unopened.contains_key(key) {
                continue;
            }
            if renewed.get(key).is_some_and(|&at| now < at + RENEWAL_PAUSE) {
                pending.insert(key.clone());
                continue;
            }
            pending.remove(key);
            let Some(now) = settings_of(interface) else { continue };
            let change = unopened.remove(key).or_else(|| change_of(interface, &now));
            changed.extend(change.map(|change| (key.clone(), change)));
        }
        let has_changed = !changed.is_empty();
        for (key, change) in changed {
            self.renew(&key, &change)?;
        }
        self.note_changes_for_programs();
        let Self { links: FollowedLinks { seen, pending, unopened, renewed, .. }, table, .. } = self;
        seen.retain(|key, _| table.on_switches().contains_key(key) || table.devices().contains_key(key));
        pending.retain(|key| table.on_switches().contains_key(key));
        unopened.retain(|key, _| table.on_switches().contains_key(key));
        renewed.retain(|key, _| table.on_switches().contains_key(key));
        Ok(has_changed)
    }

    /// Opens the device of a port of a switch again, in place of the present one; `change` is the reason, for people.
    fn renew(&mut self, key: &str, change: &str) -> Result<(), FabricError> {
        self.links.renewed.insert(key.to_owned(), Instant::now());
        let Some(port) = self.table.on_switches().get(key) else { return Ok(()) };
        let (spec, shape) = (port.kept.spec.clone(), port.shape);
        let Some(device) = port.occupant.device() else { return Ok(()) };
        let (capabilities, interface) = (device.capabilities.clone(), device.interface.clone());
        let reason = format!("the interface changed: {change}");
        let absent = stand_in(capabilities.clone(), interface.clone(), &reason);
        // The interface is free before it is opened again.
        drop(self.table.replace_device(key, (absent, None), shape)?);
        match self.open_again(key, spec.as_ref()) {
            Ok((mut device, home, shape)) => {
                let note = format!("opened anew, since the interface changed: {change}");
                info!(visited = %key, mode = %device.capabilities.mode, "{note}");
                device.notes.push(note);
                self.table.replace_device(key, (device, home), shape)?;
            }
            Err(refusal) => {
                let reason =
                    format!("the interface changed ({change}), and cannot be opened: {}", refusal.message);
                let absent = stand_in(capabilities, interface, &reason);
                self.table.replace_device(key, (absent, None), shape)?;
                self.links.unopened.insert(key.to_owned(), change.to_owned());
            }
        }
        Ok(())
    }

    fn open_again(
        &self,
        key: &str,
        spec: Option<&PortSpec>,
    ) -> Result<(Device, Option<Arc<ShmRegion>>, PortShape), Refusal> {
        let ready = spec.map(|spec| self.described_device(key, spec, &ReadyPorts::default())).transpose()?;
        let (ready, shape) = ready.flatten().ok_or_else(|| {
            refuse(ErrorKind::Internal, format!("{key} has no description of a device"), "")
        })?;
        let (device, home) = self.open_ready_device(ready, Vec::new())?;
        Ok((device, home, shape))
    }

    /// Adds notes about changed interfaces to the devices of programs: only the program can open them anew.
    fn note_changes_for_programs(&mut self) {
        for (key, device) in self.table.devices_mut() {
            let Some(interface) = &mut device.interface else { continue };
            let revision = interface.link.view().revision;
            if self.links.seen.insert(key.to_owned(), revision).unwrap_or(0) == revision {
                continue;
            }
            let Some(now) = settings_of(interface) else { continue };
            let Some(change) = change_of(interface, &now) else { continue };
            interface.opened_for = Some(now);
            let note = format!("the interface changed, and this port did not: {change}; open the port again");
            warn!(visited = %key, "{note}");
            device.notes.push(note);
        }
    }
}

/// Difference between an interface and the settings at its device's opening, for people; `None` if there is none.
fn change_of(interface: &DeviceInterface, now: &InterfaceSettings) -> Option<String> {
    let before = interface.opened_for?;
    match interface.link.state() {
        // The interface is another one, even with the same index.
        LinkState::Gone => Some(now.changes_since(&InterfaceSettings { index: 0, ..before })),
        _ => (*now != before).then(|| now.changes_since(&before)),
    }
}
