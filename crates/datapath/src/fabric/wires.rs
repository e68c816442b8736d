//! Wires: two ports joined queue by queue, without a switch.

use std::sync::Arc;

use ringroad_port::counters::{CounterSnapshot, QueueCounters};

use super::counters::fault_at;
use super::{Fabric, FabricError, QueueParts, Share};
use crate::engine::Engine;
use crate::engine_queue::EngineQueue;
use crate::forwarding::{Forwarding, QueueRef};

/// Identifier of a wire, whose two ports send to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireId(pub(super) u64);

/// Two ports joined queue by queue.
#[derive(Debug)]
pub(super) struct Wire {
    /// Queues of the first port and of the second, alternating.
    pub(super) queues: Vec<QueueRef>,
    pub(super) counters: Vec<[Arc<QueueCounters>; 2]>,
}

impl Fabric {
    /// Joins the queues of two ports pairwise, each pair on one worker, with no switch between them; both are served in
    /// `share`.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn wire(
        &mut self,
        share: Share,
        a: Vec<QueueParts>,
        b: Vec<QueueParts>,
    ) -> Result<WireId, FabricError> {
        let owner = self.owner(share);
        let mut refs = Vec::with_capacity(2 * a.len());
        let mut counters = Vec::with_capacity(a.len());
        for (a, b) in a.into_iter().zip(b) {
            counters.push([Arc::clone(&a.counters), Arc::clone(&b.counters)]);
            let (a_ref, _) = self.assign(a, Forwarding::Hold, owner)?;
            let b_index = self.free_queue_index(a_ref.worker);
            let (a_index, worker) = (a_ref.index, a_ref.worker);
            let b = EngineQueue::new(b.port, Forwarding::Wire(a_index), b.counters, owner);
            let b_ref = QueueRef { worker, frame_cost: b.properties().frame_cost, index: b_index };
            self.runner(worker)?.call(move |engine| {
                engine.insert(b_index, b);
                engine.set_forwarding(a_index, Forwarding::Wire(b_index));
            })?;
            refs.extend([a_ref, b_ref]);
        }
        self.next_wire += 1;
        self.wires.insert(self.next_wire, Wire { queues: refs, counters });
        Ok(WireId(self.next_wire))
    }

    /// Removes a wire and both its ports.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn unwire(&mut self, wire: WireId) -> Result<(), FabricError> {
        if let Some(wire) = self.wires.remove(&wire.0) {
            let counters = self.take_out(&wire.queues)?;
            self.departed += counters;
        }
        Ok(())
    }

    /// Totals of the ports at the two ends of a wire since they were joined: the first, then the second.
    #[must_use]
    pub fn wire_counters(&self, wire: WireId) -> Option<[CounterSnapshot; 2]> {
        let mut sums = <[CounterSnapshot; 2]>::default();
        for pair in &self.wires.get(&wire.0)?.counters {
            for (sum, counters) in sums.iter_mut().zip(pair) {
                counters.add_to(sum);
            }
        }
        Some(sums)
    }

    /// Reason why the second port of a wire has stopped, or `None`.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn wire_fault(&self, wire: WireId) -> Result<Option<String>, FabricError> {
        Ok(self.at_each(&self.second_queues(wire), fault_at)?.into_iter().flatten().next())
    }

    /// References to the queues of the second port of a wire, in their order.
    #[must_use]
    pub fn second_queues(&self, wire: WireId) -> Vec<QueueRef> {
        let pairs = self.wires.get(&wire.0).map_or(&[][..], |wire| &wire.queues);
        pairs.iter().skip(1).step_by(2).copied().collect()
    }

    /// Notifies the programs whose devices have ended.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn end_wires(&self) -> Result<(), FabricError> {
        self.runners.iter().try_for_each(|runner| runner.call(Engine::end_wires))
    }
}
