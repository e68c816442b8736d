//! Monitors: ports whose rx rings show the frames that pass another port's rings.
//!
//! A monitor's rings lie in the region of the monitored port. The worker that serves a ring copies the frames that pass
//! the datapath. The programs at the rings do all other work: exchanges after use (zero-copy), and copies of all frames
//! on pipes.

use std::sync::atomic::Ordering;

use ringroad_control::netmap::{MonitorRing, NetmapReply, PortSizes, Register};
use ringroad_drivers::shm::netmap_queue::RingMonitor;
use ringroad_ring::eventfd;
use ringroad_ring::geometry::MAX_QUEUES;
use ringroad_ring::layout::Direction;
use ringroad_ring::monitor_end::MonitorEnd;
use ringroad_ring::violation::RingViolation;
use rustix::io::Errno;
use std::os::fd::AsFd;

use super::bind::{duplicate, flag};
use super::failure::{NetmapFailure, fail};
use super::find::clamp_sizes;
use super::name::PortKey;
use super::port::{Kind, NetmapPort};
use super::{Netmap, NetmapAnswer, Requester};
use crate::ports::Ports;
use crate::quotas::Demand;

impl Netmap {
    /// Makes a monitor of the port that the request names, for one device.
    pub(crate) fn make_monitor(
        &mut self,
        requester: &Requester<'_>,
        device: u64,
        register: &Register,
    ) -> Result<PortKey, NetmapFailure> {
        let invalid = |message: String| fail(Errno::INVAL, message);
        let parent = self.known(requester, &register.name).map_err(|failure| match failure.errno {
            Errno::NXIO => invalid(failure.message),
            _ => failure,
        })?;
        let nobody = || invalid(format!("no program has {parent} open, so there is nothing to monitor"));
        let port = self.ports.get(&parent).ok_or_else(nobody)?;
        if port.bound.is_empty() || matches!(port.kind, Kind::Monitor { .. } | Kind::Null) {
            return Err(nobody());
        }
        let rings = port.sizes.tx_rings.max(port.sizes.rx_rings);
        let request = PortSizes { tx_rings: 1, rx_rings: rings, ..register.sizes };
        let slots = port.sizes.tx_slots.max(port.sizes.rx_slots);
        let sizes = clamp_sizes(&request, [slots; 2], MAX_QUEUES.max(rings));
        let kind = Kind::Monitor {
            parent: parent.clone(),
            zero_copy: register.flags & flag::ZCOPY_MON != 0,
            tx: register.flags & flag::MONITOR_TX != 0,
            rx: register.flags & flag::MONITOR_RX != 0,
        };
        let key = PortKey::Monitor { of: Box::new(parent.clone()), device };
        let holding = requester.hold(Demand::of_port(1))?;
        let memory = std::sync::Arc::clone(&port.memory);
        let monitor = NetmapPort::new(&register.name, kind, requester.client, memory, sizes, holding);
        self.insert(key.clone(), monitor)?;
        if let Some(port) = self.ports.get_mut(&parent) {
            port.monitors.push(key.clone());
        }
        Ok(key)
    }

    /// Rings of bound monitors of `port`, each with the monitored ring and the monitor.
    fn monitor_rings(&self, port: &NetmapPort) -> Vec<(MonitorRing, &NetmapPort)> {
        let mut monitor_rings = Vec::new();
        for monitor in port.monitors.iter().filter_map(|key| self.ports.get(key)) {
            let Kind::Monitor { zero_copy, tx, rx, .. } = monitor.kind else { continue };
            for ring in monitor.rings.iter().filter(|ring| ring.direction == Direction::Rx && ring.users > 0)
            {
                for (direction, wanted) in [(Direction::Tx, tx), (Direction::Rx, rx)] {
                    if wanted && port.ring(direction, ring.index).is_some_and(|monitored| !monitored.host) {
                        let monitor_ring = MonitorRing {
                            direction,
                            index: ring.index,
                            object: ring.object,
                            slots: ring.slots,
                            zero_copy,
                            sent: direction == Direction::Tx,
                        };
                        monitor_rings.push((monitor_ring, monitor));
                    }
                }
            }
        }
        monitor_rings
    }

