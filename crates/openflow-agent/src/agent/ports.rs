//! Ports as controllers see them, and changes by controllers.

use std::sync::Arc;

use ringroad_flow_tables::tables;
use ringroad_openflow::Text;
use ringroad_openflow::action::PortNo;
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::message::{
    PortConfig, PortDesc, PortFeatures, PortMod, PortState, PortStats, PortStatus, PortStatusReason,
    SwitchMessage,
};
use ringroad_port::counters::{CounterSnapshot, QueueCounters};
use ringroad_port::drop_cause::DropCause;

use super::Agent;
use crate::session::AsyncMessage;

/// A port of the switch.
#[derive(Debug)]
pub struct OpenFlowPort {
    /// Name of the port on the switch.
    pub name: String,
    /// Whether the port's link is up.
    pub is_up: bool,
    /// Counters of the port, one set for each queue.
    pub counters: Vec<Arc<QueueCounters>>,
    /// Counters of queues that the port had before, summed up.
    pub past: CounterSnapshot,
    /// Time at which the port was added, ns of the agent's clock.
    pub since_ns: u64,
    config: PortConfig,
}

impl OpenFlowPort {
    /// Makes a new port.
    #[must_use]
    pub fn new(name: String, is_up: bool, counters: Vec<Arc<QueueCounters>>, past: CounterSnapshot) -> Self {
        Self { name, is_up, counters, past, since_ns: 0, config: PortConfig::default() }
    }
}

impl Agent {
    /// Adds a port, or updates it.
    pub fn set_port(&mut self, number: PortNo, mut port: OpenFlowPort) {
        let old = self.ports.get(&number);
        let before = old.map(|old| self.describe(number, old));
        match old {
            Some(old) => (port.config, port.since_ns) = (old.config, old.since_ns),
            // The configuration may be in the state that another agent left.
            None => {
                port.config = self.state.tables().ports().get(number).map_or(port.config, |port| port.config)
            }
        }
        self.ports.insert(number, port);
        self.show_port(number, before.as_ref());
    }

    pub fn remove_port(&mut self, number: PortNo) {
        let Some(description) = self.ports.get(&number).map(|port| self.describe(number, port)) else {
            return;
        };
        self.ports.remove(&number);
        self.state.set_port(number, None);
        self.state.publish();
        self.tell_port(PortStatusReason::Delete, description);
    }

    /// Shows a port to workers, and to controllers if it is another than `before`.
    fn show_port(&mut self, number: PortNo, before: Option<&PortDesc>) {
        let Some(port) = self.ports.get(&number) else { return };
        self.state.set_port(number, Some(tables::TablePort { config: port.config, is_live: port.is_up }));
        self.state.publish();
        let description = self.describe(number, port);
        match before {
            None => self.tell_port(PortStatusReason::Add, description),
            Some(before) if *before != description => self.tell_port(PortStatusReason::Modify, description),
            Some(_) => {}
        }
    }

    fn tell_port(&mut self, reason: PortStatusReason, port: PortDesc) {
        self.tell(
            AsyncMessage::PortStatus(reason as u32),
            &SwitchMessage::PortStatus(PortStatus { reason, port }),
        );
    }

    pub(super) fn describe(&self, number: PortNo, port: &OpenFlowPort) -> PortDesc {
        let [.., a, b, c, d] = self.identity.datapath_id.to_be_bytes();
        let state = match port.is_up {
            true => PortState::LIVE,
            false => PortState::LINK_DOWN,
        };
        PortDesc {
            port: number,
            // The address is locally administered, and stays the same for the same switch and number.
            address: [0x02, a ^ b, c, d, (number.0 >> 8) as u8, number.0 as u8],
            name: Text::new(&port.name),
            config: port.config,
            state,
            current: PortFeatures::FULL_10GB,
            advertised: PortFeatures::default(),
            supported: PortFeatures::default(),
            peer: PortFeatures::default(),
            current_kbps: 10_000_000,
            max_kbps: 0,
        }
    }

    pub(super) fn port_mod(&mut self, change: &PortMod) -> Result<(), ErrorCode> {
        let Some(port) = self.ports.get(&change.port) else { return Err(ErrorCode::PORT_BAD_PORT) };
        let before = self.describe(change.port, port);
        if before.address != change.address {
            return Err(ErrorCode::PORT_BAD_HW_ADDR);
        }
        let config = PortConfig(port.config.0 & !change.mask.0 | change.config.0 & change.mask.0);
        if config.0 & !PortConfig::KNOWN.0 != 0 {
            return Err(ErrorCode::PORT_BAD_CONFIG);
        }
        if let Some(port) = self.ports.get_mut(&change.port) {
            port.config = config;
        }
        self.show_port(change.port, Some(&before));
        Ok(())
    }
}

/// Causes of drops that a port counts as a destination. All that are in no list here are counted at a source.
const TX_DROPS: [DropCause; 7] = [
    DropCause::NoSpace,
    DropCause::NotBound,
    DropCause::TooLong,
    DropCause::LinkDown,
    DropCause::Refused,
    DropCause::Impaired,
    DropCause::HoldFull,
];
/// Causes of drops by a destination that failed.
const TX_ERRORS: [DropCause; 2] = [DropCause::RingStopped, DropCause::WriteFailed];
/// Causes of drops of frames that did not come whole, are malformed, or came faster than the port takes them.
const RX_ERRORS: [DropCause; 4] =
    [DropCause::TooShort, DropCause::Incomplete, DropCause::BadOffload, DropCause::KernelDropped];
/// Value of a statistic that a switch does not count (OpenFlow 1.3.5, 7.3.5).
const NOT_COUNTED: u64 = u64::MAX;

pub(super) fn port_stats(number: PortNo, port: &OpenFlowPort, now_ns: u64) -> PortStats {
    let mut counters = port.past.clone();
    port.counters.iter().for_each(|queue| queue.add_to(&mut counters));
    let age = now_ns.saturating_sub(port.since_ns);
    let sum = |causes: &[DropCause]| {
        causes.iter().filter_map(|&cause| counters.dropped.get(cause as usize)).sum::<u64>()
    };
    let (tx_dropped, tx_errors, rx_errors) = (sum(&TX_DROPS), sum(&TX_ERRORS), sum(&RX_ERRORS));
    let dropped = counters.dropped.iter().sum::<u64>();
    // The switch's directions are reversed: a port receives what the switch takes from it.
    PortStats {
        port: number,
        rx_packets: counters.received_frames,
        tx_packets: counters.delivered_frames,
        rx_bytes: counters.received_bytes,
        tx_bytes: counters.delivered_bytes,
        rx_dropped: dropped - tx_dropped - tx_errors - rx_errors,
        tx_dropped,
        rx_errors,
        tx_errors,
        rx_frame_errors: NOT_COUNTED,
        rx_overruns: sum(&[DropCause::KernelDropped]),
        rx_crc_errors: NOT_COUNTED,
        collisions: NOT_COUNTED,
        duration_s: (age / 1_000_000_000) as u32,
        duration_ns: (age % 1_000_000_000) as u32,
    }
}
