//! Reports of netmap ports that are on no switch.

use ringroad_control::report::{CounterReport, PortReport};
use ringroad_datapath::fabric::{Fabric, FabricError, WireId};
use ringroad_ring::control_block::FillCounts;
use ringroad_ring::layout::Direction;

use super::name::PortKey;
use super::port::{Kind, NetmapPort};
use super::service::{OpenSide, Service};
use crate::port_entries::Client;
use crate::status::{filled_report, link_and_fault, owner_report, wire_report};

impl NetmapPort {
    /// Whether the port is on no switch.
    pub(crate) fn is_off_switches(&self) -> bool {
        !matches!(self.kind, Kind::Ephemeral { .. } | Kind::Persistent { switch: Some(_), .. })
    }

    /// Counts that programs have written into the port's rings.
    fn filled(&self) -> FillCounts {
        let rings = self.rings.iter().filter(|ring| ring.direction == Direction::Rx);
        rings.filter_map(|ring| self.view(ring).ok()).map(|view| view.control().datapath.filled.read()).sum()
    }

    /// Report of the port, known as `key` and bound by `user`: an interface's own side and the host's side have
    /// separate counters. `peer` is the other end, if the port is an end of a pipe.
    pub(crate) fn report(
        &self,
        key: &PortKey,
        user: Option<&Client>,
        peer: Option<&Self>,
        fabric: &Fabric,
    ) -> Result<Vec<PortReport>, FabricError> {
        let (kind, mode) = match &self.kind {
            Kind::Pipe { .. } => ("pipe", "frames pass between the programs, not through the daemon"),
            Kind::Monitor { zero_copy: true, .. } => ("monitor", "frames are exchanged after use"),
            Kind::Monitor { .. } => ("monitor", "frames are copied"),
            Kind::Null => ("null", "rings that no device serves"),
            Kind::Interface { .. } => ("netmap", "waits for a program"),
            Kind::Persistent { .. } | Kind::Ephemeral { .. } => ("netmap", "on no switch"),
        };
        let report = PortReport {
            name: key.to_string(),
            kind: kind.to_owned(),
            mode: mode.to_owned(),
            persistent: matches!(self.kind, Kind::Persistent { automatic: false, .. }),
            bound: user.is_some(),
            // The port's maker owns it while it exists, bound or not.
            owner: Some(owner_report(user.unwrap_or(&self.owner))),
            queues: self.queues(),
            slots: self.sizes.tx_slots.max(self.sizes.rx_slots),
            buffer_bytes: self.memory.geometry().buffer_bytes,
            counters: match self.kind {
                Kind::Pipe { .. } | Kind::Monitor { .. } => {
                    filled_report(&peer.map(Self::filled).unwrap_or_default(), &self.filled())
                }
                _ => CounterReport::default(),
            },
            ..PortReport::default()
        };
        let of_wire = |report: PortReport, wire: WireId| -> Result<PortReport, FabricError> {
            let [program, outside] = fabric.wire_counters(wire).unwrap_or_default();
            Ok(PortReport {
                counters: wire_report(&program, &outside),
                error: fabric.wire_fault(wire)?,
                ..report
            })
        };
        let of_side = |report: PortReport, side: &OpenSide| -> Result<PortReport, FabricError> {
            let device = &side.device;
            let (link, card_error) = link_and_fault(device);
            let report = PortReport {
                mode: device.capabilities.mode.clone(),
                notes: device.notes.clone(),
                link,
                ..report
            };
            let report = of_wire(report, side.wire)?;
            Ok(PortReport { error: report.error.or(card_error), ..report })
        };
        match &self.service {
            Service::Drain(wire) => Ok(vec![of_wire(report, *wire)?]),
            Service::Interface { nic, host } => {
                let host = host.as_ref().map(|host| {
                    let of_host =
                        PortReport { name: format!("{key}^"), queues: self.host_queues(), ..report.clone() };
                    of_side(of_host, host)
                });
                let own = match nic {
                    Some(nic) => of_side(report.clone(), nic)?,
                    None => report,
                };
                Ok(std::iter::once(own).chain(host.transpose()?).collect())
            }
            Service::None | Service::Switch => Ok(vec![report]),
        }
    }
}
