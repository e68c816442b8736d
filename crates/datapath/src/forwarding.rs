//! The destination of a queue's frames, and the map from the ports of a switch to queues.

use std::sync::Arc;

use ringroad_port::counters::QueueCounters;
use ringroad_port::forwarding_plane::ForwardingPlane;
use ringroad_port::port_index::{MAX_PORTS, PortIndex, PortMask};

/// A queue, named by the worker that serves it and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueRef {
    /// Index of the worker.
    pub worker: u16,
    /// What a frame delivered to it costs ([`ringroad_port::port_queue::QueueProperties::frame_cost`]).
    pub frame_cost: u16,
    /// Place in the worker's engine.
    pub index: u32,
}

/// Number of a switch within one datapath.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwitchId(pub u16);

/// Which queues the ports of a switch have. Replaced as a whole when a port comes or goes.
#[derive(Debug, Clone)]
pub struct Topology {
    queues: Vec<Vec<QueueRef>>,
}

impl Default for Topology {
    fn default() -> Self {
        Self { queues: vec![Vec::new(); MAX_PORTS] }
    }
}

impl Topology {
    /// Sets the queues of a port; none takes it off.
    pub fn set(&mut self, port: PortIndex, queues: Vec<QueueRef>) {
        if let Some(entry) = self.queues.get_mut(usize::from(port.0)) {
            *entry = queues;
        }
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

    /// The same queues of the ports in `ports`.
    pub fn first_queues(&self, ports: PortMask) -> impl Iterator<Item = (PortIndex, QueueRef)> + '_ {
        let first = |port: PortIndex| self.queues.get(usize::from(port.0))?.first().copied();
        ports.iter().filter_map(move |port| Some((port, first(port)?)))
    }
}

/// A switch as one worker sees it.
#[derive(Debug)]
pub struct SwitchView {
    /// Decides where frames go.
    pub decide: Box<dyn ForwardingPlane>,
    /// The map that was in force at the worker's last check.
    pub topology: Arc<Topology>,
    /// Flooding that this worker does for others: copies beyond the first, frames for ports that left meanwhile.
    pub counters: Arc<QueueCounters>,
}

/// What becomes of the frames of a queue.
#[derive(Debug, Clone, Copy)]
pub enum Forwarding {
    /// Where the switch decides.
    Switch {
        /// Which switch.
        switch: SwitchId,
        /// The port that they come from.
        port: PortIndex,
        /// Index of the queue in its port.
        queue: u16,
    },
    /// All to one queue of the same worker.
    Wire(u32),
    /// Nowhere: frames stay where they are.
    Hold,
}
