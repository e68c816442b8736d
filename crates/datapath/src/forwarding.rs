//! Where frames go: the state of a switch that workers share, and the map from its ports to queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ringroad_port::counters::QueueCounters;
use ringroad_switch::{MAX_PORTS, MacTable, PortIndex, PortSet, SourcePort, Tick};

/// A queue, named by the worker that serves it and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueRef {
    /// Index of the worker.
    pub worker: u16,
    /// What a frame delivered to it costs ([`ringroad_port::port_queue::QueueProperties::frame_cost`]).
    pub frame_cost: u16,
    /// Place in the worker's engine.
    pub place: u32,
}

/// Number of a switch within one datapath.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwitchId(pub u16);

/// What all workers share of a switch. All of it is safe to read and write from any thread without a lock.
#[derive(Debug)]
pub struct SwitchState {
    /// Learned addresses.
    pub table: MacTable,
    /// Ports that exist now.
    pub ports: PortSet,
    now: AtomicU8,
}

impl SwitchState {
    /// A switch without ports.
    #[must_use]
    pub fn new(table: MacTable) -> Self {
        Self { table, ports: PortSet::new(), now: AtomicU8::new(0) }
    }

    /// The ageing tick that workers stamp addresses with.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Tick {
        Tick(self.now.load(Ordering::Relaxed))
    }

    /// Moves the ageing clock on by one tick and forgets what is too old.
    pub fn tick(&self) {
        let now = self.now.load(Ordering::Relaxed).wrapping_add(1);
        self.now.store(now, Ordering::Relaxed);
        self.table.sweep(Tick(now));
    }
}

/// Which queues the ports of a switch have. Replaced as a whole when a port comes or goes.
#[derive(Debug, Clone)]
pub struct Topology {
    queues: Vec<Vec<QueueRef>>,
    /// How many ports take flooded frames, and what one costs at all of them together.
    flood: (u64, u64),
}

impl Default for Topology {
    fn default() -> Self {
        Self { queues: vec![Vec::new(); MAX_PORTS], flood: (0, 0) }
    }
}

impl Topology {
    /// Sets the queues of a port; none takes it off.
    pub fn set(&mut self, port: PortIndex, queues: Vec<QueueRef>) {
        if let Some(entry) = self.queues.get_mut(usize::from(port.0)) {
            *entry = queues;
        }
        let first = self.queues.iter().filter_map(|queues| queues.first());
        self.flood =
            first.fold((0, 0), |(count, cost), queue| (count + 1, cost + u64::from(queue.frame_cost)));
    }

    /// How many copies flooding a frame of port `from` takes, and what they cost where it is short.
    #[must_use]
    pub fn flood_cost(&self, from: PortIndex) -> (u64, u64) {
        let own = self.queues.get(usize::from(from.0)).and_then(|queues| queues.first());
        let (count, cost) = self.flood;
        own.map_or(self.flood, |own| (count - 1, cost - u64::from(own.frame_cost)))
    }

    /// The queue of `port` that takes unicast frames from a source's queue number `queue`: VALE keeps the ring index,
    /// modulo what the receiver has.
    #[inline]
    #[must_use]
    pub fn queue(&self, port: PortIndex, queue: u16) -> Option<QueueRef> {
        let queues = self.queues.get(usize::from(port.0))?;
        match queues.len() {
            0 => None,
            1 => queues.first().copied(),
            count => queues.get(usize::from(queue) % count).copied(),
        }
    }

    /// The queue of each port but `from` that takes flooded frames: ring 0, as in VALE.
    pub fn flood(&self, from: PortIndex) -> impl Iterator<Item = (PortIndex, QueueRef)> + '_ {
        (0u8..)
            .zip(&self.queues)
            .filter(move |(port, _)| *port != from.0)
            .filter_map(|(port, queues)| queues.first().map(|&queue| (PortIndex(port), queue)))
    }
}

/// A switch as one worker sees it.
#[derive(Debug, Clone)]
pub struct SwitchView {
    /// Shared by all workers.
    pub state: Arc<SwitchState>,
    /// The map that was in force when the worker last looked.
    pub topology: Arc<Topology>,
    /// Flooding that this worker does for others: copies beyond the first, frames for ports that left meanwhile.
    pub counters: Arc<QueueCounters>,
}

/// What becomes of the frames of a queue.
#[derive(Debug)]
pub enum Forwarding {
    /// To the ports of a switch.
    Switch {
        /// Which switch.
        switch: SwitchId,
        /// The source port, for learning.
        source: SourcePort,
        /// Index of the queue in its port.
        queue: u16,
    },
    /// All to one queue of the same worker.
    Wire(u32),
    /// Nowhere: frames stay where they are.
    Hold,
}
