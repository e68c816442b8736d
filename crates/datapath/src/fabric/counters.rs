//! Counters and faults of ports, switches and the fabric.

use std::collections::BTreeMap;

use ringroad_port::counters::CounterSnapshot;

use super::{Fabric, FabricError};
use crate::engine::Engine;

/// Totals of a switch, ports that left included.
#[derive(Debug, Clone, Default)]
pub struct SwitchTotals {
    /// Sum over all ports.
    pub totals: CounterSnapshot,
    /// Number of addresses in the table.
    pub macs: usize,
    /// Addresses that left the table for lack of room.
    pub evictions: u64,
    /// Times that a frame from a static address came in by another port.
    pub refused_moves: u64,
    /// Number of ports now.
    pub ports: usize,
}

impl Fabric {
    /// Totals of a port since it was attached, over all programs that opened it.
    #[must_use]
    pub fn port_counters(&self, switch: &str, port: &str) -> Option<CounterSnapshot> {
        Some(self.switches.get(switch)?.ports.get(port)?.counters())
    }

    /// Counters of the queues that a port has now.
    pub fn queue_counters(&self, switch: &str, port: &str) -> impl Iterator<Item = CounterSnapshot> {
        let port = self.switches.get(switch).and_then(|switch| switch.ports.get(port));
        port.into_iter().flat_map(|port| &port.counters).map(|counters| {
            let mut sum = CounterSnapshot::default();
            counters.add_to(&mut sum);
            sum
        })
    }

    /// Reason why each of `ports`, given by switch and name, has stopped, or `None`. Each worker is queried once.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn port_faults(&self, ports: &[(&str, &str)]) -> Result<Vec<Option<String>>, FabricError> {
        let mut by_worker: BTreeMap<u16, Vec<(usize, u32)>> = BTreeMap::new();
        for (index, (switch, port)) in ports.iter().enumerate() {
            let port = self.switches.get(*switch).and_then(|switch| switch.ports.get(*port));
            for queue in port.iter().flat_map(|port| &port.queues) {
                by_worker.entry(queue.worker).or_default().push((index, queue.index));
            }
        }
        let mut faults = vec![None; ports.len()];
        for (worker, queue_indexes) in by_worker {
            let found = self.runner(worker)?.call(move |engine| {
                let faults = queue_indexes
                    .into_iter()
                    .filter_map(|(index, queue_index)| Some((index, fault_at(engine, queue_index)?)));
                faults.collect::<Vec<_>>()
            })?;
            for (index, fault) in found {
                if let Some(first) = faults.get_mut(index) {
                    first.get_or_insert(fault);
                }
            }
        }
        Ok(faults)
    }

    /// Totals of a switch, ports that left included: the sum whose conservation reports check.
    #[must_use]
    pub fn switch_totals(&self, switch: &str) -> Option<SwitchTotals> {
        let switch = self.switches.get(switch)?;
        let totals = switch.counters();
        let table = &switch.learning.table;
        Some(SwitchTotals {
            totals,
            macs: table.len(),
            evictions: table.evictions(),
            refused_moves: table.refused_moves(),
            ports: switch.ports.len(),
        })
    }

    /// Totals of the whole datapath, removed switches, wires and ports included.
    #[must_use]
    pub fn totals(&self) -> CounterSnapshot {
        let mut totals = self.departed.clone();
        for switch in self.switches.values() {
            totals += switch.counters();
        }
        let wires = self.wires.values().flat_map(|wire| wire.counters.iter().flatten());
        for counters in wires.chain(&self.engine_counters) {
            counters.add_to(&mut totals);
        }
        totals
    }

    /// Counts frames of all ports that the kernel dropped before they could be received.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn count_missed(&self) -> Result<(), FabricError> {
        self.runners.iter().try_for_each(|runner| runner.call(Engine::count_missed))
    }
}

/// Reason why the queue at `queue_index` has stopped, or `None`.
pub(super) fn fault_at(engine: &mut Engine, queue_index: u32) -> Option<String> {
    engine.queue_mut(queue_index)?.diagnosis()?.fault()
}
