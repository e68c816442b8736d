//! What is told of netmap's ports that are on no switch.

use ringroad_control::report::{CounterReport, PortReport};
use ringroad_datapath::fabric::{Fabric, FabricError};

use super::port::{Kind, NetmapPort};
use super::service::{OpenSide, Service};
use crate::status::{link_report, wire_report};

impl NetmapPort {
    /// Whether it is on no switch.
    pub(crate) fn is_off_switches(&self) -> bool {
        !matches!(self.kind, Kind::Ephemeral { .. } | Kind::Persistent { switch: Some(_), .. })
    }

    /// What is told of it, known as `key`.
    pub(crate) fn report(&self, key: &str, fabric: &Fabric) -> Result<PortReport, FabricError> {
        let (kind, mode) = match &self.kind {
            Kind::Pipe { .. } => ("pipe", "frames pass between the programs, not through the daemon"),
            Kind::Monitor { zero_copy: true, .. } => ("monitor", "frames are exchanged after use"),
            Kind::Monitor { .. } => ("monitor", "frames are copied"),
            Kind::Null => ("null", "rings that nobody works"),
            Kind::Interface { .. } => ("netmap", "waits for a program"),
            Kind::Persistent { .. } | Kind::Ephemeral { .. } => ("netmap", "on no switch"),
        };
        let mut report = PortReport {
            name: key.to_owned(),
            kind: kind.to_owned(),
            mode: mode.to_owned(),
            switch: None,
            index: None,
            persistent: matches!(self.kind, Kind::Persistent { automatic: false, .. }),
            bound: !self.bound.is_empty(),
            owner: None,
            queues: self.queues(),
            slots: self.sizes.tx_slots.max(self.sizes.rx_slots),
            buffer_bytes: self.memory.geometry().buffer_bytes,
            counters: CounterReport::default(),
            error: None,
            notes: Vec::new(),
            link: None,
            peer: None,
        };
        if let Service::Interface { nic: Some(nic), .. } = &self.service {
            let OpenSide { wire, device } = nic.as_ref();
            let [program, outside] = fabric.wire_counters(*wire).unwrap_or_default();
            report.mode.clone_from(&device.capabilities.mode);
            report.counters = wire_report(&program, &outside);
            report.error = fabric.wire_fault(*wire)?;
            report.notes.clone_from(&device.notes);
            report.link = link_report(device);
        }
        Ok(report)
    }
}
