//! Handover of ports and counters between the fabrics of two processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ringroad_port::counters::{CounterSnapshot, QueueCounters};
use ringroad_port::port_queue::HandOver;
use ringroad_ring::real_time;
use rustix::process::Pid;

use super::{Fabric, FabricError, Runner, Switch, WireId};
use crate::forwarding::QueueRef;

/// State that a queue leaves to another process, with its counters.
#[derive(Debug)]
pub struct QueueLeft {
    /// State of the driver; `None` if the port has to be opened again.
    pub hand_over: Option<HandOver>,
    pub counters: CounterSnapshot,
}

/// State that a port of a switch leaves to another process.
#[derive(Debug)]
pub struct PortLeft {
    pub queues: Vec<QueueLeft>,
    /// Totals of the queues that the port had before.
    pub past: CounterSnapshot,
}

impl Fabric {
    /// Waits until every worker has finished its current turn; its next turn sees all earlier changes.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn settle(&self) -> Result<(), FabricError> {
        self.runners.iter().try_for_each(|runner| runner.call(|_| ()))
    }

    /// Makes every worker run nothing but commands, or everything again ([`hold`](crate::engine::Engine::hold)).
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn hold(&self, holds: bool) -> Result<(), FabricError> {
        self.runners.iter().try_for_each(|runner| runner.call(move |engine| engine.hold(holds)))
    }

    /// Lets the held workers forward the frames that they had received, until none remains or `deadline` has passed.
    /// Returns whether none remains. Devices and drivers have a tenth of the time for their own work: a peer must not
    /// prolong it.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn quiesce(&self, deadline: Instant) -> Result<bool, FabricError> {
        let patience = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 10;
        loop {
            let now = Instant::now();
            let mut is_quiescent = true;
            for runner in &self.runners {
                is_quiescent &= runner.call(move |engine| engine.quiesce(now < patience))?;
            }
            // A quiescent worker hands no frames to other workers, so all workers quiesce.
            if is_quiescent || now >= deadline {
                return Ok(is_quiescent);
            }
        }
    }

    /// State that the queues of a port leave to another process, with their counters, queue by queue, and the totals of
    /// queues that the port had before.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPort`], or a worker that is gone.
    pub fn hand_over_port(&self, switch: &str, port: &str) -> Result<PortLeft, FabricError> {
        let entry = self.switches.get(switch).and_then(|switch| switch.ports.get(port));
        let entry = entry.ok_or_else(|| FabricError::NoSuchPort(format!("{switch}:{port}")))?;
        Ok(PortLeft { queues: self.leave(&entry.queues, &entry.counters)?, past: entry.past.clone() })
    }

    /// State that the two ports at the ends of a wire leave to another process.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn hand_over_wire(&self, wire: WireId) -> Result<[Vec<QueueLeft>; 2], FabricError> {
        let Some(wire) = self.wires.get(&wire.0) else { return Ok([Vec::new(), Vec::new()]) };
        let counters: Vec<_> = wire.counters.iter().flatten().cloned().collect();
        let mut ends = [Vec::new(), Vec::new()];
        for (number, queue) in self.leave(&wire.queues, &counters)?.into_iter().enumerate() {
            ends[number % 2].push(queue);
        }
        Ok(ends)
    }

    fn leave(
        &self,
        queues: &[QueueRef],
        counters: &[Arc<QueueCounters>],
    ) -> Result<Vec<QueueLeft>, FabricError> {
        let mut left = Vec::with_capacity(queues.len());
        for (queue, counters) in queues.iter().zip(counters) {
            let queue_index = queue.index;
            let hand_over = self.runner(queue.worker)?.call(move |engine| engine.hand_over(queue_index))?;
            let mut snapshot = CounterSnapshot::default();
            counters.add_to(&mut snapshot);
            if hand_over.is_none() {
                snapshot.give_up_waiting();
            }
            left.push(QueueLeft { hand_over, counters: snapshot });
        }
        Ok(left)
    }

    /// Totals of removed ports and queues: of each switch, and of everything else.
    #[must_use]
    pub fn departed(&self) -> (BTreeMap<String, CounterSnapshot>, CounterSnapshot) {
        let of_switch = |switch: &Switch| {
            let mut sum = switch.departed.clone();
            switch.worker_counters.iter().for_each(|counters| counters.add_to(&mut sum));
            sum
        };
        let mut others = self.departed.clone();
        self.engine_counters.iter().for_each(|counters| counters.add_to(&mut others));
        (self.switches.iter().map(|(name, switch)| (name.clone(), of_switch(switch))).collect(), others)
    }

    /// Adds the totals of ports and queues that another process had removed ([`Self::departed`]). Totals of a switch
    /// that does not come back are added to those of everything else.
    pub fn resume_departed(
        &mut self,
        of_switches: BTreeMap<String, CounterSnapshot>,
        others: CounterSnapshot,
    ) {
        self.departed += others;
        for (name, counters) in of_switches {
            match self.switches.get_mut(&name) {
                Some(switch) => switch.departed += counters,
                None => self.departed += counters,
            }
        }
    }

    /// Gives the workers a real-time priority, or makes them ordinary threads again: 0. A worker that does not run yet
    /// is left out.
    ///
    /// # Errors
    /// As [`ringroad_ring::real_time::set_priority`].
    pub fn set_priority(&self, priority: u8) -> rustix::io::Result<()> {
        for runner in &self.runners {
            let Runner::Thread(worker) = runner else { continue };
            let thread = worker.stats().thread_id.load(Ordering::Relaxed);
            if let Some(thread) = Pid::from_raw(thread.cast_signed()) {
                real_time::set_priority(Some(thread), priority)?;
            }
        }
        Ok(())
    }

    /// Keeps the workers awake, or lets them sleep again if their settings permit it.
    pub fn keep_awake(&self, awake: bool) {
        for runner in &self.runners {
            if let Runner::Thread(worker) = runner {
                worker.keep_awake(awake);
            }
        }
    }
}