    /// The monitors that the programs at the device's rings have to fill.
    pub(crate) fn monitors_to_fill(&self, device: u64) -> Result<NetmapAnswer, NetmapFailure> {
        let (_, port) = self.bound(device)?;
        let mut rings = Vec::new();
        let mut descriptors = Vec::new();
        let mut add = |monitor_ring: MonitorRing, monitor: &NetmapPort| -> Result<(), NetmapFailure> {
            if let Some(events) = monitor.events.first() {
                descriptors.push(duplicate(events.notify.as_fd())?);
                rings.push(monitor_ring);
            }
            Ok(())
        };
        let peer = self.peer_of(port);
        for (monitor_ring, monitor) in self.monitor_rings(port) {
            // The sender of a pipe shows the frames that arrive at its end.
            if monitor_ring.zero_copy || peer.is_some() && monitor_ring.direction == Direction::Tx {
                add(monitor_ring, monitor)?;
            }
        }
        for (monitor_ring, monitor) in peer.map(|peer| self.monitor_rings(peer)).unwrap_or_default() {
            if !monitor_ring.zero_copy && monitor_ring.direction == Direction::Rx {
                add(MonitorRing { direction: Direction::Tx, ..monitor_ring }, monitor)?;
            }
        }
        Ok(NetmapAnswer { reply: NetmapReply::Monitors(rings), descriptors })
    }

    /// Tells datapath and programs of the monitors of a port, or of the port that `key` monitors.
    pub(crate) fn show_monitors(&self, key: &PortKey, ports: &Ports) -> Result<(), NetmapFailure> {
        let Some(port) = self.ports.get(key) else { return Ok(()) };
        if let Kind::Monitor { parent, .. } = &port.kind {
            return self.show_monitors(parent, ports);
        }
        if port.is_served() {
            let monitor_rings = self.monitor_rings(port);
            for (queue, state) in (0u16..).zip(&port.states) {
                let mut monitors = Vec::new();
                for (monitor_ring, monitor) in monitor_rings
                    .iter()
                    .filter(|(monitor_ring, _)| !monitor_ring.zero_copy && monitor_ring.index == queue)
                {
                    let Some(events) = monitor.events.first() else { continue };
                    let Some(ring) = monitor.ring(Direction::Rx, monitor_ring.index) else { continue };
                    monitors.push(RingMonitor {
                        direction: monitor_ring.direction,
                        end: MonitorEnd::new(monitor.view(ring)?),
                        notify: duplicate(events.notify.as_fd())?,
                    });
                }
                state.set_monitors(monitors);
            }
        }
        let peer = self.peer_of(port);
        for port in std::iter::once(port).chain(peer) {
            for ring in &port.rings {
                port.view(ring)?.control().datapath.monitors.fetch_add(1, Ordering::SeqCst);
            }
        }
        // Workers do not use the old monitors after this.
        ports.table.fabric().settle()?;
        Ok(())
    }

    /// Ends the monitors of a port whose last user has left: they see no more frames, and get a notification.
    pub(crate) fn end_monitors_of(&mut self, key: &PortKey, ports: &Ports) -> Result<(), NetmapFailure> {
        let Some(port) = self.ports.get_mut(key) else { return Ok(()) };
        if port.monitors.is_empty() {
            return Ok(());
        }
        let monitors = std::mem::take(&mut port.monitors);
        self.show_monitors(key, ports)?;
        for monitor in monitors.iter().filter_map(|key| self.ports.get(key)) {
            for ring in &monitor.rings {
                let violation = RingViolation::DeviceGone as u32;
                monitor.view(ring)?.control().datapath.violation.store(violation, Ordering::Release);
            }
            if let Some(events) = monitor.events.first() {
                eventfd::ring(&events.notify);
            }
        }
        Ok(())
    }

    /// Removes a monitor: it gets no more frames. Its rings are taken back when no program fills them.
    pub(crate) fn leave_parent(
        &mut self,
        key: &PortKey,
        parent: &PortKey,
        ports: &Ports,
    ) -> Result<(), NetmapFailure> {
        if let Some(port) = self.ports.get_mut(parent) {
            port.monitors.retain(|monitor| monitor != key);
        }
        let shown = self.show_monitors(parent, ports);
        let parent = self.ports.get(parent);
        let peer = parent.and_then(|parent| self.peer_of(parent));
        let fillers = parent.into_iter().chain(peer);
        let filled_from =
            fillers.flat_map(|port| port.rings.iter().flat_map(|ring| port.view(ring))).collect();
        if let Some(mut monitor) = self.ports.remove(key) {
            monitor.take_back_behind(filled_from);
        }
        shown
    }
}
